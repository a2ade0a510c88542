"""Cures for a group that does not fit: one sentence for each thing that a person can do.

From the same facts as the answer: names that no node has, resources that are short, room reserved for other
groups, unhealthy devices, plugins that exclude nodes. Called by core.explaining.room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cycle.cycle import GANG
from gangsched.core.cycle.near_names import HARD, STATES_OF_NODES, TAINTS, near_names, unknown_label
from gangsched.core.cycle.shortage import (
    Lack,
    n_too_many,
    reserved_by,
    unhealthy,
)
from gangsched.core.framework.plan import TOPOLOGY, FitError, Shortage
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.group import Group
from gangsched.core.why import Why, is_about
from gangsched.core.why.not_tried import DevicesOff, FilterOff, NotDoneYet
from gangsched.core.why.resource_claims import (
    AllocatedThere,
    ConstraintUnmet,
    PoolUnusable,
    RequestLacks,
    ServesOther,
)
from gangsched.model.resources import amount_text
from gangsched.model.stated.topology import TOPOLOGY_KEY
from gangsched.model.text.printable import marked, sentence, several

_CLAIMS = "DynamicResources"
_BY_PLUGIN: Mapping[str, str] = {
    "TaintToleration": "Give the pods a toleration for the taint that is named, or take the taint off:"
    " kubectl taint nodes NODE KEY:EFFECT-.",
    "NodeAffinity": "Compare the pods' nodeSelector and nodeAffinity with the nodes' labels:"
    " kubectl get nodes --show-labels.",
    "NodeDeclaredFeatures": "Update the nodes' kubelets or turn the feature on there, or leave out what "
    "needs it: restart rules of all containers, user namespaces on the host's network, bind mounts' options.",
    "NodeUnschedulable": "Uncordon the nodes when they may take pods again: kubectl uncordon NODE.",
    "Devices": "See what the nodes list (gangsched devices), and whether the node agent runs there; or ask"
    " for less of a constraint.",
    _CLAIMS: "Ask for less in the pods' claims, or free devices: gangsched devices --all shows who has them.",
}
_VOLUMES = (
    "Create what is named, in the pods' namespace, or correct its name in the pods' spec.volumes"
    " (kubectl get persistentvolumeclaims)."
)
_OF_REFUSAL: Mapping[str, str] = {
    "": "Add nodes, or ask for less in the PodGroup's minResources.",
    _CLAIMS: "Create or correct what is named: kubectl get deviceclasses, and resourceclaims and"
    " resourceclaimtemplates of the pods' namespace.",
    "RemainingBandwidth": "Correct the annotation that is named in the pods' template.",
    **dict.fromkeys(("VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits"), _VOLUMES),
}
_LABEL_NODES = (
    f"Correct the label, in the annotation {TOPOLOGY_KEY} or in the PodGroup's own constraint; or give it to"
    " the nodes: kubectl label node NODE KEY=VALUE."
)
_MAKE_ROOM_BESIDE = "Make room where its other members are, or delete these: then it starts anew elsewhere."
_CORRECT = "Correct what the answer names in the pods' template."
_NOT_YET = (
    "Nothing in the pods' template is wrong: change it as the answer says, or leave the pods to a scheduler"
    " that does what it asks for."
)
_ENABLE = "Enable what the answer names in the pods' profile (plugins), or take out what needs it."
_REPAIR = "Repair the devices that are named, or ask for less: gangsched devices NODE shows each."
_SEE = "Fix what the answer names: no node was looked at."
_COMPARE = "Compare what the pods ask of nodes (nodeSelector, affinity, tolerations) with what nodes have."


def why_refused(error: FitError) -> str:
    """Why a plugin or a rule refused the group before any node was looked at."""
    by_rule = any(plugin == GANG for plugin, _ in error.rejected_by)
    is_written, text = by_rule and not is_about(error.why, NotDoneYet), sentence(error.message)
    return f"It cannot be scheduled as it is written: {text}" if is_written else text


def refused(error: FitError, view: NodeQueries) -> Iterator[str]:
    """Cures for a group that was refused before any node was looked at."""
    names = [plugin for plugin, _ in error.rejected_by]
    if TOPOLOGY in names:
        definition = error.group.definition
        required = [level.key for level in (definition.topology if definition else ()) if level.required]
        yield _LABEL_NODES if unknown_label(required, view) else _MAKE_ROOM_BESIDE
    elif GANG in names:
        is_off = is_about(error.why, FilterOff, DevicesOff)
        yield _ENABLE if is_off else _NOT_YET if is_about(error.why, NotDoneYet) else _CORRECT
    else:
        yield next((_OF_REFUSAL[name] for name in names if name in _OF_REFUSAL), _SEE)


def cures(
    short: Shortage,
    group: Group,
    waiting: Iterable[Group],
    found: Sequence[Lack],
    claims: Sequence[Why] = (),
) -> Iterator[str]:
    """Cures for a group that does not fit, the most certain first. found: the resources that are short;
    claims: what its resource claims lack."""
    if not short.trial.n_nodes:
        yield "Add nodes."
    elif (names := [*near_names(short)]) and all(isinstance(name, NotDoneYet) for name in names):
        yield _NOT_YET
    elif names:
        yield "Correct what is named in the pods' template, or give the nodes what it asks for."
    elif not found:
        yield from _excluding(short, claims)
    elif n_more := n_too_many(short):
        yield from _too_few(short, found, n_more)
        return
    else:
        yield from _room(short, group, waiting, found)
    if (down := _down(short)).any():
        yield _bring_back(short, down)


def _too_few(short: Shortage, found: Sequence[Lack], n_more: int) -> Iterator[str]:
    """Cures for a group that would not fit either if nothing else ran: first of what may pass."""
    n_passing = 0
    for cure in _passing(short, found):
        n_passing += 1
        yield cure
    n_now, each = short.n_wanted - short.n_fit, f"({_each(short, found)})"
    later = f" and wait for room on the others, add {_nodes(n_now)} to start at once" * (n_now > n_more)
    more = f"add {_nodes(n_more)}{_to(short)} {each}{later}, or ask for less."
    if n_passing:
        yield f"Or {more} On the nodes that suit it now it would not fit with nothing else running either."
    else:
        yield (
            "Waiting does not help: with nothing else running it would not fit either."
            f" {more[0].upper()}{more[1:]}"
        )


def _passing(short: Shortage, found: Sequence[Lack]) -> Iterator[str]:
    """Cures of states that keep nodes or devices from being used, and that may pass."""
    if (down := _down(short)).any():
        yield _bring_back(short, down)
    if (cordoned := _found_by("NodeUnschedulable", short) & ~down).any():
        name, n = short.trial.name(int(np.flatnonzero(cordoned)[0])), int(cordoned.sum())
        which = f"node {name}" if n == 1 else f"the {n} cordoned nodes, {name} among them,"
        yield f"Uncordon {which} when it may take pods again: kubectl uncordon {name}."
    if unhealthy(found, short.trial):
        yield _REPAIR


def _found_by(plugin: str, short: Shortage) -> BoolArray:
    """bool[n_rows]: nodes that this plugin excludes."""
    excluded = np.zeros(len(short.suits), dtype=np.bool_)
    for name, _, rows in short.found:
        if name == plugin:
            excluded |= rows
    return excluded


def _excluding(short: Shortage, claims: Sequence[Why]) -> Iterator[str]:
    """The cures for the plugin that excludes the most nodes; nodes that are down are not counted."""
    down, counted = _down(short), Counter[str]()
    for plugin, _, rows in short.found:
        counted[plugin] += int((rows & ~down).sum())
    most = [plugin for plugin, n in counted.most_common() if n]
    if most or not down.any():
        plugin = next((one for one in most if one in _BY_PLUGIN), "")
        own = [*_of_claims(claims)] if plugin == _CLAIMS else []
        yield from own or (_BY_PLUGIN.get(plugin, _COMPARE),)


def _of_claims(found: Sequence[Why]) -> Iterator[str]:
    """Yields what helps against what the claims lack, by the sentences about it."""
    is_unmet = any(isinstance(one, ConstraintUnmet) for one in found)
    for one in found:
        match one:
            case PoolUnusable(pool=pool, is_incomplete=True):
                yield (
                    f"Wait until the driver has published the rest of pool {pool}. If that takes long, see"
                    " whether it runs there, and what it says."
                )
            case PoolUnusable(pool=pool):
                yield (
                    f"Have pool {pool} corrected by its driver, which publishes it: kubectl get"
                    " resourceslices -o yaml shows what it is now."
                )
            case ServesOther(label=label):
                yield (
                    "Wait until the other ComputeDomain is gone, or delete it if nothing uses it: the nodes'"
                    f" label {label} has its UID (kubectl get computedomains -A -o yaml)."
                )
            case AllocatedThere(claim=claim):
                name = marked("resource claim", [claim])
                yield f"Make room where claim {name} is allocated, or end the pods that use it."
            case ConstraintUnmet(attribute=attribute):
                yield (
                    f"Ask for fewer devices, or leave out the constraint on {attribute}; or free such as meet"
                    " it: gangsched devices --all shows who has them."
                )
            case RequestLacks() if one.passes_none:
                yield (
                    "Correct the class or the selectors in the pods' claims, or add nodes with such devices:"
                    " of those that are there none passes (kubectl get resourceslices -o yaml)."
                )
            case RequestLacks() if one.n_tainted and not (one.n_used or one.n_uncounted or one.n_free):
                yield (
                    "Repair the devices that are tainted, or let the pods' claims tolerate it: gangsched"
                    " devices --all shows which."
                )
            case RequestLacks() if not is_unmet:
                yield _BY_PLUGIN[_CLAIMS]


def _down(short: Shortage) -> BoolArray:
    """bool[n_rows]: nodes excluded by a taint that Kubernetes itself set, such as not-ready."""
    view = short.trial
    codes = [
        code
        for taints, code in view.taint_classes.items()
        if any(one.effect in HARD and one.key.startswith(STATES_OF_NODES) for one in taints)
    ]
    if not codes:
        return np.zeros(len(short.suits), dtype=np.bool_)
    tainted: BoolArray = _found_by(TAINTS, short) & np.isin(view.taint_class, codes)
    return tainted


def _bring_back(short: Shortage, down: BoolArray) -> str:
    row, n = int(np.flatnonzero(down)[0]), int(down.sum())
    name = short.trial.name(row)
    which = f"node {name}" if n == 1 else f"the {n} nodes, {name} among them,"
    return (
        f"Bring back {which} that Kubernetes itself has tainted: its conditions say why (kubectl describe"
        f" node {name}), and the taint goes when they are good again."
    )


def _room(short: Shortage, group: Group, waiting: Iterable[Group], found: Sequence[Lack]) -> Iterator[str]:
    others = [*waiting]
    reserving = {str(one.key): 1 for lack in found for one in reserved_by(lack, short, group, others)}
    if reserving:
        yield (
            "See what the gangs that reserved it wait for"
            f" ({marked('gang', [next(iter(reserving))], lead='gangsched explain ')}): they"
            " start or give it back by then."
        )
    if unhealthy(found, short.trial):
        yield _REPAIR
    if short.is_alike:
        n = short.n_wanted - short.n_fit
        yield (
            f"Make room for {n} more of its members ({_each(short, found)}): end what runs there,"
            f" add {_nodes(n)}, or ask for less."
        )


def _each(short: Shortage, found: Sequence[Lack]) -> str:
    asked = ", ".join(f"{amount_text(one.resource, one.amount)} {one.resource}" for one in found)
    where = ", where its affinity, spread and host ports allow it" * short.minds_pods
    return f"each member needs {asked} on one node{where}"


def _nodes(n: int) -> str:
    return "1 such node" if n == 1 else f"up to {several(n, 'such node')}"


def _to(short: Shortage) -> str:
    return " to one such domain" if short.about_domains else ""

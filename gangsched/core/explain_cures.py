"""What would cure a group that does not fit: one sentence for each thing that somebody can do.

From the same facts as the answer: names that no node has, what is too small, what others have reserved,
devices that are not healthy, the plugins that exclude nodes. Called by core.explain_room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gangsched.core.cycle.near_names import near_names
from gangsched.core.cycle.shortage import (
    Lack,
    amount_text,
    n_when_empty,
    reserved_by,
    unhealthy,
)
from gangsched.core.framework.plan import Shortage
from gangsched.core.types.group import Group

_BY_PLUGIN: Mapping[str, str] = {
    "TaintToleration": "Give the pods a toleration for the taint that is named, or take the taint off:"
    " kubectl taint nodes NODE KEY:EFFECT-.",
    "NodeAffinity": "Compare the pods' nodeSelector and nodeAffinity with the nodes' labels:"
    " kubectl get nodes --show-labels.",
    "NodeUnschedulable": "Let the nodes take pods again when they may: kubectl uncordon NODE.",
    "Devices": "See what the nodes list (gangsched devices), and whether the node agent runs there; or ask"
    " for less of a constraint.",
}
_COMPARE = "Compare what the pods ask of nodes (nodeSelector, affinity, tolerations) with what nodes have."


def cures(short: Shortage, group: Group, waiting: Iterable[Group], found: Sequence[Lack]) -> Iterator[str]:
    """Sentences, the most certain first. found: the resources that are short."""
    if any(near_names(short)):
        yield "Correct what is named in the pods' template, or give the nodes what it asks for."
    elif not found:
        plugins = [plugin for plugin, _, rows in short.found if rows.any()]
        yield next((_BY_PLUGIN[one] for one in plugins if one in _BY_PLUGIN), _COMPARE)
    elif n_when_empty(short) < short.n_wanted and short.is_alike:
        nodes = _nodes(short.n_wanted - n_when_empty(short))
        yield (
            "Waiting does not help: with nothing else running it would not fit either."
            f" Add {nodes}{_to(short)} ({_each(short, found)}), or ask for less."
        )
    else:
        yield from _room(short, group, waiting, found)


def _room(short: Shortage, group: Group, waiting: Iterable[Group], found: Sequence[Lack]) -> Iterator[str]:
    others = [*waiting]
    reserving = {str(one.key): 1 for lack in found for one in reserved_by(lack, short, group, others)}
    if reserving:
        yield (
            f"See what those that have reserved it wait for (gangsched explain {next(iter(reserving))}): they"
            " start or give it back by then."
        )
    if unhealthy(found, short.trial):
        yield "Mend the devices that are named, or ask for less: gangsched devices NODE shows each."
    if short.is_alike:
        n = short.n_wanted - short.n_fit
        yield (
            f"Make room for {n} more of its members ({_each(short, found)}): end what runs there,"
            f" add {_nodes(n)}, or ask for less."
        )


def _each(short: Shortage, found: Sequence[Lack]) -> str:
    asked = ", ".join(f"{amount_text(one.resource, one.amount)} {one.resource}" for one in found)
    return f"each member needs {asked} on one node"


def _nodes(n: int) -> str:
    return "1 such node" if n == 1 else f"up to {n} such nodes"


def _to(short: Shortage) -> str:
    return " to one such domain" if short.about_domains else ""

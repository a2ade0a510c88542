"""Names in a pod's spec that no node has, and what may be meant: labels, and tolerated taints.

A wrong name is no shortage, and counts of reasons hide it: a node is counted under the first reason that
excludes it, which may be a taint. The work is bounded, and done only for an attempt that failed. Called by
core.cycle.shortage, core.cycle.domains.domains, core.explaining.room and core.explaining.cures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.framework.plan import Shortage
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why
from gangsched.model.objects import SelectorRequirement, Taint, Toleration
from gangsched.model.resource_claims.objects import DEVICE_CLASS_PREFIX
from gangsched.model.text.printable import shown
from gangsched.reading.strict import nearest

# Limits: names in a sentence and sentences of a kind; nodes; terms and tolerations.
_MAX_NAMED = 3
_MAX_ROWS = 64
_MAX_LOOKED_AT = 64
TAINTS = "TaintToleration"
HARD = ("NoSchedule", "NoExecute")
STATES_OF_NODES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of keys that Kubernetes itself puts on taints and tolerations: its admission makes every pod
tolerate not-ready and unreachable, and DaemonSets tolerate pressure. No user has mistyped them."""


def near_names(short: Shortage) -> Iterator[Why]:
    """Yields sentences for the pod's condition."""
    template, view = short.template, short.trial
    yield from _selected(template, view)
    yield from islice(_required(template, view), 1)
    for name in unoffered(short)[:_MAX_NAMED]:
        if device_class := view.claims.extended.class_of(name):
            yield (
                f"No node offers {name}: no driver has published devices on any of them (DeviceClass"
                f" {device_class} serves it), and no device plugin does."
            )
        elif name.startswith(DEVICE_CLASS_PREFIX):
            yield f"There is no DeviceClass {name.removeprefix(DEVICE_CLASS_PREFIX)}."
        elif name in template.missing:
            yield f"No node offers {name}{nearest(name, view.table.names) or '.'}"
    if any(plugin == TAINTS for plugin, _, _ in short.found):
        yield from islice(_tolerated(template, view), _MAX_NAMED)


def unoffered(short: Shortage) -> list[str]:
    """The resources that the pod requests and of which no node has any, by name."""
    template, view = short.template, short.trial
    none = [
        name
        for name, column in zip(template.names, template.columns, strict=True)
        if "/" in name and not view.allocatable(column).any()
    ]
    return sorted((*template.missing, *none))


def _selected(template: PodTemplate, view: NodeQueries) -> Iterator[str]:
    """Yields a sentence for each label that the nodeSelector names and no node has."""
    for key, value in islice(sorted((template.spec.node_selector or {}).items()), _MAX_NAMED):
        if text := _unknown(key, [value], view):
            yield f"nodeSelector: {text}"


def _required(template: PodTemplate, view: NodeQueries) -> Iterator[str]:
    """Yields a sentence on labels of the required node affinity that no node has, if no term can match."""
    affinity = template.spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    selector = node.required_during_scheduling_ignored_during_execution if node is not None else None
    terms = selector.node_selector_terms if selector is not None else None
    if not terms or len(terms) > _MAX_LOOKED_AT:
        return
    found = [_none_has(term.match_expressions or (), view) for term in terms]
    if all(found):
        yield f"nodeAffinity: {found[0]}"


def _none_has(requirements: list[SelectorRequirement] | tuple[()], view: NodeQueries) -> str:
    for one in requirements[:_MAX_LOOKED_AT]:
        if one.operator == "In" and (text := _unknown(one.key, one.values or (), view)):
            return text
    return ""


def _unknown(key: str, values: list[str] | tuple[()], view: NodeQueries) -> str:
    """Returns what is wrong if no node has the label with any of the values, else ""."""
    codes, by_value = view.label(key)
    there = set(np.unique(codes[view.live]).tolist())
    known = [one for one, code in by_value.items() if code in there]
    if not known:
        return f"no node has the label {key}{_near_label(key, view) or '.'}"
    if not values or not set(values).isdisjoint(known):
        return ""
    some = ", ".join(map(shown, values[:_MAX_NAMED]))
    meant = nearest(values[0], known) or f"; nodes have {', '.join(map(shown, sorted(known)[:_MAX_NAMED]))}."
    return f"no node has {key}={some}{meant}"


def unknown_label(keys: Iterable[str], view: NodeQueries) -> str:
    """Returns a text on the first of these labels that no node has, without a full stop; "" if there is
    none."""
    for key in keys:
        codes, _ = view.label(key)
        if not (codes[view.live] >= 0).any():
            return f"no node has the label {key}{_near_label(key, view)}"
    return ""


def _near_label(key: str, view: NodeQueries) -> str:
    nodes = (view.node(row) for row in np.flatnonzero(view.live)[:_MAX_ROWS].tolist())
    return nearest(key, {one for node in nodes if node is not None for one in node.metadata.labels or ()})


def _tolerated(template: PodTemplate, view: NodeQueries) -> Iterator[str]:
    """Yields a sentence for each toleration that comes near a taint and does not cover it.

    Users tolerate taints that no node has today, so a toleration that resembles no taint is not reported; nor
    is one that the API server or a controller has added.
    """
    tolerations = [one for one in template.spec.tolerations or () if one.key][:_MAX_LOOKED_AT]
    written = [one for one in tolerations if not _is_added(one, template)]
    if not written:
        return
    there = set(np.unique(view.taint_class[view.live]).tolist())
    classes = (taints for taints, code in view.taint_classes.items() if code in there)
    taints = [one for each in islice(classes, _MAX_LOOKED_AT) for one in each if one.effect in HARD]
    keys = {one.key for one in taints}
    own = {one.key for one in tolerations}
    for toleration in written:
        if toleration.key not in keys:
            if meant := nearest(toleration.key, keys - own):
                yield f"No node has the taint {toleration.key} that is tolerated{meant}"
            continue
        if missed := next((one for one in taints if _misses(toleration, one, tolerations)), None):
            yield f"The toleration {_text(toleration)} does not cover the taint {_told(missed)}."


def _is_added(toleration: Toleration, template: PodTemplate) -> bool:
    """Whether the toleration may not be the user's own. The admission plugin ExtendedResourceToleration, too,
    adds one for each requested resource."""
    if toleration.key.startswith(STATES_OF_NODES):
        return True
    is_for_all = (toleration.operator, toleration.effect) == ("Exists", "NoSchedule")
    return is_for_all and toleration.key in template.requests


def _misses(toleration: Toleration, taint: Taint, all_of_them: list[Toleration]) -> bool:
    """Whether the key matches and no toleration covers the taint."""
    return toleration.key == taint.key and not any(_covers(one, taint) for one in all_of_them)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    """Whether it covers the taint by key, value and effect; a comparison of numbers counts as covering."""
    if toleration.key != taint.key or toleration.effect not in ("", taint.effect):
        return False
    return toleration.operator not in ("", "Equal") or toleration.value == taint.value


def _text(toleration: Toleration) -> str:
    value = f"={shown(toleration.value)}" if toleration.operator in ("", "Equal") else ""
    return f"{toleration.key}{value}" + (f":{toleration.effect}" if toleration.effect else "")


def _told(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"

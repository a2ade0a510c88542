"""PodConstraints: checks that a pod is placed where its own words, and those of its neighbours, allow it.

A second, plain reading of selectors, affinity, taints, spread and ports, for the moment of the decision: what
becomes of nodes and neighbours later is no fault. Sources: the Kubernetes API reference (PodSpec), and
kube-scheduler 1.37 `plugins/podtopologyspread/filtering.go` for which nodes and pods count. What cannot be
read is not judged. Called by lab.sim.judges.step_judges after every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.reading.received import Received, reserved_on
from gangsched.model.objects import (
    ContainerPort,
    LabelSelector,
    Node,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    SelectorRequirement,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)

_CLOSES = ("NoSchedule", "NoExecute")
_CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_ANY_IP = ("", "0.0.0.0")


class _Unread(Exception):
    """Something in a form that is not known here."""


class _Place(NamedTuple):
    """A pod, and its node; None: a node that is gone."""

    pod: Pod
    node: Node | None


class _Scene(NamedTuple):
    """All places by UID of their pods, the UIDs of those that are new, and all nodes by name."""

    places: Mapping[str, _Place]
    new: Set[str]
    nodes: Mapping[str, Node]


class PodConstraints:
    """pod-constraints: a pod that is reserved stands where its selector, affinity, tolerations, spread and
    ports, and the anti-affinity of others, allowed it then."""

    def __init__(self) -> None:
        self._reserved: dict[str, str] | None = None
        """UID -> node of what was reserved after the last step; None before the first pod with
        constraints."""

    def check(self, scheduler: Scheduler, received: Received) -> Iterator[str]:
        """Checks what this step has reserved."""
        if not received.constrained:
            self._reserved = None
            return
        now = reserved_on(scheduler)
        before = now if self._reserved is None else self._reserved
        new = [uid for uid, node in now.items() if before.get(uid) != node]
        self._reserved = now
        if not new:
            return
        there = received.places(now)
        places = {uid: _Place(received.pods[uid], received.nodes.get(name)) for uid, name in there.items()}
        scene = _Scene(places, frozenset(new), received.nodes)
        for uid in new:
            place = scene.places.get(uid)
            if place is None or place.node is None:
                continue
            for wrong in (_of_node, _of_ports, _of_neighbours, _of_evenness):
                try:
                    yield from (
                        f"pod-constraints: {place.pod.metadata.name} is placed on"
                        f" {place.node.metadata.name}, {why}"
                        for why in wrong(place.pod, place.node, scene)
                    )
                except _Unread:
                    continue


# -- the node itself -------------------------------------------------------------------------------------


def _of_node(pod: Pod, node: Node, scene: _Scene) -> Iterator[str]:
    if not _wants(pod.spec, node):
        yield f"whose labels {node.metadata.labels} its selector or node affinity does not match"
    cordoned = [_CORDONED] if node.spec.unschedulable else []
    if closed := _closed([*(node.spec.taints or ()), *cordoned], pod.spec.tolerations or ()):
        yield f"whose taint {closed.key}={closed.value}:{closed.effect} it does not tolerate"


def _wants(spec: PodSpec, node: Node) -> bool:
    """Whether the node matches its nodeSelector and required node affinity."""
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return True
    return any(_matches_term(term, node) for term in required.node_selector_terms or ())


def _matches_term(term: NodeSelectorTerm, node: Node) -> bool:
    """An empty term matches no node."""
    labels, fields = node.metadata.labels or {}, {"metadata.name": node.metadata.name}
    of_labels, of_fields = term.match_expressions or (), term.match_fields or ()
    if not of_labels and not of_fields:
        return False
    return all(_meets(one, labels) for one in of_labels) and all(_meets(one, fields) for one in of_fields)


def _meets(asked: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(asked.key), asked.values or []
    match asked.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" if len(values) == 1 and values[0].isdecimal():
            if value is None or not value.isdecimal():
                return False
            return int(value) > int(values[0]) if asked.operator == "Gt" else int(value) < int(values[0])
    raise _Unread


def _closed(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """A taint that keeps the pod out."""
    tolerations = list(tolerations)
    for taint in taints:
        if taint.effect in _CLOSES and not any(_tolerates(one, taint) for one in tolerations):
            return taint
    return None


def _tolerates(one: Toleration, taint: Taint) -> bool:
    if one.effect not in ("", taint.effect):
        return False
    match one.operator:
        case "Exists":
            return one.key in ("", taint.key)
        case "Equal" | "":
            return one.key == taint.key and one.value == taint.value
    raise _Unread


# -- its neighbours --------------------------------------------------------------------------------------


def _of_ports(pod: Pod, node: Node, scene: _Scene) -> Iterator[str]:
    mine = _ports(pod)
    for uid, (other, where) in scene.places.items() if mine else ():
        if uid == pod.metadata.uid or where is None or where.metadata.name != node.metadata.name:
            continue
        for port in _ports(other):
            if any(_collide(port, own) for own in mine):
                yield f"where {other.metadata.name} has the port {port.host_port}/{port.protocol}"


def _ports(pod: Pod) -> list[ContainerPort]:
    return [port for one in pod.spec.containers for port in one.ports or () if port.host_port > 0]


def _collide(one: ContainerPort, other: ContainerPort) -> bool:
    if (one.host_port, one.protocol or "TCP") != (other.host_port, other.protocol or "TCP"):
        return False
    return one.host_ip == other.host_ip or one.host_ip in _ANY_IP or other.host_ip in _ANY_IP


def _of_neighbours(pod: Pod, node: Node, scene: _Scene) -> Iterator[str]:
    others = {uid: place for uid, place in scene.places.items() if uid != pod.metadata.uid}
    labels = node.metadata.labels or {}
    for term in _away_from(pod):
        for other, where in others.values():
            if _is_near(term, labels, where) and _means(term, pod, other):
                yield f"where its anti-affinity on {term.topology_key} forbids {other.metadata.name}"
    for other, where in others.values():
        for term in _away_from(other):
            if _is_near(term, labels, where) and _means(term, other, pod):
                yield f"which the anti-affinity of {other.metadata.name} on {term.topology_key} forbids"
    terms = _near_to(pod)
    if lacking := [term for term in terms if term.topology_key not in labels]:
        yield f"which lacks the label {lacking[0].topology_key} of its affinity"
    elif terms and not _has_near(pod, node, scene) and not _is_first(pod, scene):
        yield f"and no pod in the same {terms[0].topology_key} matches its affinity"


def _meant(pod: Pod, scene: _Scene) -> dict[str, _Place]:
    """The other pods that all its terms of affinity mean."""
    terms, mine = _near_to(pod), pod.metadata.uid
    return {
        uid: place
        for uid, place in scene.places.items()
        if uid != mine and all(_means(term, pod, place.pod) for term in terms)
    }


def _has_near(pod: Pod, node: Node, scene: _Scene) -> bool:
    """Whether each of its terms of affinity has one that all of them mean."""
    labels, meant = node.metadata.labels or {}, _meant(pod, scene).values()
    return all(any(_is_near(term, labels, one.node) for one in meant) for term in _near_to(pod))


def _is_first(pod: Pod, scene: _Scene) -> bool:
    """Whether it may have been the first of its kind, which goes anywhere.

    Those that are placed together are placed in some order: only one of them can have been the first.
    """
    terms = _near_to(pod)
    if not all(_means(term, pod, pod) for term in terms):
        return False
    for uid, (other, node) in _meant(pod, scene).items():
        if node is None or not any(term.topology_key in (node.metadata.labels or {}) for term in terms):
            continue
        if uid not in scene.new or (_near_to(other) == terms and not _has_near(other, node, scene)):
            return False
    return True


def _near_to(pod: Pod) -> list[PodAffinityTerm]:
    near = pod.spec.affinity.pod_affinity if pod.spec.affinity is not None else None
    return (near.required_during_scheduling_ignored_during_execution or []) if near is not None else []


def _away_from(pod: Pod) -> list[PodAffinityTerm]:
    away = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity is not None else None
    return (away.required_during_scheduling_ignored_during_execution or []) if away is not None else []


def _is_near(term: PodAffinityTerm, labels: Mapping[str, str], where: Node | None) -> bool:
    """Whether the other's node is in the same domain of the term."""
    theirs = (where.metadata.labels or {}).get(term.topology_key) if where is not None else None
    return theirs is not None and labels.get(term.topology_key) == theirs


def _means(term: PodAffinityTerm, by: Pod, other: Pod) -> bool:
    if term.namespace_selector is not None or term.match_label_keys or term.mismatch_label_keys:
        raise _Unread
    named = term.namespaces or [by.metadata.namespace]
    return other.metadata.namespace in named and _selects(term.label_selector, other)


def _selects(selector: LabelSelector | None, pod: Pod) -> bool:
    """None selects no pod, and an empty one all."""
    labels = pod.metadata.labels or {}
    if selector is None:
        return False
    is_equal = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return is_equal and all(_meets(one, labels) for one in selector.match_expressions or ())


# -- evenness --------------------------------------------------------------------------------------------


def _of_evenness(pod: Pod, node: Node, scene: _Scene) -> Iterator[str]:
    stated = [
        one for one in pod.spec.topology_spread_constraints or () if one.when_unsatisfiable == "DoNotSchedule"
    ]
    keys = {one.topology_key for one in stated}
    labels = node.metadata.labels or {}
    for one in stated:
        if one.topology_key not in labels:
            yield f"which lacks the label {one.topology_key} that it spreads over"
            continue
        counted = Counter[str]()
        for other in scene.nodes.values():
            if keys <= (other.metadata.labels or {}).keys() and _counts(one, pod, other):
                counted[(other.metadata.labels or {})[one.topology_key]] += 0
        for neighbour, where in scene.places.values():
            is_counted = where is not None and keys <= (where.metadata.labels or {}).keys()
            if where is None or not is_counted or not _counts(one, pod, where):
                continue
            if _spreads(one, pod, neighbour) and neighbour.metadata.deletion_timestamp is None:
                counted[(where.metadata.labels or {})[one.topology_key]] += 1
        least = min(counted.values(), default=0) if len(counted) >= (one.min_domains or 1) else 0
        # Where the node is no part of its domain, the pod itself counts all the same.
        own = 0 if _counts(one, pod, node) else int(_spreads(one, pod, pod))
        skew = counted[labels[one.topology_key]] + own - least
        if skew > one.max_skew:
            yield f"so that its skew over {one.topology_key} is {skew} of {one.max_skew}: {dict(counted)}"


def _counts(one: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    """Whether the node is part of its domain, by the constraint's policies."""
    if one.node_affinity_policy != "Ignore" and not _wants(pod.spec, node):
        return False
    taints, tolerations = node.spec.taints or (), pod.spec.tolerations or ()
    return one.node_taints_policy != "Honor" or _closed(taints, tolerations) is None


def _spreads(one: TopologySpreadConstraint, pod: Pod, other: Pod) -> bool:
    mine, theirs = pod.metadata.labels or {}, other.metadata.labels or {}
    if pod.metadata.namespace != other.metadata.namespace:
        return False
    if any(mine[key] != theirs.get(key) for key in one.match_label_keys or () if key in mine):
        return False
    return _selects(one.label_selector, other)

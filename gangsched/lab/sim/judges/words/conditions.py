"""Conditions: what a pod's condition says, against a plain reading of what the process received.

Recounts what the reason behind the condition names (core.why): nodes, cordons, taints, unhealthy devices,
which pod holds how much, which members exist, and what a queue has used. Only what is wrong whatever else is
reserved is a fault. Called by lab.sim.judges.step_judges at every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gangsched.core.scheduler import Scheduler
from gangsched.core.why import Why, parts_of, words
from gangsched.core.why.evictions import NoVictims, WaitsForVictims
from gangsched.core.why.incomplete import MembersMissing
from gangsched.core.why.nodes import (
    FewFit,
    HeldUntil,
    Insufficient,
    NodesExcluded,
    TooFewNodes,
    UnhealthyDevices,
    UntoleratedTaint,
)
from gangsched.core.why.not_tried import QueueFull
from gangsched.lab.sim.reading.documents import (
    Gang,
    allocatable,
    gang_of,
    healthy_ids,
    is_vast,
    pod_asks,
    required_labels,
)
from gangsched.lab.sim.reading.received import Received
from gangsched.model import effects as ef
from gangsched.model.objects import Node, Pod
from gangsched.model.text.printable import clean_for

_CORDONED = "NodeUnschedulable"
# What a pod may state without constraints on its node or its devices.
_HARMLESS = frozenset(("walltime", "queue", "min-members", "total-members", "groups", "pod-group"))
_NONE = Gang("", "", "")


class Conditions:
    """conditions-true: what a pod's condition counts and names is so."""

    def check(self, scheduler: Scheduler, effects: Iterable[ef.Effect], received: Received) -> Iterator[str]:
        """Before the effects are sent. Members of a gang get the same message: its reason is read once. A
        message that is not the group's last reason in words, such as a pointer to other pods, is not read."""
        texts = {one.message: one.uid for one in effects if isinstance(one, ef.WritePodCondition)}
        for text, uid in texts.items():
            pod, info = received.pods.get(uid), scheduler.shared.cache.pods.get(uid)
            if pod is None or info is None or info.group is None:
                continue
            why = info.group.why
            if text == clean_for(pod.metadata.namespace, words(why)):
                yield from (
                    f"conditions-true: {pod.key} reads {problem}, in: {text}"
                    for problem in _wrong([*parts_of(why)], pod, received)
                )


def _wrong(parts: list[Why], pod: Pod, received: Received) -> Iterator[str]:
    for part in parts:
        match part:
            case NodesExcluded():
                yield from _of_nodes(part, received)
            case NoVictims(n_nodes=n_nodes, n_helpful=n_helpful):
                if n_nodes != len(received.nodes) or n_helpful > n_nodes:
                    yield f"of {n_helpful} of {n_nodes} nodes, and there are {len(received.nodes)}"
            case MembersMissing():
                yield from _of_members(part, pod, received)
            case UnhealthyDevices(devices=devices):
                yield from _of_devices(devices, received)
            case HeldUntil():
                yield from _of_holders(part, received)
            case TooFewNodes(n_wanted=n_wanted):
                if (about := _subject(parts, pod, received)) is not None and _is_usual(parts):
                    yield from _of_an_empty_cluster(n_wanted, about, received)
            case QueueFull():
                if part.used + part.kept + part.needs <= part.limit:
                    yield f"that queue {part.queue} has no room for {part.needs} {part.resource}"
            case WaitsForVictims(pods=pods):
                keys = {one.key for one in received.pods.values()}
                yield from (f"of a victim {name}, which does not exist" for name in pods if name not in keys)


def _of_nodes(why: NodesExcluded, received: Received) -> Iterator[str]:
    n_nodes, counts = why.n_nodes, [one.n for one in why.by]
    if n_nodes != len(received.nodes):
        yield f"of {n_nodes} nodes, and there are {len(received.nodes)}"
    if any(n > n_nodes for n in counts) or (counts and sum(counts) < n_nodes):
        yield f"reasons of {counts} nodes, of {n_nodes}"
    for one in why.by:
        taint = one.why
        if one.plugin == _CORDONED:
            n_so = sum(bool(it.spec.unschedulable) or _has_taint(it, "") for it in received.nodes.values())
            if one.n > n_so:
                yield f"that {one.n} nodes are closed, and {n_so} are"
        elif isinstance(taint, UntoleratedTaint) and taint.key:
            n_so = sum(_has_taint(node, taint.key) for node in received.nodes.values())
            if one.n > n_so:
                yield f"that {one.n} nodes have the taint {taint.key}, and {n_so} have"


def _has_taint(node: Node, key: str) -> bool:
    return any(taint.key == (key or "node.kubernetes.io/unschedulable") for taint in node.spec.taints or ())


def _of_members(why: MembersMissing, pod: Pod, received: Received) -> Iterator[str]:
    """Members that are to go may count until they are gone, or no more; so may those that end meanwhile."""
    n, gang, says_more = why.n_existing, gang_of(pod), bool(why.n_gated or why.roles)
    own = [one for one in received.pods.values() if gang_of(one) == gang and not one.spec.scheduling_gates]
    n_most = sum(_is_member(one) for one in own)
    n_least = n_most - sum(_is_member(one) and one.metadata.deletion_timestamp is not None for one in own)
    if n > n_most or (n < n_least and not says_more):  # plugins hold back some, too
        yield f"that {n} members exist, and {n_most} do"
    if n >= why.n_needed and not says_more:
        yield f"that {n} of {why.n_needed} members are too few"


def _is_member(pod: Pod) -> bool:
    """Whether it may count for its gang: it has ended well, has a node, or waits for one and stays."""
    if pod.is_terminal:
        return pod.status.phase == "Succeeded"
    return bool(pod.spec.node_name) or pod.metadata.deletion_timestamp is None


def _of_devices(devices: Iterable[tuple[str, str]], received: Received) -> Iterator[str]:
    for device, name in devices:
        node = received.nodes.get(name)
        healthy = healthy_ids(node) if node is not None else None
        if healthy is not None and any(device in ids for ids in healthy.values()):
            yield f"that {device} on {name} is unhealthy"


def _subject(parts: Iterable[Why], pod: Pod, received: Received) -> Pod | None:
    """Returns the pod that the reason is about: the member that did not fit, maybe of a sibling gang."""
    named = next((one.member for one in parts if isinstance(one, FewFit)), None)
    if named is None:
        return pod
    alike = (one for one in received.pods.values() if one.metadata.name == named)
    return next((one for one in alike if one.metadata.namespace == pod.metadata.namespace), None)


def _is_usual(parts: Iterable[Why]) -> bool:
    """Whether all nodes are excluded for room, taints or cordons, and not for a plugin's own reason."""
    excluded = [one for part in parts if isinstance(part, NodesExcluded) for one in part.by]
    return all(
        one.plugin == _CORDONED or isinstance(one.why, Insufficient | UntoleratedTaint) for one in excluded
    )


def _of_an_empty_cluster(n_wanted: int, pod: Pod, received: Received) -> Iterator[str]:
    """Counts how often the pod fits on empty, open nodes; those that say more about their node are left out,
    and gangs of unlike pods."""
    own = pod.metadata.annotations or {}
    is_plain = all(key.partition("gangsched.io/")[2] in _HARMLESS for key in own if "gangsched.io/" in key)
    if not is_plain or pod.metadata.uid in received.constrained or pod.spec.volumes:
        return
    gang, asks = gang_of(pod), pod_asks(pod.spec)
    mates = [one for one in received.pods.values() if gang is not None and gang_of(one) == gang]
    if any(pod_asks(one.spec) != asks for one in mates) or required_labels(
        pod, received.groups.get(gang or _NONE)
    ):
        return
    n = sum(_copies(node, asks) for node in received.nodes.values() if not _is_closed(node))
    if n >= n_wanted:
        yield f"that an empty cluster is too small for {n_wanted}, and {n} fit"


def _is_closed(node: Node) -> bool:
    return bool(node.spec.unschedulable or node.spec.taints)


def _copies(node: Node, asks: Mapping[str, int]) -> int:
    has, healthy = allocatable(node), healthy_ids(node)
    if has is None or healthy is None:
        return 0
    has = {name: min(n, len(healthy[name])) if name in healthy else n for name, n in has.items()}
    return min(has.get(name, 0) // n for name, n in asks.items() if n)


def _of_holders(why: HeldUntil, received: Received) -> Iterator[str]:
    for one in why.by if "/" in why.resource else ():
        held = 0
        for uid, pod in received.pods.items():
            if one.name in (pod.key, str(gang_of(pod))) and (claim := received.claim_of(uid)) is not None:
                held += claim.requests.get(why.resource, 0)
        if one.amount > held and not is_vast(held):
            yield f"that {one.name} holds {one.amount} {why.resource}, and it holds {held}"

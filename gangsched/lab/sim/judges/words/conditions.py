"""Conditions: what a pod's condition says, against a plain reading of what the process received.

Reads the numbers and names out of the text as people do, and recounts them: nodes, cordons, taints, unhealthy
devices, which pod holds how much, which members exist, and what a queue has used. Only what is wrong whatever
else is reserved is a fault. Called by lab.sim.judges.step_judges at every step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

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

_AVAILABLE = re.compile(r"(\d+)/(\d+) nodes are available(?:: (.*?))?\.(?: |$)")
_REASON = re.compile(r"(?:^|, )(\d+) (?=[A-Za-z])")
_IN_BRACKETS = re.compile(r" \([^)]*\)")
_CORDONED = re.compile(r"(\d+) node\(s\) were unschedulable")
_TAINTED = re.compile(r"(\d+) node\(s\) had untolerated taint\(s\) \{([^}:=]+)[^}]*\}")
_UNHEALTHY = re.compile(r"Unhealthy: ([^.]*(?:\.[^ ][^.]*)*)\.(?: |$)")
_HOLDS = re.compile(r"(\S+/\S+) (?:holds )?(\d+) (?:(\S+/\S+) )?until about")
_EXIST = re.compile(r"^gang \S+ waits for members: (\d+) of (\d+) exist(.*(?:gated|role ).*)?$", re.M)
_LIMIT = re.compile(
    r"queue (\S+): (\d+) of (\d+) (\S+) used(?:, (\d+) kept for groups that .*?)?, needs (\d+)(?: |$|\.)"
)
# Reasons that are not a plugin's own.
_USUAL = re.compile(
    r"\d+ (?:Insufficient|node\(s\) (?:were unschedulable|had untolerated taint)|Preemption|No preemption)"
)
_MEMBER = re.compile(r"fit; member (\S+): ")
_TOO_SMALL = re.compile(
    r"(No node that suits it is large enough)|with nothing else running, (\d+) of (\d+) would fit"
)
# What a pod may state without constraints on its node or its devices.
_HARMLESS = frozenset(("walltime", "queue", "min-members", "total-members", "groups", "pod-group"))
_CHOSEN_VICTIMS = re.compile(r"waiting for \d+ pods? of lower priority to go: (.*)$")
# Pods of other namespaces are counted; that none is named is the judge tenants-apart's.
_NOT_NAMED = re.compile(r"(?:(?:^| and )(?:a pod|\d+ pods) of (?:another namespace|other namespaces))$")
_NONE = Gang("", "", "")


class Conditions:
    """conditions-true: what a pod's condition counts and names is so."""

    def check(self, effects: Iterable[ef.Effect], received: Received) -> Iterator[str]:
        """Before the effects are sent. Members of a gang get the same message: it is read once."""
        texts = {one.message: one.uid for one in effects if isinstance(one, ef.WritePodCondition)}
        for text, uid in texts.items():
            pod = received.pods.get(uid)
            if pod is not None:
                yield from (
                    f"conditions-true: {pod.key} reads {problem}, in: {text}"
                    for problem in _wrong(text, pod, received)
                )


def _wrong(text: str, pod: Pod, received: Received) -> Iterator[str]:
    for n_open, n_nodes, reasons in _AVAILABLE.findall(text):
        yield from _of_nodes(int(n_open), int(n_nodes), reasons, received)
    for n, n_needed, more in _EXIST.findall(text):
        yield from _of_members(int(n), int(n_needed), pod, received, says_more=bool(more))
    for listed in _UNHEALTHY.findall(text):
        yield from _of_devices(listed, received)
    yield from _of_holders(text, received)
    if (found := _TOO_SMALL.search(text)) and (about := _subject(text, pod, received)) is not None:
        yield from _of_an_empty_cluster(text, int(found[3] or 1), about, received)
    for queue, used, limit, resource, kept, needs in _LIMIT.findall(text):
        if int(used) + int(kept or 0) + int(needs) <= int(limit):
            yield f"that queue {queue} has no room for {needs} {resource}"
    for names in _CHOSEN_VICTIMS.findall(text):
        keys = {one.key for one in received.pods.values()}
        for name in names.split(", "):
            name = _NOT_NAMED.sub("", name)
            if name not in ("…", "") and name not in keys:
                yield f"of a victim {name}, which does not exist"


def _of_nodes(n_open: int, n_nodes: int, reasons: str, received: Received) -> Iterator[str]:
    if n_open or n_nodes != len(received.nodes):
        yield f"of {n_open} of {n_nodes} nodes, and there are {len(received.nodes)}"
    counts = [int(n) for n in _REASON.findall(_IN_BRACKETS.sub("", reasons))]
    if any(n > n_nodes for n in counts) or (reasons and sum(counts) < n_nodes):
        yield f"reasons of {counts} nodes, of {n_nodes}"
    for n in _CORDONED.findall(reasons):
        n_so = sum(bool(node.spec.unschedulable) or _has_taint(node, "") for node in received.nodes.values())
        if int(n) > n_so:
            yield f"that {n} nodes are closed, and {n_so} are"
    for n, key in _TAINTED.findall(reasons):
        n_so = sum(_has_taint(node, key) for node in received.nodes.values())
        if int(n) > n_so:
            yield f"that {n} nodes have the taint {key}, and {n_so} have"


def _has_taint(node: Node, key: str) -> bool:
    return any(taint.key == (key or "node.kubernetes.io/unschedulable") for taint in node.spec.taints or ())


def _of_members(n: int, n_needed: int, pod: Pod, received: Received, *, says_more: bool) -> Iterator[str]:
    """Members that are to go may count until they are gone, or no more; so may those that end meanwhile."""
    gang = gang_of(pod)
    own = [one for one in received.pods.values() if gang_of(one) == gang and not one.spec.scheduling_gates]
    n_most = sum(_is_member(one) for one in own)
    n_least = n_most - sum(_is_member(one) and one.metadata.deletion_timestamp is not None for one in own)
    if n > n_most or (n < n_least and not says_more):  # plugins hold back some, too
        yield f"that {n} members exist, and {n_most} do"
    if n >= n_needed and not says_more:
        yield f"that {n} of {n_needed} members are too few"


def _is_member(pod: Pod) -> bool:
    """Whether it may count for its gang: it has ended well, has a node, or waits for one and stays."""
    if pod.is_terminal:
        return pod.status.phase == "Succeeded"
    return bool(pod.spec.node_name) or pod.metadata.deletion_timestamp is None


def _of_devices(listed: str, received: Received) -> Iterator[str]:
    for one in listed.split(", "):
        device, on, name = one.partition(" on ")
        node = received.nodes.get(name)
        if not on or node is None:
            continue
        healthy = healthy_ids(node)
        if healthy is not None and any(device in ids for ids in healthy.values()):
            yield f"that {device} on {name} is unhealthy"


def _subject(text: str, pod: Pod, received: Received) -> Pod | None:
    """Returns the pod that the text is about: the member that did not fit, maybe of a sibling gang."""
    named = _MEMBER.search(text)
    if named is None:
        return pod
    alike = (one for one in received.pods.values() if one.metadata.name == named[1])
    return next((one for one in alike if one.metadata.namespace == pod.metadata.namespace), None)


def _of_an_empty_cluster(text: str, n_wanted: int, pod: Pod, received: Received) -> Iterator[str]:
    """Counts how often the pod fits on empty, open nodes; those that say more about their node are left out,
    and gangs of unlike pods."""
    own = pod.metadata.annotations or {}
    is_plain = all(key.partition("gangsched.io/")[2] in _HARMLESS for key in own if "gangsched.io/" in key)
    listed = [_IN_BRACKETS.sub("", reasons) for _, _, reasons in _AVAILABLE.findall(text)]
    is_plain = is_plain and all(_USUAL.match(one) for each in listed for one in each.split(", "))
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


def _of_holders(text: str, received: Received) -> Iterator[str]:
    """Each names its resource once, before the first holder's end."""
    resource = ""
    for name, n, named in _HOLDS.findall(text):
        resource = named or resource
        held = 0
        for uid, pod in received.pods.items():
            gang = gang_of(pod)
            if name in (pod.key, str(gang)) and (claim := received.claim_of(uid)) is not None:
                held += claim.requests.get(resource, 0)
        if int(n) > held and resource and not is_vast(held):
            yield f"that {name} holds {n} {resource}, and it holds {held}"

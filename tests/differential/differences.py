"""Where we differ from kube-scheduler and mean to; test_differences.py shows that each is still there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.differential.compare import reasons
from tests.differential.draw import Json
from tests.differential.kube import Attempt
from tests.differential.ours import Decision
from tests.differential.taking import Choice, Known


class Difference(NamedTuple):
    """why: for people. excuses: whether what differs for this pod is this difference and nothing more."""

    name: str
    why: str
    excuses: Callable[[Json, Attempt, Decision], bool]


def _only_words(pod: Json, theirs: Attempt, ours: Decision) -> bool:
    """Both refuse, and kube-scheduler's reason is one that it gives before any node is looked at."""
    early = ("pod affinity terms conflict", "node(s) didn't satisfy plugin(s) [NodeAffinity]")
    return (
        not theirs.node
        and not ours.node
        and _names_nodes(pod)
        and any(one in theirs.message for one in early)
    )


def _names_nodes(pod: Json) -> bool:
    affinity: dict[str, Any] = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms", [])
    return any("matchFields" in term for term in terms)


_CLAIMS_ELSEWHERE = "resourceclaim not available on the node"
_NO_DEVICES = ("cannot allocate all claims", "invalid resource pools were encountered")
_UNREADABLE = "the value must be an integer"
_LACKS = re.compile(
    r"node\(s\) (without the|with tainted|whose) devices for request \S+ \(class \S+\)( are in use)?"
    r"|node\(s\) whose pool of \S+ is .*"
    r"|(request|class) \S+: .*"
)


def _devices_lacking(pod: Json, theirs: Attempt, ours: Decision) -> bool:
    """Both refuse, and as many nodes are out for devices, and for each other reason."""
    if theirs.node or ours.node or theirs.is_error or not pod["spec"].get("resourceClaims"):
        return False
    mine, other = reasons(ours.message), reasons(theirs.message)
    if mine.get(_CLAIMS_ELSEWHERE, 0) < other.get(_CLAIMS_ELSEWHERE, 0):
        return False
    return _by_devices(mine) == _by_devices(other)


def _by_devices(counted: Mapping[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for reason, n in counted.items():
        is_of_devices = reason == _CLAIMS_ELSEWHERE or reason in _NO_DEVICES or _LACKS.fullmatch(reason)
        kind = "devices" if is_of_devices else reason
        found[kind] = found.get(kind, 0) + n
    return found


def _failed_on_a_node(pod: Json, theirs: Attempt, ours: Decision) -> bool:
    """An error of the allocator on one node ended kube-scheduler's attempt; we leave out a node at least."""
    if not theirs.message.startswith('running "DynamicResources" filter plugin: '):
        return False
    is_other = "timed out" in theirs.message or _UNREADABLE in theirs.message
    return theirs.is_error and not is_other and (not ours.node or len(ours.feasible) < ours.n_nodes)


class Spared(NamedTuple):
    """As Difference, of whom a pod takes the room of: of the case, kube-scheduler's choice and ours."""

    name: str
    why: str
    excuses: Callable[[Known, Choice, Choice], bool]


MEANT_OF_VICTIMS = (
    Spared(
        "pods on their way out",
        "kube-scheduler counts a pod that is being deleted as one that it would have to take; to us waiting "
        "for it costs nobody anything, so its node comes first.",
        lambda known, theirs, ours: any("deletionTimestamp" in one["metadata"] for one in known.settled),
    ),
    Spared(
        "budgets for everybody",
        "To kube-scheduler a disruption budget with an empty selector is about no pod; to us, as to the API "
        "server that is asked for the eviction, about all of its namespace.",
        lambda known, theirs, ours: False,
    ),
)

MEANT = (
    Difference(
        "words where there are no nodes",
        "kube-scheduler says that none are registered; we say that 0 of 0 are available.",
        lambda pod, theirs, ours: "no nodes are registered" in theirs.message and not ours.node,
    ),
    Difference(
        "words for nodes that matchFields leave out",
        "kube-scheduler does not look at nodes that required matchFields do not name and says that they "
        "do not satisfy the plugin; we look at all nodes at once and give each its own reason, a taint say. "
        "The same nodes are out.",
        _only_words,
    ),
    Difference(
        "a preference that cannot be read",
        "The API server takes a preferred term with a value that no label can have. kube-scheduler fails the "
        "pod with an error, again and again, unless one node is feasible and nothing is scored; to us the "
        "term is a wish that no node fulfils, and the pod runs.",
        lambda pod, theirs, ours: (
            theirs.is_error and 'PreScore plugin "NodeAffinity"' in theirs.message and bool(ours.node)
        ),
    ),
    Difference(
        "words for nodes without devices",
        "kube-scheduler says that not all claims can be allocated, or that there are invalid pools; we name "
        "the request, its class, and whether devices are missing, tainted or in use, or what fails on them. "
        "A node without a claim that is allocated elsewhere is out for that here, also where the other "
        "claims find no devices.",
        _devices_lacking,
    ),
    Difference(
        "an error of the allocator on one node",
        "All devices of a pool that is being updated, say, end kube-scheduler's attempt on all nodes, and "
        "the pod is tried again and again; to us such a node is not feasible, and others are. A selector "
        "that fails on a device ends the attempt here too, in words of ours.",
        _failed_on_a_node,
    ),
    Difference(
        "a node selector that cannot be read",
        "The API server takes slices and allocations whose node selectors compare a label with a word. "
        "kube-scheduler then allocates nothing on any node, and the pod is tried again and again; to us the "
        "slice's pool is invalid, the others are not, and such an allocation is on no node.",
        lambda pod, theirs, ours: theirs.is_error and _UNREADABLE in theirs.message,
    ),
    Difference(
        "claims that 256 pods use",
        "kube-scheduler finds a node for one more pod, whose reservation the API server refuses, again and "
        "again; we refuse the pod, before any node is looked at, as long as there are so many.",
        lambda pod, theirs, ours: not theirs.node and "at most 256 pods may use it" in ours.message,
    ),
    Difference(
        "claims for more than 32 devices",
        "kube-scheduler finds out on each node that other plugins leave; we refuse the pod before that.",
        lambda pod, theirs, ours: not theirs.node and ours.message.startswith("it asks for "),
    ),
    Difference(
        "allocations without their time",
        "kube-scheduler cannot reserve a claim that was allocated without allocationTimestamp: it sets that, "
        "which the API server refuses, again and again; we reserve it as it is.",
        lambda pod, theirs, ours: False,
    ),
    Difference(
        "clouds' limits without CSI",
        "A node without a CSINode has no driver that could say how many volumes it takes. kube-scheduler has "
        "forgotten the clouds' own limits; we hold them there, 39 EBS volumes and 16 GCE disks a node.",
        lambda pod, theirs, ours: False,
    ),
)

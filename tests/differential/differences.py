"""Where we differ from kube-scheduler and mean to; test_differences.py shows that each is still there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
        "clouds' limits without CSI",
        "A node without a CSINode has no driver that could say how many volumes it takes. kube-scheduler has "
        "forgotten the clouds' own limits; we hold them there, 39 EBS volumes and 16 GCE disks a node.",
        lambda pod, theirs, ours: False,
    ),
)

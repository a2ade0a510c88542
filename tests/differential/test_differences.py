"""Each difference that we mean is still one: the smallest cluster that shows it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential.compare import differences
from tests.differential.differences import MEANT
from tests.differential.draw import Given, Json
from tests.differential.kube import KubeScheduler
from tests.differential.ours import Ours
from tests.support.bodies import node, pod

pytestmark = pytest.mark.real


def ranked_node(name: str, **spec: Any) -> Json:
    has = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return node(name, has=has, spec=spec, labels={"rank": "5"})


def plain_pod(name: str, *, cpu: str = "1", affinity: Json | None = None, **spec: Any) -> Json:
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    return pod(name, cpu=cpu, schedulerName="plain", **spec)


def unreadable_preference() -> Given:
    expression = {"key": "rank", "operator": "Gt", "values": ["-4"]}
    terms = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    one = plain_pod("odd", affinity={"preferredDuringSchedulingIgnoredDuringExecution": terms})
    return Given([ranked_node("a"), ranked_node("b")], [], [one])


def named_node() -> Given:
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    one = plain_pod("named", cpu="5", affinity={"requiredDuringSchedulingIgnoredDuringExecution": required})
    return Given([ranked_node("a", unschedulable=True), ranked_node("b")], [], [one])


def resized_pod(name: str, *, has: str, asks: str, late: str, conditions: list[Json]) -> Given:
    """A node of 4 cpu with a pod that `has` some, and is to have what it `asks` for; another comes late."""
    held = {"cpu": has}
    container = {
        "name": "main",
        "image": "x",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "allocatedResources": held,
        "resources": {"requests": held},
    }
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}
    return Given(
        [ranked_node("a")],
        [plain_pod(name, cpu=asks, nodeName="a")],
        [plain_pod(f"late-{name}", cpu=late)],
        {name: status},
    )


def many_disks() -> Given:
    def disks(first: int, n: int) -> list[Json]:
        sources = [{"awsElasticBlockStore": {"volumeID": f"vol-{i}"}} for i in range(first, first + n)]
        return [{"name": f"v{i}", **source} for i, source in enumerate(sources)]

    full = plain_pod("full", volumes=disks(0, 39), nodeName="a")
    return Given([ranked_node("a")], [full], [plain_pod("one-more", volumes=disks(39, 1))])


SHOWN = {
    "words where there are no nodes": Given([], [], [plain_pod("nowhere")]),
    "words for nodes that matchFields leave out": named_node(),
    "a preference that cannot be read": unreadable_preference(),
    "clouds' limits without CSI": many_disks(),
}
UNMET = ("clouds' limits without CSI",)
"""What no random case meets is excused nowhere."""


def test_every_difference_is_shown() -> None:
    assert list(SHOWN) == [one.name for one in MEANT]


@pytest.mark.parametrize("name", SHOWN)
def test_the_difference_still_occurs(name: str, kube_scheduler: KubeScheduler) -> None:
    outcome = kube_scheduler.decide(SHOWN[name])
    [one] = outcome.pods
    theirs = outcome.attempts[one["metadata"]["name"]]
    ours = Ours(outcome).decide(one)
    assert differences(theirs, ours)
    excused = [meant.name for meant in MEANT if meant.excuses(one, theirs, ours)]
    assert excused == ([] if name in UNMET else [name])


@pytest.mark.parametrize(("reason", "late", "fits"), [("Infeasible", "3", True), ("Deferred", "1", False)])
def test_a_resize_that_a_kubelet_cannot_do_counts_the_same(
    reason: str, late: str, fits: bool, kube_scheduler: KubeScheduler
) -> None:
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    given = resized_pod(reason.lower(), has="1", asks="100", late=late, conditions=[pending])
    outcome = kube_scheduler.decide(given)
    [one] = outcome.pods
    theirs = outcome.attempts[one["metadata"]["name"]]
    ours = Ours(outcome).decide(one)
    assert bool(theirs.node) == bool(ours.node) == fits
    assert not differences(theirs, ours)


@pytest.mark.parametrize(("late", "fits"), [("1", True), ("2", False)])
def test_a_pod_that_is_being_made_smaller_counts_the_same(
    late: str, fits: bool, kube_scheduler: KubeScheduler
) -> None:
    under_way = {"type": "PodResizeInProgress", "status": "True"}
    given = resized_pod(f"shrinks-{late}", has="3", asks="1", late=late, conditions=[under_way])
    outcome = kube_scheduler.decide(given)
    [one] = outcome.pods
    theirs = outcome.attempts[one["metadata"]["name"]]
    ours = Ours(outcome).decide(one)
    assert bool(theirs.node) == bool(ours.node) == fits
    assert not differences(theirs, ours)

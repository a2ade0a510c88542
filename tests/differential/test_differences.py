"""Each difference that we mean is still one: the smallest cluster that shows it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential.compare import differences
from tests.differential.differences import MEANT
from tests.differential.draw import Devices, Given, Json
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


def claiming(
    name: str,
    *,
    of: Json,
    count: int = 1,
    selector: str = "",
    held: Json | None = None,
    node_selector: Json | None = None,
    is_own: bool = False,
) -> Given:
    """A node with two devices, of which one has a model; a pod with a claim. of: what the slice is of; held:
    the status that the claim has by then; is_own: it is made for the pod."""
    devices = [{"name": "d0"}, {"name": "d1", "attributes": {"model": {"string": "m"}}}]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "pool": pool, "devices": devices} | of
    exactly: Json = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    claim: Json = {
        "metadata": {"name": "asked", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }
    if held is not None:
        claim["status"] = held
    by = {"resourceClaimTemplateName": "t"} if is_own else {"resourceClaimName": "asked"}
    entry = {"name": "c"} | by
    pod = plain_pod(name, resourceClaims=[entry])
    pod["spec"] |= {"nodeSelector": node_selector} if node_selector else {}
    return Given(
        [ranked_node("a")],
        [],
        [pod],
        devices=Devices(
            [{"metadata": {"name": "any"}, "spec": {}}],
            [],
            [{"metadata": {"name": "s"}, "spec": spec}],
            [] if is_own else [claim],
            frozenset(),
            {name: {"c": claim}} if is_own else {},
            frozenset(),
        ),
    )


def holding(n_users: int, **more: Any) -> Json:
    """The status of a claim with a device, and so many users."""
    result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "d0"}
    users = [{"resource": "pods", "name": f"u{i}", "uid": f"u{i}"} for i in range(n_users)]
    status: Json = {"allocation": {"devices": {"results": [result]}, **more}}
    return status | ({"reservedFor": users} if users else {})


NOT_READ = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["big"]}]}
HERE = {"nodeName": "a"}
SHOWN = {
    "words where there are no nodes": Given([], [], [plain_pod("nowhere")]),
    "words for nodes that matchFields leave out": named_node(),
    "a preference that cannot be read": unreadable_preference(),
    "words for nodes without devices": claiming("lacks", of=HERE, count=3, is_own=True),
    "an error of the allocator on one node": claiming(
        "fails", of=HERE, selector="device.attributes['d.example.com'].model == 'm'"
    ),
    "a node selector that cannot be read": claiming(
        "unread", of={"nodeSelector": {"nodeSelectorTerms": [NOT_READ]}}
    ),
    "claims that 256 pods use": claiming(
        "many", of=HERE, held=holding(256, allocationTimestamp="2026-01-01T00:00:00Z")
    ),
    "claims for more than 32 devices": claiming("large", of=HERE, count=33, node_selector={"rank": "6"}),
    "allocations without their time": claiming("untimed", of=HERE, held=holding(0)),
    "clouds' limits without CSI": many_disks(),
}
UNMET = ("allocations without their time", "clouds' limits without CSI")
"""What no random case meets is excused nowhere."""


def test_every_difference_is_shown() -> None:
    assert list(SHOWN) == [one.name for one in MEANT]


@pytest.mark.parametrize("name", SHOWN)
def test_the_difference_still_occurs(name: str, kube_scheduler: KubeScheduler) -> None:
    outcome = kube_scheduler.decide(SHOWN[name])
    [one] = outcome.pods
    theirs = outcome.attempts[one["metadata"]["name"]]
    scheduler = Ours(outcome)
    scheduler.see(outcome.claims_before.get(one["metadata"]["name"], []))
    ours = scheduler.decide(one)
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

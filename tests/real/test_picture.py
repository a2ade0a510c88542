"""What the judge of whole histories says of pods that got no IDs, on histories made by hand."""

from __future__ import annotations

import json

import pytest

from gangsched.model.devices.annotations import ALLOCATED_KEY, VISIBLE_KEY
from gangsched.model.pod_group import ATTEMPT_KEY, GANG_KEY, RANK_KEY
from tests.real.picture import GPU, OURS, Json, Sight, check

INVENTORY = {"n0": {f"GPU-{k}" for k in range(8)}, "n1": set()}
LACKS = "p asked for 2, got"


def pod(name: str, node: str = "", *, gpus: int = 2, ids: tuple[str, ...] = (), of: str = OURS) -> Json:
    notes = {GANG_KEY: "g", RANK_KEY: "0", ATTEMPT_KEY: "1"} if node and of == OURS else {}
    if ids:
        notes |= {ALLOCATED_KEY: json.dumps({"main": {GPU: ids}}), VISIBLE_KEY: ",".join(ids)}
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    bound = {"conditions": [{"type": "PodScheduled", "status": "True"}]} if node else {}
    return {
        "metadata": {"name": name, "uid": name, "annotations": notes},
        "spec": {"schedulerName": of, "containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": "Pending", **bound},
    }


def judge(*events: tuple[str, Json]) -> None:
    check([Sight(type_, made, 0.0) for type_, made in events], INVENTORY)


NEW = ("ADDED", pod("p"))
BOUND = ("MODIFIED", pod("p", "n0"))


def theirs(node: str = "n0", *, gpus: int = 2) -> tuple[str, Json]:
    return "MODIFIED", pod("theirs", node, gpus=gpus, of="default-scheduler")


def gone(node: str = "n0") -> tuple[str, Json]:
    return "DELETED", pod("theirs", node, of="default-scheduler")


def ended() -> tuple[str, Json]:
    _, of = theirs()
    return "MODIFIED", {**of, "status": {"phase": "Succeeded"}}


def test_ids_may_be_missing_beside_a_pod_whose_devices_are_not_known() -> None:
    judge(theirs(), NEW, BOUND)
    judge(NEW, theirs(), BOUND)
    judge(NEW, theirs(), gone(), BOUND)
    judge(NEW, theirs(), ended(), BOUND)
    forged = theirs()
    forged[1]["metadata"]["annotations"] = {ALLOCATED_KEY: "all of them"}
    judge(forged, NEW, BOUND)


def test_a_pod_without_ids_is_itself_one_whose_devices_are_not_known() -> None:
    judge(theirs(), NEW, BOUND, gone(), ("ADDED", pod("q")), ("MODIFIED", pod("q", "n0")))


@pytest.mark.parametrize(
    "events",
    [
        (NEW, BOUND),
        (theirs("n1"), NEW, BOUND),
        (theirs(gpus=0), NEW, BOUND),
        (theirs(), gone(), NEW, BOUND),
        (theirs(), ended(), NEW, BOUND),
        (NEW, BOUND, theirs()),
    ],
    ids=["alone", "elsewhere", "no devices", "gone before", "ended before", "came after"],
)
def test_ids_that_are_missing_for_no_reason_are_found(events: tuple[tuple[str, Json], ...]) -> None:
    with pytest.raises(AssertionError, match=LACKS):
        judge(*events)


def test_some_of_the_ids_are_never_enough() -> None:
    with pytest.raises(AssertionError, match=LACKS):
        judge(theirs(), NEW, ("MODIFIED", pod("p", "n0", ids=("GPU-1",))))


def test_a_pod_whose_ids_are_known_is_no_reason() -> None:
    other = pod("other", "n0", ids=("GPU-0", "GPU-1"))
    with pytest.raises(AssertionError, match=LACKS):
        judge(("ADDED", pod("other")), ("MODIFIED", other), NEW, BOUND)

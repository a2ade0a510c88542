"""The checker passes a correct round and finds each mistake that is put into one."""

from __future__ import annotations

import copy
import json

import pytest

from gangsched.lab.bench.rounds import checks
from gangsched.model.devices.annotations import ALLOCATED_KEY
from gangsched.model.pod_group import RANK_KEY
from tests.bench.forged import SHAPE, Document, bound_pods, examine, unbound


def devices_of(pod: Document) -> str:
    return str(pod["metadata"]["annotations"][ALLOCATED_KEY])


def test_a_correct_round_has_no_problems() -> None:
    found = examine(bound_pods())
    assert found.problems == []
    assert (found.n_bound, found.first_bind_ns, found.last_bind_ns) == (12, 0, 11_000_000)
    assert found.gangs is not None
    assert (found.gangs.span_max_ms, found.gangs.most_open) == (3.0, 1)


def test_a_device_that_two_pods_have_is_found() -> None:
    pods = bound_pods()
    pods[1]["metadata"]["annotations"][ALLOCATED_KEY] = devices_of(pods[0])
    [problem] = examine(pods).problems
    assert problem.startswith("1 device was given out twice, first GPU-")
    assert "default/t-00000-000 and default/t-00000-001" in problem


def test_a_device_of_another_node_is_found() -> None:
    pods = bound_pods()
    pods[0]["metadata"]["annotations"][ALLOCATED_KEY] = devices_of(pods[11])
    pods[11]["metadata"]["annotations"][ALLOCATED_KEY] = devices_of(bound_pods()[0])
    [problem] = examine(pods).problems
    assert problem.startswith("2 devices are not of the pod's node")


def test_a_sick_device_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.bench import forged

    known = forged.inventories()
    known["node-00000"].healthy &= ~1
    monkeypatch.setattr(forged, "inventories", lambda: known)
    [problem] = examine(bound_pods()).problems
    assert problem.startswith("1 device is not healthy, first default/t-00000-000")


def test_node_first_and_devices_later_is_found() -> None:
    pods = bound_pods()
    late = copy.deepcopy(pods[5])
    del late["metadata"]["annotations"]
    [problem] = examine(pods, [late, *pods]).problems
    assert problem == "1 pod got its node without its devices, first default/t-00001-001"


def test_devices_first_and_node_later_is_found() -> None:
    pods = bound_pods()
    early = copy.deepcopy(pods[5])
    del early["spec"]["nodeName"]
    [problem] = examine(pods, [early, *pods]).problems
    assert problem == "1 pod got its devices without its node, first default/t-00001-001"


def test_devices_that_change_after_the_bind_are_found() -> None:
    pods = bound_pods()
    before = copy.deepcopy(pods[5])
    before["metadata"]["annotations"][ALLOCATED_KEY] = devices_of(pods[6])
    [problem] = examine(pods, [before, *pods]).problems
    assert problem == "1 pod had its devices changed, first default/t-00001-001"


def test_a_pod_that_is_not_bound_leaves_its_gang_in_part() -> None:
    pods = bound_pods()
    pods[0] = unbound(pods[0])
    assert examine(pods, pods[1:]).problems == [
        "1 pod is not bound, first default/t-00000-000",
        "1 gang is bound in part, first t-00000",
    ]


def test_a_bind_that_the_watch_never_showed_is_found() -> None:
    pods = bound_pods()
    assert examine(pods, pods[1:]).problems == [
        "1 pod is bound in the list and not in the watch, first default/t-00000-000"
    ]


def test_a_pod_that_moves_is_found() -> None:
    pods = bound_pods()
    elsewhere = copy.deepcopy(pods[0])
    elsewhere["spec"]["nodeName"] = "node-00002"
    assert "1 pod changed its node, first default/t-00000-000" in examine(pods, [elsewhere, *pods]).problems


def test_missing_wrong_and_too_many_devices_are_found() -> None:
    pods = bound_pods()
    del pods[0]["metadata"]["annotations"][ALLOCATED_KEY]
    pods[4]["metadata"]["annotations"][ALLOCATED_KEY] = json.dumps({"trainer": {"nvidia.com/gpu": []}})
    problems = examine(pods).problems
    assert "1 pod has no readable devices, first default/t-00000-000" in problems
    assert "1 pod has more or fewer devices than it asked for, first default/t-00001-000" in problems


def test_a_rank_that_comes_twice_is_found() -> None:
    pods = bound_pods()
    pods[1]["metadata"]["annotations"][RANK_KEY] = "0"
    assert examine(pods).problems == ["1 gang has ranks other than 0, 1, 2 and so on, first t-00000"]


def test_an_overcommitted_node_is_found() -> None:
    pods = bound_pods()
    pods[4]["spec"]["nodeName"] = "node-00000"
    assert "1 node has more pods than GPUs, first node-00000" in examine(pods).problems


def test_gangs_that_are_bound_all_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_GANGS_OPEN", 2)
    pods = bound_pods()
    by_rank = [pods[gang * SHAPE.gang_size + rank] for rank in range(4) for gang in range(3)]
    assert examine(pods, by_rank).problems == ["3 gangs were bound in part at one moment, at most 2 expected"]


def test_nothing_bound_is_no_crash() -> None:
    pods = [unbound(pod) for pod in bound_pods()]
    found = examine(pods)
    assert (found.n_bound, found.gangs) == (0, None)
    assert found.problems == ["12 pods are not bound, first default/t-00000-000"]

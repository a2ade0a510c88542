"""DefaultPreemption's arguments, budgets and limits; who goes is tests/core/test_preemption.py and others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import ContainerPort, Pod
from gangsched.model.workloads import PodDisruptionBudget
from gangsched.plugins.default_preemption import BUDGETS, Args
from tests.support.scenario import Cluster, on_node


@pytest.mark.parametrize(
    ("args", "n_nodes", "n_weighed"),
    [({}, 50, 50), ({}, 500, 100), ({}, 5000, 500), ({"min_candidate_nodes_percentage": 100}, 5000, 5000)],
)
def test_the_larger_number_of_nodes_is_weighed(args: dict[str, Any], n_nodes: int, n_weighed: int) -> None:
    assert Args(**args).n_candidates(n_nodes) == n_weighed


@pytest.mark.parametrize(
    ("percentage", "absolute", "said"),
    [
        (101, 100, "minCandidateNodesPercentage: 101 is not within 0 to 100"),
        (-1, 100, "minCandidateNodesPercentage: -1 is not within 0 to 100"),
        (10, -1, "minCandidateNodesAbsolute: -1 is below 0"),
        (0, 0, "minCandidateNodesPercentage: cannot be 0 at the same time as minCandidateNodesAbsolute"),
    ],
)
def test_arguments_that_kube_scheduler_refuses(percentage: int, absolute: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Args(min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute)


def test_a_budget_with_an_empty_selector_is_about_all_pods_of_its_namespace() -> None:
    """To kube-scheduler about none; the API server, when it is asked for an eviction, says as we do."""
    c = Cluster().node(make_node("n0", gpus=8)).run()
    c.submit(make_pod("kept", gpus=8)).run()
    item = {
        "metadata": {"name": "all", "namespace": "d", "uid": "uid-all", "resourceVersion": "1"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 0},
    }
    c.tell(ev.ObjectPut(BUDGETS, msgspec.convert(item, PodDisruptionBudget)))
    c.clear().submit(make_pod("new", gpus=8, priority=10)).run()
    assert [one.name for one in c.all(ef.DeletePod)] == ["kept"]


def test_a_search_that_ends_at_its_budget_reports_that() -> None:
    """The nodes that room alone would give away have ports that somebody of higher priority holds."""
    c = Cluster(Settings(search_victims=1))
    for k in range(3):
        c.node(make_node(f"n{k}", gpus=8))
    for k in range(3):
        c.submit(on_node(with_port(make_pod(f"door-{k}", gpus=0, priority=99)), f"n{k}"))
        c.submit(on_node(make_pod(f"low-{k}", gpus=8), f"n{k}"))
    c.run().clear().submit(with_port(make_pod("new", gpus=8, priority=10))).run()
    [said] = [one.message for one in c.all(ef.WritePodCondition) if one.name == "new"]
    assert "preemption: the search for pods of lower priority to evict ended at searchVictims (1)" in said
    assert not c.all(ef.EvictPod)


def test_a_lone_pod_that_would_not_fit_even_then_gives_the_reason() -> None:
    c = Cluster().node(make_node("n0", gpus=8)).run()
    c.submit(make_pod("low", gpus=8)).run().submit(make_pod("large", gpus=9, priority=10)).run()
    why = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    assert c.said("large") == (
        f"{why} preemption: even with all pods of lower priority gone, {why} "
        "No node that suits it is large enough, even with nothing else running."
    )


def with_port(pod: Pod) -> Pod:
    [container] = pod.spec.containers
    port = ContainerPort(container_port=80, host_port=8080)
    return replace(pod, spec=replace(pod.spec, containers=[replace(container, ports=[port])]))

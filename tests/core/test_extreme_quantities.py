"""Requests and capacities beyond all reason cost nobody else anything: every sum saturates, nothing wraps."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.core.cache.trial import Trial
from gangsched.lab.sim.objects import GPU, STRANGER, make_node, make_pod
from gangsched.model.objects import Container, Node, Pod, ResourceRequirements
from gangsched.model.resources import pod_requests
from gangsched.model.text.quantity import MAX_VALUE
from tests.support.scenario import Cluster, cluster, gang, on_node

HUGE = ("7Ei", "9E", "99999999999E", "1e999", "9223372036854775807")


def of_containers(pod: Pod, n: int, **more: object) -> Pod:
    """Its one container n times; `more` of the spec."""
    one = pod.spec.containers[0]
    same = [Container(name=f"c{i}", resources=one.resources) for i in range(n)]
    return replace(pod, spec=replace(pod.spec, containers=same, **more))


def asking(name: str, resource: str, amount: str | int, **more: object) -> Pod:
    pod = make_pod(name, gpus=0, **more)  # type: ignore[arg-type]
    asked = ResourceRequirements(requests={"cpu": "1", resource: amount})
    return replace(pod, spec=replace(pod.spec, containers=[Container(name="main", resources=asked)]))


def a_good_gang_still_starts(c: Cluster, name: str = "good") -> None:
    c.submit(gang(name, pods=2, gpus=2)).run()
    assert c.placed(name)
    c.scheduler.validate()


@pytest.mark.parametrize("amount", [*HUGE, 2**70])
@pytest.mark.parametrize("resource", ["memory", GPU, "cpu", "ephemeral-storage"])
def test_three_containers_that_ask_for_everything_wait_alone(resource: str, amount: str) -> None:
    c = cluster(nodes=2)
    c.submit(of_containers(asking("bad", resource, amount), 3)).run()
    assert c.untouched("bad")
    assert "Insufficient" in c.said("bad")
    a_good_gang_still_starts(c)


@pytest.mark.parametrize("amount", HUGE)
def test_strangers_that_hold_everything_are_counted_and_go_again(amount: str) -> None:
    c = cluster(nodes=2)
    for i in range(4):
        bad = of_containers(asking(f"bad{i}", "memory", amount, scheduler=STRANGER), 3)
        c.submit(on_node(bad, "n0"))
    a_good_gang_still_starts(c)
    assert {pod.spec.node_name for pod in c.pods.values() if "good" in pod.metadata.name} == {"n1"}
    c.delete("bad0", "bad1", "bad2", "bad3")
    assert c.node_table().free[1, 0] == 512 * 2**30, "what they held is free again, exactly"
    c.submit(gang("late", pods=2, gpus=8)).run()
    assert not c.node_table().beyond


def test_a_pod_that_is_bound_by_anybody_is_ours_nevertheless() -> None:
    c = cluster(nodes=2)
    c.submit(on_node(of_containers(asking("bad", "memory", "7Ei"), 3), "n0"))
    a_good_gang_still_starts(c)


@pytest.mark.parametrize("amount", HUGE)
def test_a_node_that_offers_everything_takes_what_there_is(amount: str) -> None:
    c = cluster(nodes=1)
    vast = make_node("vast", gpus=8)
    amounts = {**(vast.status.allocatable or {}), "memory": amount, "cpu": amount, "pods": amount}
    c.node(replace(vast, status=replace(vast.status, allocatable=amounts)))
    c.submit(gang("wide", pods=16, gpus=1)).run()
    assert c.placed("wide", on=2)
    for _ in range(3):  # also while it changes
        c.node(replace(vast, status=replace(vast.status, allocatable={"memory": amount, "cpu": "1"})))
        c.node(replace(vast, status=replace(vast.status, allocatable=amounts)))
    c.scheduler.validate()


def test_sums_of_overhead_sidecars_and_init_containers_saturate() -> None:
    asked = ResourceRequirements(requests={"memory": "7Ei"})
    init = [Container(name="side", resources=asked, restart_policy="Always"), Container(resources=asked)]
    pod = make_pod("p")
    spec = replace(pod.spec, init_containers=init * 2, overhead={"memory": "7Ei"}, resources=asked)
    assert pod_requests(spec)["memory"] == MAX_VALUE


def test_what_is_beyond_a_sum_is_exact_in_a_trial_too() -> None:
    c = cluster(nodes=1)
    for i in range(4):
        c.submit(on_node(asking(f"bad{i}", "memory", "7Ei", scheduler=STRANGER), "n0"))
    assert c.node_table().free[1, 0] == -MAX_VALUE
    trial = Trial(c.view())
    infos = list(c.pod_infos().values())
    trial.remove(*infos[:3])
    assert trial.free(1)[0] == 512 * 2**30 - MAX_VALUE
    trial.remove(*infos)
    assert trial.free(1)[0] == 512 * 2**30


def test_scores_of_vast_nodes_are_shares_like_any_other() -> None:
    """A hundred times 9E is no int64: the emptier of two vast nodes is the better one all the same."""

    def vast(name: str) -> Node:
        node = make_node(name, gpus=0)
        amounts = {**(node.status.allocatable or {}), "memory": "2E", "cpu": "1000"}
        return replace(node, status=replace(node.status, allocatable=amounts))

    c = Cluster().node(vast("full")).node(vast("free"))
    c.submit(on_node(asking("big", "memory", "1500P", scheduler=STRANGER), "full"))
    c.submit(make_pod("p", gpus=0)).run()
    assert c.pod("p").spec.node_name == "free"

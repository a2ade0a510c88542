"""Gangs of which some have succeeded: those do not come back, and what is still owed starts whole."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.lab.sim.objects import OURS, inventory, make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import Pod
from gangsched.model.owners import ORDERED
from tests import controllers as made
from tests.support.scenario import Cluster, cluster, gang

ALL = Settings(infer_gangs={OURS: ORDERED})


def replaced(c: Cluster, *indices: int) -> None:
    """These fail and get successors, one node being taken by somebody quicker."""
    for k in indices:
        c.phase(f"a-{k}", "Failed")
    c.submit(make_pod("quick", gpus=8)).run()


def test_where_some_have_succeeded_the_successors_of_the_others_start_together() -> None:
    c = cluster(nodes=4).submit(gang("a", pods=4, gpus=8)).run()
    c.phase("a-0", "Succeeded").phase("a-1", "Succeeded").submit(make_pod("other", gpus=8)).run()
    replaced(c, 2, 3)
    c.submit(make_pod("more", gpus=8)).run()
    first, last = (make_pod(f"a-{k}", group="a", min_members=4, gpus=8) for k in (4, 5))
    c.submit(first).run().wait(6.0)
    assert c.said("a-4") == "gang d/a waits for members: 3 of 4 exist"
    c.submit(last).run()
    assert c.are_bound("a-4", "a-5") == [False, False], "two are owed, and there is room for one"
    c.delete("quick").run().wait(10.0)
    assert c.are_bound("a-4", "a-5") == [True, True]
    c.five_more_turns_change_nothing()


def test_where_what_had_ended_was_deleted_the_rest_say_what_brings_them_back() -> None:
    c = cluster(nodes=4).submit(gang("a", pods=4, gpus=8)).run()
    for k in range(2):
        c.phase(f"a-{k}", "Succeeded")
    c.delete("a-0", "a-1").run()
    replaced(c, 2, 3)
    c.submit([make_pod(f"a-{k}", group="a", min_members=4, gpus=8) for k in (4, 5)]).run().wait(6.0)
    assert c.said("a-4") == (
        "gang d/a waits for members: 2 of 4 exist; members that ended and were deleted: 2; what has ended "
        "counts only while its pod exists: lower the number to what is still to run, or delete the others "
        "too so that their controller makes all of them again"
    )


def test_the_last_one_owed_starts_alone() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Succeeded").phase("a-1", "Failed")
    c.submit(make_pod("a-2", group="a", min_members=2, gpus=8)).run()
    assert c.are_bound("a-2") == [True]


def test_a_successor_whose_bind_fails_is_tried_again_and_nobody_is_taken_for_half_bound() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Succeeded").phase("a-1", "Failed")
    c.answer = lambda bind: "403"
    c.submit(make_pod("a-2", group="a", min_members=2, gpus=8)).run()
    assert not c.group("a").is_half_bound
    assert "bound in part" not in c.said("a-2")
    c.answer = lambda bind: "ok"
    c.wait(10.0)
    assert c.are_bound("a-2") == [True]


def test_a_restarted_scheduler_starts_what_is_owed_together() -> None:
    c = cluster(nodes=4).submit(gang("a", pods=4, gpus=8)).run()
    c.phase("a-0", "Succeeded").phase("a-1", "Succeeded").submit(make_pod("other", gpus=8)).run()
    replaced(c, 2, 3)
    c.submit(make_pod("more", gpus=8)).run()
    c.submit(*(make_pod(f"a-{k}", group="a", min_members=4, gpus=8) for k in (4, 5))).restart().run()
    assert c.are_bound("a-4", "a-5") == [False, False]
    c.delete("quick").run().wait(10.0)
    assert c.are_bound("a-4", "a-5") == [True, True]


def again(pods: list[Pod]) -> list[Pod]:
    """The same indices' next pods."""
    return [
        replace(p, metadata=replace(p.metadata, name=f"{p.metadata.name}-x", uid=f"{p.metadata.uid}-x"))
        for p in pods
    ]


def tell_job(c: Cluster, *, completions: int, **status: Any) -> Cluster:
    """What the Job says by now; four of its pods run at a time."""
    made_now = made.job("a", parallelism=4, completions=completions, status=status)
    return c.tell(ev.OwnerPut(made.owner(made_now)))


def bound_again(c: Cluster) -> int:
    return sum(bool(pod.spec.node_name) for pod in c.pods.values() if pod.metadata.name.endswith("-x"))


@pytest.mark.parametrize("is_kept", [True, False], ids=["its pod is kept", "its pod is gone"])
def test_a_resumed_job_starts_whole_without_the_indices_that_have_succeeded(*, is_kept: bool) -> None:
    c = tell_job(cluster(nodes=4, settings=ALL), completions=4)
    pods = made.decoded(made.job_pods("a", 4))
    assert c.submit(pods).run().n_bound() == 4
    tell_job(c.phase("a-0", "Succeeded"), completions=4, succeeded=1).run()
    c.delete("a-1", "a-2", "a-3")  # it is suspended
    if not is_kept:
        c.delete("a-0")
    c.submit(make_pod("quick", gpus=8), make_pod("other", gpus=8)).run()
    c.submit(again(pods[1:3])).run().wait(6.0)
    assert bound_again(c) == 0
    c.submit(again(pods[3:])).run()
    assert bound_again(c) == 0, "three are owed, and there is room for two"
    c.delete("quick").run().wait(10.0)
    assert bound_again(c) == 3
    c.five_more_turns_change_nothing()


def test_of_more_completions_than_run_at_a_time_as_many_as_are_left_start_together() -> None:
    c = tell_job(cluster(nodes=4, settings=ALL), completions=8)
    pods = made.decoded(made.job_pods("a", 8))
    c.submit(pods[:4]).run()
    for k in range(4):
        c.phase(f"a-{k}", "Succeeded").submit(pods[4 + k : 5 + k]).run()
        tell_job(c, completions=8, succeeded=k + 1)
    assert c.wait(2.0).n_bound() == 8, "each later one starts as it comes"
    tell_job(c.phase("a-4", "Succeeded"), completions=8, succeeded=5).run()
    c.delete("a-5", "a-6", "a-7").submit(make_pod("quick", gpus=8), make_pod("other", gpus=8)).run()
    c.submit(again(pods[5:])).run().wait(6.0)
    assert bound_again(c) == 0, "three are owed, and there is room for two"
    c.delete("quick").run().wait(10.0)
    assert bound_again(c) == 3


def test_an_index_that_has_failed_for_good_is_owed_no_longer() -> None:
    c = tell_job(cluster(nodes=4, settings=ALL), completions=4)
    pods = made.decoded(made.job_pods("a", 4))
    c.submit(pods).run()
    c.phase("a-0", "Failed").phase("a-1", "Failed").delete("a-2", "a-3")
    tell_job(c, completions=4, succeeded=0, failedIndexes="0-1").run()
    c.submit(again(pods[2:3])).run().wait(6.0)
    assert bound_again(c) == 0
    assert bound_again(c.submit(again(pods[3:])).run()) == 2


def test_a_gang_that_is_being_bound_does_not_grow_by_a_success_that_its_job_has_not_noted() -> None:
    c = tell_job(cluster(nodes=4, settings=ALL), completions=4)
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    c.submit(made.decoded(made.job_pods("a", 4))).run()
    c.phase("a-0", "Succeeded").run()
    for bind in c.held_binds:
        pod = c.commit(bind)
        c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(pod))
    c.wait(60.0)
    assert c.n_bound() == 4, "nobody was evicted"
    assert c.state("a") == "bound"


@pytest.mark.parametrize("counted", [4, 2], ids=["as at first", "without those that have succeeded"])
def test_a_workload_admitted_again_starts_whole_without_the_pods_that_have_succeeded(counted: int) -> None:
    def admit(n: int, *, reclaimable: int = 0) -> Cluster:
        admitted = made.workload("job-a-1f2e", asked=4, admitted=n, reclaimable=reclaimable)
        return c.tell(ev.OwnerPut(made.owner(admitted)))

    c = cluster(nodes=4, settings=ALL)
    admit(4)
    pods = made.decoded(made.admitted_pods("a", "job-a-1f2e", 4))
    c.submit(pods).run().phase("a-0", "Succeeded").phase("a-1", "Succeeded").delete("a-2", "a-3")
    admit(counted, reclaimable=2).run()
    c.submit(*(make_pod(name, gpus=8) for name in ("quick", "other", "more"))).run()
    c.submit(again(pods[2:])).run().wait(6.0)
    assert bound_again(c) == 0, "two are owed, and there is room for one"
    c.delete("quick").run().wait(10.0)
    assert bound_again(c) == 2


@pytest.mark.parametrize(
    ("indexes", "n"), [("", 0), ("3", 1), ("1,3-5,7", 5), ("5-3", 0), ("all", 0), ("1-2-3,-4,9", 1)]
)
def test_indices_that_have_failed_are_counted_as_the_job_writes_them(indexes: str, n: int) -> None:
    status = {"failedIndexes": indexes}
    owner = made.owner(made.job("a", parallelism=100, completions=100, status=status))
    assert owner.n_owed(OURS) == 100 - n


def watched(settings: Settings) -> Cluster:
    c = Cluster(settings)
    for i in range(4):
        c.node(make_node(f"n{i}", gpus=8))
    return c


def test_a_gang_that_is_evicted_for_a_device_starts_again_without_those_that_have_succeeded() -> None:
    c = watched(Settings(devices=DeviceSettings(on_failure="evictGang", failure_grace_s=30.0)))
    c.submit(gang("a", pods=3, gpus=8)).run().phase("a-0", "Succeeded")
    node = c.nodes[c.pod("a-2").spec.node_name]
    listed = {INVENTORY_KEY: inventory(node.metadata.name, 8, unhealthy=[3])}
    c.node(replace(node, metadata=replace(node.metadata, annotations=listed))).wait(31.0)
    assert [pod.metadata.name for pod in c.pods.values()] == ["a-0"]
    c.submit(make_pod("a-3", group="a", min_members=3, gpus=8)).run().wait(15.0)
    assert c.are_bound("a-3") == [False], "two are owed"
    c.submit(make_pod("a-4", group="a", min_members=3, gpus=8)).run().wait(15.0)
    assert c.are_bound("a-3", "a-4") == [True, True]
    c.five_more_turns_change_nothing()


def test_a_gang_that_is_unwound_starts_again_without_those_that_have_succeeded() -> None:
    c = watched(Settings(on_partial_bind="unwind"))
    c.answer = lambda bind: "403" if bind.name == "a-2" else "hold" if bind.name == "a-1" else "ok"
    c.submit(gang("a", pods=3, gpus=8)).run().phase("a-0", "Succeeded")
    c.answer = lambda bind: "ok"
    [held] = c.held_binds
    c.tell(ev.BindSucceeded(held.uid, held.attempt), ev.PodUpdated(c.commit(held))).run()
    assert "a-1" not in [pod.metadata.name for pod in c.pods.values()]
    c.submit(make_pod("a-3", group="a", min_members=3, gpus=8)).run().wait(15.0)
    assert c.are_bound("a-2", "a-3") == [True, True]


def test_what_a_job_has_said_while_its_gang_was_being_bound_holds_once_the_binds_have_failed() -> None:
    """Its parallelism is lowered meanwhile, and its controller deletes the pod that is too many."""
    c = tell_job(cluster(nodes=4, settings=ALL), completions=4)
    c.answer = lambda bind: "hold"
    c.submit(made.decoded(made.job_pods("a", 4))).run()
    c.tell(ev.OwnerPut(made.owner(made.job("a", parallelism=3))))
    first, *others = c.held_binds
    c.answer = lambda bind: "ok"
    c.tell(*(ev.BindFailed(bind.uid, bind.attempt, 403, "Forbidden", "no") for bind in others))
    c.delete("a-0").tell(ev.BindFailed(first.uid, first.attempt, 404, "NotFound", "gone"))
    assert c.run().wait(10.0).n_bound() == 3

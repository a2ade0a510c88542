"""Members that end, and their successors: a gang that failed starts whole again, one that is done goes on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.lab.sim.objects import at, make_node, make_pod
from gangsched.lab.sim.runs.duel import make_follower
from gangsched.model import events as ev
from gangsched.model.objects import Condition, PodStatus
from gangsched.model.pod_group import ATTEMPT_KEY, RANK_KEY
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def test_the_successors_of_a_gang_that_failed_start_together() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Failed").phase("a-1", "Failed")  # kept by their Job, and so still members
    c.submit(make_pod("quick", gpus=8)).run()
    c.submit(gang("a", pods=2, gpus=8, first=2)).run()
    assert c.are_bound("a-2", "a-3") == [False, False], "there is room for one only"
    c.delete("quick").wait(2.0)
    assert c.are_bound("a-2", "a-3") == [True, True]
    c.five_more_turns_change_nothing()


def test_a_gang_that_failed_waits_for_all_its_successors() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Failed").phase("a-1", "Failed")
    c.submit(make_pod("a-2", group="a", min_members=2, gpus=8)).run().wait(6.0)
    assert c.said("a-2") == "gang d/a waits for members: 1 of 2 exist"
    c.submit(make_pod("a-3", group="a", min_members=2, gpus=8)).run()
    assert c.are_bound("a-2", "a-3") == [True, True]


def ranks(c: Cluster, *names: str) -> list[str]:
    return [(c.pod(name).metadata.annotations or {})[RANK_KEY] for name in names]


def test_the_successors_of_a_gang_that_failed_have_its_ranks() -> None:
    c = cluster(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    c.phase("a-0", "Failed").phase("a-1", "Failed")  # kept by their Job
    c.submit(gang("a", pods=2, gpus=8, first=2)).run()
    assert ranks(c, "a-2", "a-3") == ["0", "1"]


def test_a_follower_learns_the_ranks_that_the_leader_gives() -> None:
    c = Cluster(make=make_follower).node(make_node("n0", gpus=8))
    c.submit(gang("a", pods=3, min_members=2))
    for k in range(2):
        given = {RANK_KEY: str(k), ATTEMPT_KEY: "4"}
        pod = with_annotations([c.pod(f"a-{k}")], given)[0]
        c.update(pod, spec=replace(pod.spec, node_name="n0"), metadata=pod.metadata)
    c.tell(ev.LeadershipGained()).run()
    assert ranks(c, "a-0", "a-1", "a-2") == ["0", "1", "2"]
    assert (c.pod("a-2").metadata.annotations or {})[ATTEMPT_KEY] == "5"


def test_a_pod_that_another_process_has_bound_keeps_its_rank_though_ours_was_on_its_way() -> None:
    """Each of two believes that it leads: the other one has given rank 2 to the pod to which ours gives 0."""
    c = cluster(nodes=1)
    c.answer = lambda _: "hold"
    c.submit(gang("a", pods=3, gpus=0)).run()
    assert len(c.held_binds) == 3
    pod = with_annotations([c.pod("a-0")], {RANK_KEY: "2", ATTEMPT_KEY: "7"})[0]
    c.update(pod, spec=replace(pod.spec, node_name="n0"), metadata=pod.metadata)
    c.answer = lambda _: "ok"
    for bind in c.held_binds[1:]:
        c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Refused", "no"))
    c.run().wait(20.0)
    assert c.are_bound("a-0", "a-1", "a-2") == [True, True, True]
    assert sorted(ranks(c, "a-0", "a-1", "a-2")) == ["0", "1", "2"]
    assert ranks(c, "a-0") == ["2"]


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
def test_a_successor_has_the_rank_of_the_member_that_failed_or_is_being_deleted(*, restarts: bool) -> None:
    c = cluster(nodes=5).submit(gang("a", pods=4, gpus=8)).run()
    c.phase("a-0", "Succeeded").phase("a-1", "Failed").leave("a-3")
    if restarts:
        c.restart().run()
    c.submit(gang("a", pods=2, gpus=8, first=4, min_members=4)).run()
    assert ranks(c, "a-0", "a-2", "a-4", "a-5") == ["0", "2", "1", "3"]


@pytest.mark.parametrize("wanted", [3, 1], ids=["fewer", "one by one"])
def test_members_that_failed_have_no_say_in_how_many_of_the_next_start_together(wanted: int) -> None:
    c = cluster(nodes=4).submit(gang("a", pods=4, gpus=8)).run()
    for k in range(4):
        c.phase(f"a-{k}", "Failed")
    c.submit(make_pod("other", gpus=8), make_pod("more", gpus=8)).run()
    names = ["a-4", "a-5", "a-6"]
    c.submit(gang("a", pods=3, gpus=8, first=4, min_members=wanted)).run().wait(5.0)
    assert sum(c.are_bound(*names)) == (2 if wanted == 1 else 0), "two fit"
    c.delete("other").run().wait(20.0)
    assert c.are_bound(*names) == [True, True, True]
    c.five_more_turns_change_nothing()


def test_one_failed_member_is_replaced_beside_the_others() -> None:
    c = cluster(nodes=3).submit(gang("a", pods=3, gpus=8)).run()
    c.phase("a-1", "Failed").submit(make_pod("a-3", group="a", min_members=3, gpus=8)).run()
    assert c.are_bound("a-3") == [True]


def test_members_that_are_done_still_count_for_those_that_come_after() -> None:
    # Six completions, four at a time: the last two are no gang of four of their own.
    c = cluster(nodes=4).submit(gang("a", pods=4, gpus=8)).run()
    for k in range(4):
        c.phase(f"a-{k}", "Succeeded")
    c.submit(*(make_pod(f"a-{k}", group="a", min_members=4, gpus=8) for k in (4, 5))).run()
    assert c.are_bound("a-4", "a-5") == [True, True]


@pytest.mark.parametrize("successor", [False, True], ids=["before its successor", "with its successor"])
def test_a_restarted_scheduler_takes_a_gang_with_a_failed_member_for_whole(successor: bool) -> None:
    c = cluster(nodes=3).submit(gang("a", pods=3, gpus=8)).run()
    for name in ("a-0", "a-1", "a-2"):
        c.store(c.pod(name), status=PodStatus(conditions=[scheduled(c)]))
    c.phase("a-1", "Failed").submit(make_pod("quick", gpus=8)).run()
    c.now_s += 5.0
    if successor:
        c.submit(make_pod("a-3", group="a", min_members=3, gpus=8))
    c.restart().run().wait(120.0)
    assert c.are_bound("a-0", "a-2") == [True, True], "nobody was evicted"
    if successor:
        assert "Insufficient" in c.said("a-3")


@pytest.mark.parametrize("made_s", [3.0, 7.0], ids=["before the last bind", "after it"])
def test_a_bind_tells_who_was_left_out_although_its_pod_has_failed_since(made_s: float) -> None:
    """Two members run, the third was bound at 5 s and has failed, the fourth was made again."""
    c = cluster(nodes=3)
    for k, bound_s in enumerate((2.0, 2.0, 5.0)):
        c.now_s = bound_s
        pod = make_pod(f"a-{k}", group="a", min_members=4, gpus=8)
        pod = replace(pod, spec=replace(pod.spec, node_name=f"n{k}"))
        c.store(pod, status=PodStatus("Running", conditions=[scheduled(c)]))
    failed = c.pod("a-2")
    c.store(failed, status=replace(failed.status, phase="Failed"))
    c.store(make_pod("a-3", group="a", min_members=4, gpus=8, now_s=made_s))
    c.store(make_pod("a-4", group="a", min_members=4, gpus=8, now_s=20.0))
    c.now_s = 20.0
    c.restart().run().wait(120.0)
    runs = [pod.metadata.name for pod in c.pods.values() if pod.spec.node_name and not pod.is_terminal]
    assert runs[:2] == (["a-0", "a-1"] if made_s > 5.0 else [])


def scheduled(c: Cluster) -> Condition:
    """What the API server notes when it binds a pod."""
    return Condition("PodScheduled", "True", last_transition_time=at(c.now_s))


def test_a_member_that_fails_at_once_leaves_the_gang_whole() -> None:
    """As where its node's kubelet refuses it: the others run, and its successor comes alone."""
    c = cluster(nodes=2)
    c.answer = lambda bind: "hold" if bind.name == "a-1" else "ok"
    c.submit(gang("a", pods=2, gpus=8)).run()
    [bind] = c.held_binds
    c.commit(bind)
    c.phase("a-1", "Failed").tell(ev.BindSucceeded(bind.uid, bind.attempt)).wait(60.0)
    assert c.are_bound("a-0") == [True], "nobody was evicted"
    assert c.state("a") == "bound"

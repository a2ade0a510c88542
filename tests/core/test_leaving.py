"""Members that are being deleted while those that come in their place exist already: these start whole."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.lab.sim.objects import OURS, make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.owners import ORDERED
from tests import controllers as made
from tests.support.scenario import Cluster, cluster, gang


def n_bound(c: Cluster, *names: str) -> int:
    return sum(bool(c.pod(name).spec.node_name) for name in names)


def left(c: Cluster, *names: str) -> Cluster:
    for name in names:
        c.leave(name)
    return c


NEW = ("a-3", "a-4", "a-5")


@pytest.mark.parametrize("is_first", [True, False], ids=["then they come", "they wait already"])
@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
def test_the_next_pods_of_a_gang_that_is_being_deleted_start_together(
    *, is_first: bool, restarts: bool
) -> None:
    """One node is free while the old ones end."""
    c = cluster(nodes=3).submit(gang("a", pods=3, gpus=8)).run()
    fresh = gang("a", pods=3, gpus=8, first=3)
    if is_first:
        left(c, "a-0", "a-1", "a-2").submit(fresh).run()
    else:
        left(c.submit(fresh).run(), "a-0", "a-1", "a-2")
    if restarts:
        c.restart().run()
    c.node(make_node("n3", gpus=8)).run().wait(20.0)
    assert n_bound(c, *NEW) == 0, "three start together"
    c.delete("a-0").run().wait(20.0)
    if restarts:
        c.restart().run().wait(20.0)
    assert n_bound(c, *NEW) == 0, "there is room for two"
    c.delete("a-1").run().wait(20.0)
    assert n_bound(c, *NEW) == 3
    c.delete("a-2").run().five_more_turns_change_nothing()


def test_so_do_those_of_a_gang_that_was_preempted() -> None:
    c = cluster(nodes=3).submit(gang("a", pods=3, gpus=8)).run()
    c.evictions = "slow"
    c.submit(make_pod("hi", gpus=8, priority=10)).run()
    c.node(make_node("n3", gpus=8)).submit(gang("a", pods=3, gpus=8, first=3)).run().wait(10.0)
    assert n_bound(c, *NEW) == 0
    c.delete("a-0", "a-1", "a-2").run().wait(20.0)
    assert (n_bound(c, "hi"), n_bound(c, *NEW)) == (1, 3)


def test_one_that_is_replaced_while_others_run_starts_by_itself() -> None:
    c = cluster(nodes=4).submit(gang("a", pods=3, gpus=8)).run()
    c.leave("a-0").submit(gang("a", pods=1, gpus=8, first=3, min_members=3)).run()
    assert n_bound(c, "a-3") == 1


def test_one_that_is_deleted_while_a_controllers_gang_is_bound_is_no_longer_of_it() -> None:
    c = cluster(nodes=5, settings=Settings(infer_gangs={OURS: ORDERED}))
    c.tell(ev.OwnerPut(made.owner(made.job("a", parallelism=2, completions=2))))
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    old = made.decoded(made.job_pods("a", 2))
    c.submit(old).run().leave("a-0")
    [held] = c.held_binds
    c.tell(ev.BindSucceeded(held.uid, held.attempt), ev.PodUpdated(c.commit(held)))
    c.answer = lambda bind: "ok"
    c.leave("a-1").submit(gang("others", pods=2, gpus=8)).run()
    new = [replace(pod, metadata=replace(pod.metadata, uid=f"{pod.metadata.uid}-next")) for pod in old]
    c.submit(new).run()
    assert not any(c.pods[pod.metadata.uid].spec.node_name for pod in new), "there is room for one"

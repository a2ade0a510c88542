"""Evictions for a unit that never starts: bounded, whatever keeps it from starting, and across restarts."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.core.framework.interface import SUCCESS, Status
from gangsched.lab.sim.objects import STRANGER, at, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model.objects import Condition, OwnerReference, Pod
from tests.core.plugins import Permitter, with_plugins
from tests.support.scenario import Cluster, cluster, gang

HOUR_S = 3600.0


def remade(name: str, node: str, *, priority: int = 0) -> Pod:
    """A pod of another scheduler, bound, with a controller that makes another when it is gone."""
    pod = make_pod(name, gpus=8, scheduler=STRANGER, priority=priority)
    owner = OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-web", controller=True
    )
    meta = replace(pod.metadata, owner_references=[owner])
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=node))


def evictions(c: Cluster) -> int:
    return len({effect.uid for effect in c.effects if isinstance(effect, ef.EvictPod | ef.DeletePod)})


def written(c: Cluster) -> Cluster:
    """The server has the conditions that were written."""
    for effect in c.all(ef.WritePodCondition):
        pod = c.pods.get(effect.uid)
        if pod is not None and effect.type.startswith("gangsched.io/"):
            mine = Condition(effect.type, effect.status, effect.reason, effect.message, at(c.now_s))
            c.pods[effect.uid] = replace(pod, status=replace(pod.status, conditions=[mine]))
    return c


class Refilled(Cluster):
    """The default scheduler binds a successor to each node that one of its pods has left, at once."""

    n_remade = 0

    def _evict(self, effect: ef.EvictPod | ef.DeletePod) -> None:
        victim = self.pods[effect.uid]
        super()._evict(effect)
        if victim.metadata.controller is not None:
            self.n_remade += 1
            self.update(remade(f"web-new-{self.n_remade}", victim.spec.node_name))


def beside_the_default_scheduler(nodes: int = 2) -> Refilled:
    c = Refilled()
    for k in range(nodes):
        c.node(make_node(f"n{k}")).update(remade(f"web-{k}", f"n{k}"))
    return c


def test_pods_that_are_recreated_in_the_room_of_a_gang_are_not_evicted_for_ever() -> None:
    c = beside_the_default_scheduler()
    c.submit(gang("g", pods=2, gpus=8, priority=10)).run()
    c.wait(95.0)
    assert evictions(c) <= 6
    c.wait(HOUR_S)
    assert evictions(c) <= 20, "two victims a round: the pauses double from a minute to an hour"
    assert "RoomTaken" in c.reasons()
    assert "rounds of evictions did not let it start, as pods of another scheduler took the room" in c.said(
        "g-0"
    )
    c.wait(24 * HOUR_S)
    assert evictions(c) <= 72


def test_a_gang_whose_evictions_were_in_vain_starts_at_once_where_room_comes() -> None:
    c = beside_the_default_scheduler()
    c.submit(gang("g", pods=2, gpus=8, priority=10)).run().wait(600.0)
    before = evictions(c)
    c.node(make_node("m0")).node(make_node("m1")).run()
    assert c.placed("g", on=2)
    assert evictions(c) == before


def test_pods_that_nobody_recreates_are_preferred_once_room_was_lost() -> None:
    """They are more important than those of the controller, which would go first."""
    c = beside_the_default_scheduler(1)
    own = make_pod("own", gpus=8, priority=5)
    c.node(make_node("n1")).update(replace(own, spec=replace(own.spec, node_name="n1")))
    c.submit(gang("g", pods=1, gpus=8, priority=10)).run().wait(120.0)
    assert c.pod("g-0").spec.node_name == "n1"
    assert evictions(c) == 2


def test_a_restart_does_not_begin_at_none() -> None:
    c = beside_the_default_scheduler()
    c.submit(gang("g", pods=2, gpus=8, priority=10)).run()
    for _ in range(30):
        written(c).restart().run().wait(1.0)
    assert evictions(c) <= 6, "half a minute of restarts"


def test_a_restart_knows_of_rounds_that_were_written_on_a_pod_that_is_gone() -> None:
    c = beside_the_default_scheduler()
    c.submit(gang("g", pods=2, gpus=8, priority=10)).run().wait(30.0)
    before = evictions(c)
    c.delete("g-0").submit(gang("g", pods=1, gpus=8, first=2, min_members=2, priority=10)).run().wait(5.0)
    written(c).restart().run().wait(5.0)
    assert evictions(c) == before


def test_evictions_for_a_gang_that_permit_then_refuses_are_bounded() -> None:
    def says(group: object) -> Status:
        refuses = getattr(getattr(group, "key", None), "name", "") == "high"
        return Status.unschedulable("not today") if refuses else SUCCESS

    c = with_plugins(Permitter("P", says), nodes=1)
    c.submit(make_pod("low-0", gpus=8)).run().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    for k in range(1, 60):
        c.submit(make_pod(f"low-{k}", gpus=8)).run().wait(10.0)
    assert "not today" in "".join(effect.message for effect in c.all(ef.WritePodCondition))
    assert evictions(c) <= 6, "ten minutes"


def test_evictions_that_were_all_refused_do_not_hold_a_gang_up() -> None:
    """An admission webhook refuses for half a minute: no pod has gone, so none has to be spared then."""
    c = cluster(nodes=1).submit(make_pod("low", gpus=8)).run()
    c.evictions = "403"
    c.submit(gang("g", pods=1, gpus=8, priority=10)).run().wait(30.0)
    assert "no pod is evicted for it" not in c.said("g-0")
    c.evictions = "ok"
    c.wait(20.0)
    assert c.placed("g", on=1), c.said("g-0")


def test_a_gang_that_grows_by_evictions_is_not_held_up() -> None:
    c = cluster(nodes=8)
    c.submit([make_pod(f"low-{k}", gpus=8) for k in range(8)]).run()
    for k in range(8):
        c.submit(gang("g", pods=1, gpus=8, min_members=1, first=k, priority=10)).run().wait(1.0)
    assert c.placed("g", on=8)


# -- nominations of others ---------------------------------------------------------------------------------


def nominated(name: str, node: str) -> Pod:
    pod = make_pod(name, gpus=8, scheduler="gone", priority=100)
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def test_room_is_not_kept_for_ever_for_a_scheduler_that_is_gone() -> None:
    c = cluster(nodes=1).update(nominated("ghost", "n0"))
    c.submit(make_pod("p", gpus=8)).run().wait(200.0)
    assert not c.pod("p").spec.node_name, "another scheduler has evicted for it, as far as anybody knows"
    c.wait(101.0)
    assert c.pod("p").spec.node_name == "n0"
    c.update(c.pod("ghost")).run()
    assert not c.nominated()


def test_another_node_is_kept_again_and_pods_that_are_leaving_prolong_it() -> None:
    c = cluster(nodes=2).submit(make_pod("slow", gpus=8)).run()
    (node,) = {c.pod("slow").spec.node_name}
    other = "n1" if node == "n0" else "n0"
    c.leave("slow").update(nominated("ghost", node)).wait(400.0)
    assert "uid-d-ghost" in c.nominated()
    c.delete("slow").wait(31.0)
    assert not c.nominated()
    ghost = c.pod("ghost")
    c.update(ghost, status=replace(ghost.status, nominated_node_name=other))
    assert c.nominated()["uid-d-ghost"].node_name == other

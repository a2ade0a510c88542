"""Preemption as scenarios: who goes, what is kept meanwhile, how it ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.framework.interface import SUCCESS, Status
from gangsched.core.state.line import queue as waiting
from gangsched.lab.sim.objects import STRANGER, inventory, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import ContainerPort, Pod, SchedulingGroup
from gangsched.model.pod_group import DISRUPTION_KEY, GROUPS_KEY
from gangsched.model.workloads import PodDisruptionBudget
from tests.core.plugins import Permitter, with_plugins
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def singles(c: Cluster, n: int, *, gpus: int = 4, prefix: str = "low", **more: Any) -> Cluster:
    """Lone pods of no priority, placed."""
    c.submit([make_pod(f"{prefix}-{k}", gpus=gpus, **more) for k in range(n)]).run()
    assert c.placed(prefix)
    return c


def nominations(c: Cluster) -> dict[str, str]:
    """What nominatedNodeName was written last."""
    return {e.name: e.node for e in c.all(ef.NominateNode)}


def bind_as_stranger(c: Cluster, name: str, node: str, *, gpus: int, priority: int = 0) -> Pod:
    pod = make_pod(name, gpus=gpus, scheduler=STRANGER, priority=priority)
    c.submit(pod)
    return c.update(c.pod(name), spec=replace(pod.spec, node_name=node)).pod(name)


def budget(c: Cluster, allowed: int, **labels: str) -> Cluster:
    """A PodDisruptionBudget over pods with these labels."""
    item = {
        "metadata": {"name": "pdb", "namespace": "d", "uid": "uid-pdb", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return c.tell(ev.ObjectPut("poddisruptionbudgets.policy", msgspec.convert(item, PodDisruptionBudget)))


# -- who goes ----------------------------------------------------------------------------------------------


def test_a_gang_takes_the_fewest_singles_that_make_all_of_it_fit() -> None:
    c = singles(cluster(nodes=4), 8)
    c.evictions = "slow"
    c.submit(gang("high", pods=2, gpus=8, priority=10)).run()
    assert len(c.taken()) == 4
    assert c.state("high") == "waiting"
    assert c.untouched("high")
    c.delete(*c.taken()).run()
    assert c.placed("high", on=2)
    c.five_more_turns_change_nothing()


def test_no_pod_is_evicted_for_a_gang_that_would_not_fit_even_then() -> None:
    c = singles(cluster(nodes=4), 7)
    bind_as_stranger(c, "strong-0", "n0", gpus=1, priority=100)
    bind_as_stranger(c, "strong-1", "n1", gpus=1, priority=100)
    c.clear().submit(gang("high", pods=3, gpus=8, priority=10)).run()
    assert not c.taken()
    assert "preemption: even with all pods of lower priority gone" in c.said("high-0")
    assert "gang d/high: 2 of 3 fit" in c.said("high-0")
    c.wait(60.0)
    assert not c.taken()
    assert c.state("high") == "unschedulable"


def test_equal_priority_takes_no_victim() -> None:
    c = singles(cluster(nodes=1), 2, priority=10)
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert not c.taken()
    assert c.said("high-0").endswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")


def test_a_gang_that_must_not_preempt_waits_for_room() -> None:
    c = singles(cluster(nodes=1), 2)
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10, preempts=False)).run()
    assert not c.taken()
    assert c.said("high-0").endswith("preemption: not eligible due to preemptionPolicy=Never.")


def test_without_leave_to_evict_there_is_no_preemption() -> None:
    c = singles(cluster(nodes=1, settings=Settings(allow_eviction=False)), 2)
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert not c.taken()
    assert "preemption" not in c.said("high-0")


def test_nobody_is_evicted_from_a_node_that_would_not_take_the_pod_anyway() -> None:
    c = singles(cluster(nodes=2), 4)
    for name in ("n0", "n1"):
        c.node(replace(c.nodes[name], spec=replace(c.nodes[name].spec, unschedulable=True)))
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert not c.taken()
    assert c.said("high-0").endswith(
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_pods_of_other_schedulers_go_too() -> None:
    c = cluster(nodes=1)
    bind_as_stranger(c, "other", "n0", gpus=6)
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.taken() == ["other"]
    assert c.run().placed("high")


def test_the_lower_priority_goes_first() -> None:
    c = singles(cluster(nodes=2), 1, gpus=8, prefix="mid", priority=5)
    singles(c, 1, gpus=8, prefix="low", priority=1)
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.taken() == ["low-0"]


def together(name: str, *others: str, **more: Any) -> list[Pod]:
    """A gang of priority 10 that starts with these others."""
    own = msgspec.json.encode([name, *others]).decode()
    return with_annotations(gang(name, priority=10, **more), {GROUPS_KEY: own})


def test_a_group_that_comes_while_its_set_waits_for_victims_waits_with_it() -> None:
    """Room was kept for it, and it stood in no queue: it would have been forgotten."""
    c = singles(cluster(nodes=2), 2)
    c.evictions = "slow"
    c.submit(together("a", "b", pods=2, gpus=6)).run()
    assert c.state("a") == "waiting"
    c.submit(together("b", "a", pods=1, gpus=2)).run()
    assert c.state("a") == c.state("b") == "waiting"
    assert "waiting for 2 pods of lower priority to go" in c.said("b-0")
    c.delete(*c.taken()).run()
    assert c.placed("a")
    assert c.placed("b")
    c.five_more_turns_change_nothing()


def test_two_groups_that_wait_for_victims_and_begin_to_list_each_other_wait_as_one() -> None:
    c = singles(cluster(nodes=2), 2, gpus=8)
    c.evictions = "slow"
    c.submit(gang("a", pods=1, gpus=8, priority=10), gang("b", pods=1, gpus=8, priority=10)).run()
    assert c.state("a") == c.state("b") == "waiting"
    for name, other in (("a", "b"), ("b", "a")):
        (fresh,) = together(name, other, pods=1, gpus=8)
        c.update(c.pod(f"{name}-0"), metadata=replace(fresh.metadata, uid=c.pod(f"{name}-0").metadata.uid))
    c.run()
    first, second = c.taken()
    c.delete(first).run()
    assert c.untouched("a"), "one victim of the two is not gone yet"
    assert c.untouched("b")
    c.delete(second).run()
    assert c.placed("a")
    assert c.placed("b")
    c.five_more_turns_change_nothing()


def test_gangs_that_start_together_make_room_as_one() -> None:
    c = singles(cluster(nodes=2), 4)
    own = {"gangsched.io/groups": '["a","b"]'}
    strong = bind_as_stranger(c, "strong", "n1", gpus=0, priority=100)
    pods = [*gang("a", pods=1, gpus=8, priority=10), *gang("b", pods=2, gpus=8, priority=10)]
    for pod in with_annotations(pods, own):
        c.tell(ev.PodAdded(c.store(pod)))
    c.clear().run()
    assert not c.taken(), "three nodes are needed and there are two"
    c.node(make_node("n2")).wait(10.0).run()
    assert len(c.taken()) == 4
    assert c.placed("a")
    assert c.placed("b")
    assert c.pod("strong").metadata.uid == strong.metadata.uid


def test_a_host_port_is_free_again_once_who_holds_it_is_evicted() -> None:
    def listening(pods: list[Pod]) -> list[Pod]:
        ports = [ContainerPort(container_port=80, host_port=80)]
        own = [[replace(one, ports=ports) for one in pod.spec.containers] for pod in pods]
        return [
            replace(pod, spec=replace(pod.spec, containers=containers))
            for pod, containers in zip(pods, own, strict=True)
        ]

    c = cluster(nodes=2).submit(listening(gang("low", pods=2, gpus=1))).run()
    c.submit(listening(gang("high", pods=2, gpus=1, priority=10))).run().wait(5.0)
    assert sorted(set(c.taken())) == ["low-0", "low-1"]
    assert c.placed("high", on=2)


# -- what goes together ------------------------------------------------------------------------------------


def test_a_gang_that_needs_all_its_members_goes_as_a_whole() -> None:
    c = cluster(nodes=2).submit(gang("low", pods=2, gpus=8)).run()
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.taken() == ["low-0", "low-1"]


def test_a_gang_with_members_to_spare_loses_no_more_than_those() -> None:
    c = cluster(nodes=3).submit(gang("low", pods=3, gpus=8, min_members=2)).run()
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert len(c.taken()) == 1


def test_a_pod_takes_what_a_gang_can_spare_also_where_several_of_it_are_on_the_node() -> None:
    c = cluster(nodes=2).submit(gang("low", pods=4, gpus=4, min_members=3)).run()
    c.clear().submit(make_pod("high", gpus=4, priority=10)).run()
    assert len(c.taken()) == 1
    assert c.run().pod("high").spec.node_name


def test_two_pods_do_not_each_take_the_one_that_a_gang_can_spare() -> None:
    """The first one's victim is evicted and not terminating yet."""
    c = cluster(nodes=4).submit(gang("low", pods=4, gpus=8, min_members=3)).run()
    c.clear().evictions = "silent"
    c.submit(make_pod("one", gpus=8, priority=10)).run()
    assert len(c.taken()) == 1
    c.submit(make_pod("another", gpus=8, priority=10)).run()
    assert c.taken() == ["low-0", "low-1", "low-2", "low-3"], "two of the three that it needs do no work"


def test_a_gang_that_says_single_loses_pods_one_by_one() -> None:
    c = cluster(nodes=2)
    c.submit(with_annotations(gang("low", pods=2, gpus=8), {DISRUPTION_KEY: "single"})).run()
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert len(c.taken()) == 1


def test_a_gang_that_says_all_goes_whole_though_it_could_spare_some() -> None:
    c = cluster(nodes=3)
    low = gang("low", pods=3, gpus=8, min_members=1)
    c.submit(with_annotations(low, {DISRUPTION_KEY: "all"})).run()
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.taken() == ["low-0", "low-1", "low-2"]


def test_a_core_group_is_taken_as_its_disruption_mode_says() -> None:
    for mode, n_gone in (({"all": {}}, 2), ({"single": {}}, 1), (None, 1)):
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        c = cluster(nodes=2).object("core", make_pod_group("low", spec=spec | {"disruptionMode": mode}))
        for k in range(2):
            pod = make_pod(f"low-{k}", gpus=8)
            c.submit(replace(pod, spec=replace(pod.spec, scheduling_group=SchedulingGroup("low"))))
        assert c.run().placed("low")
        c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
        assert len(c.taken()) == n_gone, mode


def test_gangs_that_start_together_go_together() -> None:
    own = {GROUPS_KEY: '["a","b"]'}
    c = cluster(nodes=3)
    for pod in with_annotations([*gang("a", pods=1, gpus=8), *gang("b", pods=2, gpus=8)], own):
        c.tell(ev.PodAdded(c.store(pod)))
    assert c.run().placed("a")
    assert c.placed("b")
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.taken() == ["a-0", "b-0", "b-1"], "a gang without the one that it starts with does no work"
    assert c.run().placed("high")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_gang_that_has_ended_protects_no_other_from_eviction(phase: str) -> None:
    """The more important of two that started together has done its work, and the other one goes on."""
    own = {GROUPS_KEY: '["a","b"]'}
    c = cluster(nodes=2)
    both = [*gang("a", pods=1, gpus=8), *gang("b", pods=1, gpus=8, priority=20)]
    c.submit(with_annotations(both, own)).run()
    c.submit(gang("high", pods=2, gpus=8, priority=10)).run()
    assert not c.taken(), "b is more important, and a without b does no work"
    c.phase("b-0", phase).wait(10.0)
    assert c.taken() == ["a-0"]
    assert c.run().placed("high")


def test_another_disruption_mode_is_refused() -> None:
    c = cluster(nodes=1)
    c.submit(with_annotations(gang("low", pods=1), {DISRUPTION_KEY: "some"})).run()
    assert "'some' is neither single nor all" in c.said("low-0")


def test_one_node_with_singles_is_cheaper_than_a_gang_over_many() -> None:
    """One pod of the gang would be enough, but all four of it would go."""
    c = cluster(nodes=5).submit(gang("low", pods=4, gpus=8)).run()
    singles(c, 2, prefix="one")
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.taken() == ["one-0", "one-1"]


def test_a_gang_that_waits_in_permit_gives_its_reservations_up_and_nobody_is_evicted() -> None:
    c = cluster(nodes=2)
    own = {"gangsched.io/total-members": "4"}
    c.submit(with_annotations(gang("low", pods=2, gpus=8, min_members=1), own)).run()
    assert c.state("low") == "waiting"
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert not c.taken()
    assert c.placed("high")
    assert c.state("low") == "backoff"
    assert "preempted by gang d/high" in c.said("low-0")


def test_a_gang_whose_late_member_waits_in_permit_goes_as_a_whole_too() -> None:
    """The reservation is on the first node, so that the search sees it before what is bound."""
    says = [SUCCESS]
    c = with_plugins(Permitter("P", lambda group: says[0] if group.key.name == "low" else SUCCESS), nodes=3)
    c.submit(make_pod("first", gpus=8)).run().submit(gang("low", pods=2, gpus=8)).run()
    assert c.placed("low", on=2)
    says[0] = Status.wait("nobody has approved it", timeout_s=500.0)
    c.delete("first").submit(gang("low", pods=1, gpus=8, min_members=2, first=2)).run()
    assert c.state("low") == "waiting"
    c.clear().submit(gang("high", pods=2, gpus=8, priority=10)).run()
    assert c.taken() == ["low-0", "low-1"], "one of two does no work"
    assert c.run().placed("high", on=2)


def test_where_nobody_may_be_evicted_reservations_are_given_up_only_if_they_are_enough() -> None:
    c = cluster(nodes=2, settings=Settings(allow_eviction=False, tells_victims=True))
    own = {"gangsched.io/total-members": "2"}
    c.submit(make_pod("runs", gpus=8)).run()
    c.submit(with_annotations(gang("low", pods=1, gpus=8, min_members=1), own)).run()
    assert c.state("low") == "waiting"
    c.submit(gang("two", pods=2, gpus=8, priority=10)).run()
    assert c.state("low") == "waiting"
    assert "in place of 1 pod of lower priority: d/runs; nothing is evicted" in c.said("two-0")
    c.delete("two-0", "two-1").submit(gang("one", pods=1, gpus=8, priority=10)).run()
    assert c.placed("one")
    assert c.state("low") == "backoff"
    assert not c.taken()


def test_a_pod_that_is_being_bound_may_be_evicted_after_that() -> None:
    c = cluster(nodes=1)
    c.answer = lambda bind: "hold"
    c.submit(gang("low", pods=1, gpus=8)).run()
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.state("high") == "backoff"
    assert "pods of lower priority are being bound" in c.said("high-0")
    [bind] = c.held_binds
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind)))
    c.answer = lambda bind: "ok"
    c.wait(2.0).run()
    assert c.taken() == ["low-0"]
    assert c.placed("high")


# -- disruption budgets ------------------------------------------------------------------------------------


def test_pods_that_a_budget_protects_are_spared_as_long_as_there_are_others() -> None:
    c = singles(cluster(nodes=2), 1, gpus=8, prefix="kept", priority=1, labels={"app": "db"})
    singles(c, 1, gpus=8, prefix="low", priority=5)
    budget(c, 0, app="db")
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.taken() == ["low-0"]
    assert not c.all(ef.DeletePod)


def test_what_a_budget_allows_is_used_before_it_is_broken() -> None:
    c = singles(cluster(nodes=1), 2, prefix="kept", labels={"app": "db"})
    budget(c, 1, app="db")
    c.clear().submit(gang("high", pods=1, gpus=4, priority=10)).run()
    assert len(c.all(ef.EvictPod)) == 1
    assert not c.all(ef.DeletePod)


def test_where_there_is_no_other_way_the_budget_is_broken_by_deletion() -> None:
    c = singles(cluster(nodes=1), 2, prefix="kept", labels={"app": "db"})
    budget(c, 1, app="db")
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert len(c.all(ef.EvictPod)) == 1
    assert len(c.all(ef.DeletePod)) == 1
    assert c.all(ef.DeletePod)[0].message == "gangsched: preempting to accommodate a higher priority pod"
    assert c.placed("high")


def test_what_a_budget_allows_is_used_once_by_two_pods_in_a_row() -> None:
    """The budget does not show the first eviction yet, and there is another pod for the second one."""
    c = cluster(nodes=3).submit([make_pod(f"safe-{k}", gpus=8, labels={"app": "x"}) for k in range(2)])
    singles(c.run(), 1, gpus=8, prefix="one", priority=1)
    budget(c, 1, app="x").clear().evictions = "silent"
    c.submit(make_pod("first", gpus=8, priority=10)).run()
    assert c.taken() == ["safe-0"]
    c.submit(make_pod("second", gpus=8, priority=10)).run()
    assert c.taken() == ["one-0", "safe-0"]


@pytest.mark.parametrize("code", ["429", "500"])
def test_an_eviction_that_a_budget_refuses_nevertheless_is_a_deletion_in_the_end(code: str) -> None:
    """Whoever counted on the budget was overtaken; the other victims are gone by then. With two budgets for
    one pod there is no other way."""
    c = singles(cluster(nodes=1), 2)
    c.evictions = code
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert not c.all(ef.DeletePod)
    c.wait(8.0).run()
    assert (len(c.all(ef.EvictPod)), len(c.all(ef.DeletePod))) == (6, 2)
    assert c.placed("high")


@pytest.mark.parametrize("code", ["404", "409"])
def test_a_victim_that_is_gone_or_is_another_pod_by_now_is_waited_for_until_the_watch_says_so(
    code: str,
) -> None:
    c = singles(cluster(nodes=1), 2)
    c.evictions = code
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run().wait(10.0)
    assert c.state("high") == "waiting"
    assert not c.all(ef.DeletePod), "that is no refusal"
    assert c.delete("low-0", "low-1").run().placed("high")


def test_without_the_right_to_evict_the_gang_gives_up_and_reports_it() -> None:
    c = singles(cluster(nodes=1), 2)
    c.evictions = "403"
    c.clear().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.state("high") == "backoff"
    assert "preemption: a victim could not be evicted: 403" in c.said("high-0")
    assert nominations(c) == {"high-0": ""}


# -- what is kept meanwhile --------------------------------------------------------------------------------


def slow(c: Cluster, name: str = "high", *, pods: int = 1) -> Cluster:
    """A gang of priority 10 over whole nodes that waits for its victims to go."""
    c.evictions = "slow"
    c.submit(gang(name, pods=pods, gpus=8, priority=10)).run()
    assert c.state(name) == "waiting"
    return c


def test_the_pods_say_where_they_will_go_and_whom_they_wait_for() -> None:
    c = slow(singles(cluster(nodes=2), 4))
    node = nominations(c)["high-0"]
    assert {c.pod(name).spec.node_name for name in c.taken()} == {node}
    said = "preemption: room is reserved on 1 node; waiting for 2 pods of lower priority to go"
    assert said in c.said("high-0")
    assert c.reasons().count("Preempted") == 2
    told = [event for event in c.all(ef.RecordEvent) if event.reason == "Preempted"]
    assert told[0].message == f"Preempted by gang d/high on node {node}"
    assert told[0].action == "Preempting"
    c.wait(10.0).delete(*c.taken()).run()
    assert c.placed("high")
    assert len(c.all(ef.NominateNode)) == 1, "a start there does not take it back"


def test_no_gang_of_equal_or_lower_priority_takes_the_room_meanwhile() -> None:
    c = slow(singles(cluster(nodes=1), 2))
    c.delete("low-0")
    c.submit(make_pod("thief", gpus=1), make_pod("peer", gpus=1, priority=10)).run()
    assert c.pod("thief").spec.node_name == ""
    assert c.pod("peer").spec.node_name == ""
    c.delete("low-1").run()
    assert c.placed("high")


def test_without_inventories_the_room_is_kept_by_its_count() -> None:
    c = slow(singles(cluster(nodes=1, listed=False), 2))
    c.delete("low-0").submit(make_pod("thief", gpus=1)).run()
    assert c.pod("thief").spec.node_name == ""
    c.delete("low-1").run()
    assert c.placed("high")


def test_a_second_gang_takes_no_second_victim_for_the_same_room() -> None:
    c = slow(singles(cluster(nodes=2), 4))
    first = c.taken()
    c.submit(gang("next", pods=1, gpus=8, priority=10)).run()
    second = sorted(set(c.taken()) - set(first))
    assert len(first) == len(second) == 2
    c.submit(gang("third", pods=1, gpus=8, priority=10)).run()
    assert len(c.taken()) == 4
    c.delete(*c.taken()).run()
    assert c.placed("high")
    assert c.placed("next")
    assert c.untouched("third")
    assert c.state("third") == "backoff"


def test_a_higher_gang_takes_over_what_is_kept_for_a_lower_one() -> None:
    c = slow(singles(cluster(nodes=1), 2))
    before = c.taken()
    c.submit(gang("top", pods=1, gpus=8, priority=100)).run()
    assert c.taken() == before
    assert c.state("high") == "backoff"
    assert c.state("top") == "waiting"
    c.delete(*before).run()
    assert c.placed("top")
    assert c.untouched("high")


def test_room_that_comes_from_elsewhere_is_taken_when_the_gang_is_looked_at() -> None:
    c = slow(singles(cluster(nodes=1), 2))
    c.node(make_node("n9"))
    c.submit(gang("high", pods=1, gpus=8, priority=10, first=1)).run()
    assert [c.pod(name).spec.node_name for name in ("high-0", "high-1")] == ["n9", ""]
    assert c.state("high") == "waiting"


def test_a_member_that_goes_takes_its_share_with_it() -> None:
    c = slow(singles(cluster(nodes=2), 4), pods=2)
    c.delete("high-0")
    assert c.state("high") == "gathering"
    assert not c.victims()
    assert not c.nominated()
    assert not c.ledger().claimants
    assert nominations(c)["high-1"] == ""


def test_a_gang_that_is_deleted_while_it_waits_leaves_nothing() -> None:
    c = slow(singles(cluster(nodes=1), 2))
    c.delete("high-0").delete("low-0", "low-1")
    assert not c.victims()
    assert not c.ledger().claimants
    c.submit(make_pod("next", gpus=8)).run()
    assert c.pod("next").spec.node_name


def test_of_two_gangs_that_wait_for_one_victim_the_other_goes_on_when_one_is_deleted() -> None:
    c = singles(cluster(nodes=1), 1, gpus=8)
    c.evictions = "slow"
    for name in ("x", "y"):
        c.submit(gang(name, pods=2, gpus=2, priority=10)).run()
    assert [c.state("x"), c.state("y")] == ["waiting", "waiting"]
    c.delete("x-0", "x-1").run()
    assert c.state("y") == "waiting"
    c.delete("low-0").run()
    assert c.placed("y")
    c.five_more_turns_change_nothing()


def test_a_node_that_goes_breaks_the_promise() -> None:
    c = slow(singles(cluster(nodes=1), 2))
    c.drop_node("n0").run()
    assert c.state("high") == "unschedulable"
    assert nominations(c) == {"high-0": ""}
    assert not c.victims()


def test_a_device_that_breaks_meanwhile_breaks_the_promise() -> None:
    c = slow(singles(cluster(nodes=1), 2))
    c.node(make_node("n0", gpus=8, annotations={"gangsched.io/devices": "{}"}))
    c.node(make_node("n0", gpus=4)).run()
    assert c.state("high") == "unschedulable"
    assert not c.ledger().claimants


def test_who_waits_for_kept_room_is_tried_when_the_promise_is_broken() -> None:
    """The change that breaks it frees nothing by itself."""
    c = slow(singles(cluster(nodes=1), 1), pods=1)
    c.submit(make_pod("waits", gpus=3)).run()
    assert c.state("waits") == "unschedulable"
    c.node(make_node("n0", gpus=7)).run()
    assert not c.said("high-0").startswith("preemption: room is reserved")
    assert c.wait(2.0).pod("waits").spec.node_name == "n0"


# -- how it ends -------------------------------------------------------------------------------------------


def test_victims_that_do_not_die_end_the_wait_and_everything_is_given_back() -> None:
    c = slow(singles(cluster(nodes=1), 2), pods=1)
    c.wait(95.0)
    told = [event.message for event in c.all(ef.RecordEvent) if event.reason == "GangAborted"]
    late = "preemption: its victims did not go in time: d/low-0, d/low-1"
    assert told == [f"gang d/high gives its reservations back: {late}"]
    assert c.state("high") == "unschedulable"
    assert not c.nominated()
    assert not c.ledger().claimants
    assert nominations(c) == {"high-0": ""}


def test_victims_that_did_not_die_are_not_counted_on_again_while_others_are_there() -> None:
    c = singles(cluster(nodes=2), 4)
    slow(c)
    first = c.taken()
    c.wait(95.0)
    c.wait(20.0)
    assert c.state("high") == "waiting"
    assert len(c.taken()) == 4
    c.delete(*(set(c.taken()) - set(first))).run()
    assert c.placed("high")


def test_an_eviction_without_an_answer_is_sent_again_until_the_deadline() -> None:
    c = singles(cluster(nodes=1), 2)
    c.evictions = "silent"
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
    c.wait(5.0)
    assert len(c.all(ef.EvictPod)) == 6
    c.evictions = "ok"
    c.wait(2.0).run()
    assert c.placed("high")


def test_the_last_victim_goes_in_the_moment_in_which_it_would_be_asked_again() -> None:
    c = singles(cluster(nodes=2), 4)
    c.evictions = "slow"
    c.submit(gang("high", pods=2, gpus=8, priority=10)).run()
    *first, last = c.taken()
    c.delete(*first)
    due_s = c.scheduler.next_deadline_s()
    assert due_s is not None
    c.now_s = due_s
    c.delete(last)
    c.wait(0.0)
    c.run()
    assert c.placed("high")


def test_a_set_asks_again_once_for_each_of_its_victims() -> None:
    c = singles(cluster(nodes=2), 2, gpus=8)
    c.evictions = "silent"
    pods = [*gang("a", pods=1, gpus=8, priority=10), *gang("b", pods=1, gpus=8, priority=10)]
    for pod in with_annotations(pods, {GROUPS_KEY: '["a","b"]'}):
        c.tell(ev.PodAdded(c.store(pod)))
    c.run().wait(2.5)
    assert sorted(e.name for e in c.all(ef.EvictPod)) == ["low-0", "low-0", "low-1", "low-1"]


def test_the_deadline_leaves_all_victims_their_grace_period() -> None:
    c = cluster(nodes=1)
    for k, grace_s in enumerate((5, 300)):
        pod = make_pod(f"low-{k}", gpus=4)
        c.submit(replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=grace_s))).run()
    slow(c)
    c.wait(350.0)
    assert c.state("high") == "waiting"
    c.wait(20.0)
    assert c.state("high") != "waiting"


@pytest.mark.long
def test_a_victim_that_states_a_grace_period_of_years_is_waited_for_a_day_at_most() -> None:
    """The least important pod would keep everybody more important waiting, whoever else might go."""
    c = cluster(nodes=2)
    c.evictions = "slow"
    slow = make_pod("slow", gpus=8)
    c.submit(replace(slow, spec=replace(slow.spec, termination_grace_period_seconds=10**15))).run()
    c.submit(make_pod("quick", gpus=8, priority=1)).run()
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert c.taken() == ["slow"]
    c.wait(86_400.0 + c.scheduler.shared.settings.permit_wait_s + 60.0)
    assert c.taken() == ["quick", "slow"]


def test_after_a_restart_pods_on_their_way_out_are_waited_for_and_nobody_else_goes() -> None:
    c = slow(singles(cluster(nodes=2), 4))
    c.clear().restart().run()
    assert c.state("high") == "waiting"
    assert not c.taken()
    gone = [pod.metadata.name for pod in c.pods.values() if pod.metadata.deletion_timestamp]
    c.delete(*gone).run()
    assert c.placed("high")


def test_a_lone_pod_preempts_like_anybody() -> None:
    c = singles(cluster(nodes=3), 6)
    c.clear().submit(make_pod("one", gpus=4, priority=10)).run()
    assert len(c.taken()) == 1
    c.run()
    assert c.pod("one").spec.node_name


def test_a_gang_bound_in_part_whose_victims_stay_is_unwound_and_keeps_no_room() -> None:
    """Another scheduler took the room of a member whose bind failed, and does not go in time."""
    c = cluster(nodes=2)
    c.answer = lambda bind: "hold" if bind.name == "a-1" else "ok"
    c.submit(gang("a", pods=2, gpus=8, priority=10)).run()
    [held] = c.held_binds
    bind_as_stranger(c, "low", held.node, gpus=8)
    c.evictions = "silent"
    c.tell(ev.BindFailed(held.uid, held.attempt, 422, "Invalid", "no")).run()
    assert c.state("a") == "waiting"
    assert c.taken() == ["low"]
    c.wait(c.settings.settle_s + 1.0)
    assert c.state("a") == "unwinding"
    assert c.taken() == ["a-0", "low"]
    assert not c.nominated()
    assert nominations(c)["a-1"] == ""


# -- when it is tried again --------------------------------------------------------------------------------


def high_behind_high(*, preempts: bool = True) -> Cluster:
    """A pod of four devices waits for two of its own priority, the first of which ends; a small one of less
    takes what that leaves."""
    c = cluster(nodes=1, gpus=4)
    c.submit([make_pod(f"first-{k}", gpus=2, priority=10) for k in range(2)]).run()
    c.submit(make_pod("waits", gpus=4, priority=10, preempts=preempts)).run()
    c.delete("first-0").run()
    c.submit(make_pod("low-0", gpus=1)).run().wait(5.0)
    assert c.placed("low")
    assert not c.pod("waits").spec.node_name
    return c


def test_what_a_pod_leaves_that_could_not_be_evicted_is_enough_beside_pods_that_can() -> None:
    c = high_behind_high()
    c.delete("first-1").run().wait(15.0)
    assert c.taken() == ["low-0"]
    assert c.pod("waits").spec.node_name


def test_it_is_not_tried_again_where_even_that_is_not_enough() -> None:
    c = high_behind_high()
    c.submit(make_pod("high", gpus=1, priority=10)).run()
    assert c.pod("high").spec.node_name
    n_before = c.count("preemption_attempts")
    c.delete("first-1").run().wait(15.0)
    assert c.count("preemption_attempts") == n_before
    assert c.placed("low")


def test_a_pod_that_never_preempts_is_not_tried_again_for_victims() -> None:
    c = high_behind_high(preempts=False)
    n_before = c.group("waits").attempts
    c.delete("first-1").run().wait(15.0)
    assert c.group("waits").attempts == n_before
    c.delete("low-0").run().wait(15.0)
    assert c.pod("waits").spec.node_name


@pytest.mark.parametrize("most_pairs", [20_000, 0])
def test_devices_that_are_well_again_are_enough_beside_pods_that_can_be_evicted(
    most_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the fit there was no room either way, so that the devices were no reason. Where many things changed
    for many groups, the group was not tried again for five minutes."""
    monkeypatch.setattr(waiting, "_MAX_PAIRS", most_pairs)
    sick = {INVENTORY_KEY: inventory("n0", 4, unhealthy=(3,))}
    c = Cluster().node(make_node("n0", gpus=4, annotations=sick))
    singles(c, 1, gpus=3)
    c.submit(make_pod("waits", gpus=4, priority=10)).run()
    assert "Insufficient nvidia.com/gpu" in c.said("waits")
    assert not c.taken()
    c.node(make_node("n0", gpus=4)).run().wait(15.0)
    assert c.taken() == ["low-0"]
    assert c.pod("waits").spec.node_name


def test_a_victim_that_is_put_into_another_group_is_waited_for() -> None:
    c = cluster(nodes=1).submit(gang("low", pods=1, gpus=8)).run()
    c.evictions = "silent"
    c.submit(make_pod("high", gpus=8, priority=10)).run()
    [other] = gang("other", pods=1)
    c.update(c.pod("low-0"), metadata=replace(c.pod("low-0").metadata, labels=other.metadata.labels)).run()
    assert c.group_names() == ["d/high", "d/other"]
    assert c.state("high") == "waiting"
    assert c.delete("low-0").run().pod("high").spec.node_name


def test_gangs_that_are_no_set_any_more_keep_the_room_that_was_made_for_both() -> None:
    c = cluster(nodes=2).submit(gang("low", pods=2, gpus=8, min_members=1)).run()
    c.evictions = "silent"
    a, b = (gang(name, pods=1, gpus=8, priority=10) for name in "ab")
    both = {GROUPS_KEY: '["d/a", "d/b"]'}
    c.submit(with_annotations(a, both), with_annotations(b, both)).run()
    assert (c.state("a"), c.state("b")) == ("waiting", "waiting")
    for [pod] in (a, b):
        alone = replace(c.pod(pod.metadata.name).metadata, annotations=pod.metadata.annotations)
        c.update(c.pod(pod.metadata.name), metadata=alone).run()
    c.submit(make_pod("mid", gpus=8, priority=5)).run()
    c.delete("low-0", "low-1").run().wait(10.0)
    assert c.placed("a")
    assert c.placed("b")


def test_the_end_of_a_victim_that_stayed_too_long_is_news_to_who_needs_others_too() -> None:
    """Its preemptor gave up waiting for it, and another pod has taken what was free beside it."""
    c = cluster(nodes=1).submit(make_pod("old-0", gpus=4)).run()
    c.evictions = "slow"
    c.submit(make_pod("high-0", gpus=8, priority=10)).run().wait(200.0)
    assert c.state("high-0") == "unschedulable"
    c.submit(make_pod("new-0", gpus=4, priority=5)).run()
    assert c.placed("new")
    c.evictions = "ok"
    c.wait(11.0).delete("old-0").run().wait(0.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["old-0", "new-0"]
    assert c.placed("high")

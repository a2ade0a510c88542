"""PreEnqueue: keeps pods out by what the cluster holds, moves them in the queue, and asks outside."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.framework.interface import SUCCESS, Change, ClusterChange, Code, Status
from gangsched.core.groups.members.pre_enqueue import MAX_A_TURN, MAX_ASKED
from gangsched.core.state import plugin_waits
from gangsched.core.state.pending_hooks import PRE_ENQUEUE
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import at, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Condition, Pod, PodStatus
from tests.core.plugins import with_plugins
from tests.support.inside import Inside
from tests.support.scenario import Cluster, gang, with_annotations

GPU = "nvidia.com/gpu"
BROKEN = Status(Code.ERROR, "no answer in 5 s")


class Quota:
    """A namespace holds at most `most` GPUs; asked again when one of its pods goes."""

    name = "Quota"
    cured_by = Change.ROOM_FREED

    def __init__(self, most: int) -> None:
        self.most = most
        self.n_asked = 0

    def pre_enqueue(self, pod: Pod, view: QueueView) -> Status:
        self.n_asked += 1
        used = view.used(pod.metadata.namespace).get(GPU, 0)
        return SUCCESS if used < self.most else Status.unschedulable(f"{used} of {self.most} GPUs are used")

    def cures(self, change: ClusterChange, template: Any, view: Any) -> bool:
        namespace = template.namespace
        return change.pod is None or change.pod.metadata.namespace == namespace


class Says:
    """Answers as told."""

    name = "Says"

    def __init__(self, status: Status) -> None:
        self.status = status

    def pre_enqueue(self, pod: Pod) -> Status:
        return self.status


class Boost:
    name = "Boost"

    def pre_enqueue(self, pod: Pod) -> Status:
        boost = (pod.metadata.annotations or {}).get("boost")
        return Status.let_in(raise_by=int(boost)) if boost else SUCCESS


class Outside:
    """Asked at the edge; a scenario answers for it."""

    def __init__(self, name: str = "Budget") -> None:
        self.name = name

    async def pre_enqueue(self, pod: Pod, view: QueueView, handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")


class Freed(Outside):
    """The same, and asked again when a node comes."""

    cured_by = Change.NODE_ADDED

    def cures(self, change: ClusterChange, template: Any, view: Any) -> bool:
        return True


def asked(c: Cluster) -> list[str]:
    """The pods that the edge was asked about, in order."""
    return [hook.pod.metadata.name for hook in c.all(ef.RunHook) if hook.point == PRE_ENQUEUE and hook.pod]


def told(c: Cluster, name: str) -> list[tuple[str, str]]:
    """(reason, message) of each condition written on the pod."""
    return [(one.reason, one.message) for one in c.all(ef.WritePodCondition) if one.name == name]


# -- at once -----------------------------------------------------------------------------------------------


def test_a_pod_is_kept_out_by_what_its_namespace_holds_and_let_in_when_that_is_freed() -> None:
    c = with_plugins(Quota(2))
    c.submit(make_pod("a"), make_pod("b")).run()
    c.submit(make_pod("c")).run()
    assert c.state("c") == "gated"
    assert told(c, "c") == [("SchedulingGated", "Quota: 2 of 2 GPUs are used")]
    c.delete("a").wait(0.1).run()
    assert c.binds() == ["a", "b", "c"]


def test_a_member_let_in_when_the_report_on_its_gang_is_due_is_counted() -> None:
    """The process slept through both times."""
    says = Says(SUCCESS)
    c = with_plugins(says).submit(gang("a", pods=2)[0]).run()
    says.status = Status.wait("not yet", timeout_s=4.0)
    c.submit(gang("a", pods=2)[1]).run()
    says.status = SUCCESS
    c.now_s += 8.0
    c.wait(0.0)
    assert c.binds() == ["a-0", "a-1"]
    assert not [text for _, text in told(c, "a-0") if "waits for members" in text]


def test_only_the_changes_that_a_plugin_names_make_it_look_again() -> None:
    quota = Quota(1)
    c = with_plugins(quota)
    c.submit(make_pod("a")).run()
    c.submit(make_pod("b"), make_pod("other", namespace="e")).run()
    n_asked = quota.n_asked
    c.node(make_node("more", gpus=8)).delete("other").run().wait(60.0)
    assert quota.n_asked == n_asked, "a node, or a pod of another namespace, cures nothing"
    c.delete("a").wait(0.1).run()
    assert "b" in c.binds()


def test_a_change_that_cures_many_costs_one_turn_only_some_of_them() -> None:
    quota = Quota(0)
    c = with_plugins(quota)
    filler = make_pod("filler", namespace="e", gpus=0)
    n = MAX_A_TURN + 50
    quota.most = 1
    c.submit(make_pod("a")).run()
    c.submit([make_pod(f"p{i}") for i in range(n)])
    n_asked = quota.n_asked
    quota.most = 0  # all stay out
    c.submit(filler)
    c.delete("a")
    assert quota.n_asked - n_asked <= MAX_A_TURN + 1
    c.wait(1.0)
    assert quota.n_asked - n_asked >= n


def test_past_the_limit_all_are_asked_again_without_a_look_at_the_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin_waits, "_MAX_PAIRS", 1)
    quota = Quota(1)
    c = with_plugins(quota)
    c.submit(make_pod("a"), make_pod("other", namespace="e")).run()
    c.submit(make_pod("b"), make_pod("c")).run()
    n_asked = quota.n_asked
    c.delete("other").wait(0.1).run()
    assert quota.n_asked == n_asked + 2, "one change for two pods"
    c.delete("a").wait(0.1).run()
    assert "b" in c.binds()


def test_a_plugin_that_fails_when_it_is_asked_what_cures_its_pods_is_named_and_they_are_asked_again() -> None:
    class Unsure(Quota):
        def cures(self, change: ClusterChange, template: Any, view: Any) -> bool:
            raise ValueError("who knows")

    c = with_plugins(Unsure(1)).submit(make_pod("a")).run().submit(make_pod("b")).run()
    c.delete("a").wait(0.1).run()
    assert c.binds() == ["a", "b"]
    assert "plugin Quota failed in EventsToRegister: ValueError: who knows" in c.told("PluginFailed")


def test_a_wait_is_asked_again_after_its_time() -> None:
    says = Says(Status.wait("not before noon", timeout_s=100.0))
    c = with_plugins(says).submit(make_pod("a")).run()
    assert told(c, "a") == [("SchedulingGated", "Says: not before noon")]
    says.status = SUCCESS
    c.wait(99.0).run()
    assert not c.binds()
    c.wait(2.0).run()
    assert c.binds() == ["a"]


def test_the_largest_raise_of_a_gangs_members_moves_it_in_the_queue() -> None:
    c = with_plugins(Boost(), nodes=1)
    c.submit(gang("high", pods=2, gpus=1, priority=5))
    c.submit(with_annotations(gang("a", pods=2, gpus=1), {"boost": "10"}))
    c.submit(with_annotations(gang("low", pods=2, gpus=1, priority=9), {"boost": "-9"}))
    c.run()
    order = list(dict.fromkeys(name.rpartition("-")[0] for name in c.binds()))
    assert order == ["a", "high", "low"]


def test_a_gang_in_line_moves_when_the_raise_of_a_member_is_edited() -> None:
    c = with_plugins(Boost(), nodes=1)
    pods = [make_pod("a"), make_pod("b")]
    c.submit(*pods)
    c.update(c.pod("b"), metadata=_annotated(c.pod("b"), boost="1"))
    c.run()
    assert c.binds() == ["b", "a"]
    assert c.groups()


def _annotated(pod: Pod, **annotations: str) -> Any:
    return replace(pod.metadata, annotations=annotations)


@pytest.mark.parametrize("raised", [2**40, 1.5, "7"])
def test_a_raise_that_is_no_number_costs_its_pod_alone(raised: Any) -> None:
    c = with_plugins(Says(Status(raise_by=raised))).submit(make_pod("a")).run()
    assert not c.binds()
    assert "raise_by is" in told(c, "a")[-1][1]
    assert c.all(ef.BlamePlugin)


# -- outside -----------------------------------------------------------------------------------------------


def test_a_pod_waits_for_the_answer_from_outside_and_others_do_not() -> None:
    c = with_plugins(Outside())
    c.hook = lambda hook: None if hook.pod and hook.pod.metadata.name == "a" else SUCCESS
    c.submit(make_pod("a"), make_pod("b")).run()
    assert c.binds() == ["b"]
    assert told(c, "a") == [], "asking is not worth a write"
    [held] = c.held_hooks
    c.say(held, SUCCESS).run()
    assert c.binds() == ["b", "a"]
    c.five_more_turns_change_nothing()


def test_a_no_from_outside_stays_until_the_pod_is_edited() -> None:
    c = with_plugins(Outside())
    c.hook = lambda hook: Status.unschedulable("the budget is spent")
    c.submit(make_pod("a")).run().wait(600.0)
    assert asked(c) == ["a"]
    assert told(c, "a") == [("SchedulingGated", "Budget: the budget is spent")]
    c.hook = lambda hook: SUCCESS
    c.update(c.pod("a"), metadata=_annotated(c.pod("a"), paid="yes"))
    c.run()
    assert c.binds() == ["a"]


def test_a_service_that_fails_is_asked_again_after_a_backoff_that_doubles_and_is_reported_once() -> None:
    c = with_plugins(Outside())
    c.hook = lambda hook: BROKEN
    c.submit(make_pod("a"), make_pod("b", scheduler="other")).run()
    times = []
    for _ in range(40):
        before = len(asked(c))
        c.wait(1.0)
        if len(asked(c)) > before:
            times.append(c.now_s)
    gaps = [round(after - before) for before, after in itertools.pairwise(times)]
    assert gaps == [2, 4, 8, 10, 10]
    assert len(c.all(ef.BlamePlugin)) == 1
    assert told(c, "a") == [("SchedulingGated", "Budget: no answer in 5 s")]
    c.hook = lambda hook: SUCCESS
    c.wait(11.0).run()
    assert c.binds() == ["a"]


def test_a_wait_from_outside_is_asked_again_after_its_time_and_nonsense_is_held_to_limits() -> None:
    c = with_plugins(Outside())
    c.hook = lambda hook: Status.wait("later", timeout_s=1e300)
    c.submit(make_pod("a")).run().wait(3500.0)
    assert len(asked(c)) == 1
    c.hook = lambda hook: Status.wait("later", timeout_s=float("nan"))
    c.wait(101.0)
    assert len(asked(c)) == 2
    c.hook = lambda hook: SUCCESS
    c.wait(10.5).run()
    assert c.binds() == ["a"]


def test_a_plugin_that_hangs_has_few_calls_open_and_is_in_no_other_plugins_way() -> None:
    c = with_plugins(Outside("Hangs"), Outside("Other"), nodes=20)
    c.hook = lambda hook: None if hook.plugin == "Hangs" else SUCCESS
    c.submit([make_pod(f"p{i}") for i in range(MAX_ASKED + 20)])
    assert len(c.held_hooks) == MAX_ASKED
    while c.held_hooks:
        c.say(c.held_hooks[0], SUCCESS)
    c.run()
    assert len(c.binds()) == MAX_ASKED + 20


def test_a_change_that_it_names_makes_the_edge_be_asked_again() -> None:
    c = with_plugins(Freed())
    c.hook = lambda hook: Status.unschedulable("too small")
    c.submit(make_pod("a")).run().wait(100.0)
    assert len(asked(c)) == 1
    c.hook = lambda hook: SUCCESS
    c.node(make_node("more", gpus=8)).run()
    c.wait(1.0).run()
    assert c.binds() == ["a"]


def test_a_pod_that_goes_while_it_is_asked_about_takes_its_call_back() -> None:
    c = with_plugins(Outside())
    c.hook = lambda hook: None
    c.submit(make_pod("a"))
    c.delete("a")
    assert not c.held_hooks
    assert not c.scheduler.shared.hooks.calls
    pre_enqueue = c.scheduler.membership.pre_enqueue
    assert not any((pre_enqueue._asked, pre_enqueue._waits.again, any(pre_enqueue._n_open.values())))


def test_a_follower_asks_nobody_and_writes_nothing_until_it_leads() -> None:
    c = Cluster(synced=False, make=lambda settings: make_scheduler(settings, Outside(), Quota(0)))
    c.node(make_node("n0", gpus=8)).submit(make_pod("a"))
    assert not asked(c)
    c.hook = lambda hook: SUCCESS
    c.tell(*(ev.KindSynced(kind) for kind in c.scheduler.kinds))
    c.wait(1.0).run()
    assert asked(c) == ["a"]
    assert told(c, "a") == [("SchedulingGated", "Quota: 0 of 0 GPUs are used")]


def test_a_gang_starts_whole_when_the_last_of_its_members_is_allowed() -> None:
    c = with_plugins(Outside())
    c.hook = lambda hook: None
    c.submit(gang("a", pods=3))
    first, second, last = c.held_hooks
    c.say(first, SUCCESS).say(second, SUCCESS).run()
    assert c.untouched("a")
    c.say(last, SUCCESS).run()
    assert c.placed("a")


def test_reading_the_configuration_again_asks_again() -> None:
    c = with_plugins(Outside())
    c.hook = lambda hook: Status.unschedulable("no")
    c.submit(make_pod("a")).run()
    profiles = Inside(make_scheduler(c.settings, Outside())).profiles()
    c.hook = lambda hook: SUCCESS
    c.reconfigure(c.settings, profiles).run()
    assert asked(c) == ["a", "a"]
    assert c.binds() == ["a"]


def test_a_restarted_scheduler_that_asks_about_a_left_out_member_still_sees_a_half_bound_gang() -> None:
    """One of two is bound, the other was left out, and there is no room for it: the gang is unwound."""
    c = with_plugins(Outside(), nodes=1)
    c.hook = lambda hook: SUCCESS
    left_out, bound = gang("a", pods=2, gpus=8)
    c.store(left_out)
    c.now_s = 5.0
    is_bound = Condition("PodScheduled", "True", last_transition_time=at(c.now_s))
    bound = replace(bound, spec=replace(bound.spec, node_name="n0"))
    c.store(bound, status=PodStatus("Running", conditions=[is_bound]))
    c.restart().run().wait(120.0)
    assert [one.name for one in c.all(ef.EvictPod)][:1] == ["a-1"]

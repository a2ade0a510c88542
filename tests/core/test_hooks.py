"""Reserve, Permit, PreBind, Bind, PostBind: order, skip, refusal, failure, Unreserve, wait and timeout."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.config import Settings
from gangsched.core.framework.interface import SKIP, SUCCESS, Code, Status
from gangsched.core.state.pending_hooks import BIND, PERMIT, POST_BIND, PRE_BIND
from gangsched.lab.sim.objects import make_pod
from gangsched.lab.sim.world.hooks import as_bind
from gangsched.model import effects as ef
from gangsched.model import events as ev
from tests.core.plugins import (
    AsyncPermitter,
    BindHook,
    Permitter,
    PostBinder,
    PreBinder,
    Reserver,
    with_plugins,
)
from tests.support.scenario import Cluster, gang

NO = Status.unschedulable("not today")
BROKEN = Status(Code.ERROR, "ZeroDivisionError: division by zero")


def asked(c: Cluster, point: str) -> list[tuple[str, str]]:
    """(plugin, pod or group) of the hooks that were asked, in order."""
    hooks = [hook for hook in c.all(ef.RunHook) if hook.point == point]
    return [(h.plugin, h.pod.metadata.name if h.pod else str(h.group)) for h in hooks]


def is_empty(c: Cluster) -> bool:
    """Nothing is held, and no hook is waited for."""
    return c.scheduler.statistics()["reservations"] == 0 and not c.scheduler.shared.hooks.calls


# -- Reserve -----------------------------------------------------------------------------------------------


def test_reserve_plugins_are_asked_in_order_when_the_whole_gang_has_its_places() -> None:
    diary: list[str] = []
    c = with_plugins(Reserver("A", diary), Reserver("B", diary)).submit(gang("a", pods=2)).run()
    assert c.placed("a")
    assert diary == ["A reserves a-0,a-1", "B reserves a-0,a-1"]


def test_one_reserve_that_fails_unreserves_all_in_reverse_and_binds_nothing() -> None:
    diary: list[str] = []
    first, third = Reserver("A", diary), Reserver("C", diary)
    second = Reserver("B", diary, says=lambda group: NO)
    c = with_plugins(first, second, third).submit(gang("a", pods=2)).run()
    assert diary == [
        "A reserves a-0,a-1",
        "B reserves a-0,a-1",
        "C unreserves a-0,a-1",
        "B unreserves a-0,a-1",
        "A unreserves a-0,a-1",
    ]
    assert c.untouched("a")
    assert is_empty(c)
    assert "not today" in c.said("a-0")
    second.says = lambda group: SUCCESS
    c.node(c.nodes["n0"]).submit(make_pod("stir")).wait(300.0)
    assert c.placed("a")


def test_a_reserve_that_raises_costs_its_pod_this_attempt_and_no_other() -> None:
    def fails(group: Any) -> Status:
        if group.key.name == "a":
            raise ZeroDivisionError("division by zero")
        return SUCCESS

    c = with_plugins(Reserver("A", [], says=fails)).submit(gang("a", pods=2), gang("b", pods=2)).run()
    assert c.untouched("a")
    assert c.placed("b")
    assert is_empty(c)
    blamed = c.all(ef.BlamePlugin)
    assert [(b.plugin, b.point) for b in blamed] == [("A", "Reserve")]
    assert "PluginFailed" in c.reasons()
    assert c.scheduler.statistics()["plugin_errors/A/Reserve"] == 1


@pytest.mark.parametrize("fails", [False, True], ids=["refuses", "raises"])
def test_gangs_that_reserve_refuses_wait_out_their_backoff_though_each_gives_room_back(fails: bool) -> None:
    """What one gives back would do for the other, and room is not what it lacks."""

    def says(group: Any) -> Status:
        if fails:
            raise ZeroDivisionError("division by zero")
        return NO

    diary: list[str] = []
    c = with_plugins(Reserver("A", diary, says=says), nodes=1)
    c.submit(gang("a", pods=1, gpus=8), gang("b", pods=1, gpus=8)).run()
    for n_each, seconds in ((1, 0.9), (2, 1.0), (3, 2.0)):
        c.wait(seconds)
        assert [diary.count(f"A reserves {name}-0") for name in "ab"] == [n_each, n_each]


class Untold(Exception):
    """Has lost what it was about."""

    def __str__(self) -> str:
        raise KeyError("path")


@pytest.mark.parametrize("error", [RuntimeError("it cannot be undone"), Untold()], ids=["told", "untold"])
def test_an_unreserve_that_raises_is_reported_and_the_others_are_unreserved_nevertheless(
    error: Exception,
) -> None:
    diary: list[str] = []
    last = Reserver("B", diary, says=lambda group: NO)
    last.raises_in_unreserve = error
    c = with_plugins(Reserver("A", diary), last).submit(gang("a", pods=1)).run()
    assert diary[-2:] == ["B unreserves a-0", "A unreserves a-0"]
    assert is_empty(c)
    assert [(b.plugin, b.point) for b in c.all(ef.BlamePlugin)] == [("B", "Unreserve")]


def test_unreserve_is_called_whichever_way_a_reservation_is_given_back() -> None:
    diary: list[str] = []
    waits = Permitter("W", lambda group: Status.wait("for you", timeout_s=5.0))
    c = with_plugins(Reserver("A", diary), waits).submit(gang("a", pods=2), gang("b", pods=2)).run()
    c.delete("a-0")
    assert diary[-2:] == ["A unreserves a-0", "A unreserves a-1"]
    c.wait(5.1)
    assert "A unreserves b-0,b-1" in diary
    c.answer = lambda bind: "422"
    waits.says = lambda group: SUCCESS
    diary.clear()
    c.delete("a-1", "b-0", "b-1").submit(gang("c", pods=1)).run()
    assert diary == ["A reserves c-0", "A unreserves c-0"]


def test_what_was_bound_is_not_unreserved() -> None:
    diary: list[str] = []
    c = with_plugins(Reserver("A", diary)).submit(gang("a", pods=1)).run()
    c.phase("a-0", "Succeeded").delete("a-0")
    assert diary == ["A reserves a-0"]


# -- Permit ------------------------------------------------------------------------------------------------


def test_an_async_permit_is_asked_once_and_the_gang_waits_reserved_for_its_word() -> None:
    c = with_plugins(AsyncPermitter())
    c.hook = lambda hook: None
    c.submit(gang("a", pods=2)).run()
    assert c.state("a") == "waiting"
    c.five_more_turns_change_nothing()
    assert asked(c, PERMIT) == [("Approval", "d/a")]
    assert not c.all(ef.WritePodCondition), "a question that is answered in a moment is no news"
    c.say(c.held_hooks[0], SUCCESS).run()
    assert c.placed("a")
    assert is_empty(c)


@pytest.mark.parametrize("answer", [NO, BROKEN], ids=["denied", "failed"])
def test_an_async_permit_that_denies_or_fails_gives_everything_back(answer: Status) -> None:
    c = with_plugins(AsyncPermitter())
    c.hook = lambda hook: answer
    c.submit(gang("a", pods=2)).run()
    assert c.untouched("a")
    assert is_empty(c)
    assert answer.reason in c.said("a-0")
    assert bool(c.all(ef.BlamePlugin)) == (answer is BROKEN)
    c.hook = lambda hook: SUCCESS
    c.wait(301.0)
    assert c.placed("a")


@pytest.mark.parametrize(("length", "said"), [(float("nan"), "NaN"), ("5", "str")], ids=["NaN", "a text"])
def test_a_wait_of_no_length_is_refused_and_keeps_nothing_reserved(length: Any, said: str) -> None:
    """No time comes after NaN seconds: the gang would keep its nodes for ever."""
    c = with_plugins(Permitter("W", lambda group: Status.wait("for you", timeout_s=length)))
    c.submit(gang("a", pods=2)).run()
    assert is_empty(c)
    wrong = f"answered a Status with {said} for its timeout_s, expected a number"
    assert f"plugin W failed in Permit: {wrong}" in c.said("a-0")


def test_a_wait_lasts_as_long_as_the_plugin_says_from_when_it_says_so() -> None:
    c = with_plugins(AsyncPermitter(), settings=Settings(permit_wait_s=20.0))
    c.hook = lambda hook: None
    c.submit(gang("a", pods=1)).run().wait(10.0)
    c.say(c.held_hooks[0], Status.wait("for the budget office", timeout_s=100.0)).run()
    c.wait(99.0)
    assert c.state("a") == "waiting"
    assert "budget office" in c.said("a-0")
    c.wait(1.5)
    assert c.state("a") == "backoff"
    assert is_empty(c)


def test_a_permit_that_never_answers_is_taken_back_with_the_reservations() -> None:
    c = with_plugins(AsyncPermitter(), settings=Settings(permit_wait_s=20.0))
    c.hook = lambda hook: None
    c.submit(gang("a", pods=1)).run()
    (late,) = c.held_hooks
    c.wait(20.5)
    assert c.state("a") == "backoff"
    assert [effect.tickets for effect in c.all(ef.CancelHooks)] == [(late.ticket,)]
    c.tell(ev.HookAnswered(late.ticket, "Success")).run()
    assert c.state("a") == "backoff", "an answer to a question that was taken back"


def test_a_new_member_of_a_waiting_gang_is_a_new_question() -> None:
    c = with_plugins(AsyncPermitter())
    c.hook = lambda hook: None
    c.submit(gang("a", pods=3, min_members=2)[:2]).run()
    c.submit(gang("a", pods=3, min_members=2)[2:]).run()
    assert asked(c, PERMIT) == [("Approval", "d/a")] * 2
    assert len(c.held_hooks) == 1
    c.say(c.held_hooks[0], SUCCESS).run()
    assert c.placed("a")


def test_a_member_that_is_not_needed_and_finds_no_room_disturbs_nobodys_wait() -> None:
    c = with_plugins(AsyncPermitter(), nodes=1, gpus=2)
    c.hook = lambda hook: None
    c.submit(gang("a", pods=3, min_members=2)[:2]).run()
    c.submit(gang("a", pods=3, min_members=2)[2:]).run()
    assert asked(c, PERMIT) == [("Approval", "d/a")]
    c.say(c.held_hooks[0], SUCCESS).run()
    assert c.state("a") == "unschedulable"
    assert [pod.spec.node_name for pod in c.pods.values()] == ["n0", "n0", ""]


def test_the_first_no_wins_whoever_else_waits() -> None:
    c = with_plugins(Permitter("W", lambda group: Status.wait("w")), Permitter("N", lambda group: NO))
    c.submit(gang("a", pods=1)).run()
    assert c.state("a") == "unschedulable"
    assert is_empty(c)


def waiting_for_approval() -> Cluster:
    c = with_plugins(Permitter("Approval", lambda group: Status.wait("nobody has approved it")))
    c.submit(gang("a", pods=2)).run()
    assert c.state("a") == "waiting"
    return c


def test_a_waiting_gang_is_allowed_by_hand() -> None:
    c = waiting_for_approval()
    c.tell(ev.GroupAllowed(c.group("a").key, "", "alice")).run()
    assert c.placed("a")
    assert "GangAllowed" in c.reasons()


def test_a_waiting_gang_is_rejected_by_hand_and_asks_again_after_its_backoff() -> None:
    c = waiting_for_approval()
    c.tell(ev.GroupRejected(c.group("a").key, "alice", "over budget")).run()
    assert c.state("a") == "backoff"
    assert is_empty(c)
    assert "rejected by an operator: over budget" in c.said("a-0")
    c.wait(2.0)
    assert c.state("a") == "waiting"


def test_an_approval_counts_only_for_the_reservations_it_was_given_for() -> None:
    c = waiting_for_approval()
    key = c.group("a").key
    c.wait(60.5)
    assert c.state("a") == "backoff"
    c.tell(ev.GroupAllowed(key, "", "alice")).run()
    assert c.untouched("a")
    c.wait(12.0)
    assert c.state("a") == "waiting", "it was said of nothing, and is forgotten"


def test_what_the_gangs_own_definition_asks_for_cannot_be_overruled() -> None:
    from tests.core.test_permit import together

    c = with_plugins().submit(together("a", "b")).run()
    c.tell(ev.GroupAllowed(c.group("a").key, "", "alice")).run()
    assert c.state("a") == "waiting"


def test_a_plugin_that_allows_lifts_its_own_wait_only() -> None:
    c = with_plugins(
        Permitter("A", lambda group: Status.wait("a")), Permitter("B", lambda group: Status.wait("b"))
    )
    c.submit(gang("a", pods=1)).run()
    c.tell(ev.GroupAllowed(c.group("a").key, "A", "plugin A")).run()
    assert c.state("a") == "waiting"
    c.tell(ev.GroupAllowed(c.group("a").key, "B", "plugin B")).run()
    assert c.placed("a")


# -- PreBind -----------------------------------------------------------------------------------------------


def test_no_bind_leaves_before_every_members_pre_binds_are_through() -> None:
    c = with_plugins(PreBinder("P"), PreBinder("Q"))
    c.hook = lambda hook: None
    c.submit(gang("a", pods=2)).run()
    assert asked(c, PRE_BIND) == [("P", "a-0"), ("P", "a-1")]
    p0, p1 = c.held_hooks
    c.say(p0, SUCCESS)
    assert asked(c, PRE_BIND)[2:] == [("Q", "a-0")], "one after the other for a pod, side by side for pods"
    c.say(p1, SKIP)
    q0, q1 = c.held_hooks
    c.say(q0, SUCCESS)
    assert not c.all(ef.BindPod)
    c.say(q1, SUCCESS)
    assert c.placed("a")
    assert is_empty(c)


@pytest.mark.parametrize("answer", [NO, BROKEN], ids=["refused", "failed"])
def test_one_pre_bind_that_does_not_say_yes_gives_everything_back(answer: Status) -> None:
    diary: list[str] = []
    c = with_plugins(PreBinder("P"), Reserver("R", diary))
    c.hook = lambda hook: None
    c.submit(gang("a", pods=3)).run()
    c.say(c.held_hooks[0], SUCCESS).say(c.held_hooks[0], answer)
    assert not c.all(ef.BindPod)
    assert is_empty(c)
    assert not c.held_hooks, "the third is taken back"
    assert c.state("a") == "backoff"
    assert diary[-1] == "R unreserves a-0,a-1,a-2"
    assert answer.reason in c.said("a-1")
    c.hook = lambda hook: SUCCESS
    c.wait(2.0)
    assert c.placed("a")


def test_pods_for_which_there_is_nothing_to_prepare_are_not_asked_about() -> None:
    c = with_plugins(PreBinder("P", skips=lambda template: not template.requests.get("nvidia.com/gpu")))
    c.submit(gang("a", pods=2, gpus=0), gang("b", pods=1, gpus=1)).run()
    assert c.placed("a")
    assert c.placed("b")
    assert asked(c, PRE_BIND) == [("P", "b-0")]


def test_groups_that_start_together_are_prepared_together() -> None:
    from tests.core.test_permit import together

    c = with_plugins(PreBinder("P"))
    c.hook = lambda hook: None
    c.submit(together("a", "b", pods=1), together("b", "a", pods=1)).run()
    first, second = c.held_hooks
    c.say(first, SUCCESS)
    assert not c.all(ef.BindPod)
    c.say(second, NO)
    assert c.untouched("a")
    assert c.untouched("b")
    assert is_empty(c)


def test_a_member_that_goes_while_its_gang_is_prepared_takes_the_gang_back() -> None:
    c = with_plugins(PreBinder("P"))
    c.hook = lambda hook: None
    c.submit(gang("a", pods=2)).run().delete("a-0")
    assert is_empty(c)
    assert c.untouched("a")


@pytest.mark.parametrize("n", [1, 2])
def test_pods_that_are_gone_need_no_preparation(n: int) -> None:
    """The last one is gone, and its group with it: its hook went on until its deadline."""
    c = with_plugins(PreBinder("P"))
    c.hook = lambda hook: None
    c.submit(gang("a", pods=n), make_pod("alone")).run()
    assert len(c.held_hooks) == n + 1
    c.tell(*(ev.PodDeleted(pod) for pod in list(c.pods.values())))
    assert not c.held_hooks
    assert is_empty(c)
    c.pods.clear()
    c.submit(make_pod("alone"), gang("a", pods=n)).run()
    c.hook = lambda hook: SUCCESS
    for hook in list(c.held_hooks):
        c.say(hook, SUCCESS)
    assert c.placed("a")


def test_a_node_that_goes_while_a_gang_is_prepared_takes_the_gang_back() -> None:
    c = with_plugins(PreBinder("P"), nodes=1)
    c.hook = lambda hook: None
    c.submit(gang("a", pods=2)).run().drop_node("n0")
    assert is_empty(c)
    assert not c.held_hooks
    assert c.untouched("a")


def test_a_crash_in_pre_bind_leaves_nothing_behind() -> None:
    c = with_plugins(PreBinder("P"))
    c.hook = lambda hook: None
    c.submit(gang("a", pods=2)).run()
    old = c.held_hooks[0]
    c.hook = lambda hook: SUCCESS
    c.restart().tell(ev.HookAnswered(old.ticket + 100, "Success")).run()
    assert c.placed("a")
    assert is_empty(c)


def test_a_pre_flight_that_raises_costs_the_gang_this_attempt() -> None:
    def fails(template: Any) -> bool:
        raise KeyError("volumes")

    c = with_plugins(PreBinder("P", skips=fails)).submit(gang("a", pods=2)).run()
    assert c.untouched("a")
    assert is_empty(c)
    assert [(b.plugin, b.point) for b in c.all(ef.BlamePlugin)] == [("P", "PreBindPreFlight")]


# -- Bind --------------------------------------------------------------------------------------------------


def test_the_first_bind_plugin_that_does_not_skip_binds_and_the_server_confirms_it() -> None:
    c = with_plugins(BindHook("A"), BindHook("B"), BindHook("C"))

    def bind(hook: ef.RunHook) -> Status:
        if hook.plugin == "A":
            return SKIP
        binding = as_bind(hook)
        assert binding is not None
        c.commit(binding)
        return SUCCESS

    c.hook = bind
    c.submit(gang("a", pods=1)).run()
    assert asked(c, BIND) == [("A", "a-0"), ("B", "a-0")]
    assert not c.all(ef.BindPod)
    assert c.state("a") == "binding", "its word is not the server's"
    c.read("a-0")
    assert c.state("a") == "bound"
    assert (c.pod("a-0").metadata.annotations or {})["gangsched.io/rank"] == "0"


def test_when_all_skip_the_default_binder_binds() -> None:
    c = with_plugins(BindHook("A"))
    c.hook = lambda hook: SKIP
    c.submit(gang("a", pods=2)).run()
    assert c.placed("a")
    assert len(c.all(ef.BindPod)) == 2


def test_the_next_bind_plugin_is_not_called_when_the_reservation_broke_meanwhile() -> None:
    c = with_plugins(BindHook("A"), BindHook("B"), nodes=1)
    c.hook = lambda hook: None
    c.submit(gang("a", pods=2)).run()
    first, second = c.held_hooks
    c.drop_node("n0").say(first, SKIP).say(second, SKIP)
    assert asked(c, BIND) == [("A", "a-0"), ("A", "a-1")]
    assert not c.all(ef.BindPod)
    assert is_empty(c)


def test_a_bind_plugin_that_says_it_bound_and_did_not_is_asked_again() -> None:
    c = with_plugins(BindHook("A"))
    c.submit(gang("a", pods=1)).run().read("a-0")
    assert c.state("a") == "binding"
    c.hook = lambda hook: SKIP
    c.wait(1.0)
    assert c.placed("a")


def test_a_bind_plugin_that_fails_is_not_believed_either_way() -> None:
    c = with_plugins(BindHook("A"))

    def binds_and_fails(hook: ef.RunHook) -> Status:
        binding = as_bind(hook)
        assert binding is not None
        c.commit(binding)
        return BROKEN

    c.hook = binds_and_fails
    c.submit(gang("a", pods=1)).run()
    assert c.scheduler.statistics()["reservations"] == 1
    c.read("a-0")
    assert c.state("a") == "bound"
    assert [(b.plugin, b.point) for b in c.all(ef.BlamePlugin)] == [("A", "Bind")]


def test_a_bind_plugin_that_refuses_is_a_failed_bind() -> None:
    c = with_plugins(BindHook("A"))
    c.hook = lambda hook: NO
    c.submit(gang("a", pods=1)).run()
    assert c.state("a") == "backoff"
    assert is_empty(c)
    assert "not today" in c.said("a-0")


# -- PostBind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [SUCCESS, BROKEN], ids=["fine", "failed"])
def test_post_bind_is_called_for_each_bound_member_once_and_changes_nothing(answer: Status) -> None:
    c = with_plugins(PostBinder("P"), PostBinder("Q"))
    c.hook = lambda hook: answer
    c.submit(gang("a", pods=2)).run()
    assert c.placed("a")
    told = [("P", "a-0"), ("Q", "a-0"), ("P", "a-1"), ("Q", "a-1")]
    assert sorted(asked(c, POST_BIND)) == sorted(told)
    assert c.state("a") == "bound"
    assert is_empty(c)
    c.five_more_turns_change_nothing()
    assert len(asked(c, POST_BIND)) == 4


def test_post_bind_is_called_also_when_the_watch_is_faster_than_the_answer() -> None:
    c = with_plugins(PostBinder("P"))
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=1)).run()
    (bind,) = c.held_binds
    c.tell(ev.PodUpdated(c.commit(bind)), ev.BindSucceeded(bind.uid, bind.attempt))
    assert asked(c, POST_BIND) == [("P", "a-0")]


def test_post_bind_is_not_called_for_pods_that_others_bound() -> None:
    c = with_plugins(PostBinder("P"), PreBinder("B"))
    c.hook = lambda hook: None
    c.submit(gang("a", pods=1)).run()
    pod = c.pod("a-0")
    import msgspec

    c.update(pod, spec=msgspec.structs.replace(pod.spec, node_name="n3"))
    assert asked(c, POST_BIND) == []
    assert c.state("a") == "bound"

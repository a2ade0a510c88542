"""The loop around the core: nothing put into its inbox may wait for something else to happen."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from typing import cast

import anyio

from gangsched.core.types.group import Group
from gangsched.model.effects import Effect
from gangsched.model.events import BindCancelled, BindSucceeded, Event, KindSynced
from gangsched.process.garbage_collection import GarbageCollection
from gangsched.process.loop import _INBOX_LIMIT, _MANY_OUTCOMES, AHEAD, GroupQueue, Inbox, Outbox


async def _waits(inbox: Inbox, timeout_s: float | None) -> list[Event]:
    with anyio.fail_after(10):
        await inbox.wait(timeout_s)
    return inbox.take()


async def test_an_outcome_wakes_a_sleeper_that_had_no_deadline() -> None:
    inbox = Inbox()
    async with anyio.create_task_group() as group:

        async def outcome_comes() -> None:
            await anyio.sleep(0.01)
            inbox.put_nowait(BindSucceeded("a", 1))
            inbox.put_nowait(BindSucceeded("b", 1))

        group.start_soon(outcome_comes)
        assert await _waits(inbox, None) == [BindSucceeded("a", 1), BindSucceeded("b", 1)]


async def test_an_outcome_wakes_a_sleeper_long_before_its_deadline() -> None:
    inbox = Inbox()
    async with anyio.create_task_group() as group:

        async def outcome_comes() -> None:
            await anyio.sleep(0.01)
            inbox.put_nowait(BindSucceeded("a", 1))

        group.start_soon(outcome_comes)
        assert await _waits(inbox, 3600.0) == [BindSucceeded("a", 1)]


async def test_what_came_before_the_sleep_is_not_slept_over() -> None:
    inbox = Inbox()
    inbox.put_nowait(BindSucceeded("a", 1))
    assert await _waits(inbox, None) == [BindSucceeded("a", 1)]
    await inbox.put([KindSynced("pods")])
    assert await _waits(inbox, None) == [KindSynced("pods")]


async def test_a_deadline_wakes_without_events() -> None:
    assert await _waits(Inbox(), 0.01) == []


async def test_a_full_inbox_holds_the_reflectors_and_not_the_outcomes() -> None:
    inbox = Inbox()
    await inbox.put([KindSynced("pods")] * _INBOX_LIMIT)
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(inbox.put, [KindSynced("nodes")])
        await anyio.wait_all_tasks_blocked()
        inbox.put_nowait(BindSucceeded("a", 1))
        assert len(inbox.take()) == _INBOX_LIMIT + 1
        await anyio.wait_all_tasks_blocked()
    assert inbox.take() == [KindSynced("nodes")] * 2


async def test_many_outcomes_are_handled_before_their_time() -> None:
    inbox = Inbox()
    inbox.put_nowait(BindSucceeded("first", 1))
    assert len(await _waits(inbox, None)) == 1
    async with anyio.create_task_group() as group:

        async def outcomes_come() -> None:
            for n in range(_MANY_OUTCOMES):
                inbox.put_nowait(BindSucceeded(str(n), 1))

        inbox._delay_s = 3600.0
        group.start_soon(outcomes_come)
        assert len(await _waits(inbox, None)) == _MANY_OUTCOMES


class _Fifo:
    """As many groups as asked for, each of so many binds, which are sent at once."""

    def __init__(self, n_groups: int, size: int) -> None:
        self.n_left = n_groups
        self.size = size
        self.n_waiting = 0
        self.n_advanced = 0
        self.deadline_s: float | None = None

    def pop(self) -> Group | None:
        if not self.n_left:
            return None
        self.n_left -= 1
        self.n_waiting += self.size
        return cast(Group, object())

    def handle(self, events: Sequence[Event], now_s: float) -> list[Effect]:
        raise NotImplementedError

    def advance(self, now_s: float) -> list[Effect]:
        self.n_advanced += 1
        self.deadline_s = None
        return []

    def schedule(self, group: Group, now_s: float) -> list[Effect]:
        raise NotImplementedError

    def next_deadline_s(self) -> float | None:
        return self.deadline_s


def _queue(
    decider: _Fifo,
    inbox: Inbox | None = None,
    foresees: Callable[[], bool] | None = None,
    garbage: GarbageCollection | None = None,
) -> GroupQueue:
    return GroupQueue(
        decider,
        inbox or Inbox(),
        Outbox(lambda effects: None, may_act=lambda: True),
        before_events=lambda events: None,
        after_events=lambda events: None,
        n_binds_waiting=lambda: decider.n_waiting,
        garbage=garbage or GarbageCollection(),
        foresees=foresees,
    )


async def test_decisions_run_ahead_of_the_binds_in_long_turns() -> None:
    decider = _Fifo(n_groups=1000, size=8)
    queue = _queue(decider)

    async def decided() -> int:
        """How many are given out before it waits."""
        n_popped = 0
        with anyio.move_on_after(0.05):
            while True:
                await queue.pop()
                n_popped += 1
        return n_popped

    few, many = AHEAD
    assert await decided() == many // 8
    decider.n_waiting = few
    assert await decided() == 0
    decider.n_waiting = few - 1
    assert await decided() == (many - few) // 8 + 1


async def test_deadlines_are_seen_to_while_there_is_always_another_group() -> None:
    decider = _Fifo(n_groups=10**9, size=0)
    queue = _queue(decider)
    decider.deadline_s = time.monotonic() + 0.02
    with anyio.fail_after(10):
        while not decider.n_advanced:
            await queue.pop()


async def test_the_sockets_have_a_turn_before_a_group_is_placed_whose_needs_were_asked_for() -> None:
    told: list[str] = []

    def foresees() -> bool:
        told.append("asked")
        if told.count("asked") == 1:
            asyncio.get_running_loop().call_soon(told.append, "sent")
        return told.count("asked") == 1

    await _queue(_Fifo(n_groups=1, size=1), foresees=foresees).pop()
    told.append("placed")
    assert told == ["asked", "sent", "asked", "placed"]


async def test_a_closed_queue_returns_no_group_and_still_sees_to_deadlines_and_events() -> None:
    class Hearing(_Fifo):
        n_heard = 0

        def handle(self, events: Sequence[Event], now_s: float) -> list[Effect]:
            self.n_heard += len(events)
            return []

    decider = Hearing(n_groups=10, size=1)
    inbox = Inbox()
    queue = _queue(decider, inbox)
    queue.close()
    decider.deadline_s = time.monotonic() + 0.01
    with anyio.move_on_after(0.1) as waits:
        await queue.pop()
    assert (waits.cancelled_caught, decider.n_advanced, decider.n_left) == (True, 1, 10)
    assert not queue.apply_events(time.monotonic())
    inbox.put_nowait(BindCancelled("u", 1))
    assert queue.apply_events(time.monotonic())
    assert decider.n_heard == 1


async def test_a_deadline_that_frees_a_group_is_followed_by_that_group() -> None:
    class Waiting(_Fifo):
        def advance(self, now_s: float) -> list[Effect]:
            self.n_left = 1
            return super().advance(now_s)

    decider = Waiting(n_groups=0, size=8)
    decider.deadline_s = time.monotonic() + 0.02
    with anyio.fail_after(10):
        await _queue(decider).pop()
    assert decider.n_advanced == 1


async def test_events_that_wait_for_room_are_heard_before_later_ones() -> None:
    """That this process leads must not be heard before a bind that a reflector has to tell."""
    inbox = Inbox()
    await inbox.put([KindSynced("full")] * _INBOX_LIMIT)
    async with anyio.create_task_group() as group:
        group.start_soon(inbox.put, [KindSynced("pods")])
        await anyio.wait_all_tasks_blocked()
        inbox.take()
        await inbox.put([KindSynced("leading")])  # there is room, and the other has not woken up yet
    assert [event.kind for event in inbox.take() if isinstance(event, KindSynced)] == ["pods", "leading"]


async def test_garbage_is_collected_between_turns_once_the_decisions_have_left() -> None:
    told: list[str] = []
    n_new = 0

    class Placing(_Fifo):
        def schedule(self, group: Group, now_s: float) -> list[Effect]:
            nonlocal n_new
            told.append("turn begins")
            n_new += 20_000
            told.append("turn ends")
            asyncio.get_running_loop().call_soon(told.append, "sent")
            return []

    def collect(generation: int) -> int:
        nonlocal n_new
        n_new = 0
        told.append(f"collected {generation}")
        return 0

    garbage = GarbageCollection(n_new=lambda: n_new, collect=collect)
    garbage.settle()
    queue = _queue(Placing(n_groups=3, size=1), garbage=garbage)
    with anyio.move_on_after(0.05):
        await queue.run()
    gc.unfreeze()
    turn = ["turn begins", "turn ends"]
    assert [one for one in told if one != "sent"] == [*turn, *turn, *turn, "collected 1"]
    assert told.index("collected 1") > max(i for i, one in enumerate(told) if one == "sent")


async def test_a_queue_is_idle_while_it_waits_with_nothing_to_do() -> None:
    decider, inbox = _Fifo(n_groups=1, size=1), Inbox()
    queue = _queue(decider, inbox)
    assert queue.idle_s(time.monotonic()) == 0.0
    await queue.pop()
    tried_s = time.monotonic()
    assert queue.idle_s(tried_s + 60.0) == 0.0, "that group's turn"
    async with anyio.create_task_group() as group:
        group.start_soon(queue.pop)
        await anyio.wait_all_tasks_blocked()
        assert queue.idle_s(tried_s + 60.0) == 0.0, "a bind is on its way"
        decider.n_waiting = 0
        assert 60.0 <= queue.idle_s(tried_s + 60.0) < 70.0
        inbox.put_nowait(BindSucceeded("a", 1))
        assert queue.idle_s(tried_s + 60.0) == 0.0, "an outcome waits to be heard"
        group.cancel_scope.cancel()

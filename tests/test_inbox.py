"""The inbox between the edge and the core: nothing put into it may wait for something else to happen."""

from __future__ import annotations

import anyio

from gangsched.inbox import _INBOX_LIMIT, Inbox
from gangsched.model.events import BindSucceeded, Event, KindSynced


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

"""Hooks at the edge: answered once each, under a deadline, taken back, stopped with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import pytest

from gangsched.core.state.pending_hooks import BIND, PERMIT, POST_BIND, PRE_BIND, PRE_ENQUEUE
from gangsched.extension.runner import MAX_RUNNING, HookRunner
from gangsched.lab.sim.objects import make_pod
from gangsched.model.effects import CancelHooks, RunHook
from gangsched.model.events import Event, HookAnswered
from gangsched.model.pod_group import GroupKey
from gangsched.plugin import SKIP, SUCCESS, Status

Body = Callable[[], Awaitable[Any]]


class Plugin:
    """Does the same at every point."""

    name = "P"

    def __init__(self, body: Body) -> None:
        self.body = body
        self.n_running = 0
        self.most_running = 0

    async def pre_bind(self, pod: Any, node_name: str, handle: Any) -> Any:
        self.n_running += 1
        self.most_running = max(self.most_running, self.n_running)
        try:
            return await self.body()
        finally:
            self.n_running -= 1

    async def pre_enqueue(self, pod: Any, view: Any, handle: Any) -> Any:
        return await self.body()

    async def permit(self, group: Any, siblings: Any, handle: Any) -> Any:
        return await self.body()

    async def bind(self, pod: Any, node_name: str, annotations: Mapping[str, str], handle: Any) -> Any:
        return await self.body()

    async def post_bind(self, pod: Any, node_name: str, handle: Any) -> Any:
        return await self.body()


class Scene:
    """A runner, and what it has answered."""

    def __init__(self, plugin: object | None, *, timeout_s: float = 5.0, leads: bool = True) -> None:
        self.answers: list[HookAnswered] = []
        self.leads = leads
        self.n = 0
        self.runner = HookRunner(
            emit_nowait=self._heard,
            find=lambda effect: plugin,
            groups=lambda effect: (Any, {}),  # type: ignore[arg-type, return-value]
            handle=lambda name: None,  # type: ignore[arg-type, return-value]
            timeout_s=lambda: timeout_s,
            may_run=lambda: self.leads,
        )

    def _heard(self, event: Event) -> None:
        assert isinstance(event, HookAnswered)
        self.answers.append(event)

    def ask(self, point: str = PRE_BIND) -> int:
        self.n += 1
        pod = None if point == PERMIT else make_pod(f"p{self.n}")
        key = GroupKey("pod", "d", "g")
        self.runner.submit(RunHook(self.n, point, "gangsched", "P", key, pod, "n0", {}, "d/g#1"))
        return self.n

    async def answered(self, n: int = 1) -> list[HookAnswered]:
        with anyio.fail_after(20.0):
            while len(self.answers) < n:
                await anyio.sleep(0.001)
        return self.answers


async def say(answer: Any) -> Any:
    return answer


async def for_ever() -> Any:
    await anyio.sleep_forever()


@pytest.mark.parametrize("point", [PRE_ENQUEUE, PERMIT, PRE_BIND, BIND])
@pytest.mark.parametrize("status", [SUCCESS, SKIP, Status.unschedulable("not today")])
async def test_the_plugins_word_is_the_answer(point: str, status: Status) -> None:
    scene = Scene(Plugin(lambda: say(status)))
    ticket = scene.ask(point)
    (answer,) = await scene.answered()
    assert answer == HookAnswered(ticket, status.code.value, status.reason)
    assert scene.runner.n_busy == 0


async def test_pre_enqueue_may_move_a_pod_in_the_queue_by_a_whole_number() -> None:
    scene = Scene(Plugin(lambda: say(Status.let_in(raise_by=7))))
    scene.ask(PRE_ENQUEUE)
    assert [answer.raise_by for answer in await scene.answered()] == [7]
    for nonsense in ("7", 2**40):
        scene = Scene(Plugin(lambda nonsense=nonsense: say(Status(raise_by=nonsense))))  # type: ignore[misc]
        scene.ask(PRE_ENQUEUE)
        (answer,) = await scene.answered()
        assert (answer.code, answer.raise_by) == ("Error", 0)
        assert "expected a whole number" in answer.reason


async def test_pre_enqueue_that_does_not_answer_is_an_error_at_its_deadline() -> None:
    scene = Scene(Plugin(for_ever), timeout_s=0.05)
    scene.ask(PRE_ENQUEUE)
    (answer,) = await scene.answered()
    assert (answer.code, answer.reason) == ("Error", "no answer in 0.05 s")


async def test_a_long_reason_is_cut() -> None:
    scene = Scene(Plugin(lambda: say(Status.unschedulable("x" * 10**6))))
    scene.ask(PRE_ENQUEUE)
    (answer,) = await scene.answered()
    assert len(answer.reason) == 4096


async def test_a_plain_function_is_a_hook_too() -> None:
    class Plain:
        def pre_bind(self, pod: Any, node_name: str, handle: Any) -> Status:
            return SUCCESS

    scene = Scene(Plain())
    scene.ask()
    assert [answer.code for answer in await scene.answered()] == ["Success"]


async def broken() -> Any:
    return 1 / 0


class Untold(Exception):
    """Has lost what it was about."""

    def __str__(self) -> str:
        raise KeyError("path")


async def untold() -> Any:
    raise Untold


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (broken, "ZeroDivisionError: division by zero"),
        (untold, "Untold, whose message cannot be read"),
        (lambda: say(None), "answered NoneType, expected a Status"),
        (lambda: say(True), "answered bool, expected a Status"),
        (lambda: say(Status.wait("w")), "answered Wait: w"),
        (
            lambda: say(Status.unschedulable(KeyError("x"))),  # type: ignore[arg-type]
            "answered a Status with KeyError for its reason, expected a text",
        ),
        (
            lambda: say(Status("Success")),  # type: ignore[arg-type]
            "answered a Status with str for its code, expected a Code",
        ),
        (
            lambda: say(Status.wait("w", timeout_s=float("nan"))),
            "answered a Status with NaN for its timeout_s, expected a number",
        ),
    ],
    ids=[
        "raises",
        "raises what cannot be told",
        "says nothing",
        "says yes",
        "waits where there is no waiting",
        "gives an exception as its reason",
        "gives a word as its code",
        "waits for no time",
    ],
)
async def test_nonsense_and_exceptions_are_errors_with_their_reason(body: Body, why: str) -> None:
    scene = Scene(Plugin(body))
    scene.ask()
    (answer,) = await scene.answered()
    assert (answer.code, answer.reason) == ("Error", why)


async def test_a_hook_that_is_late_is_answered_for_also_when_it_will_not_be_stopped() -> None:
    let_go = asyncio.Event()

    async def deaf() -> Status:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return SUCCESS

    scene = Scene(Plugin(deaf), timeout_s=0.02)
    scene.ask()
    (answer,) = await scene.answered()
    assert (answer.code, answer.reason) == ("Error", "no answer in 0.02 s")
    let_go.set()
    await anyio.sleep(0.01)
    assert len(scene.answers) == 1


async def test_a_plugin_may_say_how_long_it_takes() -> None:
    plugin = Plugin(for_ever)
    plugin.hook_timeout_s = 0.02  # type: ignore[attr-defined]
    scene = Scene(plugin, timeout_s=3600.0)
    scene.ask()
    assert (await scene.answered())[0].reason == "no answer in 0.02 s"


async def test_what_is_taken_back_is_stopped_and_not_answered() -> None:
    ended: list[str] = []

    async def body() -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("stopped")

    scene = Scene(Plugin(body))
    tickets = (scene.ask(), scene.ask())
    await anyio.sleep(0.01)
    scene.runner.submit(CancelHooks(tickets))
    await anyio.sleep(0.01)
    assert ended == ["stopped", "stopped"]
    assert scene.answers == []
    assert scene.runner.n_busy == 0


async def test_so_many_run_at_once_and_the_rest_waits_its_turn() -> None:
    gate = asyncio.Event()

    async def body() -> Status:
        await gate.wait()
        return SUCCESS

    plugin = Plugin(body)
    scene = Scene(plugin)
    for _ in range(3 * MAX_RUNNING):
        scene.ask()
    await anyio.sleep(0.01)
    assert plugin.n_running == MAX_RUNNING
    gate.set()
    assert len(await scene.answered(3 * MAX_RUNNING)) == 3 * MAX_RUNNING
    assert plugin.most_running == MAX_RUNNING


async def test_a_hook_of_a_plugin_that_is_no_longer_there() -> None:
    scene = Scene(None)
    scene.ask()
    (answer,) = await scene.answered()
    assert "no such plugin (any more)" in answer.reason


async def test_post_bind_has_nothing_to_say() -> None:
    scene = Scene(Plugin(lambda: say("whatever")))
    scene.ask(POST_BIND)
    assert [answer.code for answer in await scene.answered()] == ["Success"]


async def test_without_the_lease_no_hook_begins() -> None:
    ran: list[int] = []

    async def body() -> Status:
        ran.append(1)
        return SUCCESS

    scene = Scene(Plugin(body), leads=False)
    scene.ask()
    await anyio.sleep(0.01)
    assert (ran, scene.answers) == ([], [])


async def test_a_clean_stop_lets_binds_finish_and_takes_back_what_comes_before_them() -> None:
    gate = asyncio.Event()

    async def body() -> Status:
        await gate.wait()
        return SUCCESS

    scene = Scene(Plugin(body))
    for point in (PERMIT, PRE_BIND, BIND, POST_BIND):
        scene.ask(point)
    await anyio.sleep(0.01)
    async with anyio.create_task_group() as group:
        group.start_soon(scene.runner.drain, 10.0)
        await anyio.sleep(0.02)
        assert scene.ask(PRE_BIND)
        gate.set()
    assert sorted(answer.ticket for answer in scene.answers) == [3, 4]
    assert scene.runner.n_busy == 0


async def test_a_bind_that_does_not_end_ends_with_the_grace_period() -> None:
    scene = Scene(Plugin(for_ever))
    scene.ask(BIND)
    await anyio.sleep(0.01)
    assert not await scene.runner.drain(0.05), "its bind may land yet"
    assert scene.runner.n_busy == 0


async def test_a_clean_stop_does_not_wait_for_binds_that_have_not_begun() -> None:
    gate = asyncio.Event()

    async def body() -> Status:
        await gate.wait()
        return SUCCESS

    scene = Scene(Plugin(body))
    for _ in range(MAX_RUNNING + 1):
        scene.ask(BIND)
    await anyio.sleep(0.01)
    gate.set()
    with anyio.fail_after(10.0):
        assert await scene.runner.drain(3_600.0)
    assert len(scene.answers) == MAX_RUNNING

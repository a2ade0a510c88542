"""Every answer of the server is counted, whoever asked for it."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import anyio
import pytest

from gangsched.errors import ApiError
from gangsched.kube.effects.binding_lane import BindingLane
from gangsched.kube.transport.pool import RequestPool
from gangsched.kube.transport.readers import Readers
from gangsched.kube.transport.stream import open_stream
from gangsched.model.effects import BindPod
from gangsched.model.events import Event
from tests.kube.scripted import CUT, ScriptedServer, credentials, status
from tests.support.tasks import until


@pytest.mark.parametrize(("method", "answers"), [("GET", 2), ("PATCH", 1)])
async def test_requests_over_warm_connections(method: str, answers: int) -> None:
    script = [status(404), status(401), CUT]
    async with ScriptedServer(script=script) as server:
        account = credentials(server.port, "old", "new")
        async with RequestPool(account) as pool:
            for _ in range(2):
                with suppress(ApiError):
                    await pool.request(method, "/x")
        counted = account.answers.by_code_and_method()
        assert counted["404", method] == counted["401", method] == 1
        # The connection had carried answers before: a read that meets a closed one is asked again.
        assert counted == {("404", method): 1, ("401", method): 1} | (
            {("201", method): 1} if answers == 2 else {("<error>", method): 1}
        )


async def test_binds() -> None:
    events: list[Event] = []
    async with ScriptedServer(script=[status(403), CUT]) as server:
        account = credentials(server.port)
        lane = BindingLane(
            account,
            emit_nowait=events.append,
            rng=Random(1),
            readers=Readers(),
            size=1,
            backoff_s=(0.01, 0.05),
        )
        async with anyio.create_task_group() as group:
            group.start_soon(lane.run)
            for n in range(3):
                lane.submit(BindPod(f"u{n}", "ns", f"p{n}", "node", {}, "ns/g", 1, "c"))
                await until(lambda: len(events) > n)  # noqa: B023 - it is awaited here
            group.cancel_scope.cancel()
        assert account.answers.by_code_and_method() == {
            ("403", "POST"): 1,
            ("<error>", "POST"): 1,
            ("201", "POST"): 1,
        }


async def test_watches_and_a_server_that_is_not_there() -> None:
    async with ScriptedServer(script=[status(410)]) as server:
        account = credentials(server.port)
        with suppress(ApiError):
            async with open_stream(account, "/x", {}, timeout_s=5):
                pass
    with suppress(ApiError):
        async with open_stream(account, "/x", {}, timeout_s=5):
            pass
    assert account.answers.by_code_and_method() == {("410", "GET"): 1, ("<error>", "GET"): 1}

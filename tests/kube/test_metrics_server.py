"""How often metrics-server is asked, and what becomes of that when nobody wants it any more."""

from __future__ import annotations

from typing import Any

import anyio
import structlog

from gangsched.errors import ApiError
from gangsched.kube.metrics_server import MetricsServer
from gangsched.model.events import Event, LoadReported

USAGE = b'{"kind": "NodeMetricsList", "items": [{"metadata": {"name": "n0"}, '
USAGE += b'"timestamp": "2026-01-01T00:00:00Z", "window": "10s", "usage": {"cpu": "1", "memory": "1Gi"}}]}'


class Client:
    """Answers, or fails."""

    def __init__(self) -> None:
        self.n_asked = 0
        self.asked = anyio.Event()
        self.fails = False
        self.answer = USAGE

    async def get(self, path: str, **_: Any) -> bytes:
        self.n_asked += 1
        self.asked.set()
        self.asked = anyio.Event()
        if self.fails:
            raise ApiError("there is none", code=404, reason="NotFound")
        return self.answer


async def test_metrics_server_is_polled_while_a_plugin_needs_it() -> None:
    client = Client()
    told: list[Event] = []

    async def tell(events: list[Event]) -> None:
        told.extend(events)

    server = MetricsServer(client, tell, period_s=0.0)  # type: ignore[arg-type]
    async with anyio.create_task_group() as group:
        group.start_soon(server.run)
        with anyio.fail_after(20.0):
            await anyio.wait_all_tasks_blocked()
            assert client.n_asked == 0
            asked = client.asked
            server.ask_every(3600.0)
            await asked.wait()
            await anyio.wait_all_tasks_blocked()
            assert client.n_asked == 1
            assert [type(one) for one in told] == [LoadReported]
            asked = client.asked
            client.fails = True
            server.ask_every(1800.0)  # at once, and not when the hour is over
            await asked.wait()
            server.ask_every(0.0)
            await anyio.wait_all_tasks_blocked()
            assert client.n_asked == 2
        group.cancel_scope.cancel()
    assert len(told) == 1


async def test_a_node_that_cannot_be_read_does_not_hide_the_others() -> None:
    client = Client()
    client.answer = USAGE.replace(b'"items": [', b'"items": [{"metadata": {"name": "bad"}}, ')
    told: list[Event] = []

    async def tell(events: list[Event]) -> None:
        told.extend(events)

    server = MetricsServer(client, tell, period_s=3600.0)  # type: ignore[arg-type]
    async with anyio.create_task_group() as group:
        with structlog.testing.capture_logs() as said:
            group.start_soon(server.run)
            with anyio.fail_after(20.0):
                await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert [one.usage.node for one in told if isinstance(one, LoadReported)] == ["n0"]
    assert "metrics-server's report of a node cannot be read: metrics.k8s.io: bad: " in said[0]["event"]

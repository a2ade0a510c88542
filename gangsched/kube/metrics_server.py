"""Polls metrics-server for the nodes' usage: for scores of nodes that have no agent.

Lives here: the loop. Not here: parsing the numbers (model.stated.load), using them (a tracker in the core).
Run by app; polls while a plugin needs it. A missing metrics-server is logged once, then retried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
import structlog

from gangsched.errors import ApiError, ParseError
from gangsched.kube.client import ApiClient
from gangsched.model.events import Event, LoadReported
from gangsched.model.stated.load import ReportedUsage, parse_node_metrics
from gangsched.model.text.printable import several

_log = structlog.get_logger(__name__)

PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
_REQUEST_S = 10.0


async def read_usage(client: ApiClient) -> tuple[list[ReportedUsage], list[ParseError]]:
    """Reads the usage of every node, and why some are left out.

    Raises: ApiError (404, 503: there is no metrics-server), ParseError.
    """
    return parse_node_metrics(await client.get(PATH, timeout_s=_REQUEST_S))


def unread_text(unread: Sequence[ParseError]) -> str:
    """Returns a sentence about the nodes whose usage cannot be read; "" if there are none."""
    if not unread:
        return ""
    more = f", and {several(len(unread) - 1, 'more node')}" if len(unread) > 1 else ""
    return f"metrics-server's report of a node cannot be read: {unread[0]}{more}"


class MetricsServer:
    """Emits LoadReported for each node, every `period_s`; 0: no plugin wants it, nothing is polled."""

    def __init__(
        self, client: ApiClient, tell: Callable[[list[Event]], Awaitable[None]], *, period_s: float
    ) -> None:
        self._client = client
        self._tell = tell
        self._period_s = period_s
        self._logged = ""
        self._changed = anyio.Event()

    def ask_every(self, period_s: float) -> None:
        """Set the period; the first poll follows at once."""
        if period_s != self._period_s:
            self._period_s = period_s
            self._changed.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self._changed = anyio.Event()
            if not self._period_s:
                await self._changed.wait()
                continue
            try:
                usage, unread = await read_usage(self._client)
            except (ApiError, ParseError) as error:
                self._say(f"metrics-server says nothing that can be used: {error}")
            else:
                self._say(unread_text(unread))
                await self._tell([LoadReported(one) for one in usage])
            with anyio.move_on_after(self._period_s):
                await self._changed.wait()

    def _say(self, problem: str) -> None:
        if problem != self._logged:
            if problem:
                _log.warning(problem, path=PATH)
            else:
                _log.info("metrics-server answers again")
            self._logged = problem

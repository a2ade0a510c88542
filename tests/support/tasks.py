"""Waiting for what other tasks of the same event loop do: the one loop that asks until it is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import anyio

from tests.support.processes import PATIENCE_S, failure

T = TypeVar("T")

_PAUSE_S = 0.005


async def until(
    seen: Callable[[], T],
    what: str = "",
    *,
    timeout_s: float = PATIENCE_S,
    story: Callable[[], object] = str,
) -> T:
    """Asks until the answer is true, and returns it. Raises: AssertionError, after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := seen()):
        assert time.monotonic() < deadline_s, failure(what, timeout_s, story)
        await anyio.sleep(_PAUSE_S)
    return found

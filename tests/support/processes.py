"""Waiting for what other processes and threads do: the one loop that asks until it is so.

Not here: waiting in an event loop (tasks.py); virtual time, in which nothing is waited for
(tests.support.scenario).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from gangsched.errors import ApiError

T = TypeVar("T")

PATIENCE_S = 60.0
"""A guard against hanging and no measurement: what works takes a small part of it on a busy machine too."""


def until(
    seen: Callable[[], T],
    what: str = "",
    *,
    timeout_s: float = PATIENCE_S,
    story: Callable[[], object] = str,
    check: Callable[[], object] = str,
    pause_s: float = 0.05,
) -> T:
    """Asks until the answer is true, and returns it. Raises: AssertionError, after `timeout_s`.

    `story` is asked for what to say besides when it fails. `check` is called before each pause and raises
    where going on is of no use.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (found := seen()):
        check()
        assert time.monotonic() < deadline_s, failure(what, timeout_s, story)
        time.sleep(pause_s)
    return found


def answered(ask: Callable[[], T]) -> Callable[[], T | None]:
    """The same question; None where its server was not reached, as while it starts again."""

    def asked() -> T | None:
        try:
            return ask()
        except ApiError as error:
            if error.code:
                raise
            return None

    return asked


def failure(what: str, timeout_s: float, story: Callable[[], object]) -> str:
    """What is said of a fact that has not come about."""
    return f"not so after {timeout_s:.0f} s: {what}\n{story()}"

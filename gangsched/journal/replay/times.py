"""Times of a journal as written on a command line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from gangsched.errors import ConfigError
from gangsched.reading.durations import duration_s

_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,6})?))?")


def wall_s(text: str, began_s: float, flag: str, ended_s: Callable[[], float] = lambda: math.inf) -> float:
    """Parses a time as seconds since 1970. began_s: the journal's begin; +1h30m counts from it, and 02:15 is
    the first such time of day in UTC after it. ended_s: returns when it ends, which takes a look into it.
    Raises: ConfigError at `flag`, also for a time of day that is not in the journal.
    """
    if text.startswith("+"):
        return began_s + duration_s(text[1:], flag)
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        began = datetime.fromtimestamp(began_s, UTC)
        found = began.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        found += timedelta(seconds=float(clock[3] or 0))
        if found >= began:
            return found.timestamp()
        next_s = (found + timedelta(days=1)).timestamp()
        if next_s > (end_s := ended_s()):
            raise ConfigError(
                f"{text} is before the journal begins, at {time_text(began_s)} UTC, and it ends at"
                f" {time_text(end_s)} UTC, before that time of the next day",
                path=flag,
            )
        return next_s
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        problem = (
            f"{text!r} is not a time; examples: 2026-05-04T02:15:00Z, 02:15 (UTC), +1h30m (from its start)"
        )
        raise ConfigError(problem, path=flag) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def time_text(at_s: float) -> str:
    """Formats the time of day in UTC, to milliseconds."""
    return (
        datetime.fromtimestamp(at_s, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    )

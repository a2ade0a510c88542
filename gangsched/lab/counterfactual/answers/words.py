"""Numbers as people say them."""

from __future__ import annotations

_MINUTE, _HOUR = 60.0, 3600.0
# Shorter spans are clearer in hours.
_DAYS = 3


def duration(seconds: float) -> str:
    """Formats a duration for people: 3.2 s, 4 min 10 s, 2 h 05 min."""
    if round(seconds, 1) < _MINUTE:
        return f"{seconds:.1f} s" if seconds >= 0.05 else "0 s"
    if round(seconds) < _HOUR:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02} s"
    hours, rest = divmod(round(seconds / 60), 60)
    if hours < _DAYS * 24:
        return f"{hours} h {rest:02} min"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours:02} h"


def share(value: float) -> str:
    """Formats a share: 43.3 %."""
    return f"{100 * value:.1f} %"


def points(value: float) -> str:
    """Formats a difference of shares: 3.2 points, of a hundred."""
    return f"{100 * value:.1f} points"

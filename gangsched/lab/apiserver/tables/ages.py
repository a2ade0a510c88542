"""Ages in as few characters as people need.

Called by all code that makes cells. Source: k8s.io/apimachinery pkg/util/duration (HumanDuration).
"""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "<unknown>"
INVALID = "<invalid>"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def human_duration(seconds: float) -> str:
    """Formats two or three significant figures: `119s`, `2m30s`, `7h59m`, `47h`, `2d`, `3y40d`; up to two
    seconds in the future count as now.
    """
    whole = int(seconds)
    if whole < -1:
        return INVALID
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    minutes, hours, days = whole // _MINUTE, whole // _HOUR, whole // _DAY
    if minutes < 10:
        return _two(minutes, "m", whole % _MINUTE, "s")
    if minutes < 3 * 60:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 8 * 24:
        return _two(days, "d", hours % 24, "h")
    if hours < 2 * 365 * 24:
        return f"{days}d"
    if hours < 8 * 365 * 24:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def since(moment: str | None, now: datetime) -> str:
    """The time since an object's timestamp."""
    if not moment:
        return UNKNOWN
    parsed = parse(moment)
    return INVALID if parsed is None else human_duration((now - parsed).total_seconds())


def parse(moment: str) -> datetime | None:
    """An RFC 3339 timestamp; None for anything else."""
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return None
    # A date alone is ISO 8601 too, but no Kubernetes timestamp.
    return parsed.astimezone(UTC) if parsed.tzinfo is not None else None


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"

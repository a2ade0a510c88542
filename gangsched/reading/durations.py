"""Go's durations, as configuration files and flags write them: 15s, 1m30s, 500ms.

Lives here: text to seconds and back. Not here: limits. Called by config, flags and `strict`.
"""

from __future__ import annotations

import math
import re

from gangsched.errors import ConfigError

_WHOLE = re.compile(r"-?(?:0|(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: str, path: str = "") -> float:
    """Seconds; may be negative, as in Go. Raises: ConfigError at `path`."""
    if not _WHOLE.fullmatch(text):
        raise ConfigError(f"{text!r} is not a duration; examples: 15s, 1m30s", path=path)
    amount = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    if math.isinf(amount):
        raise ConfigError(f"{text[:20]}… with its {len(text)} characters is too long", path=path)
    return -amount if text.startswith("-") else amount


def duration_text(seconds: float) -> str:
    """Formats seconds in Go's notation, without exponents: 15s, 0.5s, 90s. Precise to nanoseconds."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def readable_duration(seconds: float) -> str:
    """Formats seconds for people, in the largest unit that divides them: 12h, 90m, 15s, 0.5s."""
    size, unit = next(
        (one for one in ((3600, "h"), (60, "m")) if seconds and seconds % one[0] == 0), (1, "s")
    )
    return f"{seconds / size:g}{unit}"

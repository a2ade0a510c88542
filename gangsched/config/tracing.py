"""Where traces go and how many are made: the `tracing` section, checked.

Lives here: URLs, the ratio, and which traces are kept besides. Not here: flags and environment that override
it (telemetry.settings). Called by config.
"""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gangsched.config.documents import tracing as written
from gangsched.errors import ConfigError
from gangsched.reading.durations import duration_s, duration_text

_TRACES_PATH = "/v1/traces"
# About 2 kB each: 2 GB.
_MOST_HELD = 1_000_000


class KeepTraces(msgspec.Struct, frozen=True):
    """Which gangs not sampled by the ratio are traced nevertheless. slower_than_s: from the first member seen
    to the end; 0: no limit. max_held_spans: limit on the spans and their events held for undecided gangs.
    """

    slower_than_s: float = 0.0
    failed: bool = False
    preempting: bool = False
    max_held_spans: int = 20_000

    @property
    def is_on(self) -> bool:
        return bool(self.slower_than_s or self.failed or self.preempting)


class TracingSettings(msgspec.Struct, frozen=True):
    """endpoint: full URL for OTLP over HTTP, or "". file: OTLP JSON lines, or "". Both empty: no traces.

    sampling_ratio: of the gangs, 0..1; keep: gangs traced whatever the ratio is.
    """

    endpoint: str = ""
    file: str = ""
    sampling_ratio: float = 1.0
    keep: KeepTraces = KeepTraces()

    @property
    def is_on(self) -> bool:
        return bool(self.endpoint or self.file)


def resolve_tracing(document: written.Tracing) -> TracingSettings:
    """Raises: ConfigError."""
    ratio = document.sampling_ratio
    if not (math.isfinite(ratio) and 0.0 <= ratio <= 1.0):
        raise ConfigError(f"{ratio:g} is not within 0..1", path="tracing.samplingRatio")
    url = traces_url(document.endpoint, "tracing.endpoint")
    return TracingSettings(url, document.file, ratio, _resolve_keep(document.keep))


def _resolve_keep(document: written.KeepTraces) -> KeepTraces:
    slower_than_s = 0.0
    if document.slower_than:
        path = "tracing.keep.slowerThan"
        slower_than_s = duration_s(document.slower_than, path)
        if slower_than_s <= 0.0:
            raise ConfigError(f"{document.slower_than} is not longer than 0; leave it out", path=path)
    if not 1 <= document.max_held_spans <= _MOST_HELD:
        problem = f"{document.max_held_spans} is not within 1..{_MOST_HELD}"
        raise ConfigError(problem, path="tracing.keep.maxHeldSpans")
    return KeepTraces(slower_than_s, document.failed, document.preempting, document.max_held_spans)


def effective_tracing(settings: TracingSettings) -> dict[str, Any]:
    """The section as a file would have it, every field written out."""
    keep = settings.keep
    return {
        "endpoint": settings.endpoint,
        "file": settings.file,
        "samplingRatio": settings.sampling_ratio,
        "keep": {
            "slowerThan": duration_text(keep.slower_than_s) if keep.slower_than_s else "",
            "failed": keep.failed,
            "preempting": keep.preempting,
            "maxHeldSpans": keep.max_held_spans,
        },
    }


def traces_url(text: str, path: str, *, as_it_is: bool = False) -> str:
    """Returns the full URL of a collector, adding OTLP's own path if there is none. "" stays "".

    Raises: ConfigError, with `path` as the place of the mistake.
    """
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        fine = False
    if not fine:
        raise ConfigError(f"{text!r} is not the URL of a collector, as http://localhost:4318 is", path=path)
    if as_it_is or parts.path not in ("", "/"):
        return text
    return parts._replace(path=_TRACES_PATH).geturl()

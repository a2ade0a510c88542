"""Where traces go and how many are made: the `tracing` section, checked.

Lives here: URLs and the ratio. Not here: flags and environment over it (telemetry.settings). Called by
config.
"""

from __future__ import annotations

import math
from urllib.parse import urlsplit

import msgspec

from gangsched.config.documents import Tracing
from gangsched.errors import ConfigError

_TRACES_PATH = "/v1/traces"


class TracingSettings(msgspec.Struct, frozen=True):
    """endpoint: full URL for OTLP over HTTP, or "". file: OTLP JSON lines, or "". Both empty: no traces.

    sampling_ratio: of the gangs, 0..1.
    """

    endpoint: str = ""
    file: str = ""
    sampling_ratio: float = 1.0

    @property
    def is_on(self) -> bool:
        return bool(self.endpoint or self.file)


def resolve_tracing(document: Tracing) -> TracingSettings:
    """Raises: ConfigError."""
    ratio = document.sampling_ratio
    if not (math.isfinite(ratio) and 0.0 <= ratio <= 1.0):
        raise ConfigError(f"{ratio:g} is not within 0..1", path="tracing.samplingRatio")
    return TracingSettings(traces_url(document.endpoint, "tracing.endpoint"), document.file, ratio)


def traces_url(text: str, path: str, *, as_it_is: bool = False) -> str:
    """The full URL of a collector; OTLP's own path is added if there is none. "" stays "".

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

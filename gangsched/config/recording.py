"""Where the scheduler records its inputs, and how much it keeps: the `record` section, checked.

Not here: recording (gangsched.journal). Called by config.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.config.documents.ours import Record
from gangsched.errors import ConfigError
from gangsched.reading.durations import duration_s, duration_text

_MB = 10**6
_MOST_MB = 10_000_000
# A segment covers an eighth of the age and begins with the whole state; at most ten years, as for walltimes.
_LEAST_AGE_S, _MOST_AGE_S = 10.0, 87_840 * 3600.0


class RecordSettings(msgspec.Struct, frozen=True):
    """directory: "" records nothing. max_bytes: of all the journal's files together; max_age_s: since they
    were written.
    """

    directory: str = ""
    max_bytes: int = 1000 * _MB
    max_age_s: float = 7 * 86_400.0


def resolve_record(document: Record) -> RecordSettings:
    """Raises: ConfigError."""
    if not 1 <= document.max_size_mb <= _MOST_MB:
        raise ConfigError(f"{document.max_size_mb} is not within 1..{_MOST_MB}", path="record.maxSizeMB")
    max_age_s = duration_s(document.max_age, "record.maxAge")
    if not _LEAST_AGE_S <= max_age_s <= _MOST_AGE_S:
        raise ConfigError(f"{document.max_age!r} is not within 10s..87840h", path="record.maxAge")
    return RecordSettings(document.directory, document.max_size_mb * _MB, max_age_s)


def effective_record(settings: RecordSettings) -> dict[str, Any]:
    """Returns the section as in a file, with every field written out."""
    return {
        "directory": settings.directory,
        "maxSizeMB": settings.max_bytes // _MB,
        "maxAge": duration_text(settings.max_age_s),
    }

"""Reports data of a journal that cannot be read: damaged and missing files.

Not reported: a last record cut off by a kill, deleted oldest segments, and gaps stated in the journal, which
were never recorded. Called by all code that reads whole journals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gangsched.journal.records import Start
from gangsched.journal.segments import Reader, Segment, name_of

REPAIR = "Copy it again from where it was recorded; what is damaged there too is lost."


class Ended(NamedTuple):
    """A segment read as far as possible. n_turns: the process's calls up to there."""

    segment: Segment
    reader: Reader
    n_turns: int


def starts_of(segments: Iterable[Segment]) -> Iterator[tuple[Segment, Start | None]]:
    """Yields each segment with its first record; None: it is empty. Raises: ConfigError."""
    for segment in segments:
        start = next(iter(Reader(segment.path)), None)
        assert start is None or isinstance(start, Start)  # as the reader checks
        yield segment, start


def empty_among(starts: Sequence[tuple[Segment, Start | None]]) -> list[str]:
    """Reports a process's empty segments. A single one is fine: it was begun right before a kill."""
    return [
        f"{segment.path} has not one whole record"
        for segment, start in starts
        if start is None and len(starts) > 1
    ]


def lost_after(ended: Ended, upcoming: tuple[Segment, Start] | None) -> str:
    """Returns why calls are missing after a segment; "": none are, or a kill or the journal explains it.

    upcoming: the process's next segment, if there is one.
    """
    reader = ended.reader
    problem = f"{reader.path}: {reader.torn}" if reader.torn else ""
    if upcoming is None:
        return "" if reader.is_cut else problem
    segment, start = upcoming
    if ended.n_turns == start.n_before:
        return ""
    if start.gap:
        return "" if reader.is_cut else problem
    return problem or _absent(ended.segment, segment)


def _absent(before: Segment, after: Segment) -> str:
    """Returns why calls between two complete segments are missing."""
    first, last = before.number + 1, after.number - 1
    if first > last:
        return f"{before.path} ends too early"
    path = before.path.with_name(name_of(before.process, first))
    return f"{path} is missing" if first == last else f"{path} and those to number {last:04} are missing"

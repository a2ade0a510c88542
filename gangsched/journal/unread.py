"""What a journal once had and cannot be read: damaged files, and files that are not there.

The last record of a process may be cut, as a kill leaves it, the oldest segments may be deleted, and a gap
that the journal tells of was never recorded: none of these is meant. Called by who reads whole journals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gangsched.journal.records import Start
from gangsched.journal.segments import Reader, Segment, name_of

REPAIR = "Copy it again from where it was recorded; what is damaged there too is lost."


class Ended(NamedTuple):
    """A segment that was read as far as possible. n_turns: the process's calls up to there."""

    segment: Segment
    reader: Reader
    n_turns: int


def starts_of(segments: Iterable[Segment]) -> Iterator[tuple[Segment, Start | None]]:
    """Each with the record that it begins with; None: nothing is in it. Raises: ConfigError."""
    for segment in segments:
        start = next(iter(Reader(segment.path)), None)
        assert start is None or isinstance(start, Start)  # as the reader checks
        yield segment, start


def empty_among(starts: Sequence[tuple[Segment, Start | None]]) -> list[str]:
    """Those of a process with nothing in them. One that is alone was begun right before a kill."""
    return [
        f"{segment.path} has not one whole record"
        for segment, start in starts
        if start is None and len(starts) > 1
    ]


def lost_after(ended: Ended, upcoming: tuple[Segment, Start] | None) -> str:
    """Why calls are missing after a segment; "": none are, or a kill or the journal itself explains it.

    upcoming: the process's next segment, if there is one.
    """
    reader = ended.reader
    told = f"{reader.path}: {reader.torn}" if reader.torn else ""
    if upcoming is None:
        return "" if reader.is_cut else told
    segment, start = upcoming
    if ended.n_turns == start.n_before:
        return ""
    if start.gap:
        return "" if reader.is_cut else told
    return told or _absent(ended.segment, segment)


def _absent(before: Segment, after: Segment) -> str:
    """Why calls between two segments are missing that are whole."""
    first, last = before.number + 1, after.number - 1
    if first > last:
        return f"{before.path} ends too early"
    path = before.path.with_name(name_of(before.process, first))
    return f"{path} is missing" if first == last else f"{path} and those to number {last:04} are missing"

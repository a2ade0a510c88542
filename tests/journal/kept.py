"""A journal in memory: what the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gangsched.journal.counted import Counted
from gangsched.journal.records import HEAD, Record, Start, read_record
from gangsched.journal.replay.replaying import Replay
from gangsched.journal.segments import Stream, name_of
from gangsched.journal.writing import DiskJournal
from gangsched.lab.sim.wire.run import Verdict, run_seed
from gangsched.lab.sim.wire.weather import CALM, Rates


class Kept:
    """Takes records as a disk does; a new segment after so many records."""

    def __init__(self, per_segment: int = 10**9) -> None:
        self.segments: list[list[bytes]] = [[]]
        self._per_segment = per_segment
        self.lost = ""
        self.n_skipped = 0

    def put(self, framed: bytes) -> str:
        self.segments[-1].append(framed)
        return ""

    @property
    def framed(self) -> list[bytes]:
        (only,) = self.segments
        return only

    @property
    def wants_segment(self) -> bool:
        return len(self.segments[-1]) > self._per_segment

    def begin_segment(self, number: int, write: Callable[[], list[bytes]]) -> None:
        assert number == len(self.segments) + 1
        self.segments.append(write())

    def skip(self) -> None:
        self.n_skipped += 1

    def lose(self, why: str) -> None:
        self.lost = why

    @property
    def counted(self) -> Counted:
        return Counted(len(self.framed), sum(map(len, self.framed)), self.n_skipped, 0, 0, not self.lost)

    @property
    def records(self) -> list[Record]:
        return self.records_of(1)

    def records_of(self, segment: int) -> list[Record]:
        return [read_record(one[HEAD.size :]) for one in self.segments[segment - 1]]

    def write_to(self, directory: Path, process: str = "day") -> Path:
        """As a segment that has ended."""
        for number, framed in enumerate(self.segments, 1):
            stream = Stream()
            (directory / name_of(process, number)).write_bytes(stream.take(framed) + stream.end())
        return directory / name_of(process, 1)


def key_in(directory: Path) -> str:
    """A key for `gangsched anonymise`."""
    path = directory / "key"
    path.touch(mode=0o600)
    path.write_text("0" * 64)
    return str(path)


def full(journal: DiskJournal) -> DiskJournal:
    """Its first segment is on a disk that is full, as /dev/full is."""
    assert journal._file is not None
    journal._file.close()
    journal._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    return journal


def recorded(
    seed: int, rates: Rates = CALM, *, n_gangs: int = 14, per_segment: int = 10**9
) -> tuple[Verdict, list[Kept]]:
    """Whole scheduler processes on the wire in memory, each with its journal."""
    journals: list[Kept] = []

    def journal() -> Kept:
        journals.append(Kept(per_segment))
        return journals[-1]

    verdict = run_seed(seed, rates=rates, n_gangs=n_gangs, journal=journal)
    assert not verdict.problems, (seed, verdict.problems)
    return verdict, journals


def replayed(records: Sequence[Record]) -> Replay:
    """All of them. Raises: Divergence."""
    first, *others = records
    assert isinstance(first, Start)
    replay = Replay(first)
    for record in others:
        replay.play(record)
    return replay

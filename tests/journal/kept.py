"""A journal in memory: what the tests of this folder share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gangsched.journal.records import HEAD, Record, Start, read_record
from gangsched.journal.replaying import Replay
from gangsched.journal.segments import Stream, name_of
from gangsched.sim.wire.run import Verdict, run_seed
from gangsched.sim.wire.weather import CALM, Rates


class Kept:
    """Takes records as a disk does."""

    def __init__(self) -> None:
        self.framed: list[bytes] = []

    def put(self, framed: bytes) -> str:
        self.framed.append(framed)
        return ""

    @property
    def counted(self) -> tuple[int, int, int, bool]:
        return len(self.framed), sum(map(len, self.framed)), 0, True

    @property
    def records(self) -> list[Record]:
        return [read_record(one[HEAD.size :]) for one in self.framed]

    def write_to(self, directory: Path, process: str = "day") -> Path:
        """As a segment that has ended."""
        path = directory / name_of(process, 1)
        stream = Stream()
        path.write_bytes(stream.take(self.framed) + stream.end())
        return path


def recorded(seed: int, rates: Rates = CALM, *, n_gangs: int = 14) -> tuple[Verdict, list[Kept]]:
    """Whole scheduler processes on the wire in memory, each with its journal."""
    journals: list[Kept] = []

    def journal() -> Kept:
        journals.append(Kept())
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

"""A journal that had a gap: it goes on by itself, and both sides of the gap are replayed and compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog.testing

from gangsched.command.cli import main
from gangsched.config.recording import RecordSettings
from gangsched.journal import writing
from gangsched.journal.counted import Counted
from gangsched.journal.records import End, Record, Start, State, framed
from gangsched.journal.segments import Reader, name_of, segments_in
from gangsched.journal.state import NotWritable
from gangsched.journal.writing import DiskJournal
from gangsched.lab.sim.wire import STORM
from gangsched.lab.sim.wire.run import run_seed
from tests.journal.kept import Kept, full, key_in, replayed
from tests.support.processes import until

START = Start(1, 0.0, 0.0, True, "", {}, {})
GAP = "the journal has a gap from here on; scheduling goes on"
AFTER = "the journal goes on after a gap"


class Disk:
    """What `try_to_write` finds: it refuses so many times."""

    def __init__(self, n_refused: int) -> None:
        self.n_left = n_refused

    def __call__(self, directory: Path, process: str, body: bytes = b"") -> None:
        if self.n_left:
            self.n_left -= 1
            raise OSError(28, os.strerror(28))


@pytest.fixture
def on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DiskJournal]:
    """A journal whose first segment is on a full disk, which takes the second one after some tries."""

    def made(*, n_refused: int = 0) -> DiskJournal:
        monkeypatch.setattr(writing, "_FIRST_TRY_S", 0.01)
        monkeypatch.setattr(writing, "try_to_write", Disk(n_refused))
        return full(DiskJournal(RecordSettings(str(tmp_path), 10**6, 3600.0), "p"))

    return made


def test_it_goes_on_with_a_state_once_the_disk_takes_it(
    tmp_path: Path, on_a_full_disk: Callable[..., DiskJournal]
) -> None:
    """A gap is reported once, and its end once, however often it was tried."""
    began: list[Record] = [Start(1, 5.0, 5.0, True, "", {}, {}, 7, "no", "full"), State(b"state")]
    with structlog.testing.capture_logs() as logs:
        journal = on_a_full_disk(n_refused=3)
        journal.put(framed(START))
        until(lambda: journal.lost, "the disk is full")
        assert journal.put(framed(End(1.0, "lost"))) == journal.lost
        journal.skip()
        until(lambda: journal.wants_segment, "the disk takes a file")
        journal.begin_segment(2, lambda: [framed(one) for one in began])
        assert journal.put(framed(End(6.0, "while it begins"))) == ""
        until(lambda: journal.counted.goes_on, "it goes on")
        assert journal.put(framed(End(7.0, "after"))) == ""
        journal.close(60.0)
    assert [one["event"] for one in logs] == [GAP, AFTER]
    assert "No space left on device" in logs[0]["why"]
    assert logs[1]["missing"] == 2
    found = Reader(tmp_path / name_of("p", 2))
    assert list(found) == [*began, End(6.0, "while it begins"), End(7.0, "after")]
    assert journal.counted == Counted(2, (tmp_path / name_of("p", 2)).stat().st_size - 3, 2, 1, 4, True)


def test_a_state_that_cannot_be_written_is_tried_again_later_and_reported_no_more(
    on_a_full_disk: Callable[..., DiskJournal],
) -> None:
    def write() -> list[bytes]:
        raise NotWritable("an array of objects")

    with structlog.testing.capture_logs() as logs:
        journal = on_a_full_disk()
        journal.put(framed(START))
        for number in (2, 3, 4):
            until(lambda: journal.wants_segment, "it is to be tried")
            journal.begin_segment(number, write)
            assert not journal.wants_segment
            until(lambda: journal.put(framed(START)), "the copy has failed")
        journal.close(60.0)
    assert [one["event"] for one in logs] == [GAP]
    assert journal.counted.n_tries >= 3
    assert not journal.counted.goes_on


def test_tries_are_ever_more_seldom(
    on_a_full_disk: Callable[..., DiskJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = on_a_full_disk(n_refused=10**6)
    monkeypatch.setattr(writing, "_LAST_TRY_S", 0.05)
    journal.put(framed(START))
    until(lambda: journal.counted.n_tries >= 4, "it was tried")
    assert journal._try_s == 0.05
    journal.close(60.0)


def test_what_comes_while_the_next_segment_begins_is_bounded_too(
    tmp_path: Path, on_a_full_disk: Callable[..., DiskJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is ended, and it is tried again."""
    monkeypatch.setattr(writing, "_MAX_WAITING", 1000)
    hangs = tmp_path / "hangs"

    def write() -> list[bytes]:
        os.mkfifo(hangs)
        return [hangs.read_bytes()]

    journal = on_a_full_disk()
    journal.put(framed(START))
    until(lambda: journal.wants_segment, "the disk takes a file")
    journal.begin_segment(2, write)
    said = [journal.put(b"x" * 300) for _ in range(5)]
    assert said[:3] == ["", "", ""]
    assert said[3] == said[4] == journal.lost
    until(lambda: journal.wants_segment, "it is to be tried again")
    assert journal.counted.n_dropped >= 4
    journal.close(60.0)
    assert not list(tmp_path.glob("*.part"))


class Gappy(Kept):
    """Refuses for a while, now and then, and then asks for a segment."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self._n_put = 0
        self._why = why

    def put(self, framed: bytes) -> str:
        self._n_put += 1
        if not self.lost and self._n_put % 30 == 0:
            self.lost, self.n_left = self._why, 12
        return self.lost or super().put(framed)

    def skip(self) -> None:
        super().skip()
        self.n_left -= 1

    @property
    def wants_segment(self) -> bool:
        return bool(self.lost) and self.n_left <= 0

    def begin_segment(self, number: int, write: Callable[[], list[bytes]]) -> None:
        super().begin_segment(number, write)
        self.lost = ""


def gappy_day(seed: int, why: str = "the disk is full") -> list[Gappy]:
    journals: list[Gappy] = []

    def journal() -> Gappy:
        journals.append(Gappy(why))
        return journals[-1]

    verdict = run_seed(seed, rates=STORM, journal=journal)
    assert not verdict.problems, (seed, verdict.problems)
    return journals


@pytest.mark.parametrize("seed", range(7, 9))
def test_both_sides_of_every_gap_of_a_storm_replay_to_the_same_effects(seed: int) -> None:
    n_gaps = 0
    for kept in gappy_day(seed):
        for number in range(1, len(kept.segments) + 1):
            records = kept.records_of(number)
            replayed(records)
            if number > 1:
                assert isinstance(start := records[0], Start)
                assert start.gap == "the disk is full"
                n_gaps += 1
    print(f"seed {seed}: {n_gaps} gaps")
    assert n_gaps > 3


def test_a_replay_says_where_the_gap_is_and_goes_on_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = max(gappy_day(7), key=lambda one: len(one.segments))
    kept.write_to(tmp_path)
    n_segments = len(kept.segments)
    assert main(["replay", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("all as recorded") == n_segments
    assert out.count(" s: a gap of 1") == n_segments - 1, out
    assert "calls (the disk is full); it goes on from the state after it" in out
    assert "was killed, or still runs" not in out.partition("a gap of")[0]


def test_a_day_with_gaps_is_anonymised_and_the_reasons_of_gaps_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = max(gappy_day(7, why="secrethost-1.journal.zst: No space"), key=lambda one: len(one.segments))
    kept.write_to(tmp_path)
    other = str(tmp_path / "other")
    assert main(["anonymise", str(tmp_path), other, "--key", key_in(tmp_path)]) == 0
    for one in segments_in(tmp_path / "other"):
        start = next(iter(Reader(one.path)))
        assert isinstance(start, Start)
        assert "secrethost" not in start.gap
        assert bool(start.gap) == (one.number > 1)
    capsys.readouterr()
    assert main(["replay", other]) == 0
    assert capsys.readouterr().out.count("all as recorded") == len(kept.segments)

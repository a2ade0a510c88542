"""Questions to a journal of several processes: times are of the whole of it, and a terminal is asked once."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from gangsched.command.cli import main
from gangsched.journal.records import Start, Turn, framed
from gangsched.journal.replay.times import wall_s
from tests.journal.kept import Kept
from tests.journal.test_command import a_gang, day, long_day

APART_S = 3600.0


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """The same day twice, by two processes, an hour apart."""
    day().write_to(tmp_path, "1-first")
    later = Kept()
    others = day().framed[1:]
    start = day().records[0]
    assert isinstance(start, Start)
    later.put(framed(msgspec.structs.replace(start, wall_s=start.wall_s + APART_S)))
    for one in others:
        later.put(one)
    later.write_to(tmp_path, "2-second")
    return tmp_path


def test_a_time_is_of_the_whole_journal(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not of each process from its own beginning."""
    assert main(["replay", str(two), "--until", "+1s"]) == 0
    out = capsys.readouterr().out
    assert "1-first: " in out
    assert "2-second" not in out
    assert main(["replay", str(two), "--until", f"+{APART_S + 1.0:.0f}s"]) == 0
    out = capsys.readouterr().out
    assert "It ends there: the scheduler stopped." in out
    assert out.count("all as recorded") == 2


def test_a_gang_is_explained_by_the_process_that_recorded_then(
    two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn = next(one for one in day().records if isinstance(one, Turn) and one.group is not None)
    start = day().records[0]
    assert isinstance(start, Start)
    after_s = turn.now_s - start.now_s
    assert main(["replay", str(two), "--explain", a_gang(), "--at", f"+{after_s + APART_S:.9f}s"]) == 0
    out = capsys.readouterr().out
    assert out.count("Last moves") == 1
    assert out.index("2-second: ") < out.index("Last moves")


def test_a_gang_that_is_gone_then_is_distinguished_from_one_that_never_was(
    two: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(two), "--explain", a_gang(), "--at", f"+{APART_S - 1.0:.0f}s"]) == 2
    told = capsys.readouterr()
    assert "Nothing was recorded then; as of " in told.out
    assert f"{a_gang()} was gone by then; --story {a_gang()} has its moves" in told.err
    assert main(["replay", str(two), "--explain", f"{a_gang()}x", "--at", "+3s"]) == 2
    assert f"no gang and no pod named {a_gang()}x is in it by then; did you mean " in capsys.readouterr().err


@pytest.mark.parametrize(
    "asked", [("--explain", "d/a", "--at"), ("--until",), ("--from",)], ids=["at", "until", "from"]
)
def test_a_time_of_day_before_the_journal_is_not_taken_as_tomorrows(
    two: Path, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...]
) -> None:
    start = day().records[0]
    assert isinstance(start, Start)
    before = f"{datetime.fromtimestamp(start.wall_s - 60.0, UTC):%H:%M:%S}"
    assert main(["replay", str(two), *asked, before]) == 2
    told = capsys.readouterr()
    assert f"{asked[-1]}: {before} is before the journal begins, at " in told.err
    assert " UTC, and it ends at " in told.err
    assert told.out == ""


def test_a_time_of_day_after_midnight_is_of_the_next_day_where_the_journal_has_it() -> None:
    began, day_s = datetime(2026, 5, 4, 22, tzinfo=UTC), 86_400.0
    tomorrow = wall_s("02:15", began.timestamp(), "--at", lambda: began.timestamp() + day_s)
    assert datetime.fromtimestamp(tomorrow, UTC) == datetime(2026, 5, 5, 2, 15, tzinfo=UTC)


def answered(directory: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert main(["replay", str(directory), "--step"]) == 0


def test_going_on_to_the_end_is_to_the_end_of_all_segments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long_day().write_to(tmp_path)
    answered(tmp_path, "c\n", monkeypatch)
    out = capsys.readouterr().out
    assert out.count("> ") == 1
    assert out.count("Enter: the next decision") == 1
    assert "It ends there: the scheduler stopped." in out


def test_who_stops_is_not_asked_again_by_the_next_process(
    two: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(two, "q\n\n\n", monkeypatch)
    out = capsys.readouterr().out
    assert out.count("> ") == 1
    assert "2-second" not in out


def test_what_is_typed_in_another_encoding_is_no_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long_day().write_to(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\nq\n"), encoding="utf-8"))
    assert main(["replay", str(tmp_path), "--step"]) == 0
    assert capsys.readouterr().out.count("Enter: the next decision") == 2

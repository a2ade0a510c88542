"""`gangsched replay DIR` on journals of the simulation: what it prints, and what it says of bad ones."""

from __future__ import annotations

import io
import os
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import zstandard

from gangsched.command.cli import main
from gangsched.errors import ConfigError
from gangsched.journal.records import HEAD, MAX_RECORD, Start, Turn, framed, read_events
from gangsched.journal.segments import Reader, Stream, name_of
from gangsched.lab.bench.queueing.traces.recorded import journal_jobs
from gangsched.model.events import PodAdded
from tests.journal.kept import Kept, key_in, recorded


@cache
def day() -> Kept:
    _, (kept,) = recorded(7, n_gangs=6)
    return kept


def a_gang() -> str:
    """One that was tried."""
    return next(str(one.group) for one in day().records if isinstance(one, Turn) and one.group is not None)


def test_a_day_is_replayed_and_is_as_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day().write_to(tmp_path)
    assert main(["replay", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    n_turns = sum(isinstance(one, Turn) for one in day().records)
    assert re.search(rf"day: .* UTC in .* times as fast as it was: {n_turns:,} calls, .*all as recorded", out)
    assert "It ends there: the scheduler stopped." in out


def test_a_gang_that_is_gone_still_has_its_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day().write_to(tmp_path)
    assert main(["replay", str(tmp_path), "--story", a_gang()]) == 0
    out = capsys.readouterr().out
    assert f"{a_gang()} has been deleted for" in out
    assert "every bind landed" in out


def test_a_gang_is_explained_as_of_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the moment before its attempt it is active, or has waited for it."""
    turn = next(one for one in day().records if isinstance(one, Turn) and one.group is not None)
    start = day().records[0]
    assert isinstance(start, Start)
    day().write_to(tmp_path)
    after_s = turn.now_s - start.now_s
    code = main(["replay", str(tmp_path), "--explain", a_gang(), "--at", f"+{after_s:.9f}s"])
    out = capsys.readouterr().out
    assert code == 0, out
    assert f"{a_gang()}: " in out
    assert "members exist" in out
    assert "Last moves" in out


def test_a_gang_that_never_was_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day().write_to(tmp_path)
    assert main(["replay", str(tmp_path), "--story", "nobody"]) == 2
    assert "no gang and no pod named default/nobody is in it by then" in capsys.readouterr().err


def test_stepping_shows_each_decision_and_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    day().write_to(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"\nt\ns {a_gang()}\ne {a_gang()}\nwhat\nc\n"))
    assert main(["replay", str(tmp_path), "--step"]) == 0
    out = capsys.readouterr().out
    assert f"{a_gang()}: binding" in out
    assert " on n" in out
    assert "GROUP" in out
    assert "all as recorded" in out


def test_until_stops_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day().write_to(tmp_path)
    assert main(["replay", str(tmp_path), "--until", "+1s"]) == 0
    n_turns = sum(isinstance(one, Turn) for one in day().records)
    (n_played,) = re.findall(r"([\d,]+) calls", capsys.readouterr().out)
    assert 0 < int(n_played.replace(",", "")) < n_turns


def test_a_decision_that_differs_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pod of another name came: its bind has another name too."""
    kept = Kept()
    for one in day().framed:
        changed = one[HEAD.size :].replace(b'"kind":"pods","', b'"kind":"pods","')
        kept.put(one if changed == one[HEAD.size :] else changed)
    turns = day().records
    at = next(
        at
        for at, one in enumerate(turns)
        if isinstance(one, Turn) and any(isinstance(e, PodAdded) for e in read_events(one.events))
    )
    turn = turns[at]
    assert isinstance(turn, Turn)
    import msgspec

    other = bytes(turn.events).replace(b'"cpu":"1"', b'"cpu":"2000"')
    kept.framed[at] = framed(msgspec.structs.replace(turn, events=msgspec.Raw(other)))
    kept.write_to(tmp_path)
    assert main(["replay", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "not as recorded" in out
    assert "this is a fault of the program; please report it" in out


# -- journals that are not whole ------------------------------------------------------------------------


@pytest.mark.parametrize("n_cut", [1, 7, 1000])
def test_a_torn_journal_is_read_to_its_last_whole_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], n_cut: int
) -> None:
    stream = Stream()
    flushed = [stream.take([one]) for one in day().framed]
    whole = b"".join(flushed)
    path = tmp_path / name_of("day", 1)
    path.write_bytes(whole[:-n_cut])
    reader = Reader(path)
    records = list(reader)
    n_whole = 0
    for n, _ in enumerate(flushed):
        n_whole = n if sum(map(len, flushed[:n])) <= len(whole) - n_cut else n_whole
    assert len(records) >= n_whole > 10
    assert records == day().records[: len(records)]
    assert main(["replay", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "all as recorded" in out
    assert "Not all of it could be read" not in out


def packed(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(raw)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "nothing is in it"),
        (b"no zstd at all", "is not a journal of gangsched"),
        (packed(b"x" * 100), "a record of 2021161080 bytes, more than"),
        (packed(HEAD.pack(MAX_RECORD + 1, 0)), "more than"),
        (packed(HEAD.pack(5, 0) + b"hello"), "checksum is wrong"),
        (packed(HEAD.pack(5, 0x3610A686) + b"hello"), "is not a record of a journal"),
        (packed(HEAD.pack(200_000, 0) + b"[" * 200_000), "checksum is wrong"),
    ],
)
def test_what_is_no_journal_is_reported_plainly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    (tmp_path / name_of("day", 1)).write_bytes(content)
    code = main(["replay", str(tmp_path)])
    told = capsys.readouterr()
    assert said in (told.err if code else told.out), told
    assert code == (0 if not content else 2)


@pytest.mark.parametrize("command", [["replay"], ["counterfactual", "--without", "d/g0"]])
def test_a_named_pipe_of_a_segments_name_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    day().write_to(tmp_path)
    pipe = tmp_path / name_of("day", 2)
    os.mkfifo(pipe)
    assert main([command[0], str(tmp_path), *command[1:]]) == 2
    said = f"gangsched: {pipe}: is not a regular file; pipes and devices are not read\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("unit", [b"1,", b'["PodAdded",{}],'])
def test_a_record_of_countless_values_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unit: bytes
) -> None:
    """20 kB of zstd made five gigabytes of events, and a traceback."""
    body = b'["turn","handle",1.0,"",[' + unit * 2_000_000 + b"1]]\n"
    raw = day().framed[0] + HEAD.pack(len(body), zlib.crc32(body)) + body
    (tmp_path / name_of("day", 1)).write_bytes(packed(raw))
    assert main(["replay", str(tmp_path)]) == 1
    assert "has a record of more values than its length gives reason for" in capsys.readouterr().out


def test_a_call_that_cannot_be_read_is_reported_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'["turn","handle",1.0,"",[["PodAdded",{}]]]\n'
    raw = day().framed[0] + HEAD.pack(len(body), zlib.crc32(body)) + body
    file = tmp_path / name_of("day", 1)
    file.write_bytes(packed(raw))
    for flags in (["replay", str(tmp_path)], ["counterfactual", str(tmp_path), "--without", "d/g0"]):
        assert main(flags) == 2
        assert f"gangsched: {file}: " in capsys.readouterr().err


def test_a_record_that_is_damaged_ends_what_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Kept()
    kept.segments = [list(day().framed)]
    head, body = kept.framed[20][: HEAD.size], kept.framed[20][HEAD.size :]
    kept.framed[20] = head + body[:-2] + b"!\n"
    kept.write_to(tmp_path)
    at = sum(map(len, kept.framed[:20]))
    assert main(["replay", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "19 calls" in out
    file = tmp_path / name_of("day", 1)
    where = f"at byte {at:,} of what zstd -dc makes of it"
    assert f"Not all of it could be read: {file}: has a record whose checksum is wrong, {where}." in out
    assert "Copy it again from where it was recorded" in out
    assert "killed" not in out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--at", "+1s"], "--at: is of --explain NAMESPACE/GANG, which is missing"),
        (["--explain", "a/b"], "--explain: needs --at TIME, as of when"),
        (["--until", "2020-01-01"], "--until: 2020-01-01 is before the journal begins, at 20"),
        (["--from", "+2s", "--until", "+1s"], "--until: +1s is before --from +2s"),
        (["--picture", "."], "--picture: cannot be written: Is a directory"),
        (["--until", "noon"], "--until: 'noon' is not a time"),
        (["--explain", "a/b", "--at", "+1s", "--until", "+1s"], "--until: cannot be given with --at"),
    ],
)
def test_mistakes_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    day().write_to(tmp_path)
    assert main(["replay", str(tmp_path), *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_a_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path)]) == 2
    assert "has no journal: no file named *.journal.zst" in capsys.readouterr().err
    for command in ("replay", "counterfactual --nodes +1 --like n0", "anonymise"):
        name, *flags = command.split()
        more = [str(tmp_path / "out"), "--key", key_in(tmp_path)] if name == "anonymise" else []
        for wrong, said in (
            (tmp_path / "nowhere", "cannot be read: No such file or directory"),
            (tmp_path / "key", "is not a journal: its files are named *.journal.zst"),
            (tmp_path / "key" / "below", "cannot be read: Not a directory"),
            (tmp_path / ("x" * 300), "cannot be read: File name too long"),
        ):
            key_in(tmp_path)
            assert main([name, str(wrong), *more, *flags]) == 2
            assert said in capsys.readouterr().err


def test_a_journal_of_another_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = day().records[0]
    assert isinstance(start, Start)
    import msgspec

    kept = Kept()
    kept.put(framed(msgspec.structs.replace(start, format=99)))
    kept.write_to(tmp_path)
    assert main(["replay", str(tmp_path)]) == 2
    assert "is of format 99; this version reads" in capsys.readouterr().err
    assert struct.calcsize("<II") == HEAD.size


# -- segments ----------------------------------------------------------------------------------------


@cache
def long_day() -> Kept:
    _, (kept,) = recorded(7, n_gangs=6, per_segment=20)
    assert len(kept.segments) >= 3
    return kept


def n_calls(segment: int = 0) -> int:
    """Those of the whole day, or before a segment of it."""
    if segment:
        start = long_day().records_of(segment)[0]
        assert isinstance(start, Start)
        return start.n_before
    every = [one for n in range(len(long_day().segments)) for one in long_day().records_of(n + 1)]
    return sum(isinstance(one, Turn) for one in every)


def test_segments_follow_one_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long_day().write_to(tmp_path)
    assert main(["replay", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("all as recorded") == 1
    assert f" {n_calls():,} calls" in out


def test_what_is_left_when_the_first_segments_are_deleted_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long_day().write_to(tmp_path)
    (tmp_path / name_of("day", 1)).unlink()
    assert main(["replay", str(tmp_path)]) == 0
    assert f" {n_calls() - n_calls(2):,} calls" in capsys.readouterr().out


def test_from_begins_with_the_state_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Segment 2 has begun at that time, and 3 has not."""
    long_day().write_to(tmp_path)
    first, last = (long_day().records_of(n)[0] for n in (1, len(long_day().segments)))
    assert isinstance(first, Start)
    assert isinstance(last, Start)
    after_s = last.wall_s - first.wall_s
    assert main(["replay", str(tmp_path), "--from", f"+{after_s + 0.001:.6f}s"]) == 0
    assert f" {n_calls() - last.n_before:,} calls" in capsys.readouterr().out


def test_a_segment_in_the_middle_that_is_missing_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long_day().write_to(tmp_path)
    (tmp_path / name_of("day", 2)).unlink()
    assert main(["replay", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"Not all of it could be read: {tmp_path / name_of('day', 2)} is missing." in out
    assert " calls (recorded and not readable); it goes on from the state after it" in out
    assert out.count("all as recorded") == 2


def cut(records: list[bytes], at: int) -> bytes:
    """Of a segment of these records, each flushed as it comes, those before this one are on the disk, and
    two bytes of its block, of which zstd makes nothing yet."""
    stream = Stream()
    flushed = [stream.take([one]) for one in records]
    return b"".join(flushed[:at]) + flushed[at][:2]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda records: cut(records, -3), " ends too early."),
        (lambda records: cut(records, 0), " has not one whole record."),
        (lambda records: packed(b"".join(records)[:-3]), ": ends within a record, at byte "),
        (
            lambda records: packed(b"".join(records)[:-3] + b"!!\n"),
            ": has a record whose checksum is wrong, at ",
        ),
    ],
)
def test_a_file_in_the_middle_that_is_damaged_is_no_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[list[bytes]], bytes], said: str
) -> None:
    """A kill cuts the last one of a process."""
    long_day().write_to(tmp_path)
    path = tmp_path / name_of("day", 2)
    path.write_bytes(damage(long_day().segments[1]))
    for until, code in (("+9h", 1), ("+0.001s", int("not one" in said))):
        assert main(["replay", str(tmp_path), "--until", until]) == code
        assert (f"Not all of it could be read: {path}{said}" in capsys.readouterr().out) == bool(code)
    flags = ["--nodes", "+1", "--like", "n0", "--seeds", "0"]
    assert main(["counterfactual", str(tmp_path), *flags]) == 1
    told = capsys.readouterr()
    assert f"gangsched: not all of the journal could be read: {path}{said}" in told.err
    assert "What this cannot know" in told.out
    anonymise = ["anonymise", str(tmp_path), str(tmp_path / "out"), "--key", key_in(tmp_path)]
    assert main(anonymise) == 1
    assert f"Not all of it could be read: {path}{said}" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="not all of it could be read: "):
        list(journal_jobs(str(tmp_path)))


def test_a_gang_is_explained_although_calls_are_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long_day().write_to(tmp_path)
    (tmp_path / name_of("day", 2)).unlink()
    assert main(["replay", str(tmp_path), "--story", a_gang()]) == 1
    assert "its last member is gone" in capsys.readouterr().out


def test_a_kill_and_a_segment_that_nobody_wrote_to_are_no_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each process the last one may be cut; the first may be empty if there is no other."""
    n_last, last = len(long_day().segments), long_day().segments[-1]
    for process, left in (("killed", cut(last, -1)), ("torn", packed(b"".join(last)[:-3]))):
        long_day().write_to(tmp_path, process)
        (tmp_path / name_of(process, n_last)).write_bytes(left)
    (tmp_path / name_of("unbegun", 1)).touch()
    assert main(["replay", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("It ends there without a reason: the process was killed, or still runs.") == 1
    assert out.count("It ends within a record, at byte ") == 1
    assert "unbegun: nothing is in it" in out


def test_calls_that_two_segments_have_are_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a copy of the process writes the state, records go to both."""
    kept = Kept()
    kept.segments = [list(one) for one in long_day().segments]
    kept.segments[0] += kept.segments[1][2:6]
    kept.write_to(tmp_path)
    assert main(["replay", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("all as recorded") == 1
    assert f" {n_calls():,} calls" in out


def test_a_reader_that_has_seen_enough_is_no_decision_that_differs(tmp_path: Path) -> None:
    """`gangsched replay DIR | head`: exit code 1 would say that an answer is not as recorded."""
    _, (kept, *_) = recorded(7, n_gangs=2)
    kept.write_to(tmp_path)
    seen, written = os.pipe()
    os.close(seen)
    try:
        command = [sys.executable, "-m", "gangsched.command.cli", "replay", str(tmp_path)]
        done = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(written)
    assert (done.returncode, done.stderr) == (141, "")

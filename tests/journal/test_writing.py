"""The thread that writes a journal: what is on the disk, and what becomes of a disk that will not."""

from __future__ import annotations

import os
import signal
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog.testing
import zstandard

from gangsched.config.recording import RecordSettings
from gangsched.errors import ConfigError
from gangsched.journal import writing
from gangsched.journal.counted import Counted
from gangsched.journal.directory import process_name
from gangsched.journal.records import End, Record, Start, State, framed
from gangsched.journal.segments import Reader, name_of
from gangsched.journal.state import NotWritable
from gangsched.journal.writing import DiskJournal
from gangsched.lab.importing.writing import JournalFile
from gangsched.telemetry.sending.trace_file import opened
from gangsched.whole_file import private, write_whole
from tests.journal.kept import full
from tests.support.processes import until

START = Start(1, 0.0, 0.0, True, "", {}, {})


def settings(directory: Path, *, max_bytes: int = 10**6, max_age_s: float = 3600.0) -> RecordSettings:
    return RecordSettings(str(directory), max_bytes, max_age_s)


def test_what_is_put_is_read_again(tmp_path: Path) -> None:
    journal = DiskJournal(settings(tmp_path / "new" / "folder"), process_name())
    records: list[Record] = [START, *(End(float(n), "é" * n) for n in range(1000))]
    assert [journal.put(framed(one)) for one in records] == [""] * len(records)
    journal.close(60.0)
    (path,) = (tmp_path / "new" / "folder").iterdir()
    reader = Reader(path)
    assert list(reader) == records
    assert reader.torn == ""
    assert journal.counted == Counted(len(records), path.stat().st_size - 3, 0, 0, 0, True)


@pytest.fixture
def lenient_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> set[str]:
    return {oct(path.stat().st_mode & 0o777) for path in folder.rglob("*") if path.is_file()}


def test_only_the_owner_and_its_group_may_read_what_names_every_tenant(
    tmp_path: Path, lenient_umask: None
) -> None:
    """Every file that grows, and the reports: journals, their later segments, imports, traces."""
    folder = tmp_path / "new" / "folder"
    journal = DiskJournal(settings(folder), process_name())
    journal.put(framed(START))
    journal.begin_segment(2, lambda: [framed(START)])
    until(lambda: len(list(folder.iterdir())) > 1)
    journal.close(60.0)
    with JournalFile(tmp_path / "imported", "p"):
        pass
    opened(tmp_path / "traces.jsonl").close()
    write_whole(tmp_path / "report.json", b"{}", opener=private)
    assert len(list(tmp_path.rglob("*"))) >= 6
    assert modes(tmp_path) == {"0o640"}
    assert {oct(one.stat().st_mode & 0o777) for one in (folder, tmp_path / "imported")} == {"0o750"}


def test_empty_streams_before_a_large_one_do_not_have_it_unpacked_at_once(tmp_path: Path) -> None:
    """A file of some kB that somebody else made."""
    begin, empty, large = (zstandard.compress(one) for one in (framed(START), b"", bytes(2**28)))
    path = tmp_path / name_of("p", 1)
    path.write_bytes(begin + empty * 8_000 + large)
    reader = Reader(path)
    tracemalloc.start()
    try:
        assert list(reader) == [START]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reader.torn
    assert most < 2**27


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    """As after a kill: nobody has ended the file."""
    journal = DiskJournal(settings(tmp_path), "p")
    try:
        journal.put(framed(START))
        until(lambda: journal.counted[0] == 1, "a record is on the disk")
        assert list(Reader(tmp_path / name_of("p", 1))) == [START]
    finally:
        journal.close(60.0)


def test_a_disk_that_refuses_makes_a_gap_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    journal = full(DiskJournal(settings(tmp_path), "p"))
    journal.put(framed(START))
    until(lambda: journal.lost, "the disk is full")
    assert "No space left on device" in journal.lost
    assert journal.put(framed(START)) == journal.lost
    assert journal.counted == Counted(0, 0, 1, 1, 0, False)
    journal.close(60.0)


def test_a_disk_that_is_too_slow_makes_a_gap_and_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_MAX_WAITING", 1000)
    monkeypatch.setattr(DiskJournal, "_taken", lambda self: [])
    journal = DiskJournal(settings(tmp_path), "p")
    said = [journal.put(b"x" * 300) for _ in range(5)]
    assert said[:3] == ["", "", ""]
    assert all("the disk is too slow" in one for one in said[3:])
    assert journal.counted == Counted(0, 0, 0, 1, 0, False)
    journal.close(60.0)


def test_old_files_go_and_too_much_of_them_and_others_stay(tmp_path: Path) -> None:
    now_s = time.time()
    for process, n_bytes, age_s in (("old", 10, 7200), ("large", 900, 600), ("late", 300, 60)):
        path = tmp_path / name_of(process, 1)
        path.write_bytes(b"x" * n_bytes)
        os.utime(path, (now_s - age_s, now_s - age_s))
    (tmp_path / "notes.txt").write_bytes(b"x" * 10_000)
    journal = DiskJournal(settings(tmp_path, max_bytes=1000), "own")
    until(lambda: not (tmp_path / name_of("large", 1)).exists(), "the largest is gone")
    journal.close(60.0)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        name_of("late", 1),
        "notes.txt",
        name_of("own", 1),
    ]


def test_a_file_that_cannot_be_deleted_makes_no_gap_and_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of a segment's name, say; each look once ended the segment, for minutes."""
    monkeypatch.setattr(writing, "_LOOK_S", 0.0)
    for process, age_s in (("stuck", 9000), ("old", 7200)):
        path = tmp_path / name_of(process, 1)
        path.mkdir() if process == "stuck" else path.touch()
        os.utime(path, (time.time() - age_s, time.time() - age_s))
    with structlog.testing.capture_logs() as logs:
        journal = DiskJournal(settings(tmp_path), "own")
        until(lambda: not (tmp_path / name_of("old", 1)).exists(), "what can be deleted is")
        for _ in range(3):
            journal.put(framed(START))
            until(lambda: journal.lost or not journal._waiting, "it is written")
        journal.close(60.0)
    assert journal.counted[0] == 3
    told = [one["err"] for one in logs if one["log_level"] == "warning"]
    assert told == [f"{name_of('stuck', 1)}: Is a directory"]


def test_a_process_whose_own_file_is_too_large_has_a_gap_in_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_LOOK_S", 0.0)
    journal = DiskJournal(settings(tmp_path, max_bytes=100), "own")
    journal.put(os.urandom(500))
    until(lambda: journal.lost, "it is too large")
    assert journal.lost.startswith("it has reached maxSizeMB")
    journal.close(60.0)


def test_a_directory_that_cannot_be_written_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file: record\.directory: cannot be written to"):
        DiskJournal(settings(tmp_path / "file"), "p")


def long_now(journal: DiskJournal) -> None:
    """Waits until a segment is to be begun; an hour is over."""
    journal._began_s -= 3600.0
    until(lambda: journal.wants_segment, "a segment is wanted")


def test_the_next_segment_begins_with_the_state_and_goes_on_with_what_is_put(tmp_path: Path) -> None:
    """Records that come while it is begun are in both: the replay stops the first where the second begins."""
    journal = DiskJournal(settings(tmp_path), "p")
    began: list[Record] = [msgspec.structs.replace(START, n_before=1), State(os.urandom(100_000))]
    journal.put(framed(START))
    journal.put(framed(End(1.0, "before")))
    until(lambda: journal.counted[0] == 2, "the first are written")
    long_now(journal)
    journal.begin_segment(2, lambda: [framed(one) for one in began])
    journal.put(framed(End(2.0, "meanwhile")))
    until(lambda: (tmp_path / name_of("p", 2)).exists(), "the second has begun")
    assert not journal.wants_segment
    journal.put(framed(End(3.0, "after")))
    journal.close(60.0)
    first, second = (Reader(tmp_path / name_of("p", n)) for n in (1, 2))
    assert list(first) == [START, End(1.0, "before"), End(2.0, "meanwhile")]
    assert list(second) == [*began, End(2.0, "meanwhile"), End(3.0, "after")]
    assert first.torn == second.torn == ""
    assert journal.counted[0] == 4
    assert {one.name for one in tmp_path.iterdir()} == {name_of("p", 1), name_of("p", 2)}


def test_a_state_that_cannot_be_written_leaves_the_old_segment(tmp_path: Path) -> None:
    def write() -> list[bytes]:
        raise NotWritable("an array of objects")

    journal = DiskJournal(settings(tmp_path), "p")
    journal.put(framed(START))
    until(lambda: journal.counted[0] == 1, "it is written")
    long_now(journal)
    with structlog.testing.capture_logs() as logs:
        journal.begin_segment(2, write)
        journal.put(framed(End(2.0, "meanwhile")))
        until(lambda: logs, "it is reported")
    assert logs[0]["err"] == "NotWritable: an array of objects"
    time.sleep(0.5)
    assert not journal.wants_segment, "not again at once"
    journal.close(60.0)
    assert list(Reader(tmp_path / name_of("p", 1))) == [START, End(2.0, "meanwhile")]
    assert {one.name for one in tmp_path.iterdir()} == {name_of("p", 1)}


def test_a_copy_is_waited_for_where_ends_of_children_were_ignored(tmp_path: Path) -> None:
    """As whoever started the process may have left it: the journal ended with its first segment."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        journal = DiskJournal(settings(tmp_path), "p")
        journal.put(framed(START))
        until(lambda: journal.counted[0] == 1, "it is written")
        long_now(journal)
        journal.begin_segment(2, lambda: [framed(START), framed(State(b"state"))])
        until((tmp_path / name_of("p", 2)).exists, "the second has begun")
        journal.close(60.0)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert list(Reader(tmp_path / name_of("p", 2))) == [START, State(b"state")]


def test_a_copy_whose_end_somebody_else_was_told_leaves_the_old_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap without an end, while records were kept for a segment that never came."""

    def gone(pid: int, options: int) -> tuple[int, int]:
        raise ChildProcessError(10, os.strerror(10))

    journal = DiskJournal(settings(tmp_path), "p")
    journal.put(framed(START))
    until(lambda: journal.counted[0] == 1, "it is written")
    long_now(journal)
    monkeypatch.setattr(os, "waitpid", gone)
    with structlog.testing.capture_logs() as logs:
        journal.begin_segment(2, lambda: [framed(START)])
        until(lambda: logs, "it is reported")
    monkeypatch.undo()
    assert logs[0]["err"] == "its copy ended with status -1"
    journal.put(framed(End(2.0, "after")))
    journal.close(60.0)
    assert list(Reader(tmp_path / name_of("p", 1))) == [START, End(2.0, "after")]
    assert journal.counted.goes_on


def test_an_end_in_the_middle_of_a_beginning_leaves_nothing_half(tmp_path: Path) -> None:
    def write() -> list[bytes]:
        time.sleep(600.0)
        return []

    journal = DiskJournal(settings(tmp_path), "p")
    journal.put(framed(START))
    journal.begin_segment(2, write)
    journal.put(framed(End(2.0, "meanwhile")))
    journal.close(60.0)
    assert list(Reader(tmp_path / name_of("p", 1))) == [START, End(2.0, "meanwhile")]
    assert {one.name for one in tmp_path.iterdir()} == {name_of("p", 1)}

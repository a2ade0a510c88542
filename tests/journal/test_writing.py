"""The thread that writes a journal: what is on the disk, and what becomes of a disk that will not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gangsched.config.recording import RecordSettings
from gangsched.errors import ConfigError
from gangsched.journal import writing
from gangsched.journal.records import End, Record, Start, framed
from gangsched.journal.segments import Reader, name_of
from gangsched.journal.writing import DiskJournal, process_name
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
    assert journal.counted == (len(records), path.stat().st_size - 3, 0, True)


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    """As after a kill: nobody has ended the file."""
    journal = DiskJournal(settings(tmp_path), "p")
    try:
        journal.put(framed(START))
        until(lambda: journal.counted[0] == 1, "a record is on the disk")
        assert list(Reader(tmp_path / name_of("p", 1))) == [START]
    finally:
        journal.close(60.0)


def test_a_disk_that_refuses_ends_the_journal_and_what_is_lost_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/full is a full disk."""
    monkeypatch.setattr(writing, "name_of", lambda process, number: "full")
    (tmp_path / "full").symlink_to("/dev/full")
    monkeypatch.setattr("builtins.open", _not_exclusive(open))
    journal = DiskJournal(settings(tmp_path), "p")
    journal.put(framed(START))
    until(lambda: journal.lost, "the disk is full")
    assert "No space left on device" in journal.lost
    assert journal.put(framed(START)) == journal.lost
    assert journal.counted[2:] == (1, False)
    journal.close(60.0)


def _not_exclusive(real: object) -> object:
    def opened(path: object, mode: str = "r", **more: object) -> object:
        return real(path, mode.replace("x", "w"), **more)  # type: ignore[operator]

    return opened


def test_a_disk_that_is_too_slow_ends_it_and_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_MAX_WAITING", 1000)
    monkeypatch.setattr(DiskJournal, "_write", lambda self: None)
    journal = DiskJournal(settings(tmp_path), "p")
    said = [journal.put(b"x" * 300) for _ in range(5)]
    assert said[:3] == ["", "", ""]
    assert all("the disk is too slow" in one for one in said[3:])
    assert journal.counted == (0, 0, 2, False)
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


def test_a_process_whose_own_file_is_too_large_ends_its_journal(
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

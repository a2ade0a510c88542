"""A file that a command leaves is there as a whole, or as it was before."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gangsched.whole_file import check_writable, write_whole

LIMIT_BYTES = 1000
"""Files grow to this: what a full disk does to a write, without filling one."""


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))


@pytest.mark.parametrize("was_there", [True, False])
def test_a_configuration_is_written_whole_or_not_at_all(tmp_path: Path, was_there: bool) -> None:
    file = tmp_path / "effective.yaml"
    if was_there:
        file.write_text("as it was")
    command = [sys.executable, "-m", "gangsched", "scheduler", f"--write-config-to={file}"]
    ended = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, check=False)
    assert ended.returncode == 2
    assert ended.stderr == f"gangsched: {file}: cannot be written: File too large\n"
    assert [each.read_text() for each in tmp_path.iterdir()] == (["as it was"] if was_there else [])


def test_the_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("before")
    file.chmod(0o600)
    link.symlink_to("file")
    (tmp_path / "file.part").write_text("of a process that was killed")
    write_whole(link, b"after")
    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o600)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "link"]


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"a report")
    assert os.read(reader, 100) == b"a report"
    assert pipe.is_fifo()
    os.close(reader)


def test_what_stdout_leads_to_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("w") as file:
        write_whole(Path(f"/proc/self/fd/{file.fileno()}"), b"a report")
        assert os.path.samestat(os.fstat(file.fileno()), out.stat())
    assert out.read_text() == "a report"


def busy(*_: object) -> None:
    raise OSError(16, "Device or resource busy")


def test_a_file_that_is_a_mount_is_written_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    monkeypatch.setattr(os, "replace", busy)
    write_whole(file, b"after")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["after"]


@pytest.mark.parametrize("use", [check_writable, lambda path: write_whole(path, b"")])
def test_what_cannot_be_a_file_is_an_error(tmp_path: Path, use: Callable[[Path], None]) -> None:
    for path in (tmp_path, tmp_path / "none" / "file"):
        with pytest.raises(OSError, match=r"Is a directory|No such file"):
            use(path)
    assert list(tmp_path.iterdir()) == []


def test_the_check_leaves_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").write_text("kept")
    check_writable(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "kept"

"""Files and directories of devices as they come, change, break and go."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gangsched.agent.report.reports import Report
from gangsched.agent.sources.device_file import MAX_FILE_BYTES
from gangsched.agent.sources.files import MAX_FILES, FileSource

GPU = "nvidia.com/gpu"


def write(path: Path, *ids: str, health: str = "Healthy") -> None:
    path.write_text(json.dumps({GPU: [{"id": one, "health": health} for one in ids]}))


def listed(report: Report) -> dict[str, str]:
    return {device.id: device.health for place in report.places for device in place.listed[GPU]}


def test_a_file_is_reread_each_time(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write(path, "a")
    source = FileSource(str(path))
    assert listed(source.read()) == {"a": "Healthy"}
    before = path.stat()
    write(path, "b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert listed(source.read()) == {"b": "Healthy"}, "also one of the same size and time"


def test_an_unparsable_file_is_reported_and_its_last_devices_stay(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write(path, "a")
    source = FileSource(str(path))
    source.read()
    path.write_text('{"nvidia.com/gpu": [{"id": 5}]}')
    for _ in range(2):
        found = source.read()
        assert listed(found) == {"a": "Healthy"}
        assert found.whole
        [problem] = found.problems
        assert problem.startswith(f'{path}: nvidia.com/gpu[0].id: 5 is not text; write "5", in quotes')
        assert problem.endswith("what it listed before stays")
    write(path, "b")
    found = source.read()
    assert (listed(found), found.problems) == ({"b": "Healthy"}, ())


def test_what_never_parsed_leaves_open_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    path.write_bytes(b"\xff\xfe")
    found = FileSource(str(path)).read()
    assert not found.whole
    assert "is not text" in found.problems[0]


def test_a_file_that_never_was_there_is_a_problem_and_takes_nothing_away(tmp_path: Path) -> None:
    found = FileSource(str(tmp_path / "no.json")).read()
    assert found.places == ()
    assert "no.json: no such file or directory, and there has been none since the start" in found.problems[0]
    assert not found.whole
    assert found.looked.endswith("no.json: no such file or directory")


def test_a_file_that_is_taken_away_takes_its_devices_with_it(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write(path, "a")
    source = FileSource(str(path))
    source.read()
    path.unlink()
    assert listed(source.read()) == {}


def test_a_broken_file_that_is_taken_away_is_not_complained_of_any_more(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    write(path, "a")
    source = FileSource(str(path))
    source.read()
    path.write_text("{")
    assert source.read().problems
    path.unlink()
    found = source.read()
    assert (listed(found), found.problems) == ({}, ())


def test_a_directory_is_its_json_files_in_order(tmp_path: Path) -> None:
    write(tmp_path / "2.json", "c")
    write(tmp_path / "1.json", "a", "b")
    write(tmp_path / ".hidden.json", "x")
    write(tmp_path / "notes.txt", "y")
    (tmp_path / "dir.json").mkdir()
    source = FileSource(str(tmp_path))
    found = source.read()
    assert list(listed(found)) == ["a", "b", "c"]
    assert [Path(place.name).name for place in found.places] == ["1.json", "2.json"]
    (tmp_path / "1.json").write_text("{")
    write(tmp_path / "3.json", "d")
    found = source.read()
    assert list(listed(found)) == ["a", "b", "c", "d"], "a broken one keeps what it had, others go on"
    assert len(found.problems) == 1


def test_a_configmap_as_kubelet_mounts_it_is_read_through_its_links(tmp_path: Path) -> None:
    """Files are links into a directory that a link names; an update moves that one link."""
    for generation, name in (("..1", "a"), ("..2", "b")):
        (tmp_path / generation).mkdir()
        write(tmp_path / generation / "gpus.json", name)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "gpus.json").symlink_to("..data/gpus.json")
    source = FileSource(str(tmp_path))
    assert listed(source.read()) == {"a": "Healthy"}
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert listed(source.read()) == {"b": "Healthy"}


def test_files_beyond_the_limit_are_reported(tmp_path: Path) -> None:
    for i in range(MAX_FILES + 2):
        write(tmp_path / f"{i:04}.json", f"d{i}")
    found = FileSource(str(tmp_path)).read()
    assert len(listed(found)) == MAX_FILES
    assert not found.whole
    assert f"2 files more than the {MAX_FILES} that are read" in found.problems[0]


def test_a_file_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    assert "too many for a list of devices" in FileSource(str(path)).read().problems[0]


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gpus.json"
    write(path, "a")
    source = FileSource(str(path))
    source.read()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root, as whom tests may run, may read everything
    found = source.read()
    assert listed(found) == {"a": "Healthy"}
    assert found.problems == (f"{path}: cannot be read: Permission denied; what it listed before stays",)
    assert not FileSource(str(path)).read().whole
    monkeypatch.undo()
    assert source.read().problems == ()

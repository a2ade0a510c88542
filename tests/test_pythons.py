"""Which Pythons are promised, and where the others are found."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from tests import pythons


def test_what_is_promised_is_what_is_tried() -> None:
    project = tomllib.loads((pythons.ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: 3."
    stated = [one.rpartition(" ")[2] for one in project["classifiers"] if one.startswith(prefix)]
    assert tuple(stated) == pythons.PROMISED
    assert project["requires-python"] == f">={pythons.PROMISED[0]}"


def pretend(folder: Path, *versions: str) -> Path:
    for version in versions:
        python = folder / version / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\necho {version.rpartition('.')[0]}\n")
        python.chmod(0o755)
    return folder


def test_the_newest_of_pyenv_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    pyenv = pretend(tmp_path, "3.12.9", "3.12.10", "3.13.0")
    assert pythons.find_python("3.12", pyenv) == str(pyenv / "3.12.10" / "bin" / "python")
    assert pythons.find_python("3.14", pyenv) is None


def test_a_stand_in_that_does_not_start_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "python3.12"
    stand_in.write_text("#!/bin/sh\necho 'not installed' >&2\nexit 127\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pythons.find_python("3.12", tmp_path / "none") is None


@pytest.mark.parametrize(("is_required", "code"), [(False, 0), (True, 1)])
def test_one_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_required: bool, code: int
) -> None:
    monkeypatch.setenv(REQUIRE_VARIABLE, "1" if is_required else "")
    assert pythons.main(["3.99"]) == code
    assert "skipped: there is no Python 3.99 on the PATH" in capsys.readouterr().err

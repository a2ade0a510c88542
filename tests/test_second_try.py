"""Who gets a second try, and that a run in which many needed it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.second_try import AT_MOST

CONFTEST = """
from tests.conftest import pytest_collection_modifyitems, pytest_sessionfinish, pytest_terminal_summary
"""
RACES = """
import subprocess
from pathlib import Path

import pytest


@pytest.mark.parametrize("i", range({n}))
def test_loses_a_race(i, request):
    seen = Path(__file__).with_name(f"seen-{{i}}")
    was_there = seen.exists()
    seen.write_text("")
    assert was_there, "the server was late"
"""
WRONG = """

def test_is_wrong():
    assert 1 == 2
"""
IN_VIRTUAL_TIME = """
def test_decides_the_same_each_time():
    assert 1 == 2
"""


def run(folder: Path, text: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "1",
        "--rootdir",
        str(folder),
    ]
    ended = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=100)
    return ended.returncode, ended.stdout


def test_a_race_is_tried_again_and_named_and_what_is_wrong_fails(tmp_path: Path) -> None:
    code, printed = run(tmp_path, RACES.format(n=1) + WRONG)
    assert code == 1, printed
    assert "test_loses_a_race[0]: AssertionError: the server was late" in printed
    assert "test_is_wrong: assert 1 == 2" in printed
    assert "2 failed at the first try" in printed
    assert "1 failed, 1 passed, 2 rerun" in printed


def test_many_races_fail_the_run(tmp_path: Path) -> None:
    code, printed = run(tmp_path, RACES.format(n=AT_MOST + 1))
    assert code == 1, printed
    assert f"{AT_MOST + 1} passed" in printed


def test_what_decides_the_same_each_time_has_one_try(tmp_path: Path) -> None:
    code, printed = run(tmp_path, IN_VIRTUAL_TIME)
    assert code == 1, printed
    assert "rerun" not in printed

"""`make check` is quick as it leaves tests out; `make test` and CI leave out none."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
_NARROWED = re.compile(r"-[mk].*|--(?:deselect|ignore|ignore-glob|lf|last-failed|sw|stepwise)\b.*|tests\b.*")
_PYTEST = "pytest"


def left_out(command: str) -> list[str]:
    """The words of a command that keep pytest, which it runs, from running every test."""
    words = shlex.split(command)
    return [word for word in words[words.index(_PYTEST) + 1 :] if _NARROWED.fullmatch(word)]


def command(target: str) -> str:
    """How a target of the Makefile runs pytest, with the values that variables have there."""
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    values = dict(re.findall(r"^(\w+) [?:]= ?(.*)$", makefile, re.MULTILINE))
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert found is not None
    [ran] = re.findall(r"[^;&|\n]* -m pytest\b[^;&|\n]*", found[1].replace("\\\n", " "))
    return re.sub(r"\$\((\w+)\)", lambda name: values[name[1]], ran)


def test_make_test_leaves_nothing_out() -> None:
    assert left_out(command("check"))[:2] == ["-m", "tests/house"], "what follows would find nothing"
    assert left_out(command("test")) == []


def test_ci_runs_make_test_as_it_is() -> None:
    text = (REPO / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test" in text.splitlines()
    assert "PYTEST" not in text
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    own = project["tool"]["pytest"]["ini_options"]
    assert left_out(f"{_PYTEST} {own['addopts']}") == []
    assert own["testpaths"] == ["tests"]


@pytest.mark.parametrize(
    "word", ["-m", "-k", "-kname", "--deselect=tests/x.py", "--ignore=tests/x", "--lf", "tests/core"]
)
def test_what_narrows_a_run_is_found(word: str) -> None:
    assert left_out(f"python -m pytest -n 3 --dist loadfile --no-loadscope-reorder {word}") == [word]

"""make says in one line what it lacks, before it makes anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    shutil.which("make") is None or not (REPO / "Makefile").exists(),
    reason="needs make (apt-get install make) and the source tree",
)


@pytest.mark.parametrize("target", ["demo", "venv"])
def test_an_old_python_gets_one_clear_line(target: str, tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements.runtime.lock"):
        shutil.copy(REPO / name, tmp_path)
    old = tmp_path / "python3.8"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.10" && exit 0\nexit 1\n')
    old.chmod(0o755)
    # The tests may run below a make themselves, and are told so; this one stands alone.
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", target, f"PYTHON={old}"],
        cwd=tmp_path,
        env=alone,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    said = done.stderr.splitlines()
    assert said[0] == (
        f"make: gangsched needs Python 3.11 or newer, '{old}' is Python 3.8.10; "
        "name another with: make PYTHON=python3.12"
    )
    assert all(line.startswith("make") for line in said[1:]), "and make's own word that it failed"
    assert not (tmp_path / ".venv").exists()


def test_what_the_demo_installs_is_a_part_of_what_the_tests_install() -> None:
    """One resolution: the demo shows what was tested."""
    locks = (
        (REPO / name).read_text().splitlines() for name in ("requirements.runtime.lock", "requirements.lock")
    )
    runtime, everything = ({line for line in lock if "==" in line.split(" ")[0]} for lock in locks)
    assert runtime
    assert runtime <= everything
    assert any(line.startswith("setuptools==") for line in everything), "make takes it from there"

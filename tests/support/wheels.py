"""Both wheels of this repository, built offline from a copy of the source tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).parents[2]
LAB = Path("gangsched/lab")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_TREE = ("gangsched", "config/samples", "pyproject.toml", "README.md", "LICENSE")


def built(folder: Path, projects: Sequence[Path] = (Path(), LAB)) -> list[Path]:
    """The wheels of these projects, in the same order; the copy they were built from is gone again."""
    source = folder / "source"
    for name in _TREE:
        if (REPO / name).is_dir():
            shutil.copytree(REPO / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(REPO / name, source / name)
    wheels: list[Path] = []
    for n, project in enumerate(projects):
        into = folder / f"wheel-{n}"
        command = (*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={into}")
        subprocess.run((*command, str(source / project)), check=True, capture_output=True, timeout=110)
        wheels += into.glob("*.whl")
    shutil.rmtree(source)
    return wheels


def put_in(wheels: Sequence[Path], *where: str) -> None:
    """Installs these wheels and nothing else; `where`: pip's flags for the place."""
    # Without --ignore-installed pip would first take away the gangsched that the tests themselves run with.
    options = ("--ignore-installed", "--no-deps", "--no-index", "--no-compile", *where)
    command = (*PIP, "install", *options, *map(str, wheels))
    subprocess.run(command, check=True, capture_output=True, timeout=110)

"""Which lines the tests run: `python -m tests.covered`, on a Python that counts lines at little cost.

Lives here: what is run, and the table. Python has `sys.monitoring` from 3.12 on. Without it a trace function
counts lines: it takes several times as long, and tests that count lines themselves switch it off. Called by
`make coverage`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.pythons import HOW, PROMISED, PYENV, ROOT, environment, find_python

OUT = ROOT / "build" / "coverage"
WITH_MONITORING = tuple(one for one in PROMISED if int(one.partition(".")[2]) >= 12)
STORMS = ("-m", "gangsched.lab.sim", "--storm", "all", "--seeds", "0..1")
# Rooms of the table: gangsched/core, not gangsched/core/cache.
_DEPTH = 2


def interpreter() -> tuple[str, str] | None:
    """Returns (version, path) of the Python to count on, of the version that runs this if that can."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in sorted(WITH_MONITORING, key=lambda one: one != here):
        found = find_python(version)
        if found is not None:
            return version, found
    return None


def counted(python: Path, arguments: Sequence[str], jobs: str, *, storms: bool) -> bool:
    """Runs tests, and storms, and counts lines. Returns whether all passed."""
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("data*"):
        old.unlink()
    tests = _coverage(python, "run", "-m", "pytest", "-q", "-n", jobs, "-m", "not real", *arguments)
    if not storms:
        return tests.returncode == 0
    return _coverage(python, "run", *STORMS, "--jobs", jobs).returncode == tests.returncode == 0


def report(python: Path) -> dict[str, Any]:
    """Puts together what was counted, and writes the lines that no test ran, file by file."""
    _coverage(python, "combine", "--quiet", check=True)
    lines = _coverage(python, "report", "--show-missing", "--skip-covered", check=True, text=True, stdout=-1)
    (OUT / "missed.txt").write_text(lines.stdout, encoding="utf-8")
    _coverage(python, "json", "--quiet", "-o", str(OUT / "coverage.json"), check=True)
    found: dict[str, Any] = json.loads((OUT / "coverage.json").read_text(encoding="utf-8"))
    return found


def _coverage(python: Path, *words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "COVERAGE_CORE": "sysmon", "COVERAGE_FILE": str(OUT / "data")}
    return subprocess.run([str(python), "-m", "coverage", *words], cwd=ROOT, env=own, **how)


def table(files: Mapping[str, Any]) -> str:
    """The share of lines run, by room. files: of coverage's JSON report."""
    rooms: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, one in files.items():
        room = "/".join(name.split("/")[:_DEPTH]) if name.count("/") >= _DEPTH else name.partition("/")[0]
        for at in (room, "all"):
            rooms[at][0] += one["summary"]["num_statements"]
            rooms[at][1] += one["summary"]["missing_lines"]
    width = max(map(len, rooms))
    rows = [f"{'room':<{width}}  lines  missed  run"]
    for room in sorted(rooms, key=lambda one: (one == "all", one)):
        n, n_missed = rooms[room]
        rows.append(f"{room:<{width}}  {n:5}  {n_missed:6}  {1 - n_missed / max(1, n):4.0%}")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.covered", description=__doc__.partition("\n")[0])
    parser.add_argument("pytest", nargs="*", metavar="PYTEST_ARGUMENT", help="tests, by default all")
    parser.add_argument("--jobs", default="2", help="processes that run tests")
    given = parser.parse_args(arguments)
    found = interpreter()
    if found is None:
        wanted = " or ".join(WITH_MONITORING)
        print(f"coverage needs Python {wanted}; none is on the PATH or in {PYENV}: {HOW}", file=sys.stderr)
        return 2
    python = environment(*found)
    passed = counted(python, given.pytest, given.jobs, storms=not given.pytest)
    print(table(report(python)["files"]))
    print(f"lines that no test ran: {(OUT / 'missed.txt').relative_to(ROOT)}")
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())

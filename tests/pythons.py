"""Runs on every other Python that is promised what could differ there: `python -m tests.pythons`.

Lives here: which Pythons, where they are looked for, what is run on each. Not here: the Python that
everything runs on (`make test`). Called by `make pythons` and by CI. The environments are under build/, from
the same lock file.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gangsched.lab.controlplane.build import REQUIRE_VARIABLE

ROOT = Path(__file__).parents[1]
PROMISED = ("3.11", "3.12", "3.13")
"""As `requires-python` and the classifiers of pyproject.toml have it; a test compares them."""
PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
# Parsers, plugins and their face. Then the core by a seed of each storm, one of whole processes.
SUITES = ("tests/model", "tests/plugins", "tests/extension")
STORMS = ("-m", "gangsched.lab.sim", "--storm", "all", "--seeds", "0..0")
HOW = "install it, or `make pythons PYTHONS=...` with those that are there"


def find_python(version: str, pyenv: Path = PYENV) -> str | None:
    """Returns an interpreter of this version: on the PATH, else the newest of pyenv's. None if neither is."""
    candidates = [path] if (path := shutil.which(f"python{version}")) else []
    candidates += [
        str(one / "bin" / "python") for one in sorted(pyenv.glob(f"{version}.*"), key=_number)[::-1]
    ]
    return next((one for one in candidates if _version_of(one) == version), None)


def _number(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", folder.name))


def _version_of(python: str) -> str:
    """Returns its major and minor number; "" where it does not start, as a stand-in of pyenv's."""
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except OSError:
        return ""


def environment(version: str, python: str) -> Path:
    """Returns the interpreter of an environment with the locked packages, made once for each lock file."""
    folder = ROOT / "build" / f"python-{version}"
    stamp, lock = folder / "installed.lock", ROOT / "requirements.lock"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        print(
            f"== Python {version}: installing the locked requirements into {folder.relative_to(ROOT)}",
            flush=True,
        )
        run(python, "-m", "venv", "--clear", str(folder))
        pip = (
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        )
        run(*pip, "--require-hashes", "-r", str(lock))
        run(*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT))
        shutil.copyfile(lock, stamp)
    return folder / "bin" / "python"


def run(*command: str) -> None:
    """Raises: CalledProcessError."""
    subprocess.run(command, cwd=ROOT, check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pythons", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "versions", nargs="*", help="such as 3.12; by default all that are promised but this one"
    )
    parser.add_argument("--jobs", default="2", help="processes that run tests")
    given = parser.parse_args(arguments)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    missing = []
    for version in given.versions or [one for one in PROMISED if one != here]:
        found = find_python(version)
        if found is None:
            missing.append(version)
            continue
        python = str(environment(version, found))
        print(f"== Python {version}: {', '.join(SUITES)}", flush=True)
        run(
            python,
            "-W",
            "error",
            "-c",
            "import gangsched.process.app, gangsched.command.cli, gangsched.plugin",
        )
        run(python, "-m", "pytest", "-q", "-n", given.jobs, "-m", "not real", *SUITES)
        print(f"== Python {version}: storms", flush=True)
        run(python, *STORMS, "--jobs", given.jobs)
    for version in missing:
        print(f"skipped: there is no Python {version} on the PATH or in {PYENV}: {HOW}", file=sys.stderr)
    return int(bool(missing) and bool(os.environ.get(REQUIRE_VARIABLE)))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        print(f"failed: {' '.join(failed.cmd)}", file=sys.stderr)
        sys.exit(1)

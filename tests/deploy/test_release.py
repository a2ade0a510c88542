"""`make release`: the same commit gives the same bytes, and what comes of it is installed and runs."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.deploy.test_wheels import Machine
from tests.support.wheels import PIP, REPO

pytestmark = pytest.mark.timeout(300)  # a busy machine builds for longer than other tests run


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Built twice of the last commit, by users with other habits."""
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPO, capture_output=True).returncode != 0:
        pytest.skip("not a git checkout: what a release holds is not known (git clone it)")
    first, second = (tmp_path_factory.mktemp(name) / "dist" for name in ("first", "second"))
    for out, zone, umask in ((first, "UTC", 0o022), (second, "Asia/Tokyo", 0o077)):
        command = [sys.executable, "-m", "tests.deploy.release", f"--out={out}", "--no-image"]
        done = subprocess.run(
            command, cwd=REPO, env={**os.environ, "TZ": zone}, umask=umask, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return first, second


def version_of(release: Path) -> str:
    """The last commit's, which need not be that of the tree."""
    [chart] = release.glob("*.tgz")
    return chart.stem.removeprefix("gangsched-")


def test_two_builds_of_a_commit_are_the_same_bytes(releases: tuple[Path, Path]) -> None:
    first, second = ({path.name: path.read_bytes() for path in one.iterdir()} for one in releases)
    version = version_of(releases[0])
    assert sorted(first) == [
        "SHA256SUMS",
        f"gangsched-{version}-py3-none-any.whl",
        f"gangsched-{version}.cdx.json",
        f"gangsched-{version}.tar.gz",
        f"gangsched-{version}.tgz",
        f"gangsched_lab-{version}-py3-none-any.whl",
    ]
    assert [name for name in first if first[name] != second.get(name)] == []
    sums = dict(line.split("  ")[::-1] for line in first.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in first.items()}


def test_the_chart_and_the_sdist_are_laid_out_as_helm_and_pip_expect(releases: tuple[Path, Path]) -> None:
    version = version_of(releases[0])
    with tarfile.open(releases[0] / f"gangsched-{version}.tgz") as chart:
        names = set(chart.getnames())
        assert {
            "gangsched/Chart.yaml",
            "gangsched/values.yaml",
            "gangsched/templates/scheduler.yaml",
        } <= names
        assert all(name.startswith("gangsched/") for name in names)
    with tarfile.open(releases[0] / f"gangsched-{version}.tar.gz") as sdist:
        names = {name.removeprefix(f"gangsched-{version}/") for name in sdist.getnames()}
    assert {"PKG-INFO", "pyproject.toml", "gangsched/command/cli.py", "gangsched/lab/pyproject.toml"} <= names


def test_the_wheels_are_installed_and_run(releases: tuple[Path, Path], tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    wheels = sorted(map(str, releases[0].glob("*.whl")))
    options = ("--ignore-installed", "--no-deps", "--no-index", "--no-compile")
    command = [*PIP, f"--python={machine.python}", "install", *options, *wheels]
    subprocess.run(command, check=True, capture_output=True, timeout=110)

    def said(*arguments: str) -> str:
        done = subprocess.run(
            [str(machine.python.with_name("gangsched")), *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said("--version") == f"gangsched {version_of(releases[0])}\n"
    assert "GangScheduling" in said("check-config", str(REPO / "config" / "scheduler.yaml"))
    assert "usage: gangsched bench" in said("bench", "--help")

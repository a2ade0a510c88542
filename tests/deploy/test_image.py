"""The Dockerfile, as far as it can be looked at without a container engine: files, locks, user, result."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from gangsched import __version__
from tests.deploy.generate_chart import VERSIONED, with_version

REPO = Path(__file__).parents[2]
LAB = "gangsched/lab/"
_PIN = re.compile(r"^([a-z0-9][a-z0-9.-]*)==([^\s;]+)(?: ;[^\\]*)? \\$", re.MULTILINE)


class Instruction(NamedTuple):
    stage: int
    name: str
    rest: str


def instructions() -> list[Instruction]:
    """Comments and continuation lines taken out."""
    lines = [
        line for line in (REPO / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")
    ]
    joined = "\n".join(lines).replace("\\\n", " ")
    found, stage = [], -1
    for line in filter(None, (line.strip() for line in joined.splitlines())):
        name, _, rest = line.partition(" ")
        stage += name == "FROM"
        found.append(Instruction(stage, name, " ".join(rest.split())))
    return found


def copied() -> list[str]:
    """What is taken from the source tree, in order."""
    found = []
    for one in instructions():
        if one.name == "COPY" and "--from" not in one.rest:
            found += shlex.split(one.rest)[:-1]
    return found


def last(name: str) -> str:
    return [one.rest for one in instructions() if one.name == name][-1]


def pins(lock: str) -> set[tuple[str, str]]:
    return set(_PIN.findall((REPO / lock).read_text()))


def test_everything_that_is_copied_is_there_and_sent() -> None:
    sent = [line[1:] for line in (REPO / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for path in copied():
        assert (REPO / path).exists(), path
        assert path in sent, f".dockerignore keeps {path} back"


def test_requirements_are_copied_before_they_are_installed() -> None:
    here: set[str] = set()
    for one in instructions():
        if one.name == "COPY" and "--from" not in one.rest:
            here |= set(shlex.split(one.rest)[:-1])
        for path in re.findall(r"-r (\S+)", one.rest) if one.name == "RUN" else ():
            assert path in here
            assert "--require-hashes" in one.rest


def test_it_runs_as_the_unprivileged_user_of_the_deployment() -> None:
    deployment: dict[str, Any] = yaml.safe_load((REPO / "deploy/deployment.yaml").read_text())
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert last("USER") == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert context["runAsUser"] >= 10_000


@pytest.mark.parametrize("path", VERSIONED)
def test_what_names_the_version_names_this_one(path: str) -> None:
    """`make chart` writes it, from gangsched/__init__.py, where it is changed."""
    text = (REPO / path).read_text()
    assert __version__ in text
    assert with_version(text) == text


def test_what_it_starts_is_a_command_of_the_package() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    assert last("ENTRYPOINT") == '["gangsched"]'
    assert "gangsched" in project["scripts"]
    final = max(one.stage for one in instructions())
    assert not [one for one in instructions() if one.stage == final and one.name == "RUN"]


def test_the_runtime_lock_is_a_part_of_the_lock_that_tests_run_with() -> None:
    runtime = pins("requirements.runtime.lock")
    assert runtime <= pins("requirements.lock")
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=\[ ;]", one)[0].lower() for one in project["dependencies"]}
    assert wanted <= {name for name, _ in runtime}
    assert "pytest" not in {name for name, _ in runtime}


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements.runtime.lock"])
def test_every_requirement_has_its_hashes_and_no_place_of_its_own(lock: str) -> None:
    blocks = re.split(r"\n(?=[a-z0-9])", (REPO / lock).read_text().strip())
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in (REPO / lock).read_text()


def test_the_package_builds_from_what_is_copied_and_is_whole(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for path in copied():
        if (REPO / path).is_dir():
            shutil.copytree(REPO / path, source / path, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(REPO / path, source / path)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "."]
    options = ["--disable-pip-version-check", "--quiet", f"--wheel-dir={tmp_path / 'wheels'}"]
    subprocess.run([*command, *options], cwd=source, check=True, timeout=100)
    [wheel] = (tmp_path / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("gangsched/")}
    listed = subprocess.run(
        ["git", "ls-files", "gangsched"], cwd=REPO, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: what belongs to the package is not known")
    # Pictures are for readers of the source, and so are the protocols that code was made from.
    wanted = {path for path in listed.stdout.split() if not path.endswith((".svg", ".proto"))}
    assert {path for path in wanted if not path.startswith(LAB)} <= inside
    assert [path for path in inside if path.startswith(LAB)] == []


def test_the_laboratory_is_not_even_sent() -> None:
    assert LAB.removesuffix("/") in (REPO / ".dockerignore").read_text().splitlines()

"""The demo's files are found and read, and what is wrong with one is reported in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangsched.errors import ConfigError
from gangsched.lab.demo import samples
from gangsched.lab.demo.samples import find_samples, read
from gangsched.lab.demo.story import STORY, Apply
from tests.support.wheels import built, put_in

_KINDS = "Pod, Job, Node, DeviceClass, ResourceSlice or ResourceClaimTemplate"


def test_every_file_of_the_story_is_there() -> None:
    folder = find_samples()
    for step in STORY:
        for action in step.does:
            if isinstance(action, Apply):
                assert read(folder, action.file, action.only)


def test_objects_can_be_picked_out_of_a_file() -> None:
    assert [d.name for d in read(find_samples(), "start-together.yaml")] == ["learners", "actors"]
    [actors] = read(find_samples(), "start-together.yaml", ("actors",))
    assert (actors.name, actors.collection) == ("actors", "/apis/batch/v1/namespaces/default/jobs")


def test_without_a_source_tree_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "HERE", Path("nowhere"))
    with pytest.raises(ConfigError, match="run it in a clone, or give --samples FOLDER"):
        find_samples()


@pytest.fixture(scope="module", params=["--prefix", "--target"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both wheels, as pip installs them, away from the source tree."""
    folder = tmp_path_factory.mktemp("installed")
    target = folder / "site"
    put_in(built(folder), f"{request.param}={target}")
    return next(target.glob("lib/*/site-packages"), target)


def test_an_installed_wheel_brings_every_file_of_the_story(installed: Path, tmp_path: Path) -> None:
    code = """
from gangsched.lab.demo.samples import find_samples, read
from gangsched.lab.demo.story import STORY, Apply
folder = find_samples()
for step in STORY:
    for action in step.does:
        if isinstance(action, Apply):
            assert read(folder, action.file, action.only)
print(folder)
"""
    env = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parts[-3:] == ("share", "gangsched", "samples")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not YAML: "),
        ("", "has no object named at all"),
        ("- a\n", f"has a document that is no {_KINDS} with a name"),
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
            f"has a document that is no {_KINDS} with a name",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", f"has a document that is no {_KINDS} with a name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: other}\n", "has no object named wanted"),
    ],
)
def test_a_file_that_cannot_be_used(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, "f.yaml", ("wanted",) if "other" in text else ())
    assert str(refused.value).startswith(f"{tmp_path}/f.yaml: {says}")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml: cannot be read: No such file or directory"):
        read(tmp_path, "f.yaml")

"""What a user reads when the control plane cannot be built, and that nothing half built stays."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from gangsched.errors import ConfigError
from gangsched.lab.controlplane import assets, build

Usage = namedtuple("Usage", "total used free")


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no binaries of the user's own."""
    monkeypatch.delenv(assets.ASSETS_VARIABLE, raising=False)
    monkeypatch.delenv(build.REQUIRE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return assets.cache_folder()


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A go command first on the PATH that writes what `-o` names; a test may overwrite it."""
    fake = script(
        tmp_path / "bin" / "go",
        'if [ "$1" = env ]; then echo go1.26.8; exit; fi\n'
        'while [ "$1" != -o ]; do shift; done; echo built > "$2"; chmod +x "$2"',
    )
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    return fake


def no_go() -> Path:
    raise build.CannotBuild("no Go toolchain: install Go")


def test_builds_everything_once(cache: Path, go: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main([]) == 0
    assert sorted(path.name for path in cache.iterdir()) == sorted([".lock", *assets.ALL])
    assert assets.find().folder == cache
    assert assets.find(module=assets.JAEGER).path("jaeger").is_file()
    go.unlink()
    assert build.main([]) == 0
    assert "all there" in capsys.readouterr().out


def test_users_folder_is_used_and_nothing_built(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in assets.REQUIRED:
        script(tmp_path / "mine" / name, "exit 0")
    monkeypatch.setenv(assets.ASSETS_VARIABLE, str(tmp_path / "mine"))
    assert build.main([]) == 0
    assert not cache.exists()


def test_users_incomplete_folder_is_reported_in_one_line(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script(tmp_path / "mine" / "etcd", "exit 0")
    monkeypatch.setenv(assets.ASSETS_VARIABLE, str(tmp_path / "mine"))
    assert build.main(["--optional"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no kube-apiserver, kubectl in" in said
    assert "unset KUBEBUILDER_ASSETS" in said


@pytest.mark.parametrize(
    ("arguments", "required", "code"), [([], "", 1), (["--optional"], "", 0), (["--optional"], "1", 1)]
)
def test_no_go(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    required: str,
    code: int,
) -> None:
    monkeypatch.setattr(build, "find_go", no_go)
    monkeypatch.setenv(build.REQUIRE_VARIABLE, required)
    assert build.main(arguments) == code
    printed = capsys.readouterr()
    assert "no Go toolchain" in printed.out + printed.err
    assert not list(cache.glob("*"))


def test_go_too_old_is_reported_in_its_own_words(
    cache: Path, go: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(go, "echo 'go: go.mod requires go >= 1.26.0 (running go 1.20)' >&2; exit 1")
    assert build.main([]) == 1
    assert "go.mod requires go >= 1.26.0" in capsys.readouterr().err


def test_full_disk(
    cache: Path, go: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100 << 30, 97 << 30, 3 << 30))
    assert build.main([]) == 1
    assert "has 3.0 GiB free and the build needs about 10 GiB" in capsys.readouterr().err


def test_failed_build_shows_its_end_and_leaves_nothing(
    cache: Path, go: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(
        go,
        'if [ "$1" = env ]; then echo go1.26.8; exit; fi\n'
        'while [ "$1" != -o ]; do shift; done; echo half > "$2"; echo "x.go:1: undefined: y"; exit 1',
    )
    assert build.main(["--optional"]) == 1
    assert "undefined: y" in capsys.readouterr().err
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_terminated_builder_stops_go_and_leaves_nothing(cache: Path, go: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script(
        go,
        'if [ "$1" = env ]; then echo go1.26.8; exit; fi\n'
        f'while [ "$1" != -o ]; do shift; done; echo half > "$2"; echo $$ > {pid_file}; sleep 60',
    )
    builder = subprocess.Popen(
        [sys.executable, "-m", "gangsched.lab.controlplane.build"], stderr=subprocess.PIPE, text=True
    )
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert builder.poll() is None
    builder.terminate()
    _, said = builder.communicate(timeout=60)
    assert builder.returncode == 130
    assert "interrupted" in said
    assert [path.name for path in cache.iterdir()] == [".lock"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_second_builder_waits_and_finds_the_work_done(cache: Path, go: Path) -> None:
    command = [sys.executable, "-m", "gangsched.lab.controlplane.build"]
    with build.locked(cache):
        second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert "another builder is at work" in second.stdout.readline()
        for name in assets.ALL:
            script(cache / name, "exit 0")
        script(assets.cache_folder(module=assets.JAEGER) / "jaeger", "exit 0")
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    assert "all there now" in said


def test_no_module_to_build_from(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"go.mod is not there.*KUBEBUILDER_ASSETS"):
        assets.find({}, dataclasses.replace(assets.CONTROL_PLANE, directory=tmp_path))


def test_nothing_built_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(assets.MissingAssets, match=r"no etcd, .*`make controlplane`"):
        assets.find({"XDG_CACHE_HOME": str(tmp_path)})


def test_missing_kube_scheduler_is_reported_when_asked_for(tmp_path: Path) -> None:
    for name in assets.REQUIRED:
        script(tmp_path / name, "exit 0")
    found = assets.find({assets.ASSETS_VARIABLE: str(tmp_path)})
    with pytest.raises(assets.MissingAssets, match="no kube-scheduler in"):
        found.path("kube-scheduler")

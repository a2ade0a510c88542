"""`python -m gangsched`, from anywhere: as the console script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangsched.command.cli import main

ROOT = Path(__file__).parents[1]


def as_module(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gangsched", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environ
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [("--version",), ("check-config", "none.yaml"), ("nothing",)])
def test_the_module_is_the_command(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code: object = main(arguments)
    except SystemExit as end:  # argparse's own end
        code = end.code
    told = capsys.readouterr()
    done = as_module(tmp_path, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (code, told.out, told.err)


@pytest.mark.parametrize("value", ["-1", "many"])
def test_an_opentelemetry_limit_that_is_not_a_number_is_reported_in_one_line(
    tmp_path: Path, value: str
) -> None:
    done = as_module(tmp_path, "demo", "--help", OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=value)
    problem = f"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer but got {value}"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gangsched: {problem}\n")

"""Where a command's words go: closed, full, or of few characters; never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: größe}]
"""


def check(tmp_path: Path, how: str, **env: str) -> subprocess.CompletedProcess[str]:
    """check-config, started by a shell with `how` behind it."""
    file = tmp_path / "config.yaml"
    file.write_text(_CONFIG, encoding="utf-8")
    script = f'exec "{sys.executable}" -m gangsched.command.cli check-config -o text "{file}" {how}'
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, env=os.environ | env
    )


@pytest.mark.parametrize("how", [">&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_takes_nothing_and_breaks_nothing(tmp_path: Path, how: str) -> None:
    done = check(tmp_path, how)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_a_full_disk_is_reported_in_a_line(tmp_path: Path) -> None:
    done = check(tmp_path, ">/dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "gangsched: the output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("characters", "name"), [("ascii", r"gr\xf6\xdfe"), ("koi8-r", r"gr\xf6\xdfe"), ("latin-1", "grM-vM-_e")]
)
def test_a_terminal_of_few_characters_gets_what_it_has(tmp_path: Path, characters: str, name: str) -> None:
    done = check(tmp_path, "| cat -v", PYTHONIOENCODING=characters)
    assert done.stderr == ""
    assert name in done.stdout

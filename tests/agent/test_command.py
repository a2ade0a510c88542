"""`gangsched agent --config`: paths that are no configuration end it with one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gangsched import cli

# With half a gigabyte for it: what has no end is read until there is no memory left.
WITHIN_BOUNDS = """
import resource, sys
import gangsched.agent.command
from gangsched.cli import main
with open("/proc/self/statm") as statm:
    most = int(statm.read().split()[0]) * resource.getpagesize() + 2**29
resource.setrlimit(resource.RLIMIT_AS, (most, most))
sys.exit(main(sys.argv[1:]))
"""


def test_of_a_file_without_an_end_as_much_is_read_as_a_configuration_may_have() -> None:
    arguments = ["agent", "--node-name", "n", "--config", "/dev/zero"]
    command = [sys.executable, "-c", WITHIN_BOUNDS, *arguments]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr[-2000:]
    assert "more than 1000000 characters are no configuration" in done.stderr


def test_a_path_that_cannot_be_looked_at_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """Too long; a directory that is closed to the account gives another error of the same kind."""
    assert cli.main(["agent", "--node-name", "n", "--config", "x" * 5000]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("cannot be read: File name too long")

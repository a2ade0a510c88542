"""`gangsched agent --config`: paths that are no configuration end it with one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# With half a gigabyte for it: what has no end is read until there is no memory left.
WITHIN_BOUNDS = """
import resource, sys
import gangsched.agent.command
from gangsched.command.cli import main
with open("/proc/self/statm") as statm:
    most = int(statm.read().split()[0]) * resource.getpagesize() + 2**29
resource.setrlimit(resource.RLIMIT_AS, (most, most))
sys.exit(main(sys.argv[1:]))
"""


def said(path: str) -> str:
    """The one line with which it ends."""
    command = [sys.executable, "-c", WITHIN_BOUNDS, "agent", "--node-name", "n", "--config", path]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr[-2000:]
    return done.stderr.strip()


def test_of_a_file_without_an_end_as_much_is_read_as_a_configuration_may_have() -> None:
    assert "more than 1000000 characters are no configuration" in said("/dev/zero")


def test_a_path_that_cannot_be_looked_at_is_a_mistake() -> None:
    """Too long; a directory that is closed to the account gives another error of the same kind."""
    assert said("x" * 5000).endswith("cannot be read: File name too long")

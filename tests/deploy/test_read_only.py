"""A scheduler in a container with a read-only file system: it needs no place to write, and no home.

Held by an audit hook in the process itself, which refuses every write elsewhere: that works for any user.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangsched.lab.controlplane.daemon import Daemon, free_ports
from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.cluster import Cluster, checked
from tests.real.process import service_account, write_config

pytestmark = pytest.mark.real

HOOK = """
import errno, os, sys

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = tuple(f"os.{n}" for n in "mkdir rename remove rmdir link symlink truncate chmod".split())


def refuse(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)):
        path, flags = os.fsdecode(args[0]), args[2] or 0
        writes = bool(flags & WRITES)
    elif event in CHANGES and isinstance(args[0], (str, bytes)):
        path, writes = os.fsdecode(args[0]), True
    else:
        return
    if writes and not os.path.abspath(path).startswith(("/dev/null",)):
        os.write(2, f"WROTE {event} {path}\\n".encode())
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


sys.addaudithook(refuse)
"""


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    with checked(fresh_cluster, tmp_path) as made:
        yield made


def test_it_schedules_and_serves_without_writing_anywhere(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    account = service_account(cluster.plane, tmp_path / "account.yaml")
    config = write_config(tmp_path / "scheduler.yaml")
    [port] = free_ports(1)
    command = [sys.executable, "-m", "gangsched.command.cli", "scheduler", f"--config={config}"]
    command += [f"--kubeconfig={account}", f"--secure-port={port}", "--bind-address=127.0.0.1"]
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nowhere"}
    env["PYTHONPATH"] = f"{tmp_path / 'hook'}{os.pathsep}{Path(__file__).parents[2]}"
    log = tmp_path / "scheduler.log"
    running = Daemon("gangsched", command, log=log, env=env)
    try:
        cluster.nodes(1, gpus=8)
        cluster.gang("a", pods=2, gpus=4)
        cluster.whole("a")
        cluster.eventually(lambda: " serving " in log.read_text(), "it serves, with a certificate of its own")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0, log.read_text()
    finally:
        running.kill()
    assert "WROTE" not in log.read_text()


def test_the_hook_would_have_seen_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    program = f"open({str(tmp_path / 'x')!r}, 'w')"
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr

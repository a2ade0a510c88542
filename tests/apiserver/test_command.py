"""`gangsched apiserver` as a person runs it: what it prints, how it ends, what it says to wrong options."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

STOP_S = 20.0


@contextlib.contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The process, once it serves, with the lines that it has printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gangsched.command.cli", "apiserver", "--port=0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_PROXY": "*"},
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().rstrip() for _ in range(4)]
        yield process, lines
    finally:
        process.kill()
        process.communicate()


def refused(*options: str) -> str:
    """What it says when it does not start; without a traceback, and without having served."""
    done = subprocess.run(
        [sys.executable, "-m", "gangsched.command.cli", "apiserver", *options],
        capture_output=True,
        text=True,
        timeout=STOP_S,
    )
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_it_serves_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with running("--nodes=3", "--kubeconfig-out", str(kubeconfig)) as (process, lines):
        assert lines[0].endswith("in memory: 3 nodes of 8 GPUs in 4 racks, simulated kubelets")
        assert lines[1].startswith("no authentication")
        assert f"kubectl --kubeconfig {kubeconfig}" in lines[2]
        assert f"gangsched scheduler --kubeconfig {kubeconfig}" in lines[3]
        url = lines[0].split()[1].rstrip(",")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url}/api/v1/nodes?limit=1", timeout=STOP_S) as answer:
            assert b'"node-0"' in answer.read()
        process.send_signal(number)
        _, said = process.communicate(timeout=STOP_S)
        assert (process.returncode, said) == (0, "gangsched: stopped; nothing was kept\n")
    assert not kubeconfig.exists()


def test_a_port_that_is_taken_is_one_line() -> None:
    with running("--nodes=0") as (_, lines):
        port = lines[0].split()[1].rstrip(",").rpartition(":")[2]
        assert refused(f"--port={port}") == (
            f"gangsched: cannot listen on 127.0.0.1:{port}: Address already in use;"
            " is another API server running? Another --port, or 0 for a free one"
        )


def test_somebody_s_own_kubeconfig_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\n")
    said = refused("--port=0", "--kubeconfig-out", str(path))
    assert said == f"gangsched: {path}: exists and is not ours: name another file"
    assert path.read_text() == "apiVersion: v1\nkind: Config\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port=99999"], "--port 99999: expected 0 to 65535"),
        (["--nodes=-1"], "--nodes -1: expected 0 to 65536"),
        (["--nodes=many"], "argument --nodes: invalid int value: 'many'"),
        (["--racks=0"], "--racks 0: expected 1 or more"),
        (["--speed=0"], "--speed 0.0: expected a number above 0"),
        (["--kill=node-99"], "--kill node-99: no such node; there are node-00 to node-15"),
        (["--unhealthy=node-00=GPU-1"], "--unhealthy node-00=GPU-1: no such device"),
        (["--tls-cert-file=x"], "--tls-private-key-file is missing"),
        (["--tls-cert-file=/nowhere", "--tls-private-key-file=/nowhere"], "/nowhere: cannot be read"),
        (["--kubeconfig-out=/nowhere/x", "--port=0"], "/nowhere/x: cannot be written: No such file"),
        (["--bind-address=192.0.2.1", "--port=0"], "cannot listen on 192.0.2.1:0: Cannot assign requested"),
        ([f"--bind-address={'x' * 64}", "--port=0"], "it is not a host name"),
    ],
)
def test_options_that_cannot_be_are_one_line(options: list[str], said: str) -> None:
    assert said in refused(*options)


def test_devices_for_claims_are_there_from_the_start() -> None:
    with running("--nodes=2", "--gpus=0", "--dra-devices=1", "--dra-driver=d.example.org") as (_, lines):
        assert ": 2 nodes of 0 GPUs and 1 device of d.example.org in 4 racks" in lines[0]
        url = lines[0].split()[1].rstrip(",")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url}/apis/resource.k8s.io/v1/deviceclasses", timeout=STOP_S) as answer:
            assert b'"d.example.org"' in answer.read()
    assert refused("--dra-devices=-1") == "gangsched: --dra-devices -1: expected 0 to 1024"

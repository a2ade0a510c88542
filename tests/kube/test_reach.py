"""A server that is not reached, or does not let us in: one line for all, and then one now and again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from structlog.testing import capture_logs

from gangsched.errors import ApiError, Unreachable
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.kube.reach import AGAIN_S, MAX_AGAIN_S, Reach
from gangsched.kube.tally import SILENCE, AnswerTally
from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.process import Scheduler, write_config

SERVER = "https://10.0.0.1:6443"


class Server:
    """What callers meet, at a time that moves when told."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.answers = AnswerTally()
        self.reach = Reach(SERVER, self.answers, clock=lambda: self.now_s)

    def is_down(self, *, for_s: float = 0.0, why: str = "connection refused") -> None:
        """Twenty callers try once a second."""
        end_s = self.now_s + for_s
        while True:
            for _ in range(20):
                self.answers.count("GET", SILENCE)
                self.reach.not_reached(why)
            if self.now_s >= end_s:
                return
            self.now_s += 1.0


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as captured:
        yield captured


def lines(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs if line["log_level"] != "debug"]


DOWN = f"cannot reach {SERVER}: connection refused; trying again"


def test_a_failure_of_twenty_callers_is_logged_once(logs: list[Any]) -> None:
    server = Server()
    server.is_down(for_s=AGAIN_S - 1)
    assert lines(logs) == [DOWN]


def test_a_failure_that_nobody_tries_again_is_left_to_the_command(logs: list[Any]) -> None:
    server = Server()
    error = server.reach.not_reached("connection refused")
    assert (str(error), error.code, isinstance(error, Unreachable)) == (DOWN.split(";")[0], 0, True)
    assert lines(logs) == []


def test_it_is_logged_again_at_rising_intervals_while_it_lasts(logs: list[Any]) -> None:
    server = Server()
    server.is_down(for_s=4000)
    said_s = [0, *(line["for_s"] for line in logs[1:])]
    gaps = [later - earlier for earlier, later in pairwise(said_s)]
    assert gaps == [30, 60, 120, 240, 480, *[600] * 5]
    assert max(gaps) == MAX_AGAIN_S


def test_recovery_is_logged_once(logs: list[Any]) -> None:
    server = Server()
    server.is_down(for_s=10)
    for _ in range(20):
        server.answers.count("GET", 200)
    assert lines(logs) == [DOWN, f"{SERVER} answers again"]
    assert logs[-1]["after_s"] == 10


def test_a_server_that_comes_and_goes_fills_no_log(logs: list[Any]) -> None:
    server = Server()
    for _ in range(60):
        server.is_down(for_s=0.0)
        server.now_s += 0.5
        server.answers.count("GET", 200)
        server.now_s += 0.5
    assert lines(logs) == [DOWN, f"{SERVER} answers again"] * 2


def test_another_reason_is_news_but_not_for_ever(logs: list[Any]) -> None:
    server = Server()
    for n in range(20):
        server.is_down(why=f"reason {n}")
    assert len(logs) == 5


def test_an_answer_ends_a_refusal_unless_it_is_another(logs: list[Any]) -> None:
    server = Server()
    for _ in range(2):
        server.reach.refused("401 Unauthorized: tried a token")
        server.answers.count("GET", 401)
    server.answers.count("GET", 403)
    assert lines(logs) == ["401 Unauthorized: tried a token; trying again", f"{SERVER} answers again"]


# -- the programs --------------------------------------------------------------------------------------


PATIENCE_S = 60.0
NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize("command", [["load"], ["devices"], ["agent", "--dry-run", "--node-name=n0"]])
def test_a_command_that_ends_says_one_line(command: list[str], tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path)}
    environ.pop("KUBECONFIG", None)
    told = subprocess.run(
        [sys.executable, "-m", "gangsched.command.cli", *command, f"--master={NOBODY}"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.strip() == f"gangsched: cannot reach {NOBODY}: connection refused"


def test_a_scheduler_without_a_server_says_one_line(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", allowEviction=True)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document(NOBODY)))
    scheduler = Scheduler(config, kubeconfig, tmp_path / "log")
    try:
        scheduler.wait_ready(lambda: "cannot reach" in scheduler.said, timeout_s=PATIENCE_S)
        scheduler.stop_cleanly()
    finally:
        scheduler.kill()
    warnings = [line for line in scheduler.said.splitlines() if " warning " in line]
    assert len(warnings) == 1
    assert f"cannot reach {NOBODY}: connection refused; trying again" in warnings[0]


def document(server: str, **user: str) -> dict[str, Any]:
    return {
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    }


def test_a_token_that_is_refused_is_named_with_its_cure(control_plane: ControlPlane, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document(control_plane.base_url, token="old")))

    async def ask() -> str:
        async with ApiClient(await load_credentials(kubeconfig=str(kubeconfig), environ={})) as client:
            with pytest.raises(ApiError) as caught:
                await client.get("/api/v1/nodes")
        assert caught.value.code == 401
        return str(caught.value)

    assert anyio.run(ask) == (
        f"401 Unauthorized: {control_plane.base_url} does not accept our credentials: tried the token of user"
        f" 'me' in {kubeconfig}; write a valid one there; it is read again, without a restart"
    )
    scheduler = Scheduler(write_config(tmp_path / "config.yaml"), kubeconfig, tmp_path / "log")
    try:
        refused = "does not accept our credentials"
        scheduler.wait_ready(lambda: refused in scheduler.said, timeout_s=PATIENCE_S)
        scheduler.stop_cleanly()
    finally:
        scheduler.kill()
    warnings = [line for line in scheduler.said.splitlines() if " warning " in line]
    assert len(warnings) == 1, "\n".join(warnings)

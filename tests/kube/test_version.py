"""Which Kubernetes the API server is: an older one, which drops a Binding's labels, is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random

import pytest

from gangsched.errors import ApiError, ConfigError
from gangsched.kube.transport.backoff import Backoff
from gangsched.kube.version import require_binding_labels
from tests.real.process import write_config


class Server:
    """Answers GET /version with what it is given, one after the other."""

    def __init__(self, *answers: dict[str, str] | bytes | ApiError) -> None:
        self._answers = list(answers)

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        assert path == "/version"
        answer = self._answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


async def ask(*answers: dict[str, str] | bytes | ApiError) -> Server:
    server = Server(*answers)
    backoff = Backoff(Random(1), first_s=0.001, max_s=0.001)
    await require_binding_labels(server, backoff, source="f.yaml")  # type: ignore[arg-type]
    return server


@pytest.mark.parametrize(
    "told",
    [
        {"major": "1", "minor": "35"},
        {"major": "1", "minor": "37+", "gitVersion": "v1.37.1-gke.1"},
        {"major": "2", "minor": "0"},
        {"major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "36"},
    ],
)
async def test_a_server_that_merges_labels_is_taken(told: dict[str, str]) -> None:
    await ask(told)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"major": "1", "minor": "34", "gitVersion": "v1.34.2"}, "this one is v1.34.2 and drops"),
        ({"major": "1", "minor": "9"}, "this one is 1.9 and drops"),
        (
            {
                "major": "1",
                "minor": "37",
                "gitVersion": "v1.37.1",
                "emulationMajor": "1",
                "emulationMinor": "34",
            },
            "this one is v1.37.1, emulating 1.34 and drops",
        ),
    ],
)
async def test_an_older_one_is_refused_with_what_would_be_right(told: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        await ask(told)
    said = str(refused.value)
    assert said.startswith("f.yaml: devices.allocationIn: labels needs an API server of Kubernetes 1.35")
    assert name in said
    assert "annotations works with every version" in said


async def test_a_server_that_does_not_answer_yet_is_waited_for() -> None:
    down = ApiError("connection refused")
    busy = ApiError("overloaded", code=503, reason="ServiceUnavailable")
    await ask(down, down, busy, {"major": "1", "minor": "35"})


@pytest.mark.parametrize("answer", [b"<html>", ApiError("no", code=403, reason="Forbidden")])
async def test_a_server_that_does_not_say_its_version_is_refused(answer: bytes | ApiError) -> None:
    with pytest.raises(ConfigError, match="does not say which version it is"):
        await ask(answer)


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "{server}"}}}}]
users: [{{name: me, user: {{token: t}}}}]
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
"""


class _Old(BaseHTTPRequestHandler):
    """An API server of Kubernetes 1.34, as far as it is asked."""

    def do_GET(self) -> None:
        body = json.dumps({"major": "1", "minor": "34", "gitVersion": "v1.34.2"}).encode()
        self.send_response(200 if self.path == "/version" else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_a_scheduler_refuses_to_start_where_labels_would_be_dropped(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.yaml", devices={"allocationIn": "labels"})
    server = HTTPServer(("127.0.0.1", 0), _Old)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(server=f"http://127.0.0.1:{server.server_port}"))
        command = [sys.executable, "-m", "gangsched.command.cli", "scheduler", f"--config={config}"]
        done = subprocess.run(
            [*command, f"--kubeconfig={kubeconfig}", "--secure-port=0"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "NO_PROXY": "*"},
        )
    finally:
        server.shutdown()
    assert done.returncode != 0
    where = f"{config}: devices.allocationIn: "
    assert (
        f"{where}labels needs an API server of Kubernetes 1.35 or later: this one is v1.34.2" in done.stderr
    )
    assert "Traceback" not in done.stderr

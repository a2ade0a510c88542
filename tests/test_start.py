"""What a plain scheduler loads before its first gang: each module costs the start CPU and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "c",
}
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "profiles": [{"schedulerName": "gangsched"}],
}
# Everything up to the first request: arguments, configuration, credentials, the whole assembly.
SCRIPT = """
import sys
from gangsched import cli, logs  # logs before the app, as the command does
from gangsched import app

async def run(self):
    return 0

app.SchedulerApp.run = run
code = cli.main(sys.argv[1:])
print("\\n".join(sys.modules))
sys.exit(code)
"""
# Other commands, parts that were not asked for, and libraries that only those need.
NOT_NEEDED = {
    "aiohttp",
    "cryptography",
    "google",
    "grpc",
    "importlib.metadata",
    "opentelemetry",
    "psutil",
    "requests",
    "rich",
    "urllib3",
    "kubernetes_asyncio.client.api",
    "kubernetes_asyncio.client.models",
    *(
        f"gangsched.{room}"
        for room in (
            "agent",
            "apiserver",
            "bench",
            "certificates",
            "controlplane",
            "demo",
            "devices",
            "extenders",
            "load",
            "shadow",
            "sim",
            "telemetry.service",
            "telemetry.tracer",
            "web.server",
            "web.service",
        )
    ),
}


def test_a_plain_scheduler_loads_what_it_needs_and_no_more(tmp_path: Path) -> None:
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "config"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    config.write_text(yaml.safe_dump(CONFIG))
    flags = ["--kubeconfig", str(kubeconfig), "--config", str(config), "--secure-port", "0"]
    command = [sys.executable, "-c", SCRIPT, "scheduler", *flags]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=root)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert {"gangsched.core.scheduler", "gangsched.kube.watch.reflector", "gangsched.plugins"} <= loaded
    assert sorted(loaded & NOT_NEEDED) == []

"""What commands load: each module costs a scheduler's start CPU and memory, and whoever asks one time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangsched.command.commands import COMMANDS, SERVICES

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
from gangsched import logs  # before the app, as the command does
from gangsched.command import cli
from gangsched.process import app

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
            "certificates",
            "devices",
            "extenders",
            "lab",
            "load",
            "model.cel.compiler",
            "shadow",
            "telemetry.service",
            "telemetry.tracer",
            "web.serving.server",
            "web.serving.service",
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


# The same for an agent, which runs on each node.
AGENT = """
import sys
from gangsched import logs  # before the app, as the command does
from gangsched.agent import app
from gangsched.command import cli

async def run(self):
    return 0

app.AgentApp.run = run
code = cli.main(sys.argv[1:])
print("\\n".join(sys.modules))
sys.exit(code)
"""
NO_AGENT_NEEDS = {
    *("aiohttp", "cryptography", "kubernetes_asyncio", "opentelemetry", "re2", "rich"),
    *(f"gangsched.{room}" for room in ("config", "core", "lab", "model.cel", "plugins", "web")),
}
# With what they need of others: gRPC for kubelet's APIs, psutil for what is measured.
NOT_ASKED_FOR = {
    *("google", "grpclib", "h2", "psutil", "gangsched.agent.kubelet_api", "gangsched.agent.plugins.runner"),
    *("gangsched.agent.probes.running", "gangsched.agent.sources.pod_resources"),
}


@pytest.mark.parametrize("measures", [False, True])
def test_an_agent_loads_what_it_was_asked_for(tmp_path: Path, measures: bool) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    own = [
        "agent",
        "--kubeconfig",
        str(kubeconfig),
        "--node-name",
        "n",
        "--nvml",
        "off",
        *["--load"] * measures,
    ]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", AGENT, *own], capture_output=True, text=True, timeout=60, cwd=root
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert sorted(loaded & NO_AGENT_NEEDS) == []
    assert loaded & NOT_ASKED_FOR == ({"gangsched.agent.probes.running", "psutil"} if measures else set())


@pytest.mark.parametrize("command", ["agent", "devices", "load", "queue", "queues", "top", "trace"])
def test_a_command_that_decides_nothing_loads_nothing_of_the_core(command: str) -> None:
    script = (
        "import sys; from gangsched.command.cli import _parser; _parser(sys.argv[1:]); print(*sys.modules)"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script, command], capture_output=True, text=True, timeout=60, cwd=root
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert COMMANDS[command][0] in loaded
    unwanted = ("gangsched.config", "gangsched.core", "gangsched.plugins", "gangsched.lab")
    assert [name for name in loaded if name.startswith(unwanted)] == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_command_that_logs_loads_no_logs_before_they_are_set_up(name: str) -> None:
    """Set up first, structlog loads without what draws tracebacks: eighty modules less."""
    script = f"import sys; from gangsched.command import commands; commands.module_of({name!r})"
    script += "; print(sorted({'rich', 'structlog'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr

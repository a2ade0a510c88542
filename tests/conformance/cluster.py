"""One run of e2e.test: a control plane, nodes that kwok plays, and one scheduler as default-scheduler.

What does not live here: what the result means (report.py), where the binaries come from (tools.py).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from gangsched.errors import GangschedError
from gangsched.lab.controlplane.daemon import Daemon, free_ports
from gangsched.lab.controlplane.processes import GANG_GATE, ControlPlane
from tests.conformance.report import CONTROL, NEED_KUBELET, Outcome, read
from tests.conformance.tools import Tools
from tests.real.process import Scheduler, service_account

REPO = Path(__file__).parents[2]
NODES = 4
ZONES = 2
ROOM = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
NODE_AGENTS = ("kube-proxy", "fluentd-elasticsearch", "node-problem-detector")
"""The tests of preemption wait a minute each for running pods of these names on each node, and then go on."""
NODES_READY_S = 120.0
SAY_PERIOD_S = 30.0
POLL_PERIOD_S = 1.0
LIMIT_S = 3600.0
_ENDED = re.compile(r"^(?:\x1b\[[\d;]*m)?[•S] (?:\[\S+\] )?\[", re.MULTILINE)
_SCHEDULER = "default-scheduler"


class RunFailed(GangschedError):
    """A run that came to no result; the message says where the logs are."""


def run(
    scheduler: str,
    tools: Tools,
    *,
    focus: str,
    folder: Path,
    say: Callable[[str], None],
    stop: threading.Event,
) -> dict[str, Outcome]:
    """Each test's outcome with this scheduler; `folder` gets logs and report, `stop` ends it early.

    Raises: StartFailed, RunFailed, UnreadableReport.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "junit.xml"
    report.unlink(missing_ok=True)
    started: list[Daemon] = []
    with ControlPlane(assets=tools.control_plane, unsafe_no_fsync=True) as plane:
        try:
            say("control plane is up; starting nodes, controllers and the scheduler")
            key = plane.data_dir / "certs" / "apiserver.key"
            plane.start_controllers(
                "*",
                flags=(
                    GANG_GATE,
                    f"--service-account-private-key-file={key}",
                    f"--root-ca-file={plane.ca_file}",
                ),
            )
            started.append(_start_kwok(plane, tools, folder))
            _make_nodes(plane, started[0])
            started.append(_start_scheduler(scheduler, plane, folder))
            started.append(_start_tests(plane, tools, focus, folder, report))
            _follow(started, folder, say, stop)
        finally:
            for daemon in reversed(started):
                daemon.stop()
    return read(report)


def _start_kwok(plane: ControlPlane, tools: Tools, folder: Path) -> Daemon:
    stages = plane.data_dir / "stages.yaml"
    stages.write_text(tools.stages)
    command = [
        str(tools.kwok),
        f"--kubeconfig={plane.kubeconfig}",
        f"--config={stages}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
        # Not loopback: a test takes one port of 127.0.0.1 and of the node's own address.
        "--node-ip=192.0.2.1",
        "--cidr=10.64.0.1/16",
    ]
    return Daemon("kwok", command, log=_fresh(folder / "kwok.log"), env={"HOME": str(plane.data_dir)})


def _make_nodes(plane: ControlPlane, kwok: Daemon) -> None:
    for k in range(NODES):
        name = f"node-{k}"
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/region": "here",
            "topology.kubernetes.io/zone": f"zone-{k % ZONES}",
        }
        node = {"metadata": {"name": name, "labels": labels}}
        plane.request("POST", "/api/v1/nodes", node | {"status": {"capacity": ROOM, "allocatable": ROOM}})
        for agent in NODE_AGENTS:
            # Placed by the scheduler: the tests take a pod for broken that has a node and not PodScheduled.
            spec = {
                "nodeSelector": {"kubernetes.io/hostname": name},
                "containers": [{"name": agent, "image": agent}],
            }
            pod = {"metadata": {"name": f"{agent}-{name}"}, "spec": spec}
            plane.request("POST", "/api/v1/namespaces/kube-system/pods", pod)
    kwok.wait_ready(lambda: _n_ready(plane) == NODES, timeout_s=NODES_READY_S)


def _n_ready(plane: ControlPlane) -> int:
    nodes: list[dict[str, Any]] = plane.request("GET", "/api/v1/nodes")["items"]
    # Until the controllers have seen a node ready it is tainted.
    return sum(_is_ready(node) and not node["spec"].get("taints") for node in nodes)


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _start_scheduler(scheduler: str, plane: ControlPlane, folder: Path) -> Daemon:
    if scheduler == CONTROL:
        return plane.start_kube_scheduler(gang=True)
    for rights in ("rbac.yaml", "resource-claims.yaml"):
        plane.kubectl("apply", "-f", str(REPO / "deploy" / rights))
    config = plane.data_dir / "gangsched.yaml"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": _SCHEDULER}],
    }
    config.write_text(yaml.safe_dump(document))
    [port] = free_ports(1)
    return Scheduler(
        config,
        service_account(plane, plane.data_dir / "gangsched.kubeconfig"),
        _fresh(folder / "gangsched.log"),
        port=port,
    )


def _start_tests(plane: ControlPlane, tools: Tools, focus: str, folder: Path, report: Path) -> Daemon:
    command = [
        str(tools.e2e),
        f"-kubeconfig={plane.kubeconfig}",
        "-provider=skeleton",
        f"-kubectl-path={tools.control_plane.path('kubectl')}",
        "-dump-logs-on-failure=false",
        f"-ginkgo.focus={focus}",
        *(f"-ginkgo.skip={re.escape(one)}" for one in NEED_KUBELET),
        f"-ginkgo.junit-report={report}",
        f"-ginkgo.timeout={LIMIT_S:.0f}s",
        "-ginkgo.no-color",
        "-ginkgo.v",
        "-ginkgo.silence-skips",
    ]
    env = {"HOME": str(plane.data_dir), "NO_PROXY": "*"}
    return Daemon("e2e.test", command, log=_fresh(folder / "e2e.log"), env=env)


def _follow(started: list[Daemon], folder: Path, say: Callable[[str], None], stop: threading.Event) -> None:
    """Returns when the tests ended. Their exit code says no more than their report."""
    *others, tests = started
    began_s = said_s = time.monotonic()
    while tests.running:
        if stop.wait(POLL_PERIOD_S):
            raise RunFailed("ended because the other run was")
        for one in others:
            if not one.running:
                raise RunFailed(f"{one.name} ended, see {folder}:\n{one.tail()}")
        now_s = time.monotonic()
        if now_s - said_s >= SAY_PERIOD_S:
            n_ended = len(_ENDED.findall(tests.log.read_text(errors="replace")))
            say(f"{n_ended} tests ended after {now_s - began_s:.0f} s")
            said_s = now_s
    say(f"tests ended after {time.monotonic() - began_s:.0f} s")


def _fresh(log: Path) -> Path:
    log.unlink(missing_ok=True)
    return log

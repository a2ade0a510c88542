"""Two replicas with the base's configuration: who has started, and which node takes pods, from outside.

What decides evictions is in the cluster's objects, so that the next leader, or a process that starts when
none ran, decides as the one before. What kubelets and administrators write is written here as they do.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.cluster import COSCHEDULING_GROUPS, MERGE, PODS, REPO, Cluster
from tests.real.picture import GPU, Json, node_of
from tests.real.process import Scheduler, binding_gate, service_account
from tests.real.test_leader import says, transitions

pytestmark = pytest.mark.real

BASE = REPO / "deploy" / "config" / "scheduler.yaml"


def base_with(cluster: Cluster, **settings: Any) -> Path:
    """The base's configuration with these fields of ours instead."""
    kube, ours = yaml.safe_load_all(BASE.read_text())
    path = cluster.directory / "base.yaml"
    path.write_text(yaml.safe_dump_all([kube, ours | settings]))
    return path


def two_replicas(
    cluster: Cluster, config: Path = BASE, *, kubeconfig: Path | None = None
) -> tuple[Scheduler, Scheduler]:
    """A leader and a warm follower, as deploy/ configures them."""
    cluster.plane.kubectl("delete", "lease", "gangsched", "-n", "gangsched-system", "--ignore-not-found")
    made = []
    for words in (" leading ", "synced, following"):
        name = f"replica-{len(cluster.schedulers)}"
        account = kubeconfig or service_account(cluster.plane, cluster.directory / f"{name}-account.yaml")
        made.append(Scheduler(config, account, cluster.directory / f"{name}.log"))
        cluster.schedulers.append(made[-1])
        says(cluster, made[-1], words)
    return made[0], made[1]


def kill(*schedulers: Scheduler) -> None:
    for one in schedulers:
        one.process.send_signal(signal.SIGKILL)
        one.process.wait(20)


def write_status(cluster: Cluster, name: str, **status: Any) -> None:
    """As the pod's kubelet does."""
    path = f"{PODS}/{name}/status"
    cluster.plane.request("PATCH", path, {"status": status}, content_type=MERGE)


def run(cluster: Cluster, *gangs: str) -> None:
    """Kubelets start what is bound of them."""
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    one = {
        "name": "main",
        "image": "busybox",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": state,
    }
    for gang in gangs:
        for pod in cluster.members(gang):
            if node_of(pod):
                write_status(cluster, pod["metadata"]["name"], phase="Running", containerStatuses=[one])


def fail(cluster: Cluster, name: str) -> None:
    """It ran, and a container of it ended with an error."""
    state = {"terminated": {"exitCode": 1, "startedAt": "2026-01-01T00:00:00Z", "reason": "Error"}}
    one = {
        "name": "main",
        "image": "busybox",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    write_status(cluster, name, phase="Failed", containerStatuses=[one])


def refuse(cluster: Cluster, name: str) -> None:
    """Kubelet does not admit it: pkg/kubelet/kubelet.go, rejectPod."""
    message = "Allocate failed due to requested number of devices unavailable, which is unexpected"
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
    write_status(cluster, name, **status)


def bound(cluster: Cluster, *gangs: str) -> list[str]:
    """The members that hold a node."""
    live = [pod for gang in gangs for pod in cluster.members(gang) if pod["status"]["phase"] in _HOLDS]
    return [pod["metadata"]["name"] for pod in live if node_of(pod)]


_HOLDS = ("Pending", "Running")


def gone(cluster: Cluster, *gangs: str) -> list[str]:
    """Pods of these gangs that the watch has seen go, or asked to."""
    seen = [
        pod["metadata"]["name"]
        for type_, pod, _ in cluster.picture.sights
        if type_ == "DELETED" or pod["metadata"].get("deletionTimestamp")
    ]
    return sorted({name for name in seen if name.rpartition("-")[0] in gangs})


def takes_place(cluster: Cluster, name: str) -> None:
    """Another scheduler's pod is on this one's node, and will hold its devices."""
    cluster.pod(f"stranger-{name}", gpus=8, scheduler="another")
    cluster.bind_by_hand(f"stranger-{name}", node_of(cluster.picture.pods[name]))


def test_the_next_leader_evicts_what_has_not_started_and_nothing_else(cluster: Cluster) -> None:
    """Three gangs that have lost members, and no room for all that come for them."""
    cluster.nodes(6, gpus=8)
    leader, follower = two_replicas(cluster)
    for name, pods, gpus in (("lost", 4, 4), ("failed", 2, 8), ("refused", 2, 8)):
        cluster.gang(name, pods=pods, gpus=gpus)
        cluster.whole(name)
    run(cluster, "lost", "failed")
    node = node_of(cluster.picture.pods["lost-3"])
    lost = [name for name in bound(cluster, "lost") if node_of(cluster.picture.pods[name]) == node]
    assert len(lost) == 2
    cluster.plane.request("DELETE", f"/api/v1/nodes/{node}")
    cluster.delete(*lost)
    cluster.node("small", [{"id": f"GPU-s-{k}", "health": "Healthy"} for k in range(4)])
    cluster.gang("lost", pods=4, gpus=4, members=[4, 5])
    cluster.picture.until(lambda: len(bound(cluster, "lost")) == 3, "one of two successors has room")
    for name, ends in (("failed", fail), ("refused", refuse)):
        takes_place(cluster, f"{name}-0")
        ends(cluster, f"{name}-0")
        cluster.gang(name, pods=2, gpus=8, members=[2])
    cluster.picture.until(lambda: "BoundInPart" in str(cluster.members("refused")), "refused-1 says it")
    ran = bound(cluster, "lost", "failed")
    assert len(ran) == 4
    before = gone(cluster, "lost", "failed")
    kill(leader)
    says(cluster, follower, " leading ")
    cluster.picture.until(lambda: "refused-1" in gone(cluster, "refused"), "what is left of it goes")
    # The next leader has had as long for the others.
    cluster.pod("after")
    cluster.whole("after")
    assert {*ran} <= {*bound(cluster, "lost", "failed")}
    assert gone(cluster, "lost", "failed") == before
    assert transitions(cluster) == 1
    cluster.gangs.clear()  # what runs of them is less than they need, as it should be


def test_gangs_in_part_that_nobody_saw_are_completed_or_unwound(cluster: Cluster) -> None:
    """Both replicas die between two binds of each gang; the PodGroup of one is deleted meanwhile."""
    cluster.nodes(4, gpus=8)
    through = binding_gate(cluster.plane, cluster.directory, lambda name, _: not name.endswith("-1"))
    with through as (gate, kubeconfig):
        both = two_replicas(cluster, kubeconfig=kubeconfig)
        cluster.gang("kept", pods=2, gpus=8)
        cluster.gang("deleted", pods=2, gpus=8, dialect="coscheduling")
        cluster.picture.until(lambda: len(bound(cluster, "kept", "deleted")) == 2, "half of each is bound")
        cluster.picture.until(lambda: len(gate.held) == 2, "the other half is on its way")
        kill(*both)
    cluster.plane.request("DELETE", f"{COSCHEDULING_GROUPS}/deleted")
    two_replicas(cluster)
    cluster.whole("kept")
    assert gone(cluster, "kept") == []
    cluster.picture.until(lambda: gone(cluster, "deleted") == ["deleted-0"], "no member is left to run alone")
    cluster.picture.until(lambda: not bound(cluster, "deleted"), "nothing of it runs")


CORDON: Json = {"unschedulable": True, "taints": [{"key": "down", "effect": "NoExecute"}]}
DEVICES = "gangsched.io/devices"
NAMES = {f"e{i}.example.com/{'x' * 30}": "1" for i in range(5_000)}
# What the API server takes and the scheduler cannot read: of a node's annotations, of its resources.
UNREADABLE: dict[str, tuple[Json, Json]] = {
    "names": ({}, NAMES),
    "amounts": ({}, {"cpu": "1e18", "memory": "9E", "example.com/y": "1e19"}),
    "list": ({DEVICES: "{"}, {}),
    "long-list": ({DEVICES: json.dumps({f"r{i}.example.com/x": [] for i in range(500)})}, {}),
    "ids": ({DEVICES: json.dumps({GPU: [{"id": f"{i}", "health": "Healthy"} for i in range(6_000)]})}, {}),
    "reports": (
        {f"gangsched.io/{key}": "[" * 9_000 for key in ("device-report", "load", "bandwidth", "links")},
        {},
    ),
}


def test_a_cordon_counts_whatever_else_of_the_node_cannot_be_read(cluster: Cluster) -> None:
    for name in ("good", *UNREADABLE):
        cluster.node(name, [{"id": f"GPU-{name}-{k}", "health": "Healthy"} for k in range(8)])
    two_replicas(cluster)
    cluster.gang("before", pods=len(UNREADABLE) + 1, gpus=4)
    cluster.whole("before")
    cluster.delete("before")
    for name, (own, room) in UNREADABLE.items():
        node = f"/api/v1/nodes/{name}"
        if room:
            body: Json = {"status": {"allocatable": room, "capacity": room}}
            cluster.plane.request("PATCH", f"{node}/status", body, content_type=MERGE)
        body = {"metadata": {"annotations": own}, "spec": CORDON}
        cluster.plane.request("PATCH", node, body, content_type=MERGE)
    n_nodes = len(UNREADABLE) + 1
    for k in range(n_nodes):
        cluster.pod(f"p-{k}", gpus=8)

    def on_nodes() -> list[str]:
        return [node_of(pod) for pod in cluster.members("p") if node_of(pod)]

    cluster.picture.until(lambda: on_nodes() == ["good"], "one has the good node")
    for pod in cluster.members("p"):
        if not node_of(pod):
            cluster.held(pod["metadata"]["name"], says=f"0/{n_nodes} nodes are available")
    assert on_nodes() == ["good"]
    # What can be read of it is as good as that of any node.
    open_again = {"spec": {"unschedulable": None, "taints": None}}
    cluster.plane.request("PATCH", "/api/v1/nodes/names", open_again, content_type=MERGE)
    cluster.picture.until(lambda: sorted(on_nodes()) == ["good", "names"], "another one has the node")

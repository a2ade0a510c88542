"""What the simulated kubelets and controllers write is what a real API server takes: their history, replayed.

The history of a simulated cluster is written to a real kube-apiserver object by object, with strict field
validation: creations as creations, every later state as an update of the status. Identities that only the
server gives (uid, resourceVersion) are its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gangsched.errors import ApiError
from gangsched.lab.apiserver.simulated import build_nodes
from gangsched.lab.apiserver.storage.store import Change
from gangsched.lab.apiserver.strategy import Object
from gangsched.lab.controlplane.processes import ControlPlane
from tests.apiserver.simulated.scenario import EPOCH, World, pod
from tests.apiserver.simulated.test_jobs import job, place

pytestmark = pytest.mark.real

NAMESPACE = "default"
_PATHS = {
    "/nodes": "/api/v1/nodes",
    "/pods": f"/api/v1/namespaces/{NAMESPACE}/pods",
    "batch/jobs": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
    "/events": f"/api/v1/namespaces/{NAMESPACE}/events",
    "coordination.k8s.io/leases": "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
}
_WITH_STATUS = ("/nodes", "/pods", "batch/jobs")
_SERVERS_OWN = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "deletionTimestamp",
)


class Replay:
    """Writes what a World's registry stores to a real server too; `refused` is what that would not take."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._real: dict[tuple[str, str], Object] = {}
        self.refused: list[str] = []
        self.n_written = 0

    def heard(self, change: Change) -> None:
        path = _PATHS.get(change.collection)
        if (
            path is None
            or change.type == "DELETED"
            or change.item.namespace not in ("", NAMESPACE, "kube-node-lease")
        ):
            return
        obj = change.item.decode()
        key = (change.collection, change.item.name)
        try:
            if key not in self._real:
                self._real[key] = self._create(path, obj, change.collection)
            if change.collection in _WITH_STATUS and obj.get("status"):
                self._real[key] = self._write_status(path, obj, self._real[key])
        except ApiError as error:
            self.refused.append(
                f"{change.collection} {change.item.name}: {error}\n{obj.get('status') or obj}"
            )

    def _create(self, path: str, obj: Object, collection: str) -> Object:
        meta = {key: value for key, value in obj["metadata"].items() if key not in _SERVERS_OWN}
        body = {**obj, "metadata": meta}
        body.setdefault("apiVersion", "batch/v1" if collection == "batch/jobs" else "v1")
        body.setdefault("kind", {"/pods": "Pod", "/nodes": "Node", "batch/jobs": "Job"}.get(collection, ""))
        body.pop("status", None)
        self.n_written += 1
        return self._request("POST", f"{path}?fieldValidation=Strict", body)

    def _write_status(self, path: str, obj: Object, real: Object) -> Object:
        self.n_written += 1
        where = f"{path}/{obj['metadata']['name']}/status?fieldValidation=Strict"
        return self._request("PUT", where, {**real, "status": obj["status"]})

    def _request(self, method: str, path: str, body: Object) -> Object:
        answer: Any = self._plane.request(method, path, body)
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def replay(fresh_cluster: ControlPlane) -> Iterator[Replay]:
    """On a server that has nothing of an earlier replay left."""
    yield Replay(fresh_cluster)
    now = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    for collection in ("/events", "coordination.k8s.io/leases", "batch/jobs"):
        fresh_cluster.request("DELETE", _PATHS[collection], now)


def watched(replay: Replay, **options: Any) -> World:
    """A World whose every write is replayed from the first on."""
    world = World(0, **options)
    world.registry.store.subscribe(replay.heard)
    return world


def with_nodes(world: World, n: int) -> World:
    for node in build_nodes(n, now=EPOCH, cpu=16):
        world.add_node(node)
    return world.run(0)


def bound(name: str, node: str = "node-0", **options: Any) -> Object:
    """A pod that is bound from the start: replaying a binding would be about something else."""
    each = pod(name, nodeName=node, **options)
    container = each["spec"]["containers"][0]["resources"]
    container["limits"] = {key: value for key, value in container["requests"].items() if "/" in key}
    return each


def test_pods_of_every_fate(replay: Replay) -> None:
    world = with_nodes(watched(replay), 1)
    world.create("pods", bound("succeeds", run_s=5))
    world.create("pods", bound("fails", run_s=5, exit_code=3))
    world.create("pods", bound("restarts", run_s=2, exit_code=1, restart="OnFailure"))
    world.create("pods", bound("too-big", cpu="17"))
    world.create("pods", bound("waits", volumes=[{"name": "cfg", "configMap": {"name": "absent"}}]))
    init = [
        {"name": "warm", "image": "busybox"},
        {"name": "side", "image": "busybox", "restartPolicy": "Always"},
    ]
    world.create("pods", bound("initialised", run_s=5, initContainers=init))
    wrong = bound(
        "mismatch",
        gpus=1,
        annotations={"gangsched.io/allocated-devices": '{"main":{"nvidia.com/gpu":["X"]}}'},
    )
    world.create("pods", wrong)
    world.run(40)
    assert world.phase("too-big") == world.phase("mismatch") == "Failed"
    assert (replay.refused, replay.n_written > 40) == ([], True)


def test_nodes_that_die_come_back_and_have_ailing_devices(replay: Replay) -> None:
    world = with_nodes(watched(replay), 2)
    devices = '{"main":{"nvidia.com/gpu":["GPU-node-0-0"]}}'
    holder = bound("holder", gpus=1, annotations={"gangsched.io/allocated-devices": devices})
    world.create("pods", holder)
    world.run(3).annotate("node-0", unhealthy_devices="GPU-node-0-0", vanished_devices="GPU-node-0-1").run(1)
    assert world.condition("nodes", "node-0", "DeviceAllocationConflict")["status"] == "True"
    world.annotate("node-0", killed="true").run(100).annotate("node-0", killed=None).run(10)
    assert world.condition("nodes", "node-0", "Ready")["status"] == "True"
    assert replay.refused == []


def test_jobs_that_complete_fail_and_are_suspended(replay: Replay) -> None:
    world = with_nodes(watched(replay), 1)
    world.create("jobs.batch", job("done", completions=3, parallelism=2, completionMode="Indexed"))
    world.create(
        "jobs.batch", job("lost", exit_code=1, run_s=1, completions=1, parallelism=1, backoffLimit=1)
    )
    world.create("jobs.batch", job("asleep", suspend=True, completions=1, parallelism=1))
    for _ in range(12):
        place(world.run(5))

    def resume(obj: Object) -> None:
        obj["spec"]["suspend"] = False

    world.change("jobs.batch", "asleep", resume)
    for _ in range(6):
        place(world.run(5))
    finals = {
        name: world.get("jobs.batch", name)["status"]["conditions"][-1]["type"]
        for name in ("done", "lost", "asleep")
    }
    assert finals == {"done": "Complete", "lost": "Failed", "asleep": "Complete"}
    assert replay.refused == []

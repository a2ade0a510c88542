"""Where real tasks run: as processes in a worker's cgroup, or as pods of a kubelet that keeps them in it.

Lives here: the cluster's API server, the workers' nodes, starting a task, finding those that have ended. Not
here: cgroups and links (`workers`), agents, the scheduler and the judging (`real`).
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gangsched.kube.client import ApiClient
from gangsched.lab.apiserver.app import EmbeddedCluster
from gangsched.lab.bench.balance.model import Kind
from gangsched.lab.bench.balance.simulated import allocatable, pod_document
from gangsched.lab.bench.balance.workers import SCALE, Site, task_arguments, task_command
from gangsched.lab.controlplane import node as real_node
from gangsched.lab.controlplane.node import IMAGE, Machine
from gangsched.lab.controlplane.processes import ControlPlane

_PODS = "/api/v1/namespaces/default/pods"
# kubelet fills it in: the worker that a task will run on is not known before.
_NODE = "$(NODE_NAME)"

_encode = msgspec.json.encode


class Ground(Protocol):
    """One of the two grounds below, opened."""

    kubeconfig: Path

    async def add_nodes(self, client: ApiClient) -> None:
        """Waits until every worker is a node that offers what it has."""
        ...

    def pod(self, task: Kind, number: int) -> dict[str, Any]:
        """Returns the task's pod as it is submitted."""
        ...

    def placed(self, site: Site, task: Kind, number: int) -> None:
        """Called when the task is bound to this worker."""
        ...

    async def ended(self, client: ApiClient) -> list[str]:
        """Returns tasks that no longer run, and why; there should be none."""
        ...


class Processes:
    """The embedded API server; a stand-in for kubelet starts a process when a pod has its node."""

    def __init__(self, made: Sequence[Site], kubeconfig: Path) -> None:
        self._made = made
        self.kubeconfig = kubeconfig

    async def add_nodes(self, client: ApiClient) -> None:
        for site in self._made:
            await client.post("/api/v1/nodes", _encode({"metadata": {"name": site.name}}))
            room = allocatable(site.worker, scale=SCALE)
            status = {"status": {"allocatable": room, "capacity": room}}
            await client.patch(f"/api/v1/nodes/{site.name}/status", _encode(status))

    def pod(self, task: Kind, number: int) -> dict[str, Any]:
        return pod_document(task, number, scale=SCALE)

    def placed(self, site: Site, task: Kind, number: int) -> None:
        site.start(task, number)

    async def ended(self, client: ApiClient) -> list[str]:
        return [f"{site.name}: {text}" for site in self._made for text in site.ended()]


@asynccontextmanager
async def processes(made: Sequence[Site], scratch: Path) -> AsyncIterator[Ground]:
    """Opens Processes; needs no more than root."""
    async with EmbeddedCluster() as cluster:
        yield Processes(made, cluster.kubeconfig(scratch / "kubeconfig"))


class Kubelets:
    """A real kubelet and containerd for each worker, on a real API server: tasks are pods that they start.

    A pod has the worker's link, as it is on its node's network, and its cgroup is below the worker's. Its
    root is this machine's, as the image has no interpreter.
    """

    def __init__(self, made: Sequence[Site], plane: ControlPlane, scratch: Path, host_mhz: float) -> None:
        self._made = made
        self._scratch = scratch
        self._host_mhz = host_mhz
        self.kubeconfig = plane.kubeconfig

    async def add_nodes(self, client: ApiClient) -> None:
        """Does nothing: they have registered themselves."""

    def pod(self, task: Kind, number: int) -> dict[str, Any]:
        found = pod_document(task, number, scale=SCALE)
        wanted = task_arguments(task, number, self._made, self._host_mhz, self._scratch, _NODE)
        found["spec"]["containers"][0] |= {
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/chroot", "/machine", *task_command(wanted)],
            "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            "volumeMounts": [{"name": "machine", "mountPath": "/machine"}],
        }
        found["spec"] |= {
            "hostNetwork": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "machine", "hostPath": {"path": "/"}}],
            # A node without a network plugin is not ready, which matters to pods with a network of their own.
            "tolerations": [{"operator": "Exists"}],
        }
        return found

    def placed(self, site: Site, task: Kind, number: int) -> None:
        """Does nothing: kubelet starts the task."""

    async def ended(self, client: ApiClient) -> list[str]:
        pods = msgspec.json.decode(await client.get(_PODS))["items"]
        return [
            f"{pod['spec'].get('nodeName')}: {pod['metadata']['name']}: {pod['status'].get('phase')}"
            f" {pod['status'].get('message', '')}".strip()
            for pod in pods
            if pod["status"].get("phase") != "Running"
        ]


@contextmanager
def kubelets(made: Sequence[Site], scratch: Path, host_mhz: float) -> Iterator[Kubelets]:
    """Opens Kubelets. Raises: GangschedError, with what would be needed."""
    real_node.check_possible()
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(unsafe_no_fsync=True))
        for site in made:
            room = allocatable(site.worker, scale=SCALE)
            offers = {name: room[name] for name in ("cpu", "memory")}
            node = Machine(
                plane, scratch, f"{site.name}", cgroup=site.cgroup, network=site.network, offers=offers
            )
            stack.callback(shutil.rmtree, node.directory, ignore_errors=True)
            stack.callback(node.stop)
            node.start()
        yield Kubelets(made, plane, scratch, host_mhz)

"""The edge on a real API server behind a proxy: what the fault tests stand on, and what they all check.

Lives here: the running edge with the picture that its events paint, pods and nodes in the store. Not here:
the faults themselves (test_edge_watch_faults.py, test_edge_bind_faults.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
import yaml

from gangsched.kube.access.credentials import Credentials, load_credentials
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.dispatcher import Dispatcher
from gangsched.kube.watch.decode import all_kinds, pod_groups
from gangsched.kube.watch.reflector import Reflector
from gangsched.kube.watch.watch_timing import WatchTiming
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.effects import BindPod, Effect
from gangsched.model.events import Event, KindSynced, PodAdded, PodDeleted, PodUpdated
from gangsched.model.objects import Pod
from tests.proxy import Proxy
from tests.support.bodies import node, pod
from tests.support.tasks import until

PODS = "/api/v1/namespaces/default/pods"
# As in production but impatient, so that tests need not wait; page_limit makes several pages of few pods.
TIMING = WatchTiming(
    page_limit=3, silence_s=0.5, probe_timeout_s=3.0, grace_s=0.3, missing_s=0.3, backoff_s=(0.05, 0.5)
)


# A kind of our own, so that a test may bring and remove it without harm to others on this server.
UNSERVED = pod_groups("test", "test.gangsched.io", ("v1alpha1",))


class Edge:
    """A reflector for each kind and a dispatcher, and the picture that their events paint."""

    def __init__(self, client: ApiClient) -> None:
        self.pods: dict[str, Pod] = {}
        self.said: list[Event] = []
        self.n_added: dict[str, int] = {}
        self.reflectors = {
            kind.name: Reflector(client, kind, self._emit, rng=Random(1), timing=TIMING)
            for kind in (*all_kinds(), UNSERVED)
        }
        self.dispatcher = Dispatcher(
            client, emit_nowait=self.said.append, rng=Random(2), instance="test", bind_timeout_s=2.0
        )

    async def _emit(self, events: list[Event]) -> None:
        for event in events:
            self.said.append(event)
            if isinstance(event, PodAdded):
                uid = event.pod.metadata.uid
                assert uid not in self.pods, "told twice"
                self.pods[uid] = event.pod
                self.n_added[uid] = self.n_added.get(uid, 0) + 1
            elif isinstance(event, PodUpdated):
                before = self.pods[event.pod.metadata.uid].metadata.resource_version
                assert int(event.pod.metadata.resource_version) > int(before), "time went backwards"
                self.pods[event.pod.metadata.uid] = event.pod
            elif isinstance(event, PodDeleted):
                del self.pods[event.pod.metadata.uid]

    def heard(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.said if isinstance(event, kind)]

    async def does(self, effect: Effect, answer: type[Any]) -> Any:
        """Submit one effect and wait for an event of this type about its pod."""
        self.dispatcher.submit([effect])
        uid = getattr(effect, "uid", "")
        await until(lambda: [event for event in self.heard(answer) if event.uid == uid])
        return [event for event in self.heard(answer) if event.uid == uid][-1]

    async def agrees(self, cluster: ControlPlane) -> None:
        """Wait until the picture is the store's: every pod, in its latest version, and no other."""

        def picture() -> dict[str, str]:
            return {uid: pod.metadata.resource_version for uid, pod in self.pods.items()}

        items = (await anyio.to_thread.run_sync(cluster.request, "GET", PODS))["items"]
        store = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in items}
        try:
            await until(lambda: picture() == store)
        except TimeoutError:
            raise AssertionError(f"picture {picture()}, store {store}") from None


@asynccontextmanager
async def edge_on(proxy: Proxy, cluster: ControlPlane, directory: Path) -> AsyncIterator[Edge]:
    """The edge, synced, seeing the API server only through the proxy."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    scheme = "https"
    entry = config["clusters"][0]["cluster"]
    if proxy.http:
        entry.pop("certificate-authority-data", None)
        entry["certificate-authority"] = str(directory / "proxy.crt")
    entry["server"] = f"{scheme}://127.0.0.1:{proxy.port}"
    path = directory / "kubeconfig.yaml"
    path.write_text(yaml.safe_dump(config))
    async with edge_by(await load_credentials(kubeconfig=str(path))) as edge:
        yield edge


@asynccontextmanager
async def edge_by(account: Credentials) -> AsyncIterator[Edge]:
    """The edge, synced, by these credentials."""
    async with ApiClient(account) as client, anyio.create_task_group() as group:
        edge = Edge(client)
        for reflector in edge.reflectors.values():
            group.start_soon(reflector.run)
        group.start_soon(edge.dispatcher.run)
        await until(lambda: "pods" in {event.kind for event in edge.heard(KindSynced)})
        await until(lambda: edge.reflectors["pods"].watching)
        yield edge
        group.cancel_scope.cancel()


@pytest.fixture
async def raw(fresh_cluster: ControlPlane) -> AsyncIterator[Proxy]:
    """A proxy that sees only bytes."""
    async with Proxy("127.0.0.1", fresh_cluster.port) as proxy:
        yield proxy


@pytest.fixture
async def http(fresh_cluster: ControlPlane, tmp_path: Path) -> AsyncIterator[Proxy]:
    """A proxy that ends TLS, sees requests and can answer instead of the server."""
    proxy, _ = Proxy.before(fresh_cluster, tmp_path)
    async with proxy:
        yield proxy


def make_pod(cluster: ControlPlane, name: str, **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = cluster.request("POST", PODS, pod(name, schedulerName="gangsched", **spec))
    return made


def delete_pod(cluster: ControlPlane, name: str) -> None:
    cluster.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def make_node(cluster: ControlPlane, name: str) -> None:
    cluster.request("POST", "/api/v1/nodes", node(name))


def bind_of(pod: dict[str, Any], node: str = "n1", *, uid: str = "") -> BindPod:
    meta = pod["metadata"]
    return BindPod(
        uid or meta["uid"], "default", meta["name"], node, {"gangsched.io/rank": "0"}, "g", 1, "cause"
    )


def node_of(cluster: ControlPlane, name: str) -> tuple[str, str]:
    """The node and the rank that the store has for a pod."""
    pod = cluster.request("GET", f"{PODS}/{name}")
    rank = pod["metadata"].get("annotations", {}).get("gangsched.io/rank", "")
    return pod["spec"].get("nodeName", ""), rank


def watches(kind: str = "pods") -> Callable[[str], bool]:
    return lambda request: f"/{kind}?watch=1" in request


def lists(request: str) -> bool:
    return request.startswith("GET /api/v1/pods?limit=")

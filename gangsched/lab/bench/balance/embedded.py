"""The experiment on the embedded API server: the scheduler as it is assembled, over HTTP, in real time.

No agents run: after each bind the worker's annotation is set to the model's values. Time is compressed, so
predictions settle within SETTLE_S.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import msgspec

from gangsched.errors import GangschedError
from gangsched.extension.source import ConfigSource
from gangsched.kube.access.credentials import Credentials, load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.apiserver.app import EmbeddedCluster
from gangsched.lab.bench.balance.model import PLUGINS, WORKERS, Algorithm, Kind, Worker, config
from gangsched.lab.bench.balance.simulated import Placed, allocatable, annotation, pod_document
from gangsched.model.objects import Pod
from gangsched.model.stated.load import LOAD_KEY
from gangsched.process.app import SchedulerApp

SETTLE_S = 0.05
_PODS = "/api/v1/namespaces/default/pods"
_PATIENCE_S = 30.0
_LOOK_S = 0.005

_encode = msgspec.json.encode
_decode_pod = msgspec.json.Decoder(Pod).decode


def place(algorithm: Algorithm, tasks: list[Kind]) -> Placed:
    """Returns the tasks that each worker got. Raises: GangschedError if one is not placed in time."""
    return anyio.run(_place, algorithm, tasks)


async def _place(algorithm: Algorithm, tasks: list[Kind]) -> Placed:
    placed: Placed = {worker.name: [] for worker in WORKERS}
    async with EmbeddedCluster() as cluster:
        with tempfile.TemporaryDirectory(prefix="gangsched-bench-") as directory:
            kubeconfig = cluster.kubeconfig(Path(directory) / "kubeconfig")
            credentials = await load_credentials(kubeconfig=str(kubeconfig))
            client = ApiClient(credentials)
            for worker in WORKERS:
                await _create(client, worker)
            credentials = await load_credentials(kubeconfig=str(kubeconfig))
            async with scheduler(algorithm, credentials, settle_s=SETTLE_S) as app:
                for number, task in enumerate(tasks):
                    name = await run_pod(client, pod_document(task, number))
                    placed[name].append(task)
                    await _report(client, placed, name)
                    await _heard(app, placed)
            client.close()
    return placed


@asynccontextmanager
async def scheduler(
    algorithm: Algorithm, credentials: Credentials, *, settle_s: float
) -> AsyncIterator[SchedulerApp]:
    """Runs one that has listed everything; predictions settle within `settle_s`."""
    read = config(algorithm, settleSeconds=settle_s)
    app = SchedulerApp(read, credentials, even_ties=False, source=ConfigSource("", PLUGINS))
    async with anyio.create_task_group() as running:
        running.start_soon(lambda: app.run(on_signals=False))
        with anyio.fail_after(_PATIENCE_S):
            while not app.scheduler.is_synced:  # noqa: ASYNC110 (it tells nobody)
                await anyio.sleep(_LOOK_S)
        yield app
        running.cancel_scope.cancel()


async def _create(client: ApiClient, worker: Worker) -> None:
    notes = {LOAD_KEY: annotation(worker, [], datetime.now(UTC))}
    await client.post("/api/v1/nodes", _encode({"metadata": {"name": worker.name, "annotations": notes}}))
    room = allocatable(worker)
    status = {"status": {"allocatable": room, "capacity": room}}
    await client.patch(f"/api/v1/nodes/{worker.name}/status", _encode(status))


async def run_pod(client: ApiClient, pod: dict[str, Any]) -> str:
    """Creates the pod and waits for its node. Raises: GangschedError."""
    name = pod["metadata"]["name"]
    await client.post(_PODS, _encode(pod))
    with anyio.move_on_after(_PATIENCE_S):
        while True:
            made = _decode_pod(await client.get(f"{_PODS}/{name}"))
            if made.spec.node_name:
                return made.spec.node_name
            await anyio.sleep(_LOOK_S)
    raise GangschedError(f"task {name} was not placed within {_PATIENCE_S:g} s")


async def _report(client: ApiClient, placed: Placed, changed: str) -> None:
    """Writes the worker's next heartbeat, once its new task must show in it."""
    await anyio.sleep(SETTLE_S)
    worker = next(one for one in WORKERS if one.name == changed)
    notes = {LOAD_KEY: annotation(worker, placed[changed], datetime.now(UTC))}
    body = _encode({"metadata": {"annotations": notes}})
    await client.patch(f"/api/v1/nodes/{changed}", body)


async def _heard(app: SchedulerApp, placed: Placed) -> None:
    """Waits until the scheduler has seen the heartbeat, so that every task is placed by true values."""
    nodes = app.scheduler.shared.cache.nodes
    with anyio.fail_after(_PATIENCE_S):
        for worker in WORKERS:
            value = annotation(worker, placed[worker.name], datetime.now(UTC))
            utilisation = value.partition(',"observedAt"')[0]
            while True:
                node = nodes.nodes[nodes.row_of[worker.name]]
                known = (node.metadata.annotations or {}).get(LOAD_KEY, "") if node is not None else ""
                if known.startswith(utilisation):
                    break
                await anyio.sleep(_LOOK_S)

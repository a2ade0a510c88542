"""The experiment in virtual time: the scheduler's core, with nodes that report the model's values.

A task comes every INTERVAL_S; each worker reports every HEARTBEAT_S what its tasks use. No process, no
server.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.lab.bench.balance.model import PLUGINS, WORKERS, Algorithm, Kind, Worker, config, utilisation
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node, Pod
from gangsched.model.stated.load import LOAD_KEY, NodeLoad, load_annotation
from gangsched.model.text.quantity import to_int, to_milli
from gangsched.plugins import build_profiles

INTERVAL_S = 15.0
HEARTBEAT_S = 10.0
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

Placed = dict[str, list[Kind]]


def place(algorithm: Algorithm, tasks: list[Kind]) -> Placed:
    """Returns the tasks that each worker got. Raises: GangschedError if one fits nowhere."""
    read = config(algorithm)
    scheduler = Scheduler(build_profiles(read, PLUGINS.factories), read.settings)
    placed: Placed = {worker.name: [] for worker in WORKERS}
    now_s, heartbeat_s = 0.0, 0.0
    scheduler.handle([ev.NodeAdded(_node(worker, [], now_s)) for worker in WORKERS], now_s)
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], now_s)
    for number, task in enumerate(tasks):
        now_s += INTERVAL_S
        while heartbeat_s + HEARTBEAT_S <= now_s:
            heartbeat_s += HEARTBEAT_S
            beats = [ev.NodeUpdated(_node(worker, placed[worker.name], heartbeat_s)) for worker in WORKERS]
            scheduler.handle(beats, heartbeat_s)
        pod = pod_of(task, number)
        effects = scheduler.handle([ev.PodAdded(pod)], now_s)
        while (more := scheduler.schedule_next(now_s)) is not None:
            effects += more
        bind = next((effect for effect in effects if isinstance(effect, ef.BindPod)), None)
        if bind is None:
            raise GangschedError(f"{algorithm.name}: task {number} ({task.name}) fits on no worker")
        bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=bind.node))
        scheduler.handle([ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(bound)], now_s)
        placed[bind.node].append(task)
    return placed


def annotation(worker: Worker, tasks: list[Kind], when: datetime) -> str:
    """What the worker's agent writes."""
    return load_annotation(NodeLoad(utilisation(worker, tasks), worker.performance, when))


def allocatable(worker: Worker, *, scale: int = 1) -> dict[str, str]:
    """What its kubelet offers if the worker is scaled down to one `scale`-th."""
    can = worker.performance
    cpu, memory = round(can.cores * 1000 / scale), round(can.memory_bytes / scale)
    return {"cpu": f"{cpu}m", "memory": f"{memory}", "pods": "110"}


def pod_document(task: Kind, number: int, *, scale: int = 1) -> dict[str, Any]:
    """A task as a user writes it."""
    cpu, memory = to_milli(task.cpu_request) / scale, to_int(task.memory_request) / scale
    requests = {"cpu": f"{round(cpu)}m", "memory": f"{round(memory)}"}
    container = {"name": "main", "image": "task", "resources": {"requests": requests}}
    return {
        "metadata": {"name": f"{task.name}-{number}", "namespace": "default"},
        "spec": {"schedulerName": "gangsched", "containers": [container]},
    }


def pod_of(task: Kind, number: int) -> Pod:
    """The same as the core sees it."""
    pod = msgspec.convert(pod_document(task, number), Pod)
    meta = msgspec.structs.replace(pod.metadata, uid=f"task-{number}", resource_version=str(number + 1))
    return msgspec.structs.replace(pod, metadata=meta)


def _node(worker: Worker, tasks: list[Kind], now_s: float) -> Node:
    notes = {LOAD_KEY: annotation(worker, tasks, _EPOCH + timedelta(seconds=now_s))}
    metadata = {"name": worker.name, "uid": worker.name, "annotations": notes}
    return msgspec.convert({"metadata": metadata, "status": {"allocatable": allocatable(worker)}}, Node)

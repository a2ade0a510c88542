"""Part of `bench --core`: what a gang whose pods have persistent volumes costs, on 5,000 nodes with limits.

Each node's CSINode takes 25 volumes of one driver. Run by core_speed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import msgspec

from gangsched.config import default_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.kube.watch.decode import objects
from gangsched.lab.bench.rounds.workload import NAMESPACE, node, node_name
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model import storage
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.plugins.volumes.claims import BIND_COMPLETED, WAITS

N_NODES = 5000
N_MEMBERS = 8
_GPUS = 8
_N_GANGS = 60
_DRIVER = "ebs.csi.aws.com"
_NONE, _SHARED, _OWN, _MADE = "none", "shared", "own", "made"


class VolumeSpeed(msgspec.Struct):
    """Milliseconds a gang, medians: without volumes, with one claim for all, with one each, and with one each
    that a driver provisions for where the pod goes."""

    none_ms: float
    shared_ms: float
    own_ms: float
    made_ms: float

    @property
    def longest_ms(self) -> float:
        return max(self.none_ms, self.shared_ms, self.own_ms, self.made_ms)


def measure(n_nodes: int = N_NODES) -> VolumeSpeed:
    """Measures in this process."""
    return VolumeSpeed(*(_gang_ms(n_nodes, kind) for kind in (_NONE, _SHARED, _OWN, _MADE)))


def _gang_ms(n_nodes: int, kind: str) -> float:
    config = default_config(IN_TREE)
    scheduler = Scheduler(build_profiles(config), config.settings, node_capacity=n_nodes)
    scheduler.handle([ev.NodeAdded(node(i, _GPUS)) for i in range(n_nodes)], 0.0)
    scheduler.handle(list(_of_cluster(n_nodes)), 0.0)
    scheduler.handle([ev.KindSynced(each) for each in scheduler.kinds], 0.0)
    lasted = []
    for number in range(_N_GANGS + 1):
        gang = f"g{number}"
        claims = [gang if kind == _SHARED else f"{gang}-{k}" for k in range(N_MEMBERS)]
        if kind != _NONE:
            scheduler.handle([event for claim in dict.fromkeys(claims) for event in _claim(claim, kind)], 1.0)
        pods = [_pod(f"{gang}-{k}", gang, "" if kind == _NONE else claim) for k, claim in enumerate(claims)]
        scheduler.handle([ev.PodAdded(pod) for pod in pods], 1.0)
        began_s = time.perf_counter()
        effects = scheduler.schedule_next(1.0) or []
        lasted.append((time.perf_counter() - began_s) * 1000)
        if sum(isinstance(effect, ef.BindPod | ef.RunHook) for effect in effects) != N_MEMBERS:
            raise GangschedError(f"{gang} with volumes ({kind}) was not placed")
    return median(lasted[1:])


def _of_cluster(n_nodes: int) -> Iterator[ev.Event]:
    yield _put(storage.CLASSES, "class", provisioner=_DRIVER, volumeBindingMode=WAITS)
    for i in range(n_nodes):
        driver = {"name": _DRIVER, "nodeID": node_name(i), "allocatable": {"count": 25}}
        yield _put(storage.NODES, node_name(i), spec={"drivers": [driver]})


def _claim(name: str, kind: str) -> Iterator[ev.Event]:
    """A claim, with its volume unless that is to be made."""
    modes = {"accessModes": ["ReadWriteMany"]}
    if kind == _MADE:
        amount = {"resources": {"requests": {"storage": "1Gi"}}}
        yield _put(storage.CLAIMS, name, spec={**modes, **amount, "storageClassName": "class"})
        return
    csi = {"driver": _DRIVER, "volumeHandle": name}
    yield _put(storage.VOLUMES, name, spec={**modes, "capacity": {"storage": "1Gi"}, "csi": csi})
    bound = {BIND_COMPLETED: "yes"}
    yield _put(storage.CLAIMS, name, {"annotations": bound}, spec={**modes, "volumeName": name})


def _put(kind: str, name: str, meta: dict[str, Any] | None = None, **body: Any) -> ev.Event:
    namespace = NAMESPACE if kind == storage.CLAIMS else ""
    own = {"name": name, "namespace": namespace, "uid": f"{kind}-{name}", "resourceVersion": "1"}
    raw = msgspec.json.encode({"metadata": {**own, **(meta or {})}, **body})
    return ev.ObjectPut(kind, objects(kind).decode_object(raw))


def _pod(name: str, gang: str, claim: str) -> Pod:
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    own: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1"}
    own |= {"labels": {GROUP_LABEL: gang}, "annotations": {MIN_MEMBERS_KEY: str(N_MEMBERS)}}
    container = {"name": "main", "image": "task", "resources": {"requests": requests}}
    spec = {"schedulerName": "gangsched", "containers": [container], "volumes": volumes}
    return msgspec.convert({"metadata": own, "spec": spec}, Pod)

"""Part of `bench --core`: what gangs cost whose pods have resource claims, on 5,000 nodes of 8 devices each.

Each device has a UUID of its own, each pod a claim of its own for one of them. Also: what claims of others
cost while 10,000 pods wait for a device. Run by core_speed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
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
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.model.resource_claims.objects import CLAIMS, DEVICE_CLASSES, SLICES
from gangsched.plugins import IN_TREE, build_profiles

N_NODES = 5000
N_MEMBERS = 8
N_WAITING = 10_000
_DEVICES = 8
_N_GANGS = 40
_N_EVENTS = 2000
_A_TURN = 10
"""Events that come together where 1,000 come in a second."""
_DRIVER = "gpu.example.com"
Json = dict[str, Any]


class ClaimSpeed(msgspec.Struct):
    """Milliseconds of a decision on a gang: the first one of a process; medians of later ones, of those after
    a slice has changed, and of refusals where all devices are taken. event_us: CPU of a claim of others that
    comes or changes, decoded and applied, while others wait."""

    cold_ms: float
    warm_ms: float
    changed_ms: float
    refused_ms: float
    event_us: float


def measure(n_nodes: int = N_NODES, n_waiting: int = N_WAITING, n_gangs: int = _N_GANGS) -> ClaimSpeed:
    """Measures in this process. Raises: GangschedError if a gang fares otherwise than it should."""
    scheduler = _scheduler(n_nodes)
    lasted = [_decide_ms(scheduler, f"g{number}", is_placed=True) for number in range(n_gangs + 1)]
    changed = []
    for number in range(n_gangs):
        scheduler.handle([_slice(number % n_nodes, generation=2 + number)], 1.0)
        changed.append(_decide_ms(scheduler, f"after{number}", is_placed=True))
    full = _scheduler(n_nodes)
    full.handle([_taken(i) for i in range(n_nodes)], 1.0)
    refused = [_decide_ms(full, f"r{number}", is_placed=False) for number in range(n_gangs)]
    return ClaimSpeed(
        lasted[0], median(lasted[1:]), median(changed), median(refused), _event_us(full, n_nodes, n_waiting)
    )


def _scheduler(n_nodes: int) -> Scheduler:
    config = default_config(IN_TREE)
    scheduler = Scheduler(build_profiles(config), config.settings, node_capacity=n_nodes)
    scheduler.handle([ev.NodeAdded(node(i, 0)) for i in range(n_nodes)], 0.0)
    selector = {"cel": {"expression": f"device.driver == '{_DRIVER}'"}}
    scheduler.handle([_put(DEVICE_CLASSES, {"name": _DRIVER}, spec={"selectors": [selector]})], 0.0)
    scheduler.handle([_slice(i) for i in range(n_nodes)], 0.0)
    kinds = (*scheduler.kinds, *scheduler.newly_watched())
    scheduler.handle([ev.KindSynced(kind) for kind in kinds], 0.0)
    return scheduler


def _decide_ms(scheduler: Scheduler, gang: str, *, is_placed: bool) -> float:
    _submit(scheduler, gang, N_MEMBERS)
    began_s = time.perf_counter()
    effects = scheduler.schedule_next(1.0) or []
    lasted_s = time.perf_counter() - began_s
    written = {one.uid for one in effects if isinstance(one, ef.PatchClaim)}
    if len(written) != N_MEMBERS * is_placed:
        raise GangschedError(f"{gang}: {len(written)} claims are written")
    return lasted_s * 1000


def _event_us(scheduler: Scheduler, n_nodes: int, n_waiting: int) -> float:
    for number in range(n_waiting):
        _submit(scheduler, f"w{number}", 1)
        if scheduler.schedule_next(1.0) is None:
            raise GangschedError(f"w{number} was not tried")
    began_s = time.process_time()
    for first in range(0, _N_EVENTS, _A_TURN):
        scheduler.handle([_of_others(number, n_nodes) for number in range(first, first + _A_TURN)], 1.0)
        while scheduler.schedule_next(1.0) is not None:
            raise GangschedError("a claim of others has a group tried again")
    return (time.process_time() - began_s) / _N_EVENTS * 1e6


def _of_others(number: int, n_nodes: int) -> ev.Event:
    """By turns a claim that comes, and what a driver says of one that is allocated."""
    if number % 2:
        return _put(CLAIMS, {"name": f"new-{number}", "namespace": NAMESPACE}, spec=_spec())
    return _taken(number // 2 % n_nodes, version=number + 2)


def _submit(scheduler: Scheduler, gang: str, n: int) -> None:
    names = [f"{gang}-{k}" for k in range(n)]
    scheduler.handle([*_own_claims(names)], 1.0)
    scheduler.handle([ev.PodAdded(_pod(name, gang, n)) for name in names], 1.0)


def _own_claims(pods: Iterable[str]) -> Iterator[ev.Event]:
    for pod in pods:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": True}
        yield _put(
            CLAIMS, {"name": f"{pod}-gpu", "namespace": NAMESPACE, "ownerReferences": [owner]}, spec=_spec()
        )


def _spec() -> Json:
    exactly = {"deviceClassName": _DRIVER, "allocationMode": "ExactCount", "count": 1}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def _slice(i: int, generation: int = 1) -> ev.Event:
    devices = [
        {
            "name": f"gpu-{k}",
            "attributes": {
                "productName": {"string": "NVIDIA H200"},
                "uuid": {"string": f"GPU-{i}-{k}"},
                "driverVersion": {"version": f"1.0.{generation}"},
            },
            "capacity": {"memory": {"value": "141Gi"}},
        }
        for k in range(_DEVICES)
    ]
    pool = {"name": node_name(i), "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "nodeName": node_name(i), "pool": pool, "devices": devices}
    return _put(SLICES, {"name": f"{node_name(i)}-gpus", "resourceVersion": str(generation)}, spec=spec)


def _taken(i: int, version: int = 1) -> ev.Event:
    """All devices of a node, in one claim of another scheduler's pod, of which its driver says something."""
    each = [
        {"request": "gpu", "driver": _DRIVER, "pool": node_name(i), "device": f"gpu-{k}"}
        for k in range(_DEVICES)
    ]
    status = {
        "allocation": {"devices": {"results": each}},
        "reservedFor": [{"resource": "pods", "name": f"other-{i}", "uid": f"other-{i}"}],
        "devices": [{**each[0], "data": {"version": version}}],
    }
    meta = {"name": f"taken-{i}", "namespace": NAMESPACE, "resourceVersion": str(version)}
    return _put(CLAIMS, meta, spec=_spec(), status=status)


def _put(kind: str, meta: Json, **body: Any) -> ev.Event:
    raw = {"metadata": {"resourceVersion": "1", "uid": f"{kind}-{meta['name']}", **meta}, **body}
    return ev.ObjectPut(kind, objects(kind).decode_object(msgspec.json.encode(raw)))


def _pod(name: str, gang: str, n: int) -> Pod:
    metadata: Json = {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1"}
    metadata |= {"labels": {GROUP_LABEL: gang}, "annotations": {MIN_MEMBERS_KEY: str(n)}}
    container = {"name": "main", "image": "task", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spec = {
        "schedulerName": "gangsched",
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    }
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)

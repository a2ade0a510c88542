"""Workloads with persistent volumes: their nodes, classes, volumes and claims, drawn from a seed.

Local volumes, volumes that a driver makes where the pod goes, volumes that are there already, claims that
several pods share, and claims for one pod at a time. Not here: what becomes of them (lab.sim.world.storage).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY
from gangsched.lab.sim.world.volumes import (
    DISK,
    DRIVER,
    HOST,
    LOCAL,
    MADE,
    NET,
    SHARED,
    WAITS,
    Objects,
    capacity,
    claim,
    claims_of,
    csi_node,
    local_volume,
    metadata,
    namespace_of,
)
from gangsched.model.objects import (
    ClaimVolume,
    Node,
    Pod,
    Volume,
)
from gangsched.model.storage import (
    CAPACITIES,
    CLAIMS,
    CLASSES,
    DRIVERS,
    NODES,
    VOLUMES,
    CsiDriver,
    CsiDriverSpec,
    StorageClass,
)
from gangsched.model.workloads import DisruptionBudgetStatus, PodDisruptionBudget
from gangsched.plugins.default_preemption import BUDGETS

_ANY_POD = msgspec.convert({"metadata": {}, "spec": {"selector": {}}}, PodDisruptionBudget)


def volumes_workload(seed: int, *, n_arrivals: int = 16, over_s: float = 30.0) -> Workload:
    """Returns gangs each of whose pods has a claim or two of its own, or one for all; `storage_of` has the
    objects."""
    rng = Random(f"{seed}-volumes")
    nodes = tuple(_node(f"n{i}") for i in range(rng.randint(2, 4)))
    arrivals = []
    for serial in range(n_arrivals):
        name, n = f"g{serial}", rng.choice((1, 1, 2, 3))
        own = {RUN_KEY: f"{rng.uniform(2.0, 12.0):.2f}"}
        if rng.random() < 0.6:
            own[CONTROLLED_KEY] = "true"
        gpus, priority = rng.choice((0, 1, 2)), rng.choice((0, 0, 0, 5))
        claims = _claims_of(rng, name, n)
        pods = tuple(
            _using(
                make_pod(
                    f"{name}-{k}",
                    group=name if n > 1 else "",
                    min_members=n if n > 1 else 0,
                    gpus=gpus,
                    priority=priority,
                    annotations=own,
                ),
                claims[k],
            )
            for k in range(n)
        )
        arrivals.append(Arrival(over_s * serial / n_arrivals * rng.uniform(0.8, 1.2), pods))
    return Workload(nodes, tuple(arrivals))


def _claims_of(rng: Random, name: str, n: int) -> list[list[str]]:
    """By pod: the names of its claims, which begin with their kind."""
    kinds = (LOCAL, LOCAL, MADE, MADE, NET, SHARED, DISK, "one", *(("one",) * 4 if n == 1 else ()))
    kind, more = rng.choice(kinds), rng.random() < 0.3
    found = []
    for k in range(n):
        own = [f"{kind}-{name}-{k}"]
        if kind in (SHARED, DISK):
            own = [f"{kind}-{name}"]
        elif kind == "one":  # one after the other, of this gang or another
            own = [f"one-{rng.randrange(2)}" if n == 1 else f"one-{name}-{k}"]
        found.append(own + ([f"{MADE}-more-{name}-{k}"] if more else []))
    return found


def _node(name: str) -> Node:
    node = make_node(name, gpus=8)
    labels = {**(node.metadata.labels or {}), HOST: name}
    return replace(node, metadata=replace(node.metadata, labels=labels))


def storage_of(workload: Workload, seed: int) -> Objects:
    """What there is at first: classes, drivers, local volumes, and all claims."""
    rng = Random(f"{seed}-storage")
    found: list[tuple[str, Any]] = [
        (CLASSES, StorageClass(metadata(LOCAL), "kubernetes.io/no-provisioner", WAITS)),
        (CLASSES, StorageClass(metadata(MADE), DRIVER, WAITS)),
        (CLASSES, StorageClass(metadata(NET), DRIVER)),
        (DRIVERS, CsiDriver(metadata(DRIVER), CsiDriverSpec(storage_capacity=rng.random() < 0.5))),
    ]
    for node in workload.nodes:
        name = node.metadata.name
        found.append((NODES, csi_node(name, rng.randint(2, 5))))
        found.append((CAPACITIES, capacity(name, rng.choice((5, 20, 100)))))
        found += [(VOLUMES, local_volume(f"{name}-{k}", name)) for k in range(rng.randint(1, 4))]
    names = {one for arrival in workload.arrivals for pod in arrival.pods for one in claims_of(pod)}
    found += [(CLAIMS, claim(one)) for one in sorted(names)]
    tenants = {namespace_of(one) for one in names if "." in one}
    found += [(BUDGETS, _budget(f"b0-of-{one}", one, rng.randrange(3))) for one in sorted(tenants)]
    return tuple(found)


def of_tenant(pod: Pod) -> Pod:
    """The pod with its claims renamed to those of its own namespace."""
    return _using(pod, [f"{name}.{pod.metadata.namespace}" for name in claims_of(pod)])


def _budget(name: str, namespace: str, n_allowed: int) -> PodDisruptionBudget:
    """Of all pods of a namespace."""
    status = DisruptionBudgetStatus(n_allowed)
    return replace(_ANY_POD, metadata=metadata(name, namespace=namespace), status=status)


def _using(pod: Pod, claims: Sequence[str]) -> Pod:
    volumes = [Volume(name=one, persistent_volume_claim=ClaimVolume(one)) for one in claims]
    return replace(pod, spec=replace(pod.spec, volumes=volumes))

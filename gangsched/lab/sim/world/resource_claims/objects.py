"""Slices, classes and claims of a simulated cluster, as objects.

Nodes have a pool of GPUs each, some another of a GPU in parts, which share a counter; the devices of one more
pool are reached from several nodes. Not here: which of them a run has at first
(lab.sim.workloads.resource_claims), and what becomes of them (the other modules of this room).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from gangsched.lab.sim.world.volumes import HOST
from gangsched.model.objects import Node, Pod
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    DEVICE_CLASSES,
    FINALIZER,
    SLICES,
    TAINT_RULES,
    Consumer,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)

KINDS = (CLAIMS, SLICES, DEVICE_CLASSES, TAINT_RULES)
DRIVER, NET_DRIVER = "gpu.sim", "net.sim"
GPU, PART, NET = "gpu", "part", "net"
"""Classes: of whole GPUs, of parts of one, of devices that several nodes reach."""
BIG = "big"
EXTENDED = "sim.example/gpu"
"""The resource that the class of whole GPUs serves, where no plugin of a node offers it."""
ENTRY_KEY = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim that was made for a pod: the pod's entry."""
TEMPLATE_KEY = "sim/template"
"""Annotation of each claim: the name of what it asks for in TEMPLATES."""
ALL_OF_IT = 8
"""What there is of a divided GPU's counter, and what the whole GPU consumes."""
PARTS = {"whole": 8, "half-0": 4, "half-1": 4, "quarter-0": 2, "quarter-1": 2, "quarter-2": 2}
"""The devices of a divided GPU, and what each consumes of its counter."""
Json = dict[str, Any]
T = TypeVar("T")
Objects = tuple[tuple[str, Any], ...]


class Template(NamedTuple):
    """What a claim asks for. model: of each device; alike: an attribute that all devices share."""

    device_class: str
    n: int = 1
    model: str = ""
    alike: str = ""

    def spec(self) -> Json:
        """The spec of such a claim."""
        exactly: Json = {
            "deviceClassName": self.device_class,
            "allocationMode": "ExactCount",
            "count": self.n,
        }
        if self.model:
            expression = f"device.attributes['{DRIVER}'].model == '{self.model}'"
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        devices: Json = {"requests": [{"name": "it", "exactly": exactly}]}
        if self.alike:
            devices["constraints"] = [{"requests": ["it"], "matchAttribute": f"{DRIVER}/{self.alike}"}]
        return {"devices": devices}


TEMPLATES = {
    "one": Template(GPU),
    "two": Template(GPU, 2),
    "four": Template(GPU, 4),
    "pair": Template(GPU, 2, alike="numa"),
    "big": Template(GPU, model=BIG),
    "part": Template(PART),
    "parts": Template(PART, 2),
    "net": Template(NET),
}


def claim(name: str, template: str, uid: str, *, pod: Pod | None = None, entry: str = "") -> ResourceClaim:
    """A new claim; with a pod one that is made for it."""
    meta: Json = {"name": name, "namespace": "d", "uid": uid, "annotations": {TEMPLATE_KEY: template}}
    if pod is not None:
        meta["annotations"][ENTRY_KEY] = entry
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
        meta["ownerReferences"] = [{**owner, "controller": True}]
    return read({"metadata": meta, "spec": TEMPLATES[template].spec()}, ResourceClaim)


def classes() -> Iterator[DeviceClass]:
    """All classes of devices."""
    for name, expression in (
        (GPU, f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].kind == 'gpu'"),
        (PART, f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].kind == 'part'"),
        (NET, f"device.driver == '{NET_DRIVER}'"),
    ):
        meta = {"name": name, "uid": f"uid-class-{name}"}
        spec: Json = {"selectors": [{"cel": {"expression": expression}}]}
        if name == GPU:
            spec["extendedResourceName"] = EXTENDED
        yield read({"metadata": meta, "spec": spec}, DeviceClass)


def gpus(node: str, n: int, generation: int = 1) -> Json:
    """The slice of a node with n GPUs, in two NUMA nodes, the first of them big."""
    devices = [
        {
            "name": f"gpu-{k}",
            "attributes": {
                "kind": {"string": "gpu"},
                "model": {"string": BIG if k < n // 2 else "small"},
                "numa": {"int": 2 * k // n},
            },
        }
        for k in range(n)
    ]
    return _slice(DRIVER, node, generation, {"nodeName": node, "devices": devices})


def divided(node: str, generation: int = 1) -> tuple[Json, Json]:
    """The slices of a node with a GPU in parts: its counter, and the parts."""
    counter = {"name": "gpu-0", "counters": {"memory": {"value": str(ALL_OF_IT)}}}
    devices = [
        {
            "name": name,
            "attributes": {"kind": {"string": "part"}},
            "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": str(n)}}}],
        }
        for name, n in PARTS.items()
    ]
    pool, there = f"{node}-parts", {"nodeName": node}
    first = _slice(DRIVER, pool, generation, {**there, "sharedCounters": [counter]}, 2, "-set")
    return first, _slice(DRIVER, pool, generation, {**there, "devices": devices}, 2)


def net(nodes: tuple[str, ...], n: int, generation: int = 1) -> Json:
    """The slice of a pool that these nodes reach."""
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": list(nodes)}]}
    devices = [{"name": f"net-{k}"} for k in range(n)]
    reach = {"nodeSelector": {"nodeSelectorTerms": [term]}, "devices": devices}
    return _slice(NET_DRIVER, "net", generation, reach)


def _slice(
    driver: str, pool: str, generation: int, more: Mapping[str, Any], n_slices: int = 1, mark: str = ""
) -> Json:
    name = f"{driver}-{pool}{mark}"
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": n_slices}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"driver": driver, "pool": of_pool, **more},
    }


def slice_of(raw: Json) -> ResourceSlice:
    """The object of such a slice."""
    return read(raw, ResourceSlice)


def claims_of(pod: Pod, claims: Mapping[tuple[str, ...], ResourceClaim]) -> list[ResourceClaim | None]:
    """The pod's claims, in the order of its entries, then the one that its status states for its extended
    resources; None for one that does not exist."""
    named = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses or ()}
    found: list[ResourceClaim | None] = []
    for entry in pod.spec.resource_claims or ():
        name = entry.resource_claim_name or named.get(entry.name)
        one = claims.get((pod.metadata.namespace, name)) if name else None
        if one is not None and entry.resource_claim_name is None and not is_made_for(one, pod):
            one = None
        found.append(one)
    if (stated := pod.status.extended_resource_claim_status) is not None:
        one = claims.get((pod.metadata.namespace, stated.resource_claim_name))
        found.append(one if one is not None and one.extended_for == pod.metadata.uid else None)
    return found


def n_extended(pod: Pod) -> int:
    """How many of EXTENDED its container asks for."""
    stated = pod.spec.containers[0].resources
    return int(((stated.requests if stated is not None else None) or {}).get(EXTENDED, 0))


def lacks_claim(pod: Pod, node: Node | None) -> bool:
    """Whether the pod asks for EXTENDED, no plugin offers that on its node, and its status states no claim: a
    kubelet would refuse it."""
    stated = pod.status.extended_resource_claim_status
    return node is not None and n_extended(pod) > 0 and not offers_extended(node) and stated is None


def offers_extended(node: Node) -> bool:
    """Whether a plugin offers EXTENDED on the node."""
    return int((node.status.allocatable or {}).get(EXTENDED, 0)) > 0


def is_made_for(one: ResourceClaim, pod: Pod) -> bool:
    """Whether the claim was made for this pod."""
    owner = one.metadata.controller
    return owner is not None and owner.uid == pod.metadata.uid


def reserved_for(one: ResourceClaim) -> set[str]:
    """The UIDs in its entries."""
    return {each.uid for each in one.status.reserved_for or ()}


def group_name(pod: Pod) -> str:
    """The core PodGroup that the pod names; "" if none."""
    reference = pod.spec.scheduling_group
    return reference.pod_group_name if reference is not None else ""


def is_reserved_for(one: ResourceClaim, pod: Pod) -> bool:
    """Whether an entry is the pod's, or its PodGroup's."""
    return any(is_entry_of(each, pod) for each in one.status.reserved_for or ())


def is_entry_of(entry: Consumer, pod: Pod) -> bool:
    """Whether the entry is the pod's, or its PodGroup's, whose UID no pod knows."""
    if entry.resource == "podgroups":
        return entry.name == group_name(pod) != ""
    return entry.uid == pod.metadata.uid


def is_usable_on(one: ResourceClaim, node: str) -> bool:
    """Whether it is allocated, and on that node; reads the two forms of selectors that there are here."""
    allocation = one.status.allocation
    if allocation is None or allocation.node_selector is None:
        return allocation is not None
    for term in allocation.node_selector.node_selector_terms or ():
        stated = (*(term.match_fields or ()), *(term.match_expressions or ()))
        if all(node in (each.values or ()) for each in stated):
            return True
    return False


def is_kept(one: ResourceClaim) -> bool:
    """Whether it has the finalizer, without which a deleted claim would free a running pod's devices."""
    return FINALIZER in (one.metadata.finalizers or ())


def raw_of(item: Any) -> Json:
    """The object as the API writes it."""
    found: Json = json.loads(msgspec.json.encode(item))
    return found


def read(raw: Json, type_: type[T]) -> T:
    """The object that the API writes so."""
    return msgspec.json.decode(json.dumps(raw).encode(), type=type_)

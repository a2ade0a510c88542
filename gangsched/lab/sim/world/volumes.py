"""Volumes, claims, classes and drivers of a simulated cluster, as objects.

Not here: which of them a run has at first (lab.sim.workloads.volumes), and what becomes of them
(lab.sim.world.storage).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gangsched.model.objects import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    ResourceRequirements,
    SelectorRequirement,
)
from gangsched.model.storage import (
    CAPACITIES,
    CLAIMS,
    CLASSES,
    DRIVERS,
    NODES,
    VOLUMES,
    Allocatable,
    ClaimSpec,
    CsiNode,
    CsiNodeSpec,
    CsiStorageCapacity,
    NodeDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeNodeAffinity,
    VolumeSpec,
    VolumeStatus,
)
from gangsched.plugins.default_preemption import BUDGETS

HOST = "kubernetes.io/hostname"
DRIVER = "csi.sim"
LOCAL, MADE, NET = "local", "made", "net"
"""Classes: of local volumes; of those made where the pod goes; of those made at once, for every node."""
SHARED, DISK = "shared", "disk"
"""Claims for a whole gang: to a volume that is made, or a local one."""
ONCE, MANY, ONE_POD = "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"
WAITS = "WaitForFirstConsumer"
SELECTED = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node for which its volume is to be made."""
Objects = tuple[tuple[str, Any], ...]


def claims_of(pod: Pod) -> list[str]:
    """The names of the claims that it uses."""
    sources = (one.persistent_volume_claim for one in pod.spec.volumes or ())
    return [one.claim_name for one in sources if one is not None]


def claim(name: str, mark: str = "") -> PersistentVolumeClaim:
    """A new claim of that name, which is bound to nothing."""
    kind = name.partition("-")[0]
    modes = {SHARED: [MANY], DISK: [MANY], "one": [ONE_POD]}.get(kind, [ONCE])
    spec = ClaimSpec(
        access_modes=modes,
        resources=ResourceRequirements(requests={"storage": "5Gi"}),
        storage_class_name=kind if kind in (LOCAL, MADE, NET) else LOCAL if kind == DISK else MADE,
    )
    return PersistentVolumeClaim(metadata(name, namespace=namespace_of(name), mark=mark), spec)


def namespace_of(name: str) -> str:
    """A claim's namespace, which stands after a dot in its name: so no two claims share a name."""
    return name.partition(".")[2] or "d"


def local_volume(name: str, node: str, mark: str = "") -> PersistentVolume:
    """Makes a free volume on one node."""
    spec = VolumeSpec(
        access_modes=[ONCE, MANY],
        capacity={"storage": "10Gi"},
        storage_class_name=LOCAL,
        node_affinity=only_on(node),
    )
    return PersistentVolume(metadata(name, mark=mark), spec, VolumeStatus("Available"))


def only_on(node: str) -> VolumeNodeAffinity:
    """The affinity of a volume to one node."""
    term = NodeSelectorTerm([SelectorRequirement(HOST, "In", [node])])
    return VolumeNodeAffinity(NodeSelector([term]))


def csi_node(name: str, limit: int) -> CsiNode:
    """The driver on a node, which may have at most `limit` volumes attached."""
    return CsiNode(metadata(name), CsiNodeSpec([NodeDriver(DRIVER, Allocatable(limit))]))


def capacity(node: str, gib: int) -> CsiStorageCapacity:
    """The capacity that the driver reports for a node."""
    selector = LabelSelector(match_labels={HOST: node})
    return CsiStorageCapacity(metadata(f"on-{node}", namespace="kube-system"), MADE, selector, f"{gib}Gi")


def kinds() -> Iterator[str]:
    """The kinds of these objects."""
    yield from (CLASSES, DRIVERS, NODES, CAPACITIES, VOLUMES, CLAIMS, BUDGETS)


def metadata(name: str, *, namespace: str = "", mark: str = "") -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace, uid=claim_uid(name, mark))


def claim_uid(name: str, mark: str = "") -> str:
    """mark: tells a recreated object from its predecessor."""
    return f"uid-{name}{mark}"

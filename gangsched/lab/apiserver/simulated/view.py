"""Pods and Nodes as cached by the simulated cluster: the few fields that matter.

Lives here: their decoding and the indices by node and by owner. Not here: reacting to them. cluster.py passes
every change in, before the controllers get it.
"""

from __future__ import annotations

import msgspec

from gangsched.lab.apiserver.storage.store import Item
from gangsched.model.objects import SchedulingGroup, Taint, Toleration


class _Wire(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    pass


class Owner(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """One ownerReference."""

    uid: str
    kind: str = ""
    name: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Meta(_Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None


class PodClaim(_Wire):
    """An entry of `spec.resourceClaims`: a claim by name, or one to be made from a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _PodSpec(_Wire):
    node_name: str = ""
    resource_claims: tuple[PodClaim, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    tolerations: list[Toleration] | None = None


class _Condition(_Wire):
    type: str = ""
    status: str = ""


class _ContainerStatus(_Wire):
    restart_count: int = 0


class _MadeClaim(_Wire):
    name: str = ""
    resource_claim_name: str | None = None


class _ExtendedClaim(_Wire):
    resource_claim_name: str = ""


class _PodStatus(_Wire):
    phase: str = ""
    resource_claim_statuses: tuple[_MadeClaim, ...] = ()
    extended_resource_claim_status: _ExtendedClaim | None = None
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None


class Named(_Wire):
    """An object as of the last event."""

    metadata: Meta

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


class PodView(Named):
    """A pod as of the last event."""

    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def node(self) -> str:
        return self.spec.node_name

    @property
    def group(self) -> str:
        """The core PodGroup that it names."""
        return self.spec.scheduling_group.pod_group_name if self.spec.scheduling_group else ""

    @property
    def claims(self) -> tuple[PodClaim, ...]:
        """Its claims of devices."""
        return self.spec.resource_claims

    @property
    def extended_claim(self) -> str:
        """The claim that serves its extended resources, if a scheduler made one."""
        extended = self.status.extended_resource_claim_status
        return extended.resource_claim_name if extended else ""

    @property
    def phase(self) -> str:
        return self.status.phase

    @property
    def is_terminal(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_deleted(self) -> bool:
        """Whether it is marked for deletion; it may still exist for a while."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def is_active(self) -> bool:
        return not self.is_terminal and not self.is_deleted

    @property
    def is_ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())

    @property
    def n_restarts(self) -> int:
        return sum(each.restart_count for each in self.status.container_statuses or ())


class _NodeSpec(_Wire):
    taints: list[Taint] | None = None
    unschedulable: bool = False
    pod_cidr: str = msgspec.field(default="", name="podCIDR")


class Address(_Wire):
    type: str = ""
    address: str = ""


class _NodeStatus(_Wire):
    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None
    conditions: list[_Condition] | None = None
    addresses: list[Address] | None = None


class NodeView(Named):
    """A node as of the last event."""

    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)

    @property
    def namespace(self) -> str:
        return ""

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}

    @property
    def taints(self) -> list[Taint]:
        return self.spec.taints or []

    @property
    def ip(self) -> str:
        return next((each.address for each in self.status.addresses or () if each.type == "InternalIP"), "")

    def condition(self, type_: str) -> str:
        """Returns True, False, Unknown, or "" if there is none."""
        return next((each.status for each in self.status.conditions or () if each.type == type_), "")


_pod = msgspec.json.Decoder(PodView)
_node = msgspec.json.Decoder(NodeView)
_meta = msgspec.json.Decoder(Named)


def meta_of(item: Item) -> Meta:
    return _meta.decode(item.raw).metadata


def pod_of(item: Item) -> PodView:
    return _pod.decode(item.raw)


def node_of(item: Item) -> NodeView:
    return _node.decode(item.raw)


class View:
    """All pods and nodes. Within an index they are in the order of their first events."""

    def __init__(self) -> None:
        self.pods: dict[str, PodView] = {}
        self.nodes: dict[str, NodeView] = {}
        self._on_node: dict[str, dict[str, PodView]] = {}
        self._of_owner: dict[str, dict[str, PodView]] = {}

    def put_pod(self, pod: PodView) -> PodView | None:
        """Stores a pod; returns its earlier state."""
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        if pod.node:
            self._on_node.setdefault(pod.node, {})[pod.uid] = pod
        for owner in _owners(before) | _owners(pod):
            if owner in _owners(pod):
                self._of_owner.setdefault(owner, {})[pod.uid] = pod
            else:
                _drop(self._of_owner, owner, pod.uid)
        return before

    def drop_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            _drop(self._on_node, pod.node, uid)
            for owner in _owners(pod):
                _drop(self._of_owner, owner, uid)

    def on_node(self, name: str) -> list[PodView]:
        """Returns the pods bound to it, in the order of their binds."""
        return list(self._on_node.get(name, {}).values())

    def controlled_by(self, uid: str) -> list[PodView]:
        """Returns the pods with this controller."""
        return list(self._of_owner.get(uid, {}).values())


def _owners(pod: PodView | None) -> set[str]:
    if pod is None or not pod.metadata.owner_references:
        return set()
    return {each.uid for each in pod.metadata.owner_references if each.controller}


def _drop(index: dict[str, dict[str, PodView]], key: str, uid: str) -> None:
    held = index.get(key)
    if held is not None:
        held.pop(uid, None)
        if not held:
            del index[key]

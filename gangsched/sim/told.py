"""Told: what one scheduler process has been told and has promised, kept apart from the scheduler itself.

A second, much simpler bookkeeping of nodes, pods and binds on the way, fed with the very events and effects
of the process; sim.checkers judges each BindPod by it at the moment it is decided. A bind on the way ends
only by the API's word: bound, refused, taken back, or read as not bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gangsched.core.framework import Code
from gangsched.errors import ParseError
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.device_labels import allocation_text, inventory_text
from gangsched.model.devices import parse_allocation, parse_inventory
from gangsched.model.objects import Node, Pod
from gangsched.model.resources import PODS, parse_quantities, pod_requests


class Claim(msgspec.Struct, frozen=True):
    """What one pod takes of one node. ids: resource -> device IDs."""

    uid: str
    node: str
    requests: Mapping[str, int]
    ids: Mapping[str, frozenset[str]]


class Told:
    """Nodes and pods as delivered, and binds not yet answered."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.promised: dict[str, Claim] = {}
        self.bind_hooks: dict[int, str] = {}
        """UIDs that Bind plugins were asked to bind, by ticket."""

    def hear(self, events: Iterable[ev.Event]) -> None:
        """Applies what the process is about to be told."""
        for event in events:
            if isinstance(event, ev.PodAdded | ev.PodUpdated):
                self._see(event.pod)
            elif isinstance(event, ev.PodDeleted):
                self.pods.pop(event.pod.metadata.uid, None)
                self.promised.pop(event.pod.metadata.uid, None)
            elif isinstance(event, ev.NodeAdded | ev.NodeUpdated):
                self.nodes[event.node.metadata.name] = event.node
            elif isinstance(event, ev.NodeDeleted):
                known = self.nodes.get(event.node.metadata.name)
                if known is not None and known.metadata.uid == event.node.metadata.uid:
                    del self.nodes[event.node.metadata.name]
            elif isinstance(event, ev.BindFailed | ev.BindCancelled):
                self.promised.pop(event.uid, None)
            elif isinstance(event, ev.HookAnswered):
                uid = self.bind_hooks.pop(event.ticket, "")
                if event.code in (Code.UNSCHEDULABLE.value, Code.SKIP.value):  # not by this one
                    self.promised.pop(uid, None)
            elif isinstance(event, ev.PodRead):
                if event.pod is not None and event.pod.spec.node_name:
                    if event.uid in self.pods:  # else it is gone by now, and the answer is old
                        self._see(event.pod)
                else:
                    self.promised.pop(event.uid, None)

    def _see(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        known = self.pods.get(uid)
        if known is None or _version(pod) > _version(known):
            self.pods[uid] = pod
            if pod.spec.node_name:
                self.promised.pop(uid, None)

    def promise(self, bind: ef.BindPod) -> None:
        """Notes that a bind is on its way."""
        self.promised[bind.uid] = self.claim_of_bind(bind)

    def claim_of_bind(self, bind: ef.BindPod) -> Claim:
        pod = self.pods[bind.uid]
        return Claim(bind.uid, bind.node, _requests(pod), ids_in(bind.annotations, bind.labels))

    def claims_on(self, node: str) -> Iterator[Claim]:
        """Everybody who holds something on the node: bound and alive, or promised."""
        for uid, pod in self.pods.items():
            if pod.spec.node_name == node and not pod.is_terminal:
                yield Claim(uid, node, _requests(pod), ids_of(pod))
        for claim in self.promised.values():
            if claim.node == node:
                yield claim


def ids_of(pod: Pod) -> dict[str, frozenset[str]]:
    """Resource -> the device IDs that a pod says it has."""
    return ids_in(pod.metadata.annotations, pod.metadata.labels)


def ids_in(
    annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None = None
) -> dict[str, frozenset[str]]:
    """Resource -> device IDs of an allocation; nothing where there is none or it is broken."""
    try:
        allocation = parse_allocation(allocation_text(annotations, labels) or "{}")
    except ParseError:
        return {}
    found: dict[str, frozenset[str]] = {}
    for sets in allocation.values():
        for resource, ids in sets.items():
            found[resource] = found.get(resource, frozenset()) | frozenset(ids)
    return found


def healthy_ids(node: Node) -> dict[str, frozenset[str]] | None:
    """Resource -> IDs that may be handed out; None where the inventory does not parse."""
    text = inventory_text(node.metadata.annotations, node.metadata.labels)
    if text is None:
        return {}
    try:
        found = parse_inventory(text)
    except ParseError:
        return None
    return {resource: frozenset(one.ids_of(one.healthy)) for resource, one in found.items()}


def allocatable(node: Node) -> dict[str, int]:
    return parse_quantities(node.status.allocatable)


def _requests(pod: Pod) -> Mapping[str, int]:
    try:
        return pod_requests(pod.spec)
    except ParseError:
        return {PODS: 1}


def _version(pod: Pod) -> int:
    return int(pod.metadata.resource_version)

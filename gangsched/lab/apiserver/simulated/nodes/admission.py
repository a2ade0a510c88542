"""Whether a kubelet admits a pod that was bound to its node: devices first, then resources and the rest.

Lives here: a node's room, the part held by pods, and the rejections in kubelet's own words. Not here: a pod's
further life (kubelets.py). Source of order and wording: kubernetes pkg/kubelet/kubelet.go (the list of admit
handlers), cm/devicemanager/manager.go, lifecycle/predicate.go, read in v1.37.

A resource with an inventory (`gangsched.io/devices`) is allocated by a device plugin, so a request beyond it
is an UnexpectedAdmissionError. A resource that is only a number is compared with allocatable, and a request
beyond it is OutOf….
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from gangsched.model.devices.annotations import ALLOCATED_KEY, device_demand, parse_allocation
from gangsched.model.devices.labels import allocation_text
from gangsched.model.objects import (
    Container,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    ResourceRequirements,
    SelectorRequirement,
    Taint,
    Toleration,
)
from gangsched.model.resources import PODS, is_extended, pod_requests
from gangsched.model.text.printable import several

UNEXPECTED = "UnexpectedAdmissionError"
Devices = frozenset[tuple[str, str]]
"""What a pod holds: resource name and device ID."""


class Refusal(NamedTuple):
    """Why a pod is Failed for good. `complaint` is set if a device was allocated wrongly."""

    reason: str
    message: str
    complaint: str = ""


class Admitted(NamedTuple):
    """The part of its node's room that a live pod holds."""

    requests: Mapping[str, int]
    devices: Devices
    host_ports: frozenset[tuple[str, str, int]] = frozenset()


class Room:
    """One node's room; `devices` is every device with its health, by resource."""

    def __init__(self) -> None:
        self.allocatable: dict[str, int] = {}
        self.labels: dict[str, str] = {}
        self.taints: list[Taint] = []
        self.devices: dict[str, dict[str, bool]] = {}
        self._held: dict[str, Admitted] = {}
        self._used: dict[str, int] = {}
        self._holder: dict[tuple[str, str], str] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    def admit(self, uid: str, name: str, pod: Pod) -> Admitted | Refusal:
        """Admits the pod, or returns why not. `name` is the node's. Raises: ParseError."""
        pod = _without_served(pod)
        requests = pod_requests(pod.spec)
        devices = self._allocate(uid, pod)
        if isinstance(devices, Refusal):
            return devices
        ports = _host_ports(pod.spec)
        refusal = self._predicates(requests, pod.spec, name, ports)
        if refusal is not None:
            return refusal
        admitted = Admitted(requests, devices, ports)
        self._held[uid] = admitted
        for resource, amount in requests.items():
            self._used[resource] = self._used.get(resource, 0) + amount
        for device in devices:
            self._holder[device] = uid
        return admitted

    def release(self, uid: str) -> None:
        """Frees the room of a pod whose containers have ended; no error if it holds nothing."""
        admitted = self._held.pop(uid, None)
        if admitted is None:
            return
        for resource, amount in admitted.requests.items():
            self._used[resource] -= amount
        for device in admitted.devices:
            del self._holder[device]

    def sick(self) -> list[tuple[str, str, str]]:
        """Returns held devices that are unhealthy or gone: (holder's UID, resource, ID)."""
        return sorted(
            (uid, resource, device)
            for (resource, device), uid in self._holder.items()
            if not self.devices.get(resource, {}).get(device, False)
        )

    def _allocate(self, uid: str, pod: Pod) -> Devices | Refusal:
        text = allocation_text(pod.metadata.annotations, pod.metadata.labels)
        planned = parse_allocation(text) if text else {}
        taken: dict[tuple[str, str], None] = {}
        for resource, known in self.devices.items():
            for container, count, runs in device_demand(pod.spec, resource):
                planned_ids = planned.get(container, {}).get(resource)
                if planned_ids is None:
                    got = self._any(resource, count, taken)
                else:
                    got = self._told(resource, planned_ids, count, known, taken if runs else {})
                if isinstance(got, Refusal):
                    return got
                # A plain init container passes its devices on to the next container.
                if runs:
                    taken.update(dict.fromkeys((resource, device) for device in got))
        return frozenset(taken)

    def _any(self, resource: str, count: int, taken: Iterable[tuple[str, str]]) -> list[str] | Refusal:
        """Takes the first free devices, as a device plugin would, if none were named."""
        healthy = [device for device, fit in self.devices[resource].items() if fit]
        if not healthy:
            return _unexpected(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        own = set(taken)
        free = [
            device
            for device in healthy
            if (resource, device) not in self._holder and (resource, device) not in own
        ]
        if len(free) < count:
            return _unexpected(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {count}, Available: {len(free)}"
            )
        return free[:count]

    def _told(
        self,
        resource: str,
        planned_ids: tuple[str, ...],
        count: int,
        known: Mapping[str, bool],
        taken: Iterable[tuple[str, str]],
    ) -> list[str] | Refusal:
        """Takes the devices that the scheduler named; any problem with them is a complaint."""
        own = set(taken)
        wrong = ""
        n_told = len(set(planned_ids))
        if n_told != count:
            devices = several(n_told, "device")
            wrong = f"{ALLOCATED_KEY} names {devices} of {resource}, the container asks for {count}"
        for device in planned_ids:
            holder = self._holder.get((resource, device))
            if device not in known:
                wrong = wrong or f"{resource} {device} is not on this node"
            elif not known[device]:
                wrong = wrong or f"{resource} {device} is unhealthy"
            elif holder is not None:
                wrong = wrong or f"{resource} {device} is held by another live pod (UID {holder})"
            elif (resource, device) in own:
                wrong = wrong or f"{resource} {device} is given to two containers of this pod"
        if wrong:
            return _unexpected(wrong)._replace(complaint=wrong)
        return list(planned_ids)

    def _predicates(
        self, requests: Mapping[str, int], spec: PodSpec, name: str, ports: frozenset[tuple[str, str, int]]
    ) -> Refusal | None:
        for resource in sorted(requests, key=_kubelet_order):
            # An extended resource that the node does not know may be cluster-wide: kubelet ignores it.
            if is_extended(resource) and resource not in self.allocatable:
                continue
            used, capacity = self._used.get(resource, 0), self.allocatable.get(resource, 0)
            if requests[resource] > capacity - used:
                return Refusal(
                    f"OutOf{resource}",
                    f"Node didn't have enough resource: {resource}, requested: {requests[resource]}, "
                    f"used: {used}, capacity: {capacity}",
                )
        if not matches_node(spec, self.labels, name):
            return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
        if any(
            _clash(port, other) for held in self._held.values() for other in held.host_ports for port in ports
        ):
            return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
        for taint in self.taints:
            if taint.effect == "NoExecute" and not any(
                tolerates(each, taint) for each in spec.tolerations or ()
            ):
                return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
        return None


def _without_served(pod: Pod) -> Pod:
    """The pod without the requests that the claim in its status serves.

    Source: pkg/kubelet/lifecycle/predicate.go, removeMissingExtendedResources.
    """
    stated = pod.status.extended_resource_claim_status
    if stated is None:
        return pod
    served = {(one.container_name, one.resource_name) for one in stated.request_mappings}

    def left(container: Container) -> Container:
        given = container.resources
        if given is None:
            return container
        parts = [
            {name: n for name, n in (part or {}).items() if (container.name, name) not in served}
            for part in (given.requests, given.limits)
        ]
        return replace(container, resources=ResourceRequirements(*parts))

    containers = [left(one) for one in pod.spec.containers]
    first = [left(one) for one in pod.spec.init_containers or ()]
    return replace(pod, spec=replace(pod.spec, containers=containers, init_containers=first))


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Source: k8s.io/api core/v1/toleration.go, ToleratesTaint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and bool(toleration.key) and toleration.value == taint.value


def matches_node(spec: PodSpec, labels: Mapping[str, str], name: str) -> bool:
    """Whether the node matches the pod's nodeSelector and required node affinity."""
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return True
    fields = {"metadata.name": name}
    return any(_term(term, labels, fields) for term in required.node_selector_terms or ())


def _term(term: NodeSelectorTerm, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions, on_fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not on_fields:
        return False  # an empty term matches nothing
    return all(_requirement(each, labels) for each in expressions) and all(
        _requirement(each, fields) for each in on_fields
    )


def _requirement(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    values = requirement.values or []
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                number, bound = int(value or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return number > bound if operator == "Gt" else number < bound
    return False


def _host_ports(spec: PodSpec) -> frozenset[tuple[str, str, int]]:
    return frozenset(
        (port.host_ip, port.protocol, port.host_port)
        for container in spec.containers
        for port in container.ports or ()
        if port.host_port
    )


def _clash(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    everywhere = ("", "0.0.0.0")
    same_ip = one[0] == other[0] or one[0] in everywhere or other[0] in everywhere
    return same_ip and one[1:] == other[1:]


def _kubelet_order(resource: str) -> tuple[int, str]:
    order = (PODS, "cpu", "memory", "ephemeral-storage")
    return (order.index(resource) if resource in order else len(order), resource)


def _predicate(name: str, why: str) -> Refusal:
    return Refusal(name, f"Predicate {name} failed: {why}")


def _unexpected(why: str) -> Refusal:
    return Refusal(UNEXPECTED, f"Allocate failed due to {why}, which is unexpected")

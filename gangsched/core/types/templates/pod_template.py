"""PodTemplate: the scheduling-relevant part of a pod, computed once for all pods that share it.

Called by core.cache.cache when a pod is first seen. Two pods with equal signatures are interchangeable to
every plugin. Source of the idea: KEP-5598 (opportunistic batching), SignPod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import TypeVar

import msgspec
import numpy as np

from gangsched.core.resource_claims.pod_claims import ClaimNeed
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.templates.affinity_terms import Carried, affinity_terms_of, spread_selectors_of
from gangsched.core.types.templates.spec_limits import n_node_requirements, over_limit, plain
from gangsched.core.why import Why
from gangsched.core.why.not_tried import NotDoneYet
from gangsched.errors import ParseError
from gangsched.model.devices.annotations import device_demand
from gangsched.model.devices.constraints import CONSTRAINTS_KEY, DeviceConstraint, parse_constraints
from gangsched.model.devices.foreign_shares import refused_share, share_keys
from gangsched.model.devices.required_ids import (
    ALL_RESOURCES,
    NONE_REQUIRED,
    REQUIRE_IDS_KEY,
    parse_required_ids,
)
from gangsched.model.objects import Pod, PodSpec
from gangsched.model.resources import PODS, ResourceTable, container_requests, pod_requests, unstated_room
from gangsched.model.selectors import Selector
from gangsched.reading.strict import nearest

ReadT = TypeVar("ReadT", bound=Collection[str])

HostPort = tuple[str, str, int]
"""(host IP or "0.0.0.0", protocol, port); each is there a second time with ANY_ADDRESS instead of its IP."""
ANY_ADDRESS = ""


NO_LABELS: Mapping[str, str] = {}
_NO_NAMES: frozenset[str] = frozenset()
_NO_CONSTRAINTS: Mapping[str, DeviceConstraint] = {}


def signature(
    pod: Pod, labels: Mapping[str, str] = NO_LABELS, claims: Sequence[ClaimNeed] | None = ()
) -> tuple[object, ...]:
    """A key that is equal for pods that no plugin can distinguish. labels: those that some selector reads.
    claims: what the pod needs of its resource claims, None: they are not ready."""
    spec = pod.spec
    return (
        pod.metadata.namespace,
        spec.node_name,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.containers,
        spec.init_containers,
        spec.resources,
        spec.overhead,
        spec.host_network,
        spec.host_users,
        _signed_volumes(pod) if spec.volumes else None,
        unsupported(spec),
        spec.topology_spread_constraints,
        labels,
        device_demands_of(pod),
        share_keys(pod.metadata.annotations),
        pod.unreadable,
        claims,
    )


def device_demands_of(pod: Pod) -> tuple[str | None, str | None] | None:
    """(device constraints, required device IDs) in the pod's annotations, unparsed; None: neither."""
    annotations = pod.metadata.annotations
    if not annotations:
        return None
    constraints, required = annotations.get(CONSTRAINTS_KEY), annotations.get(REQUIRE_IDS_KEY)
    return None if constraints is None and required is None else (constraints, required)


class Unsigned(msgspec.Struct, frozen=True):
    """A plugin failed to sign the pod; the pod is rejected with this reason."""

    problem: Why


class PodTemplate:
    """The part of a pod that plugins see.

    pod: one of the pods that share it; of its metadata only the namespace and what is signed
    (PodSigningPlugin) hold for all of them. problem: why its pods cannot be placed at all. spec: without the
    lists that are compared with nodes and pods, if one of them is above its limit
    (core.types.templates.spec_limits).

    requests: the non-zero requests by name. names/columns/amounts: the requests for resources that some node
    has had, as parallel lists into the resource columns; column_array int64[k] and amount_array int64[k, 1]:
    the same as arrays; by_column: the same as a mapping. missing: the other requested resources; columns are
    made only for resources that nodes offer, never for pods' requests, so that invented names cannot fill the
    table. padding: (cpu, memory) that scores count on the pod's node beyond its requests; None: nothing.
    images: the images it runs and mounts, named as nodes report them, one for each container and image
    volume. labels: its pods' labels that some selector reads. affinity_terms: its terms about other pods.
    spread_selectors: the selector of each of its spec's spread constraints. needs: plugins without which it
    must not be placed, and why. volumes: those that restrict its nodes. constraints: requirements on its
    devices beyond their number, by resource. required_ids: the resources whose device IDs must be known on
    its node, by its own annotation. asks_for_devices: a container requests an extended resource;
    device_resources: these. by_container: several do, or one requests several, so each gets its own list.
    claims: what it needs of its resource claims; None: they are not ready. by_class: the resources that
    device classes serve where no plugin does.
    """

    __slots__ = (
        "__weakref__",
        "_demand",
        "affinity_terms",
        "amount_array",
        "amounts",
        "asks_for_devices",
        "by_class",
        "by_column",
        "by_container",
        "claims",
        "column_array",
        "columns",
        "constraints",
        "device_resources",
        "host_ports",
        "images",
        "labels",
        "missing",
        "n_node_requirements",
        "n_pod_terms",
        "names",
        "namespace",
        "needs",
        "padding",
        "pod",
        "problem",
        "requests",
        "required_ids",
        "serial",
        "spec",
        "spread_selectors",
        "volumes",
    )

    def __init__(
        self,
        pod: Pod,
        table: ResourceTable,
        serial: int,
        labels: Mapping[str, str] = NO_LABELS,
        claims: tuple[ClaimNeed, ...] | None = (),
    ) -> None:
        self.serial = serial
        self.pod = pod
        self.labels = labels
        self.affinity_terms: tuple[Carried, ...] = affinity_terms_of(pod)
        self.namespace = pod.metadata.namespace
        self.problem: Why = over_limit(pod.spec)
        self.spec: PodSpec = plain(pod.spec) if self.problem else pod.spec
        self.spread_selectors: tuple[Selector | None, ...] = spread_selectors_of(self.spec, labels)
        self.n_pod_terms = len(self.affinity_terms) + len(self.spread_selectors)
        self.n_node_requirements = n_node_requirements(self.spec)
        self.padding: tuple[int, int] | None = None
        try:
            self.requests: Mapping[str, int] = pod_requests(pod.spec)
            self.padding = unstated_room(pod.spec, self.requests)
        except ParseError as error:
            self.problem = self.problem or f"spec.containers.resources: {error}"
            self.requests = {PODS: 1}
        if pod.unreadable:
            self.problem = f"{pod.unreadable} cannot be read"
        self.problem = self.problem or unsupported(pod.spec)
        self.problem = self.problem or _of_share(pod, self.requests)
        self.needs = _needs(self.spec)
        self.volumes = tuple(volume for volume in pod.spec.volumes or () if volume.is_storage)
        constraints, required = device_demands_of(pod) or (None, None)
        self.constraints = self._read(constraints, CONSTRAINTS_KEY, parse_constraints, _NO_CONSTRAINTS)
        self.required_ids = self._read(required, REQUIRE_IDS_KEY, parse_required_ids, NONE_REQUIRED)
        n_asked = _n_device_requests(pod.spec) if len(self.requests) > 1 else 0
        self.asks_for_devices = n_asked > 0
        self.device_resources = tuple(name for name in self.requests if "/" in name) if n_asked else ()
        self.by_container = n_asked > 1
        self.resolve(table)
        self.claims = claims
        extended = [need.extended for need in claims or () if need.extended is not None]
        self.by_class: frozenset[str] = extended[0].resources if extended else _NO_NAMES
        if extended and not self.spec.resource_claims:
            what = f"{min(self.by_class, default='its claim')}, which a DeviceClass serves"
            self.needs = (*self.needs, ("DynamicResources", what))
        self.host_ports: tuple[HostPort, ...] = tuple(sorted(_host_ports(pod.spec)))
        self.images: tuple[str, ...] = tuple(_images(pod.spec))
        self._demand: dict[str, tuple[tuple[str, int, bool], ...]] = {}

    def resolve(self, table: ResourceTable) -> None:
        """Looks up the requests' columns again; counts of this template by column must be rebuilt then."""
        names = [name for name in self.requests if name in table]
        self._put_amounts(names, [table.column(name) for name in names])
        self.missing: tuple[str, ...] = tuple(name for name in self.requests if name not in table)

    def _put_amounts(self, names: list[str], columns: list[int]) -> None:
        self.names, self.columns = names, columns
        self.amounts: list[int] = [self.requests[name] for name in names]
        self.column_array: IntArray = np.array(columns, dtype=np.int64)
        self.amount_array: IntArray = np.array(self.amounts, dtype=np.int64).reshape(-1, 1)
        self.by_column: dict[int, int] = dict(zip(columns, self.amounts, strict=True))

    def reduced(self, amounts: Mapping[int, tuple[str, int]], serial: int) -> PodTemplate:
        """A copy that requests only these amounts, and has nothing else that affects other pods.

        amounts: column -> (resource name, amount).
        """
        found = copy(self)
        found.serial = serial
        found.requests = dict(amounts.values())
        found._put_amounts(list(found.requests), list(amounts))
        found.missing, found.padding, found.labels, found.affinity_terms = (), None, NO_LABELS, ()
        found.volumes, found.host_ports, found.images, found.needs = (), (), (), ()
        return found

    def _read(self, text: str | None, key: str, parse: Callable[[str], ReadT], nothing: ReadT) -> ReadT:
        """Parses an annotation about resources; the pod must request each of them."""
        if text is None:
            return nothing
        try:
            found = parse(text)
            for resource in sorted(set(found) - ALL_RESOURCES):
                if resource not in self.requests:
                    meant = nearest(resource[:80], self.requests)
                    raise ParseError(f"no container asks for {resource[:80]}{meant}", field=key)
        except ParseError as error:
            self.problem = self.problem or f"metadata.annotations: {error}"
            return nothing
        return found

    def demand(self, resource: str) -> tuple[tuple[str, int, bool], ...]:
        """The containers' requests for devices of `resource` (model.devices.annotations.device_demand)."""
        found = self._demand.get(resource)
        if found is None:
            found = self._demand[resource] = device_demand(self.spec, resource)
        return found


def _n_device_requests(spec: PodSpec) -> int:
    """The number of pairs of container and extended resource; deploy/env-hand-off uses the same rule."""
    n = 0
    for container in (*(spec.init_containers or ()), *spec.containers):
        if container.resources is not None:
            for name, amount in container_requests(container).items():
                n += "/" in name and amount > 0
    return n


def _needs(spec: PodSpec) -> tuple[tuple[str, str], ...]:
    """(plugin, the feature that needs it): without the plugin the feature would be ignored."""
    found = []
    if spec.affinity is not None:
        for name, wish in (
            ("podAffinity", spec.affinity.pod_affinity),
            ("podAntiAffinity", spec.affinity.pod_anti_affinity),
        ):
            if wish is not None and wish.required_during_scheduling_ignored_during_execution:
                found.append(("InterPodAffinity", f"spec.affinity.{name}: required terms"))
    if any(c.when_unsatisfiable == "DoNotSchedule" for c in spec.topology_spread_constraints or ()):
        found.append(("PodTopologySpread", "spec.topologySpreadConstraints: DoNotSchedule"))
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            found.append(("VolumeBinding", f"spec.volumes: {volume.name} is a persistent volume"))
    if spec.resource_claims:
        found.append(("DynamicResources", "spec.resourceClaims"))
    return tuple(found)


def unsupported(spec: PodSpec) -> Why:
    """A requirement of the pod that no plugin of ours supports yet; "" when there is none.

    Placing it anyway would break a guarantee that its user expects.
    """
    if spec.not_understood:
        return spec.not_understood
    if spec.workload_ref:
        return (
            "spec.workloadRef: Workloads of scheduling.k8s.io/v1alpha1 are not read, so the pod would start "
            "without its gang; write the label gangsched.io/pod-group and the annotation "
            "gangsched.io/min-members"
        )
    return ""


def _of_share(pod: Pod, requests: Iterable[str]) -> Why:
    text = refused_share(pod.metadata.annotations, requests)
    return NotDoneYet(text) if text else ""


def _signed_volumes(pod: Pod) -> list[object]:
    """What determines the pod's volumes; ephemeral ones have claims named after the pod."""
    signed: list[object] = [_volume_images(pod.spec)]
    for volume in pod.spec.volumes or ():
        if driver := volume.inline_driver:
            signed.append(driver)
        if volume.is_storage:
            signed.append(msgspec.structs.replace(volume, name="", image=None))
            if volume.ephemeral is not None:
                signed.append((volume.name, pod.metadata.name, pod.metadata.uid))
    return signed


def _volume_images(spec: PodSpec) -> list[str] | None:
    return [volume.image.reference for volume in spec.volumes or () if volume.image is not None] or None


def _images(spec: PodSpec) -> list[str]:
    """The pod's images. A name without tag and digest means the tag latest; no default registry is assumed.

    Source: kube-scheduler `plugins/imagelocality/image_locality.go`, normalizedImageName.
    """
    containers = (*(spec.init_containers or ()), *spec.containers)
    names = [*(container.image for container in containers), *(_volume_images(spec) or ())]
    return [name if name.rfind(":") > name.rfind("/") else f"{name}:latest" for name in names]


def _host_ports(spec: PodSpec) -> set[HostPort]:
    """The ports that the pod takes on its node, with sidecars. Source: kube-scheduler 1.37, GetHostPorts."""
    ports: set[HostPort] = set()
    sidecars = [c for c in spec.init_containers or () if c.restart_policy == "Always"]
    for container in (*sidecars, *spec.containers):
        for port in container.ports or ():
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                protocol = port.protocol or "TCP"
                ports |= {(port.host_ip or "0.0.0.0", protocol, number), (ANY_ADDRESS, protocol, number)}
    return ports


__all__ = ["HostPort", "PodTemplate", "Unsigned", "signature"]

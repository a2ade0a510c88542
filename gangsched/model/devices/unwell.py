"""What kubelet says of the health of devices that a pod's containers have (KEP-4680), in the pod's status.

A container's status lists its devices with their health, of device plugins and of resource claims. The API
server lets kubelets write it, and whoever else has the right to patch `pods/status`. Read are the devices
that are not well, by the names that we have for them:

    a device plugin's resource, the pod was given IDs of it     the device, if the pod has it
    one of which no IDs are known                               the device, by the ID that only kubelet knows
    a claim, driver/pool/device                                 the device, if the claim has it
    a claim, kind=name for the runtime (CDI)                    its only device, else by that name

kubelet states the last wherever the driver gave it such a name, whatever the API's documentation says. Where
the hand-off is by environment kubelet counts by IDs of its own: of those that the pod does not have it says
nothing about the pod. Sources: k8s.io/api v0.37.1 `core/v1/types.go`, ResourceStatus; kubernetes
`pkg/kubelet/cm/dra/manager.go`, buildResourceHealth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from gangsched.model.objects import ContainerStatus, Pod, PodStatus, ResourceHealth, ResourceStatus
from gangsched.model.resource_claims.objects import DeviceId, ResourceClaim
from gangsched.model.resources import is_extended

UNHEALTHY, UNKNOWN = "Unhealthy", "Unknown"
_OF_CLAIM = "claim:"
MAX_DEVICES = 128
"""Of a pod: those beyond are not looked at. A container may have several claims of 32 devices."""
MAX_ID = 512
"""A driver's, a pool's and a device's name with what is between them have 381 characters at most."""


class Unwell(NamedTuple):
    """resource: a device plugin's, or `claim:ENTRY[/REQUEST]`; health: Unhealthy or Unknown."""

    resource: str
    id: str
    health: str


def has_unwell(pod: Pod) -> bool:
    """Whether its kubelet may say of a device that it is not well: else nothing is kept of its containers."""
    return pod.status.container_statuses is not None or pod.status.init_container_statuses is not None


def unwell(status: PodStatus) -> Iterator[Unwell]:
    """Yields what is not well, each of a container's devices once."""
    n = 0
    for statuses in (status.container_statuses, status.init_container_statuses):
        for one in statuses or ():
            for resource in one.allocated_resources_status or ():
                for each in resource.resources or ():
                    if _is_read(each) and len(resource.name) <= MAX_ID:
                        if n == MAX_DEVICES:
                            return
                        n += 1
                        yield Unwell(resource.name, each.resource_id, each.health)


def only_unwell(statuses: Sequence[ContainerStatus]) -> list[ContainerStatus] | None:
    """Returns the statuses with nothing but the devices that are not well; None without any."""
    found = None
    for one in statuses:  # a running pod's are looked at with each of its versions: no call without devices
        if one.allocated_resources_status is not None:
            resources = _unwell(one.allocated_resources_status)
            if resources:
                found = found or []
                found.append(ContainerStatus(allocated_resources_status=resources))
    return found


def _unwell(resources: Sequence[ResourceStatus]) -> list[ResourceStatus]:
    return [
        ResourceStatus(one.name, bad[:MAX_DEVICES])
        for one in resources
        if (bad := [each for each in one.resources or () if each.health in (UNHEALTHY, UNKNOWN)])
    ]


def _is_read(one: ResourceHealth) -> bool:
    return one.health in (UNHEALTHY, UNKNOWN) and 0 < len(one.resource_id) <= MAX_ID


class Told(NamedTuple):
    """A device of a pod. claim: namespace/name of the claim that has it; device: None if it is not known
    which of them it is. health: Unhealthy or Unknown."""

    id: str
    resource: str
    health: str
    claim: str = ""
    device: DeviceId | None = None

    @property
    def of(self) -> str:
        """The resource or the claim, for people."""
        return f"resource claim {self.claim}" if self.claim else self.resource


def told_by_kubelet(
    pod: Pod, ids: Mapping[str, Collection[str]], claims: Mapping[str, ResourceClaim]
) -> Iterator[Told]:
    """Yields the pod's devices that are not well by its kubelet's word. ids: which it was given, by resource;
    claims: its claims, by entry."""
    for one in unwell(pod.status):
        if one.resource.startswith(_OF_CLAIM):
            entry, _, request = one.resource.removeprefix(_OF_CLAIM).partition("/")
            if (claim := claims.get(entry)) is not None:
                yield from _of_claim(claim, request.partition("/")[0], one.id, one.health)
        elif one.id in ids.get(one.resource, (one.id,) if is_extended(one.resource) else ()):
            yield Told(one.id, one.resource, one.health)


def _of_claim(claim: ResourceClaim, request: str, device_id: str, health: str) -> Iterator[Told]:
    """request: "" for any; subrequests are not told apart."""
    allocation = claim.status.allocation
    given = [
        one
        for one in (allocation.devices.results if allocation is not None else ())
        if request in ("", one.request.partition("/")[0])
    ]
    found = [one for one in given if str(one.id) == device_id]
    is_of_the_runtime = "=" in device_id
    if is_of_the_runtime and len({one.id for one in given}) == 1:
        found = given
    if found:
        if not found[0].admin_access:
            yield Told(str(found[0].id), found[0].driver, health, claim.key, found[0].id)
    elif is_of_the_runtime and any(not one.admin_access for one in given):
        yield Told(device_id, given[0].driver, health, claim.key)

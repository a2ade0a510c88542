"""Extended resources that device classes serve: what a pod's containers ask for, and the claim for it.

A container that requests `example.com/gpu: 2`, which a DeviceClass serves, gets two devices of that class, by
a claim that the scheduler makes. Which resources are served by classes depends on the node: where a device
plugin offers one, the plugin serves it.

Source: KEP-5004; kube-scheduler 1.37 `plugins/dynamicresources/extendeddynamicresources.go`,
createRequestsAndMappings, whose names of requests the kubelet and users see.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from gangsched.model.objects import Container, PodSpec, RequestMapping
from gangsched.model.resource_claims.objects import (
    EXACT_COUNT,
    DeviceClaim,
    DeviceRequest,
    ExactRequest,
    ResourceClaimSpec,
)
from gangsched.model.resources import container_requests


class _Asking(NamedTuple):
    """A container that asks for such resources. number: among the pod's init containers and containers.
    is_brief: an init container that ends before the next begins. amounts: (resource, how many, its place in
    the sorted names of all that the container requests)."""

    name: str
    number: int
    is_brief: bool
    amounts: tuple[tuple[str, int, int], ...]


class ExtendedNeed(NamedTuple):
    """What a pod asks for of resources that classes serve; equal for pods that need not be told apart.

    classes: (resource, class) of all of these, by resource. is_stated: whether its status states a claim, of
    a former attempt: the API server lets that be changed and not be taken off, and kubelet would look for the
    claim where a plugin serves the pod.
    """

    classes: tuple[tuple[str, str], ...]
    containers: tuple[_Asking, ...]
    is_stated: bool = False

    @property
    def resources(self) -> frozenset[str]:
        """All resources that classes serve where no plugin does."""
        return frozenset(resource for resource, _ in self.classes)


class ExtendedClaim(NamedTuple):
    """The claim for what classes serve on a node, and which request of it serves whom."""

    spec: ResourceClaimSpec
    mappings: tuple[RequestMapping, ...]


def extended_need(spec: PodSpec, classes: Mapping[str, str]) -> ExtendedNeed:
    """Returns what the pod's containers ask for of these resources. classes: the class of each.

    Raises: ParseError (a quantity).
    """
    containers = []
    n_init = len(spec.init_containers or ())
    for number, container in enumerate((*(spec.init_containers or ()), *spec.containers)):
        asked = container_requests(container)
        names = sorted(asked)
        amounts = tuple(
            (name, asked[name], place)
            for place, name in enumerate(names)
            if name in classes and asked[name] > 0
        )
        if amounts:
            containers.append(_Asking(container.name, number, _is_brief(container, number < n_init), amounts))
    return ExtendedNeed(tuple(sorted(classes.items())), tuple(containers))


def _is_brief(container: Container, is_init: bool) -> bool:
    return is_init and container.restart_policy != "Always"


def extended_claim(need: ExtendedNeed, resources: Collection[str]) -> ExtendedClaim:
    """Returns the claim for these of the resources.

    Containers that run side by side have a request each. A brief one uses what later ones get, and what it
    needs beyond that is one request, of the greatest need, for all brief ones.
    """
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for resource, device_class in need.classes:
        if resource not in resources:
            continue
        asking = [(one, *_amount(one, resource)) for one in need.containers if _amount(one, resource)[0]]
        lasting: list[tuple[int, str, int]] = []
        mine: list[RequestMapping] = []
        for one, n, place in asking:
            if not one.is_brief:
                name = _request_name(one, place)
                lasting.append((one.number, name, n))
                mine.append(RequestMapping(one.name, resource, name))
        most, most_name = 0, ""
        brief: list[tuple[str, str]] = []
        own: set[str] = set()
        for one, n, place in asking:
            if not one.is_brief:
                continue
            left = n
            for number, name, there in lasting:
                if number >= one.number and left > 0:
                    brief.append((one.name, name))
                    left -= there
            if left > 0:
                name = _request_name(one, place)
                brief.append((one.name, name))
                own.add(name)
                if left > most:
                    most, most_name = left, name
        mine += [
            RequestMapping(container, resource, most_name if name in own else name)
            for container, name in brief
        ]
        if most:
            requests.append(_request(most_name, device_class, most))
        requests += [_request(name, device_class, n) for _, name, n in lasting]
        mappings += mine
    requests.sort(key=lambda one: one.name)
    return ExtendedClaim(ResourceClaimSpec(DeviceClaim(requests)), tuple(mappings))


def _amount(one: _Asking, resource: str) -> tuple[int, int]:
    return next(((n, place) for name, n, place in one.amounts if name == resource), (0, 0))


def _request_name(one: _Asking, place: int) -> str:
    return f"container-{one.number}-request-{place}"


def _request(name: str, device_class: str, n: int) -> DeviceRequest:
    exactly = ExactRequest(device_class_name=device_class, allocation_mode=EXACT_COUNT, count=n)
    return DeviceRequest(name=name, exactly=exactly)


def served_resources(mappings: Sequence[RequestMapping]) -> dict[str, str]:
    """Returns by request the resource that it serves."""
    return {one.request_name: one.resource_name for one in mappings}

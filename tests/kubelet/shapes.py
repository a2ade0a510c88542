"""Shapes of a gang's members, and the allocations that their pods carry.

Lives here: what containers ask for, as pods and back, and the devices that a pod's annotation or labels name.
Not here: who gets which (scheduling.py, kubelet.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

from gangsched.model.devices.annotations import parse_allocation
from gangsched.model.devices.constraints import CONSTRAINTS_KEY
from gangsched.model.devices.labels import allocation_text
from gangsched.model.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements

GPU, NIC = "example.com/gpu", "example.com/nic"

Shape = tuple[tuple[str, str, int, bool], ...]
"""container, resource, count, runs."""
Allocation = dict[str, dict[str, list[str]]]
"""container -> resource -> devices."""

NEAR = json.dumps({GPU: {"sameNUMA": True}})
"""What some of a gang's members ask of their devices, as a whole."""


@cache
def member(shape: Shape, near: bool) -> Pod:
    """What all members of a shape have in common."""
    spec = PodSpec(
        node_name="n1",
        containers=[_container(name, shape) for name in _names(shape, True)],
        init_containers=[_container(name, shape) for name in _names(shape, False)],
    )
    return Pod(ObjectMeta(annotations={CONSTRAINTS_KEY: NEAR} if near else {}), spec)


def _container(name: str, shape: Shape) -> Container:
    limits: dict[str, str | int | float] = {of: str(n) for one, of, n, _ in shape if one == name}
    return Container(name=name, image="busybox", resources=ResourceRequirements(limits=limits))


def _names(shape: Shape, runs: bool) -> list[str]:
    return list(dict.fromkeys(name for name, _, _, does in shape if does is runs))


def shape_of(pod: Pod) -> Shape:
    return tuple(
        (container.name, resource, int(n), runs)
        for containers, runs in ((pod.spec.init_containers or [], False), (pod.spec.containers, True))
        for container in containers
        for resource, n in ((container.resources and container.resources.limits) or {}).items()
    )


def is_near(pod: Pod) -> bool:
    return CONSTRAINTS_KEY in (pod.metadata.annotations or {})


def whole_of(allocation: Mapping[str, Mapping[str, Iterable[str]]]) -> frozenset[str]:
    """All devices of a pod, by names that are one node's alone."""
    return frozenset(one for sets in allocation.values() for ids in sets.values() for one in ids)


def allocation_of(pod: Pod) -> Allocation:
    text = allocation_text(pod.metadata.annotations, pod.metadata.labels) or ""
    return {
        container: {resource: list(ids) for resource, ids in sets.items()}
        for container, sets in parse_allocation(text).items()
    }


def sets_of(pod: Pod) -> tuple[tuple[str, str, frozenset[str]], ...]:
    return _sets_in(allocation_text(pod.metadata.annotations, pod.metadata.labels) or "")


@lru_cache(maxsize=4096)
def _sets_in(text: str) -> tuple[tuple[str, str, frozenset[str]], ...]:
    return tuple(
        (container, resource, frozenset(ids))
        for container, sets in parse_allocation(text).items()
        for resource, ids in sets.items()
    )

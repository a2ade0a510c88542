"""Plain pods: the resources of a pod that our own code fails on, using as little of the pod as possible.

Called by core.turns.refused_pods, which counts them until the pod's next version comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from gangsched.model.devices.annotations import Allocation, parse_allocation
from gangsched.model.devices.labels import allocation_text
from gangsched.model.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from gangsched.model.resources import parse_quantities

Amounts = Mapping[str, str | int | float]


def plain_pods(pod: Pod, node_name: str, promised: Allocation | None) -> Iterator[tuple[Pod, Allocation]]:
    """Yields the pod on that node with its requests, devices and host ports; then without ports; then without
    devices; then as one bare pod.

    promised: its assigned devices, if known from elsewhere than its own annotation; None: those that it
    states itself.
    """
    asked = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    containers = [_plain(one) for one in asked]
    allocation = _allocation(pod) if promised is None else promised
    if any(one.ports for one in asked):
        ported = [replace(plain, ports=one.ports) for plain, one in zip(containers, asked, strict=True)]
        yield _pod(pod, node_name, ported), allocation
    yield _pod(pod, node_name, containers), allocation
    yield _pod(pod, node_name, containers), {}
    yield _pod(pod, node_name, None), {}


def _pod(pod: Pod, node_name: str, containers: list[Container] | None) -> Pod:
    """containers: None: without containers, and without the pod's own requests."""
    meta, spec = pod.metadata, pod.spec
    is_bare = containers is None
    return Pod(
        ObjectMeta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        ),
        PodSpec(
            node_name=node_name,
            scheduler_name=spec.scheduler_name,
            priority=spec.priority,
            host_network=spec.host_network,
            containers=containers or [],
            resources=None if is_bare or spec.resources is None else _requests_of(spec.resources),
            overhead=None if is_bare else {**_readable(spec.overhead)},
        ),
    )


def _plain(container: Container) -> Container:
    asked = container.resources
    return Container(name=container.name, resources=None if asked is None else _requests_of(asked))


def _requests_of(asked: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(requests={**_readable(asked.limits), **_readable(asked.requests)})


def _readable(amounts: Amounts | None) -> Amounts:
    return {name: amount for name, amount in (amounts or {}).items() if _is_readable(name, amount)}


def _is_readable(name: str, amount: str | int | float) -> bool:
    try:
        parse_quantities({name: amount})
    except Exception:  # whatever makes this pod unreadable
        return False
    return True


def _allocation(pod: Pod) -> Allocation:
    try:
        text = allocation_text(pod.metadata.annotations, pod.metadata.labels)
        return {} if text is None else parse_allocation(text)
    except Exception:
        return {}

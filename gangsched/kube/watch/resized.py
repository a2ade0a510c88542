"""Corrects the requests of running pods whose kubelet has refused to resize them to their spec.

Such a pod keeps its resources, which only its status shows; its spec may request more than any node has until
it is edited again. So its cpu and memory requests are read from the status, as kube-scheduler does. Any other
resize is counted by the spec. Not here: when a batch is checked for it (kube.watch.pod_reader). Source:
k8s.io/component-helpers `resource/helpers.go`, determineContainerReqs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gangsched.errors import ParseError
from gangsched.model.objects import Container, Pod, ResourceRequirements
from gangsched.model.resources import CPU, MEMORY, parse_quantities

PENDING = "PodResizePending"
MARK = PENDING.encode()
"""In the JSON of every pod with a resize that has not begun, whether infeasible or only deferred."""
_INFEASIBLE = "Infeasible"
_RESIZABLE = (CPU, MEMORY)
# A resource that was not requested is absent from the status: a limit must not stand in for it.
_NOTHING = "0"
Amount = str | int | float


class _Held(msgspec.Struct, rename="camel", gc=False):
    """The resources of a container, or of a pod with pod-level requests."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Amount] | None = None


class _Status(_Held):
    container_statuses: list[_Held] | None = None
    init_container_statuses: list[_Held] | None = None


class Running(msgspec.Struct, gc=False):
    """What a pod's status states about its containers."""

    status: _Status = msgspec.field(default_factory=_Status)


def as_it_runs(pod: Pod, running: Running) -> Pod:
    """Returns the pod with requests for what it has, if it is bound and its resize is infeasible."""
    conditions = pod.status.conditions or ()
    if not pod.spec.node_name or not any(c.type == PENDING and c.reason == _INFEASIBLE for c in conditions):
        return pod
    status, spec = running.status, pod.spec
    try:
        kept = msgspec.structs.replace(
            spec,
            containers=_kept(spec.containers, status.container_statuses),
            init_containers=spec.init_containers
            and _kept(spec.init_containers, status.init_container_statuses),
            resources=_requirements(spec.resources, status),
        )
    except ParseError:
        return pod
    return Pod(pod.metadata, kept, pod.status)


def _kept(containers: Sequence[Container], held: Sequence[_Held] | None) -> list[Container]:
    by_name = {one.name: one for one in held or ()}
    return [
        msgspec.structs.replace(one, resources=_requirements(one.resources, by_name.get(one.name)))
        for one in containers
    ]


def _requirements(asked: ResourceRequirements | None, held: _Held | None) -> ResourceRequirements | None:
    """Raises: ParseError."""
    if asked is None or held is None or held.resources is None:
        return asked
    requests = dict(asked.requests or {})
    has, allocated = held.resources.requests or {}, held.allocated_resources or {}
    for name in _RESIZABLE:
        if name in requests:
            requests[name] = _larger(name, has.get(name, _NOTHING), allocated.get(name, _NOTHING))
    return ResourceRequirements(requests=requests, limits=asked.limits)


def _larger(name: str, one: Amount, other: Amount) -> Amount:
    """Raises: ParseError."""
    sizes = [parse_quantities({name: amount})[name] for amount in (one, other)]
    return one if sizes[0] >= sizes[1] else other

"""Corrects the requests of pods that are being resized: what they still have on their node counts too.

A pod whose resize has not been done keeps its old resources, which only its status shows. Until its kubelet
has made it smaller, its old size is what the node has left to give; where the kubelet has refused to make it
larger, its spec may request more than any node has until it is edited again. So of spec, allocated and actual
amounts of cpu and memory the largest counts, and without the spec's if the kubelet has refused it, as
kube-scheduler does. Not here: when a batch is checked for it (kube.watch.pod_reader). Source:
k8s.io/component-helpers `resource/helpers.go`, AggregateContainerRequests and PodRequests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gangsched.errors import ParseError
from gangsched.model.objects import Container, Pod, PodSpec, ResourceRequirements
from gangsched.model.resources import CPU, MEMORY, parse_quantities, pod_requests

PENDING = "PodResizePending"
MARK = b"PodResize"
"""In the JSON of every pod whose resize is pending (infeasible or only deferred) or in progress."""
_INFEASIBLE = "Infeasible"
_RESIZABLE = (CPU, MEMORY)
# A resource that was not requested is absent from the status: a limit must not stand in for it.
_NOTHING = "0"
Amount = str | int | float
Amounts = Mapping[str, Amount]


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


def is_behind(pod: Pod) -> bool:
    """Whether its kubelet has admitted the pod but not seen its newest spec yet, as right after a resize."""
    status = pod.status
    return 0 < status.observed_generation < pod.metadata.generation and status.start_time is not None


def as_it_runs(pod: Pod, running: Running) -> Pod:
    """Returns the pod with requests for what it has, if it is bound and has more than its spec requests, or
    its kubelet has refused the spec.
    """
    if not pod.spec.node_name:
        return pod
    conditions = pod.status.conditions or ()
    try:
        if any(c.type == PENDING and c.reason == _INFEASIBLE for c in conditions):
            spec = _as_held(pod.spec, running.status, _larger)
        else:
            spec = _with_excess(pod.spec, running.status)
    except ParseError:
        return pod
    return pod if spec is pod.spec else Pod(pod.metadata, spec, pod.status)


def _with_excess(spec: PodSpec, status: _Status) -> PodSpec:
    """Adds to the overhead what the pod has, allocated or in fact, beyond its spec. Raises: ParseError."""
    asked = pod_requests(spec)
    held = [pod_requests(_as_held(spec, status, amount)) for amount in (_actual, _allocated)]
    excess = {name: max(one.get(name, 0) for one in held) - asked.get(name, 0) for name in _RESIZABLE}
    if max(excess.values()) <= 0:
        return spec
    total = parse_quantities(spec.overhead)
    for name, amount in excess.items():
        if amount > 0:
            total[name] = total.get(name, 0) + amount
    shown = {name: f"{n}m" if name == CPU else str(n) for name, n in total.items()}
    return msgspec.structs.replace(spec, overhead=shown)


# How much of a resource is held: from the name, the actual and the allocated amounts. Raises: ParseError.
_Choice = Callable[[str, Amounts, Amounts], Amount]


def _actual(name: str, actual: Amounts, allocated: Amounts) -> Amount:
    return actual.get(name, _NOTHING)


def _allocated(name: str, actual: Amounts, allocated: Amounts) -> Amount:
    return allocated.get(name, _NOTHING)


def _larger(name: str, actual: Amounts, allocated: Amounts) -> Amount:
    amounts = (actual.get(name, _NOTHING), allocated.get(name, _NOTHING))
    sizes = [parse_quantities({name: amount})[name] for amount in amounts]
    return amounts[0] if sizes[0] >= sizes[1] else amounts[1]


def _as_held(spec: PodSpec, status: _Status, amount: _Choice) -> PodSpec:
    return msgspec.structs.replace(
        spec,
        containers=_kept(spec.containers, status.container_statuses, amount),
        init_containers=spec.init_containers
        and _kept(spec.init_containers, status.init_container_statuses, amount),
        resources=_requirements(spec.resources, status, amount),
    )


def _kept(containers: Sequence[Container], held: Sequence[_Held] | None, amount: _Choice) -> list[Container]:
    by_name = {one.name: one for one in held or ()}
    return [
        msgspec.structs.replace(one, resources=_requirements(one.resources, by_name.get(one.name), amount))
        for one in containers
    ]


def _requirements(
    asked: ResourceRequirements | None, held: _Held | None, amount: _Choice
) -> ResourceRequirements | None:
    """Raises: ParseError."""
    if asked is None or held is None or held.resources is None:
        return asked
    requests = dict(asked.requests or {})
    has, allocated = held.resources.requests or {}, held.allocated_resources or {}
    for name in _RESIZABLE:
        if name in requests:
            requests[name] = amount(name, has, allocated)
    return ResourceRequirements(requests=requests, limits=asked.limits)

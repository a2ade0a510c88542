"""The report on the Node: which devices kubelet gave to which containers. Pure; format: model.devices.report.

A PodResources reading right after kubelet's start lacks pods that kubelet does not know yet; `is_whole`
rejects such a reading. Called by `agent.plugins.runner`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gangsched.agent.plugins.plan import NOTHING, Given, PlannedPod, Sets, is_served
from gangsched.model.devices.report import PodDevices, report_annotation


def is_whole(given: Given, pods: Iterable[PlannedPod]) -> bool:
    """Whether it includes every pod that kubelet has admitted, by the API server's list."""
    return all(pod.key in given for pod in pods if pod.has_started and not pod.is_going)


def report(
    resources: Collection[str],
    given: Given,
    pods: Iterable[PlannedPod],
    ended: Iterable[tuple[PlannedPod, Sets]] = (),
    listed: Collection[str] = (),
) -> str:
    """Builds the annotation's value: for `resources`, what live `pods` have, and what some ended pods had.

    listed: other resources that the Node lists; of these, what kubelet chose for pods that have no plan.

    A pod that kubelet is still admitting is left out: the scheduler treats listed pods as admitted, and would
    replan the rest of its devices. An ended pod is listed if its annotation still differs from what it had.
    """
    reported, others, rest = [], [], {*listed} - {*resources}
    for pod in pods:
        unplanned = rest.difference(*pod.planned.values())
        if pod.has_started and (chosen := _of(unplanned, given.get(pod.key, NOTHING))):
            others.append(_told(pod, chosen))
        if not pod.has_started and not is_served(pod, given):
            continue
        containers = _of(resources, given.get(pod.key, NOTHING))
        if containers:
            reported.append(_told(pod, containers))
    late = [_told(pod, _of(resources, had)) for pod, had in ended if _was_exchanged(resources, pod, had)]
    return report_annotation(resources, reported, late, others)


def _of(resources: Collection[str], sets: Sets) -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        container: held
        for container, some in sets.items()
        if (held := {of: tuple(sorted(ids)) for of, ids in some.items() if of in resources and ids})
    }


def _told(pod: PlannedPod, containers: dict[str, dict[str, tuple[str, ...]]]) -> PodDevices:
    return PodDevices(uid=pod.uid, namespace=pod.namespace, name=pod.name, containers=containers)


def _was_exchanged(resources: Collection[str], pod: PlannedPod, had: Sets) -> bool:
    return any(
        of in resources and ids and ids != pod.planned.get(container, {}).get(of)
        for container, sets in had.items()
        for of, ids in sets.items()
    )

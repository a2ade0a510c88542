"""Chooses the planned set that kubelet should take, and checks that the set it names is planned: pure.

kubelet's device plugin API names devices and never a pod, and kubelet admits one pod at a time. So sets are
matched: the planned sets of this node that no container has yet are *outstanding*; kubelet is steered to
exactly one of them and granted nothing else. Which container has it is read afterwards (PodResources) and
reported on the Node.

| a planned container | its set is |
|---|---|
| of a pod that kubelet has not admitted | outstanding, unless another pod has a device of it |
| has its own set | granted |
| has another set | outstanding, unless another pod has a device of it: the two were swapped |
| of a pod that has started, and kubelet does not list it | doubtful: presumably in use |
| of a pod that has started, and kubelet lists it without devices | outstanding: it is admitted again |
| a plain init container (PodResources does not list it) | outstanding until a later container has its own |

A doubtful set is chosen if kubelet offers it but not the due pod's own: then kubelet's accounting is ahead of
its list (it has just started), and the two were swapped before.

A restarted kubelet admits its pods again. It has kept their devices, unless their containers ended earlier
without a report to the API server: such a pod gets its own set again, though nothing in it runs.

If kubelet itself lists its pods (`by_kubelet`), the pod being admitted is the only one without its devices,
so its own set is chosen. By the API server's list several pods may be due; the one that kubelet lists without
devices is being admitted. If kubelet lists none of them, any of their sets is chosen: the scheduler lets only
interchangeable pods be due at the same time. Called by `device_plugin`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gangsched.agent.plugins.plan import NOTHING, Given, PlannedPod, is_served
from gangsched.model.text.printable import several

# A message names at most this many sets or pods.
_MAX_NAMED = 4


class Known(msgspec.Struct, frozen=True, gc=False):
    """What is known about the node when kubelet calls. by_kubelet: `pods` is kubelet's own current list."""

    pods: tuple[PlannedPod, ...]
    given: Given
    by_kubelet: bool = False


class Prefer(NamedTuple):
    """Prefer exactly this planned set; `pod`: the pod for which it was planned."""

    ids: frozenset[str]
    pod: PlannedPod


class Granted(NamedTuple):
    """The devices are one planned set; `pod`: the pod for which it was planned."""

    pod: PlannedPod


class NotPlanned(NamedTuple):
    """No planned set is due by current knowledge. is_final: newer knowledge cannot change that."""

    why: str
    is_final: bool = False


class _Due(NamedTuple):
    pod: PlannedPod
    container: str
    ids: frozenset[str]
    is_plain_init: bool


class _Standing(NamedTuple):
    """due: containers without devices; outstanding: planned sets that no container has, and their pods."""

    due: list[_Due]
    outstanding: list[tuple[PlannedPod, frozenset[str]]]
    doubtful: list[tuple[PlannedPod, frozenset[str]]]


def prefer(
    resource: str, count: int, known: Known, *, available: frozenset[str], must_include: frozenset[str]
) -> Prefer | NotPlanned:
    """Chooses the set for the container that kubelet is admitting now."""
    standing = _standing(resource, known)
    due = [one for one in standing.due if len(one.ids) == count]
    if not due:
        return _none_due(resource, count, standing, known)
    sets = standing.outstanding
    if not any(one.ids <= available for one in due):
        sets = [*sets, *standing.doubtful]
    fitting = [
        (pod, ids) for pod, ids in sets if len(ids) == count and ids <= available and must_include <= ids
    ]
    if not fitting:
        return NotPlanned(
            f"kubelet offers {several(len(available), 'device')} of {resource}"
            f", in which no planned set of {count} is whole; due: {_named(due)}"
        )
    waiting = {one.pod.uid for one in due}
    admitted_now = {one.pod.uid for one in due if one.container in known.given.get(one.pod.key, NOTHING)}
    partners = _partners(known)
    pod, ids = min(
        fitting,
        # First a pod that kubelet is in the middle of admitting, with sets from the same pod as before; then
        # the waiting pods' own sets.
        key=lambda one: (
            one[0].uid not in partners,
            one[0].uid not in admitted_now,
            one[0].uid not in waiting,
        ),
    )
    return Prefer(ids, pod)


def verify(
    resource: str, ids: frozenset[str], known: Known, *, preferred: frozenset[str] = frozenset()
) -> Granted | NotPlanned:
    """Checks that these devices are the planned set of exactly one container that is due here.

    preferred: the last answer of `prefer`.
    """
    standing = _standing(resource, known)
    due = [one for one in standing.due if len(one.ids) == len(ids)]
    if not due:
        return _none_due(resource, len(ids), standing, known)
    sets = [*standing.outstanding, *standing.doubtful] if ids == preferred else standing.outstanding
    owners = {pod.uid: pod for pod, planned in sets if planned == ids}
    if not owners:
        owners = _shared_with_init(resource, ids, due, standing)
    if len(owners) == 1:
        return Granted(next(iter(owners.values())))
    return NotPlanned(
        f"kubelet names {_ids(ids)} of {resource}, which is not the planned set of a container that is due"
        f" here; due: {_named(due)}"
    )


def _shared_with_init(
    resource: str, ids: frozenset[str], due: list[_Due], standing: _Standing
) -> dict[str, PlannedPod]:
    """Returns due pods that may share: kubelet itself picks among an init container's devices to reuse."""
    owners = {}
    for pod in {one.pod.uid: one.pod for one in due}.values():
        if any(one.is_plain_init for one in standing.due if one.pod is pod):
            whole = frozenset[str]().union(*(sets.get(resource, ()) for sets in pod.planned.values()))
            if ids <= whole:
                owners[pod.uid] = pod
    return owners


def _standing(resource: str, known: Known) -> _Standing:
    holder_of = {
        device: key
        for key, containers in known.given.items()
        for sets in containers.values()
        for device in sets.get(resource, ())
    }
    due: list[_Due] = []
    outstanding: list[tuple[PlannedPod, frozenset[str]]] = []
    doubtful: list[tuple[PlannedPod, frozenset[str]]] = []
    for pod in known.pods:
        listed = known.given.get(pod.key)
        for container, planned in pod.planned.items():
            ids = planned.get(resource)
            if not ids:
                continue
            has = (listed or NOTHING).get(container, {}).get(resource)
            is_plain_init = listed is not None and container not in listed
            if has == ids:
                continue
            is_free = not any(device in holder_of for device in ids)
            if has or (is_plain_init and _has_any(pod, resource, known.given)):
                if is_free:
                    outstanding.append((pod, ids))
            elif pod.has_started and container not in (listed or NOTHING):
                if is_free:
                    doubtful.append((pod, ids))
            else:
                due.append(_Due(pod, container, ids, is_plain_init))
                if all(holder_of.get(device, pod.key) == pod.key for device in ids):
                    outstanding.append((pod, ids))
    return _Standing(due, outstanding, doubtful)


def _has_any(pod: PlannedPod, resource: str, given: Given) -> bool:
    return any(sets.get(resource) for sets in given.get(pod.key, NOTHING).values())


def _partners(known: Known) -> frozenset[str]:
    """Returns UIDs of the pods for which the sets of the pod now being admitted were planned.

    Mostly one: the pod itself, or the one it was swapped with. The rest of its sets should come from the same
    pod, so that pods are swapped as a whole and constraints across all their devices still hold.
    """
    begun = {
        (resource, ids)
        for pod in known.pods
        if not pod.has_started and not is_served(pod, known.given)
        for sets in known.given.get(pod.key, NOTHING).values()
        for resource, ids in sets.items()
    }
    if not begun:
        return frozenset()
    return frozenset(
        pod.uid for pod in known.pods for sets in pod.planned.values() if begun & {*sets.items()}
    )


def _none_due(resource: str, count: int, standing: _Standing, known: Known) -> NotPlanned:
    others = f"; due: {_named(standing.due)}" if standing.due else ""
    return NotPlanned(
        f"no container for which {count} of {resource} are planned is due here{others}", known.by_kubelet
    )


def _named(due: Iterable[_Due]) -> str:
    names = [f"{one.pod} {one.container} ({_ids(one.ids)})" for one in due]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _ids(ids: frozenset[str]) -> str:
    names = sorted(ids)
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more

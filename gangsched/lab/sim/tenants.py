"""Tenants: a workload of several namespaces, and the judge of what each of them is told.

What is written into a namespace (conditions and events, status of PodGroups, annotations of Bindings, what a
deletion says) is read by its tenants, so it names no pod, gang, claim or budget of another namespace.
Called by lab.sim.storms and lab.sim.step_judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.given_back import lending_workload
from gangsched.lab.sim.limits import limited_workload
from gangsched.lab.sim.making import config_with, scheduler_of
from gangsched.lab.sim.reading import gang_of
from gangsched.lab.sim.told import Told
from gangsched.lab.sim.volumes import of_tenant, volumes_workload
from gangsched.lab.sim.workloads import Arrival, Workload, preempting_workload
from gangsched.model import effects as ef
from gangsched.model.objects import ObjectMeta, Pod

NAMESPACES = ("d", "da", "d-team")
_KINDS = (limited_workload, lending_workload, preempting_workload)
_OURS = """
queueing: {bound: {groups: 2, mode: hard}}
fairness: {halfLife: 20s, compare: [nvidia.com/gpu]}
queues:
- {name: a, share: 2, guaranteed: {nvidia.com/gpu: 4}, namespaces: [d, da, d-team]}
- {name: b, guaranteed: {nvidia.com/gpu: 2}, namespaces: ["d*"]}
- {name: c, namespaces: ["*"]}
"""
_CONFIG = config_with(_OURS)
SETTINGS = _CONFIG.settings
# A name as messages write it, and one alone: of a pod or gang of these workloads, never a plain word.
_WORD = re.compile(r"[a-z0-9][-a-z0-9.]*(?:/[a-z0-9][-a-z0-9.]*)?")


def tenants_workload(seed: int) -> Workload:
    """Returns another storm's workload in which each arrival is of one of three namespaces."""
    rng = Random(f"{seed}-tenants")
    workload = _KINDS[seed % len(_KINDS)](seed)
    return replace(workload, arrivals=tuple(_moved(one, rng.choice(NAMESPACES)) for one in workload.arrivals))


def storing_workload(seed: int) -> Workload:
    """Returns the volumes' workload likewise, with claims of each namespace's own and disruption budgets."""
    rng, workload = Random(f"{seed}-storing"), volumes_workload(seed)
    moved = [_moved(one, rng.choice(NAMESPACES)) for one in workload.arrivals]
    arrivals = tuple(replace(one, pods=tuple(map(of_tenant, one.pods))) for one in moved)
    return replace(workload, arrivals=arrivals)


def make_with_tenants(settings: Settings, *plugins: Any) -> Scheduler:
    """Assembles the scheduler as it is live with this configuration."""
    return scheduler_of(_CONFIG, settings, *plugins)


def _moved(arrival: Arrival, namespace: str) -> Arrival:
    pods = tuple(replace(pod, metadata=_in(pod.metadata, namespace)) for pod in arrival.pods)
    group = arrival.group
    if group is not None:
        group = replace(group, metadata=_in(group.metadata, namespace))
    return replace(arrival, pods=pods, group=group)


def _in(meta: ObjectMeta, namespace: str) -> ObjectMeta:
    return replace(meta, namespace=namespace)


class Names:
    """tenants-apart: what is written into a namespace names no object of another one.

    A name that the namespace's own objects carry or state (another gang's, in a list) is its users' own word.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[str, None]] = {}
        """Name, alone and with its namespace -> the namespaces that have such an object, ever."""
        self._namespaces: dict[str, None] = {}
        self._n_heard = -1

    def look(self, effects: Iterable[ef.Effect], told: Told) -> Iterator[str]:
        """Before the effects are sent."""
        if told.n_heard != self._n_heard:
            self._n_heard = told.n_heard
            self._hear(told)
        if len(self._namespaces) < 2:
            return
        for namespace, text in _written(effects):
            for name in dict.fromkeys(_WORD.findall(text)):
                name = name.rstrip(".")
                of = self._of.get(name)
                if of is not None and namespace not in of and not _is_own_word(name, namespace, told):
                    yield (
                        f"tenants-apart: {namespace or 'an object of no namespace'} is told of "
                        f"{name}, in: {text}"
                    )

    def _hear(self, told: Told) -> None:
        for pod in told.pods.values():
            self._note(pod.metadata.namespace, pod.metadata.name)
            if (gang := gang_of(pod)) is not None:
                self._note(gang.namespace, gang.name)
        for kind in told.objects.values():
            for namespace, name in kind:
                if namespace:
                    self._note(namespace, name)

    def _note(self, namespace: str, name: str) -> None:
        self._namespaces[namespace] = None
        for one in (name, f"{namespace}/{name}"):
            if any(letter.isdigit() for letter in one) or "/" in one:
                self._of.setdefault(one, {})[namespace] = None


def _written(effects: Iterable[ef.Effect]) -> Iterator[tuple[str, str]]:
    """(namespace, text) of everything that a namespace's readers see."""
    for effect in effects:
        match effect:
            case ef.RecordEvent(namespace=namespace, message=text):
                yield namespace, text
            case ef.WritePodCondition(namespace=namespace, message=text):
                yield namespace, text
            case ef.WritePodGroupStatus(namespace=namespace, status=status):
                yield namespace, msgspec.json.encode(status).decode()
            case ef.DeletePod(namespace=namespace, message=text):
                yield namespace, text
            case ef.BindPod(namespace=namespace, annotations=annotations, labels=labels):
                yield namespace, " ".join((*annotations.values(), *labels.values()))


def _is_own_word(name: str, namespace: str, told: Told) -> bool:
    return any(
        pod.metadata.namespace == namespace and any(name in text for text in _texts(pod))
        for pod in told.pods.values()
    )


def _texts(pod: Pod) -> Iterator[str]:
    yield from (pod.metadata.annotations or {}).values()
    yield from (pod.metadata.labels or {}).values()

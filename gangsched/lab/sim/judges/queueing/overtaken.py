"""Judges of queueing that need nothing but pods: which groups are overtaken (bypass-bound), and which wait
for what is guaranteed to them (guarantees-soon).

They are given every pod after each step, count starts by their own reading, and know neither claims nor the
scheduler's counts. Not here: room by node and by plugin (lab.sim.judges.queueing.filling). Called by
tests/sim/test_overtaken.py, with workloads in which everything fits once enough pods have gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gangsched.lab.sim.reading.documents import gang_of
from gangsched.lab.sim.workloads.queues.guaranteed import gpus_of
from gangsched.model.objects import Pod


class Overtaken:
    """bypass-bound: no complete gang is overtaken by more groups than its bound: groups that came later, are
    no more important, and start while it waits."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._came: dict[str, int] = {}
        self._started: set[str] = set()
        self._passes: dict[str, int] = {}

    def check(self, pods: Iterable[Pod]) -> Iterator[str]:
        """Checks a step, in which all members of a gang are created together."""
        groups: dict[str, list[Pod]] = {}
        for pod in pods:
            groups.setdefault(_name(pod), []).append(pod)
        for name in groups:
            self._came.setdefault(name, len(self._came))
        new = [name for name in groups if name not in self._started and _runs(groups[name])]
        self._started.update(new)
        for name, own in groups.items():
            if name in self._started or len(own) < 2:
                continue
            later = [one for one in new if self._came[one] > self._came[name]]
            later = [one for one in later if _priority(groups[one]) <= _priority(own)]
            self._passes[name] = self._passes.get(name, 0) + len(later)
            if later and self._passes[name] > self._bound:
                yield (
                    f"bypass-bound: {self._passes[name]} have overtaken {name}, whose bound is {self._bound}"
                )


class Entitled:
    """guarantees-soon: a group that stays within its queue's guarantee starts within `most_s`, if what other
    queues have borrowed is enough for it. Queues are namespaces; every node takes every pod, one device at a
    time."""

    def __init__(self, guaranteed: Mapping[str, int], n_devices: int, most_s: float) -> None:
        self._guaranteed = guaranteed
        self._n_devices = n_devices
        self._most_s = most_s
        self._since_s: dict[str, float] = {}

    def check(self, pods: Iterable[Pod], now_s: float) -> Iterator[str]:
        """Checks a step."""
        held: dict[str, int] = {}
        waiting: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.spec.node_name:
                held[pod.metadata.namespace] = held.get(pod.metadata.namespace, 0) + gpus_of(pod)
            else:
                waiting.setdefault(_name(pod), []).append(pod)
        kept = sum(min(n, self._guaranteed.get(queue, 0)) for queue, n in held.items())
        due: dict[str, float] = {}
        for name, own in waiting.items():
            queue, asked = own[0].metadata.namespace, sum(map(gpus_of, own))
            is_due = held.get(queue, 0) + asked <= self._guaranteed.get(queue, 0)
            if is_due and kept + asked <= self._n_devices:
                due[name] = self._since_s.get(name, now_s)
                if now_s > due[name] + self._most_s:
                    yield (
                        f"guarantees-soon: {name} waits for {now_s - due[name]:.0f} s for what "
                        f"is guaranteed to {queue}"
                    )
        self._since_s = due


def _name(pod: Pod) -> str:
    gang = gang_of(pod)
    return pod.metadata.name if gang is None else f"{gang.namespace}/{gang.name}"


def _runs(pods: Iterable[Pod]) -> bool:
    return all(pod.spec.node_name for pod in pods)


def _priority(pods: Iterable[Pod]) -> int:
    return max(pod.spec.priority or 0 for pod in pods)

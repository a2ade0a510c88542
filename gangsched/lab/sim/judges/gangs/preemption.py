"""Judges of preemption: gangs that lose pods to it, and victims that it takes.

Numbers and `gangsched.io/disruption-mode` are read from the pods given to the process. Only gangs in our own
dialect are judged, as in others the object states more; and only pods of present profiles, as those of a
removed one are another scheduler's. Called by lab.sim.judges.step_judges after every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.reading.documents import Gang, gang_of, least
from gangsched.lab.sim.reading.received import Received
from gangsched.model import effects as ef
from gangsched.model.objects import Pod

_MODE = "gangsched.io/disruption-mode"
_OURS = "gangsched"


class TornGangs:
    """gangs-not-torn: preemption leaves enough of a gang, or nothing; by mode `all` nothing, by `single` any.

    Pods that are being deleted anyway are not taken.
    """

    def __init__(self) -> None:
        self._victims: frozenset[str] = frozenset()

    def check(self, scheduler: Scheduler, received: Received) -> Iterator[str]:
        """Checks the gangs that have new victims in this step."""
        before, self._victims = self._victims, frozenset(scheduler.shared.victims)
        new = self._victims - before
        if not new:
            return
        ours = [pod for pod in received.pods.values() if pod.spec.scheduler_name in scheduler.shared.profiles]
        taken = (pod for pod in ours if pod.metadata.uid in new and _is_there(pod, received))
        for gang in dict.fromkeys(map(gang_of, taken)):
            if gang is not None and gang.dialect == _OURS:
                yield from self._leaves_enough(gang, [pod for pod in ours if gang_of(pod) == gang], received)

    def _leaves_enough(self, gang: Gang, pods: Sequence[Pod], received: Received) -> Iterator[str]:
        stated = {(least(gang, pod, None), (pod.metadata.annotations or {}).get(_MODE)) for pod in pods}
        (n, mode), *others = stated
        if others or n is None or mode == "single":
            return  # they differ since one was edited
        left = [pod for pod in pods if _is_there(pod, received) and pod.metadata.uid not in self._victims]
        running = [pod for pod in left if not pod.is_terminal]
        if running and (mode == "all" or len(left) < n):
            names = sorted(pod.metadata.name for pod in running)
            yield f"gangs-not-torn: of {gang}, which needs {n}, {names} are left, by mode {mode}"


def _is_there(pod: Pod, received: Received) -> bool:
    """Whether the pod runs and stays, or has succeeded."""
    if pod.is_terminal:
        return pod.status.phase == "Succeeded"
    is_bound = bool(pod.spec.node_name) or pod.metadata.uid in received.answered
    return is_bound and pod.metadata.deletion_timestamp is None


class Victims:
    """victims-once: a group that waits for victims takes no more for the same room, and none in vain."""

    def __init__(self) -> None:
        self._waiting: dict[str, frozenset[str]] = {}
        self._number: dict[str, int] = {}
        """Which of its preemptions each group waits for: where room is lost, it is made again elsewhere."""
        self._asked: dict[str, tuple[int, dict[str, None]]] = {}
        self._started: dict[str, int] = {}
        self._n = 0

    def check(self, scheduler: Scheduler, effects: Iterable[ef.Effect]) -> Iterator[str]:
        """Checks after every step that the victims a group waits for only become fewer."""
        self._n += 1
        waited, self._waiting = self._waiting, {}
        for group in scheduler.shared.groups.values():
            if group.preemption is None or not group.preemption.waits_for:
                continue
            key = str(group.key)
            now = self._waiting[key] = frozenset(group.preemption.waits_for)
            before = waited.get(key, frozenset())
            number = group.preemption.number
            if self._number.get(key) != number:
                self._number[key], before = number, frozenset()
            if before and now - before:
                yield (
                    f"victims-once: {group!r} waits for {sorted(before)} and takes {sorted(now - before)} too"
                )
        for effect in effects:
            if isinstance(effect, ef.BindPod):
                self._started[effect.group] = self._n
            elif isinstance(effect, (ef.EvictPod, ef.DeletePod)):
                key = effect.cause_id.rpartition("#")[0]
                if effect.uid in self._waiting.get(key, ()):
                    _, victims = self._asked.setdefault(key, (self._n, {}))
                    victims[effect.uid] = None

    def in_vain(self, priorities: Mapping[str, int]) -> Iterator[str]:
        """Checks, in good weather, that no pod was evicted for a group that has not started since.

        No violation if a group of higher priority started after that: it may take the room.
        """
        for key, (n, victims) in self._asked.items():
            since = [other for other, at in self._started.items() if at >= n]
            if key not in since and not any(priorities[other] > priorities[key] for other in since):
                yield f"victims-once: {sorted(victims)} were taken for {key}, which has not started since"

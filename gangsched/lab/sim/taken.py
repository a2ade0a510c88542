"""Taken: checks that a gang that loses pods to preemption stays whole, goes whole, or may lose them singly.

Numbers and `gangsched.io/disruption-mode` are read from the pods given to the process. Only gangs in our own
dialect are judged, as in others the object states more; and only pods of present profiles, as those of a
removed one are another scheduler's. Not here: whether the victims were needed (lab.sim.checkers,
Preemptions). Called by lab.sim.step_judges after every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.reading import Gang, gang_of, least
from gangsched.lab.sim.told import Told
from gangsched.model.objects import Pod

_MODE = "gangsched.io/disruption-mode"
_OURS = "gangsched"


class Taken:
    """gangs-not-torn: preemption leaves enough of a gang, or nothing; by mode `all` nothing, by `single` any.

    Pods that are being deleted anyway are not taken.
    """

    def __init__(self) -> None:
        self._victims: frozenset[str] = frozenset()

    def look(self, scheduler: Scheduler, told: Told) -> Iterator[str]:
        """Checks the gangs that have new victims in this step."""
        before, self._victims = self._victims, frozenset(scheduler.shared.victims)
        new = self._victims - before
        if not new:
            return
        ours = [pod for pod in told.pods.values() if pod.spec.scheduler_name in scheduler.shared.profiles]
        taken = (pod for pod in ours if pod.metadata.uid in new and _is_there(pod, told))
        for gang in dict.fromkeys(map(gang_of, taken)):
            if gang is not None and gang.dialect == _OURS:
                yield from self._leaves_enough(gang, [pod for pod in ours if gang_of(pod) == gang], told)

    def _leaves_enough(self, gang: Gang, pods: Sequence[Pod], told: Told) -> Iterator[str]:
        stated = {(least(gang, pod, None), (pod.metadata.annotations or {}).get(_MODE)) for pod in pods}
        (n, mode), *others = stated
        if others or n is None or mode == "single":
            return  # they differ since somebody edited them
        left = [pod for pod in pods if _is_there(pod, told) and pod.metadata.uid not in self._victims]
        running = [pod for pod in left if not pod.is_terminal]
        if running and (mode == "all" or len(left) < n):
            names = sorted(pod.metadata.name for pod in running)
            yield f"gangs-not-torn: of {gang}, which needs {n}, {names} are left, by mode {mode}"


def _is_there(pod: Pod, told: Told) -> bool:
    """Whether the pod runs and stays, or has succeeded."""
    if pod.is_terminal:
        return pod.status.phase == "Succeeded"
    is_bound = bool(pod.spec.node_name) or pod.metadata.uid in told.answered
    return is_bound and pod.metadata.deletion_timestamp is None

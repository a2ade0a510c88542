"""StepJudges: the checkers that look at every step of one process, as its settings call for them.

Called by sim.driver, with a new one for each process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gangsched.config import Settings
from gangsched.config.queueing import EVICT
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.model import effects as ef
from gangsched.sim.capped import Limits
from gangsched.sim.checkers import Preemptions
from gangsched.sim.filling import unfilled
from gangsched.sim.given_back import GivenBack
from gangsched.sim.kept_room import KeptRoom, acyclic
from gangsched.sim.overtime import Overtime
from gangsched.sim.teams import Guarantees
from gangsched.sim.told import Told


class StepJudges:
    """One process' checkers; those of queues know the queues of their own storm alone."""

    def __init__(self, settings: Settings) -> None:
        queueing = settings.queueing
        queues = () if settings.queues is None else settings.queues.queues
        self.preemptions = Preemptions()
        self._fills = queueing is not None
        self._guarantees = Guarantees() if any(one.guaranteed for one in queues) else None
        # With claims a group may have to wait for those of its own queue.
        self._given_back = GivenBack() if self._guarantees is not None and queueing is None else None
        self._limits = Limits() if any(one.limit for one in queues) else None
        self._overtime = Overtime() if queueing is not None and queueing.on_overrun == EVICT else None
        self._kept_room = (
            KeptRoom() if self._guarantees is None else KeptRoom(self._guarantees.takes_kept_room)
        )

        self.excuses: Callable[[Group], bool] = _nobody
        """Whether a group may wait for something else than room, a plugin, say."""
        self.has_more = queueing is not None or bool(queues)
        """Whether anything is judged but preemptions: without claims and queues, nothing is."""

    def look(
        self, scheduler: Scheduler, effects: Sequence[ef.Effect], told: Told, now_s: float
    ) -> Iterator[str]:
        """After every step, before its effects are sent: all but `preemptions`, where there are more."""
        if scheduler.shared.queue.claims is not None:
            yield from self._kept_room.look(scheduler, effects, told, now_s)
            yield from acyclic(scheduler)
        if self._guarantees is not None:
            yield from self._guarantees.look(scheduler, effects, told)
        if self._given_back is not None:
            self._given_back.look(effects, told)
        if self._limits is not None:
            yield from self._limits.look(effects, told, now_s)
        if self._overtime is not None:
            yield from self._overtime.look(scheduler, effects, told, now_s)

    def between_turns(
        self, scheduler: Scheduler, told: Told, now_s: float, *, calm_since_s: float, is_idle: bool
    ) -> Iterator[str]:
        """calm_since_s: 0 as long as anything goes wrong; is_idle: nothing is left to hear, or in line."""
        if self._fills and is_idle and scheduler.is_synced:
            keeps_out = None if self._limits is None else self._limits.keeps_out
            yield from unfilled(scheduler, told, now_s, keeps_out, self.excuses)
        if self._overtime is not None and calm_since_s and scheduler.is_synced:
            yield from self._overtime.not_gone(told, now_s, calm_since_s)
        if calm_since_s and scheduler.is_synced:
            yield from self.at_rest(told, now_s)

    def at_rest(self, told: Told, now_s: float) -> Iterator[str]:
        """In calm weather, and when nothing moves any more."""
        if self._given_back is not None:
            yield from self._given_back.too_late(told, now_s)


def _nobody(group: Group) -> bool:
    return False

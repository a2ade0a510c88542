"""StepJudges: the checkers that look at every step of one process, as its settings call for them.

Called by lab.sim.runs.driver, with a new one for each process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gangsched.config import Settings
from gangsched.config.queueing import EVICT
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.lab.sim.judges.gangs.partial_binds import UNWIND, PartialBinds
from gangsched.lab.sim.judges.gangs.preemption import TornGangs, Victims
from gangsched.lab.sim.judges.gangs.starts import Starts, reserved_by
from gangsched.lab.sim.judges.gangs.waits import Waits
from gangsched.lab.sim.judges.places.failed_devices import FailedDevices
from gangsched.lab.sim.judges.places.pod_constraints import PodConstraints
from gangsched.lab.sim.judges.places.promised_links import PromisedLinks
from gangsched.lab.sim.judges.queueing.filling import unfilled
from gangsched.lab.sim.judges.queueing.given_back import GivenBack
from gangsched.lab.sim.judges.queueing.guarantees import Guarantees
from gangsched.lab.sim.judges.queueing.kept_room import KeptRoom, acyclic
from gangsched.lab.sim.judges.queueing.limits import Limits
from gangsched.lab.sim.judges.queueing.overtime import Overtime
from gangsched.lab.sim.judges.queueing.unschedulable import UnschedulableGroups
from gangsched.lab.sim.judges.queueing.waiting_groups import WaitingGroups
from gangsched.lab.sim.judges.words.conditions import Conditions
from gangsched.lab.sim.judges.words.group_status import untrue_words
from gangsched.lab.sim.judges.words.pages import Pages
from gangsched.lab.sim.judges.words.tenants import TenantNames
from gangsched.lab.sim.reading.received import Received
from gangsched.model import effects as ef
from gangsched.model.objects import Pod


class StepJudges:
    """One process' checkers; those of queues know only the queues of their own storms."""

    def __init__(
        self, settings: Settings, *, follows: bool = False, knows_queues: bool = True, knows_ids: bool = True
    ) -> None:
        """follows: other settings may take effect later, and what happens until then counts for those too;
        knows_queues: whether the checkers know its queues' guarantees and limits; knows_ids: whether pods'
        annotations say which devices they have."""
        self.victims, self._starts, self._kept_room = Victims(), Starts(), KeptRoom()
        self._torn_gangs, self._waits, self._pod_constraints, self._unschedulable = (
            TornGangs(),
            Waits(),
            PodConstraints(),
            UnschedulableGroups(),
        )
        self._waiting_groups = WaitingGroups()
        self._links, self._pages, self._conditions = PromisedLinks(), Pages(knows_ids=knows_ids), Conditions()
        self._follows, self._knows_ids, self._tenant_names = follows, knows_ids, TenantNames()
        self._guarantees = self._limits = self._overtime = None
        self._partial: PartialBinds | None = None
        self._failed: FailedDevices | None = None
        if follows:
            self._guarantees, self._limits, self._overtime = Guarantees(), Limits(), Overtime()
        self.excuses: Callable[[Group], bool] = _none_excused
        """Whether a group may wait for something other than room, such as a plugin."""
        self.take(settings, knows_queues=knows_queues)

    def take(
        self, settings: Settings, *, knows_queues: bool = True, reserved: frozenset[str] = frozenset()
    ) -> None:
        """Applies these settings from now on; reserved: UIDs of pods that are reserved already."""
        self._reserved = reserved
        queueing = settings.queueing
        queues = settings.queues.queues if settings.queues is not None and knows_queues else ()
        self._fills, self._knows_queues = queueing is not None and knows_queues, knows_queues
        self._are_guaranteed = any(one.guaranteed for one in queues)
        self._are_limited = any(one.limit for one in queues)
        self._are_evicted = queueing is not None and queueing.on_overrun == EVICT
        self._guarantees = self._guarantees or (Guarantees() if self._are_guaranteed else None)
        self._limits = self._limits or (Limits() if self._are_limited else None)
        self._overtime = self._overtime or (Overtime() if self._are_evicted else None)
        if self._partial is not None:
            self._partial.take(settings)
        elif settings.on_partial_bind == UNWIND:
            self._partial = PartialBinds(settings)
        if self._failed is None and settings.devices.on_failure != "none" and self._knows_ids:
            self._failed = FailedDevices(settings.devices)
        if self._limits is not None:
            is_counted = queueing is not None and queueing.mode in ("hard", "budget")
            self._limits.begin(queueing.bound if queueing is not None and is_counted else None)
        # With claims a group may have to wait for claims of its own queue.
        self._given_back = GivenBack() if self._are_guaranteed and queueing is None else None
        if not knows_queues:
            self._kept_room.begin(_always)
        elif self._are_guaranteed and self._guarantees is not None:
            self._kept_room.begin(self._guarantees.takes_kept_room)
        else:
            self._kept_room.begin()
        has_policies = self._failed is not None or self._partial is not None
        self.has_more = queueing is not None or bool(queues) or self._follows or has_policies
        """Whether `look` judges anything; with the default settings, nothing."""

    def _by_room_alone(self, received: Received) -> bool:
        """Whether room decides which group starts: no plugin refuses in spells, and no pod has constraints on
        its neighbours, for which what adds up may suit no node."""
        return self.excuses is _none_excused and not received.constrained

    def check_always(
        self, scheduler: Scheduler, effects: Sequence[ef.Effect], received: Received
    ) -> Iterator[str]:
        """Checks a step before its effects are sent: what no setting changes."""
        yield from self.victims.check(scheduler, effects)
        yield from self._starts.check(scheduler, effects, received)
        yield from self._torn_gangs.check(scheduler, received)
        yield from self._waits.check(scheduler, received, self.excuses)
        yield from self._conditions.check(scheduler, effects, received)
        yield from self._tenant_names.check(effects, received)
        yield from self._pod_constraints.check(scheduler, received)
        yield from self._links.check(scheduler, received, scheduler.shared.now_s)
        if self._by_room_alone(received) and scheduler.shared.queue.lanes is None and not self._fills:
            yield from self._waiting_groups.check_overtaking(
                scheduler, received, scheduler.shared.now_s, self.excuses
            )

    def check(
        self, scheduler: Scheduler, effects: Sequence[ef.Effect], received: Received, now_s: float
    ) -> Iterator[str]:
        """Checks a step before its effects are sent: what concerns claims and queues."""
        if scheduler.shared.claims is not None:
            yield from self._kept_room.check(scheduler, effects, received, now_s)
            yield from acyclic(scheduler)
        if self._partial is not None:
            yield from self._partial.check(scheduler, effects, received, now_s)
        if self._failed is not None:
            yield from self._failed.check(scheduler, effects, received, now_s)
        if self._guarantees is not None:
            found = [*self._guarantees.check(scheduler, effects, received)]
            yield from found if self._are_guaranteed else ()
        if self._given_back is not None:
            self._given_back.note(effects, received)
        if self._limits is not None:
            found = [*self._limits.check(effects, received, now_s, self._reserved)]
            yield from found if self._are_limited else ()
        if self._are_limited:
            self._reserved = reserved_by(scheduler)
        if self._overtime is not None:
            found = [*self._overtime.check(scheduler, effects, received, now_s)]
            yield from found if self._are_evicted else ()

    def between_turns(
        self, scheduler: Scheduler, received: Received, now_s: float, *, calm_since_s: float, is_idle: bool
    ) -> Iterator[str]:
        """calm_since_s: 0 while anything goes wrong; is_idle: no event is unread, and no group is in line."""
        if is_idle:
            yield from self._unschedulable.check(scheduler, now_s, self.excuses)
            yield from self._pages.check(scheduler, received, now_s)
            if self._by_room_alone(received):
                yield from self._waiting_groups.check(
                    scheduler, received, now_s, self.is_kept_out, self.excuses
                )
        if not self.has_more:
            return
        if self._fills and is_idle and scheduler.is_synced:
            yield from unfilled(scheduler, received, now_s, self.is_kept_out, self.excuses)
        if self._overtime is not None and self._are_evicted and calm_since_s and scheduler.is_synced:
            yield from self._overtime.not_gone(received, now_s, calm_since_s)
        if calm_since_s and scheduler.is_synced:
            yield from self._at_rest(received, now_s)

    def is_kept_out(self, needed: Sequence[Pod], scheduler: Scheduler, received: Received) -> bool:
        """Whether these may have to wait for a limit of their queue; True if that is unknown."""
        if not self._knows_queues:
            return True
        limits = self._limits if self._are_limited else None
        return limits is not None and limits.keeps_out(needed, scheduler, received)

    def in_the_end(self, scheduler: Scheduler, received: Received, now_s: float) -> Iterator[str]:
        """Checks a run that is at rest."""
        yield from self._at_rest(received, now_s)
        yield from self._starts.at_rest(scheduler, received, self.excuses)
        yield from untrue_words(scheduler, received)

    def _at_rest(self, received: Received, now_s: float) -> Iterator[str]:
        if self._given_back is not None:
            yield from self._given_back.too_late(received, now_s)


def _always(*_: object) -> bool:
    return True


def _none_excused(group: Group) -> bool:
    return False

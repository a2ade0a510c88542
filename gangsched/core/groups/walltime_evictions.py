"""WalltimeEvictions: evicts groups that run past their stated walltime (`onOverrun: evict`).

    its end was half a minute ago          all of the group's pods are evicted, until they are gone
    its end has moved                      nothing, until the new end
    it is being bound, or bound in part    nothing, until that is over
    its pods are victims of a preemption   nothing meanwhile: that evicts them (core.kept.nominations)
    allowEviction is off                   an event, once for each end

The end is the same as for evictions in favour of a claim (core.kept.overrun): that of its last pod on a
node, if it is stated or enforced by kubelet. A predicted or default walltime evicts no pod. Not here: the
evictions, and how they are repeated (core.binding.group_outcome). Called by core.scheduler.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from gangsched.config import Settings
from gangsched.core.binding.binder import Binder
from gangsched.core.groups.attempts.attempts import Attempts
from gangsched.core.kept.claim_reports import minute_of
from gangsched.core.kept.overrun import SPARED_S
from gangsched.core.preemption.victims import is_leaving
from gangsched.core.queueing.ends import STATED
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import BOUND, NEVER_S, Group, GroupState
from gangsched.core.why.evictions import RanPastWalltime
from gangsched.model.pod_group import GroupKey

_AGAIN_S = 5.0
_MOVING = (GroupState.BINDING, GroupState.UNWINDING)


class WalltimeEvictions:
    """Knows when each running group is to be evicted."""

    def __init__(self, shared: SharedState, reporter: Reporter, binder: Binder, attempts: Attempts) -> None:
        self._shared = shared
        self._reporter = reporter
        self._binder = binder
        self._attempts = attempts
        self._settings: Settings | None = None
        """As of the last turn."""
        self._due: Deadlines[GroupKey] = Deadlines(shared.timers, DeadlineKind.WALLTIME)
        self._stay: WeakKeyDictionary[Group, float] = WeakKeyDictionary()
        """Groups that may not be evicted, with the end reported for each."""

    def follow_settings(self) -> None:
        """Looks at all groups again, at the end of a turn, if the configuration has changed."""
        if self._settings is self._shared.settings:
            return
        self._settings = self._shared.settings
        for key in list(self._due):
            self._due.drop(key)
        self._stay.clear()
        for group in self._shared.groups.values() if self._settings.ends_overrun else ():
            self.set_deadline(group)

    def set_deadline(self, group: Group) -> None:
        """Updates the group's deadline: its members, their statements or its state may have changed."""
        end_s = NEVER_S if group.state in _MOVING else self._end_s(group)
        if self._stay.get(group) == end_s:
            end_s = NEVER_S
        self._set(group.key, end_s + SPARED_S)

    def due(self) -> list[Group]:
        """Groups whose time may be over; each is returned once."""
        groups = self._shared.groups
        return [groups[key] for key in self._due.take(self._shared.now_s) if key in groups]

    def ends(self, group: Group) -> bool:
        """Whether the group is evicted once its time is over."""
        shared, settings = self._shared, self._shared.settings
        walltimes, ends = shared.walltimes, shared.ends
        if walltimes is None or ends is None or not (settings.ends_overrun and settings.allow_eviction):
            return False
        return walltimes.walltime(group).source in STATED or ends.fixed_s(group) < NEVER_S

    def _set(self, key: GroupKey, when_s: float) -> None:
        if when_s == NEVER_S:
            self._due.drop(key)
        elif self._due.due_s(key) != when_s:
            self._due.set(key, when_s)

    def _end_s(self, group: Group) -> float:
        ends = self._shared.ends
        if ends is None or not group.counts[BOUND]:
            return NEVER_S
        return ends.stated_end_s(group, self._shared.now_s, self._shared.wall_ahead_s)

    def act(self, group: Group) -> None:
        """Evicts the group if its time is over."""
        shared, end_s = self._shared, self._end_s(group)
        if group.state in _MOVING or shared.now_s < end_s + SPARED_S:
            self.set_deadline(group)
            return
        staying = [info for info in group.in_state(BOUND) if not is_leaving(info)]
        name = f"{'gang' if group.is_gang else 'pod'} {group.key}"
        over = RanPastWalltime(name, minute_of(shared, end_s))
        if not shared.settings.allow_eviction:
            self._stay[group] = end_s
            message = f"{over}, and stays: allowEviction is off"
            self._reporter.event(group, "Warning", "OverrunStays", "Walltime", message)
            return
        if group.is_half_bound or any(info.uid in shared.victims for info in staying):
            self._set(group.key, shared.now_s + _AGAIN_S)
            return
        if group.state is GroupState.WAITING:
            self._attempts.commits.give_back(group, over)
        shared.count("overrun_evictions", len(staying))
        self._binder.outcome.evict_overrun(group, over)
        self._reporter.event(group, "Warning", "OverrunEviction", "Walltime", f"{over}, and is evicted")

"""LostMembers: gangs that have started and run with fewer members than they need, a role's least included.

    it has fewer than it needs      reported at once: event, its object's and members' condition, metric
    what is missing changes         reported again
    it has enough again             reported
    recoverWithinSeconds are over   the rest is evicted, and starts again as one; 0, the default: never

The time counts from the first loss, as the members' condition GangWhole has it, so that neither further
losses nor a restart renew it. Called by core.groups.reconciler.
"""

from __future__ import annotations

from gangsched.core.binding.binder import Binder
from gangsched.core.binding.start_records import LOST_MEMBERS
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import Group
from gangsched.core.types.lost_members import lacks, runs_enough
from gangsched.model.pod_group import GroupKey


class LostMembers:
    """Tells of gangs that lack members, and gives them up after a time if so configured."""

    def __init__(self, shared: SharedState, reporter: Reporter, binder: Binder) -> None:
        self._shared = shared
        self._reporter = reporter
        self._binder = binder
        self._due: Deadlines[GroupKey] = Deadlines(shared.timers, DeadlineKind.LOST_MEMBERS)

    def report(self, group: Group) -> None:
        """Tells what has changed. Called for every group that was reconsidered and has started, or had."""
        lacking = lacks(group)
        if not lacking:
            if group.lost:
                group.lost = ""
                self._due.drop(group.key)
                if runs_enough(group):
                    self._reporter.lost_members(group, "")
                    self._binder.records.write_whole(group)
            return
        within_s = self._shared.settings.recover_within_s
        message = f"gang {group.key} has lost members: {lacking}"
        message += f"; {within_s:g} s after the first loss the rest is evicted" if within_s else ""
        if group.lost == message:
            return
        since_s = self._binder.records.marked_since_s(group, LOST_MEMBERS)
        if not group.lost and within_s:
            self._due.set(group.key, since_s + within_s)
        group.lost = message
        self._reporter.lost_members(group, message)
        self._binder.records.mark(group, LOST_MEMBERS, message)

    def advance(self) -> None:
        """Evicts what is left of gangs that have not recovered in time."""
        shared = self._shared
        for key in self._due.take(shared.now_s):
            group = shared.groups.get(key)
            if group is None or not lacks(group):
                continue
            if not shared.settings.recover_within_s:
                continue
            if not shared.settings.allow_eviction or group.n_assumed:
                self._due.set(key, shared.now_s + _AGAIN_S)
                continue
            why = f"gang {key} is evicted: it has not recovered in time: {lacks(group)}"
            self._reporter.event(group, "Warning", "NotRecovered", "Scheduling", why)
            self._binder.outcome.evict_gang(group)


# Looked at again while it is being bound, or while evictions are off.
_AGAIN_S = 5.0

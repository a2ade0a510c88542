"""UnschedulableGroups: finds groups that rest although they would fit: a change has cured them, and did not
wake them.

Asks the scheduler itself why a group does not run, which tries to place it on a copy. An answer that there is
room is a fault, unless the group, or one that starts with it, is about to be tried. So every hint of every
plugin is judged, whatever pods ask for. Called by lab.sim.judges.step_judges between two turns, now and then:
an answer costs as much as an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gangsched.core.explaining.explain import finding
from gangsched.core.framework.plan import TOPOLOGY
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, GroupState
from gangsched.model.text.printable import clean
from gangsched.plugins import IN_TREE

OURS = frozenset(("", TOPOLOGY, *IN_TREE))
"""Plugins that refuse a group for lack of room; not out-of-tree ones."""
_EVERY_S, _RESTED_S = 3.0, 1.0
_AT_ONCE = 3
_SOON = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF)


class UnschedulableGroups:
    """woken-in-time: no group rests as unschedulable while it would fit."""

    def __init__(self) -> None:
        self._next_s, self._n_looks = 0.0, 0

    def check(self, scheduler: Scheduler, now_s: float, excuses: Callable[[Group], bool]) -> Iterator[str]:
        """Asks about a few groups, others each time. excuses: whether a group may wait for something else."""
        if now_s < self._next_s or not scheduler.is_synced:
            return
        self._next_s = now_s + _EVERY_S
        resting = [one for one in scheduler.shared.groups.values() if _is_resting(one, scheduler, now_s)]
        self._n_looks += 1
        for k in range(min(_AT_ONCE, len(resting))):
            group = resting[(self._n_looks * _AT_ONCE + k) % len(resting)]
            found = finding(scheduler, group, now_s)
            if found.pauses and not excuses(group):
                rests_s, told = now_s - group.since_s, clean(found.answer)
                yield f"woken-in-time: {group.key} rests for {rests_s:.1f} s, and would fit: {told}"


def _is_resting(group: Group, scheduler: Scheduler, now_s: float) -> bool:
    if group.state is not GroupState.UNSCHEDULABLE or group.problem or now_s - group.since_s < _RESTED_S:
        return False
    if not OURS.issuperset(name for name, _ in group.rejected_by):
        return False  # an out-of-tree plugin, whose answer has nothing to do with room
    return all(one.state not in _SOON for one in scheduler.shared.siblings(group).values())

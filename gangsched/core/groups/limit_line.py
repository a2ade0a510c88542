"""LimitLine: groups that a limit of their queue keeps out, and how many of that queue have passed each.

Small groups fit below a limit whenever one of them ends, a large one never does while they go on coming. So a
start counts as a pass of each group of the same queue that comes before it in line, is no less important, and
is kept out by a limit on something that the start takes. From its bound (core.queueing.bypasses) on, what the
group needs is kept for it within its limits: later ones of its queue start only if they leave it that. No
node is kept, and nothing once it is admitted.

Of each queue 8 to 16 of the first in line are counted, those behind them once they have come forward. Only
with `queueing` and an enforced bound. Not here: the limits (plugins.fairness).
Called by core.groups.attempts; read by plugins, through their QueueView, and by core.explain_queues.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import msgspec

from gangsched.core.framework.status import Code, Status
from gangsched.core.state.state import SharedState
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import Group
from gangsched.core.types.needed import completes
from gangsched.core.types.states import IN_LINE
from gangsched.model.pod_group import GroupKey

_N_COUNTED = 16
_FAIRNESS = "Fairness"
_Amounts = dict[str, dict[str, int]]
"""By queue with a limit, by resource."""


class KeptOut(msgspec.Struct, eq=False):
    """One group. needs: of what is limited; n: how many have passed it, of at most `bound`. is_out: since its
    last try; queue: its lane."""

    group: Group
    queue: str
    needs: _Amounts
    bound: int
    n: int = 0
    is_out: bool = True

    @property
    def is_at_bound(self) -> bool:
        return self.n >= self.bound


class LimitLine:
    """Counts passes at limits, and keeps room within them."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._known: dict[GroupKey, KeptOut] = {}
        self._of_queue: dict[str, dict[GroupKey, KeptOut]] = {}
        self._first: dict[str, list[KeptOut]] = {}
        """The first few of each queue, in no order."""
        self._held: tuple[KeptOut, ...] = ()
        """Those for which something was kept at the end of the last turn."""

    def answered(self, unit: Sequence[Group], answer: Status) -> None:
        """Admit has admitted the unit, or keeps it out."""
        view, bypasses = self._shared.queue_view, self._shared.queue.bypasses
        is_out = answer.code is Code.UNSCHEDULABLE and answer.plugin == _FAIRNESS and self._is_on
        if not is_out or view is None or view.queues is None or bypasses is None:
            for group in unit if self._known else ():
                if (known := self._known.get(group.key)) is not None:
                    known.is_out = False
            return
        tree = view.queues.tree
        for group in unit:
            queue, asked = view.queue_of(group), view.request_of(group)
            limits = {name: tree.queues[name].limit for name in tree.paths.get(queue, ())}
            needs = {
                name: {resource: asked[resource] for resource in limit if asked.get(resource)}
                for name, limit in limits.items()
            }
            known = self._known.get(group.key)
            if known is None or known.group is not group or known.queue != queue:
                if known is not None:
                    self._drop(known)
                bound = bypasses.bound_for(group, self._shared.now_s)
                known = self._known[group.key] = KeptOut(group, queue, needs, bound)
                self._of_queue.setdefault(queue, {})[group.key] = known
                self._line_up(known)
            known.needs, known.is_out = needs, True

    def started(self, unit: Sequence[Group]) -> None:
        """The unit's members are about to be reserved."""
        view = self._shared.queue_view
        if not self._known or view is None or view.queues is None:
            return
        for group in unit:
            if (own := self._known.get(group.key)) is not None:
                self._drop(own)
            if completes(group):
                continue
            taken = view.request_of(group)
            for one in self._first.get(view.queue_of(group), ()):
                asks = {resource for some in one.needs.values() for resource in some}
                if self._is_kept_out(one) and self._is_before(one.group, group) and asks & taken.keys():
                    one.n += 1

    def kept_ahead_of(self, group: Group) -> Mapping[str, Mapping[str, int]]:
        """What is kept within limits from this group, by queue with a limit."""
        found: _Amounts = {}
        view = self._shared.queue_view
        if not self._known or view is None or completes(group):
            return found
        for one in self._first.get(view.queue_of(group), ()):
            if one.is_at_bound and self._is_kept_out(one) and self._is_before(one.group, group):
                for name, some in one.needs.items():
                    mine = found.setdefault(name, {})
                    for resource, n in some.items():
                        mine[resource] = mine.get(resource, 0) + n
        return found

    def of(self, group: Group) -> KeptOut | None:
        """The group's count; None: no limit keeps it out."""
        known = self._known.get(group.key)
        return known if known is not None and known.group is group and self._is_kept_out(known) else None

    def look(self) -> None:
        """At the end of a turn: has those asked again from whom something was kept that no longer is."""
        if not self._known and not self._held:
            return
        if self._shared.queue_view is not None:  # another one, since a reload
            self._shared.queue_view.kept_in_limits = self.kept_ahead_of
        gone = [one for first in self._first.values() for one in first if not self._is_there(one)]
        if len(self._known) > 2 * len(self._shared.groups) + _N_COUNTED:
            gone = [one for one in self._known.values() if not self._is_there(one)]
        for one in gone:
            self._drop(one)
        counted = (one for first in self._first.values() for one in first)
        held = tuple(one for one in counted if one.is_at_bound and self._is_kept_out(one))
        given_up = [one for one in self._held if one not in held]
        self._held = held
        if given_up:
            resources = frozenset(name for one in given_up for some in one.needs.values() for name in some)
            self._shared.changes.append(ClusterChange(Change.ROOM_FREED, resources=resources))

    def _line_up(self, one: KeptOut) -> None:
        first = self._first.setdefault(one.queue, [])
        first.append(one)
        if len(first) > _N_COUNTED:
            first.remove(max(first, key=lambda each: self._place(each.group)))

    def _drop(self, one: KeptOut) -> None:
        """It has started, or no longer waits there. The first few become as many again once they are half."""
        first, of_queue = self._first[one.queue], self._of_queue[one.queue]
        del self._known[one.group.key], of_queue[one.group.key]
        if not of_queue:
            del self._of_queue[one.queue], self._first[one.queue]
        elif one in first:
            first.remove(one)
            if len(first) <= _N_COUNTED // 2 and len(of_queue) > len(first):
                left = (each for each in of_queue.values() if self._is_there(each))
                self._first[one.queue] = heapq.nsmallest(
                    _N_COUNTED, left, key=lambda each: self._place(each.group)
                )

    @property
    def _is_on(self) -> bool:
        """Whether bounds are enforced."""
        return self._shared.queue.claims is not None

    def _is_there(self, one: KeptOut) -> bool:
        group = self._shared.groups.get(one.group.key)
        return group is one.group and group.state in IN_LINE and group.is_complete and self._is_on

    def _is_kept_out(self, one: KeptOut) -> bool:
        return one.is_out and self._is_there(one)

    def _is_before(self, group: Group, other: Group) -> bool:
        """Whether the other must not pass it without end."""
        if group is other or other.priority > group.priority:
            return False
        return self._place(group) < self._place(other)

    def _place(self, group: Group) -> tuple[object, ...]:
        return self._shared.passing_place(group), group.key

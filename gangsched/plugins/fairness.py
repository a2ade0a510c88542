"""Fairness: queues with guarantees, limits and shares. QueueSort and Admit.

Enabled in every profile by `queues` in the configuration. Each leaf of the tree is a lane, and the lane of
the queue that is furthest below its due share has the next turn (core.cache.queue_book). A group that would
take its queue, or one above it, over its limit is kept out until that queue holds less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangsched.core.cache.namespace_usage import QueueView
from gangsched.core.cache.queue_book import KEPT_FOR, OverLimit
from gangsched.core.cache.queue_tree import BY_KUEUE
from gangsched.core.framework.eviction_rule import EvictionRule
from gangsched.core.framework.status import SUCCESS, Code, Status
from gangsched.core.preemption.queue_rights import SYSTEM_PRIORITY, QueueRights
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.needed import requests_of
from gangsched.model.resources import told_amount

SYSTEM = "/system"
"""The lane of pods that the cluster itself needs; it comes first, and then pods that Kueue has admitted."""
_FREES = Change.ROOM_FREED | Change.NODE_REMOVED


class Fairness:
    """Queues with guarantees, limits and shares."""

    name = "Fairness"

    # -- QueueSort -------------------------------------------------------------------------------------

    def sort_key(self, group: Group, view: QueueView) -> tuple[Any, ...]:
        """Sorts within a queue: by priority, then the group that was complete first; with `order: shortest`,
        the shortest comes before that."""
        book = view.queues
        queue = None if book is None else book.tree.queues.get(view.queue_of(group))
        is_short = queue is not None and queue.order == "shortest"
        walltime_s = view.walltime_s(group) if is_short else 0.0
        return (-group.priority - group.raised, walltime_s, group.first_complete_s)

    def passing_key(self, group: Group, view: QueueView) -> tuple[Any, ...] | None:
        """Sorts by arrival with `order: shortest`: shorter groups that came later pass a long one."""
        book = view.queues
        queue = None if book is None else book.tree.queues.get(view.queue_of(group))
        if queue is None or queue.order != "shortest":
            return None
        return (-group.priority - group.raised, group.first_complete_s)

    def lane(self, group: Group, view: QueueView) -> str:
        return SYSTEM if group.priority >= SYSTEM_PRIORITY else view.queue_of(group)

    def lane_key(self, first: Group, view: QueueView) -> tuple[Any, ...]:
        lane = self.lane(first, view)
        if lane in (SYSTEM, BY_KUEUE) or view.queues is None:
            return (lane != SYSTEM, lane != BY_KUEUE, ())
        return (True, True, view.place_of_queue(lane, view.request_of(first)))

    # -- Admit -----------------------------------------------------------------------------------------

    def admit(self, group: Group, members: Sequence[PodInfo], view: QueueView) -> Status:
        """Admits the members, of `group` and of groups that start with it, unless a limit keeps them out."""
        book = view.queues
        if book is None:
            return SUCCESS
        for info in members:
            if problem := book.tree.of(info.pod).problem:
                return Status(Code.UNRESOLVABLE, problem, self.name)
        asked = book.tree.asked(members) if group.priority < SYSTEM_PRIORITY else None
        over = book.over_limit(asked, view.kept_in_limits(group)) if asked else None
        return SUCCESS if over is None else _over(over)

    def eviction_rule(
        self, unit: Sequence[Group], members: Sequence[PodInfo], view: QueueView
    ) -> EvictionRule | None:
        """Returns the rule by guarantees and, with `reclaim: fair`, by shares; None where neither applies."""
        book = view.queues
        if book is None or book.tree.settings.reclaim == "never":
            return None
        if book.tree.settings.reclaim != "fair" and not book.tree.guarantees:
            return None
        if any(group.priority >= SYSTEM_PRIORITY for group in unit):
            return None
        asked: dict[str, list[PodInfo]] = {}
        for info in members:
            queue = book.tree.of(info.pod).queue
            if queue in book.tree.paths:
                asked.setdefault(queue, []).append(info)
        return QueueRights(view, book, {queue: requests_of(infos) for queue, infos in asked.items()})

    def admit_again(
        self, group: Group, members: Sequence[PodInfo], change: ClusterChange, view: QueueView
    ) -> bool:
        """Whether `admit` succeeds now; False unless room of a queue above the group was freed."""
        book = view.queues
        if book is None or not change.what & _FREES:
            return book is None
        if change.pod is not None:
            freed = book.tree.paths.get(book.tree.of(change.pod).queue, ())
            above = {name for info in members for name in book.tree.paths.get(_queue_of(info, view), ())}
            if above.isdisjoint(freed):
                return False
        return self.admit(group, members, view).is_success


def _over(over: OverLimit) -> Status:
    queue, resource, needs, used, kept, limit = over
    texts = [told_amount(resource, n) for n in (needs, used, limit, kept)]
    if needs > limit:
        return Status(
            Code.UNRESOLVABLE,
            f"queue {queue}: needs {texts[0]} {resource}, more than its limit of {texts[2]}: it never starts",
            Fairness.name,
        )
    beside = f", {texts[3]} {KEPT_FOR}" if kept else ""
    return Status(
        Code.UNSCHEDULABLE,
        f"queue {queue}: {texts[1]} of {texts[2]} {resource} used{beside}, needs {texts[0]}",
        Fairness.name,
    )


def _queue_of(info: PodInfo, view: QueueView) -> str:
    book = view.queues
    return "" if book is None else book.tree.of(info.pod).queue

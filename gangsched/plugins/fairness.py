"""Fairness: queues with guarantees, limits and shares. QueueSort and Admit.

Enabled in every profile by `queues` in the configuration. Each leaf of the tree is a lane, and the lane of
the queue that is furthest below its due share has the next turn (core.cache.queues.book). A group that would
take its queue, or one above it, over its limit is kept out until that queue holds less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gangsched.core.cache.queues.book import QueueBook
from gangsched.core.cache.queues.kueue_admissions import ADMISSIONS
from gangsched.core.cache.queues.limits import OverLimit
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.framework.eviction_rule import EvictionRule
from gangsched.core.framework.status import SUCCESS, Code, Status
from gangsched.core.preemption.queue_rights import SYSTEM_PRIORITY, QueueRights, is_within
from gangsched.core.preemption.victims import may_preempt, priority_of
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.needed import requests_of
from gangsched.core.why.not_tried import QueueFull

SYSTEM = "/system"
"""The lane of pods that the cluster itself needs; it comes first."""
_FREES = Change.ROOM_FREED | Change.NODE_REMOVED


class Fairness:
    """Queues with guarantees, limits and shares."""

    name = "Fairness"

    # -- QueueSort -------------------------------------------------------------------------------------

    def sort_key(self, group: Group, view: QueueView) -> tuple[Any, ...]:
        """Sorts within a queue: by priority, then by the priority that the group's object asks for, then the
        group that was complete first; with `order: shortest`, the shortest comes before that."""
        book = view.queues
        queue = None if book is None else book.tree.queues.get(view.queue_of(group))
        is_short = queue is not None and queue.order == "shortest"
        walltime_s = view.walltime_s(group) if is_short else 0.0
        return (-group.priority - group.raised, -group.wished_priority, walltime_s, group.first_complete_s)

    def passing_key(self, group: Group, view: QueueView) -> tuple[Any, ...] | None:
        """Sorts by arrival with `order: shortest`: shorter groups that came later pass a long one."""
        book = view.queues
        queue = None if book is None else book.tree.queues.get(view.queue_of(group))
        if queue is None or queue.order != "shortest":
            return None
        return (-group.priority - group.raised, -group.wished_priority, group.first_complete_s)

    def lane(self, group: Group, view: QueueView) -> str:
        return SYSTEM if group.priority >= SYSTEM_PRIORITY else view.queue_of(group)

    def lane_key(self, first: Group, view: QueueView) -> tuple[Any, ...]:
        lane = self.lane(first, view)
        if lane == SYSTEM or view.queues is None:
            return (lane != SYSTEM, ())
        return (True, view.place_of_queue(lane, view.request_of(first)))

    # -- Admit -----------------------------------------------------------------------------------------

    def admit(self, group: Group, members: Sequence[PodInfo], view: QueueView) -> Status:
        """Admits the members, of `group` and of groups that start with it, unless a limit keeps them out."""
        return self.admit_without(group, members, (), view)

    def admit_without(
        self, group: Group, members: Sequence[PodInfo], gone: Collection[PodInfo], view: QueueView
    ) -> Status:
        """As `admit`, if these pods were gone."""
        book = view.queues
        if book is None:
            return SUCCESS
        for info in members:
            if problem := book.tree.choice(info.pod).problem:
                return Status(Code.UNRESOLVABLE, problem, self.name)
        asked = book.asked(info for info in members if priority_of(info) < SYSTEM_PRIORITY)
        if not asked:
            return SUCCESS
        kept = view.kept_in_limits(group)
        if gone:
            kept = _less(kept, book, gone)
        over = book.over_limit(asked, kept)
        return SUCCESS if over is None else _over(over)

    def may_admit_without(self, group: Group, members: Sequence[PodInfo], view: QueueView) -> bool:
        """Whether pods that the group may evict hold what it lacks below its limits, counted generously:
        those of lower priority, or, if its queue is due something, all."""
        book = view.queues
        if book is None or not may_preempt(group, members):
            return False
        asked = book.asked(members)
        reclaims = book.tree.settings.reclaim == "fair" or (
            book.tree.settings.reclaim == "guaranteed"
            and any(is_within(book.guaranteed(name), book.used(name), some) for name, some in asked.items())
        )
        return reclaims or all(
            one.used + one.kept + one.needs - one.limit
            <= book.by_priority.below(one.queue, group.priority, one.resource)
            for one in book.over_limits(asked, view.kept_in_limits(group))
        )

    def eviction_rule(
        self, unit: Sequence[Group], members: Sequence[PodInfo], view: QueueView
    ) -> EvictionRule | None:
        """Returns the rule by guarantees and, with `reclaim: fair`, by shares; None where neither applies."""
        book = view.queues
        if book is None or book.tree.settings.reclaim == "never":
            return None
        if book.tree.settings.reclaim != "fair" and not book.tree.guarantees:
            return None
        if all(group.priority >= SYSTEM_PRIORITY for group in unit):
            return None
        asked: dict[str, list[PodInfo]] = {}
        for info in members:
            queue = book.tree.choice(info.pod).queue
            if queue in book.tree.paths:
                asked.setdefault(queue, []).append(info)
        return QueueRights(view, book, {queue: requests_of(infos) for queue, infos in asked.items()})

    def admit_again(
        self, group: Group, members: Sequence[PodInfo], change: ClusterChange, view: QueueView
    ) -> bool:
        """Whether `admit` succeeds now; False unless room of a queue above the group was freed."""
        book = view.queues
        if book is None or not (change.what & _FREES or change.kind == ADMISSIONS):
            return book is None
        if change.pod is not None:
            freed = book.tree.paths.get(book.tree.choice(change.pod).queue, ())
            above = {name for info in members for name in book.tree.paths.get(_queue_of(info, view), ())}
            if above.isdisjoint(freed):
                return False
        return self.admit(group, members, view).is_success


def _less(
    kept: Mapping[str, Mapping[str, int]], book: QueueBook, gone: Iterable[PodInfo]
) -> dict[str, dict[str, int]]:
    """Returns what is kept within limits, less what these pods hold there."""
    left = {name: dict(some) for name, some in kept.items()}
    gone = list(gone)
    if book.admissions is not None:
        for name, some in book.admissions.passing(gone, -1).items():
            own = left.setdefault(name, {})
            for resource, amount in some.items():  # less than 0: what passed limits now gives nothing back
                own[resource] = own.get(resource, 0) - amount
    for info in gone:
        for name in book.tree.paths.get(book.queue_of(info), ()):
            own = left.setdefault(name, {})
            for resource in book.tree.queues[name].limit:
                own[resource] = own.get(resource, 0) - info.template.requests.get(resource, 0)
    return left


def _over(over: OverLimit) -> Status:
    queue, resource, needs, used, kept, limit = over
    code = Code.UNRESOLVABLE if needs > limit else Code.UNSCHEDULABLE
    return Status.refused(code, QueueFull(queue, resource, used, limit, kept, needs), plugin=Fairness.name)


def _queue_of(info: PodInfo, view: QueueView) -> str:
    book = view.queues
    return "" if book is None else book.tree.choice(info.pod).queue

"""Bounds: how many groups may bypass a group that does not fit, by the configuration; ArrivalWaits: how long
a shortest-first queue may let its first group wait before it gets a claim.

Its queue or `queueing.bound.groups` states a number, or `auto`: by how many groups run when it is first
refused.

Shortest-first order delays long groups, without limit if short ones keep coming. A fair limit is the wait
that they would have had in order of arrival. So the first in line gets an early claim once it has waited for
seven tenths of the longest such wait of the last week; the rest is left for the wait until its claim starts.
The wait in order of arrival is recorded when a group is refused for the first time; when asked for, it is
scaled by how long pods run as known then:

    work of all that wait or run in its queue x run time of pods / their walltime / the queue's part

A group's work is its part of the cluster times its walltime, in seconds of the whole cluster. For running
groups it is the time that the whole cluster would need for their remaining work (QueueBook.running_s). The
queue's part is what it holds now, or what is due to it by shares if that is more. Unknown walltimes count as
zero.

In a model of the policies on 19 workloads and loads this misses 24 of 57 targets, most of them by little: a
mean slowdown of 0.7 of EASY's, a p95 slowdown of 0.6, a longest wait of 1.25 times EASY's (geometric means
0.62, 0.50, 0.78). Variants: with the whole wait 31 are missed; with 0.8 of it 21, and longest waits of 0.81;
with half 24, and slowdowns of 0.69; with a wait that is fixed when recorded 33. A claim for the shortest as
well, once it has waited for its own run time, gains nothing (24): its promise keeps the first in line
waiting. Nor does an order by the run times of a user's last two jobs of this size (25). Even knowledge that
no policy here has would not suffice: an order by actual run times misses 20, EASY's longest wait known from
the start 24.

Called by core.queueing.bypasses and core.kept.limits.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from gangsched.config.queueing import QueueingSettings
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.cache.queues.tree import QueueTree
from gangsched.core.queueing.ends import Ends
from gangsched.core.types.group import BOUND, Group
from gangsched.model.pod_group import GroupKey

_LEAST = 64
_PER_RUNNING = 8
# Factor if groups are not tried in order of arrival: another order needs room.
_REORDERED = 2
# Counting the running groups iterates over all groups.
_COUNT_AGAIN_S = 1.0


class Order(Protocol):
    """The order of the line; core.state.line.queue_order has the one implementation."""

    def passing(self, group: Group) -> tuple[str, tuple[Any, ...], bool]:
        """Returns a group's lane, its key there (starts with a larger key in the lane bypass it), and whether
        the lane is not in order of arrival."""
        ...

    def lane_place(self, group: Group) -> tuple[Any, ...]:
        """Returns the present place of the group's lane with the group as its first (starts in lanes with a
        larger place bypass it)."""
        ...


class Bounds:
    """Computes each group's bound, and remembers how many groups run.

    tree: the queues, each perhaps with a bound of its own; None: none are configured.
    """

    def __init__(
        self,
        settings: QueueingSettings,
        groups: Mapping[GroupKey, Group],
        order: Order,
        tree: QueueTree | None,
    ) -> None:
        self.settings = settings
        self.order, self.tree = order, tree
        self._groups = groups
        self._running: tuple[float, int] | None = None
        """(when the running groups were counted, how many there were); None: not since `configure`."""

    def configure(self, settings: QueueingSettings, order: Order, tree: QueueTree | None) -> None:
        """Applies new settings."""
        self.settings, self._running = settings, None
        self.order, self.tree = order, tree

    def protects(self, group: Group) -> bool:
        """Whether passes of the group are counted."""
        return group.is_gang or not self.settings.gangs_alone

    def stated(self, group: Group) -> int | None:
        """The number stated for the group; None: `auto`."""
        first = None if self.tree is None else group.first()
        of_queue = None if self.tree is None or first is None else self.tree.bound(first.pod)
        own = of_queue or self.settings.bound
        return own if isinstance(own, int) else None

    def first(self, group: Group, now_s: float) -> int:
        """The bound of a group that is refused for the first time now."""
        own = self.stated(group)
        if own is not None:
            return own
        if self._running is None or now_s - self._running[0] >= _COUNT_AGAIN_S:
            self._running = (now_s, sum(group.counts[BOUND] > 0 for group in self._groups.values()))
        bound = max(_LEAST, _PER_RUNNING * self._running[1])
        _, _, is_reordered = self.order.passing(group)
        return bound * _REORDERED if is_reordered else bound

    def after(self, before: int, group: Group, now_s: float) -> int:
        """The bound of a group after its queue or the settings have changed: the number stated now, or at
        most its former bound."""
        own = self.stated(group)
        return own if own is not None else min(before, self.first(group, now_s))


_REMEMBERED_S = 7 * 86_400.0
# A wait that is recorded within this time after a longer one is not kept.
_APART_S = 3600.0
_LEAST_PART = 1e-3
# Part of the wait in order of arrival after which the first in line gets a claim.
_UNTIL_CLAIM = 0.7


class ArrivalWaits:
    """Records the work that waits in each queue, and the waits that it would cause in order of arrival."""

    def __init__(self, view: QueueView | None, ends: Ends) -> None:
        self.view = view
        """By the present configuration."""
        self._ends = ends
        self._seen: QueueView | None = None
        """As of the last look; each configuration has its own."""
        self._waiting: dict[GroupKey, tuple[Group, str, float]] = {}
        """(the group, its queue, its work)."""
        self._work_s: dict[str, float] = {}
        self._longest: dict[str, deque[tuple[float, float]]] = {}
        """By queue: (when recorded, the wait if pods ran for their whole walltimes), the longest first."""

    def refused(self, group: Group, queue: str, now_s: float, *, is_reordered: bool) -> None:
        """Records that the group waits in this queue. is_reordered: the queue is not in order of arrival."""
        known = self._waiting.get(group.key)
        if not is_reordered:
            self.leave(group.key)
        elif known is None or known[0] is not group or known[1] != queue:
            self._join(group, queue, now_s)

    def _join(self, group: Group, queue: str, now_s: float) -> None:
        self._follow(now_s)
        self.leave(group.key)
        view = self.view
        book = None if view is None else view.queues
        if view is None or book is None or queue not in book.tree.queues:
            return
        before_s = self._work_s.get(queue, 0.0)
        ahead_s = before_s + book.running_s(queue, now_s)
        part = max(book.dominant(queue), book.tree.due(queue), _LEAST_PART)
        self._note(queue, ahead_s / part, now_s)
        work_s = book.part(view.request_of(group)) * view.walltime_s(group)
        work_s = work_s if math.isfinite(work_s) else 0.0
        self._waiting[group.key] = (group, queue, work_s)
        self._work_s[queue] = before_s + work_s

    def leave(self, key: GroupKey) -> None:
        """Forgets the group, if it waits."""
        if (found := self._waiting.pop(key, None)) is not None:
            _, queue, work_s = found
            self._work_s[queue] = max(0.0, self._work_s[queue] - work_s)

    def is_over(self, queue: str, waited_s: float, now_s: float) -> bool:
        """Whether the first group of the queue has waited as long as it may without a claim."""
        self._follow(now_s)
        noted = self._longest.get(queue)
        while noted and noted[0][0] < now_s - _REMEMBERED_S:
            noted.popleft()
        return waited_s >= (noted[0][1] * self._ends.ratio * _UNTIL_CLAIM if noted else 0.0)

    def _follow(self, now_s: float) -> None:
        """Moves waiting groups to their queues under a new configuration, which may rename queues."""
        view = self.view
        if view is self._seen:
            return
        self._seen = view
        if view is None or view.queues is None:
            return
        for group, before, _ in list(self._waiting.values()):
            if (queue := view.queue_of(group)) != before:
                if before not in view.queues.tree.queues and queue not in self._longest:
                    self._longest[queue] = self._longest.pop(before, deque())
                self._join(group, queue, now_s)

    def _note(self, queue: str, wait_s: float, now_s: float) -> None:
        noted = self._longest.setdefault(queue, deque())
        while noted and noted[-1][1] <= wait_s:
            noted.pop()
        if not noted or now_s - noted[-1][0] >= _APART_S:
            noted.append((now_s, wait_s))

"""ArrivalWaits: how long a queue that tries the shortest first may let its first wait.

Such an order costs the long groups what it gives to the short ones, and without end where short ones keep
coming. What is fair to them is what they would have had without it: the first in line gets an early claim
once it has waited for seven tenths of what the order of arrival would have let anybody wait, in the last
week, as it will wait for the start of its claim after that. Such a wait is noted when a group is refused for
the first time, and estimated when it is asked for, by how long pods run as known then:

    work of all that wait or run in its queue x how long pods run by their walltimes / the queue's part

where a group's work is the part of the cluster that it asks for times its walltime, in seconds of the whole
cluster; of what runs, how long the whole cluster would be busy with the rest (QueueBook.running_s). The
queue's part is what it holds now, or what is due to it by shares if that is more. Walltimes that nobody knows
count as none.

By a model of the policies on 19 workloads and loads this misses 24 of 57 figures, most of them by little: a
mean slowdown of 0.7 of EASY's, its p95 of 0.6, a longest wait of 1.25 times EASY's (geometric means 0.62,
0.50, 0.78). The whole wait misses 31, 0.8 of it 21 with longest waits of 0.81, half 24 with slowdowns of
0.69; a wait that is worked out for good when it is noted, 33. A claim for the shortest as well, as soon as it
has waited for as long as it runs, gains nothing (24): its promise keeps the first in line waiting. Nor does
an order by how long a user's last two jobs of this size ran (25). What no policy here can know would not do
it either: an order by how long jobs will run misses 20, a longest wait of EASY's that is known from the start
24.

Called by core.queueing.bypasses.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from gangsched.core.cache.namespace_usage import QueueView
from gangsched.core.queueing.ends import Ends
from gangsched.core.types.group import Group
from gangsched.model.pod_group import GroupKey

_REMEMBERED_S = 7 * 86_400.0
# A wait that is noted so soon after a longer one is not remembered beside it.
_APART_S = 3600.0
_LEAST_PART = 1e-3
# Of the wait in the order of arrival.
_UNTIL_CLAIM = 0.7


class ArrivalWaits:
    """Keeps the work that waits in each queue, and the waits that it would have caused."""

    def __init__(self, view: Callable[[], QueueView | None], ends: Ends) -> None:
        self._view = view
        self._ends = ends
        self._seen: QueueView | None = None
        """As of the last look: each configuration has its own."""
        self._waiting: dict[GroupKey, tuple[Group, str, float]] = {}
        """The group, in which queue, and its work."""
        self._work_s: dict[str, float] = {}
        self._longest: dict[str, deque[tuple[float, float]]] = {}
        """By queue: when each was noted, and the wait if pods ran as long as they may, the longest first."""

    def refused(self, group: Group, queue: str, now_s: float, *, is_reordered: bool) -> None:
        """The group waits in this queue, where groups are tried in another order than they came, or not."""
        known = self._waiting.get(group.key)
        if not is_reordered:
            self.leave(group.key)
        elif known is None or known[0] is not group or known[1] != queue:
            self._join(group, queue, now_s)

    def _join(self, group: Group, queue: str, now_s: float) -> None:
        self._follow(now_s)
        self.leave(group.key)
        view = self._view()
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
        """The group does not wait any more, or never did."""
        if (found := self._waiting.pop(key, None)) is not None:
            _, queue, work_s = found
            self._work_s[queue] = max(0.0, self._work_s[queue] - work_s)

    def is_over(self, queue: str, waited_s: float, now_s: float) -> bool:
        """Whether the first of the queue has waited for as long as it may without a claim."""
        self._follow(now_s)
        noted = self._longest.get(queue)
        while noted and noted[0][0] < now_s - _REMEMBERED_S:
            noted.popleft()
        return waited_s >= (noted[0][1] * self._ends.ratio * _UNTIL_CLAIM if noted else 0.0)

    def _follow(self, now_s: float) -> None:
        """Under another configuration queues may have other names, and who waits may be in another one."""
        view = self._view()
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

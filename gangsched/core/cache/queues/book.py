"""QueueBook: what each queue holds now and has held lately, and its place in the order by that.

A usage tracker (core.cache.nodes.usage_trackers) that exists only where queues are configured. Per queue:

    used      requests of the pods on nodes, of every scheduler, in the whole subtree
    D         the largest share of the cluster that `used` is, over the compared resources, 0 to 1
    H         D, decayed: on each change H = H * 2^(-dt / half-life) + D * (1 - 2^(-dt / half-life)), where D
              includes what is kept idle for the queue's claims (core.queueing.idle)
    score     (H + 15 * D) / (16 * share)

Fifteen to one: then a queue that has rested forever gets at most 8/15 of the cluster beside an equal
queue that had all of it, however fast pods come and go; at one to one it would get everything.

Among siblings the queue with the smallest score has the next turn; queues that stay within their guarantee
come first. H begins with what an earlier process knew (recall), else at 0. Not here: which queue a pod is in
(core.cache.queues.tree), which pods limits keep out (plugins.fairness). Called by core.cache.cache, and read
through core.cache.queues.namespace_usage.QueueView.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from gangsched.core.cache.nodes.usage_trackers import NOTHING_NEW, UsageNews
from gangsched.core.cache.queues.kueue_admissions import KueueAdmissions
from gangsched.core.cache.queues.limits import ByPriority, OverLimit
from gangsched.core.cache.queues.tree import OTHERS, Place, QueueTree
from gangsched.core.types.group import PodInfo
from gangsched.model.objects import Node
from gangsched.model.owners import Owner, OwnerName
from gangsched.model.stated.load import ReportedUsage

PRESENT_WEIGHT = 15.0
"""Weight of what a queue holds now beside what it has held lately."""
_NOTHING: Mapping[str, int] = MappingProxyType({})
# Ends of pods that have left are dropped when they exceed this number plus one per pod still there.
_MOST_GONE = 1000
_Held = tuple[str, Mapping[str, int], float]
"""Queue, requests and, in queues of order "shortest", when it ends; inf: unknown, or it is over."""


class _Use:
    """One queue's amounts. decayed: H as of at_s; dominant: D since then; charged: D with what is kept
    idle."""

    __slots__ = ("at_s", "charged", "decayed", "dominant", "idle", "n_pods", "used")

    def __init__(self, at_s: float = 0.0, decayed: float = 0.0) -> None:
        self.used: dict[str, int] = {}
        self.n_pods = 0
        self.at_s = at_s
        self.decayed = decayed
        self.dominant = 0.0
        self.idle: Mapping[str, int] = _NOTHING
        self.charged = 0.0


class RunEnds(Protocol):
    """When pods end; core.queueing.ends has the one implementation."""

    def runs_until_s(self, info: PodInfo, now_s: float, wall_ahead_s: float | None) -> float:
        """Returns when a pod on its node will have run for its group's walltime."""
        ...


class QueueBook:
    """Amounts by queue, updated as pods come and go."""

    def __init__(
        self,
        tree: QueueTree,
        changed: set[str],
        workloads: Mapping[OwnerName, Owner] = MappingProxyType({}),
        ends: RunEnds | None = None,
        wall_ahead_s: float | None = None,
    ) -> None:
        """`changed`: receives the names of queues whose amounts have changed, each after a slash. workloads:
        those that Kueue has admitted. ends: known where the configuration has `queueing`."""
        self.tree = tree
        self._changed = changed
        self._half_life_s = tree.settings.half_life_s
        self._compared = frozenset(tree.settings.compare)
        self._uses = {name: _Use() for name in tree.queues}
        self._totals: Mapping[str, int] = _NOTHING
        self._kept_part: dict[str, float] = {}
        self._on_row: dict[int, dict[str, _Held]] = {}
        self._now_s = 0.0
        self._there: dict[str, dict[str, PodInfo]] = {}
        self.by_priority = ByPriority()
        self.admissions = KueueAdmissions(tree, workloads.values()) if tree.settings.by_kueue else None
        self._has_borrowed = False
        self._pod_ends, self._wall_ahead_s = ends, wall_ahead_s
        self._work: dict[str, dict[str, tuple[float, float]]] = {}
        """By queue and compared resource: amounts of pods whose ends are known, and amounts times ends."""
        self._ends: list[tuple[float, int, str]] = []
        """A heap of (end, row, UID); entries of pods that have left stay until there are too many."""
        self._most_ends = _MOST_GONE
        self._unasked: dict[str, tuple[int, PodInfo, bool]] = {}
        """By UID, in queues of order "shortest": row, pod, and whether all of its group are here. Its end is
        looked up late: its group's object may be listed, and settings take effect, only after it was
        counted."""

    def inherit(self, before: QueueBook, now_s: float) -> None:
        """Takes over what the queues of these names have held from `before`; call while this one is empty."""
        for name, use in self._uses.items():
            if name in before._uses:
                use.decayed, use.at_s = before.decayed(name, now_s), now_s

    def restore(self, decayed: Mapping[str, float], age_s: float, now_s: float, *, began_s: float) -> None:
        """Takes in what an earlier process knew, age_s ago; this one has counted since began_s.

        What was held in a gap between the two is unknown and not counted. Queues that no longer exist are
        left out.
        """
        if not self._half_life_s:
            return
        kept = 2.0 ** (-age_s / self._half_life_s)
        for name, use in self._uses.items():
            if name in decayed:
                own = use.charged * (1.0 - kept) if now_s - age_s >= began_s else self._decayed(use, now_s)
                use.decayed, use.at_s = min(1.0, decayed[name] * kept + own), now_s

    def all_decayed(self, now_s: float) -> dict[str, float]:
        """H of every queue, for `recall`."""
        return {name: self._decayed(use, now_s) for name, use in self._uses.items()}

    def take_totals(self, totals: Mapping[str, int], now_s: float) -> None:
        """Sets what the nodes offer together, from now on."""
        if totals is self._totals:
            return
        self._totals = totals
        guaranteed: dict[str, int] = {}
        for one in self.tree.settings.queues:
            if not one.parent:
                for resource, amount in one.guaranteed.items():
                    guaranteed[resource] = guaranteed.get(resource, 0) + amount
        self._kept_part = {
            resource: totals.get(resource, 0) / amount
            for resource, amount in guaranteed.items()
            if amount > totals.get(resource, 0)
        }
        for use in self._uses.values():
            if use.used:
                self._settle(use, now_s)

    def keep_idle(self, idle: Mapping[str, Mapping[str, int]], now_s: float) -> None:
        """Sets what is kept idle for the claims of each leaf queue, from now on."""
        sums: dict[str, dict[str, int]] = {}
        for leaf, amounts in idle.items():
            for name in self.tree.paths.get(leaf, ()):
                own = sums.setdefault(name, {})
                for resource, amount in amounts.items():
                    own[resource] = own.get(resource, 0) + amount
        for name, use in self._uses.items():
            kept = sums.get(name, _NOTHING)
            if kept != use.idle:
                use.idle = kept
                self._settle(use, now_s)

    # -- reading ---------------------------------------------------------------------------------------

    def used(self, queue: str) -> Mapping[str, int]:
        """Returns what the subtree's pods hold on nodes."""
        return MappingProxyType(self._uses[queue].used)

    def on_nodes(self, leaf: str) -> Iterable[PodInfo]:
        """Returns the pods of a leaf queue."""
        return self._there.get(leaf, {}).values()

    def queue_of(self, info: PodInfo) -> str:
        """Returns the queue that a pod counts for: on a node the one in which it started."""
        counted = self._on_row.get(info.row, {}).get(info.uid)
        return self.tree.choice(info.pod, info.sent_queue).queue if counted is None else counted[0]

    def started_in(self, info: PodInfo) -> str:
        """Returns the queue to write on a pod with its node, for the next process; "" if it is in none."""
        queue = self.queue_of(info)
        return queue if queue in self._uses and queue != OTHERS else ""

    def asked(self, members: Iterable[PodInfo]) -> dict[str, dict[str, int]]:
        """Returns what the members ask of each queue and those above, without what passes limits."""
        members = list(members)
        asked = self.tree.asked(members)
        return asked if self.admissions is None else self.admissions.less_passing(asked, members)

    def over_limits(
        self, asked: Mapping[str, Mapping[str, int]], kept: Mapping[str, Mapping[str, int]]
    ) -> Iterator[OverLimit]:
        """Yields the limits that would be exceeded if this much more started and all that is kept for others
        were used too; both by queue with a limit."""
        for name, request in asked.items():
            for resource, limit in self.tree.queues[name].limit.items():
                needs, used = request.get(resource, 0), self.used(name).get(resource, 0)
                if self.admissions is not None and resource in request:
                    used -= self.admissions.passed(name).get(resource, 0)
                    # What passes takes nothing from the limit, but starts only while the rest is within it:
                    # ownership may have been edited since.
                    if not needs and used > limit:
                        yield OverLimit(name, resource, needs, used, 0, limit)
                n_kept = kept.get(name, {}).get(resource, 0)
                if needs and used + n_kept + needs > limit:
                    yield OverLimit(name, resource, needs, used, n_kept, limit)

    def over_limit(
        self, asked: Mapping[str, Mapping[str, int]], kept: Mapping[str, Mapping[str, int]]
    ) -> OverLimit | None:
        """Returns the first of over_limits that the request exceeds by itself, so that room freed by others
        is no use; if there is none, the first of all."""
        return min(self.over_limits(asked, kept), key=lambda one: one.needs <= one.limit, default=None)

    def has_borrowed(self) -> bool:
        """Whether a queue has come to exceed its guarantee since this was last asked."""
        found, self._has_borrowed = self._has_borrowed, False
        return found

    def n_pods(self, queue: str) -> int:
        return self._uses[queue].n_pods

    def guaranteed(self, queue: str) -> Mapping[str, int]:
        """Returns the queue's guarantee: less than configured where the cluster has less than is promised to
        all queues."""
        written = self.tree.queues[queue].guaranteed
        if not self._kept_part:
            return written
        return {resource: int(n * self._kept_part.get(resource, 1.0)) for resource, n in written.items()}

    def dominant(self, queue: str) -> float:
        """D: the share of the cluster that the queue holds now."""
        return self._uses[queue].dominant

    def part(self, amounts: Mapping[str, int]) -> float:
        """Returns the largest share of the cluster that these are, over the compared resources, 0 to 1."""
        totals = self._totals
        shares = (n / totals[r] for r, n in amounts.items() if r in self._compared and totals.get(r))
        return min(1.0, max(shares, default=0.0))

    def running_s(self, queue: str, now_s: float) -> float:
        """Returns how long the whole cluster would be busy with what a queue's pods will still run by their
        walltimes. Only for order "shortest"; a pod without a walltime, or past it, counts as 0."""
        self._ask(now_s)
        work, totals = self._work.get(queue, {}).items(), self._totals
        return max(((until - n * now_s) / totals[r] for r, (n, until) in work if totals.get(r)), default=0.0)

    def decayed(self, queue: str, now_s: float) -> float:
        """H: the share of the cluster that the queue has held lately."""
        use = self._uses[queue]
        return self._decayed(use, now_s)

    def score(self, queue: str, now_s: float) -> float:
        """Returns how much of its due share the queue has had; the smallest goes first."""
        use = self._uses[queue]
        had = self._decayed(use, now_s) + PRESENT_WEIGHT * use.dominant
        return had / ((1.0 + PRESENT_WEIGHT) * self.tree.queues[queue].share)

    def place(self, queue: str, request: Mapping[str, int], now_s: float) -> Place:
        """Returns the place of the queue's lane, if its first group requests this."""
        return Place(
            (not self._is_within(name, request), self.score(name, now_s), name)
            for name in self.tree.paths[queue]
        )

    def _is_within(self, queue: str, request: Mapping[str, int]) -> bool:
        """Whether the queue stays within its guarantee in all resources both requested and guaranteed."""
        if not self.tree.queues[queue].guaranteed:
            return False
        used, guaranteed = self._uses[queue].used, self.guaranteed(queue)
        asked = [resource for resource in guaranteed if request.get(resource, 0)]
        return bool(asked) and all(used.get(r, 0) + request[r] <= guaranteed[r] for r in asked)

    def _decayed(self, use: _Use, now_s: float) -> float:
        if not self._half_life_s:
            return use.dominant
        kept: float = 2.0 ** (-max(0.0, now_s - use.at_s) / self._half_life_s)
        return use.decayed * kept + use.charged * (1.0 - kept)

    def _settle(self, use: _Use, now_s: float) -> None:
        """Settles H up to now and recomputes D."""
        use.decayed = self._decayed(use, now_s) if self._half_life_s else 0.0
        use.at_s = now_s
        use.dominant = use.charged = self.part(use.used)
        if use.idle:
            use.charged = self.part(use.used | {r: use.used.get(r, 0) + n for r, n in use.idle.items()})

    # -- as a usage tracker ----------------------------------------------------------------------------

    def put_node(self, row: int, node: Node, now_s: float) -> UsageNews:
        return NOTHING_NEW

    def put_usage(self, row: int, usage: ReportedUsage, now_s: float) -> UsageNews:
        return NOTHING_NEW

    def remove_node(self, row: int) -> None:
        for uid, held in self._on_row.pop(row, {}).items():
            self._there[held[0]].pop(uid, None)
            self._forget(uid)
            self._add(held, -1)

    def enter(self, infos: Iterable[PodInfo], row: int, now_s: float) -> None:
        self._now_s = now_s
        on_row = self._on_row.setdefault(row, {})
        for info in infos:
            queue = self.tree.choice(info.pod, info.sent_queue).queue
            if queue not in self._uses:
                continue
            # As counted now: the pod may be another version when it leaves.
            requests = info.template.requests
            held = on_row[info.uid] = (queue, requests, math.inf)
            if self.tree.queues[queue].order == "shortest":
                self._unasked[info.uid] = row, info, False
            self._there.setdefault(queue, {})[info.uid] = info
            self.by_priority.enter(info, self.tree.paths[queue])
            if self.admissions is not None:
                self.admissions.enter(info)
            self._add(held, 1)

    def leave(self, info: PodInfo, row: int, now_s: float) -> None:
        self._now_s = now_s
        held = self._on_row.get(row, {}).pop(info.uid, None)
        if held is not None:
            self._there[held[0]].pop(info.uid, None)
            self._forget(info.uid)
            self._add(held, -1)

    def _forget(self, uid: str) -> None:
        self.by_priority.leave(uid)
        self._unasked.pop(uid, None)
        if self.admissions is not None:
            self.admissions.leave(uid)

    def advance(self, now_s: float) -> Iterable[int]:
        self._now_s = now_s
        while self._ends and self._ends[0][0] <= now_s:
            until_s, row, uid = heapq.heappop(self._ends)
            held = self._on_row.get(row, {}).get(uid)
            if held is not None and held[2] == until_s:
                self._work_is_known_until(row, uid, math.inf)
        return ()

    def end_edited(self, info: PodInfo) -> None:
        """Takes in an edited pod, or group object: the walltime of the whole group may be longer or shorter
        now."""
        if info.uid in self._unasked and self._unasked[info.uid][2]:
            return
        for one in (info,) if info.group is None else info.group.members.values():
            held = self._on_row.get(one.row, {}).get(one.uid)
            if held is not None and self.tree.queues[held[0]].order == "shortest":
                self._work_is_known_until(one.row, one.uid, math.inf)
                self._unasked[one.uid] = one.row, one, True

    def _ask(self, now_s: float) -> None:
        """Looks up the ends of the pods that have come since."""
        if self._pod_ends is None:
            return
        for uid, (row, info, _) in self._unasked.items():
            until_s = self._pod_ends.runs_until_s(info, now_s, self._wall_ahead_s)
            if now_s < until_s < math.inf:
                self._work_is_known_until(row, uid, until_s)
                self._remember_end(until_s, row, uid)
        self._unasked.clear()

    def _work_is_known_until(self, row: int, uid: str, until_s: float) -> None:
        """Records until when a pod runs; inf: unknown, or it is over."""
        queue, requests, before_s = self._on_row[row][uid]
        if before_s < math.inf:
            self._add_work(queue, requests, before_s, -1)
        if until_s < math.inf:
            self._add_work(queue, requests, until_s, 1)
        self._on_row[row][uid] = queue, requests, until_s

    def _add(self, held: _Held, sign: int) -> None:
        queue, requests, until_s = held
        if until_s < math.inf:
            self._add_work(queue, requests, until_s, sign)
        for name in self.tree.paths[queue]:
            self._changed.add(f"/{name}")
            use = self._uses[name]
            use.n_pods += sign
            own = self.guaranteed(name) if self.tree.guarantees and sign > 0 else None
            for resource, amount in requests.items():
                before = use.used.get(resource, 0)
                left = before + sign * amount
                # Of cpu and memory, amounts without a guarantee are not compared (preemption.queue_rights).
                if own is not None and (resource in own or "/" in resource):
                    self._has_borrowed |= before <= own.get(resource, 0) < left
                if left:
                    use.used[resource] = left
                else:
                    use.used.pop(resource, None)
            self._settle(use, self._now_s)

    def _remember_end(self, until_s: float, row: int, uid: str) -> None:
        heapq.heappush(self._ends, (until_s, row, uid))
        if len(self._ends) > self._most_ends:
            self._ends = [
                (held[2], row, uid)
                for row, on_row in self._on_row.items()
                for uid, held in on_row.items()
                if held[2] < math.inf
            ]
            heapq.heapify(self._ends)
            self._most_ends = 2 * len(self._ends) + _MOST_GONE

    def _add_work(self, queue: str, requests: Mapping[str, int], until_s: float, sign: int) -> None:
        work = self._work.setdefault(queue, {})
        for resource in self._compared & requests.keys():
            amount, until = work.get(resource, (0.0, 0.0))
            own = float(sign * requests[resource])
            if amount + own:
                work[resource] = (amount + own, until + own * until_s)
            else:
                work.pop(resource, None)

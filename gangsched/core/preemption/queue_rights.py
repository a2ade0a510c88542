"""QueueRights: which pods a unit may have evicted where queues share the cluster (an EvictionRule).

In its own queue: those of lower priority. Of other queues, compared where their two paths in the tree meet:

    reclaim     a unit that stays within its queue's guarantee takes what other queues have borrowed,
                whatever its priority
    priority    any other unit takes what is borrowed and of lower priority
    fair        (`reclaim: fair`) replaces `priority`: the unit takes what is borrowed while its queue,
                including the unit, has no more for its share than the other queue has left. Compared in one
                resource, the first of `compare` that the unit requests; only pods for which it is the first
                as well are taken

Judged on all victims together, with the unit in their place: no queue may hold less of its guarantee than
before, up to the guarantee. So a queue at or below its guarantee loses nothing to others. No loops: the sum
over all queues of min(use, guaranteed) never falls, and each reclaim adds to it; in evictions by priority the
priorities rise, and each fair one lowers the sum of use^2 / share in its resource. Pods of 2,000,000,000 and
above and other schedulers' pods go by priority alone.

Likewise for room kept for a promised start: a unit within its queue's guarantee may take it, if the pods that
it is kept for would borrow it.

Called by plugins.fairness; asked by core.preemption.victims and core.kept.kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from gangsched.core.cache.queues.book import QueueBook
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.preemption.victims import is_leaving, priority_of
from gangsched.core.types.group import PodInfo
from gangsched.core.types.needed import requests_of
from gangsched.model.text.printable import marked

SYSTEM_PRIORITY = 2_000_000_000
"""Kubernetes' system-cluster-critical; users' classes end below it."""
_HIGHEST_OF_USERS = 1_000_000_000
# A fair share takes back at most this many times the requested amount: gangs stop as a whole.
_MAX_TAKEN = 2
_Amounts = Mapping[str, int]
_Way = tuple[str, tuple[str, ...]]


class QueueRights:
    """The rights of a unit in one attempt; the unit is in queues of the tree, or in none of them."""

    def __init__(self, view: QueueView, book: QueueBook, asked: Mapping[str, _Amounts]) -> None:
        """asked: what the unit needs, by its queues."""
        self._view = view
        self._book = book
        self._asked = asked
        self._is_fair = book.tree.settings.reclaim == "fair"
        self._held: dict[str, _Amounts] = {}
        self._entitled: dict[str, bool] = {}
        self._ways: dict[str, list[_Way]] = {}
        self._reclaims = any(self._is_entitled(name) for queue in asked for name in book.tree.paths[queue])
        self.takes_any = self._reclaims or (self._is_fair and bool(asked))
        # The amounts count with the unit in place, so no other unit may get the room, whatever its priority.
        self.keeps_at: int | None = _HIGHEST_OF_USERS
        self.whose = (
            "pods of other queues beyond those queues' guarantees"
            if self.takes_any
            else "pods of lower priority outside other queues' guarantees"
        )

    def may_take(self, info: PodInfo, *, is_lower: bool) -> bool:
        queue = self._queue_of(info)
        if queue in self._asked or queue not in self._book.tree.paths:
            return is_lower
        if priority_of(info) >= SYSTEM_PRIORITY:
            return is_lower
        requests = info.template.requests
        if not is_leaving(info) and any(self._loses(name, requests) for name in self._book.tree.paths[queue]):
            return False
        if info.group is None or not self._asked:
            return is_lower
        if is_leaving(info) and self.takes_any:
            return True
        ways = self._ways_to(queue)
        return all(self._may_take_from(way, requests, is_lower=is_lower) for way in ways)

    def refuses(self, victims: Sequence[PodInfo]) -> str:
        lost: dict[str, dict[str, int]] = {}
        others: set[str] = set()
        for info in victims:
            queue = self._queue_of(info)
            if is_leaving(info) or queue not in self._book.tree.paths:
                continue
            if queue not in self._asked:
                others.add(queue)
            for name in self._book.tree.paths[queue]:
                so_far = lost.setdefault(name, {})
                for resource, amount in info.template.requests.items():
                    so_far[resource] = so_far.get(resource, 0) + amount
        for name, amounts in lost.items():
            if self._loses(name, amounts):
                return f"{_queue(name)} would be left with less than is guaranteed to it"
        return self._is_unfair(others, lost) if self._is_fair else ""

    def goes_last(self, info: PodInfo) -> bool:
        """Whether a unit that takes back what is guaranteed takes the pod only after all that has been
        borrowed from it: its own queue's less important pods, for example, which would come again and then
        have the same borrowers evicted."""
        if not self._reclaims:
            return False
        queue = self._queue_of(info)
        if queue in self._asked or queue not in self._book.tree.paths:
            return True
        return not all(self._is_entitled(own) for own, _ in self._ways_to(queue))

    def takes_kept_room(self, claimers: Sequence[PodInfo]) -> bool:
        """Whether a unit within its queue's guarantee takes room kept for pods that would borrow it."""
        by_queue: dict[str, list[PodInfo]] = {}
        for info in claimers:
            queue = self._queue_of(info)
            if queue in self._asked or queue not in self._book.tree.paths or not self._asked:
                return False
            if priority_of(info) >= SYSTEM_PRIORITY:
                return False
            by_queue.setdefault(queue, []).append(info)
        requests = {queue: requests_of(infos) for queue, infos in by_queue.items()}
        for queue in by_queue:
            for own, below in self._ways_to(queue):
                if not self._is_entitled(own) or any(self._is_due(name, requests) for name in below):
                    return False
        return True

    # -- rights -------------------------------------------------------------------------------------------

    def _queue_of(self, info: PodInfo) -> str:
        return self._book.queue_of(info)

    def _ways_to(self, queue: str) -> list[_Way]:
        """Returns for each queue of the unit: its ancestor just below where the two paths meet, and the other
        path from there down to `queue`."""
        found = self._ways.get(queue)
        if found is None:
            paths = self._book.tree.paths
            other = paths[queue]
            found = self._ways[queue] = []
            for own in (paths[name] for name in self._asked):
                k = next(k for k, (a, b) in enumerate(zip(own, other, strict=False)) if a != b)
                found.append((own[k], other[k:]))
        return found

    def _may_take_from(self, way: _Way, requests: _Amounts, *, is_lower: bool) -> bool:
        own, _ = way
        if self._is_entitled(own):
            return True
        return self._has_less(way, requests) if self._is_fair else is_lower

    def _holds(self, name: str) -> _Amounts:
        """Returns what the queue holds, without terminating pods and pods evicted for other units."""
        found = self._held.get(name)
        if found is None:
            below = self._book.tree.children.get(name, ())
            if below:
                found = _sum(self._holds(child) for child in below)
            else:
                there, going = self._book.on_nodes(name), self._view.going
                found = requests_of(i for i in there if not is_leaving(i) and i.uid not in going)
            self._held[name] = found
        return found

    def _loses(self, name: str, lost: _Amounts) -> bool:
        """Whether the queue would hold less of its guarantee without these amounts and with the unit."""
        guaranteed = self._book.guaranteed(name)
        if not guaranteed:
            return False
        holds, comes = self._holds(name), self._request(name)
        return any(
            held - lost[r] + comes.get(r, 0) < min(held, n)
            for r, n, held in ((r, n, holds.get(r, 0)) for r, n in guaranteed.items())
            if lost.get(r)
        )

    def _is_due(self, name: str, requests: Mapping[str, _Amounts]) -> bool:
        """Whether the queue stays within its guarantee with these requests, by their queues."""
        guaranteed, paths = self._book.guaranteed(name), self._book.tree.paths
        comes = _sum(request for queue, request in requests.items() if name in paths[queue])
        return bool(guaranteed) and is_within(guaranteed, self._used(name), comes)

    def _request(self, name: str) -> _Amounts:
        """Returns what the unit needs in that queue's subtree."""
        paths = self._book.tree.paths
        return _sum(request for queue, request in self._asked.items() if name in paths[queue])

    def _used(self, name: str) -> _Amounts:
        """Returns what the queue holds and is about to get."""
        return _sum((self._view.used_by_queue(name), self._view.promised_to_queue(name)))

    def _is_entitled(self, name: str) -> bool:
        """Whether the queue stays within its guarantee with the unit."""
        found = self._entitled.get(name)
        if found is None:
            guaranteed = self._book.guaranteed(name)
            found = bool(guaranteed) and is_within(guaranteed, self._used(name), self._request(name))
            self._entitled[name] = found
        return found

    # -- fair shares ---------------------------------------------------------------------------------------

    def _scarce(self, request: _Amounts) -> str:
        """Returns the resource in which shares are compared; "": the request has none of those."""
        return next((one for one in self._book.tree.settings.compare if request.get(one)), "")

    def _has_less(self, way: _Way, requests: _Amounts) -> bool:
        """Whether its queue, with the unit, has no more for its share than the other queue without such a
        pod. Not strictly less: of two equal queues one would never get its half back. Nothing goes round:
        the other queue, to get it back, would have to have no more than what this one then has left."""
        own, below = way
        resource = self._scarce(self._request(own))
        if not resource or self._scarce(requests) != resource:
            return False
        return self._part(own, resource) <= self._left(below[0], resource, requests)

    def _part(self, own: str, resource: str) -> float:
        asked = self._request(own).get(resource, 0)
        return (self._used(own).get(resource, 0) + asked) / self._book.tree.queues[own].share

    def _left(self, name: str, resource: str, lost: _Amounts) -> float:
        left = self._holds(name).get(resource, 0) - lost.get(resource, 0)
        return left / self._book.tree.queues[name].share

    def _is_unfair(self, others: Collection[str], lost: Mapping[str, _Amounts]) -> str:
        """Returns why these may not go for a fair share; "" if they may."""
        ways = {(own, below[0]) for queue in others for own, below in self._ways_to(queue)}
        taken, asked = 0, 0
        for own, top in sorted(ways):
            if self._is_entitled(own):
                continue
            resource = self._scarce(self._request(own))
            taken += lost[top].get(resource, 0)
            asked = max(asked, self._request(own).get(resource, 0))
            if self._part(own, resource) > self._left(top, resource, lost[top]):
                return f"{_queue(top)} would have less for its share than queue {own}"
        if taken > _MAX_TAKEN * asked:
            return f"a fair share would take {taken} from other queues to give it {asked}"
        return ""


def is_within(guaranteed: _Amounts, used: _Amounts, request: _Amounts) -> bool:
    """Whether a queue that uses this much stays within its guarantee with the request.

    Some requested resource must be guaranteed, and all that are have to fit. Devices without a guarantee
    count as guaranteed 0; of cpu, memory and the like, amounts without a guarantee are not compared.
    """
    asked = {resource: n for resource, n in request.items() if n}
    return (
        any(resource in guaranteed for resource in asked)
        and all(resource in guaranteed or "/" not in resource for resource in asked)
        and all(used.get(r, 0) + n <= guaranteed[r] for r, n in asked.items() if r in guaranteed)
    )


def _queue(name: str) -> str:
    return marked("queue", [name], lead="queue ")


def _sum(parts: Iterable[_Amounts]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.items():
            found[resource] = found.get(resource, 0) + amount
    return found

"""KueueAdmissions: what of each queue's use Kueue has admitted, which does not count in the queue's limits.

Only with `fairness.kueueAdmission: passesLimits`. A pod passes by an admitted Workload of its namespace that
owns it: by the pod's own UID, its controller's, or its JobSet's. Those references are the tenant's to write;
what is admitted is not (status.admission). So nothing is decided by the single holders, only by the sum: of
each Workload at most its admitted amounts pass, and only while the rest of the queue is within its limit.
Hence no queue comes to use more than its limit and what is admitted, whatever is written on pods, now or
later.

A Workload passes in one queue alone, the closest that lists its namespace: in several at once it would pass
several times. Owned and read by core.cache.queues.book.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gangsched.core.cache.queues.tree import QueueTree
from gangsched.core.types.group import PodInfo
from gangsched.model.objects import Pod
from gangsched.model.owners import OWNER_KINDS, Owner, OwnerName
from gangsched.model.owners.job_sets import UID_KEY

ADMISSIONS = OWNER_KINDS["Workload"].followed_as
"""The kind of a cluster change: what Kueue has admitted is another amount."""
_NOTHING: Mapping[str, int] = {}
Amounts = dict[str, dict[str, int]]
"""queue -> resource -> amount."""


class KueueAdmissions:
    """Admitted Workloads, their pods on nodes, and by queue how much of these passes its limits."""

    def __init__(self, tree: QueueTree, known: Iterable[Owner]) -> None:
        self._tree = tree
        self._owners: dict[OwnerName, Owner] = {}
        self._by_uid: dict[tuple[str, str], dict[OwnerName, None]] = {}
        """(namespace, UID of what a Workload owns) -> the Workloads."""
        self._pods: dict[str, tuple[PodInfo, list[tuple[str, str]]]] = {}
        """Pods on nodes, by their UIDs, and their keys when they came; they may be edited later."""
        self._by_key: dict[tuple[str, str], dict[str, None]] = {}
        """(namespace, a UID by which a pod may be owned) -> UIDs of pods on nodes."""
        self._counted: dict[str, tuple[OwnerName, Mapping[str, int]]] = {}
        """Pods on nodes that count for a Workload, and what they held when they came."""
        self._held: dict[OwnerName, dict[str, int]] = {}
        self._passed: Amounts = {}
        for owner in known:
            self.put(owner)

    def passed(self, queue: str) -> Mapping[str, int]:
        """Returns how much of what the queue uses does not count in its limits."""
        return self._passed.get(queue, _NOTHING)

    def passing(self, infos: Iterable[PodInfo], sign: int) -> Amounts:
        """Returns how `passed` would change if these pods came to nodes (sign 1) or left them (-1)."""
        moved: dict[OwnerName, dict[str, int]] = {}
        for info in infos:
            named = self._counted[info.uid][0] if info.uid in self._counted else self._workload_of(info.pod)
            if named is not None:
                _add(moved.setdefault(named, {}), info.template.requests, sign)
        found: Amounts = {}
        for named, amounts in moved.items():
            held = self._held.get(named, _NOTHING)
            then = {r: held.get(r, 0) + n for r, n in amounts.items()}
            now = {r: held.get(r, 0) for r in amounts}
            for name in self._path(named):
                own = found.setdefault(name, {})
                _add(own, self._within(named, then), 1)
                _add(own, self._within(named, now), -1)
        return found

    def less_passing(self, asked: Amounts, infos: Iterable[PodInfo]) -> Amounts:
        """Returns what the pods ask, by queue, less what passes; a resource that passes whole is there with
        0."""
        found = {name: {r: n for r, n in some.items() if n} for name, some in asked.items()}
        for name, some in self.passing(infos, 1).items():
            own = found.get(name, {})
            for resource in own.keys() & some.keys():
                own[resource] -= some[resource]
        return found

    # -- Workloads ---------------------------------------------------------------------------------------

    def put(self, owner: Owner) -> bool:
        """Takes in a Workload's current state; returns whether what is admitted, or for which queue, has
        changed."""
        before = self._owners.get(owner.named)
        if before is not None and (before.admitted, before.owns) == (owner.admitted, owner.owns):
            return False
        is_news = self.remove(owner.named)
        if not owner.admitted:
            return is_news
        self._owners[owner.named] = owner
        for key in self._keys_of(owner):
            self._by_uid.setdefault(key, {})[owner.named] = None
        self._count_again(owner)
        return True

    def remove(self, named: OwnerName) -> bool:
        """Forgets a Workload; returns whether something was admitted by it."""
        owner = self._owners.get(named)
        if owner is None:
            return False
        self._pass(named, -1)
        del self._owners[named]
        for key in self._keys_of(owner):
            names = self._by_uid[key]
            names.pop(named, None)
            if not names:
                del self._by_uid[key]
        self._count_again(owner)
        self._held.pop(named, None)
        return True

    @staticmethod
    def _keys_of(owner: Owner) -> Iterator[tuple[str, str]]:
        return ((owner.named.namespace, uid) for uid in dict.fromkeys(owner.owns))

    def _count_again(self, owner: Owner) -> None:
        """Counts the pods on nodes that the Workload may own for the one that they count for now."""
        uids = dict.fromkeys(uid for key in self._keys_of(owner) for uid in self._by_key.get(key, ()))
        for uid in uids:
            self._uncount(uid)
            self._count(self._pods[uid][0])

    # -- pods on nodes -----------------------------------------------------------------------------------

    def enter(self, info: PodInfo) -> None:
        """Adds a pod that is on a node from now on."""
        self.leave(info.uid)
        keys = _keys(info.pod)
        self._pods[info.uid] = info, keys
        for key in keys:
            self._by_key.setdefault(key, {})[info.uid] = None
        self._count(info)

    def leave(self, uid: str) -> None:
        """Removes a pod."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        self._uncount(uid)
        for key in known[1]:
            uids = self._by_key.get(key)
            if uids is not None:
                uids.pop(uid, None)
                if not uids:
                    del self._by_key[key]

    def _count(self, info: PodInfo) -> None:
        named = self._workload_of(info.pod)
        if named is not None:
            self._counted[info.uid] = named, info.template.requests
            self._hold(named, info.template.requests, 1)

    def _uncount(self, uid: str) -> None:
        counted = self._counted.pop(uid, None)
        if counted is not None:
            self._hold(*counted, -1)

    # -- amounts -----------------------------------------------------------------------------------------

    def _workload_of(self, pod: Pod) -> OwnerName | None:
        """Returns the admitted Workload for which the pod counts: of several the first by name."""
        for key in _keys(pod):
            names = self._by_uid.get(key)
            if names:
                named = min(names)
                path = self._path(named)
                return named if path and self._tree.choice(pod).queue == path[-1] else None
        return None

    def _path(self, named: OwnerName) -> tuple[str, ...]:
        return self._tree.paths[self._tree.home_of(named.namespace)]

    def _within(self, named: OwnerName, held: Mapping[str, int]) -> dict[str, int]:
        owner = self._owners.get(named)
        admitted = _NOTHING if owner is None else owner.admitted
        return {r: min(n, admitted[r]) for r, n in held.items() if r in admitted}

    def _hold(self, named: OwnerName, requests: Mapping[str, int], sign: int) -> None:
        self._pass(named, -1)
        _add(self._held.setdefault(named, {}), requests, sign)
        self._pass(named, 1)

    def _pass(self, named: OwnerName, sign: int) -> None:
        passed = self._within(named, self._held.get(named, _NOTHING))
        for name in self._path(named) if passed else ():
            _add(self._passed.setdefault(name, {}), passed, sign)


def _keys(pod: Pod) -> list[tuple[str, str]]:
    """Returns the UIDs by which a Workload may own the pod, the closest first."""
    meta = pod.metadata
    controller = meta.controller
    uids = (meta.uid, "" if controller is None else controller.uid, (meta.labels or {}).get(UID_KEY, ""))
    return [(meta.namespace, uid) for uid in dict.fromkeys(uids) if uid]


def _add(to: dict[str, int], more: Mapping[str, int], sign: int) -> None:
    """Adds `more`, times sign, to `to`."""
    for resource, amount in more.items():
        left = to.get(resource, 0) + sign * amount
        if left:
            to[resource] = left
        else:
            to.pop(resource, None)

"""Limits of queues: what is over one, and what pods of lower priority hold below one.

Kept by core.cache.queues.book; read by plugins.fairness and core.explaining.queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gangsched.core.types.group import PodInfo


class OverLimit(NamedTuple):
    """A limit that would be exceeded: the requested, used and kept amounts of this resource."""

    queue: str
    resource: str
    needs: int
    used: int
    kept: int
    limit: int


class ByPriority:
    """What each queue's pods hold, by their priority when they came: so that a group at a limit learns
    that no pod there is less important without looking at each."""

    def __init__(self) -> None:
        self._held: dict[str, dict[int, dict[str, int]]] = {}
        self._of: dict[str, tuple[int, Sequence[str], Mapping[str, int]]] = {}

    def enter(self, info: PodInfo, path: Sequence[str]) -> None:
        """Counts a pod for the queues on this path."""
        priority = info.group.priority if info.group is not None else info.pod.spec.priority or 0
        self.leave(info.uid)
        self._of[info.uid] = priority, path, info.template.requests
        self._add(info.uid, 1)

    def leave(self, uid: str) -> None:
        """Counts the pod no longer."""
        if uid in self._of:
            self._add(uid, -1)
            del self._of[uid]

    def below(self, queue: str, priority: int, resource: str) -> int:
        """How much of the resource pods with lower priorities hold in the queue."""
        held = self._held.get(queue, {})
        return sum(amounts.get(resource, 0) for own, amounts in held.items() if own < priority)

    def _add(self, uid: str, sign: int) -> None:
        priority, path, requests = self._of[uid]
        for name in path:
            by_priority = self._held.setdefault(name, {})
            amounts = by_priority.setdefault(priority, {})
            for resource, n in requests.items():
                left = amounts.get(resource, 0) + sign * n
                if left:
                    amounts[resource] = left
                else:
                    amounts.pop(resource, None)
            if not amounts:
                del by_priority[priority]

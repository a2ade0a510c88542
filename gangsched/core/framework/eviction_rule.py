"""EvictionRule: which pods a unit may have evicted, where priority alone does not decide.

An Admit plugin gives one for a unit that does not fit (EvictionRulePlugin); core.preemption asks it about
each pod, and about the chosen set. Not here: the rule of queues (core.preemption.queue_rights).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.types.group import Group, PodInfo


class EvictionRule(Protocol):
    """The rule for one attempt."""

    takes_any: bool
    """Whether a pod with a priority not below the unit's may be taken."""
    keeps_at: int | None
    """The freed room is kept from units up to this priority; None: up to the unit's own."""
    whose: str
    """Words for the pods that may be evicted, as in "even with all pods of lower priority gone"."""

    def may_take(self, info: PodInfo, *, is_lower: bool) -> bool:
        """Whether the pod may be evicted; is_lower: its priority is lower than the unit's."""
        ...

    def refuses(self, victims: Sequence[PodInfo]) -> str:
        """Returns why these may not go together, being all that have to; "" if they may. If a set may go, so
        may each part of it."""
        ...


@runtime_checkable
class TakesKeptRoom(Protocol):
    """An EvictionRule that also decides about room kept for a promised start."""

    def takes_kept_room(self, claimers: Sequence[PodInfo]) -> bool:
        """Whether the unit may start in the room that is kept for these."""
        ...


@runtime_checkable
class TakesSomeLast(Protocol):
    """An EvictionRule that takes some pods only if all others are not enough."""

    def goes_last(self, info: PodInfo) -> bool:
        """Whether the pod is one of those, whatever its priority and disruption budget."""
        ...


@runtime_checkable
class EvictionRulePlugin(Protocol):
    """An Admit plugin (core.framework.points.queueing) that decides which pods a unit may have evicted."""

    name: str

    def eviction_rule(
        self, unit: Sequence[Group], members: Sequence[PodInfo], view: QueueView
    ) -> EvictionRule | None:
        """members: those that the unit needs. None: only pods of lower priority, as without the plugin."""
        ...

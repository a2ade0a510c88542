"""The extension points of the queue: PreEnqueue and QueueSort.

Plugins import them from core.framework.interface, where the table of all points is.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from gangsched.core.cache.namespace_usage import QueueView
from gangsched.core.framework.status import Status
from gangsched.core.types.group import Group
from gangsched.model.objects import Pod


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    name: str

    def pre_enqueue(self, pod: Pod) -> Status: ...


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Exactly one for all profiles."""

    name: str

    def sort_key(self, group: Group) -> tuple[Any, ...]:
        """Comparable with every other group's; the core appends the group's key as the last tie-break.

        Called when the group is put in line: what it reads should be the group's own.
        """
        ...


@runtime_checkable
class LaneSortPlugin(Protocol):
    """A QueueSort whose order depends on what is in use, or on the time that groups have waited.

    Groups stand in lanes: in each by `sort_key`, whatever is in use, and the first of each lane are compared
    by `lane_key`, which reads the view. A lane's key is asked for again when its first group changes, when
    what the last call read of the view changes, and, if that read `waited_s`, after `rekey_s` seconds (a
    class attribute; without it 10). So a pod that comes or goes costs one call for each lane that reads its
    namespace, however many groups wait there.
    """

    name: str

    def sort_key(self, group: Group) -> tuple[Any, ...]: ...

    def lane(self, group: Group) -> str:
        """The group's lane: a tenant's, say. As long as a group is in line it stays in its lane."""
        ...

    def lane_key(self, first: Group, view: QueueView) -> tuple[Any, ...]:
        """Comparable with every other lane's; the smallest has the next turn. Ties: the lane's name."""
        ...

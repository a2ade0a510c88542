"""The extension points of the queue: PreEnqueue, QueueSort and Admit.

Plugins import them from gangsched.plugin, where the table of all points is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.framework.status import Status
from gangsched.core.framework.supports import SupportsUsageLabels, serves
from gangsched.core.types.cluster_events import ClusterChange
from gangsched.core.types.group import Group, PodInfo

MAX_RAISE = 2**31
MAX_USAGE_LABELS = 4


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Called for each pod before it counts as a member that may be scheduled.

    May have a second argument, the QueueView. As an `async def pre_enqueue(self, pod, view, handle)` it is
    called at the edge, under a deadline, for at most 32 pods at a time; until it has answered the pod is kept
    out, and a call that fails is made again after a backoff. With `cured_by` and `cures` (CuringPlugin) it
    declares the changes after which it is called again for the pods that it keeps out.
    """

    name: str

    @property
    def pre_enqueue(self) -> Callable[..., Any]:
        """(pod) or (pod, view) -> Status: success (`Status.let_in` to move it in the queue), "no", or wait:
        the plugin is called again after the timeout."""
        ...


def sees_view(method: Callable[..., Any]) -> bool:
    """Whether the method takes the QueueView."""
    function = getattr(method, "__func__", None)
    return _n_named(method) > 1 if function is None else _n_named_of_class(function) > 2


def _n_named(function: Callable[..., Any]) -> int:
    """Number of positional parameters that it names; 0: unknown."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        return sum(one.kind in kinds for one in inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return 0


# A simulation makes tens of thousands of schedulers, of the same classes.
_n_named_of_class = lru_cache(maxsize=64)(_n_named)


def usage_labels(plugin: object) -> tuple[str, ...]:
    """Returns the labels by whose values QueueSort's plugin wants usage: its attribute `usage_labels`, of a
    few texts."""
    named: object = plugin.usage_labels if serves(plugin, SupportsUsageLabels) else ()
    texts = named if isinstance(named, tuple | list) else ()
    return tuple(one for one in texts if isinstance(one, str))[:MAX_USAGE_LABELS]


def bad_raise(status: Status) -> str:
    """Returns what is wrong with `raise_by` of a PreEnqueue's answer; "" if nothing is."""
    raised: object = status.raise_by
    if isinstance(raised, int) and abs(raised) <= MAX_RAISE:
        return ""
    return f"raise_by is {repr(raised)[:80]}, expected a whole number within -{MAX_RAISE}..{MAX_RAISE}"


@runtime_checkable
class AdmitPlugin(Protocol):
    """Called when a group has its turn, before any node is looked at: may these members start at all?

    A plugin with this method serves the point if it is enabled at PreEnqueue. If all members together are
    refused and the needed ones are not, the members that the group can start without are left out. Not called
    for a group that is bound in part and being completed.
    """

    name: str

    def admit(self, group: Group, members: Sequence[PodInfo], view: QueueView) -> Status:
        """members: those that would be placed now, of the group and of the groups that start with it. Returns
        success, or a "no" that keeps all of them out: unschedulable, or unresolvable if waiting cannot
        help."""
        ...


@runtime_checkable
class AdmitAgainPlugin(Protocol):
    """An AdmitPlugin that tells which changes are worth asking it again. Without this, all are."""

    name: str

    def admit_again(
        self, group: Group, members: Sequence[PodInfo], change: ClusterChange, view: QueueView
    ) -> bool:
        """Whether a group that it keeps out should have its turn; members: as `admit` would get them."""
        ...


@runtime_checkable
class AdmitWithoutPlugin(Protocol):
    """An AdmitPlugin that refuses because of what other pods hold: a group that it keeps out may preempt."""

    name: str

    def admit_without(
        self, group: Group, members: Sequence[PodInfo], gone: Collection[PodInfo], view: QueueView
    ) -> Status:
        """As `admit`, if these pods were off their nodes. More of them never turn a yes into a no."""
        ...

    def may_admit_without(self, group: Group, members: Sequence[PodInfo], view: QueueView) -> bool:
        """Whether it may be worth a search for such pods; called for each group at each change, so it looks
        at sums alone."""
        ...


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

    Groups stand in lanes: within a lane by `sort_key`, whatever is in use; the first groups of the lanes are
    compared by `lane_key`, which reads the view. A lane's key is computed again when its first group changes,
    when what the last call read of the view changes, and, if that call read `waited_s`, after some seconds
    (SupportsRekey). So a pod that comes or goes costs one call for each lane that reads its namespace,
    however many groups wait there. Beside it: SupportsUsageLabels. `sort_key` and `lane` may have a second
    argument, the view; what they read there is from the time at which the group was put in line.
    """

    name: str

    @property
    def sort_key(self) -> Callable[..., tuple[Any, ...]]:
        """(group) or (group, view)."""
        ...

    @property
    def lane(self) -> Callable[..., str]:
        """(group) or (group, view) -> the group's lane, for example a tenant's.

        A group stays in its lane as long as it is in line.
        """
        ...

    def lane_key(self, first: Group, view: QueueView) -> tuple[Any, ...]:
        """Comparable with every other lane's; the smallest has the next turn. Ties: the lane's name."""
        ...


@runtime_checkable
class PassingPlugin(Protocol):
    """A QueueSort with lanes that tries groups in another order than the one in which they may claim a start.

    With shortest first, for example: without this no group would pass a long one, however many shorter ones
    started.
    """

    name: str

    def passing_key(self, group: Group, view: QueueView) -> tuple[Any, ...] | None:
        """A key within the lane; groups with a larger one pass this group. None: by `sort_key`, as tried."""
        ...

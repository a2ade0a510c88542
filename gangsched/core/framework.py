"""The plugin author's page: one Protocol per extension point, Status, and what a plugin is shown.

A plugin is an object with a `name` and the methods of the points it serves; core.runtime finds them by
their presence. All points are synchronous and pure: no clock, no I/O, no randomness; the same input gives
the same answer. Arrays are over node rows: length `view.n_rows`, a row is a node's place for as long as it
exists, and `view.live` says which rows are nodes at all. Arrays that a plugin is shown are read-only.

    point       asked                                         may answer
    PreEnqueue  when a pod is seen or changes                 a Status: gated until it says success
    QueueSort   when a group becomes active                   a sort key; the smallest goes first
    PreFilter   once a cycle and template                     a Status: this template can go nowhere now
    Filter      once a cycle and template                     a mask of the nodes that will do
    (capacity)  instead of Filter, where siblings use it up   how many more copies each node takes
    Score       once a cycle and template, feasible nodes     0..100 a node, larger is better
    Reserve     once a member, node and devices chosen        nothing; acts on the Trial
    Permit      once a group, everything reserved             success, wait with a timeout, or unschedulable

Source of the points and of the codes: kube-scheduler `pkg/scheduler/framework/interface.go`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from gangsched.core.arrays import BoolArray, FloatArray, IntArray
from gangsched.core.changes import Change, ClusterChange

if TYPE_CHECKING:
    from gangsched.core.group import Group
    from gangsched.core.snapshot import ClusterView
    from gangsched.core.template import PodTemplate
    from gangsched.model.objects import Pod

Rows = IntArray | slice
"""Which rows are asked about: some, or EVERYWHERE."""

EVERYWHERE = slice(None)

MAX_SCORE = 100.0


class Code(enum.Enum):
    """What the queue does next with the answer."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    WAIT = "Wait"
    ERROR = "Error"


class Status(msgspec.Struct, frozen=True, gc=False):
    """A plugin's answer; "no" is a value. `timeout_s` only with WAIT."""

    code: Code = Code.SUCCESS
    reason: str = ""
    plugin: str = ""
    timeout_s: float | None = None

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @classmethod
    def unschedulable(cls, reason: str, *, plugin: str = "") -> Status:
        return cls(Code.UNSCHEDULABLE, reason, plugin)

    @classmethod
    def wait(cls, reason: str, *, timeout_s: float | None = None, plugin: str = "") -> Status:
        """Hold the reservations; None leaves the timeout to the group, then to the configuration."""
        return cls(Code.WAIT, reason, plugin, timeout_s)


SUCCESS = Status()


class CycleState:
    """Scratch for one cycle: a plugin's PreFilter leaves here what its Filter and Score read."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}


@runtime_checkable
class Plugin(Protocol):
    name: str


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    name: str

    def pre_enqueue(self, pod: Pod) -> Status: ...


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Exactly one for all profiles."""

    name: str

    def sort_key(self, group: Group) -> tuple[Any, ...]:
        """Comparable with every other group's; the core appends the group's key as the last tie-break."""
        ...


@runtime_checkable
class PreFilterPlugin(Protocol):
    name: str

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status: ...


@runtime_checkable
class FilterPlugin(Protocol):
    """A fixed property of nodes: what placing the gang's own members cannot change.

    The mask is kept per template until a node changes (never across a change), so it must depend on the
    template and on node objects alone.
    """

    name: str

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        """bool[n_rows]; None: every node will do."""
        ...

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        """Why not: (reason in kube-scheduler's words, rows it applies to). Asked only on failure."""
        ...


@runtime_checkable
class CapacityPlugin(Protocol):
    """A property that members use up: room, ports, devices."""

    name: str

    def capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: Rows = EVERYWHERE
    ) -> IntArray | None:
        """int64 >= 0 for each of `rows`: how many more pods of this template the node takes; None: no limit.

        A row's answer depends on that row alone: answers are kept, and only rows that changed asked again.
        """
        ...

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        """As FilterPlugin.reasons, for the rows whose capacity is 0."""
        ...


@runtime_checkable
class ScorePlugin(Protocol):
    """A plugin may say `score_by_row = True`: a row's score depends on that row alone, so that scores are
    kept and only rows that changed are asked again. Without it (normalised scores), all are asked each time.
    """

    name: str

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """float64[len(rows)] in 0..100 for the feasible `rows`; None: nothing to say, costs nothing."""
        ...


@runtime_checkable
class PermitPlugin(Protocol):
    name: str

    def permit(self, group: Group, siblings: Mapping[str, Group]) -> Status:
        """Asked when every needed member is reserved, and again whenever the group or a sibling changes.

        `siblings` are the groups of start_together by "namespace/name", as far as they exist.
        """
        ...


@runtime_checkable
class CuringPlugin(Protocol):
    """Says which changes can cure its rejections. A plugin without it is woken by every change."""

    name: str
    cured_by: Change

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        """Whether this change may let the rejected template through; True when in doubt."""
        ...


# All that a plugin imports from the core comes from this page.
__all__ = [
    "EVERYWHERE",
    "MAX_SCORE",
    "SUCCESS",
    "BoolArray",
    "CapacityPlugin",
    "Change",
    "ClusterChange",
    "Code",
    "CuringPlugin",
    "CycleState",
    "FilterPlugin",
    "FloatArray",
    "IntArray",
    "PermitPlugin",
    "Plugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "QueueSortPlugin",
    "Rows",
    "ScorePlugin",
    "Status",
]

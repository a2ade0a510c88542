"""Every extension point up to Score, in order; those after it are in core.framework.points.binding, the
queue's in core.framework.points.queueing, and what a plugin may have beside their methods in supports.

The core and the plugins in gangsched.plugins import all of it from here. The page for authors of plugins,
with the table of all points, is gangsched.plugin.

Source of the points and of the codes: kube-scheduler `pkg/scheduler/framework/interface.go`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.framework.filled_node import FilledNode
from gangsched.core.framework.plan import DemandOn, DryRun, FitError, PostFilterResult
from gangsched.core.framework.points.binding import (
    BindPlugin,
    InheritingPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from gangsched.core.framework.points.queueing import (
    LaneSortPlugin,
    PassingPlugin,
    PreEnqueuePlugin,
    QueueSortPlugin,
)
from gangsched.core.framework.status import (
    EVERYWHERE,
    MAX_SCORE,
    SKIP,
    SUCCESS,
    Code,
    CycleState,
    Handle,
    NodeSubset,
    Rows,
    Status,
)
from gangsched.core.types.arrays import BoolArray, FloatArray, IntArray
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why
from gangsched.model.objects import Pod
from gangsched.model.resources import pod_requests


@runtime_checkable
class Plugin(Protocol):
    name: str


@runtime_checkable
class PodSigningPlugin(Protocol):
    """Declares what it reads of a pod's metadata. Source of the idea: KEP-5598, SignPod.

    Beside it: SupportsSigns, SupportsSignedAnnotations, SupportsSignsOwners.
    """

    name: str

    def sign(self, pod: Pod) -> Hashable:
        """Returns equal values for pods of equal spec that it cannot distinguish; () if it reads no
        metadata."""
        ...


@runtime_checkable
class SelectivePlugin(Protocol):
    """A plugin that concerns few pods: all others skip it at no cost."""

    name: str

    def concerns(self, template: PodTemplate) -> bool:
        """False: the plugin does nothing for such pods from PreFilter to PreBind. Called once."""
        ...


@runtime_checkable
class PreFilterPlugin(Protocol):
    name: str

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status | NodeSubset:
        """SKIP: the plugin's Filter is not called for this template in this cycle. `view` is the current
        state, including siblings of other templates placed before (view.placed)."""
        ...


@runtime_checkable
class FollowingPlugin(Protocol):
    """For plugins that keep their own counts in `state`: since PreFilter a pod of template `other` has come
    to `row` or has left it, on the Trial `view`, which shows it already. Called for placed siblings and for
    preemption's victims; a plugin that reads everything from the view needs neither."""

    name: str

    def add_pod(
        self, state: CycleState, template: PodTemplate, other: PodTemplate, row: int, view: ClusterView
    ) -> None: ...

    def remove_pod(
        self, state: CycleState, template: PodTemplate, other: PodTemplate, row: int, view: ClusterView
    ) -> None: ...


@runtime_checkable
class FilterPlugin(Protocol):
    """Whether a node is suitable.

    Without `sees_pods` it is a fixed property of nodes, which placing pods cannot change: the mask and its
    reasons are kept per template until a node changes (never across a change), and must depend on the
    template and on node objects alone. With `sees_pods = True` it also depends on where pods are: it is never
    kept, recomputed after each placement, and a template for which the plugin did not SKIP is placed one
    member at a time.

    Beside it SupportsTopologyKeys and SupportsAtMost help core.cycle.orders.order_search to distinguish
    "there is no placement" from "not found"; SupportsTogether and SupportsAtMostTogether bound a group of
    several templates.
    """

    name: str

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        """bool[n_rows]; None: every node is suitable."""
        ...

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[Why, BoolArray]]:
        """Why not: (reason in kube-scheduler's words, rows it applies to). Called only on failure."""
        ...


@runtime_checkable
class NodeFilterPlugin(Protocol):
    """A Filter in ten lines: checks one node, and only if all other Filters allow it.

    The answer must depend on its arguments alone. For a plugin without PreFilter it is kept per template and
    node until the node or its pods change; and it is called for no more nodes than the choice needs. With
    `sees_pods = False` (SupportsSeesPods) it reads nothing of a node's pods and room, and need not be called
    again while a gang is placed.
    """

    name: str

    def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status: ...


@runtime_checkable
class CapacityPlugin(Protocol):
    """A property that members use up: room, ports, devices."""

    name: str

    def capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: Rows = EVERYWHERE
    ) -> IntArray | None:
        """int64 >= 0 for each of `rows`: how many more pods of this template the node takes; None: no limit.

        A row's answer depends on that row alone: answers are kept, and only changed rows are asked again.
        That is one row after every gang, which SupportsCapacityOn makes cheaper.
        """
        ...

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[Why, BoolArray]]:
        """As FilterPlugin.reasons, for the rows whose capacity is 0."""
        ...


@runtime_checkable
class PostFilterPlugin(Protocol):
    name: str

    def post_filter(
        self, unit: Sequence[DemandOn[Any]], trial: Trial, error: FitError, dry_run: DryRun
    ) -> PostFilterResult | Status:
        """Called when the whole unit (a group, or groups that start together) does not fit now.

        trial: the present cluster, to fork and to remove pods from; dry_run.place: the unit's cycle on such a
        fork. The first plugin that returns a result ends the point: the unit waits, its places reserved,
        until the victims are gone. A Status tells why this plugin found no way.
        """
        ...


@runtime_checkable
class PreScorePlugin(Protocol):
    name: str

    def pre_score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> Status:
        """Before each Score, with the same rows. SKIP: the plugin's Score is not called this time."""
        ...


@runtime_checkable
class ScorePlugin(Protocol):
    """Beside it: SupportsNormalize, SupportsScoreByRow, SupportsSpreads, SupportsIsStated,
    SupportsPreferredCapacity, SupportsScoreFilled and others of core.framework.supports."""

    name: str

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """float64[len(rows)] in 0..100 for the feasible `rows`; None: no opinion on these, nor on any subset
        of them; costs nothing."""
        ...


@runtime_checkable
class NodeScorePlugin(Protocol):
    """A Score in ten lines; beside it: SupportsNormalize, SupportsIsStated.

    The answer must depend on its arguments alone. For a plugin without PreFilter and PreScore it is kept per
    template and node until the node or its pods change. If one node is wanted and the plugin has no
    normalize, nodes that could not win even with 100 are skipped.
    """

    name: str

    def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float: ...


@runtime_checkable
class CuringPlugin(Protocol):
    """Declares which changes can cure its rejections. A plugin without it is woken by every change."""

    name: str
    cured_by: Change

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        """Whether this change may let the rejected template through; True when in doubt."""
        ...


__all__ = [
    "EVERYWHERE",
    "MAX_SCORE",
    "SKIP",
    "SUCCESS",
    "BindPlugin",
    "BoolArray",
    "CapacityPlugin",
    "Change",
    "ClusterChange",
    "Code",
    "CuringPlugin",
    "CycleState",
    "DryRun",
    "FilledNode",
    "FilterPlugin",
    "FloatArray",
    "FollowingPlugin",
    "Handle",
    "InheritingPlugin",
    "IntArray",
    "LaneSortPlugin",
    "NodeFilterPlugin",
    "NodeScorePlugin",
    "NodeSubset",
    "PassingPlugin",
    "PermitPlugin",
    "Plugin",
    "PodSigningPlugin",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PostFilterResult",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreScorePlugin",
    "QueueSortPlugin",
    "QueueView",
    "ReservePlugin",
    "Rows",
    "ScorePlugin",
    "SelectivePlugin",
    "Status",
    "pod_requests",
]

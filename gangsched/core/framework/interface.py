"""The plugin author's page: every extension point in order, what it may answer and what it may not.

A plugin is a class with a `name` and the methods of the points it serves; methods are found by their
presence. One object is made for each profile that names it, with that profile's args. A plugin in ten lines:

    from gangsched.core.framework.interface import SUCCESS, Status

    class SameOwner:
        name = "SameOwner"

        def filter_node(self, state, pod, node_info):
            wanted = (pod.metadata.labels or {}).get("owner")
            if wanted in (None, node_info.labels.get("owner")):
                return SUCCESS
            return Status.unschedulable("node(s) belonged to somebody else")

    point       method        asked                                       may answer
    PreEnqueue  pre_enqueue   a pod is seen, or edited; and on changes    a Status: kept out until success,
                              of the cluster that it names                which may move its group in line
    QueueSort   sort_key      a group becomes active                      a key; the smallest goes first
                lane, lane_key   the same; lane_key also when the usage   the group's lane; the key of a lane
                              changes that it has read                    by its first group
    Admit       admit         a group has its turn; the plugin is         a Status: "no" keeps the whole
                              enabled at PreEnqueue                       group out
                admit_again   a change, for a group that it keeps out     whether to ask it again
    PreFilter   pre_filter    once a cycle and template                   a Status (SKIP: no Filter of this
                                                                          plugin), or the NodeSubset left
    (AddPod)    add_pod, remove_pod   a pod came to a node, or left it    nothing; keeps its counts in state
    Filter      filter        all nodes at once                           a mask of those that will do
                filter_node   one node that every other Filter lets by    a Status
                capacity      all nodes, where members use it up          how many more copies each takes
    PostFilter  post_filter   the group fits nowhere                      how to make room; the first success
    PreScore    pre_score     before Score, with the feasible nodes       a Status (SKIP: no Score of it)
    Score       score         the feasible nodes at once                  0..100 a node, larger is better
                score_node    one feasible node                           the same, as one number
    Normalize   normalize     after Score, of a plugin that has it        the scores made to fit 0..100
    Reserve     reserve       a whole group has its places                a Status; "no" unreserves
                unreserve     whatever follows fails                      nothing; may be asked twice
    (Inherit)   inherit       a reload has made it anew                   nothing; keeps the earlier's notes
    Permit      permit        everything is reserved                      success, wait (timeout), or no
    PreBind     pre_bind      once a pod, before it is bound              a Status; "no" costs the attempt
    Bind        bind          once a pod, in order                        a Status; SKIP: the next one binds
    PostBind    post_bind     once a pod that is bound                    nothing

Up to PostFilter, Score and Reserve a plugin is synchronous and pure: no clock, no I/O, no randomness, no
state but what the same arguments would produce again, and no changes to its arguments: arrays are read-only,
pods and nodes are shared. Permit, PreBind, Bind and PostBind exist to do I/O, and PreEnqueue may: these may
be `async def`, and then run outside the core under a deadline, with a `handle` on the API server.

The order is the configuration's. A "no" ends its point, and reservations are unreserved in reverse. A plugin
that raises, or answers what its point does not allow, is named in its pod's message and costs that pod this
attempt; it is called again at the next one. Weights multiply scores; nodes get the sum.

The queries of a view are in core.cache.view, one file per subject; a plugin may name the one that it needs
(`view: DeviceQueries`). Arrays are over node rows: length `view.n_rows`; a node keeps its row for as long as
it exists, and `view.live` marks the rows that are nodes. A template is the part of a pod that plugins may
read, shared by all equal pods: always its spec and namespace, and of its metadata what some plugin of the
profile `sign`s. A plugin that reads more of a pod must declare it in `sign`, else two pods that differ there
are treated as equal; plugins with filter_node or score_node and without `sign` get labels, annotations and
owners.

A plugin sees counts of pods and the pods themselves: `view.matching(PodTerm(...))` (model.selectors) is the
number of pods on each node that a term matches, updated as pods come and go, including those that the current
gang has placed so far; `view.pods_on(row)` are the pods, `view.placed` are the placements of this attempt.
Other objects are in `view.objects(kind)`: a plugin names the kinds in `watches`, the scheduler follows them,
waits for their first list, and needs the right to list and watch them.

Source of the points and of the codes: kube-scheduler `pkg/scheduler/framework/interface.go`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

from gangsched.core.cache.namespace_usage import QueueView
from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.framework.binding_points import (
    BindPlugin,
    InheritingPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from gangsched.core.framework.filled_node import FilledNode
from gangsched.core.framework.plan import DemandOn, DryRun, FitError, PostFilterResult
from gangsched.core.framework.queueing_points import (
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
from gangsched.core.types.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.resources import pod_requests


@runtime_checkable
class Plugin(Protocol):
    """Optional for any plugin: `watches: ClassVar[tuple[str, ...]]`, the other kinds that it reads through
    `view.objects`, by plural and group ("persistentvolumeclaims", "replicasets.apps")."""

    name: str


@runtime_checkable
class PodSigningPlugin(Protocol):
    """Declares what it reads of a pod's metadata. Source of the idea: KEP-5598, SignPod.

    Optional: `signed_annotations: ClassVar[frozenset[str]]`: pods without any of these are not signed;
    `signs_owners: ClassVar[bool] = True`: nor are pods without ownerReferences; `signs: bool`, False if with
    these arguments the plugin reads nothing.
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

    Two optional methods help core.cycle.order_search to distinguish "there is no placement" from "not found":
    `topology_keys(state, template, view) -> Sequence[str] | None`: two nodes with the same room and the same
    pods differ for it only in these labels (None, or no such method: no two nodes are alike);
    `at_most(state, template, view, room, others) -> int`: an upper bound of how many pods of the template can
    still be placed, whatever is placed beside them, if each row takes at most `room` (int64[n_rows]);
    `others` are the templates that may be placed too. Two more bound a group of several templates:
    `together(templates, view) -> IntArray | None`, which capacities may have too: at most how many pods of
    these each row still takes, in any mix (int64[n_rows], None: no bound);
    `at_most_together(templates, view, room) -> int`: as at_most, for all of these in any mix.
    """

    name: str

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        """bool[n_rows]; None: every node is suitable."""
        ...

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        """Why not: (reason in kube-scheduler's words, rows it applies to). Called only on failure."""
        ...


@runtime_checkable
class NodeFilterPlugin(Protocol):
    """A Filter in ten lines: checks one node, and only if all other Filters allow it.

    The answer must depend on its arguments alone. For a plugin without PreFilter it is kept per template and
    node until the node or its pods change; and it is called for no more nodes than the choice needs.
    Optional: `sees_pods: ClassVar[bool] = False` if it reads nothing of a node's pods and room: then it need
    not be called again while a gang is placed.
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
        That is one row after every gang, so a plugin may also answer for a single row in plain numbers, with
        `capacity_on(state, template, view, row: int) -> int | None`, which must give the same result.
        """
        ...

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
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
    """Optional beside it: `normalize(state, template, scores) -> scores`, which gets score's results, of any
    range, and maps them to 0..100.

    `score_by_row = True`: a row's score depends on that row alone, so scores are kept and only changed rows
    are recomputed, also from one gang to the next of its kind (core.framework.batching). Not with normalize
    or pre_score; with pre_filter only beside `tells_by_template = True`: what it leaves for score follows
    from the template. Whatever it reads beside the view must be a usage tracker (core.cache.usage_trackers),
    which reports changed rows.

    `spreads(template, members) -> bool`: the template prefers to be away from the gang's other members (their
    templates, itself included), so that they are placed one at a time by score and not packed.
    `is_stated(template, view) -> bool`, asked often: the pod itself states the preference. What a gang's pods
    state comes before how tightly it fits, all other scores after it (core.cycle.packing).
    `preferred_capacity(state, template, view) -> int64[n_rows] or None`: how many more copies each node takes
    with all that their pods hope for. A gang that fits within it is packed within it.

    Beside score_by_row, one of these spares a call for each member where packing has a weight:
    `score_filled(template, node)`, float64[n] or None, as `score` of one node that has 0 to n - 1 more of
    these pods, by what FilledNode shows alone; `score_filled_at(state, template, view, row, n)`, the same for
    one row by all that score reads; or `ignores_placed = True`: a Trial changes no score.
    """

    name: str

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """float64[len(rows)] in 0..100 for the feasible `rows`; None: no opinion on these, nor on any subset
        of them; costs nothing."""
        ...


@runtime_checkable
class NodeScorePlugin(Protocol):
    """A Score in ten lines; normalize(state, template, scores) may accompany it, and is_stated as above.

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


# A plugin imports everything from the core through this module.
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

"""The plugin author's page: every extension point in order, what it may answer and what it may not.

A plugin is a class with a `name` and the methods of the points it serves; methods are found by their
presence. One object is made for each profile that names it, with that profile's args. A plugin in ten lines:

    from gangsched.plugin import SUCCESS, Status

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
                admit_without   as if pods were gone                      as admit; it may preempt
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

The queries of a view are classes by subject, DeviceQueries to RowQueries; a plugin may name the one that it
needs (`view: DeviceQueries`). Arrays are over node rows: length `view.n_rows`; a node keeps its row for as
long as it exists, and `view.live` marks the rows that are nodes. A template is the part of a pod that plugins
may read, shared by all equal pods: always its spec and namespace, and of its metadata what some plugin of the
profile `sign`s. A plugin that reads more of a pod must declare it in `sign`, else two pods that differ there
are treated as equal; plugins with filter_node or score_node and without `sign` get labels, annotations and
owners.

A plugin sees counts of pods and the pods themselves: `view.matching(PodTerm(...))` is the number of pods on
each node that a term matches, updated as pods come and go, including those that the current gang has placed
so far; `view.pods_on(row)` are the pods, `view.placed` are the placements of this attempt. Other objects are
in `view.objects(kind)`: a plugin names the kinds in `watches`, the scheduler follows them, waits for their
first list, and needs the right to list and watch them.

What a plugin may have beside the methods of its points is a protocol each, SupportsAtMost to SupportsWatches;
a name that is close to one of these and a value of another type are refused when the plugin is loaded.

All of this is promised between versions, as docs/operating.md says; a test compares it with the record of it,
`tests/extension/plugin_api.txt`.

Source of the points and of the codes: kube-scheduler `pkg/scheduler/framework/interface.go`.
"""

from __future__ import annotations

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.cache.trial import Trial
from gangsched.core.cache.view.devices import DeviceQueries
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.cache.view.pods import PodQueries
from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.eviction_rule import EvictionRule, EvictionRulePlugin
from gangsched.core.framework.interface import (
    EVERYWHERE,
    MAX_SCORE,
    SKIP,
    SUCCESS,
    BindPlugin,
    BoolArray,
    CapacityPlugin,
    Change,
    ClusterChange,
    Code,
    CuringPlugin,
    CycleState,
    DryRun,
    FilledNode,
    FilterPlugin,
    FloatArray,
    FollowingPlugin,
    Handle,
    InheritingPlugin,
    IntArray,
    LaneSortPlugin,
    NodeFilterPlugin,
    NodeScorePlugin,
    NodeSubset,
    PassingPlugin,
    PermitPlugin,
    Plugin,
    PodSigningPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    Rows,
    ScorePlugin,
    SelectivePlugin,
    Status,
    pod_requests,
)
from gangsched.core.framework.plan import DemandOn, FitError, Plan
from gangsched.core.framework.points.queueing import AdmitAgainPlugin, AdmitPlugin, AdmitWithoutPlugin
from gangsched.core.framework.supports import (
    SupportsAtMost,
    SupportsAtMostTogether,
    SupportsCapacityOn,
    SupportsHookTimeout,
    SupportsIgnoresPlaced,
    SupportsIsStated,
    SupportsMayBeOverruled,
    SupportsNormalize,
    SupportsOnlyRepels,
    SupportsPreBindPreFlight,
    SupportsPreferredCapacity,
    SupportsRekey,
    SupportsScoreByRow,
    SupportsScoreFilled,
    SupportsScoreFilledAt,
    SupportsSeesPods,
    SupportsSignedAnnotations,
    SupportsSigns,
    SupportsSignsOwners,
    SupportsSpreads,
    SupportsStatesOfNodes,
    SupportsTellsByTemplate,
    SupportsTogether,
    SupportsTopologyKeys,
    SupportsUsageLabels,
    SupportsWatches,
)
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Because, Why
from gangsched.errors import ApiError, GangschedError
from gangsched.model.objects import Node, Pod
from gangsched.model.selectors import PodTerm
from gangsched.model.text.printable import marked

API_VERSION = "1.0"
"""The first number counts breaks, the second additions."""

__all__ = [
    "API_VERSION",
    "EVERYWHERE",
    "MAX_SCORE",
    "SKIP",
    "SUCCESS",
    "AdmitAgainPlugin",
    "AdmitPlugin",
    "AdmitWithoutPlugin",
    "ApiError",
    "Because",
    "BindPlugin",
    "BoolArray",
    "CapacityPlugin",
    "Change",
    "ClusterChange",
    "ClusterView",
    "Code",
    "CuringPlugin",
    "CycleState",
    "DemandOn",
    "DeviceQueries",
    "DryRun",
    "EvictionRule",
    "EvictionRulePlugin",
    "FilledNode",
    "FilterPlugin",
    "FitError",
    "FloatArray",
    "FollowingPlugin",
    "GangschedError",
    "Group",
    "Handle",
    "InheritingPlugin",
    "IntArray",
    "LaneSortPlugin",
    "Node",
    "NodeFilterPlugin",
    "NodeInfo",
    "NodeQueries",
    "NodeScorePlugin",
    "NodeSubset",
    "ObjectQueries",
    "PassingPlugin",
    "PermitPlugin",
    "Placement",
    "Plan",
    "Plugin",
    "Pod",
    "PodInfo",
    "PodQueries",
    "PodSigningPlugin",
    "PodTemplate",
    "PodTerm",
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
    "RoomQueries",
    "RowQueries",
    "Rows",
    "ScorePlugin",
    "SelectivePlugin",
    "Status",
    "SupportsAtMost",
    "SupportsAtMostTogether",
    "SupportsCapacityOn",
    "SupportsHookTimeout",
    "SupportsIgnoresPlaced",
    "SupportsIsStated",
    "SupportsMayBeOverruled",
    "SupportsNormalize",
    "SupportsOnlyRepels",
    "SupportsPreBindPreFlight",
    "SupportsPreferredCapacity",
    "SupportsRekey",
    "SupportsScoreByRow",
    "SupportsScoreFilled",
    "SupportsScoreFilledAt",
    "SupportsSeesPods",
    "SupportsSignedAnnotations",
    "SupportsSigns",
    "SupportsSignsOwners",
    "SupportsSpreads",
    "SupportsStatesOfNodes",
    "SupportsTellsByTemplate",
    "SupportsTogether",
    "SupportsTopologyKeys",
    "SupportsUsageLabels",
    "SupportsWatches",
    "Trial",
    "Why",
    "marked",
    "pod_requests",
]

"""Profile: one scheduler name's plugins, run in order, their answers merged.

Built by plugins.build_profiles, called by core.cycle, core.state and core.groups. A plugin that raises or
answers with the wrong shape is named in a PluginError and costs its group this attempt, nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import NamedTuple

from gangsched.core.cache.nodes.usage_trackers import UsageTracker
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.framework.eviction_rule import EvictionRule, EvictionRulePlugin
from gangsched.core.framework.extension_points import ExtensionPoints
from gangsched.core.framework.filters.filtering import Filtering
from gangsched.core.framework.filters.per_node import NodeInfos
from gangsched.core.framework.filters.signing import Signing
from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BoolArray,
    ClusterChange,
    Code,
    CuringPlugin,
    CycleState,
    DryRun,
    FloatArray,
    FollowingPlugin,
    IntArray,
    LaneSortPlugin,
    NodeSubset,
    PermitPlugin,
    Plugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    SelectivePlugin,
    Status,
)
from gangsched.core.framework.plan import TOPOLOGY, DemandOn, FitError
from gangsched.core.framework.plugin_calls import (
    CallPlugin,
    PluginError,
    check_subset,
    checked_status,
    converted,
    guarded,
)
from gangsched.core.framework.points.queueing import (
    AdmitAgainPlugin,
    AdmitPlugin,
    AdmitWithoutPlugin,
    bad_raise,
    sees_view,
)
from gangsched.core.framework.scores.batching import Batching
from gangsched.core.framework.scores.scoring import Scoring
from gangsched.core.framework.scores.weighing import Weighing
from gangsched.core.framework.supports import KeepsUsage, SupportsPreBindPreFlight, serves
from gangsched.core.types.cluster_events import Change
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why, together
from gangsched.core.why.not_tried import FilterOff
from gangsched.model.objects import Pod

DEVICES, CLAIMS, GATES = "Devices", "DynamicResources", "SchedulingGates"
_HINT = "EventsToRegister"
_NO = frozenset((Code.SUCCESS, Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING))
_NO_OR_SKIP = _NO | {Code.SKIP}
_NO_OR_WAIT = _NO_OR_SKIP | {Code.WAIT}
_CHANGES_DOMAINS = Change.NODE_ADDED | Change.NODE_REMOVED | Change.NODE_LABELS
_YES_OR_SKIP = frozenset((Code.SUCCESS, Code.SKIP))
# Templates whose concerned plugins are cached; beyond this many the cache is cleared.
_MAX_REMEMBERED = 4096


class _Concerned(NamedTuple):
    """The plugins that concern pods of one template, and those that do not."""

    pre_filter: tuple[PreFilterPlugin, ...]
    reserves: tuple[ReservePlugin, ...]
    pre_binds: tuple[PreBindPlugin, ...]
    others: frozenset[str]


class Profile:
    """The plugins of one schedulerName, by extension point, in the order of the configuration."""

    def __init__(self, scheduler_name: str, points: ExtensionPoints, *, ask: CallPlugin = guarded) -> None:
        """ask: calls a plugin; every call except PreEnqueue's goes through it."""
        self._ask = ask
        self.scheduler_name = scheduler_name
        self.points = points
        self.queue_sort = points.queue_sort
        self.pre_enqueue = points.pre_enqueue
        self.async_pre_enqueues = frozenset(
            p.name for p in self.pre_enqueue if iscoroutinefunction(p.pre_enqueue)
        )
        """PreEnqueue plugins whose answer is an event."""
        self._viewing = frozenset(p.name for p in self.pre_enqueue if sees_view(p.pre_enqueue))
        self.only_gates = all(plugin.name == GATES for plugin in self.pre_enqueue)
        """Whether PreEnqueue has at most the plugin that reads only the pod."""
        self.admit_plugins = points.admits
        self.pre_filter = points.pre_filter
        self.post_filters = points.post_filters
        self.reserves = points.reserves
        self.reserve_names = frozenset(plugin.name for plugin in points.reserves)
        self.permits = points.permits
        has_lanes = serves(points.queue_sort, LaneSortPlugin)
        self.reads_usage = has_lanes or bool(self._viewing or self.admit_plugins)
        """Whether a plugin of the queue looks at a QueueView."""
        self.pre_binds = points.pre_binds
        self.binds = points.binds
        self.post_binds = points.post_binds
        is_observed = frozenset(plugin.name for plugin in points.pre_filter)
        infos = NodeInfos()
        self.filtering = Filtering(
            points.filters, points.capacities, is_observed=is_observed, infos=infos, ask=ask
        )
        self.scoring = Scoring(
            points.scores, points.pre_scores, is_observed=is_observed, infos=infos, ask=ask
        )
        self.batching = Batching(self.filtering, self.scoring)
        self.weighing = Weighing(self.filtering, self.scoring)
        self._by_name = points.plugins()
        self._following = tuple(p for p in self._by_name.values() if serves(p, FollowingPlugin))
        self.follows = bool(self._following)
        """Whether a plugin must be called for each pod that a Trial gains or loses."""
        self.signing = Signing(self._by_name.values())
        self._selective = tuple(p for p in self._by_name.values() if serves(p, SelectivePlugin))
        self._concerned: dict[int, _Concerned] = {}
        self.async_permits = frozenset(p.name for p in self.permits if iscoroutinefunction(p.permit))
        """Permit plugins whose answer is an event."""
        self.names_devices = DEVICES in self._by_name
        """Without that plugin devices are counts: no pod gets IDs, and none may ask for particular ones."""
        self.allocates_claims = CLAIMS in self._by_name
        self._filter_names = frozenset(
            [plugin.name for plugin in points.filters] + [plugin.name for plugin in points.capacities]
        )

    @property
    def usage_trackers(self) -> tuple[UsageTracker, ...]:
        """The usage trackers of its plugins (core.cache.nodes.usage_trackers)."""
        return tuple(one.usage_tracker for one in self._by_name.values() if serves(one, KeepsUsage))

    @property
    def plugins(self) -> Iterable[Plugin]:
        """Each plugin once, whatever points it serves."""
        return self._by_name.values()

    def refuses(self, template: PodTemplate) -> Why:
        """Returns why this profile cannot place pods of the template at all; "" when it can."""
        if template.problem or not template.needs:
            return template.problem
        for plugin, wish in template.needs:
            if plugin not in self._filter_names:
                return FilterOff(wish, plugin)
        return ""

    def plugin(self, name: str) -> Plugin | None:
        """Returns the plugin of that name, whatever points it serves."""
        return self._by_name.get(name)

    def ask_pre_enqueue(self, plugin: PreEnqueuePlugin, pod: Pod, view: QueueView | None) -> Status:
        """Calls one plugin that answers at once. Raises: PluginError."""
        args = (pod, view) if plugin.name in self._viewing else (pod,)
        answer = self._ask(plugin.name, "PreEnqueue", plugin.pre_enqueue, *args)
        status = checked_status(plugin.name, "PreEnqueue", answer, _NO_OR_WAIT)
        if status.raise_by and (problem := bad_raise(status)):
            raise PluginError(plugin.name, "PreEnqueue", problem)
        return status

    def run_admit(
        self, group: Group, members: Sequence[PodInfo], view: QueueView, gone: Collection[PodInfo] = ()
    ) -> Status:
        """Returns Admit's first "no", or success; gone: pods that count as off their nodes. Raises:
        PluginError."""
        for plugin in self.admit_plugins:
            if gone and serves(plugin, AdmitWithoutPlugin):
                answer = self._ask(plugin.name, "Admit", plugin.admit_without, group, members, gone, view)
            else:
                answer = self._ask(plugin.name, "Admit", plugin.admit, group, members, view)
            status = checked_status(plugin.name, "Admit", answer, _NO)
            if not status.is_success:
                return status
        return SUCCESS

    def may_admit_without(
        self, plugin: AdmitPlugin | None, group: Group, members: Sequence[PodInfo], view: QueueView
    ) -> bool:
        """Whether the plugin, which keeps the group out, may let it in if pods are evicted. Raises:
        PluginError."""
        if plugin is None or not serves(plugin, AdmitWithoutPlugin):
            return False
        asked = (plugin.may_admit_without, bool, group, members, view)
        return self._ask(plugin.name, "Admit", converted, *asked)

    def admit_that_refused(self, rejected_by: Iterable[tuple[str, PodTemplate | None]]) -> AdmitPlugin | None:
        """Returns the Admit plugin that keeps the group out, if one does."""
        names = {name for name, template in rejected_by if template is None}
        return next((plugin for plugin in self.admit_plugins if plugin.name in names), None)

    def admits_again(
        self,
        plugin: AdmitPlugin,
        group: Group,
        members: Sequence[PodInfo],
        change: ClusterChange,
        view: QueueView,
    ) -> bool:
        """Whether the plugin, which keeps the group out, should be asked again after this change. Raises:
        PluginError."""
        if not serves(plugin, AdmitAgainPlugin):
            return True
        asked = (plugin.admit_again, bool, group, members, change, view)
        return self._ask(plugin.name, "Admit", converted, *asked)

    def eviction_rule(
        self, unit: Sequence[Group], members: Sequence[PodInfo], view: QueueView
    ) -> EvictionRule | None:
        """Returns the rule of the first plugin with one for these groups. Raises: PluginError."""
        for plugin in self.admit_plugins:
            if serves(plugin, EvictionRulePlugin):
                rule = self._ask(plugin.name, "Admit", plugin.eviction_rule, unit, members, view)
                if rule is not None:
                    return rule
        return None

    def concerned(self, template: PodTemplate) -> _Concerned:
        """Returns the plugins that concern the template (SelectivePlugin), computed once and kept."""
        found = self._concerned.get(template.serial)
        if found is None:
            others = frozenset(
                plugin.name
                for plugin in self._selective
                if not self._ask(plugin.name, "PreFilter", converted, plugin.concerns, bool, template)
            )
            found = _Concerned(
                tuple(plugin for plugin in self.pre_filter if plugin.name not in others),
                tuple(plugin for plugin in self.reserves if plugin.name not in others),
                tuple(plugin for plugin in self.pre_binds if plugin.name not in others),
                others,
            )
            if len(self._concerned) >= _MAX_REMEMBERED:
                self._concerned.clear()
            self._concerned[template.serial] = found
        return found

    def run_pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        """Returns the first "no", or success; records skipping plugins and remaining nodes in `state`."""
        concerned = self.concerned(template)
        state.unconcerned = concerned.others
        skipped: list[str] = []
        for plugin in concerned.pre_filter:
            answer = self._ask(plugin.name, "PreFilter", plugin.pre_filter, state, template, view)
            if answer is SKIP:
                skipped.append(plugin.name)
            elif answer is SUCCESS:
                continue
            elif isinstance(answer, NodeSubset):
                self._narrow(plugin.name, state, answer, view)
            else:
                status = checked_status(plugin.name, "PreFilter", answer, _NO_OR_SKIP)
                if status.code is Code.SKIP:
                    skipped.append(plugin.name)
                elif not status.is_success:
                    return status
        state.skipped = concerned.others.union(skipped)
        return SUCCESS

    def _narrow(self, plugin: str, state: CycleState, answer: NodeSubset, view: ClusterView) -> None:
        check_subset(plugin, answer, view.n_rows)
        state.subset = answer.mask if state.subset is None else state.subset & answer.mask
        state.subset_reasons = (*state.subset_reasons, (plugin, answer))

    def tell_placed(
        self, state: CycleState, template: PodTemplate, other: PodTemplate, row: int, view: ClusterView
    ) -> None:
        """Updates plugins' counts in the state of `template`: a pod of `other` has come to `row`."""
        for plugin in self._following:
            if plugin.name not in state.skipped:
                self._ask(plugin.name, "AddPod", plugin.add_pod, state, template, other, row, view)

    def tell_removed(
        self, state: CycleState, template: PodTemplate, other: PodTemplate, row: int, view: ClusterView
    ) -> None:
        """Updates them likewise: a pod of `other` has left `row`."""
        for plugin in self._following:
            if plugin.name not in state.skipped:
                self._ask(plugin.name, "RemovePod", plugin.remove_pod, state, template, other, row, view)

    def admits(self, template: PodTemplate, view: ClusterView, row: int) -> bool:
        """Whether a node's fixed properties (not its free resources) still admit the template."""
        return bool(self.filtering.feasible(CycleState(), template, view)[row])

    def capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView, *, looks: bool = True
    ) -> IntArray:
        """How many more pods of this template each node takes (Filtering.capacity)."""
        return self.filtering.capacity(state, template, view, looks=looks)

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> list[tuple[str, Why, BoolArray]]:
        """Why nodes are excluded (Filtering.reasons)."""
        return self.filtering.reasons(state, template, view)

    def score(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        at: IntArray | None = None,
    ) -> FloatArray | None:
        """Weighted sum of all Score plugins for `rows` (Scoring.score)."""
        return self.scoring.score(state, template, view, rows, at)

    def stated(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """Scores `rows` by the preferences that the pod states (Scoring.stated)."""
        return self.scoring.stated(state, template, view, rows)

    def best(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        lets: Callable[[IntArray], BoolArray] | None,
    ) -> int | None:
        """Returns the row with the highest score (Scoring.best)."""
        return self.scoring.best(state, template, view, rows, lets)

    @property
    def quiet(self) -> Profile:
        """The same plugins without per-call observation: for searches, with thousands of calls."""
        return self

    def run_post_filter(
        self, unit: Sequence[Demand], trial: Trial, error: FitError, dry_run: DryRun
    ) -> PostFilterResult | Status:
        """Returns the first result that makes room; else all plugins' reasons, PENDING if one of them is."""
        reasons: list[Why] = []
        named = ""
        code = Code.UNSCHEDULABLE
        for plugin in self.post_filters:
            answer = self._ask(plugin.name, "PostFilter", plugin.post_filter, unit, trial, error, dry_run)
            if isinstance(answer, PostFilterResult):
                return answer
            status = checked_status(plugin.name, "PostFilter", answer, _NO)
            reasons += [status.why] if status.reason else []
            named = named or status.plugin
            code = Code.PENDING if status.code is Code.PENDING else code
        return Status.refused(code, together(*reasons) if reasons else "", plugin=named)

    def run_reserve(self, state: CycleState, group: Group, placements: Sequence[Placement]) -> Status | None:
        """Returns the first "no", if any; `placements` are of one template, whose cycle left `state`."""
        for plugin in self.concerned(placements[0].info.template).reserves:
            answer = self._ask(plugin.name, "Reserve", plugin.reserve, state, group, placements)
            status = checked_status(plugin.name, "Reserve", answer, _NO)
            if not status.is_success:
                return status
        return None

    def ask_permit(self, plugin: PermitPlugin, group: Group, siblings: Mapping[str, Group]) -> Status:
        """Calls one plugin that answers at once."""
        answer = self._ask(plugin.name, "Permit", plugin.permit, group, siblings)
        return checked_status(plugin.name, "Permit", answer, _NO_OR_WAIT)

    def run_pre_bind_pre_flight(self, template: PodTemplate) -> tuple[str, ...]:
        """Returns the PreBind plugins with work for pods of this template, in order."""
        wanted = []
        for plugin in self.concerned(template).pre_binds:
            if serves(plugin, SupportsPreBindPreFlight):
                answer = self._ask(plugin.name, "PreBindPreFlight", plugin.pre_bind_pre_flight, template)
                if checked_status(plugin.name, "PreBindPreFlight", answer, _YES_OR_SKIP).code is Code.SKIP:
                    continue
            wanted.append(plugin.name)
        return tuple(wanted)

    def cures(
        self,
        change: ClusterChange,
        rejected_by: Iterable[tuple[str, PodTemplate | None]],
        view: ClusterView,
    ) -> bool:
        """Whether one of the refusing plugins may accept after this change. Raises: PluginError."""
        for name, template in rejected_by:
            if name == TOPOLOGY:
                if change.what & _CHANGES_DOMAINS:
                    return True
                continue
            plugin = self._by_name.get(name)
            if not serves(plugin, CuringPlugin):
                return True
            asked = (plugin.cures, bool, change, template, view)
            if change.what & plugin.cured_by and guarded(name, _HINT, converted, *asked):
                return True
        return False


class Demand(DemandOn[Profile], gc=False):
    """One group's request to a cycle with these plugins."""

    def pre_filter(self, template: PodTemplate, view: ClusterView) -> tuple[CycleState, Status]:
        """Returns a state for the template, narrowed to the group's domain, after PreFilter; and PreFilter's
        answer."""
        state = CycleState(self.group)
        if self.within is not None:
            outside = NodeSubset(self.within, f"node(s) were outside of {self.within_name}")
            state.subset, state.subset_reasons = self.within, ((TOPOLOGY, outside),)
        return state, self.profile.run_pre_filter(state, template, view)

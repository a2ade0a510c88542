"""Profile: one scheduler name's plugins, run in order, their answers merged.

Built by plugins.build_profiles, called by core.cycle, core.queue and core.scheduler. A plugin that raises
or answers with the wrong shape is named in a PluginError and costs its group this attempt, nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec
import numpy as np

from gangsched.core.accounts import Account
from gangsched.core.framework import (
    EVERYWHERE,
    MAX_SCORE,
    SKIP,
    SUCCESS,
    BindPlugin,
    BoolArray,
    CapacityPlugin,
    ClusterChange,
    Code,
    CuringPlugin,
    CycleState,
    FilterPlugin,
    FloatArray,
    FollowingPlugin,
    IntArray,
    NodeSubset,
    PermitPlugin,
    Plugin,
    PodSigningPlugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    Rows,
    ScorePlugin,
    Status,
)
from gangsched.core.group import Group
from gangsched.core.guard import PluginError, blamed, check_shape, checked_status, guarded
from gangsched.core.snapshot import ClusterView, Trial
from gangsched.core.template import PodTemplate, Unsigned
from gangsched.model.objects import Pod

if TYPE_CHECKING:
    from gangsched.core.plan import Placement

T = TypeVar("T")
P = ParamSpec("P")
# What is kept per template may take this much of each kind; beyond it all is dropped and made anew.
_MAX_KEPT_BYTES = 32 * 2**20
NO_LIMIT = 2**62
DEVICES = "Devices"
# Asking for a few rows is cheaper than keeping scores of all up to date.
_FEW_ROWS = 16
_NO = frozenset((Code.SUCCESS, Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING))
_NO_OR_SKIP = _NO | {Code.SKIP}
_GO_OR_SKIP = frozenset((Code.SUCCESS, Code.SKIP))
_NO_OR_WAIT = _NO_OR_SKIP | {Code.WAIT}
_YES_OR_SKIP = frozenset((Code.SUCCESS, Code.SKIP))


class Points(msgspec.Struct, kw_only=True):
    """The plugins of one profile by extension point, in the order in which they are asked.

    filters answer for all nodes at once; those that name `sees_pods` are asked after the others.
    """

    queue_sort: QueueSortPlugin
    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    pre_filter: tuple[PreFilterPlugin, ...] = ()
    filters: tuple[FilterPlugin, ...] = ()
    capacities: tuple[CapacityPlugin, ...] = ()
    post_filters: tuple[PostFilterPlugin, ...] = ()
    pre_scores: tuple[PreScorePlugin, ...] = ()
    scores: tuple[tuple[ScorePlugin, float], ...] = ()
    reserves: tuple[ReservePlugin, ...] = ()
    permits: tuple[PermitPlugin, ...] = ()
    pre_binds: tuple[PreBindPlugin, ...] = ()
    binds: tuple[BindPlugin, ...] = ()
    post_binds: tuple[PostBindPlugin, ...] = ()
    has_default_binder: bool = True
    """Whether the core itself binds what `binds` leave alone."""

    def plugins(self) -> dict[str, Plugin]:
        """Each of them once, by name."""
        found: dict[str, Plugin] = {self.queue_sort.name: self.queue_sort}
        for name in self.__struct_fields__[1:-1]:
            for listed in getattr(self, name):
                plugin = listed[0] if isinstance(listed, tuple) else listed
                found[plugin.name] = plugin
        return found


class _Kept:
    """Capacities of one template, right up to `mark` of the journal, under one mask."""

    __slots__ = ("mark", "mask", "values")

    def __init__(self, mask: BoolArray, values: IntArray, mark: int) -> None:
        self.mask = mask
        self.values = values
        self.mark = mark


class _KeptScores:
    """Scores of one template by plugins that score by row, summed up, but for `stale` rows right up to
    `mark` of the journal."""

    __slots__ = ("mark", "stale", "values")

    def __init__(self, n_rows: int, mark: int) -> None:
        self.values: FloatArray = np.zeros(n_rows, dtype=np.float64)
        self.stale: BoolArray = np.ones(n_rows, dtype=np.bool_)
        self.mark = mark


class Profile:
    """The plugins of one schedulerName, by extension point, in the order of the configuration."""

    def __init__(self, scheduler_name: str, points: Points) -> None:
        self.scheduler_name = scheduler_name
        self.points = points
        self.queue_sort = points.queue_sort
        self.pre_enqueue = points.pre_enqueue
        self.pre_filter = points.pre_filter
        self.capacities = points.capacities
        self.post_filters = points.post_filters
        self.scores = points.scores
        self.reserves = points.reserves
        self.permits = points.permits
        self.pre_binds = points.pre_binds
        self.binds = points.binds
        self.post_binds = points.post_binds
        self.filters, self._by_cycle, self._seeing = _by_constancy(points)
        pre_scored = {plugin.name for plugin in points.pre_scores}
        self._by_row = tuple(
            one
            for one in points.scores
            if getattr(one[0], "score_by_row", False)
            and one[0].name not in pre_scored
            and not hasattr(one[0], "normalize")
        )
        self._not_by_row = tuple(one for one in points.scores if one not in self._by_row)
        self._pre_scores = points.pre_scores
        self._by_name = points.plugins()
        self._normalizers: dict[str, Callable[..., FloatArray]] = {
            plugin.name: plugin.normalize for plugin, _ in points.scores if hasattr(plugin, "normalize")
        }
        self._following = tuple(p for p in self._by_name.values() if isinstance(p, FollowingPlugin))
        self._signers = tuple(p for p in self._by_name.values() if isinstance(p, PodSigningPlugin))
        self.names_devices = DEVICES in self._by_name
        """Without that plugin devices are counts: no pod is given IDs, and none may ask for more."""
        self._filtering = frozenset(
            [plugin.name for plugin in points.filters] + [plugin.name for plugin in points.capacities]
        )
        self._masks: dict[int, tuple[int, BoolArray]] = {}
        self._capacities: dict[int, _Kept] = {}
        self._scores: dict[int, _KeptScores] = {}

    @property
    def accounts(self) -> tuple[Account, ...]:
        """The books that its plugins keep (core.accounts)."""
        return tuple(plugin.account for plugin in self._by_name.values() if hasattr(plugin, "account"))

    @property
    def signs(self) -> bool:
        """Whether any of its plugins reads a pod's metadata."""
        return bool(self._signers)

    def sign(self, pod: Pod) -> Hashable:
        """What its plugins read of the pod's metadata; Unsigned when one of them cannot say."""
        try:
            signed = tuple(guarded(one.name, "sign", one.sign, pod) for one in self._signers)
            for plugin, own in zip(self._signers, signed, strict=True):
                guarded(plugin.name, "sign", hash, own)
        except PluginError as error:
            return Unsigned(str(error))
        return signed

    def _ask(self, plugin: str, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Every call of a plugin but PreEnqueue's, which is made for every pod."""
        return guarded(plugin, point, call, *args, **kwargs)

    @property
    def plugins(self) -> Iterable[Plugin]:
        """Each once, whatever points it serves."""
        return self._by_name.values()

    def refuses(self, template: PodTemplate) -> str:
        """Why pods of the template cannot be placed by this profile at all; "" when they can."""
        if template.problem or not template.needs:
            return template.problem
        for plugin, wish in template.needs:
            if plugin not in self._filtering:
                return f"{wish}: nobody sees to that, the filter {plugin} is not enabled in this profile"
        return ""

    def run_pre_enqueue(self, pod: Pod) -> Status:
        """The first "no" gates the pod."""
        for plugin in self.pre_enqueue:
            try:  # what guarded does, without its call: this is asked for every pod
                status = plugin.pre_enqueue(pod)
            except PluginError:
                raise
            except Exception as error:
                raise blamed(plugin.name, "PreEnqueue", error) from error
            if status is not SUCCESS and not status.is_success:
                return status
        return SUCCESS

    def run_pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        """The first "no" ends it; who skips, and which nodes are left, is noted in `state`."""
        for plugin in self.pre_filter:
            answer = self._ask(plugin.name, "PreFilter", plugin.pre_filter, state, template, view)
            if answer is SKIP:
                state.skipped |= {plugin.name}
            elif answer is SUCCESS:
                continue
            elif isinstance(answer, NodeSubset):
                self._narrow(plugin.name, state, answer, view)
            else:
                status = checked_status(plugin.name, "PreFilter", answer, _NO_OR_SKIP)
                if status.code is Code.SKIP:
                    state.skipped |= {plugin.name}
                elif not status.is_success:
                    return status
        return SUCCESS

    def _narrow(self, plugin: str, state: CycleState, answer: NodeSubset, view: ClusterView) -> None:
        check_shape(plugin, "PreFilter", answer.mask, (view.n_rows,), "b")
        state.subset = answer.mask if state.subset is None else state.subset & answer.mask
        state.subset_reasons = (*state.subset_reasons, (plugin, answer))

    def tell_placed(
        self, state: CycleState, template: PodTemplate, other: PodTemplate, row: int, view: ClusterView
    ) -> None:
        """A pod of `other` has come to `row`: what plugins keep in the state of `template` follows."""
        for plugin in self._following:
            if plugin.name not in state.skipped:
                self._ask(plugin.name, "AddPod", plugin.add_pod, state, template, other, row, view)

    def tell_removed(
        self, state: CycleState, template: PodTemplate, other: PodTemplate, row: int, view: ClusterView
    ) -> None:
        """A pod of `other` has left `row`."""
        for plugin in self._following:
            if plugin.name not in state.skipped:
                self._ask(plugin.name, "RemovePod", plugin.remove_pod, state, template, other, row, view)

    def feasible(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray:
        """The masks of what nodes are by themselves, kept per template until a node changes: bool[n_rows]."""
        found = self._masks.get(template.serial)
        if found is not None and found[0] == view.static_revision and len(found[1]) == view.n_rows:
            return found[1]
        mask = view.live.copy()
        for plugin in self.filters:
            own = self._mask(plugin, state, template, view)
            if own is not None:
                mask &= own
        if len(self._masks) > _n_kept(view.n_rows):
            self._masks.clear()
        self._masks[template.serial] = (view.static_revision, mask)
        return mask

    def admits(self, template: PodTemplate, view: ClusterView, row: int) -> bool:
        """Whether a node's own properties (not its room) still let the template in."""
        return bool(self.feasible(CycleState(), template, view)[row])

    def sees_pods(self, state: CycleState) -> bool:
        """Whether a Filter that depends on where pods are has a say: then members are placed one by one."""
        return bool(self._seeing) and any(plugin.name not in state.skipped for plugin in self._seeing)

    def capacity(self, state: CycleState, template: PodTemplate, view: ClusterView) -> IntArray:
        """How many more pods of this template each node takes, infeasible nodes 0. Shape: int64[n_rows].

        Not to be written to: the cache's own answer is kept, and only rows that changed are asked again.
        Where sees_pods, it is how many by room alone on the nodes where one pod may go now.
        """
        room = self.room(state, template, view)
        if state.subset is not None:
            room = np.where(state.subset, room, 0)
        for plugin in (*self._by_cycle, *self._seeing):
            if plugin.name in state.skipped:
                continue
            own = self._mask(plugin, state, template, view)
            if own is not None:
                room = np.where(own, room, 0)
        return room

    def _mask(
        self, plugin: FilterPlugin, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> BoolArray | None:
        own = self._ask(plugin.name, "Filter", plugin.filter, state, template, view)
        if own is not None:
            check_shape(plugin.name, "Filter", own, (view.n_rows,), "b")
        return own

    def room(self, state: CycleState, template: PodTemplate, view: ClusterView) -> IntArray:
        """As capacity, by what nodes are and have left: what cannot grow while a gang is placed."""
        mask = self.feasible(state, template, view)
        kept = self._capacities.get(template.serial)
        mark = view.journal_end
        changed = view.changed_since(kept.mark) if kept is not None and kept.mask is mask else None
        if kept is None or changed is None or len(changed) * 4 > len(mask):
            base = view.base() if isinstance(view, Trial) else view
            kept = _Kept(mask, self._ask_capacity(state, template, base, mask, EVERYWHERE), mark)
            if len(self._capacities) > _n_kept(view.n_rows):
                self._capacities.clear()
            self._capacities[template.serial] = kept
        elif len(changed):
            base = view.base() if isinstance(view, Trial) else view
            kept.values[changed] = self._ask_capacity(state, template, base, mask, changed)
            kept.mark = mark
        if isinstance(view, Trial) and view.touched:
            mine = kept.values.copy()
            touched = np.fromiter(view.touched, dtype=np.int64)
            mine[touched] = self._ask_capacity(state, template, view, mask, touched)
            return mine
        return kept.values

    def _ask_capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView, mask: BoolArray, rows: Rows
    ) -> IntArray:
        feasible = mask[rows]
        total: IntArray | None = None
        for plugin in self.capacities:
            own = self._ask(plugin.name, "Filter", plugin.capacity, state, template, view, rows)
            if own is not None:
                check_shape(plugin.name, "Filter", own, feasible.shape, "iu")
                total = own if total is None else np.minimum(total, own)
        if total is None:
            total = np.full(feasible.shape, NO_LIMIT, dtype=np.int64)
        return np.where(feasible, total, 0)

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """Weighted sum of all Score plugins for `rows`; None when none has anything to say.

        PreScore is asked first, each time: what it may skip can depend on the rows.
        """
        skipped = self._run_pre_score(state, template, view, rows) if self._pre_scores else frozenset()
        if not self._by_row or len(rows) <= _FEW_ROWS:
            return self._ask_scores(self.scores, state, template, view, rows, skipped)
        kept = self._kept_scores(state, template, view, rows)
        others = self._ask_scores(self._not_by_row, state, template, view, rows, skipped)
        return kept if others is None else kept + others

    def _run_pre_score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> frozenset[str]:
        """Who skips. A "no" here is a fault of the plugin: the nodes will do, or there were none."""
        skipped: frozenset[str] = frozenset()
        for plugin in self._pre_scores:
            answer = self._ask(plugin.name, "PreScore", plugin.pre_score, state, template, view, rows)
            if checked_status(plugin.name, "PreScore", answer, _GO_OR_SKIP).code is Code.SKIP:
                skipped |= {plugin.name}
        return skipped

    def _kept_scores(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray:
        """Sums of what plugins that score by row say, kept as the cache has the rows."""
        kept = self._scores.get(template.serial)
        mark = view.journal_end
        changed = view.changed_since(kept.mark) if kept is not None else None
        if kept is None or changed is None or len(kept.values) != view.n_rows:
            if len(self._scores) > _n_kept(view.n_rows):
                self._scores.clear()
            kept = self._scores[template.serial] = _KeptScores(view.n_rows, mark)
        else:
            kept.stale[changed] = True
            kept.mark = mark
        stale = kept.stale[rows]
        if stale.any():
            # Rows that filled up since are not among those asked about, and are not scored for nothing.
            asked = rows[stale]
            base = view.base() if isinstance(view, Trial) else view
            values = self._ask_scores(self._by_row, state, template, base, asked)
            kept.values[asked] = 0.0 if values is None else values
            kept.stale[asked] = False
        answer: FloatArray = kept.values[rows]
        if isinstance(view, Trial) and view.touched:
            at = np.flatnonzero(np.isin(rows, np.fromiter(view.touched, dtype=np.int64)))
            if len(at):
                own = self._ask_scores(self._by_row, state, template, view, rows[at])
                answer[at] = 0.0 if own is None else own
        return answer

    def _ask_scores(
        self,
        plugins: Iterable[tuple[ScorePlugin, float]],
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        skipped: frozenset[str] = frozenset(),
    ) -> FloatArray | None:
        total: FloatArray | None = None
        for plugin, weight in plugins:
            if plugin.name in skipped:
                continue
            own = self._ask_score(plugin, state, template, view, rows)
            if own is not None:
                total = own * weight if total is None else total + own * weight
        return total

    def _ask_score(
        self, plugin: ScorePlugin, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        own = self._ask(plugin.name, "Score", plugin.score, state, template, view, rows)
        if own is None:
            return None
        check_shape(plugin.name, "Score", own, rows.shape, "f")
        if plugin.name in self._normalizers:
            normalize = self._normalizers[plugin.name]
            own = self._ask(plugin.name, "NormalizeScore", normalize, state, template, own)
            check_shape(plugin.name, "NormalizeScore", own, rows.shape, "f")
        if len(own) and not (own.min() >= 0.0 and own.max() <= MAX_SCORE):  # NaN fails both
            raise PluginError(plugin.name, "Score", f"a score is not within 0..{MAX_SCORE:.0f}")
        return own

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> list[tuple[str, str, BoolArray]]:
        """Why nodes are out: (plugin, reason, rows), each plugin only for rows that came as far as it."""
        left = view.live.copy()
        found: list[tuple[str, str, BoolArray]] = []
        for name, narrowed in state.subset_reasons:
            mine = left & ~narrowed.mask
            if mine.any():
                found.append((name, narrowed.reason, mine))
                left &= narrowed.mask
        staged: list[FilterPlugin | CapacityPlugin] = [*self.filters, *self.capacities]
        staged += [one for one in (*self._by_cycle, *self._seeing) if one.name not in state.skipped]
        for plugin in staged:
            said = self._ask(plugin.name, "Filter", plugin.reasons, state, template, view)
            out = np.zeros(view.n_rows, dtype=np.bool_)
            for reason, rows in said:
                mine = rows & left
                if mine.any():
                    found.append((plugin.name, reason, mine))
                    out |= mine
            left &= ~out
        return found

    def run_reserve(self, state: CycleState, group: Group, placements: Sequence[Placement]) -> Status | None:
        """The first "no", if any; `placements` are of one template, whose cycle left `state`."""
        for plugin in self.reserves:
            answer = self._ask(plugin.name, "Reserve", plugin.reserve, state, group, placements)
            status = checked_status(plugin.name, "Reserve", answer, _NO)
            if not status.is_success:
                return status
        return None

    def ask_permit(self, plugin: PermitPlugin, group: Group, siblings: Mapping[str, Group]) -> Status:
        """One plugin that answers at once."""
        answer = self._ask(plugin.name, "Permit", plugin.permit, group, siblings)
        return checked_status(plugin.name, "Permit", answer, _NO_OR_WAIT)

    def run_pre_bind_pre_flight(self, template: PodTemplate) -> tuple[str, ...]:
        """The PreBind plugins that have something to do for pods of this template, in their order."""
        wanted = []
        for plugin in self.pre_binds:
            look = getattr(plugin, "pre_bind_pre_flight", None)
            if look is not None:
                answer = self._ask(plugin.name, "PreBindPreFlight", look, template)
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
        """Whether one of the plugins that said no may say yes after this change."""
        for name, template in rejected_by:
            plugin = self._by_name.get(name)
            if not isinstance(plugin, CuringPlugin):
                return True
            if change.what & plugin.cured_by and plugin.cures(change, template, view):
                return True
        return False


def _n_kept(n_rows: int) -> int:
    return max(8, _MAX_KEPT_BYTES // (8 * max(n_rows, 1)))


def _by_constancy(
    points: Points,
) -> tuple[tuple[FilterPlugin, ...], tuple[FilterPlugin, ...], tuple[FilterPlugin, ...]]:
    """Filters whose mask is kept until a node changes; those that a PreFilter tells something, which are
    asked every time; and those that see pods."""
    fixed: list[FilterPlugin] = []
    by_cycle: list[FilterPlugin] = []
    seeing: list[FilterPlugin] = []
    asked_before = {plugin.name for plugin in points.pre_filter}
    for plugin in points.filters:
        if getattr(plugin, "sees_pods", False):
            seeing.append(plugin)
        else:
            (by_cycle if plugin.name in asked_before else fixed).append(plugin)
    return tuple(fixed), tuple(by_cycle), tuple(seeing)

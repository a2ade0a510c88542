"""PodTopologySpread: spreads pods of a kind evenly over racks, zones or nodes, by their constraints.

Filter enforces required constraints (DoNotSchedule), Score the preferred ones (ScheduleAnyway). Pods without
constraints get the profile's; by default (`System`) these prefer to spread pods that the same services and
controllers select over nodes and zones. Gangs are packed regardless: only constraints in the pod itself have
its gang's members placed one at a time by score. Source: kube-scheduler 1.37
`plugins/podtopologyspread/{filtering,scoring,common,plugin}.go`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np

from gangsched.core.cache.nodes.table import CodeArray
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.cache.view.pods import PodQueries
from gangsched.core.framework.interface import (
    MAX_SCORE,
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    FloatArray,
    IntArray,
    Status,
)
from gangsched.core.types.templates.per_template import PerTemplate
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.plugins.neighbours import selecting_objects
from gangsched.plugins.neighbours.domains import at_nodes, domain_totals, domains_present
from gangsched.plugins.neighbours.spread_constraints import (
    HOSTNAME,
    MAY,
    MUST,
    SYSTEM_DEFAULTS,
    Args,
    Constraint,
    compiled,
)
from gangsched.plugins.nodes.node_affinity import match_pod
from gangsched.plugins.nodes.taint_toleration import tolerated

REASON = "node(s) didn't match pod topology spread constraints"
REASON_LABEL = f"{REASON} (missing required label)"
# Cached per template; cleared all at once, since they are recomputed in microseconds.
_MAX_REMEMBERED = 2000

_Constraints = tuple[Constraint, ...]


class PodTopologySpread:
    """Filter on required constraints, Score by preferred ones."""

    name = "PodTopologySpread"
    sees_pods: ClassVar[bool] = True
    signs_owners: ClassVar[bool] = True
    cured_by = (
        Change.POD_ADDED
        | Change.POD_LABELS
        | Change.ROOM_FREED
        | Change.NODE_ADDED
        | Change.NODE_REMOVED
        | Change.NODE_LABELS
        | Change.NODE_TAINTS
        | Change.OBJECT
    )

    def __init__(self, args: Args | None = None) -> None:
        args = args or Args()
        self._is_system = args.defaulting_type == "System"
        self._defaults = SYSTEM_DEFAULTS if self._is_system else args.default_constraints or ()
        self.signs = bool(self._defaults)
        self.watches: tuple[str, ...] = selecting_objects.WATCHES if self._defaults else ()
        self._default_actions = {one.when_unsatisfiable for one in self._defaults}
        self._constraints: PerTemplate[tuple[int, Hashable, dict[str, _Constraints]]] = PerTemplate()
        self._present: dict[Constraint, tuple[BoolArray, int, IntArray]] = {}
        self._eligible: dict[tuple[int, str], tuple[int, dict[Constraint, BoolArray]]] = {}

    def sign(self, pod: Pod) -> Hashable:
        return () if pod.spec.topology_spread_constraints else selecting_objects.sign(pod)

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ObjectQueries) -> Status:
        return SUCCESS if self._of(template, view, MUST) else SKIP

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        return view.kept((self, template.serial), lambda: _Even(self._tallies(template, view))).mask()

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        """Gives a node only the first constraint that excludes the pod."""
        found: list[tuple[str, BoolArray]] = []
        left = np.ones(view.n_rows, dtype=np.bool_)
        for tally in self._tallies(template, view):
            has_label = tally.codes >= 0
            found += [(REASON_LABEL, left & ~has_label), (REASON, left & has_label & ~tally.holds)]
            left &= tally.holds
        return found

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """100 for the rows whose domains have the fewest pods of the kind; 0 for rows that lack a label."""
        constraints = self._of(template, view, MAY)
        if not constraints:
            return None
        needs_all = bool(template.spec.topology_spread_constraints) or not self._is_system
        labels = [view.label(one.topology_key) for one in constraints]
        counts_here = np.ones(len(rows), dtype=np.bool_)
        if needs_all:
            for codes, _ in labels:
                counts_here &= codes[rows] >= 0
            if not counts_here.any():
                return np.zeros(len(rows), dtype=np.float64)
        asked = rows[counts_here]
        raw = np.zeros(len(rows), dtype=np.float64)
        eligible = self._eligible_of(template, view, MAY, needs_all=needs_all)
        for one, (codes, values) in zip(constraints, labels, strict=True):
            here = codes[rows]
            counts = _counts(one, view)
            if one.topology_key == HOSTNAME:
                n_domains, near = len(asked), counts[rows]
            else:
                # Nodes without the label count as one more domain, as in kube-scheduler.
                n_domains = len(np.unique(codes[asked]))
                near = at_nodes(codes, domain_totals(codes, len(values), counts * eligible[one]))[rows]
            raw += np.where(here >= 0, near * np.log(n_domains + 2) + (one.max_skew - 1), 0.0)
        return _normalised(np.floor(raw + 0.5).astype(np.int64), counts_here)

    def is_stated(self, template: PodTemplate, view: ClusterView) -> bool:
        """Whether the pod has its own preferred constraint; the profile's do not count."""
        own = template.spec.topology_spread_constraints
        return bool(own) and any(one.when_unsatisfiable == MAY for one in own or ())

    def topology_keys(self, state: CycleState, template: PodTemplate, view: ObjectQueries) -> Sequence[str]:
        return [one.topology_key for one in self._of(template, view, MUST)]

    def at_most(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        room: IntArray,
        others: Sequence[PodTemplate],
    ) -> int:
        """Bounds all domains through maxSkew by the one with the fewest pods, filled up."""
        most = int(room.sum())
        eligible = self._eligible_of(template, view, MUST, needs_all=True)
        for one in self._of(template, view, MUST):
            codes, values = view.label(one.topology_key)
            nodes = eligible[one]
            is_counted = not (room[~nodes & (codes >= 0)] > 0).any()
            if (
                not one.counts_itself
                or not is_counted
                or any(_is_counted(one, other, view) for other in others)
            ):
                continue
            present = domains_present(codes, len(values), nodes)
            totals = domain_totals(codes, len(values), np.where(nodes, _counts(one, view), 0))
            full = totals + domain_totals(codes, len(values), room)
            is_enough = present.any() and int(np.count_nonzero(present)) >= one.min_domains
            least = int(full[present].min()) if is_enough else 0
            held = np.maximum(np.minimum(full, least + one.max_skew) - totals, 0)
            most = min(most, int(held.sum()))
        return most

    def at_most_together(self, templates: Sequence[PodTemplate], view: ClusterView, room: IntArray) -> int:
        """As at_most, for pods that all state the same constraints, which count all of them."""
        first, *others = templates
        constraints = self._of(first, view, MUST)
        nodes = self._eligible_of(first, view, MUST, needs_all=True)
        for other in others:
            if self._of(other, view, MUST) != constraints:
                return int(room.sum())
            own = self._eligible_of(other, view, MUST, needs_all=True)
            for one in constraints:
                if not _is_counted(one, other, view) or not np.array_equal(nodes[one], own[one]):
                    return int(room.sum())
        return self.at_most(CycleState(), first, view, room, ())

    def spreads(self, template: PodTemplate, members: Sequence[PodTemplate]) -> bool:
        """Whether its own preferred constraints count one of `members`."""
        wire = template.spec.topology_spread_constraints or ()
        terms = [one.term for one in compiled(template, wire, template.spread_selectors, MAY)]
        return any(
            term is not None
            and term.selector is not None
            and member.namespace == template.namespace
            and term.selector.matches(member.labels)
            for term in terms
            for member in members
        )

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ObjectQueries) -> bool:
        if template is None:
            return True
        if change.what is Change.OBJECT:
            return change.kind in self.watches
        if change.pod is None:
            return True  # a node, or several changes reported as one
        if change.pod.metadata.namespace != template.namespace:
            return False
        if change.what is Change.POD_LABELS:
            return True  # its previous labels are not known
        labels = change.pod.metadata.labels or {}
        terms = [one.term for one in self._of(template, view, MUST) if one.term is not None]
        return any(term.selector is not None and term.selector.matches(labels) for term in terms)

    def _of(self, template: PodTemplate, view: ObjectQueries, action: str) -> _Constraints:
        """Returns the template's constraints of one kind; the profile's if it has none of any kind."""
        own = template.spec.topology_spread_constraints
        if not own and action not in self._default_actions:
            return ()
        known = self._constraints.get(template)
        if known is None or (not own and known[0] != view.n_object_changes):
            revision = () if own else selecting_objects.revision(view)
            made = known[2] if known is not None and known[1] == revision else self._made(template, view)
            known = self._constraints.put(template, (view.n_object_changes, revision, made))
        return known[2][action]

    def _made(self, template: PodTemplate, view: ObjectQueries) -> dict[str, _Constraints]:
        own = template.spec.topology_spread_constraints
        if own:
            return {
                action: compiled(template, own, template.spread_selectors, action) for action in (MUST, MAY)
            }
        selector = selecting_objects.selector_for(template, view)
        if not selector.requirements:
            return {MUST: (), MAY: ()}
        selectors = [selector] * len(self._defaults)
        return {action: compiled(template, self._defaults, selectors, action) for action in (MUST, MAY)}

    def _tallies(self, template: PodTemplate, view: ClusterView) -> list[_Tally]:
        """Returns a tally per required constraint, up to the first whose label no node has: it excludes
        all. Where it counts pods that are yet to come, one more without them."""
        eligible = self._eligible_of(template, view, MUST, needs_all=True)
        tallies = []
        for one in self._of(template, view, MUST):
            codes, values = view.label(one.topology_key)
            nodes = eligible[one]
            present = self._present_of(one, nodes, codes, len(values))
            for counts in (_counts(one, view), view.matching_now(one.term) if one.term else None):
                if counts is not None:
                    totals = domain_totals(codes, len(values), np.where(nodes, counts, 0))
                    tallies.append(_Tally(one, nodes, codes, totals, present))
            if not values:
                break
        return tallies

    def _present_of(self, one: Constraint, nodes: BoolArray, codes: CodeArray, n_domains: int) -> IntArray:
        """Returns the domains with at least one of the nodes; cached by the identity of the array."""
        known = self._present.get(one)
        if known is None or known[0] is not nodes or known[1] != n_domains:
            if len(self._present) >= _MAX_REMEMBERED:
                self._present.clear()
            found = np.flatnonzero(domains_present(codes, n_domains, nodes))
            known = self._present[one] = (nodes, n_domains, found)
        return known[2]

    def _eligible_of(
        self, template: PodTemplate, view: ClusterView, action: str, *, needs_all: bool
    ) -> dict[Constraint, BoolArray]:
        """bool[n_rows] by constraint: the nodes whose pods count. Cached until a node changes."""
        constraints = self._of(template, view, action)
        key = (template.serial, action)
        known = self._eligible.get(key)
        if known is None or known[0] != view.static_revision:
            if len(self._eligible) >= _MAX_REMEMBERED:
                self._eligible.clear()
            known = self._eligible[key] = (view.static_revision, {})
        found = known[1]
        if any(one not in found or len(found[one]) != view.n_rows for one in constraints):
            found.update(_eligible(constraints, template, view, needs_all=needs_all))
        return found


class _Tally:
    """The counts of one constraint, and where one more pod satisfies it; updated as pods are added.

    nodes: bool[n_rows], those whose pods count; codes: int32[n_rows], the domains; totals: int64[n_domains];
    present: the domains that have one of the nodes; holds: bool[n_rows], False where the label is missing.
    """

    __slots__ = ("_is_counted", "_least", "_n_least", "codes", "holds", "nodes", "one", "present", "totals")

    def __init__(
        self, one: Constraint, nodes: BoolArray, codes: CodeArray, totals: IntArray, present: IntArray
    ) -> None:
        self.one = one
        self.nodes = nodes
        self.codes = codes
        self.totals = totals
        self.present = present
        self._is_counted: dict[int, bool] = {}
        self._judge()

    def _judge(self) -> None:
        """Computes `holds`: the domain with the fewest pods sets the limit for all of them."""
        of_present = self.totals[self.present]
        is_enough = len(of_present) > 0 and len(of_present) >= self.one.min_domains
        self._least = int(of_present.min()) if is_enough else 0
        # How many domains have the fewest; -1: with too few domains no pod raises the minimum.
        self._n_least = int(np.count_nonzero(of_present == self._least)) if is_enough else -1
        # One entry more than there are domains: code -1, a missing label, indexes the last one.
        self.holds: BoolArray = np.append(self.totals <= self._most, False)[self.codes]

    @property
    def _most(self) -> int:
        """The most pods a domain may have before one more is added."""
        return self._least + self.one.max_skew - int(self.one.counts_itself)

    def add(self, view: PodQueries, row: int, template: PodTemplate, count: int) -> None:
        """See Following.add."""
        is_counted = self._is_counted.get(template.serial)
        if is_counted is None:
            is_counted = self._is_counted[template.serial] = _is_counted(self.one, template, view)
        code = int(self.codes[row])
        if not is_counted or code < 0 or not self.nodes[row]:
            return
        before = int(self.totals[code])
        self.totals[code] = before + count
        # A counting node's domain is present. When the last domain with the fewest gains a pod, the limit
        # rises for all.
        self._n_least -= before == self._least
        if not self._n_least:
            self._judge()
        elif before + count > self._most:
            self.holds &= self.codes != code


class _Even:
    """Where all required constraints hold (ClusterView.kept)."""

    __slots__ = ("_tallies",)

    def __init__(self, tallies: Sequence[_Tally]) -> None:
        self._tallies = tallies

    def add(self, view: ClusterView, row: int, template: PodTemplate, count: int) -> None:
        for tally in self._tallies:
            tally.add(view, row, template, count)

    def mask(self) -> BoolArray | None:
        masks = [tally.holds for tally in self._tallies]
        if len(masks) < 2:
            return masks[0].copy() if masks else None
        mask: BoolArray = np.logical_and.reduce(masks)
        return mask


def _eligible(
    constraints: _Constraints, template: PodTemplate, view: ClusterView, *, needs_all: bool
) -> dict[Constraint, BoolArray]:
    """Computes which nodes' pods count. needs_all: a node that lacks any of the labels counts for none.
    Constraints of one policy share an array: a pod may have thousands of constraints."""
    having = view.live.copy()
    for one in constraints if needs_all else ():
        having &= view.label(one.topology_key)[0] >= 0
    by_policy: dict[tuple[bool, bool], BoolArray] = {}
    for policy in {(one.honors_affinity, one.honors_taints): None for one in constraints}:
        nodes = by_policy[policy] = having.copy()
        for honors, mask in zip(policy, (match_pod, tolerated), strict=True):
            own = mask(template, view) if honors else None
            if own is not None:
                nodes &= own
    return {one: by_policy[one.honors_affinity, one.honors_taints] for one in constraints}


def _is_counted(one: Constraint, template: PodTemplate, view: PodQueries) -> bool:
    return one.term is not None and view.means(one.term, template)


def _counts(one: Constraint, view: PodQueries) -> IntArray:
    return np.zeros(view.n_rows, dtype=np.int64) if one.term is None else view.matching(one.term)


def _normalised(raw: IntArray, counts_here: BoolArray) -> FloatArray:
    """Whole numbers; the fewest pods score highest. Rows that do not count score 0."""
    asked = raw[counts_here]
    most = int(asked.max(initial=0))
    if not most:
        return np.where(counts_here, MAX_SCORE, 0.0)
    least = int(asked.min())
    scores = (int(MAX_SCORE) * (most + least - raw) // most).astype(np.float64)
    answer: FloatArray = np.where(counts_here, scores, 0.0)
    return answer


__all__ = ["Args", "PodTopologySpread"]

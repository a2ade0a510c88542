"""InterPodAffinity: places a pod near or away from other pods, by its own terms and theirs.

Counts come from the view's index of pods, which is updated as pods come and go; a query costs a few passes
over the nodes, whatever the number of pods. A pod without terms that no other pod's terms match is skipped.
Source: kube-scheduler 1.37 `plugins/interpodaffinity/{plugin,filtering,scoring}.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from gangsched.core.cache.trial import ClusterView
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
from gangsched.core.types.arrays import NO_LIMIT
from gangsched.core.types.templates.affinity_terms import AffinityKind, AffinityTerm, affinity_terms_of
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.selectors import PodTerm
from gangsched.plugins.neighbours.affinity_domains import (
    Welcome,
    all_of,
    mask_of,
    near,
    not_against,
    not_away,
)
from gangsched.plugins.neighbours.domains import at_nodes, domain_totals, domains_present, spread_out

REASON = "node(s) didn't match pod affinity rules"
REASON_ANTI = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
_MAX_WEIGHT = 100


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """InterPodAffinityArgs. Raises: ValueError (a weight out of range)."""

    hard_pod_affinity_weight: Annotated[
        int,
        Meta(description="The weight of required affinity as a preference of the other side."),
    ] = 1
    ignore_preferred_terms_of_existing_pods: Annotated[
        bool,
        Meta(description="Count only the new pod's preferences."),
    ] = False

    def __post_init__(self) -> None:
        if not 0 <= self.hard_pod_affinity_weight <= _MAX_WEIGHT:
            raise ValueError(
                f"hardPodAffinityWeight: {self.hard_pod_affinity_weight} is not within 0..{_MAX_WEIGHT}"
            )


class InterPodAffinity:
    """Filter on required terms of the pod and against it; Score by preferred terms of both sides."""

    name = "InterPodAffinity"
    sees_pods: ClassVar[bool] = True
    watches: ClassVar[tuple[str, ...]] = ("namespaces",)
    cured_by = (
        Change.POD_ADDED
        | Change.POD_LABELS
        | Change.ROOM_FREED
        | Change.NODE_ADDED
        | Change.NODE_REMOVED
        | Change.NODE_LABELS
        | Change.OBJECT
    )

    def __init__(self, args: Args | None = None) -> None:
        self._args = args or Args()

    def pre_filter(self, state: CycleState, template: PodTemplate, view: PodQueries) -> Status:
        """Counts terms of siblings although they are not placed yet: they may be placed before this pod."""
        terms = view.terms_about(template)
        if terms and any(kind is AffinityKind.ANTI_REQUIRED for kind, _ in terms):
            return SUCCESS
        return SUCCESS if template.affinity_terms and _required(template) else SKIP

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        return view.kept((self, template.serial), lambda: Welcome(template, view)).mask()

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        """Gives a node only the first reason that applies, as kube-scheduler does."""
        found: list[tuple[str, BoolArray]] = []
        left = np.ones(view.n_rows, dtype=np.bool_)
        for reason, mask in (
            (REASON, mask_of(near(template, view))),
            (REASON_ANTI, not_away(template, view)),
            (REASON_EXISTING, not_against(template, view)),
        ):
            if mask is not None:
                found.append((reason, left & ~mask))
                left &= mask
        return found

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """100 for the best of `rows`, 0 for the worst; None when no term gives a preference."""
        if not template.affinity_terms and not view.terms_about(template):
            return None
        sums = self._wanted(template, view)
        if not sums:
            return None
        total = np.zeros(len(rows), dtype=np.int64)
        for key, counts in sums.items():
            codes, values = view.label(key)
            total += at_nodes(codes[rows], domain_totals(codes, len(values), counts))
        least, most = int(total.min()), int(total.max())
        if most == least:
            return None
        # In this order of operations, so that truncation gives kube-scheduler's result.
        scores: FloatArray = np.floor(MAX_SCORE * ((total - least) / float(most - least)))
        return scores

    def is_stated(self, template: PodTemplate, view: ClusterView) -> bool:
        """Whether the pod has its own preferred terms."""
        terms = template.affinity_terms
        return bool(terms) and any(kind in _SOFT for kind, _ in terms)

    def topology_keys(self, state: CycleState, template: PodTemplate, view: PodQueries) -> Sequence[str]:
        own = {term.topology_key for kind, term in template.affinity_terms if kind in _HARD}
        against = view.carried_against(template)
        return sorted(
            own | {term.topology_key for (kind, term), _ in against if kind is AffinityKind.ANTI_REQUIRED}
        )

    def at_most(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        room: IntArray,
        others: Sequence[PodTemplate],
    ) -> int:
        """One per domain if its pods repel each other. If they attract each other and `others` do not match:
        the capacity of the domains that they are in, or of the roomiest."""
        most = int(room.sum())
        for kind, term in template.affinity_terms:
            if kind is AffinityKind.ANTI_REQUIRED and view.means(term.term, template):
                codes, values = view.label(term.topology_key)
                clear = at_nodes(codes, domain_totals(codes, len(values), view.matching(term.term))) == 0
                free = np.where(clear, room, 0)
                n_domains = int(domains_present(codes, len(values), free > 0).sum())
                most = min(most, n_domains + int(free[codes < 0].sum()))
        meant = all_of(template)
        if meant is None or any(view.means(meant, other) for other in others):
            return most
        welcome = mask_of(near(template, view))
        if welcome is not None:
            most = min(most, int(np.where(welcome, room, 0).sum()))
        if not view.matching(meant).any():
            for key in {
                term.topology_key for kind, term in template.affinity_terms if kind is AffinityKind.REQUIRED
            }:
                codes, values = view.label(key)
                most = min(most, int(domain_totals(codes, len(values), room).max(initial=0)))
        return most

    def together(self, templates: Sequence[PodTemplate], view: ClusterView) -> IntArray | None:
        """Bounds a node by 1 if a term makes all of them repel each other in its domain, by 0 if one is
        there."""
        total: IntArray | None = None
        for kind, term in set.intersection(*(set(one.affinity_terms) for one in templates)):
            if kind is not AffinityKind.ANTI_REQUIRED:
                continue
            if all(view.means(term.term, one) for one in templates):
                codes, values = view.label(term.topology_key)
                there = at_nodes(codes, domain_totals(codes, len(values), view.matching(term.term)))
                own = np.where(codes >= 0, np.where(there > 0, 0, 1), NO_LIMIT)
                total = own if total is None else np.minimum(total, own)
        return total

    def at_most_together(self, templates: Sequence[PodTemplate], view: ClusterView, room: IntArray) -> int:
        """As at_most, for pods with the same required terms, each of which matches all of them or none."""
        first, *others = templates
        terms = [one for one in first.affinity_terms if one[0] in _HARD]
        meant = [term.term for _, term in terms]
        if (everything := all_of(first)) is not None:
            meant.append(everything)
        for other in others:
            if [one for one in other.affinity_terms if one[0] in _HARD] != terms:
                return int(room.sum())
            if any(view.means(one, other) != view.means(one, first) for one in meant):
                return int(room.sum())
        return self.at_most(CycleState(), first, view, room, ())

    def spreads(self, template: PodTemplate, members: Sequence[PodTemplate]) -> bool:
        """Whether its pods prefer to be away from one of `members`."""
        away = [term for kind, term in template.affinity_terms if kind is AffinityKind.ANTI_PREFERRED]
        return any(_may_mean(one.term, member) for one in away for member in members)

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: PodQueries) -> bool:
        if template is None:
            return True
        if change.what is Change.OBJECT:
            return change.kind in self.watches
        if change.pod is None:
            return True  # a node, or several changes reported as one
        if change.what is Change.POD_LABELS:
            return True  # its previous labels are not known
        meant = all_of(template)
        if meant is not None and view.means_pod(meant, change.pod):
            return True
        return change.what is Change.ROOM_FREED and _frees(change.pod, template, view)

    def _wanted(self, template: PodTemplate, view: PodQueries) -> dict[str, IntArray]:
        """topology key -> int64[n_rows]: each node's summed weights, for or against the template."""
        sums: dict[str, IntArray] = {}

        def add(term: AffinityTerm, counts: IntArray, weight: int) -> None:
            before = sums.get(term.topology_key)
            sums[term.topology_key] = counts * weight if before is None else before + counts * weight

        has_preference = False
        for kind, term in template.affinity_terms:
            if kind is AffinityKind.PREFERRED or kind is AffinityKind.ANTI_PREFERRED:
                has_preference = True
                add(
                    term,
                    view.matching(term.term),
                    term.weight if kind is AffinityKind.PREFERRED else -term.weight,
                )
        if not has_preference and self._args.ignore_preferred_terms_of_existing_pods:
            return {}
        existing: dict[str, dict[int, int]] = {}
        for (kind, term), rows in view.carried_against(template):
            weight = {
                AffinityKind.REQUIRED: self._args.hard_pod_affinity_weight,
                AffinityKind.PREFERRED: term.weight,
                AffinityKind.ANTI_PREFERRED: -term.weight,
                AffinityKind.ANTI_REQUIRED: 0,
            }[kind]
            if weight:
                at = existing.setdefault(term.topology_key, {})
                for row, n in rows.items():
                    at[row] = at.get(row, 0) + n * weight
        for key, by_row in existing.items():
            more = spread_out(by_row, view.n_rows)
            sums[key] = sums[key] + more if key in sums else more
        return sums


_HARD = (AffinityKind.REQUIRED, AffinityKind.ANTI_REQUIRED)
_SOFT = (AffinityKind.PREFERRED, AffinityKind.ANTI_PREFERRED)


def _required(template: PodTemplate) -> bool:
    return any(kind in _HARD for kind, _ in template.affinity_terms)


def _frees(gone: Pod, template: PodTemplate, view: PodQueries) -> bool:
    """Whether the removed pod was one that the template repels, or one that repelled it."""
    away = [term.term for kind, term in template.affinity_terms if kind is AffinityKind.ANTI_REQUIRED]
    if any(view.means_pod(term, gone) for term in away):
        return True
    if gone.spec.affinity is None:
        return False
    terms = [term.term for kind, term in affinity_terms_of(gone) if kind is AffinityKind.ANTI_REQUIRED]
    return any(view.means(term, template) for term in terms)


def _may_mean(term: PodTerm, template: PodTemplate) -> bool:
    """Whether the term may match pods of the template, without looking at labels of namespaces."""
    if term.selector is None:
        return False
    is_chosen = template.namespace in term.namespaces or term.namespace_selector is not None
    return is_chosen and term.selector.matches(template.labels)

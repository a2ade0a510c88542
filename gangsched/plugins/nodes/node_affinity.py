"""NodeAffinity: the pod's nodeSelector and node affinity, and an affinity that the profile adds to every pod.

Source: kube-scheduler `plugins/nodeaffinity/node_affinity.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.framework.interface import (
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    FloatArray,
    IntArray,
)
from gangsched.core.types.templates.per_template import PerTemplate
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import NodeAffinity as AffinityRules
from gangsched.model.objects import NodeSelectorTerm, PreferredSchedulingTerm
from gangsched.model.selectors import unusable
from gangsched.model.text.names import is_label_value, is_qualified_name
from gangsched.plugins.nodes.node_selector import EVERYWHERE, Asked, match_any_term, match_labels

REASON = "node(s) didn't match Pod's node affinity/selector"
REASON_ADDED = "node(s) didn't match scheduler-enforced node affinity"


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """NodeAffinityArgs. Raises: ValueError (an unusable term)."""

    added_affinity: Annotated[
        AffinityRules | None,
        Meta(description="Node affinity that every pod of the profile must match as well."),
    ] = None

    def __post_init__(self) -> None:
        rules = self.added_affinity or AffinityRules()
        required = rules.required_during_scheduling_ignored_during_execution
        if required is not None:
            at = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
            for i, term in enumerate(required.node_selector_terms or ()):
                _check_term(term, f"{at}[{i}]")
        for i, one in enumerate(_preferred(rules)):
            # A term of weight 0 is not validated, as in kube-scheduler.
            if one.weight:
                at = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"
                _check_term(one.preference, f"{at}[{i}].preference")


def _check_term(term: NodeSelectorTerm, path: str) -> None:
    wrong = unusable(term)
    if wrong:
        raise ValueError(f"{path}: {wrong}")
    for i, one in enumerate(term.match_expressions or ()):
        where = f"{path}.matchExpressions[{i}]"
        if not is_qualified_name(one.key):
            raise ValueError(f"{where}.key: {one.key!r} is not a label's key")
        for value in one.values or ():
            if not is_label_value(value):
                raise ValueError(f"{where}.values: {value!r} is not a label's value")


class NodeAffinity:
    """Filter on required terms, Score by the weights of preferred ones."""

    name = "NodeAffinity"
    cured_by = Change.NODE_ADDED | Change.NODE_LABELS
    states_of_nodes: ClassVar[bool] = True
    """What a pod prefers in a node changes only with the node's labels (Scoring.only_of_nodes)."""

    def __init__(self, args: Args | None = None) -> None:
        self._added = (args.added_affinity if args else None) or AffinityRules()
        self._weights: PerTemplate[tuple[int, IntArray]] = PerTemplate()

    def concerns(self, template: PodTemplate) -> bool:
        has_rules = template.spec.affinity is not None and template.spec.affinity.node_affinity is not None
        return has_rules or bool(template.spec.node_selector) or self._added != AffinityRules()

    def filter(self, state: CycleState, template: PodTemplate, view: NodeQueries) -> BoolArray | None:
        own = match_pod(template, view, EVERYWHERE)
        added = _match_required(self._added, view, EVERYWHERE)
        if own is None or added is None:
            return added if own is None else own
        return own & added

    def reasons(
        self, state: CycleState, template: PodTemplate, view: NodeQueries
    ) -> Sequence[tuple[str, BoolArray]]:
        """Checks a node that fails the added affinity no further, as kube-scheduler does."""
        added = _match_required(self._added, view, EVERYWHERE)
        own = match_pod(template, view, EVERYWHERE)
        found: list[tuple[str, BoolArray]] = [] if added is None else [(REASON_ADDED, ~added)]
        if own is not None:
            found.append((REASON, ~own if added is None else ~own & added))
        return found

    def score(
        self, state: CycleState, template: PodTemplate, view: NodeQueries, rows: IntArray
    ) -> FloatArray | None:
        """Sum of the weights of matching terms, 100 for the largest among `rows`; None when that is 0."""
        terms = (*_preferred(self._added), *_preferred(_rules(template)))
        if not terms:
            return None
        counts = self._weights_of(template, terms, view)[rows]
        most = int(counts.max(initial=0))
        if most <= 0:
            return None
        # kube-scheduler's DefaultNormalizeScore: whole numbers, rounded down.
        normalised: FloatArray = (100 * counts // most).astype(np.float64)
        return normalised

    def is_stated(self, template: PodTemplate, view: ClusterView) -> bool:
        """Whether the pod has its own preferred terms."""
        return bool(_preferred(_rules(template)))

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: NodeQueries) -> bool:
        if template is None or change.row < 0:
            return True
        at = slice(change.row, change.row + 1)
        masks = (_match_required(self._added, view, at), match_pod(template, view, at))
        return all(mask is None or bool(mask[0]) for mask in masks)

    def _weights_of(
        self, template: PodTemplate, terms: Sequence[PreferredSchedulingTerm], view: NodeQueries
    ) -> IntArray:
        """int64[n_rows], kept per template until a node changes: gangs ask for it once per member batch."""
        known = self._weights.get(template)
        if known is not None:
            revision, weights = known
            if revision == view.static_revision and len(weights) == view.n_rows:
                return weights
        weights = np.zeros(view.n_rows, dtype=np.int64)
        asked = Asked(view, EVERYWHERE)
        for term in terms:
            weights += term.weight * asked.term(term.preference)
        return self._weights.put(template, (view.static_revision, weights))[1]


def _rules(template: PodTemplate) -> AffinityRules:
    affinity = template.spec.affinity
    return (affinity.node_affinity if affinity else None) or AffinityRules()


def _preferred(rules: AffinityRules) -> Sequence[PreferredSchedulingTerm]:
    return rules.preferred_during_scheduling_ignored_during_execution or ()


def _match_required(rules: AffinityRules, view: NodeQueries, at: slice) -> BoolArray | None:
    required = rules.required_during_scheduling_ignored_during_execution
    return None if required is None else match_any_term(required.node_selector_terms or (), view, at)


def match_pod(template: PodTemplate, view: NodeQueries, at: slice = EVERYWHERE) -> BoolArray | None:
    """Returns nodes that the pod's own nodeSelector and required affinity allow; None: all of them."""
    by_terms = _match_required(_rules(template), view, at)
    if not template.spec.node_selector:
        return by_terms
    by_labels = match_labels(template.spec.node_selector, view, at)
    return by_labels if by_terms is None else by_labels & by_terms

"""SelectorSpread: keeps replicas of a kind apart, two thirds by zone and one third by node.

An older priority function of kube-scheduler, replaced by PodTopologySpread's default constraints. Pods are of
a kind when the same services and controllers select them. Gangs are packed regardless. A pod with its own
topology spread constraints is left to PodTopologySpread. Source: kubernetes 1.22
`plugins/selectorspread/selector_spread.go`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import numpy as np

from gangsched.core.cache.nodes.table import MISSING
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.framework.interface import MAX_SCORE, CycleState, FloatArray, IntArray
from gangsched.core.types.templates.per_template import PerTemplate
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.selectors import PodTerm, Selector
from gangsched.plugins.neighbours import selecting_objects

_ZONE_WEIGHT = 2.0 / 3.0
_ZONE = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")


class SelectorSpread:
    """Score by the number of pods of the kind, on the node and in its zone."""

    name = "SelectorSpread"
    watches: ClassVar[tuple[str, ...]] = selecting_objects.WATCHES
    signs_owners: ClassVar[bool] = True

    def __init__(self) -> None:
        self._selectors: PerTemplate[tuple[tuple[int, ...], Selector]] = PerTemplate()

    def sign(self, pod: Pod) -> Hashable:
        return selecting_objects.sign(pod)

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """100 for no pods of the kind, 0 for the most among `rows`; None when nothing selects the pods."""
        if template.spec.topology_spread_constraints:
            return None
        selector = self._selector(template, view)
        if not selector.requirements:
            return None
        counts = view.matching(PodTerm((template.namespace,), None, selector, skip_leaving=True))[rows]
        scores = _fewest_first(counts)
        zones = _zones(view, rows)
        has_zone = zones != MISSING
        if has_zone.any():
            sums = np.bincount(zones[has_zone], weights=counts[has_zone])
            by_zone = _fewest_first(sums.astype(np.int64))
            mixed = scores * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * by_zone[np.where(has_zone, zones, 0)]
            scores = np.where(has_zone, mixed, scores)
        whole: FloatArray = np.floor(scores)
        return whole

    def _selector(self, template: PodTemplate, view: ObjectQueries) -> Selector:
        revision = selecting_objects.revision(view)
        known = self._selectors.get(template)
        if known is None or known[0] != revision:
            made = selecting_objects.selector_for(template, view)
            known = self._selectors.put(template, (revision, made))
        return known[1]


def _fewest_first(counts: IntArray) -> FloatArray:
    most = int(counts.max(initial=0))
    if not most:
        return np.full(len(counts), MAX_SCORE)
    scores: FloatArray = MAX_SCORE * ((most - counts) / float(most))
    return scores


def _zones(view: NodeQueries, rows: IntArray) -> IntArray:
    """Numbers each pair of region and zone among `rows`; MISSING where a node has neither."""
    zone, region = _label(view, _ZONE)[rows], _label(view, _REGION)[rows]
    pairs = np.stack([zone, region])
    _, numbers = np.unique(pairs, axis=1, return_inverse=True)
    missing = (zone == MISSING) & (region == MISSING)
    answer: IntArray = np.where(missing, MISSING, numbers.reshape(-1)).astype(np.int64)
    return answer


def _label(view: NodeQueries, names: tuple[str, str]) -> IntArray:
    """Returns codes of the label's values, by the first of the two names that a node has."""
    (first, values), (second, others) = view.label(names[0]), view.label(names[1])
    renamed = np.full(len(others) + 1, MISSING, dtype=np.int64)
    for value, code in others.items():
        # A value that only the second name has gets a new number.
        renamed[code] = values.get(value, len(values) + code)
    answer: IntArray = np.where(first != MISSING, first, renamed[second]).astype(np.int64)
    return answer

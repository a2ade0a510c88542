"""TaintToleration: nodes repel pods that do not tolerate their taints.

Taints are compared once per distinct list of taints in the cluster (a taint class), and the results are
mapped to the nodes by their class codes. NodeUnschedulable uses `Tolerations` too.
Sources: kube-scheduler `plugins/tainttoleration/taint_toleration.go`, k8s.io/api `core/v1/toleration.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import ClassVar

import numpy as np

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.framework.interface import (
    MAX_SCORE,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    FloatArray,
    IntArray,
)
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why
from gangsched.core.why.nodes import UntoleratedTaint
from gangsched.model.objects import Taint, Toleration

REASON = "node(s) had untolerated taint(s)"
PREFER = "PreferNoSchedule"
# Number of taints with a reason of their own.
_MAX_NAMED = 8
_HARD = ("NoSchedule", "NoExecute")
# content.IsDecimalInteger: stricter than ParseInt, no leading zeros and no plus sign.
_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}")

Taints = tuple[Taint, ...]


def _int64(text: str) -> int | None:
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


class Tolerations:
    """A pod's tolerations, indexed by taint: it may have thousands, and nodes as many lists of taints.

    An empty effect or key matches all of them. Lt and Gt compare the taint's value with the toleration's
    (KEP-5471, behind a gate): an API server with the gate off admits no pod that uses them.
    """

    __slots__ = ("_above", "_below", "_equal", "_exists")

    def __init__(self, tolerations: Iterable[Toleration] | None) -> None:
        self._exists: set[tuple[str, str]] = set()
        """(key, effect); an empty one matches all."""
        self._equal: set[tuple[str, str, str]] = set()
        """(key, effect, value)."""
        self._below: dict[tuple[str, str], int] = {}
        """The largest limit of Lt; `_above`: the smallest of Gt."""
        self._above: dict[tuple[str, str], int] = {}
        for one in tolerations or ():
            at, limit = (one.key, one.effect), _int64(one.value)
            match one.operator:
                case "" | "Equal":
                    self._equal.add((*at, one.value))
                case "Exists":
                    self._exists.add(at)
                case "Lt" if limit is not None:
                    self._below[at] = max(limit, self._below.get(at, limit))
                case "Gt" if limit is not None:
                    self._above[at] = min(limit, self._above.get(at, limit))

    def accept(self, taint: Taint) -> bool:
        """Whether one of the tolerations accepts the taint."""
        for key in (taint.key, ""):
            for effect in (taint.effect, ""):
                at = (key, effect)
                if at in self._exists or (*at, taint.value) in self._equal or self._compare(at, taint.value):
                    return True
        return False

    def _compare(self, at: tuple[str, str], text: str) -> bool:
        if at not in self._below and at not in self._above:
            return False
        value = _int64(text)
        if value is None:
            return False
        return value < self._below.get(at, value) or value > self._above.get(at, value)


class TaintToleration:
    """Filter on NoSchedule and NoExecute taints; Score prefers fewer untolerated PreferNoSchedule taints."""

    name = "TaintToleration"
    cured_by = Change.NODE_ADDED | Change.NODE_TAINTS
    only_repels: ClassVar[bool] = True
    """Where no node repels the pod, no node is better: the score is None (Scoring.only_repelled)."""

    def __init__(self) -> None:
        self._soft_known: tuple[object, int] = (None, 0)
        self._any_soft = False

    def filter(self, state: CycleState, template: PodTemplate, view: NodeQueries) -> BoolArray | None:
        return tolerated(template, view)

    def reasons(
        self, state: CycleState, template: PodTemplate, view: NodeQueries
    ) -> Sequence[tuple[Why, BoolArray]]:
        """Gives one reason per first untolerated taint of a node; taints beyond the first few share one."""
        mask = self.filter(state, template, view)
        if mask is None:
            return ()
        by_taint: dict[UntoleratedTaint, list[int]] = {}
        own = Tolerations(template.spec.tolerations)
        there = set(view.taint_class[~mask].tolist())  # others were on nodes once
        for taints, code in view.taint_classes.items():
            if code in there and (first := _first_untolerated(own, taints)) is not None:
                more = len(by_taint) >= _MAX_NAMED and first not in by_taint
                by_taint.setdefault(UntoleratedTaint() if more else first, []).append(code)
        found: list[tuple[Why, BoolArray]] = []
        for taint, codes in by_taint.items():
            of_class = np.zeros(len(view.taint_classes), dtype=np.bool_)
            of_class[codes] = True
            found.append((taint, of_class[view.taint_class]))
        return found

    def score(
        self, state: CycleState, template: PodTemplate, view: NodeQueries, rows: IntArray
    ) -> FloatArray | None:
        """100 for no untolerated soft taint, 0 for the most among `rows`; None when no node has any."""
        if not self._has_soft(view):
            return None
        own = Tolerations(template.spec.tolerations)
        counts = _per_class(view, lambda taints: _n_soft(own, taints))[view.taint_class[rows]]
        most = int(counts.max(initial=0))
        if not most:
            return None
        # kube-scheduler's DefaultNormalizeScore, reversed: whole numbers, rounded down before reversing.
        return MAX_SCORE - (100 * counts // most).astype(np.float64)

    def is_stated(self, template: PodTemplate, view: NodeQueries) -> bool:
        """Whether there is a PreferNoSchedule taint at all: the pod's tolerations then state its
        preference."""
        return self._has_soft(view)

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: NodeQueries) -> bool:
        if template is None or change.row < 0:
            return True
        node = view.node(change.row)
        own = Tolerations(template.spec.tolerations)
        return node is not None and _accept(own, tuple(node.spec.taints or ()))

    def _has_soft(self, view: NodeQueries) -> bool:
        """Whether any taint class has a soft taint. Classes are never removed, so only new ones are read."""
        classes = view.taint_classes
        known, n_seen = self._soft_known
        if known is classes and len(classes) == n_seen:
            return self._any_soft
        if known is not classes:
            n_seen, self._any_soft = 0, False
        if len(classes) > n_seen:
            fresh = islice(classes, n_seen, None)
            self._any_soft |= any(taint.effect == PREFER for taints in fresh for taint in taints)
            self._soft_known = (classes, len(classes))
        return self._any_soft


def tolerated(template: PodTemplate, view: NodeQueries) -> BoolArray | None:
    """Returns the nodes whose NoSchedule and NoExecute taints the pod all tolerates; None: all of them."""
    own = Tolerations(template.spec.tolerations)
    accepted = _per_class(view, lambda taints: _accept(own, taints))
    if accepted.all():
        return None
    mask: BoolArray = accepted[view.taint_class] != 0
    return mask


def _per_class(view: NodeQueries, answer: Callable[[Taints], int]) -> IntArray:
    """int64[number of classes], by code; codes follow the order of the mapping."""
    return np.fromiter(map(answer, view.taint_classes), dtype=np.int64, count=len(view.taint_classes))


def _accept(own: Tolerations, taints: Taints) -> bool:
    return all(taint.effect not in _HARD or own.accept(taint) for taint in taints)


def _first_untolerated(own: Tolerations, taints: Taints) -> UntoleratedTaint | None:
    for taint in taints:
        if taint.effect in _HARD and not own.accept(taint):
            return UntoleratedTaint(taint.key, taint.value, taint.effect)
    return None


def _n_soft(own: Tolerations, taints: Taints) -> int:
    return sum(taint.effect == PREFER and not own.accept(taint) for taint in taints)

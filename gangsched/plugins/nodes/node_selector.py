"""Node selector terms over all nodes at once: used by NodeAffinity's filter, score and arguments.

A label is an array of codes, so one requirement is one comparison or one look-up in a table as long as the
label has values. A pod's terms repeat requirements, and Gt and Lt need a label's values as numbers: `Asked`
works each out once. `at` is the slice of rows to evaluate: all of them, or one when a single node changed.
Sources: k8s.io/component-helpers `scheduling/corev1/nodeaffinity`, k8s.io/apimachinery
`pkg/labels/selector.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gangsched.core.cache.nodes.table import MISSING
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.interface import BoolArray, IntArray
from gangsched.model.objects import NodeSelectorTerm, SelectorRequirement
from gangsched.model.selectors import int64, unusable

EVERYWHERE = slice(None)


def match_labels(labels: Mapping[str, str], view: NodeQueries, at: slice) -> BoolArray:
    """Matches a pod's nodeSelector: every label must have the given value."""
    mask = _full(view, at, True)
    for key, wanted in labels.items():
        codes, values = view.label(key)
        # A value that no node has ever had has no code; -2 matches none.
        mask &= codes[at] == values.get(wanted, MISSING - 1)
    return mask


def match_any_term(terms: Iterable[NodeSelectorTerm], view: NodeQueries, at: slice) -> BoolArray:
    """Matches any of the terms; an empty list matches nothing."""
    mask = _full(view, at, False)
    asked = Asked(view, at)
    for term in terms:
        mask |= asked.term(term)
    return mask


class Asked:
    """What the terms of one pod match, over the same rows: each requirement is worked out once."""

    def __init__(self, view: NodeQueries, at: slice) -> None:
        self._view = view
        self._at = at
        self._masks: dict[tuple[str, str, tuple[str, ...]], BoolArray] = {}
        self._numbers: dict[str, tuple[IntArray, BoolArray]] = {}

    def term(self, term: NodeSelectorTerm) -> BoolArray:
        """Matches all requirements of the term; an empty or invalid term matches nothing. A fresh array."""
        view, at = self._view, self._at
        if not (term.match_expressions or term.match_fields) or unusable(term):
            return _full(view, at, False)
        mask = _full(view, at, True)
        for requirement in term.match_expressions or ():
            mask &= self._label(requirement)
        for requirement in term.match_fields or ():
            named = np.zeros(view.n_rows, dtype=np.bool_)
            row = view.row_of((requirement.values or [""])[0])
            if row is not None:
                named[row] = True
            mask &= named[at] if requirement.operator == "In" else ~named[at]
        return mask

    def _label(self, requirement: SelectorRequirement) -> BoolArray:
        key = (requirement.key, requirement.operator, tuple(requirement.values or ()))
        found = self._masks.get(key)
        if found is None:
            found = self._masks[key] = self._match_label(requirement)
        return found

    def _match_label(self, requirement: SelectorRequirement) -> BoolArray:
        codes, values = self._view.label(requirement.key)
        asked = codes[self._at]
        wanted = requirement.values or []
        mask: BoolArray
        match requirement.operator:
            case "Exists":
                mask = asked != MISSING
                return mask
            case "DoesNotExist":
                mask = asked == MISSING
                return mask
            case "In" if len(wanted) == 1:
                mask = asked == values.get(wanted[0], MISSING - 1)
                return mask
            case "In" | "NotIn":
                found = [values[value] for value in wanted if value in values]
                # One entry more than there are values: code -1, a missing label, indexes the last one.
                table = np.zeros(len(values) + 1, dtype=np.bool_)
                table[found] = True
                return table[asked] if requirement.operator == "In" else ~table[asked]
        limit = int64(wanted[0]) or 0
        numbers, are_numbers = self._as_numbers(requirement.key)
        mask = numbers > limit if requirement.operator == "Gt" else numbers < limit
        return mask & are_numbers

    def _as_numbers(self, key: str) -> tuple[IntArray, BoolArray]:
        """The label's values on the rows as numbers, and where they are numbers."""
        known = self._numbers.get(key)
        if known is not None:
            return known
        codes, values = self._view.label(key)
        asked = codes[self._at]
        texts = list(values)  # in the order of their codes
        table = np.zeros(len(values) + 1, dtype=np.int64)
        is_number = np.zeros(len(values) + 1, dtype=np.bool_)
        for code in np.unique(asked).tolist():
            number = int64(texts[code]) if code != MISSING else None
            if number is not None:
                table[code], is_number[code] = number, True
        return self._numbers.setdefault(key, (table[asked], is_number[asked]))


def _full(view: RowQueries, at: slice, value: bool) -> BoolArray:
    return np.full(len(range(*at.indices(view.n_rows))), value, dtype=np.bool_)

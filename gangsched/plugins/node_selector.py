"""Node selector terms over all nodes at once: used by NodeAffinity's filter, score and arguments.

A label is an array of codes, so one requirement is one comparison or one look-up in a table as long as the
label has values. `at` is the slice of rows to evaluate: all of them, or one when a single node changed.
Sources: k8s.io/component-helpers `scheduling/corev1/nodeaffinity`, k8s.io/apimachinery
`pkg/labels/selector.go`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from gangsched.core.cache.node_table import MISSING
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.interface import BoolArray
from gangsched.model.objects import NodeSelectorTerm, SelectorRequirement

EVERYWHERE = slice(None)
FIELD_NAME = "metadata.name"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
# strconv.ParseInt(text, 10, 64), except for its range.
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")


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
    for term in terms:
        mask |= match_term(term, view, at)
    return mask


def match_term(term: NodeSelectorTerm, view: NodeQueries, at: slice) -> BoolArray:
    """Matches all requirements of the term; an empty or invalid term matches nothing."""
    if not (term.match_expressions or term.match_fields) or problem(term):
        return _full(view, at, False)
    mask = _full(view, at, True)
    for requirement in term.match_expressions or ():
        mask &= _match_label(requirement, view, at)
    for requirement in term.match_fields or ():
        named = np.zeros(view.n_rows, dtype=np.bool_)
        row = view.row_of((requirement.values or [""])[0])
        if row is not None:
            named[row] = True
        mask &= named[at] if requirement.operator == "In" else ~named[at]
    return mask


def problem(term: NodeSelectorTerm) -> str:
    """Returns why the term is unusable, else "". The API server rejects such pods; old ones may exist."""
    for requirement in term.match_expressions or ():
        n_values = len(requirement.values or ())
        match requirement.operator:
            case "In" | "NotIn":
                if not n_values:
                    return f"{requirement.operator} needs at least one value"
            case "Exists" | "DoesNotExist":
                if n_values:
                    return f"{requirement.operator} takes no values"
            case "Gt" | "Lt":
                if n_values != 1 or _int64((requirement.values or [""])[0]) is None:
                    return f"{requirement.operator} needs exactly one value, a whole number"
            case other:
                return f"{other!r} is not an operator; there are {', '.join(_OPERATORS)}"
    for requirement in term.match_fields or ():
        if requirement.key != FIELD_NAME:
            return f"matchFields knows {FIELD_NAME}, not {requirement.key!r}"
        if requirement.operator not in ("In", "NotIn"):
            return f"matchFields knows In and NotIn, not {requirement.operator!r}"
        if len(requirement.values or ()) != 1:
            return "matchFields needs exactly one value"
    return ""


def _match_label(requirement: SelectorRequirement, view: NodeQueries, at: slice) -> BoolArray:
    codes, values = view.label(requirement.key)
    asked = codes[at]
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
    limit = _int64(wanted[0]) or 0
    above = requirement.operator == "Gt"
    table = np.zeros(len(values) + 1, dtype=np.bool_)
    for value, code in values.items():
        number = _int64(value)
        table[code] = number is not None and (number > limit if above else number < limit)
    return table[asked]


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _full(view: RowQueries, at: slice, value: bool) -> BoolArray:
    return np.full(len(range(*at.indices(view.n_rows))), value, dtype=np.bool_)

"""Label selectors, compiled: from the API's JSON to conditions, and the pods that a term matches; and node
selectors, asked about one node.

Values only, comparable and hashable, so that equal terms of many pods are one. Not here: counting the pods
that match (core.cache.pods.index), node selectors over all nodes (plugins.nodes.node_selector). Source:
k8s.io/apimachinery `pkg/apis/meta/v1/helpers.go` (LabelSelectorAsSelector) and `pkg/labels/selector.go`,
k8s.io/component-helpers `scheduling/corev1/nodeaffinity`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from gangsched.model.objects import LabelSelector, NodeSelector, NodeSelectorTerm, SelectorRequirement

# More values than this are looked up in a set.
_FEW = 16


_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_NODE_NAME = "metadata.name"
# strconv.ParseInt(text, 10, 64), except for its range.
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")


class _Values(tuple[str, ...]):
    """Thousands of values: compared and hashed as a tuple, looked up in a set."""

    @cached_property
    def _all(self) -> frozenset[str]:
        return frozenset(self)

    def __contains__(self, value: object) -> bool:
        return value in self._all


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One condition on one label; `values` only with In and NotIn."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """NotIn and DoesNotExist hold for a missing label; an unknown operator never holds."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return False


class Selector(msgspec.Struct, frozen=True, gc=False):
    """Matches if all requirements hold; without any, everything. None is the selector of nothing."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(one.matches(labels) for one in self.requirements)

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the label keys that it tests."""
        return tuple(one.key for one in self.requirements)

    def with_requirements(self, more: Iterable[Requirement]) -> Selector:
        """Returns the selector with these added; drops duplicates."""
        return Selector(tuple(dict.fromkeys((*self.requirements, *more))))


EVERYTHING = Selector()


def selector_of(wire: LabelSelector | None) -> Selector | None:
    """Compiles a selector. None stays None and matches nothing; an empty one matches everything."""
    if wire is None:
        return None
    found = [*requirements_of(wire.match_labels or {})]
    for one in wire.match_expressions or ():
        values = tuple(sorted(one.values or ()))
        found.append(Requirement(one.key, one.operator, values if len(values) <= _FEW else _Values(values)))
    return Selector(tuple(found))


def size_of(wire: LabelSelector) -> int:
    """Returns the number of labels, requirements and their values."""
    expressions = wire.match_expressions or ()
    n_values = sum(len(one.values or ()) for one in expressions)
    return len(wire.match_labels or ()) + len(expressions) + n_values


def requirements_of(labels: Mapping[str, str]) -> list[Requirement]:
    """Returns conditions for exactly these labels, in the order of their keys."""
    return [Requirement(key, "In", (labels[key],)) for key in sorted(labels)]


class PodTerm(msgspec.Struct, frozen=True, gc=False):
    """Which pods match: by namespace and by labels.

    namespaces: by name, sorted; namespace_selector: adds those whose labels match; selector None: no pod
    matches. skip_leaving: pods being deleted do not count. also: further conditions on the same pod.
    """

    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    selector: Selector | None = None
    skip_leaving: bool = False
    also: tuple[PodTerm, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the keys of the pod labels that it tests."""
        own = self.selector.keys if self.selector is not None else ()
        return (*own, *(key for term in self.also for key in term.keys))

    @property
    def looks_at_namespaces(self) -> bool:
        """Whether a namespace's labels matter."""
        return self.namespace_selector is not None or any(term.looks_at_namespaces for term in self.also)


def unusable(term: NodeSelectorTerm) -> str:
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
                if n_values != 1 or int64((requirement.values or [""])[0]) is None:
                    return f"{requirement.operator} needs exactly one value, a whole number"
            case other:
                return f"{other!r} is not an operator; there are {', '.join(_OPERATORS)}"
    for requirement in term.match_fields or ():
        if requirement.key != _NODE_NAME:
            return f"matchFields knows {_NODE_NAME}, not {requirement.key!r}"
        if requirement.operator not in ("In", "NotIn"):
            return f"matchFields knows In and NotIn, not {requirement.operator!r}"
        if len(requirement.values or ()) != 1:
            return "matchFields needs exactly one value"
    return ""


def int64(text: str) -> int | None:
    """Returns the whole number that a label's value is; None: it is none."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def matches_node(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Whether any of the terms matches the node; an empty one and an unusable one match nothing."""
    for term in selector.node_selector_terms or ():
        fields, expressions = term.match_fields or (), term.match_expressions or ()
        if (
            (fields or expressions)
            and not unusable(term)
            and all((name in (one.values or ())) == (one.operator == "In") for one in fields)
            and all(_holds(one, labels.get(one.key)) for one in expressions)
        ):
            return True
    return False


def _holds(one: SelectorRequirement, value: str | None) -> bool:
    if one.operator not in ("Gt", "Lt"):
        return Requirement(one.key, one.operator, tuple(one.values or ())).matches(
            {} if value is None else {one.key: value}
        )
    number, limit = int64(value or ""), int64((one.values or [""])[0])
    if number is None or limit is None:
        return False
    return number > limit if one.operator == "Gt" else number < limit


__all__ = [
    *("EVERYTHING", "PodTerm", "Requirement", "Selector", "int64", "matches_node", "requirements_of"),
    *("selector_of", "size_of", "unusable"),
]

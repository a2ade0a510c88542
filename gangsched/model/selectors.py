"""Label selectors, compiled: from the API's JSON to conditions, and the pods that a term matches.

Values only, comparable and hashable, so that equal terms of many pods are one. Not here: counting the pods
that match (core.cache.pods.index). Source: k8s.io/apimachinery `pkg/apis/meta/v1/helpers.go`
(LabelSelectorAsSelector) and `pkg/labels/selector.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from gangsched.model.objects import LabelSelector

# More values than this are looked up in a set.
_FEW = 16


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


__all__ = ["EVERYTHING", "PodTerm", "Requirement", "Selector", "requirements_of", "selector_of", "size_of"]

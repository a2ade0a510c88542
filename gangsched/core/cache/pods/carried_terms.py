"""CarriedTerms: what pods say of others, found by the pods that it may be about.

A term that asks for one of a few values of a label is looked up by that label; others are compared with each
template of the namespaces that they name. Each template is compared with a term once. Kept by
core.cache.pods.index.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Protocol

from gangsched.core.types.templates.affinity_terms import Carried
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.selectors import PodTerm

# Terms of pods are remembered for longer than the pods live, up to this many different ones.
_MAX_TERMS = 10_000
# All that is remembered of which templates a term matches.
_MAX_FOUND = 1_000_000
# A term with more values, or of more namespaces, is compared with every template.
_FEW = 16

_Anchor = tuple[str, str, str]
"""Namespace, label and value; "" for any."""


class TermCounts:
    """One term. number: in the order of their coming; rows: row -> pods on it that say so."""

    __slots__ = ("number", "rows", "stated")

    def __init__(self, stated: Carried, number: int) -> None:
        self.stated = stated
        self.number = number
        self.rows: dict[int, int] = {}


_number = attrgetter("number")


class Meanings(Protocol):
    """What terms mean; core.cache.pods.index has the one implementation."""

    def means_template(self, term: PodTerm, template: PodTemplate) -> bool:
        """Returns whether a term is about pods of a template, by the labels of its namespace too."""
        ...


class CarriedTerms:
    """Terms, and the templates that they are about."""

    def __init__(self, meanings: Meanings) -> None:
        self._meanings = meanings
        self._all: dict[Carried, TermCounts] = {}
        self._next = 0
        self._by_anchor: dict[_Anchor, list[TermCounts]] = {}
        self._found: dict[int, tuple[int, list[TermCounts]]] = {}
        """By template: how many terms it was compared with, and those that match."""
        self._n_found = 0
        self._most = _MAX_TERMS

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[TermCounts]:
        return iter(self._all.values())

    @property
    def is_full(self) -> bool:
        """Whether to drop those of pods that are gone."""
        return len(self._all) > self._most

    def keep(self, live: Iterable[Carried]) -> None:
        """Drops all but these and those of pods on nodes."""
        kept = dict.fromkeys(live)
        before, self._all = self._all, {}
        self._by_anchor, self._next = {}, 0
        self.forget_found()
        for stated, counts in before.items():
            if counts.rows or stated in kept:
                self.add(stated).rows = counts.rows
        for stated in kept:
            self.add(stated)
        self._most = max(_MAX_TERMS, 2 * len(self._all))

    def forget_found(self) -> None:
        """Compares everything again: labels of namespaces have changed."""
        self._found.clear()
        self._n_found = 0

    def forget_rows(self) -> None:
        """Counts no pods any more."""
        for counts in self._all.values():
            counts.rows = {}

    def add(self, stated: Carried) -> TermCounts:
        """Adds a term, if it is new."""
        counts = self._all.get(stated)
        if counts is None:
            counts = self._all[stated] = TermCounts(stated, self._next)
            self._next += 1
            for anchor in _anchors(stated[1].term):
                self._by_anchor.setdefault(anchor, []).append(counts)
        return counts

    def count(self, stated: Carried, row: int, n: int) -> None:
        """Counts pods with this term on a row."""
        rows = self.add(stated).rows
        left = rows.get(row, 0) + n
        if left:
            rows[row] = left
        else:
            del rows[row]

    def about(self, template: PodTemplate) -> list[TermCounts]:
        """Returns the terms that match pods of the template, in the order of their coming."""
        n_seen, found = self._found.get(template.serial, (0, _NONE))
        if n_seen == self._next:
            return found
        fresh = {
            counts.number: counts
            for anchor in _anchors_of(template)
            for counts in _since(self._by_anchor.get(anchor, _NONE), n_seen)
        }
        more = [
            fresh[at]
            for at in sorted(fresh)
            if self._meanings.means_template(fresh[at].stated[1].term, template)
        ]
        if len(self._found) > _MAX_TERMS or self._n_found + len(more) > _MAX_FOUND:
            self.forget_found()
        found = [*found, *more] if more else found
        self._n_found += len(more)
        self._found[template.serial] = (self._next, found)
        return found


_NONE: list[TermCounts] = []


def _since(some: list[TermCounts], number: int) -> list[TermCounts]:
    return some[bisect_left(some, number, key=_number) :] if number else some


def _anchors(term: PodTerm) -> Iterable[_Anchor]:
    """Where the term is looked for; nowhere if it matches nothing."""
    if term.selector is None:
        return ()
    spaces: tuple[str, ...] = ("",)
    if term.namespace_selector is None and len(term.namespaces) <= _FEW:
        spaces = term.namespaces
    for one in term.selector.requirements:
        if one.operator == "In" and len(one.values) <= _FEW:
            return [(space, one.key, value) for space in spaces for value in dict.fromkeys(one.values)]
    return [(space, "", "") for space in spaces]


def _anchors_of(template: PodTemplate) -> Iterable[_Anchor]:
    for space in (template.namespace, ""):
        yield (space, "", "")
        for key, value in template.labels.items():
            yield (space, key, value)


__all__ = ["CarriedTerms", "TermCounts"]

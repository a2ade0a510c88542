"""Batching: a gang of equal pods continues where the previous one left off.

Often many nodes take a whole gang with the same least room left over and the same score. They are kept, and
the next gang of the same size and template takes the next of them: only rows that changed since are looked
at. Identical to a full pack; returns None when unsure, and then packing runs. Each plugin declares which of
its answers may be kept (core.framework.interface, ScorePlugin); if any other plugin scores these nodes, it is
called each time and nothing is kept. Owned by core.framework.profile, called by core.cycle.choosing.packing.
Source of the idea: KEP-5598 (opportunistic batching), kube-scheduler `framework/runtime/batch.go`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gangsched.core.framework.filters.filtering import Filtering
from gangsched.core.framework.filters.row_cache import n_kept
from gangsched.core.framework.interface import IntArray
from gangsched.core.framework.scores.scoring import Query, Scoring

# Checking more rows one by one costs more than a full pack.
_MAX_CHANGED = 256


class _Kept:
    """What one gang leaves to the next, current up to `mark` of the journal.

    capacity: the very array that Filtering keeps current. rows: nodes with room for exactly `least` members,
    the least room of at least n_members on any node except `tighter`. equals: those with the highest score,
    ascending; entries before `at` are exhausted.
    """

    __slots__ = ("at", "capacity", "equals", "least", "mark", "n_members", "rows", "tighter")

    def __init__(
        self, capacity: IntArray, n_members: int, rows: IntArray, equals: IntArray, mark: int
    ) -> None:
        self.capacity = capacity
        self.n_members = n_members
        self.rows = rows
        self.equals = equals
        self.least: int = capacity.item(rows.item(0))
        self.mark = mark
        self.at = 0
        self.tighter: int | None = None

    def keep_up(self, changed: Iterable[int]) -> bool:
        """Processes changed rows. False: one of them may be among the best, or two are tighter."""
        least, n_members, room_on = self.least, self.n_members, self.capacity.item
        if self.tighter is not None and not n_members <= room_on(self.tighter) < least:
            self.tighter = None
        n_others = 0
        for row in changed:
            room = room_on(row)
            if n_members <= room <= least:
                if room == least or self.tighter not in (None, row):
                    return False
                self.tighter = row
            first = self.rows.item(0)
            if row == first:
                self.rows = self.rows[1:]
                if not len(self.rows):
                    return False
            elif row > first:  # rows are ascending, so none is below the first
                n_others += 1
        if n_others:
            self.rows = self.rows[self.capacity[self.rows] == least]
        return len(self.rows) > 0

    def next(self) -> int | None:
        """Returns the best of `rows`."""
        equals, at, least, room_on = self.equals, self.at, self.least, self.capacity.item
        while at < len(equals):
            row: int = equals.item(at)
            if room_on(row) == least:
                self.at = at
                return row
            at += 1
        return None


class Batching:
    """One profile's batching, by template."""

    def __init__(self, filtering: Filtering, scoring: Scoring) -> None:
        self._filtering = filtering
        self._scoring = scoring
        self._kept: dict[int, _Kept] = {}

    def next(
        self, query: Query, capacity: IntArray, n_members: int, *, prefers: bool, stating: frozenset[str]
    ) -> int | None:
        """Returns the node for n_members of a gang that uses none yet; None: unsure, run a full pack.

        prefers: its pods state nodes that they prefer or avoid. stating: the one plugin that scores this, as
        Scoring.only_of_nodes found; then an unchanged node keeps its score. If empty, they state at most
        nodes to avoid, so a tighter node may score less.
        """
        state, template, view = query.state, query.template, query.view
        kept = self._kept.pop(template.serial, None)
        if kept is None or kept.capacity is not capacity or kept.n_members != n_members:
            return None
        changed = view.rows_since(kept.mark)
        if changed is None or len(changed) > _MAX_CHANGED or not kept.keep_up(changed):
            return None
        if stating and any(capacity.item(row) >= n_members for row in changed):
            return None
        kept.mark = view.journal_end
        row = kept.tighter
        if row is None and self._scoring.is_decided_by_rows(state, template, view, kept.rows, stating):
            row = kept.next()
        elif (
            row is not None
            and prefers
            and not self._scoring.is_decided_by_rows(state, template, view, np.array([row]))
        ):
            row = None
        if row is not None:
            self._kept[template.serial] = kept
        return row

    def first(
        self, query: Query, capacity: IntArray, n_members: int, rows: IntArray, stating: frozenset[str]
    ) -> int | None:
        """Returns the best of the ascending `rows`, which take n_members with the least room left over.
        stating: a plugin that gives all of them one score."""
        state, template, view = query.state, query.template, query.view
        if (
            len(rows) < 2
            or not self._scoring.goes_by_row
            or not self._filtering.is_cached(template, capacity)
        ):
            return self._scoring.best(state, template, view, rows)
        scores, by_row = self._scoring.sums(state, template, view, rows, stating)
        equals = rows if scores is None else rows[scores == np.maximum.reduce(scores)]
        if by_row:
            if len(self._kept) > n_kept(view.n_rows):
                self._kept.clear()
            self._kept[template.serial] = _Kept(capacity, n_members, rows, equals, view.journal_end)
        return int(equals[0])

"""RunningPods: the pods on nodes as arrays, with the expected end of each, for first guesses.

Kept up to date through the node table's journal, a few rows at a time: looking up the ends of 40,000 pods
takes longer than the rest of a plan. A change that touches no row (a walltime edited or learned) is noticed
some plans later, so the planner itself asks core.queueing.ends about the pods that matter. Called by
core.kept.claim_plans.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Sequence

import numpy as np

from gangsched.core.cache.cache import Cache
from gangsched.core.queueing.ends import Ends
from gangsched.core.queueing.planning import Amounts, FloatArray
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate

# Rows that are read again at each look, changed or not.
_AGAIN = 16
# If more changed rows than this wait for the next look, _AT_ONCE of them are read each turn.
_MAX_BEHIND = 16
_AT_ONCE = 16
_NO_ROW = -1


class RunningPods:
    """One slot per pod; a free slot has row -1 and never ends."""

    def __init__(self, cache: Cache, ends: Ends, stuck: Container[str]) -> None:
        self._cache = cache
        self.ends = ends
        self._stuck = stuck
        self._mark = _NO_ROW
        self._again = 0
        self._changed: set[int] = set()
        """Rows that have changed since they were read."""
        self._reads_all = False
        """Whether the next look must read all rows."""
        self._slots: dict[int, list[int]] = {}
        self._free: list[int] = []
        self._code_of: dict[int, int] = {}
        """Template serial -> code of its kind; there may be many, as a template may name a node."""
        self._kinds: dict[tuple[tuple[str, int], ...], int] = {}
        """Requests -> code of the kind."""
        self.rows: IntArray = np.zeros(0, dtype=np.int64)
        self.ends_s: FloatArray = np.zeros(0, dtype=np.float64)
        self._codes: IntArray = np.zeros(0, dtype=np.int64)

    def read_changed(self, now_s: float, wall_ahead_s: float | None) -> None:
        """Reads the rows that have changed."""
        view = self._cache.view
        self._note_changed()
        if not self._reads_all:
            over = self.rows[(self.ends_s <= now_s) & (self.rows >= 0)]
            again = range(self._again, min(self._again + _AGAIN, view.n_rows))
            self._again = again.stop if again.stop < view.n_rows else 0
            self._changed.update(over.tolist(), again)
        self._reads_all = False
        changed, self._changed = self._changed, set()
        for row in sorted(changed):
            self._read(row, now_s, wall_ahead_s)

    def follow(self, now_s: float, wall_ahead_s: float | None) -> None:
        """Reads some of the changed rows once there are many, so that no look has to read thousands."""
        self._note_changed()
        if len(self._changed) > _MAX_BEHIND:
            for row in heapq.nsmallest(_AT_ONCE, self._changed):
                self._changed.discard(row)
                self._read(row, now_s, wall_ahead_s)

    def _note_changed(self) -> None:
        view = self._cache.view
        changed = view.rows_since(self._mark) if self._mark >= 0 else None
        self._mark = view.journal_end
        if changed is not None and len(self._code_of) <= 2 * len(self.rows) + _AGAIN:
            self._changed |= changed
            return
        self._forget()
        self._reads_all = True
        self._changed = set(range(view.n_rows))

    def _end_of(self, info: PodInfo, now_s: float, wall_ahead_s: float | None) -> float:
        """The pod's expected end as of now; never for a pod that was evicted and did not go."""
        return math.inf if info.uid in self._stuck else self.ends.end(info, now_s, wall_ahead_s).at_s

    def amounts(self, names: Sequence[str]) -> Amounts:
        """How much each pod holds of some resources; meaningless for a free slot."""
        of_kind = np.zeros((len(names), max(len(self._kinds), 1)), dtype=np.int64)
        for requests, code in self._kinds.items():
            held = dict(requests)
            of_kind[:, code] = [held.get(name, 0) for name in names]
        return Amounts(of_kind, self._codes)

    def n_ended(self, at_s: float, within: BoolArray) -> int:
        """How many pods on the rows of `within` (bool[n_rows]) will have ended."""
        rows = self.rows[(self.ends_s <= at_s) & (self.rows >= 0)]
        return int(np.count_nonzero(within[rows]))

    def _forget(self) -> None:
        self._slots.clear()
        self._code_of.clear()
        self._kinds.clear()
        self.rows[:] = _NO_ROW
        self.ends_s[:] = math.inf
        self._codes[:] = 0
        self._free = list(range(len(self.rows)))

    def _read(self, row: int, now_s: float, wall_ahead_s: float | None) -> None:
        for slot in self._slots.pop(row, ()):
            self.rows[slot], self.ends_s[slot], self._codes[slot] = _NO_ROW, math.inf, 0
            self._free.append(slot)
        if row >= self._cache.view.n_rows:
            return
        there = self._cache.by_node.get(self._cache.view.name(row), {})
        mine = [info for info in there.values() if info.row == row]
        if not mine:
            return
        if len(self._free) < len(mine):
            self._grow(len(mine))
        slots = [self._free.pop() for _ in mine]
        self._slots[row] = slots
        self.rows[slots] = row
        self.ends_s[slots] = [self._end_of(info, now_s, wall_ahead_s) for info in mine]
        self._codes[slots] = [self._code(info.template) for info in mine]

    def _code(self, template: PodTemplate) -> int:
        code = self._code_of.get(template.serial)
        if code is None:
            requests = tuple(template.requests.items())
            code = self._code_of[template.serial] = self._kinds.setdefault(requests, len(self._kinds))
        return code

    def _grow(self, n: int) -> None:
        n_now = len(self.rows)
        more = max(n_now, n, 64)
        self._free += range(n_now, n_now + more)
        self.rows = np.concatenate((self.rows, np.full(more, _NO_ROW, dtype=np.int64)))
        self.ends_s = np.concatenate((self.ends_s, np.full(more, math.inf)))
        self._codes = np.concatenate((self._codes, np.zeros(more, dtype=np.int64)))

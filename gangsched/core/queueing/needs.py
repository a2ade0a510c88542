"""What a template is refused for, where it may go, and what is taken.

Called by core.queueing.bypasses, core.kept.claiming and core.estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Demand
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.templates.pod_template import PodTemplate


def open_to(demand: Demand, template: PodTemplate, view: ClusterView) -> BoolArray:
    """bool[n_rows]: rows that pass the template's Filters of fixed node properties; all if a plugin fails."""
    try:
        state, _ = demand.pre_filter(template, view)
        mask = demand.profile.filtering.feasible(state, template, view)
    except PluginError:
        return view.live
    return mask if state.subset is None else mask & state.subset


def refused_for(template: PodTemplate, mask: BoolArray, n_wanted: int, view: RoomQueries) -> frozenset[int]:
    """The columns that keep a node from taking all copies; all columns if room is not what is lacking."""
    rows = np.flatnonzero(mask)
    if not len(rows) or not template.columns:
        return frozenset(template.columns)
    fits = np.maximum(view.free_at(template.column_array, rows), 0) // template.amount_array
    least = fits.min(axis=0)
    short = ((fits == least) & (least < n_wanted)).any(axis=1)
    return frozenset(c for c, is_short in zip(template.columns, short.tolist(), strict=True) if is_short) or (
        frozenset(template.columns)
    )


def fits_empty(template: PodTemplate, mask: BoolArray, n_wanted: int, view: RoomQueries) -> bool:
    """Whether the copies would fit if the nodes were empty."""
    if template.missing:
        return False
    rows = np.flatnonzero(mask)
    room = view.room_at(template.column_array, rows)[0] // template.amount_array
    return bool(np.maximum(room.min(axis=0), 0).sum() >= n_wanted) if len(rows) else False


def taken(placed: Iterable[tuple[int, PodTemplate]]) -> dict[int, int]:
    """By column: the rows where some of the resource is taken, as bits."""
    found: dict[int, int] = {}
    for row, template in placed:
        for column in template.columns:
            found[column] = found.get(column, 0) | 1 << row
    return found


def bits(mask: BoolArray) -> int:
    """The rows as bits."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


_MAX_TEMPLATES = 10_000

Needs = dict[int, frozenset[int]]
"""template serial -> the resource columns that it was refused for."""


class Asking(Protocol):
    """Groups that wait, as one (core.queueing.bypasses)."""

    needs: Needs


class OpenRows:
    """Open rows by template serial; recomputed when nodes change."""

    def __init__(self, asked_for: Mapping[Any, Asking]) -> None:
        """asked_for: what all groups that wait need; other templates are forgotten."""
        self._asked_for = asked_for
        self._rows: dict[int, int] = {}
        self._asked: dict[int, tuple[Demand, PodTemplate]] = {}
        """What to recompute the rows from. The demand has no members, so it keeps no pods in memory."""
        self._revision: tuple[int, int] = (-1, -1)
        """The revision of nodes that `_rows` are based on."""

    def rows(self, serial: int) -> int:
        """The rows open to that template, as bits."""
        return self._rows.get(serial, 0)

    def is_contended(self, needs: Needs, took: Mapping[int, int]) -> bool:
        """Whether some needed resource is taken on a node that is open to the template needing it."""
        for serial, columns in needs.items():
            rows = self._rows.get(serial, 0)
            if any(rows & there for column, there in took.items() if column in columns):
                return True
        return False

    def follow(self, view: ClusterView) -> None:
        """Recomputes where the templates may go, if nodes have changed."""
        revision = (view.static_revision, view.n_rows)
        if revision == self._revision:
            return
        self._revision = revision
        self._forget()
        for serial, (demand, template) in self._asked.items():
            self._rows[serial] = bits(open_to(demand, template, view))

    def ask(self, demand: Demand, template: PodTemplate, view: ClusterView) -> BoolArray:
        """Computes and keeps the rows open to the template."""
        mask = open_to(demand, template, view)
        if len(self._rows) >= _MAX_TEMPLATES and template.serial not in self._rows:
            self._forget()
        self._rows[template.serial] = bits(mask)
        self._asked[template.serial] = (Demand(demand.group, demand.profile, [], 0), template)
        return mask

    def _forget(self) -> None:
        used = {serial for one in self._asked_for.values() for serial in one.needs}
        self._rows = {serial: rows for serial, rows in self._rows.items() if serial in used}
        self._asked = {serial: one for serial, one in self._asked.items() if serial in used}

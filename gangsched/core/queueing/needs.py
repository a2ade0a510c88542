"""What a template is refused for, where it may go, and what is taken. Called by core.queueing.bypasses."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Demand
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.pod_template import PodTemplate


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

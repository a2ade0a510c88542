"""A picture of the day: each node's usage over time, evictions, and waits by size.

`Drawing` reads the core after each call of a replay and keeps a bounded amount; `picture` draws it. One file
for both backgrounds: its colours follow the reader's light or dark setting. Called by the command.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import median

import numpy as np

from gangsched.core.types.group import Group
from gangsched.journal.replay.replaying import Replay
from gangsched.model.effects import BindPod, DeletePod, Effect, EvictPod
from gangsched.model.resources import is_extended
from gangsched.model.text.printable import clean, several
from gangsched.svg import CARD, DIM, GRID, document, key, line, rect, text, themed, tick_s

_MAX_MOMENTS = 240
_MAX_ROWS = 64
_FIRST_STEP_S = 1.0
_GONE, _CLOSED = -1.0, -2.0
_WIDTH, _LEFT, _RIGHT = 980.0, 92.0, 24.0
_PLOT = _WIDTH - _LEFT - _RIGHT
_TOP, _BARS_HIGH = 116.0, 130.0
_SIZES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 64), (65, 10**9))
_SHADES = 6
_STYLE = themed(
    ".gone{fill:#cf222e}.closed{fill:#d4a72c}.evicted{fill:#bc4c00}.half{fill:#54aeff}.late{fill:#0969da}\n"
    ".u0{fill:#f0f3f6}.u1{fill:#ddf4ff}.u2{fill:#b6e3ff}.u3{fill:#80ccff}.u4{fill:#218bff}.u5{fill:#0550ae}",
    ".gone{fill:#f85149}.closed{fill:#bb8009}.evicted{fill:#f0883e}.half{fill:#1f6feb}.late{fill:#79c0ff}\n"
    ".u0{fill:#161b22}.u1{fill:#0c2d6b}.u2{fill:#0d419d}.u3{fill:#1158c7}.u4{fill:#388bfd}.u5{fill:#a5d6ff}",
)


class Drawing:
    """Data collected from a replay; times are seconds since 1970. Processes of one cluster share one."""

    def __init__(self) -> None:
        self.moments: list[tuple[float, dict[str, float]]] = []
        self.evicted_s: list[float] = []
        self.waits: dict[tuple[str, float], tuple[int, float]] = {}
        """By gang and arrival time: its number of pods, and its wait for the first bind."""
        self._step_s = _FIRST_STEP_S

    def look(self, replay: Replay, effects: list[Effect]) -> None:
        """Takes in the core's state; call after each call of the core."""
        at_s = replay.played.now_s + replay.ago_s
        for effect in effects:
            if isinstance(effect, EvictPod | DeletePod):
                self.evicted_s.append(at_s)
            elif isinstance(effect, BindPod):
                info = replay.scheduler.shared.cache.pods.get(effect.uid)
                if info is not None and info.group is not None:
                    self._started(info.group, at_s)
        if replay.scheduler.is_synced and (not self.moments or at_s >= self.moments[-1][0] + self._step_s):
            self.moments.append((at_s, _use(replay)))
            while len(self.moments) > 2 * _MAX_MOMENTS:
                self._thin()

    def _thin(self) -> None:
        """Increases the interval between samples, also of earlier ones."""
        self._step_s *= 2
        every, self.moments = self.moments, []
        for one in every:
            if not self.moments or one[0] >= self.moments[-1][0] + self._step_s:
                self.moments.append(one)

    def _started(self, group: Group, at_s: float) -> None:
        members = group.members.values()
        created = [t.timestamp() for one in members if (t := one.pod.metadata.creation_timestamp)]
        came_s = min(created, default=at_s)
        self.waits.setdefault((str(group.key), came_s), (len(group.members), max(at_s - came_s, 0.0)))


def _use(replay: Replay) -> dict[str, float]:
    """Returns by node the share of its devices in use, or of its cpu if no node has devices."""
    nodes = replay.scheduler.shared.cache.nodes
    names = nodes.table.names[: nodes.allocatable.shape[0]]
    columns = [i for i, name in enumerate(names) if is_extended(name)]
    if not columns or not nodes.allocatable[columns].any():
        columns = [0]
    has = nodes.allocatable[columns].sum(axis=0)
    free = np.maximum(nodes.free[columns], 0).sum(axis=0)
    found = {}
    for name, row in nodes.row_of.items():
        share = float(1.0 - free[row] / has[row]) if has[row] else 0.0
        found[name] = _CLOSED if nodes.unschedulable[row] and share <= 0.0 else min(max(share, 0.0), 1.0)
    return found


def picture(drawing: Drawing) -> str:
    """Returns the file. If there are many nodes, one row shows several."""
    moments = drawing.moments
    names = sorted({name for _, use in moments for name in use}, key=lambda one: (len(one), one))
    per_row = -(-len(names) // _MAX_ROWS) or 1
    rows = [names[at : at + per_row] for at in range(0, len(names), per_row)]
    high = max(4.0, min(14.0, 360.0 / max(len(rows), 1)))
    floor = _TOP + high * len(rows)
    bars_top = floor + 104
    height = bars_top + _BARS_HIGH + 52
    began_s, ended_s = (moments[0][0], moments[-1][0]) if moments else (0.0, 0.0)
    span_s = max(ended_s - began_s, 1.0)
    n_nodes, n_started = (
        several(len(names), "node"),
        f"{several(len(drawing.waits), 'gang and lone pod', 'gangs and lone pods')} started",
    )
    title = f"{_day(began_s)} to {_day(ended_s)} UTC: {n_nodes}, {n_started}"
    parts = [
        text(_LEFT, 34, title, size=16),
        *_legend(58),
        text(_LEFT, _TOP - 12, f"In use, {'a node' if per_row == 1 else f'{per_row} nodes'} a row", size=13),
        *_cells(drawing, rows, high, began_s, span_s),
        *_evictions(drawing, floor + 8, began_s, span_s),
        *_hours(began_s, span_s, floor + 44),
        text(_LEFT, bars_top - 24, "Wait for the first place, by pods of a gang", size=13),
        *_waits(drawing, bars_top),
    ]
    return document(_WIDTH, height, title, parts, style=_STYLE, card=CARD)


def _day(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M}"


def _legend(y: float) -> Iterator[str]:
    x = _LEFT
    shades = [(f"u{k}", f"{100 * k // (_SHADES - 1)} %") for k in range(_SHADES)]
    marks = [("closed", "closed and empty"), ("gone", "gone"), ("evicted", "pods evicted")]
    for name, words in (*shades, *marks):
        yield from key(x, y, words, paint=f'class="{name}"', words_paint=DIM)
        x += 36 + 6.6 * len(words)


def _cells(
    drawing: Drawing, rows: list[list[str]], high: float, began_s: float, span_s: float
) -> Iterator[str]:
    """Draws equal neighbours in time as one rectangle."""
    times = [at_s for at_s, _ in drawing.moments]
    ends = [*times[1:], times[-1] if times else 0.0]
    for k, names in enumerate(rows):
        y = _TOP + high * k
        if len(rows) <= 24 or k % 4 == 0:
            yield text(
                _LEFT - 8, y + min(high, 11.0), clean(names[0])[-12:], size=10, anchor="end", paint=DIM
            )
        begun, looks = 0, ""
        for at in range(len(times) + 1):
            now = "" if at == len(times) else _look(names, drawing.moments[at][1])
            if now != looks:
                if looks:
                    x = _LEFT + min(_PLOT * (times[begun] - began_s) / span_s, _PLOT - 0.3)
                    wide = _PLOT * (ends[at - 1] - times[begun]) / span_s
                    paint = f'class="{looks}"'
                    yield rect(x, y, max(wide, 0.3), max(high - 1, 1), paint=paint, rx=0)
                begun, looks = at, now


def _look(names: list[str], use: dict[str, float]) -> str:
    found = [use.get(name, _GONE) for name in names]
    if all(one == _GONE for one in found):
        return "gone"
    if all(one < 0.0 for one in found):
        return "closed"
    mean = sum(max(one, 0.0) for one in found) / len(found)
    return f"u{round(mean * (_SHADES - 1))}"


def _evictions(drawing: Drawing, y: float, began_s: float, span_s: float) -> Iterator[str]:
    if drawing.evicted_s:
        words = f"evicted: {len(drawing.evicted_s):,}"
        yield text(_LEFT - 8, y + 10, words, size=10, anchor="end", paint=DIM)
    for at_s in sorted({round(_PLOT * (one - began_s) / span_s) for one in drawing.evicted_s}):
        yield rect(_LEFT + at_s, y, 2, 12, paint='class="evicted"', rx=0)


def _hours(began_s: float, span_s: float, y: float) -> Iterator[str]:
    every_s = tick_s(span_s)
    at_s = -(-began_s // every_s) * every_s
    while at_s <= began_s + span_s:
        words = f"{datetime.fromtimestamp(at_s, UTC):{'%H:%M' if every_s < 86_400 else '%m-%d'}}"
        yield text(_LEFT + _PLOT * (at_s - began_s) / span_s, y, words, size=11, anchor="middle", paint=DIM)
        at_s += every_s


def _waits(drawing: Drawing, top: float) -> Iterator[str]:
    """Draws the median and the 95th percentile of each size, on a square-root scale."""
    groups = []
    for low, most in _SIZES:
        found = sorted(wait_s for n, wait_s in drawing.waits.values() if low <= n <= most)
        if found:
            groups.append((low, most, len(found), median(found), found[int(0.95 * (len(found) - 1))]))
    worst_s = max([60.0, *(one[4] for one in groups)])
    floor, step = top + _BARS_HIGH, _PLOT / max(len(groups), 1)
    yield line(_LEFT, floor, _LEFT + _PLOT, floor, paint=GRID)
    for k, (low, most, n, half_s, late_s) in enumerate(groups):
        x = _LEFT + step * k
        pods = f"{low}" if low == most else f"{low} to {most}" if most < 10**9 else f"{low} and more"
        words = f"{pods} pod{'s' * (most > 1)}: {n:,}"
        yield text(x + step / 2, floor + 18, words, size=11.5, anchor="middle", paint=DIM)
        for i, (name, seconds) in enumerate((("half", half_s), ("late", late_s))):
            tall = max((_BARS_HIGH - 16) * (seconds / worst_s) ** 0.5, 1.0)
            left = x + step * (0.18 + 0.32 * i)
            yield rect(left, floor - tall, step * 0.3, tall, paint=f'class="{name}"')
            yield text(left + step * 0.15, floor - tall - 4, _span(seconds), size=10.5, anchor="middle")
    words = (
        "left: half of them waited less; right: 95 of 100 did; heights on a scale of square roots; below: how"
        " many there were"
    )
    yield text(_LEFT, floor + 40, words, size=11, paint=DIM)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

"""The answer as a picture: the cluster over time with and without changes, and waits by size. Pure.

One file for both backgrounds: its colours follow the reader's light or dark setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from gangsched.lab.counterfactual.answers.answer import Answer, Drawn
from gangsched.lab.counterfactual.answers.compare import Difference
from gangsched.lab.counterfactual.model import Sample
from gangsched.model.text.printable import clean, several
from gangsched.svg import CARD, DIM, GRID, document, key, line, path, rect, text, themed, tick_s

_WIDTH, _LEFT, _RIGHT = 980.0, 64.0, 24.0
_PLOT = _WIDTH - _LEFT - _RIGHT
_USE_TOP, _USE_HIGH = 116.0, 190.0
_SPLIT_HIGH = 90.0
_BARS_HIGH = 150.0
_SIZES = ((1, 1), (2, 4), (5, 16), (17, 64), (65, 10**9))
_MIN_WAIT_S = 1.0
_TICKS = (
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (86_400.0, "1 d"),
)
_SIDES = (("recorded", "recorded"), ("model", "recorded, in the model"), ("changed", "changed, in the model"))
_STYLE = themed(
    ".recorded{--c:#8c959f}.model{--c:#0969da}.changed{--c:#bc4c00}\n"
    "path{stroke:var(--c);fill:none;stroke-width:1.6;stroke-linejoin:round}rect.bar{fill:var(--c)}\n"
    "path.recorded{stroke-dasharray:3 3}",
    ".recorded{--c:#8b949e}.model{--c:#58a6ff}.changed{--c:#f0883e}",
)


def picture(found: Answer, drawn: Drawn) -> str:
    """Returns one SVG."""
    split_top = _USE_TOP + _USE_HIGH + 62
    bars_top = split_top + _SPLIT_HIGH + 74
    height = bars_top + _BARS_HIGH + 48
    title = f"What if: {clean('; '.join(found.changes))}"
    sides = [(name, getattr(drawn, name)) for name, _ in _SIDES]
    parts = [
        text(_LEFT, 34, title[:100], size=17),
        text(_LEFT, 56, _summary(found), size=12.5, paint=DIM),
        *_legend(80),
        text(_LEFT, _USE_TOP - 10, "In use", size=14),
        *_axis(_USE_TOP, _USE_HIGH, 4),
        *_curves(
            [(name, [(one.at_s, one.used) for one in samples]) for name, samples in sides],
            found,
            _USE_TOP,
            _USE_HIGH,
        ),
        *_hours(found.length_s, _USE_TOP + _USE_HIGH + 17),
        text(_LEFT, split_top - 10, "Free, but on nodes in use (share of what is free)", size=14),
        *_axis(split_top, _SPLIT_HIGH, 2),
        *_curves([(name, _split(samples)) for name, samples in sides], found, split_top, _SPLIT_HIGH),
        *_hours(found.length_s, split_top + _SPLIT_HIGH + 17),
        text(
            _LEFT,
            bars_top - 20,
            "Mean wait by pods of a gang, logarithmic; to the end where it did not start",
            size=14,
        ),
        *_waits(found.gangs, bars_top),
    ]
    return document(_WIDTH, height, title, parts, style=_STYLE, card=CARD)


def _summary(found: Answer) -> str:
    moves = found.distribution
    return (
        f"{several(found.n_gangs, 'gang')} in {found.length_s / 3600:.1f} hours: {moves.n_earlier:,} start"
        f" earlier, {moves.n_later:,} later, {moves.n_same:,} as before"
    )


def _legend(y: float) -> Iterator[str]:
    for k, (name, words) in enumerate(_SIDES):
        yield from key(_LEFT + 190.0 * k, y, words, paint=f'class="bar {name}"', words_paint=DIM)


def _axis(top: float, high: float, n: int) -> Iterator[str]:
    for k in range(n + 1):
        y = top + high * (1 - k / n)
        yield _line(y)
        yield text(_LEFT - 8, y + 4, f"{100 * k // n} %", size=11, anchor="end", paint=DIM)


def _curves(
    sides: Sequence[tuple[str, Sequence[tuple[float, float]]]], found: Answer, top: float, high: float
) -> Iterator[str]:
    for name, points in sides:
        placed = (
            (_LEFT + _PLOT * at_s / found.length_s, top + high * (1 - min(max(share, 0.0), 1.0)))
            for at_s, share in points
        )
        steps = " ".join(f"{'L' if k else 'M'}{x:.1f} {y:.1f}" for k, (x, y) in enumerate(placed))
        yield path(steps, paint=f'class="{name}"')


def _split(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    return [(one.at_s, one.split or 0.0) for one in samples]


def _hours(span_s: float, y: float) -> Iterator[str]:
    every_s = tick_s(span_s)
    for k in range(int(span_s / every_s) + 1):
        at_s = k * every_s
        x = _LEFT + _PLOT * at_s / span_s
        yield text(x, y, _clock(at_s, every_s), size=11, anchor="middle", paint=DIM)


def _clock(at_s: int, every_s: int) -> str:
    if every_s < 3600:
        return f"{at_s // 60} min"
    return f"{at_s // 86_400} d" if at_s and at_s % 86_400 == 0 else f"{at_s // 3600} h"


def _waits(gangs: Sequence[Difference], top: float) -> Iterator[str]:
    floor = top + _BARS_HIGH
    groups = [(low, high, [one for one in gangs if low <= one.n_pods <= high]) for low, high in _SIZES]
    groups = [one for one in groups if one[2]]
    most_s = max(60.0, *(max(one.model.wait_s, one.changed.wait_s) for one in gangs))
    for seconds, words in _TICKS:
        if seconds <= most_s:
            y = floor - _BARS_HIGH * _height(seconds, most_s)
            yield _line(y)
            yield text(_LEFT - 8, y + 4, words, size=11, anchor="end", paint=DIM)
    step = _PLOT / max(len(groups), 1)
    for k, (low, high, members) in enumerate(groups):
        x = _LEFT + step * k
        words = f"{_pods(low, high)}: {several(len(members), 'gang')}"
        yield text(x + step / 2, floor + 18, words, size=11.5, anchor="middle", paint=DIM)
        for i, (name, _) in enumerate(_SIDES):
            mean_s = fmean(getattr(one, name).wait_s for one in members)
            left = x + step * (0.15 + 0.7 * i / len(_SIDES))
            tall, width = _BARS_HIGH * _height(mean_s, most_s), step * 0.7 / len(_SIDES)
            yield rect(left + 1, floor - tall, width - 2, tall, paint=f'class="bar {name}"')


def _pods(low: int, high: int) -> str:
    if low == high:
        return f"{low} pod"
    return f"{low} to {high} pods" if high < 10**9 else f"{low} pods and more"


def _height(seconds: float, most_s: float) -> float:
    return max(math.log(max(seconds, _MIN_WAIT_S) / _MIN_WAIT_S) / math.log(most_s / _MIN_WAIT_S), 0.008)


def _line(y: float) -> str:
    return line(_LEFT, y, _LEFT + _PLOT, y, paint=GRID)

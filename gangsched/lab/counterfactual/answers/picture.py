"""The answer as a picture: the cluster over time with and without changes, and waits by size. Pure.

One file for both backgrounds: its colours follow the reader's light or dark setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from statistics import fmean

from gangsched.lab.counterfactual.answers.answer import Answer, Drawn
from gangsched.lab.counterfactual.answers.compare import Difference
from gangsched.lab.counterfactual.model import Sample
from gangsched.model.text.printable import clean, several

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
_EVERY_S = (60, 300, 600, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 604_800, 10**9)
_SIDES = (("recorded", "recorded"), ("model", "recorded, in the model"), ("changed", "changed, in the model"))
_STYLE = """
text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}
.card{fill:#ffffff;stroke:#d0d7de}.dim{fill:#59636e}.grid{stroke:#d0d7de}
.recorded{--c:#8c959f}.model{--c:#0969da}.changed{--c:#bc4c00}
path{stroke:var(--c);fill:none;stroke-width:1.6;stroke-linejoin:round}rect.bar{fill:var(--c)}
path.recorded{stroke-dasharray:3 3}
@media(prefers-color-scheme:dark){text{fill:#d6deeb}.card{fill:#0d1117;stroke:#30363d}.dim{fill:#8b949e}
.grid{stroke:#30363d}.recorded{--c:#8b949e}.model{--c:#58a6ff}.changed{--c:#f0883e}}
"""


def picture(found: Answer, drawn: Drawn) -> str:
    """Returns one SVG."""
    split_top = _USE_TOP + _USE_HIGH + 62
    bars_top = split_top + _SPLIT_HIGH + 74
    height = bars_top + _BARS_HIGH + 48
    title = f"What if: {clean('; '.join(found.changes))}"
    sides = [(name, getattr(drawn, name)) for name, _ in _SIDES]
    parts = [
        _text(_LEFT, 34, title[:100], size=17),
        _text(_LEFT, 56, _summary(found), size=12.5, dim=True),
        *_legend(80),
        _text(_LEFT, _USE_TOP - 10, "In use", size=14),
        *_axis(_USE_TOP, _USE_HIGH, 4),
        *_curves(
            [(name, [(one.at_s, one.used) for one in samples]) for name, samples in sides],
            found,
            _USE_TOP,
            _USE_HIGH,
        ),
        *_hours(found.length_s, _USE_TOP + _USE_HIGH + 17),
        _text(_LEFT, split_top - 10, "Free, but on nodes in use (share of what is free)", size=14),
        *_axis(split_top, _SPLIT_HIGH, 2),
        *_curves([(name, _split(samples)) for name, samples in sides], found, split_top, _SPLIT_HIGH),
        *_hours(found.length_s, split_top + _SPLIT_HIGH + 17),
        _text(
            _LEFT,
            bars_top - 20,
            "Mean wait by pods of a gang, logarithmic; to the end where it did not start",
            size=14,
        ),
        *_waits(found.gangs, bars_top),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" '
            f'width="{_WIDTH:.0f}" height="{height:.0f}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="card" x=".5" y=".5" width="{_WIDTH - 1:.0f}" height="{height - 1:.0f}" rx="10"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _summary(found: Answer) -> str:
    moves = found.distribution
    return (
        f"{several(found.n_gangs, 'gang')} in {found.length_s / 3600:.1f} hours: {moves.n_earlier:,} start"
        f" earlier, {moves.n_later:,} later, {moves.n_same:,} as before"
    )


def _legend(y: float) -> Iterator[str]:
    for k, (name, words) in enumerate(_SIDES):
        x = _LEFT + 190.0 * k
        yield f'<rect class="bar {name}" x="{x:.1f}" y="{y - 10:.1f}" width="12" height="12" rx="2"/>'
        yield _text(x + 18, y, words, size=12, dim=True)


def _axis(top: float, high: float, n: int) -> Iterator[str]:
    for k in range(n + 1):
        y = top + high * (1 - k / n)
        yield _line(y)
        yield _text(_LEFT - 8, y + 4, f"{100 * k // n} %", size=11, anchor="end", dim=True)


def _curves(
    sides: Sequence[tuple[str, Sequence[tuple[float, float]]]], found: Answer, top: float, high: float
) -> Iterator[str]:
    for name, points in sides:
        placed = (
            (_LEFT + _PLOT * at_s / found.length_s, top + high * (1 - min(max(share, 0.0), 1.0)))
            for at_s, share in points
        )
        line = " ".join(f"{'L' if k else 'M'}{x:.1f} {y:.1f}" for k, (x, y) in enumerate(placed))
        yield f'<path class="{name}" d="{line}"/>'


def _split(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    return [(one.at_s, one.split or 0.0) for one in samples]


def _hours(span_s: float, y: float) -> Iterator[str]:
    every_s = next(one for one in _EVERY_S if span_s / one <= 12)
    for k in range(int(span_s / every_s) + 1):
        at_s = k * every_s
        yield _text(
            _LEFT + _PLOT * at_s / span_s, y, _clock(at_s, every_s), size=11, anchor="middle", dim=True
        )


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
            yield _text(_LEFT - 8, y + 4, words, size=11, anchor="end", dim=True)
    step = _PLOT / max(len(groups), 1)
    for k, (low, high, members) in enumerate(groups):
        x = _LEFT + step * k
        words = f"{_pods(low, high)}: {several(len(members), 'gang')}"
        yield _text(x + step / 2, floor + 18, words, size=11.5, anchor="middle", dim=True)
        for i, (name, _) in enumerate(_SIDES):
            mean_s = fmean(getattr(one, name).wait_s for one in members)
            left = x + step * (0.15 + 0.7 * i / len(_SIDES))
            tall, width = _BARS_HIGH * _height(mean_s, most_s), step * 0.7 / len(_SIDES)
            yield (
                f'<rect class="bar {name}" x="{left + 1:.1f}" y="{floor - tall:.1f}"'
                f' width="{width - 2:.1f}" height="{tall:.1f}" rx="2"/>'
            )


def _pods(low: int, high: int) -> str:
    if low == high:
        return f"{low} pod"
    return f"{low} to {high} pods" if high < 10**9 else f"{low} pods and more"


def _height(seconds: float, most_s: float) -> float:
    return max(math.log(max(seconds, _MIN_WAIT_S) / _MIN_WAIT_S) / math.log(most_s / _MIN_WAIT_S), 0.008)


def _line(y: float) -> str:
    return f'<line class="grid" x1="{_LEFT:.1f}" y1="{y:.1f}" x2="{_LEFT + _PLOT:.1f}" y2="{y:.1f}"/>'


def _text(x: float, y: float, words: str, *, size: float, anchor: str = "start", dim: bool = False) -> str:
    style = ' class="dim"' if dim else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}"'
    return f"<text{style} {place}>{escape(words)}</text>"

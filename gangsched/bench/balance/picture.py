"""The experiment as a picture: the paper's bar chart, H as printed of each worker, and ours beside it.

Pure. Self-contained SVG, as the demo's: no script, no font from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gangsched.bench.balance.model import AS_PRINTED, BASELINE
from gangsched.bench.balance.report import BalanceReport, Outcome
from gangsched.model.evenness import Mode

_WIDTHS = (300.0, 560.0)
_PANEL_Y, _GAP = 210.0, 40.0
_LEFT, _TOP, _ROW = 28.0, 118.0, 21.0
_COLOURS = ("#8b949e", "#db6d28", "#e3b341", "#bc8cff", "#58a6ff", "#56d364")
_INK, _DIM, _CARD, _LINE = "#d6deeb", "#8b949e", "#0d1117", "#30363d"


def picture(report: BalanceReport) -> str:
    """One SVG: two panels, in each a group of bars a worker, a bar an algorithm; and their spreads."""
    width = 2 * _LEFT + sum(_WIDTHS) + _GAP
    floor = _TOP + _PANEL_Y
    height = floor + 66 + _ROW * len(report.outcomes) + 50
    most_even = report.most_even
    published = [one for one in report.outcomes if one.algorithm in (BASELINE, AS_PRINTED)]
    right = _LEFT + _WIDTHS[0] + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="H of workers">',
        "<title>H of each worker under several algorithms</title>",
        "<style>text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif}</style>",
        f'<rect x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10" fill="{_CARD}"'
        f' stroke="{_LINE}"/>',
        _text(_LEFT, 34, "Load against performance, H, of three unequal workers with 35 tasks", size=17),
        _text(
            *(_LEFT, 57),
            "bars: one order of arrival, simulated. Dashed: an even cluster, H = 1 on every worker",
            size=12.5,
            colour=_DIM,
        ),
        _text(_LEFT, 92, "The paper's chart: H literal", size=14),
        _text(right, 92, "Ours: H normalized", size=14),
        *_panel(report, published, "literal", left=_LEFT, width=_WIDTHS[0]),
        *_panel(report, report.outcomes, "normalized", left=right, width=_WIDTHS[1]),
        *_legend(report, floor + 66),
        _text(
            *(_LEFT, height - 18),
            f"Most even by H normalized: {most_even['normalized']}; by H literal: {most_even['literal']}",
            size=13.5,
        ),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    report: BalanceReport, shown: Sequence[Outcome], mode: Mode, *, left: float, width: float
) -> list[str]:
    floor = _TOP + _PANEL_Y
    top = max(1.25, *(h for one in shown for h in one.simulated[mode].h)) * 1.12
    even = floor - _PANEL_Y / top
    parts = [_line(left, floor, width), _line(left, even, width, dashed=True)]
    step = width / len(report.workers)
    bar = step * 0.84 / len(shown)
    for k, worker in enumerate(report.workers):
        begin = left + step * (k + 0.08)
        for i, one in enumerate(shown):
            h = one.simulated[mode].h[k]
            x, y = begin + bar * i, floor - _PANEL_Y * h / top
            parts.append(
                f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{bar - 2:.1f}" height="{max(floor - y, 0):.1f}"'
                f' rx="2" fill="{_colour(report, one)}"/>'
            )
            parts.append(_text(x + bar / 2, y - 5, f"{h:.2f}", size=10.5, anchor="middle"))
        parts.append(
            _text(left + step * (k + 0.5), floor + 17, worker.name, size=11.5, anchor="middle", colour=_DIM)
        )
    return parts


def _legend(report: BalanceReport, top: float) -> list[str]:
    columns = {"literal": 430.0, "normalized": 610.0}
    parts = [
        _text(x, top - 12, f"spread of H {mode}", size=12, anchor="end", colour=_DIM)
        for mode, x in columns.items()
    ]
    parts.append(
        _text(
            _LEFT, top - 12, f"median over {report.n_orders} orders of arrival; 0: even", size=12, colour=_DIM
        )
    )
    for i, one in enumerate(report.outcomes):
        y = top + 12 + _ROW * i
        parts.append(
            f'<rect x="{_LEFT:.1f}" y="{y - 10:.1f}" width="12" height="12" rx="2"'
            f' fill="{_colour(report, one)}"/>'
        )
        parts.append(_text(_LEFT + 20, y, one.algorithm, size=13))
        spreads = (one.over_orders("literal"), one.over_orders("normalized"))
        for over, x in zip(spreads, columns.values(), strict=True):
            parts.append(_text(x, y, f"{over.median:.3f}", size=13, anchor="end"))
    return parts


def _colour(report: BalanceReport, one: Outcome) -> str:
    return _COLOURS[report.outcomes.index(one) % len(_COLOURS)]


def _line(x: float, y: float, width: float, *, dashed: bool = False) -> str:
    style = f'"{_INK}" stroke-dasharray="4 4" opacity=".7"' if dashed else f'"{_LINE}"'
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + width:.1f}" y2="{y:.1f}" stroke={style}/>'


def _text(x: float, y: float, words: str, *, size: float, anchor: str = "start", colour: str = _INK) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{colour}"'
        f' stroke="{_CARD}" stroke-width="3" paint-order="stroke">'
        f"{escape(words)}</text>"
    )

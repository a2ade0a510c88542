"""The experiment as a picture: the paper's bar chart, H as printed of each worker, and ours beside it.

Pure. Self-contained SVG, as the demo's: no script, no font from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.lab.bench import svg
from gangsched.lab.bench.balance.model import AS_PRINTED, BASELINE
from gangsched.lab.bench.balance.report import BalanceReport, Outcome
from gangsched.model.stated.evenness import Mode

_WIDTHS = (300.0, 560.0)
_PANEL_Y, _GAP = 210.0, 40.0
_LEFT, _TOP, _ROW = 28.0, 118.0, 21.0


def picture(report: BalanceReport) -> str:
    """Draws one SVG: two panels with a group of bars per worker and a bar per algorithm; and their
    spreads."""
    width = 2 * _LEFT + sum(_WIDTHS) + _GAP
    floor = _TOP + _PANEL_Y
    height = floor + 66 + _ROW * len(report.outcomes) + 50
    most_even = report.most_even
    published = [one for one in report.outcomes if one.algorithm in (BASELINE, AS_PRINTED)]
    right = _LEFT + _WIDTHS[0] + _GAP
    parts = [
        svg.text(_LEFT, 34, "Load against performance, H, of three unequal workers with 35 tasks", size=17),
        svg.text(
            *(_LEFT, 57),
            "bars: one order of arrival, simulated. Dashed: an even cluster, H = 1 on every worker",
            size=12.5,
            colour=svg.DIM,
        ),
        svg.text(_LEFT, 92, "The paper's chart: H literal", size=14),
        svg.text(right, 92, "Ours: H normalized", size=14),
        *_panel(report, published, "literal", left=_LEFT, width=_WIDTHS[0]),
        *_panel(report, report.outcomes, "normalized", left=right, width=_WIDTHS[1]),
        *_legend(report, floor + 66),
        svg.text(
            *(_LEFT, height - 18),
            f"Most even by H normalized: {most_even['normalized']}; by H literal: {most_even['literal']}",
            size=13.5,
        ),
    ]
    return svg.document(width, height, "H of each worker under several algorithms", parts)


def _panel(
    report: BalanceReport, shown: Sequence[Outcome], mode: Mode, *, left: float, width: float
) -> list[str]:
    floor = _TOP + _PANEL_Y
    top = max(1.25, *(h for one in shown for h in one.simulated[mode].h)) * 1.12
    even = floor - _PANEL_Y / top
    parts = [svg.line(left, floor, width), svg.line(left, even, width, dashed=True)]
    step = width / len(report.workers)
    bar = step * 0.84 / len(shown)
    for k, worker in enumerate(report.workers):
        begin = left + step * (k + 0.08)
        for i, one in enumerate(shown):
            h = one.simulated[mode].h[k]
            x, y = begin + bar * i, floor - _PANEL_Y * h / top
            parts.append(svg.bar(x + 1, y, bar - 2, max(floor - y, 0), _colour(report, one)))
            parts.append(svg.text(x + bar / 2, y - 5, f"{h:.2f}", size=10.5, anchor="middle"))
        parts.append(
            svg.text(
                left + step * (k + 0.5), floor + 17, worker.name, size=11.5, anchor="middle", colour=svg.DIM
            )
        )
    return parts


def _legend(report: BalanceReport, top: float) -> list[str]:
    columns = {"literal": 430.0, "normalized": 610.0}
    parts = [
        svg.text(x, top - 12, f"spread of H {mode}", size=12, anchor="end", colour=svg.DIM)
        for mode, x in columns.items()
    ]
    parts.append(
        svg.text(
            _LEFT,
            top - 12,
            f"median over {report.n_orders} orders of arrival; 0: even",
            size=12,
            colour=svg.DIM,
        )
    )
    for i, one in enumerate(report.outcomes):
        y = top + 12 + _ROW * i
        parts += svg.key(_LEFT, y, one.algorithm, _colour(report, one), size=13)
        spreads = (one.over_orders("literal"), one.over_orders("normalized"))
        for over, x in zip(spreads, columns.values(), strict=True):
            parts.append(svg.text(x, y, f"{over.median:.3f}", size=13, anchor="end"))
    return parts


def _colour(report: BalanceReport, one: Outcome) -> str:
    return svg.COLOURS[report.outcomes.index(one) % len(svg.COLOURS)]

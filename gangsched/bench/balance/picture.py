"""The experiment as a picture: H of each worker by algorithm, as bars, with the line of an even cluster.

Pure. Self-contained SVG, as the demo's: no script, no font from elsewhere.
"""

from __future__ import annotations

from html import escape

from gangsched.bench.balance.report import BalanceReport, Outcome

_PANEL_X, _PANEL_Y, _GAP = 268.0, 210.0, 18.0
_LEFT, _TOP, _BOTTOM = 24.0, 86.0, 106.0
_COLOURS = ("#58a6ff", "#e3b341", "#56d364")
_INK, _DIM, _CARD, _LINE = "#d6deeb", "#8b949e", "#0d1117", "#30363d"
_BAR_X = 52.0


def picture(report: BalanceReport) -> str:
    """One SVG: a panel an algorithm, a bar a worker."""
    n = len(report.outcomes)
    width = 2 * _LEFT + n * _PANEL_X + (n - 1) * _GAP
    height = _TOP + _PANEL_Y + _BOTTOM
    top = max(1.25, *(h for one in report.outcomes for h in one.simulated.h)) * 1.12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="H of workers">',
        "<title>H of each worker under three algorithms</title>",
        "<style>text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif}</style>",
        f'<rect x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10" fill="{_CARD}"'
        f' stroke="{_LINE}"/>',
        _text(_LEFT, 34, "Load against performance, H, of three unequal workers with 35 tasks", size=17),
        _text(
            _LEFT,
            57,
            "one order of arrival, simulated; spread: standard deviation of H,"
            f" median over {report.n_orders} orders",
            size=12.5,
            colour=_DIM,
        ),
    ]
    for i, one in enumerate(report.outcomes):
        parts.append(_panel(one, report.workers, _LEFT + i * (_PANEL_X + _GAP), top))
    parts.append(_text(_LEFT, height - 18, report.verdict, size=13.5))
    return "\n".join([*parts, "</svg>", ""])


def _panel(one: Outcome, workers: list[str], left: float, top: float) -> str:
    floor = _TOP + _PANEL_Y
    even = floor - _PANEL_Y / top
    parts = [
        f'<line x1="{left:.1f}" y1="{floor:.1f}" x2="{left + _PANEL_X:.1f}" y2="{floor:.1f}"'
        f' stroke="{_LINE}"/>',
    ]
    step = _PANEL_X / len(workers)
    for k, (worker, h) in enumerate(zip(workers, one.simulated.h, strict=True)):
        x, y = left + step * (k + 0.5) - _BAR_X / 2, floor - _PANEL_Y * h / top
        colour = _COLOURS[k % len(_COLOURS)]
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{_BAR_X:.0f}" height="{max(floor - y, 0):.1f}" rx="3"'
            f' fill="{colour}"/>'
        )
        middle = x + _BAR_X / 2
        parts.append(_text(middle, y - 6, f"{h:.2f}", size=13, anchor="middle"))
        parts.append(_text(middle, floor + 17, worker, size=11.5, anchor="middle", colour=_DIM))
    parts.append(
        f'<line x1="{left:.1f}" y1="{even:.1f}" x2="{left + _PANEL_X:.1f}" y2="{even:.1f}" stroke="{_INK}"'
        ' stroke-dasharray="4 4" opacity=".7"/>'
    )
    parts.append(_text(left, floor + 38, one.algorithm, size=13.5))
    parts.append(_text(left, floor + 55, f"spread {one.over_orders.median:.3f}", size=12.5, colour=_DIM))
    return "".join(parts)


def _text(x: float, y: float, words: str, *, size: float, anchor: str = "start", colour: str = _INK) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{colour}">'
        f"{escape(words)}</text>"
    )

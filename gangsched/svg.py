"""What our pictures are drawn with: SVG files that need no script and no font from elsewhere. Pure.

paint: how a shape looks, as attributes, such as `fill="#db6d28"` or one of the classes of `themed`. Not here:
what is drawn. Called by the modules named picture, and by the scenes of the docs.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

FONT = "system-ui,-apple-system,'Segoe UI',sans-serif"
CARD, DIM, GRID = 'class="card"', 'class="dim"', 'class="grid"'
"""Paints of a themed picture: its background, words that matter less, lines."""
_SQUARE = 12.0
# The last for two processes with wrong clocks, as far apart as times of day allow.
_TICKS_S = (60, 300, 600, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 604_800, 10**9, 2 * 10**10)
_MAX_TICKS = 12


def document(
    width: float, height: float, title: str, parts: Iterable[str], *, style: str, card: str, label: str = ""
) -> str:
    """Returns the whole file: a card with the parts on it. card: its paint; label: for readers who hear it,
    by default the title."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(label or title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            f'<rect x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10" {card}/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def themed(light: str, dark: str) -> str:
    """Returns the style of a picture that follows its reader's light or dark setting: rules of its own, and
    what they are on a dark page."""
    return f"""
text{{font-family:{FONT};fill:#1f2328}}
.card{{fill:#ffffff;stroke:#d0d7de}}.dim{{fill:#59636e}}.grid{{stroke:#d0d7de}}
{light}
@media(prefers-color-scheme:dark){{text{{fill:#d6deeb}}.card{{fill:#0d1117;stroke:#30363d}}.dim{{fill:#8b949e}}
.grid{{stroke:#30363d}}{dark}}}
"""


def text(x: float, y: float, words: str, *, size: float, anchor: str = "start", paint: str = "") -> str:
    """One line of words."""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}"'
    return f"<text {place}{paint and ' '}{paint}>{escape(words)}</text>"


def rect(x: float, y: float, width: float, height: float, *, paint: str, rx: float = 2) -> str:
    """A rectangle. rx: the radius of its corners."""
    size, corners = f'width="{width:.1f}" height="{height:.1f}"', f' rx="{rx:g}"' if rx else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size}{corners} {paint}/>'


def line(x1: float, y1: float, x2: float, y2: float, *, paint: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {paint}/>'


def path(steps: str, *, paint: str) -> str:
    """A line or an area along these steps."""
    return f'<path d="{steps}" {paint}/>'


def key(x: float, y: float, words: str, *, paint: str, size: float = 12, words_paint: str = "") -> list[str]:
    """An entry of a legend: a square, and what it means beside it."""
    square = rect(x, y - 10, _SQUARE, _SQUARE, paint=paint)
    return [square, text(x + 18, y, words, size=size, paint=words_paint)]


def tick_s(span_s: float) -> int:
    """Returns how far apart the marks of a time axis are, such that there are a dozen at most."""
    return next(one for one in _TICKS_S if span_s / one <= _MAX_TICKS)

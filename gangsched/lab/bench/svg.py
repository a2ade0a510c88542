"""Parts of the bench's pictures: one look for all of them. Pure; no script, no font from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

COLOURS = ("#8b949e", "#db6d28", "#e3b341", "#bc8cff", "#58a6ff", "#56d364")
INK, DIM, CARD, LINE = "#d6deeb", "#8b949e", "#0d1117", "#30363d"


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """The whole file: a card with `parts` on it."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            "<style>text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif}</style>",
            f'<rect x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10" fill="{CARD}"'
            f' stroke="{LINE}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def line(x: float, y: float, width: float, *, dashed: bool = False) -> str:
    """A horizontal line."""
    style = f'"{INK}" stroke-dasharray="4 4" opacity=".7"' if dashed else f'"{LINE}"'
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x + width:.1f}" y2="{y:.1f}" stroke={style}/>'


def text(x: float, y: float, words: str, *, size: float, anchor: str = "start", colour: str = INK) -> str:
    """Draws one line of words, readable on bars too."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{colour}"'
        f' stroke="{CARD}" stroke-width="3" paint-order="stroke">'
        f"{escape(words)}</text>"
    )


def bar(x: float, y: float, width: float, height: float, colour: str, *, round_px: float = 2) -> str:
    """A filled rectangle."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_px:g}"'
        f' fill="{colour}"/>'
    )

"""The look of the bench's pictures, and of the docs' scenes: shapes of gangsched.svg on a dark card. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gangsched import svg

COLOURS = ("#8b949e", "#db6d28", "#e3b341", "#bc8cff", "#58a6ff", "#56d364")
INK, DIM, CARD, LINE = "#d6deeb", "#8b949e", "#0d1117", "#30363d"


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """The whole file: a card with `parts` on it."""
    style = f"text{{font-family:{svg.FONT}}}"
    return svg.document(width, height, title, parts, style=style, card=f'fill="{CARD}" stroke="{LINE}"')


def line(x: float, y: float, width: float, *, dashed: bool = False) -> str:
    """A horizontal line."""
    paint = f'stroke="{INK}" stroke-dasharray="4 4" opacity=".7"' if dashed else f'stroke="{LINE}"'
    return svg.line(x, y, x + width, y, paint=paint)


def text(x: float, y: float, words: str, *, size: float, anchor: str = "start", colour: str = INK) -> str:
    """Draws one line of words, readable on bars too."""
    return svg.text(x, y, words, size=size, anchor=anchor, paint=_outlined(colour))


def bar(x: float, y: float, width: float, height: float, colour: str, *, round_px: float = 2) -> str:
    """A filled rectangle."""
    return svg.rect(x, y, width, height, paint=f'fill="{colour}"', rx=round_px)


def key(x: float, y: float, words: str, colour: str, *, size: float = 12, ink: str = INK) -> list[str]:
    """An entry of a legend."""
    return svg.key(x, y, words, paint=f'fill="{colour}"', size=size, words_paint=_outlined(ink))


def _outlined(colour: str) -> str:
    return f'fill="{colour}" stroke="{CARD}" stroke-width="3" paint-order="stroke"'

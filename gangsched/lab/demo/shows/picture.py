"""The picture: the frames of a demo as one SVG that changes from one to the next by itself.

Self-contained: no script, no font from elsewhere; CSS alone moves it, so that it also moves where a README
shows it as an image. Where nothing moves (a converter, or a reader who wants it so) it stands still on the
most telling frame. Pure: frames in, text out. Called by gangsched.lab.demo.command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from io import StringIO

from rich.cells import cell_len
from rich.color import blend_rgb
from rich.color_triplet import ColorTriplet
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from gangsched.lab.demo.shows.screen import Frame, Look, screen
from gangsched.svg import document

N_COLUMNS, N_LINES = 100, 29
_CELL_X, _CELL_Y = 8.4, 19.0
_FONT_PX = 14
_LEFT, _TOP, _BOTTOM = 18.0, 44.0, 14.0
_SECONDS_A_FRAME = 4.0

# Background, foreground, eight colours and their bright forms; legible on dark, and the card brings its own.
_THEME = TerminalTheme(
    (13, 17, 23),
    (214, 222, 235),
    [
        (72, 79, 88),
        (255, 106, 105),
        (86, 211, 100),
        (227, 179, 65),
        (88, 166, 255),
        (210, 130, 255),
        (57, 197, 207),
        (214, 222, 235),
    ],
    [
        (110, 118, 129),
        (255, 166, 87),
        (126, 231, 135),
        (242, 204, 96),
        (121, 192, 255),
        (255, 123, 192),
        (165, 214, 255),
        (255, 255, 255),
    ],
)
_LOOK = Look()
# Renderers differ in what they make of several spaces in a row.
_WORDS = re.compile(r"\S+(?: \S+)*")
_CELLS = (_LOOK.bound, _LOOK.reserved, _LOOK.free)


def picture(frames: Sequence[Frame], *, still: int) -> str:
    """One SVG of all frames; `still` is the one that is shown where nothing moves."""
    styles: dict[str, str] = {}
    groups = [_group(frame, styles) for frame in frames]
    width = 2 * _LEFT + N_COLUMNS * _CELL_X
    height = _TOP + max(n for _, n in groups) * _CELL_Y + _BOTTOM
    total_s = _SECONDS_A_FRAME * len(groups)
    parts = [_head(width)]
    for i, (body, _) in enumerate(groups):
        kept = " still" * (i == still)
        parts.append(f'<g class="f{kept}" style="animation-delay:{i * _SECONDS_A_FRAME - total_s:g}s">')
        parts.append(f'<g transform="translate({_LEFT:g} {_TOP:g})">{body}</g></g>')
    return document(
        *(width, height, "gangsched demo: gangs are reserved, bound together, and given back", parts),
        style=_css(styles, len(groups), total_s),
        card=f'fill="{_THEME.background_color.hex}" stroke="#30363d"',
        label="gangsched demo",
    )


def _css(styles: dict[str, str], n: int, total_s: float) -> str:
    fonts = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace'
    rules = [
        f"text{{font:{_FONT_PX}px {fonts}}}",
        ".f{opacity:0}.still{opacity:1}",
        *(f".{name}{{{rule}}}" for rule, name in styles.items()),
    ]
    if n > 1:
        shown = 100 / n
        rules.append(f"@keyframes turn{{0%{{opacity:1}}{shown:g}%,100%{{opacity:0}}}}")
        moving = f".f{{animation:turn {total_s:g}s step-end infinite}}"
        rules.append(f"@media (prefers-reduced-motion:no-preference){{{moving}}}")
    return "".join(rules)


def _head(width: float) -> str:
    dots = "".join(
        f'<circle cx="{22 + 20 * i}" cy="20" r="6" fill="{colour}"/>'
        for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    foreground = _THEME.foreground_color.hex
    return (
        f'{dots}<text x="{width / 2:.0f}" y="25" text-anchor="middle" fill="{foreground}" opacity=".7">'
        "make demo</text>"
    )


def _group(frame: Frame, styles: dict[str, str]) -> tuple[str, int]:
    """A frame as SVG and how many lines it has."""
    console = Console(
        file=StringIO(), width=N_COLUMNS, height=N_LINES, color_system="truecolor", force_terminal=True
    )
    rendered = console.render_lines(screen(frame, _LOOK, width=N_COLUMNS, height=N_LINES), pad=False)
    body = "".join(_line(line, y, styles) for y, line in enumerate(rendered))
    return body, len(rendered)


def _line(line: Iterable[Segment], y: int, styles: dict[str, str]) -> str:
    x, parts = 0, []
    for text, style, _ in line:
        colour = _colour(style or Style.null())
        if text.strip() and all(c in _CELLS for c in text):
            parts.append(_cells(text, x, y, colour, styles))
        else:
            name = _class(_text_rule(style or Style.null(), colour), styles)
            parts += [_words(words.group(), x + words.start(), y, name) for words in _WORDS.finditer(text)]
        x += cell_len(text)
    return "".join(parts)


def _words(words: str, x: int, y: int, name: str) -> str:
    return (
        f'<text class="{name}" x="{x * _CELL_X:g}" y="{(y + 0.72) * _CELL_Y:g}" '
        f'textLength="{cell_len(words) * _CELL_X:g}">{escape(words)}</text>'
    )


def _cells(text: str, x: int, y: int, colour: ColorTriplet, styles: dict[str, str]) -> str:
    """Devices as squares, whatever a font would make of their characters."""
    solid, hollow = "", ""
    for i, c in enumerate(text):
        left, top = (x + i) * _CELL_X, y * _CELL_Y
        if c == _LOOK.bound:
            solid += f"M{left + 0.7:.1f} {top + 4:.1f}h7v11h-7z"
        elif c == _LOOK.reserved:
            hollow += f"M{left + 1.4:.1f} {top + 4.7:.1f}h5.6v9.6h-5.6z"
        else:
            solid += f"M{left + 3.2:.1f} {top + 8.5:.1f}h2v2h-2z"
    parts = []
    if solid:
        parts.append(f'<path class="{_class(f"fill:{colour.hex}", styles)}" d="{solid}"/>')
    if hollow:
        rule = f"fill:{colour.hex};fill-opacity:.15;stroke:{colour.hex};stroke-width:1.4"
        parts.append(f'<path class="{_class(rule, styles)}" d="{hollow}"/>')
    return "".join(parts)


def _colour(style: Style) -> ColorTriplet:
    colour = style.color.get_truecolor(_THEME) if style.color else _THEME.foreground_color
    return blend_rgb(colour, _THEME.background_color, 0.4) if style.dim else colour


def _text_rule(style: Style, colour: ColorTriplet) -> str:
    return (
        f"fill:{colour.hex}"
        + ";font-weight:bold" * bool(style.bold)
        + ";font-style:italic" * bool(style.italic)
    )


def _class(rule: str, styles: dict[str, str]) -> str:
    return styles.setdefault(rule, f"s{len(styles)}")

"""The screen: one frame of the demo drawn with rich, a map of every GPU and a table of every gang.

Pure: a frame in, a renderable out, for the live table and for the picture alike. Text is never markup: what
users and servers wrote is shown as it is. Called by gangsched.lab.demo.shows.show and
gangsched.lab.demo.shows.picture.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import msgspec
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from gangsched.core.explaining.reports import DeviceView, GroupView, NodeView
from gangsched.core.types.group import GroupState
from gangsched.lab.demo.names import ELLIPSIS, host_list, id_list, seconds
from gangsched.lab.demo.scene import DELETED, ENDED, RUNNING, Scene, Seen, took_s

MIN_WIDTH, MIN_HEIGHT = 72, 20
_GANG_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red", "bright_cyan", "bright_magenta")
_STATE_STYLES = {
    RUNNING: "bold green",
    ENDED: "green",
    DELETED: "dim",
    GroupState.BOUND.value: "green",
    GroupState.BINDING.value: "green",
    GroupState.WAITING.value: "bold yellow",
    GroupState.UNSCHEDULABLE.value: "bold red",
    GroupState.BACKOFF.value: "red",
    GroupState.UNWINDING.value: "bold red",
}
_CAPTION_LINES = 5
# Headline, caption, empty lines, and the cursor's own.
_OTHER_LINES = _CAPTION_LINES + 5


class Look(msgspec.Struct, frozen=True):
    """What a terminal can show. Without colours gangs are told apart by letters; small ones are reserved."""

    colours: bool = True
    bound: str = "■"
    reserved: str = "□"
    free: str = "·"
    sick: str = "×"


PLAIN = Look(colours=False, bound="#", reserved="o", free=".", sick="x")


class Frame(msgspec.Struct, frozen=True):
    """What is shown at one moment: the scene, and the story's words about it."""

    scene: Scene
    heading: str = ""
    title: str = ""
    commands: tuple[str, ...] = ()
    shows: str = ""


def screen(frame: Frame, look: Look, *, width: int, height: int) -> RenderableType:
    """The whole frame, at most `height` lines where that is possible at all."""
    scene = frame.scene
    marks = _marks(scene.groups, look)
    racks = _map(scene.nodes, marks, look)
    return Group(
        _headline(frame, width),
        Text(),
        *_caption(frame, width),
        Text(),
        *racks,
        Text(),
        *_table(scene, marks, width=width, n_lines=height - _OTHER_LINES - len(racks)),
    )


def _headline(frame: Frame, width: int) -> Text:
    left = Text("gangsched demo", "bold")
    left.append(f"   {frame.heading}" if frame.heading else "", "dim")
    clock = f"{frame.scene.at_s:.1f} s"
    left.pad_right(max(1, width - left.cell_len - len(clock)))
    return left.append(clock, "dim")


def _caption(frame: Frame, width: int) -> list[Text]:
    """Always the same number of lines, so that the lines below do not jump."""
    lines = [Text(frame.title, "bold")]
    lines += [Text(f"$ {command}", "dim") for command in frame.commands]
    lines += [Text(line, "italic") for line in textwrap.wrap(frame.shows, width)]
    lines += [Text()] * (_CAPTION_LINES - len(lines))
    return [_trimmed(line, width) for line in lines[:_CAPTION_LINES]]


# -- the map -------------------------------------------------------------------------------------------


class _Mark(msgspec.Struct, frozen=True):
    """How a gang is distinguished: by style, or by letter."""

    bound: str
    reserved: str
    style: str


def _marks(groups: Iterable[Seen], look: Look) -> dict[str, _Mark]:
    marks: dict[str, _Mark] = {}
    for i, seen in enumerate(groups):
        if look.colours:
            style = _GANG_COLOURS[i % len(_GANG_COLOURS)]
            marks[seen.view.name] = _Mark(look.bound, look.reserved, style)
        else:
            marks[seen.view.name] = _Mark(chr(ord("A") + i % 26), chr(ord("a") + i % 26), "")
    return marks


def _map(nodes: Sequence[NodeView], marks: dict[str, _Mark], look: Look) -> list[Text]:
    """A line a rack, a cell a GPU; beside it what the cells mean and how many there are of each."""
    racks: dict[str, list[Sequence[DeviceView]]] = {}
    for node in nodes:
        devices = [device for of_one in node.devices.values() for device in of_one]
        racks.setdefault(node.topology or "nodes", []).append(devices)
    lines = [_rack(rack, racks[rack], marks, look) for rack in sorted(racks, key=lambda r: (len(r), r))]
    legend = _legend([device for node in racks.values() for row in node for device in row], look)
    beside = max((line.cell_len for line in lines), default=0) + 4
    for line, words in zip(lines, legend, strict=False):
        line.pad_right(beside - line.cell_len)
        line.append_text(words)
    return lines


def _rack(rack: str, nodes: Sequence[Sequence[DeviceView]], marks: dict[str, _Mark], look: Look) -> Text:
    line = Text(no_wrap=True).append(f"{rack}  ", "dim")
    for i, devices in enumerate(nodes):
        line.append(" " * bool(i))
        for device in devices:
            mark = marks.get(device.group)
            if mark is not None:
                line.append(mark.reserved if device.reserved else mark.bound, mark.style)
            elif device.pods:
                line.append("?")
            else:
                line.append(look.free if device.healthy else look.sick, "dim" if device.healthy else "red")
    return line


def _legend(devices: Sequence[DeviceView], look: Look) -> list[Text]:
    n_bound = sum(bool(d.pods) and not d.reserved for d in devices)
    n_reserved = sum(bool(d.pods) and d.reserved for d in devices)
    n_sick = sum(not d.healthy for d in devices)
    n_free = len(devices) - n_bound - n_reserved
    shown = [
        (look.bound if look.colours else "A", n_bound, f"bound, of {len(devices)} GPUs"),
        (look.reserved if look.colours else "a", n_reserved, "reserved, not bound"),
        (look.free, n_free, "free"),
    ]
    if n_sick:
        shown.append((look.sick, n_sick, "unhealthy"))
    return [Text(f"{glyph} {n:3} {what}", "dim", no_wrap=True) for glyph, n, what in shown]


# -- the table -----------------------------------------------------------------------------------------

_STATE_CELLS = len(GroupState.UNSCHEDULABLE.value)
_COUNTS = (("res.", 4), ("bound", 5), ("need", 4))
_TIME_CELLS = 6
_GAP = "  "


def _table(scene: Scene, marks: dict[str, _Mark], *, width: int, n_lines: int) -> list[Text]:
    """A line a gang, and a second one under it for why it does not run."""
    # Widths do not follow what is shown: columns that jump cannot be read.
    name_cells = min(24, 2 + max([8, *(cell_len(seen.short) for seen in scene.groups)]))
    head = Text(style="dim", no_wrap=True)
    head.append_text(_cell("  gang", name_cells)).append_text(_cell("state", _STATE_CELLS, gap=" "))
    for title, cells in _COUNTS:
        head.append_text(_cell(title, cells, right=True, gap=" "))
    head.append(" ").append_text(_cell("time", _TIME_CELLS, right=True)).append("nodes and device IDs")
    lines = [head]
    for seen, why in _that_fit(scene, n_lines - 1):
        lines.append(_row(seen, scene, marks[seen.view.name], name_cells, width))
        if why:
            lines.append(_trimmed(Text(f"    {why}", "yellow" if seen.view.holds else "red"), width))
    return lines


def _row(seen: Seen, scene: Scene, mark: _Mark, name_cells: int, width: int) -> Text:
    view = seen.view
    line = Text(style="dim" if seen.gone else "", no_wrap=True)
    line.append_text(_cell(f"{mark.bound} {seen.short}", name_cells, "" if seen.gone else mark.style))
    line.append_text(_cell(seen.word, _STATE_CELLS, _STATE_STYLES.get(seen.word, ""), gap=" "))
    counts = ("", "", view.n_needed) if seen.gone else (view.n_reserved, view.n_bound, view.n_needed)
    for count, (_, cells) in zip(counts, _COUNTS, strict=True):
        line.append_text(_cell(str(count), cells, "" if count else "dim", right=True, gap=" "))
    line.append(" ").append_text(_cell(_time(seen, scene), _TIME_CELLS, "dim", right=True))
    if view.holds and not seen.gone:
        line.append(host_list(view.nodes)).append(" ")
        line.append(_devices(view, width - line.cell_len), "dim")
    return _trimmed(line, width)


def _cell(text: str, cells: int, style: str = "", *, right: bool = False, gap: str = _GAP) -> Text:
    cell = Text(text, style, no_wrap=True)
    cell.truncate(cells, overflow="ellipsis")
    cell.align("right" if right else "left", cells)
    return cell.append(gap, "none")


def _trimmed(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line


def _that_fit(scene: Scene, n_lines: int) -> list[tuple[Seen, str]]:
    """Groups with why they do not run, as many as there is room for, in the order they came.

    Present groups before deleted ones, then the new before the old; reasons last.
    """
    groups = scene.groups
    by_worth = sorted(range(len(groups)), key=lambda i: (groups[i].gone, -i))[: max(1, n_lines)]
    n_left = n_lines - len(by_worth)
    shown = []
    for i in sorted(by_worth):
        why = _why(groups[i], scene) if n_left > 0 else ""
        n_left -= bool(why)
        shown.append((groups[i], why))
    return shown


def _time(seen: Seen, scene: Scene) -> str:
    """How long it took to bind; before that, for how long it has been waiting."""
    view = seen.view
    if seen.gone:
        return ""
    took = took_s(view)
    if took is not None:
        return seconds(took)
    began_s = view.since_s if view.state is GroupState.WAITING else (view.complete_since_s or view.since_s)
    return seconds(scene.now_s - began_s)


def _devices(view: GroupView, cells: int) -> str:
    """The first node's device IDs and how many more there are; short of room, without their node's name."""
    having = [holding for holding in view.holds if holding.ids]
    if not having:
        return ""
    more = len(view.ids) - len(having[0].ids)
    full = id_list(having[0].ids) + (f" +{more}" if more else "")
    if cell_len(full) <= cells:
        return full
    short = {id_list([text.replace(h.node, ELLIPSIS) for text in h.ids]) for h in having}
    return f"{short.pop()} each" if len(short) == 1 and more else full


def _why(seen: Seen, scene: Scene) -> str:
    view = seen.view
    if view.state is GroupState.WAITING and view.deadline_s is not None:
        left_s = max(0.0, view.deadline_s - scene.now_s)
        if left_s < 100:
            return f"given back in {left_s:.0f} s: {seen.why}"
    return seen.why

"""A trace as a waterfall of text: the tree of its spans, a bar for each, and its outcome.

Called by telemetry.showing.command. All input comes from a file or a server and is untrusted: control
characters are escaped, and nothing is interpreted as markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from gangsched.model.text.printable import clean, several
from gangsched.telemetry import names
from gangsched.telemetry.showing.reading import SpanView, TraceView

MAX_MEMBERS = 16
"""Events shown of one Bind."""
_MIN_BAR = 12
_MAX_DEPTH = 10
_NUMBERS = 22
"""Width of the start time, the duration and the space around them."""
_STYLES = {
    names.SCHEDULED: "green",
    names.ALLOWED: "green",
    names.UNSCHEDULABLE: "yellow",
    names.WAIT: "yellow",
    **dict.fromkeys(names.TROUBLE, "red"),
    names.STOPPED: "red",
}
_Line = tuple[str, SpanView]


def draw(trace: TraceView, *, gang: str, width: int, ascii_only: bool = False) -> list[Text | Padding]:
    """The printed lines of one trace."""
    lines = list(_tree(trace))
    name_width = min(max(len(prefix) + len(_title(span)) for prefix, span in lines), max(20, width // 2))
    bar_width = max(_MIN_BAR, min(60, width - name_width - _NUMBERS - 14))
    shown: list[Text | Padding] = [_head(trace, gang)]
    drawn: set[str] = set()
    for prefix, span in lines:
        if span.name == names.ATTEMPT:
            drawn.clear()
        shown.append(_line(prefix, span, trace, name_width, bar_width, ascii_only))
        for note, style in _notes(span):
            if note not in drawn:  # a reason is on the attempt and on the span that ended it
                drawn.add(note)
                text = Text(note, style=style, overflow="fold")
                shown.append(Padding(text, (0, 0, 0, len(prefix) + 4), expand=False))
    if trace.root is None:
        shown.append(Text("The root has not ended: the gang still waits, or its scheduler died.", "yellow"))
    return shown


def _tree(trace: TraceView) -> Iterator[_Line]:
    """Spans in tree order, each with its indentation; spans without their parent come first."""
    known = {span.span_id for span in trace.spans}
    children: dict[str, list[SpanView]] = {}
    for span in trace.spans:
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    seen: set[str] = set()
    # A file may contain impossible spans, such as one that is its own parent: spans not reachable from a root
    # come last.
    todo = [(0, span) for span in reversed([*children.get("", ()), *trace.spans])]
    while todo:
        depth, span = todo.pop()
        if span.span_id not in seen:
            seen.add(span.span_id)
            yield "  " * min(depth, _MAX_DEPTH), span
            todo += [(depth + 1, child) for child in reversed(children.get(span.span_id, ()))]


def _head(trace: TraceView, gang: str) -> Text:
    root = trace.root
    text = Text.assemble((clean(gang), "bold"), "  ", (_took(trace.end_ns - trace.start_ns), "bold"))
    if root is not None:
        verdict = str(root.attributes.get(names.VERDICT, ""))
        text.append("  ")
        text.append(clean(verdict), _STYLES.get(verdict, ""))
        attempts = root.attributes.get(names.ATTEMPTS)
        if isinstance(attempts, int):
            text.append(f"  {several(attempts, 'attempt')}")
    text.append(f"\ntrace {clean(trace.trace_id)}", "dim")
    linked = dict.fromkeys(link for span in trace.spans for link in span.links)
    if linked:
        text.append(f"\nlinked to trace {clean(', '.join(linked))}", "dim")
    return text


def _line(
    prefix: str, span: SpanView, trace: TraceView, name_width: int, bar_width: int, ascii_only: bool
) -> Text:
    verdict = str(span.attributes.get(names.VERDICT, ""))
    style = _STYLES.get(verdict, "")
    title = (prefix + _title(span))[:name_width]
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{title:<{name_width}} ")
    text.append(_bar(span, trace, bar_width, ascii_only), style or "cyan")
    text.append(f" {_took(span.start_ns - trace.start_ns):>9} {_took(span.end_ns - span.start_ns):>9} ")
    text.append(clean(verdict), style)
    return text


def _title(span: SpanView) -> str:
    number = span.attributes.get(names.ATTEMPT_NUMBER)
    title = clean(span.name)
    return f"{title} {number}" if span.name == names.ATTEMPT and isinstance(number, int) else title


def _bar(span: SpanView, trace: TraceView, width: int, ascii_only: bool) -> str:
    total = max(1, trace.end_ns - trace.start_ns)
    begin = min(width - 1, (span.start_ns - trace.start_ns) * width // total)
    end = min(width, -(-(span.end_ns - trace.start_ns) * width // total))
    length = max(1, end - begin)
    block, moment = ("=", "|") if ascii_only else ("━", "╹")
    bar = moment if span.end_ns == span.start_ns else block * length
    return (" " * begin + bar).ljust(width)


def _notes(span: SpanView) -> Iterator[tuple[str, str]]:
    """Yields the lines below a span: reason, nodes, pods."""
    attributes = span.attributes
    for key, word in ((names.WAITS_FOR, "waits for: "), (names.REASON, "")):
        if attributes.get(key):
            yield word + clean(str(attributes[key])), "dim"
    if attributes.get(names.NODES):
        yield f"nodes {_listed(attributes[names.NODES], attributes.get(names.N_NODES))}", "dim"
    if attributes.get(names.DEVICES):
        yield f"devices {_listed(attributes[names.DEVICES], attributes.get(names.N_DEVICES))}", "dim"
    if attributes.get(names.ATTEMPTS_UNTOLD):
        yield f"{clean(str(attributes[names.ATTEMPTS_UNTOLD]))} more failed attempts are not told", "dim"
    if span.name != names.BIND:
        return
    for name, at_ns, more in span.events[:MAX_MEMBERS]:
        style = "dim" if name in ("bound", names.RESERVED_CLAIM) else "red"
        devices = more.get(names.DEVICES)
        text = f"{more.get(names.POD_NAME, '')} {name} on {more.get(names.NODE_NAME, '')}"
        if name == names.RESERVED_CLAIM:
            text = f"{name} {more.get(names.CLAIM, '')}"
        text += f" after {_took(at_ns - span.start_ns)}"
        text += f": {_listed(devices, None)}" if devices else ""
        text += f" ({more[names.REASON]})" if more.get(names.REASON) else ""
        yield clean(text), style
    untold = attributes.get(names.EVENTS_UNTOLD)
    n_more = len(span.events) - MAX_MEMBERS + (untold if isinstance(untold, int) else 0)
    if n_more > 0:
        yield f"and {n_more} more", "dim"


def _listed(values: Any, count: Any) -> str:
    listed: Sequence[Any] = values if isinstance(values, list) else [values]
    text = clean(", ".join(str(one) for one in listed[:MAX_MEMBERS]))
    n_more = (count if isinstance(count, int) else len(listed)) - min(len(listed), MAX_MEMBERS)
    return f"{text} and {n_more} more" if n_more > 0 else text


def _took(ns: int) -> str:
    """`812 us`, `4.21 ms`, `63.0 s`, `12 min 5 s`."""
    us = ns / 1000
    if us < 1000:
        return f"{us:.0f} us"
    if us < 1e6:
        return f"{us / 1e3:.3g} ms" if us < 999_500 else "1 s"
    seconds = us / 1e6
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"

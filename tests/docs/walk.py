"""The walk of a pod through the code, as data and as a picture: docs/walk.svg.

Each step names the file and the class or function that takes it; a test looks them up, so a step that was
moved or renamed is drawn anew. Self-contained SVG on a card of its own: legible on light and dark pages.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple


class Step(NamedTuple):
    """What happens, where, and by whose hand: a class, a method or a function of that file."""

    file: str
    name: str
    does: str


IN = (
    Step("kube/watch/watch_state.py", "WatchState.lines", "bytes of the watch become typed objects"),
    Step("kube/watch/pod_reader.py", "PodReader.lines", "each object is read once, and frozen"),
    Step("process/loop.py", "Inbox.put", "bounded; events are taken in batches"),
)
CORE = (
    Step("core/scheduler.py", "Scheduler.handle", "events and the time in, effects out"),
    Step("core/groups/members/membership.py", "Membership.put_pods", "pods become members; room is counted"),
    Step("core/groups/reconciler.py", "Reconciler.reconcile", "the group moves along its table"),
    Step("core/state/line/queue.py", "SchedulingQueue.activate", "complete: in line, in QueueSort order"),
    Step("core/groups/attempts/attempts.py", "Attempts.run", "its turn, and its siblings'"),
    Step("core/cycle/cycle.py", "run_cycle", "Filter, Score, Reserve on a copy"),
    Step("core/binding/binder.py", "Binder.start", "node and devices are promised: BindPod"),
)
OUT = (
    Step("kube/effects/dispatcher.py", "Dispatcher.submit", "effects go to their lanes, binds first"),
    Step("kube/effects/binding_lane.py", "BindingLane.submit", "one POST a pod: node and device IDs"),
    Step("model/events.py", "BindSucceeded", "the answer is an event, to the inbox"),
)

# Characters in a box, of the widest fonts that readers may have.
MAX_WORDS, MAX_CODE = 44, 54
_WIDTH, _COLUMN, _BOX_W, _BOX_H, _GAP, _TOP = 1380, 452, 420, 54, 16, 84
_ROWS = max(len(IN), len(CORE), len(OUT))
_HEIGHT = _TOP + _ROWS * (_BOX_H + _GAP) + 14
_COLUMNS = (
    ("the edge: what is heard", IN, "#e8f1fb", "#2f6fb3"),
    ("the core: told, never asks", CORE, "#eef7ec", "#3f7d3a"),
    ("the edge: what is done", OUT, "#fbf0e4", "#a8641c"),
)


def picture(n_hops: int, n_files: int) -> str:
    """The three columns, with arrows along the walk, and how long it is in all."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif">',
        "<title>How a pod walks through gangsched: from the watch through the core to its Binding</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="10" fill="#ffffff" stroke="#d5d9de"/>',
    ]
    for k, (title, steps, fill, ink) in enumerate(_COLUMNS):
        x = 18 + k * _COLUMN
        parts.append(
            f'<text x="{x + _BOX_W / 2:g}" y="{_TOP - 34}" text-anchor="middle" font-size="17" '
            f'font-weight="600" fill="{ink}">{escape(title)}</text>'
        )
        for i, step in enumerate(steps):
            y = _y(i)
            parts.append(
                f'<rect x="{x}" y="{y}" width="{_BOX_W}" height="{_BOX_H}" rx="6" fill="{fill}" '
                f'stroke="{ink}"/><text x="{x + 12}" y="{y + 22}" font-size="14" fill="#1b1f24">'
                f'{escape(step.does)}</text><text x="{x + 12}" y="{y + 42}" font-size="12" '
                f'font-family="ui-monospace, monospace" fill="{ink}">{escape(step.file)}  '
                f"{escape(step.name)}</text>"
            )
            if i:
                parts.append(_arrow(f"M{x + 26} {y - _GAP} V{y}"))
    inner = 18 + _COLUMN - (_COLUMN - _BOX_W)
    # From the inbox up to the first step of the core, and from its last step up to the dispatcher.
    parts.append(_arrow(f"M{inner} {_middle(len(IN) - 1)} h14 V{_middle(0)} h18"))
    parts.append(_arrow(f"M{inner + _COLUMN} {_middle(len(CORE) - 1)} h14 V{_middle(0)} h18"))
    # The answer, back to the inbox below everything that it passes.
    last, below = 18 + 2 * _COLUMN + 40, _y(_ROWS - 1) + _BOX_H + 8
    parts.append(
        _arrow(f"M{last} {_y(len(OUT) - 1) + _BOX_H} V{below} H58 V{_y(len(IN) - 1) + _BOX_H}", dashed=True)
    )
    parts.append(
        f'<text x="{_WIDTH - 18}" y="{_HEIGHT - 16}" text-anchor="end" font-size="12" fill="#555">'
        f"the whole walk: {n_hops} calls from file to file, between {n_files} files</text>"
    )
    return "\n".join((*parts, "</svg>")) + "\n"


def _y(i: int) -> int:
    return _TOP + i * (_BOX_H + _GAP) - 20


def _middle(i: int) -> int:
    return _y(i) + _BOX_H // 2


def _arrow(path: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="#555" stroke-width="1.5"{dashes} marker-end="url(#tip)"/>'

"""The walk of a pod through the code, as data and as a picture: docs/walk.svg.

Each step names the file and the class or function that takes it; a test looks them up, so a step that was
moved or renamed is drawn anew. Self-contained SVG on a card of its own: legible on light and dark pages.
"""

from __future__ import annotations

from typing import NamedTuple

from gangsched.svg import FONT, document, path, rect, text


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
    Step("kube/effects/binding_lane.py", "OnceLane.submit", "one POST a pod: node and device IDs"),
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
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
    ]
    for k, (title, steps, fill, ink) in enumerate(_COLUMNS):
        x = 18 + k * _COLUMN
        bold = f'font-weight="600" fill="{ink}"'
        parts.append(text(x + _BOX_W / 2, _TOP - 34, title, size=17, anchor="middle", paint=bold))
        for i, step in enumerate(steps):
            y, code = _y(i), f'class="code" fill="{ink}"'
            parts += [
                rect(x, y, _BOX_W, _BOX_H, paint=f'fill="{fill}" stroke="{ink}"', rx=6),
                text(x + 12, y + 22, step.does, size=14, paint='fill="#1b1f24"'),
                text(x + 12, y + 42, f"{step.file}  {step.name}", size=12, paint=code),
            ]
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
    length = f"the whole walk: {n_hops} calls from file to file, between {n_files} files"
    parts.append(text(_WIDTH - 18, _HEIGHT - 16, length, size=12, anchor="end", paint='fill="#555"'))
    title = "How a pod walks through gangsched: from the watch through the core to its Binding"
    style = f"text{{font-family:{FONT}}}.code{{font-family:ui-monospace,monospace}}"
    card = 'fill="#ffffff" stroke="#d5d9de"'
    return document(_WIDTH, _HEIGHT, title, parts, style=style, card=card)


def _y(i: int) -> int:
    return _TOP + i * (_BOX_H + _GAP) - 20


def _middle(i: int) -> int:
    return _y(i) + _BOX_H // 2


def _arrow(steps: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return path(steps, paint=f'fill="none" stroke="#555" stroke-width="1.5"{dashes} marker-end="url(#tip)"')

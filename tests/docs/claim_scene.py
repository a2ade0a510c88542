"""Three nodes with a claim, as the core itself decides it in virtual time, as a picture: docs/claim.svg.

A gang of all three nodes is passed once, which is its bound here, and is promised a start; from then on only
what ends before it is let in. A test reads the scene, so the picture cannot show what the core does not do.
"""

from __future__ import annotations

from typing import NamedTuple

from gangsched import svg
from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.lab.bench.svg import CARD, DIM, INK, bar, document, key, line, text
from gangsched.lab.sim.objects import make_pod
from gangsched.model.walltime import WALLTIME_KEY
from tests.support.scenario import Cluster, cluster, gang, with_annotations

GANG = "large"
_STEP_S = 60.0
_HOUR_S = 3600.0
_END_S = 7 * _HOUR_S
# Name, walltime in minutes, and when it is submitted, in minutes.
_PODS = (
    ("job a", 240, 0),
    ("job b", 120, 0),
    ("job c", 60, 0),
    ("passes", 30, 20),
    ("says 3 h", 180, 65),
    ("1 h 30", 90, 70),
    ("2 h", 120, 75),
    ("55 min", 55, 80),
)
_RUNNING, _FILL, _LATER, _GANG = "#58a6ff", "#56d364", "#8b949e", "#db6d28"


class Ran(NamedTuple):
    """A pod on a node; hours."""

    name: str
    node: str
    begin: float
    end: float


class Scene(NamedTuple):
    """ran: in order of starts; hours: when the claim was made, and the start that was promised then."""

    ran: tuple[Ran, ...]
    claimed: float
    promised: float


def scene() -> Scene:
    """Runs it."""
    c = cluster(nodes=3, gpus=8, settings=Settings(queueing=QueueingSettings(1, mode="hard")))
    zero_s, due = c.now_s, sorted(_PODS, key=lambda one: one[2])
    minutes = {name.replace(" ", "-"): walltime for name, walltime, _ in _PODS} | {GANG: 75}
    began: dict[str, float] = {}
    ran: list[Ran] = []
    claimed = promised = 0.0
    has_gang = False
    while c.now_s - zero_s <= _END_S:
        at_s = c.now_s - zero_s
        while due and due[0][2] * 60 <= at_s:
            name, walltime, _ = due.pop(0)
            pod = [make_pod(name.replace(" ", "-"), gpus=8)]
            c.submit(with_annotations(pod, {WALLTIME_KEY: f"{walltime}m"})).run()
        if not has_gang and at_s >= 600:
            has_gang = True
            c.submit(with_annotations(gang(GANG, pods=3, gpus=8), {WALLTIME_KEY: "75m"})).run()
        _end_the_due(c, minutes, began, ran, zero_s)
        claims = c.scheduler.shared.claims
        if claims is not None and claims.by_key and not claimed:
            claimed, promised = at_s / _HOUR_S, (claims.all[0].start_s - zero_s) / _HOUR_S
        c.wait(_STEP_S)
    for name, begin_s in began.items():
        for left in c.pods.values():
            if left.metadata.name == name:
                begin, end = (begin_s - zero_s) / _HOUR_S, _END_S / _HOUR_S
                ran.append(Ran(name.replace("-", " "), left.spec.node_name, begin, end))
    return Scene(tuple(sorted(ran, key=lambda one: (one.begin, one.name))), claimed, promised)


def _end_the_due(
    c: Cluster, minutes: dict[str, int], began: dict[str, float], ran: list[Ran], zero_s: float
) -> None:
    for pod in list(c.pods.values()):
        name, node = pod.metadata.name, pod.spec.node_name
        if not node:
            continue
        begin_s = began.setdefault(name, c.now_s)
        kind = GANG if name.startswith(f"{GANG}-") else name
        if c.now_s - begin_s >= minutes[kind] * 60:
            begin, end = (begin_s - zero_s) / _HOUR_S, (c.now_s - zero_s) / _HOUR_S
            ran.append(Ran(kind.replace("-", " "), node, begin, end))
            c.delete(name).run()


_LEFT, _TOP, _HOUR, _ROW, _BAR = 84.0, 74.0, 108.0, 52.0, 34.0


def picture(of: Scene) -> str:
    """A row for each node, hours to the right."""
    nodes = sorted({one.node for one in of.ran})
    bottom = _TOP + len(nodes) * _ROW
    gang_from = min(one.begin for one in of.ran if one.name == GANG)
    parts = [
        text(_LEFT, 30, "A gang of three nodes is promised a start, and others fill in before it", size=17),
        *(text(_x(h), bottom + 18, f"{h} h", size=12, anchor="middle", colour=DIM) for h in range(8)),
    ]
    for i, node in enumerate(nodes):
        y = _TOP + i * _ROW
        parts += [text(16, y + 23, node, size=13), line(_LEFT, y + _BAR + 9, 7 * _HOUR)]
        parts.append(_kept(_x(of.claimed), y, _x(gang_from) - _x(of.claimed)))
        parts += [_drawn(one, y, of) for one in of.ran if one.node == node]
    claimed = (
        f"passed as often as it may be: room is kept from here, and a start promised by {of.promised:.0f} h"
    )
    parts += [
        _mark(_x(of.claimed), bottom),
        text(_x(of.claimed) + 6, 58, claimed, size=12, colour=INK),
        *_legend(bottom + 46),
    ]
    return document(_LEFT + 7 * _HOUR + 24, bottom + 62, "Three nodes with a claim", parts)


def _drawn(one: Ran, y: float, of: Scene) -> str:
    colour = _RUNNING if one.begin < of.claimed else _FILL if one.end <= of.promised + 0.1 else _LATER
    colour = _GANG if one.name == GANG else colour
    x, width = _x(one.begin) + 1, (one.end - one.begin) * _HOUR - 2
    name = text(x + width / 2, y + 22, one.name, size=12, anchor="middle")
    return bar(x, y, width, _BAR, colour) + (name if width > 7 * len(one.name) else "")


def _kept(x: float, y: float, width: float) -> str:
    paint = f'fill="{CARD}" stroke="{_GANG}" stroke-dasharray="5 4"'
    return svg.rect(x, y, width, _BAR, paint=paint)


def _mark(x: float, bottom: float) -> str:
    return svg.line(x, 46, x, bottom, paint=f'stroke="{_GANG}" stroke-width="1.5"')


def _legend(y: float) -> list[str]:
    parts, x = [], _LEFT
    for colour, words in (
        (_RUNNING, "ran before"),
        (_FILL, "fills in: it says that it ends before"),
        (_GANG, "the gang"),
        (_LATER, "would have run into it: waits"),
    ):
        parts += key(x, y, words, colour)
        x += 44 + 6.6 * len(words)
    return parts


def _x(hours: float) -> float:
    return _LEFT + hours * _HOUR

"""Two queues on four nodes over ten hours, as the core itself decides it in virtual time: docs/queues.svg.

The one that has had the whole cluster gives back what is guaranteed to the other at once, and shares the rest
as its jobs end. A test reads the scene, so the picture cannot show what the core does not do.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from gangsched import svg
from gangsched.lab.bench.svg import DIM, INK, document, key, line, text
from gangsched.model.objects import Pod
from tests.core.queued import GPU, pods, queued
from tests.support.scenario import Cluster, gang

RESEARCH, REST = "research", "rest"
N_GPUS = 32
GUARANTEED = 16
SHARE = 2 / 3
ASKED_S, RESTED_S = 2 * 3600.0, 7 * 3600.0
_OURS = f"""
fairness: {{compare: [{GPU}], halfLife: 1h}}
queues:
- {{name: {RESEARCH}, share: 2, guaranteed: {{{GPU}: {GUARANTEED}}}, namespaces: [r]}}
- {{name: {REST}, share: 1, namespaces: [x]}}
"""
_SEED = 7
_STEP_S = 300.0
# Some are tried again only then.
_BACKOFF_S = 15.0
_END_S = 10 * 3600.0
# Of each queue, while it has work.
_N_WAITING = 24


class Held(NamedTuple):
    """GPUs that both hold from this hour on."""

    hour: float
    research: int
    rest: int


class _Day:
    """Jobs of one GPU that run for 20 to 90 minutes, and a gang of two whole nodes for five hours."""

    def __init__(self) -> None:
        self.c: Cluster = queued(_OURS, nodes=4, gpus=8)
        self.c.wait(10.0)  # whatever was new at the start has been tried
        self.from_s = self.c.now_s
        self._rng = Random(_SEED)
        self._ends_s: dict[str, float] = {}
        self._n = 0

    def step(self) -> Held:
        """Jobs end, others come and are tried; what both hold then."""
        at_s = self.c.now_s - self.from_s
        for pod in self._there():
            if self._ends_s.get(pod.metadata.uid, at_s + 1.0) <= at_s:
                self.c.delete(pod.metadata.name).run()
        if at_s == ASKED_S:
            self.c.submit(gang("large", pods=2, gpus=8, namespace="r")).run()
        for namespace, has_work in (("x", True), ("r", ASKED_S <= at_s < RESTED_S)):
            self._fill_up(namespace, _N_WAITING if has_work else 0)
        if at_s >= RESTED_S:
            theirs = [one for one in self._there() if one.metadata.namespace == "r"]
            self.c.delete(*(one.metadata.name for one in theirs if not one.spec.node_name)).run()
        for pod in self._there():
            if pod.spec.node_name and pod.metadata.uid not in self._ends_s:
                is_large = pod.metadata.name.startswith("large-")
                end_s = RESTED_S if is_large else at_s + self._rng.uniform(1200.0, 5400.0)
                self._ends_s[pod.metadata.uid] = end_s
        self.c.wait(_BACKOFF_S)
        held = (self.c.queue_book().used(queue).get(GPU, 0) for queue in (RESEARCH, REST))
        self.c.wait(_STEP_S - _BACKOFF_S)
        return Held(at_s / 3600.0, *held)

    def _there(self) -> list[Pod]:
        return list(self.c.pods.values())

    def _fill_up(self, namespace: str, n_waiting: int) -> None:
        """So many wait; at the start enough to fill the cluster."""
        for _ in range(3 * N_GPUS):
            left = [one for one in self._there() if one.metadata.namespace == namespace]
            if sum(not one.spec.node_name for one in left) >= n_waiting:
                return
            self._n += 1
            self.c.submit(pods(namespace, f"{namespace}{self._n}")).run()


def scene() -> tuple[Held, ...]:
    """Runs it."""
    day = _Day()
    return tuple(day.step() for _ in range(int(_END_S / _STEP_S)))


_LEFT, _TOP, _HOUR, _GPU = 84.0, 80.0, 76.0, 7.0
_RESEARCH, _REST = "#58a6ff", "#db6d28"


def picture(of: tuple[Held, ...]) -> str:
    """GPUs upwards, hours to the right."""
    bottom, width = _TOP + N_GPUS * _GPU, _END_S / 3600.0 * _HOUR
    parts = [text(_LEFT, 30, "Two queues with shares 2 and 1; 16 of 32 GPUs are guaranteed to one", size=17)]
    parts.append(_area([(one.hour, one.research + one.rest) for one in of], bottom, _REST))
    parts.append(_area([(one.hour, one.research) for one in of], bottom, _RESEARCH))
    for n, words in ((GUARANTEED, "guaranteed"), (N_GPUS * SHARE, "2 of 3")):
        parts += [line(_LEFT, bottom - n * _GPU, width, dashed=True)]
        parts += [text(_LEFT - 8, bottom - n * _GPU + 4, words, size=12, anchor="end")]
    parts += [text(_LEFT - 8, _TOP + 10, f"{N_GPUS} GPUs", size=12, anchor="end")]
    for at_s, words, anchor in (
        (ASKED_S, "research has work again", "start"),
        (RESTED_S, "research has none left", "start"),
    ):
        x = _LEFT + at_s / 3600.0 * _HOUR
        parts.append(svg.line(x, 62, x, bottom, paint=f'stroke="{INK}"'))
        parts.append(text(x + 6, 68, words, size=12, anchor=anchor))
    for hour in range(11):
        x = _LEFT + hour * _HOUR
        parts.append(text(x, bottom + 18, f"{hour} h", size=12, anchor="middle", colour=DIM))
    x = _LEFT
    for colour, words in ((_RESEARCH, "held by research"), (_REST, "held by rest")):
        parts += key(x, bottom + 46, words, colour)
        x += 44 + 6.6 * len(words)
    return document(_LEFT + width + 24, bottom + 62, "What two queues hold over ten hours", parts)


def _area(tops: Sequence[tuple[float, int]], bottom: float, colour: str) -> str:
    """From the bottom up to a number of GPUs, which holds until the next hour."""
    path, x = f"M{_LEFT:.1f} {bottom:.1f}", _LEFT
    for (hour, n), (until, _) in zip(tops, [*tops[1:], (_END_S / 3600.0, 0)], strict=True):
        x = _LEFT + until * _HOUR
        path += f"L{_LEFT + hour * _HOUR:.1f} {bottom - n * _GPU:.1f}H{x:.1f}"
    return svg.path(f"{path}V{bottom:.1f}Z", paint=f'fill="{colour}"')

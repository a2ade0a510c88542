"""When a scheduler's process looks for garbage that reference counts do not free: never during a turn.

A turn's objects contain few cycles, so collections find next to nothing, and each of them stops the process
for as long as it takes to visit every object that it looks at: about 0.2 ms for a thousand.

| | when | what it visits |
|---|---|---|
| young | between two turns, when 50,000 more objects exist than after the last | what came since |
| full | after 5 young ones, if nothing has been tried for a second | all but the first lists |
| full | after 5 young ones, never idle, if peak memory has grown by a quarter | all but the first lists |
| Python's own | in a turn that alone makes 200,000 objects that stay; in the start | the youngest |

Lives here: that policy. Not here: where a turn ends, and whether the queue is idle (loop).
Called by the assembly; by benches, which have to measure what it costs; cli and sim use the threshold alone.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The objects made for each pod contain no cycles. At the default of 700 Python would look a hundred times for
# every gang's worth of JSON.
_PYTHONS_OWN = 200_000
# About 10 ms, which the turn that comes then waits for. Of fewer at once more still live, and are visited in
# vain: at 10,000 a pod cost 5 us more of CPU, of some 157 by the bench; at 50,000 no more than before.
_YOUNG = 50_000
# What became garbage after its young collection is at most this many times _YOUNG, when a full one is due.
_YOUNG_BEFORE_FULL = 5
_NEVER = 2**31 - 1
# A full collection takes 0.2 s with 560,000 objects; no group should wait for it.
_IDLE_S = 1.0
_LOOK_EVERY_S = 5.0
_GROWTH = 1.25


def collect_rarely() -> None:
    """From here on Python looks for garbage by itself when 200,000 more objects exist."""
    gc.set_threshold(_PYTHONS_OWN, *gc.get_threshold()[1:])


@contextmanager
def as_in_a_scheduler() -> Iterator[GarbageCollection]:
    """For benches: what is there now is as a scheduler's first lists; in the end all is as it was before."""
    thresholds = gc.get_threshold()
    gc.collect()
    garbage = GarbageCollection()
    garbage.begin()
    garbage.settle()
    try:
        yield garbage
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _peak_memory() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class GarbageCollection:
    """Keeps collections out of a scheduler's turns."""

    def __init__(
        self,
        *,
        n_new: Callable[[], int] = lambda: gc.get_count()[0],
        collect: Callable[[int], int] = gc.collect,
        peak_memory: Callable[[], int] = _peak_memory,
        freeze: Callable[[], None] = gc.freeze,
    ) -> None:
        """`n_new`: how many more objects there are than after the last collection. `collect`: gc.collect."""
        self._n_new = n_new
        self._collect = collect
        self._peak_memory = peak_memory
        self._freeze = freeze
        self._has_settled = False
        self._n_young = 0
        self._full_at = 0

    def begin(self) -> None:
        """At the start: modules are permanent, and no collection visits them (15 of 25 ms)."""
        self._freeze()
        gc.set_threshold(_PYTHONS_OWN, _NEVER, _NEVER)

    def settle(self) -> None:
        """Once the first lists are in: their objects live long, and no collection visits them either.

        Later ones are visited: what is frozen and becomes garbage with a cycle would stay for ever.
        """
        if not self._has_settled:
            self._has_settled = True
            self._freeze()
            self._full_at = self._peak_memory()

    @property
    def is_young_due(self) -> bool:
        """Whether `between_turns` would collect."""
        return self._has_settled and self._n_new() >= _YOUNG

    def between_turns(self) -> None:
        """Collects what is young, if there is much of it."""
        if self.is_young_due:
            self._collect(1)
            self._n_young += 1

    def look(self, *, idle_s: float) -> bool:
        """Collects everything if that is due and the process is idle, or has grown too much to wait for that.

        `idle_s`: how long nothing has been tried; 0: something waits to be done.
        """
        if self._n_young < _YOUNG_BEFORE_FULL:
            return False
        if idle_s < _IDLE_S and self._peak_memory() < self._full_at * _GROWTH:
            return False
        # If it was garbage that has grown, what grows now from less to the same peak again is that too.
        if self._collect(2) < _YOUNG:
            self._full_at = self._peak_memory()
        self._n_young = 0
        return True

    async def run(self, idle_s: Callable[[], float]) -> None:
        """Looks from time to time, until cancelled; a task of its own is never within a turn."""
        # Not above: the command sets the threshold first, and then imports what is large.
        from anyio import sleep

        while True:
            await sleep(_LOOK_EVERY_S)
            self.look(idle_s=idle_s())

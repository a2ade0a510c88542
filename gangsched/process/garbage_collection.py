"""When a scheduler's process collects garbage that reference counts do not free: never during a turn.

A turn's objects contain few cycles, so collections find next to nothing, and each stops the process while it
visits its objects: about 0.2 ms for a thousand.

| | when | what it visits |
|---|---|---|
| young | between two turns, when 50,000 more objects exist than after the last | objects made since |
| full | after 5 young ones, if nothing has been tried for a second | all but the first lists |
| full | after 5 young ones, never idle, if peak memory has grown by a quarter | all but the first lists |
| Python's own | in a turn that makes 200,000 lasting objects; at the start | the youngest |

Lives here: that policy. Not here: where a turn ends, and whether the queue is idle (loop).
Called by the assembly, and by benches to measure its cost; cli and sim use only the threshold.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The objects made for each pod contain no cycles. At the default of 700 Python would collect a hundred times
# for every gang's worth of JSON.
_PYTHONS_OWN = 200_000
# About 10 ms, which delays the next turn. With a smaller number more objects are still alive and are visited
# in vain: at 10,000 a pod cost 5 us more of CPU, of some 157 by the bench; at 50,000 no more than before.
_YOUNG = 50_000
# When a full collection is due, at most this many times _YOUNG became garbage after a young one.
_YOUNG_BEFORE_FULL = 5
_NEVER = 2**31 - 1
# A full collection takes 0.2 s with 560,000 objects; no group should wait for it.
_IDLE_S = 1.0
_LOOK_EVERY_S = 5.0
_GROWTH = 1.25


def collect_rarely() -> None:
    """Makes Python collect garbage by itself only when 200,000 more objects exist."""
    gc.set_threshold(_PYTHONS_OWN, *gc.get_threshold()[1:])


@contextmanager
def as_in_a_scheduler() -> Iterator[GarbageCollection]:
    """For benches: treats existing objects like a scheduler's first lists; restores everything at the end."""
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
        """`n_new`: counts the objects made since the last collection. `collect`: gc.collect."""
        self._n_new = n_new
        self._collect = collect
        self._peak_memory = peak_memory
        self._freeze = freeze
        self._has_settled = False
        self._n_young = 0
        self._full_at = 0

    def begin(self) -> None:
        """Call at the start: modules are permanent, and no collection visits them (15 of 25 ms)."""
        self._freeze()
        gc.set_threshold(_PYTHONS_OWN, _NEVER, _NEVER)

    def settle(self) -> None:
        """Call once the first lists are complete: their objects live long, so no collection visits them.

        Later objects are visited: a frozen object in a cycle would stay for ever when it becomes garbage.
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
        """Collects young objects, if there are many."""
        if self.is_young_due:
            self._collect(1)
            self._n_young += 1

    def look(self, *, idle_s: float) -> bool:
        """Collects everything if that is due and the process is idle, or has grown too much to wait.

        `idle_s`: how long no group has been tried; 0: some work waits.
        """
        if self._n_young < _YOUNG_BEFORE_FULL:
            return False
        if idle_s < _IDLE_S and self._peak_memory() < self._full_at * _GROWTH:
            return False
        # If the growth was garbage, then growing to the same peak again will be garbage too.
        if self._collect(2) < _YOUNG:
            self._full_at = self._peak_memory()
        self._n_young = 0
        return True

    async def run(self, idle_s: Callable[[], float]) -> None:
        """Looks from time to time, until cancelled; as a separate task it never runs within a turn."""
        # Not at the top: the command sets the threshold first, and then imports the large modules.
        from anyio import sleep

        while True:
            await sleep(_LOOK_EVERY_S)
            self.look(idle_s=idle_s())

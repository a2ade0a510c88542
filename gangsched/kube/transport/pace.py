"""How long to let events gather before handling them together.

Called by kube.watch.reflector, kube.transport.readers, loop.
"""

from __future__ import annotations

import math

# The load is high when more than this many arrive within RECENT_S. A gang of 16, bound and echoed, or one of
# 32, answered, stays below; 300 a second exceed it, even on a slow server.
MANY = 60
RECENT_S = 0.2
_STEP = 1.25


class Pace:
    """Decides from recent arrivals: no delay when it is quiet, `hold_s` when the load is high.

    `_n` is the number of recent arrivals, decaying evenly over RECENT_S.
    """

    def __init__(self, hold_s: float = 0.0, *, many: int = MANY) -> None:
        self._hold_s = hold_s
        self._many = many
        self._n = 0.0
        self._at_s = -math.inf

    def hold_s(self, n_come: int, now_s: float) -> float:
        """Seconds to wait before the next read, after one that found `n_come`."""
        return self._hold_s if self.is_much(n_come, now_s) else 0.0

    def is_much(self, n_come: int, now_s: float) -> bool:
        """Whether the load is high, after a read that found `n_come`."""
        self._n = self._n * max(0.0, 1.0 - (now_s - self._at_s) / RECENT_S) + n_come
        self._at_s = now_s
        return self._n > self._many


class Patience:
    """Estimates how long until about a quarter of the awaited answers have arrived, learned from each read.

    Meanwhile the server works on the rest.
    """

    def __init__(self, shortest_s: float, longest_s: float) -> None:
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._hold_s = shortest_s

    def hold_s(self, n_come: int, n_awaited: int) -> float:
        """Seconds to wait before the next read, after one that found `n_come` of `n_awaited`."""
        if 4 * n_come > n_awaited:
            self._hold_s = max(self._hold_s / _STEP, self._shortest_s)
        else:
            self._hold_s = min(self._hold_s * _STEP, self._longest_s)
        return self._hold_s

"""How many devices are free at each later time, by the stated ends. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class Profile:
    """A step function of time: free devices from each time on until the next."""

    def __init__(self, now_s: float, n_free: int, ends: Iterable[tuple[float, int]]) -> None:
        """ends: (time, number of devices that come free), earliest first."""
        self._times = [now_s]
        self._free = [n_free]
        for at_s, n in ends:
            if at_s > self._times[-1]:
                self._times.append(at_s)
                self._free.append(self._free[-1])
            self._free[-1] += n

    def fits_now(self, n: int, for_s: float) -> bool:
        """Whether this many devices are free from now on for this long."""
        return self._fits(0, n, for_s)

    def earliest_s(self, n: int, for_s: float) -> float:
        """Returns when this many devices are first free for this long; in the last step all are free."""
        return next(self._times[k] for k in range(len(self._times)) if self._fits(k, n, for_s))

    def take(self, from_s: float, for_s: float, n: int) -> None:
        """Takes this many devices for this long."""
        begin, end = self._step_at(from_s), self._step_at(from_s + for_s)
        for k in range(begin, end):
            self._free[k] -= n

    def _fits(self, k: int, n: int, for_s: float) -> bool:
        times, free = self._times, self._free
        until_s = times[k] + for_s
        while k < len(times) and times[k] < until_s:
            if free[k] < n:
                return False
            k += 1
        return True

    def _step_at(self, at_s: float) -> int:
        k = bisect_left(self._times, at_s)
        if k == len(self._times) or self._times[k] != at_s:
            self._times.insert(k, at_s)
            self._free.insert(k, self._free[k - 1])
        return k

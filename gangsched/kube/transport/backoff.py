"""The wait before the next try. Called by every lane that talks to the API server."""

from __future__ import annotations

from random import Random


class Backoff:
    """Exponential, with jitter in its upper half: clients that failed together do not retry together."""

    def __init__(self, rng: Random, *, first_s: float = 0.5, max_s: float = 30.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def next_s(self, retry_after_s: float | None = None) -> float:
        """Seconds to wait now; never less than the server's Retry-After, and a little more for jitter."""
        wait_s = self._next_s * self._rng.uniform(0.5, 1.0)
        self._next_s = min(self._next_s * 2, self._max_s)
        if retry_after_s is not None:
            # Cap the server's Retry-After: we never wait for an hour.
            wait_s = max(wait_s, min(retry_after_s, self._max_s) * self._rng.uniform(1.0, 1.25))
        return wait_s

    def reset(self) -> None:
        """Success: the next failure starts with a short wait again."""
        self._next_s = self._first_s

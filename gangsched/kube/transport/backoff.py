"""How long to wait before trying again. Called by every lane that talks to the API server."""

from __future__ import annotations

from random import Random


class Backoff:
    """Exponential, jittered in its upper half: clients that failed together do not return together."""

    def __init__(self, rng: Random, *, first_s: float = 0.5, max_s: float = 30.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def next_s(self, retry_after_s: float | None = None) -> float:
        """Seconds to wait now; never less than what the server asked for, and a little more for jitter."""
        wait_s = self._next_s * self._rng.uniform(0.5, 1.0)
        self._next_s = min(self._next_s * 2, self._max_s)
        if retry_after_s is not None:
            # A server that asks for an hour is not believed: nothing that we wait for may take so long.
            wait_s = max(wait_s, min(retry_after_s, self._max_s) * self._rng.uniform(1.0, 1.25))
        return wait_s

    def reset(self) -> None:
        """It worked: the next failure starts small again."""
        self._next_s = self._first_s

"""Counts the API server's answers by method and status, over all connections. Kept by
kube.access.credentials.
"""

from __future__ import annotations

from collections.abc import Callable

SILENCE = 0


class AnswerTally:
    """Counts by method and status; a request that got no answer, or could not be sent, counts as SILENCE."""

    __slots__ = ("_counts", "doubtful", "on_answer")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], int] = {}
        self.doubtful: dict[str, int] = {}
        """By method: doubtful answers, not from the API server or not about the requested object."""
        self.on_answer: Callable[[int], None] | None = None
        """Called with each status; set during an outage, as an answer ends it."""

    def doubt(self, method: str) -> None:
        """Count one doubtful answer."""
        self.doubtful[method] = self.doubtful.get(method, 0) + 1

    def count(self, method: str, status: int) -> None:
        """Count one answer."""
        key = (method, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        on_answer = self.on_answer  # another thread's answer may end the outage meanwhile
        if on_answer is not None:
            on_answer(status)

    def by_code_and_method(self) -> dict[tuple[str, str], int]:
        """With client-go's labels: <error> when there was no answer."""
        return {
            (str(status) if status != SILENCE else "<error>", method): n
            for (method, status), n in self._counts.items()
        }

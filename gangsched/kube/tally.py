"""Answers: how often the API server answered what, over all connections to it. Kept by kube.credentials."""

from __future__ import annotations

from collections.abc import Callable

SILENCE = 0


class Answers:
    """By method and status; SILENCE where a request was sent, or tried to be, and nothing came back."""

    __slots__ = ("_counts", "doubtful", "hear")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], int] = {}
        self.doubtful: dict[str, int] = {}
        """By method: answers that were not the API server's own word about what was asked."""
        self.hear: Callable[[int], None] | None = None
        """Told of each status; set while there is trouble that an answer would end."""

    def doubt(self, method: str) -> None:
        """One more of those."""
        self.doubtful[method] = self.doubtful.get(method, 0) + 1

    def count(self, method: str, status: int) -> None:
        """One more."""
        key = (method, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        if self.hear is not None:
            self.hear(status)

    def by_code_and_method(self) -> dict[tuple[str, str], int]:
        """As client-go labels them: <error> where there was no answer."""
        return {
            (str(status) if status != SILENCE else "<error>", method): n
            for (method, status), n in self._counts.items()
        }

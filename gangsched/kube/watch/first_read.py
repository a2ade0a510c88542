"""FirstRead: how soon to retry a kind that has never been read, and when to go on without it.

Nothing is decided before every kind has been read, so a kind that fails is retried within seconds. An
optional kind delays only the gangs that name an object of it for long: a CRD whose conversion webhook is
broken answers every list with an error. Called by kube.watch.reflector.
"""

from __future__ import annotations

import math

from gangsched.kube.transport.backoff import Backoff


class FirstRead:
    """The first read of one kind. backoff: waits between tries; goes_without: it was not read in time."""

    def __init__(self, backoff: Backoff, *, is_optional: bool, unread_s: float) -> None:
        """unread_s: how long to wait for an optional kind after its first failure."""
        self.backoff = backoff
        self.goes_without = False
        self._is_optional = is_optional
        self._unread_s = unread_s
        self._since_s = math.inf

    def failed(self, now_s: float) -> bool:
        """Notes a failure; returns whether the wait has been long enough. Not called again after that."""
        self._since_s = min(self._since_s, now_s)
        self.goes_without = self._is_optional and now_s >= self._since_s + self._unread_s
        return self.goes_without

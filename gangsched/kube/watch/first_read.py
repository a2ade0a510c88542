"""FirstRead: how soon a kind is asked for that has never been read, and when to go on without it.

Nothing is decided before every kind has been read, so one that fails is asked for again within seconds. One
that is optional keeps nobody waiting for long but the gangs that name an object of it: a CRD whose conversion
webhook is broken answers each list with an error. Called by kube.watch.reflector.
"""

from __future__ import annotations

import math

from gangsched.kube.transport.backoff import Backoff


class FirstRead:
    """Of one kind. backoff: the waits between tries; goes_without: it was not read in time."""

    def __init__(self, backoff: Backoff, *, is_optional: bool, unread_s: float) -> None:
        """unread_s: how long after its first failure an optional kind is waited for."""
        self.backoff = backoff
        self.goes_without = False
        self._is_optional = is_optional
        self._unread_s = unread_s
        self._since_s = math.inf

    def failed(self, now_s: float) -> bool:
        """Whether it has been waited for long enough; not asked again after that."""
        self._since_s = min(self._since_s, now_s)
        self.goes_without = self._is_optional and now_s >= self._since_s + self._unread_s
        return self.goes_without

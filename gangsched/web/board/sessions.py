"""Logins of browsers: a cookie with a random session name, for a token that stays here.

Lives here: the sessions, their number and age. Not here: what a token may do; that is checked for every
request (access.py), so that revoking a token ends its session.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

COOKIE = "gangsched-session"
MAX_SESSIONS = 256
LIFETIME_S = 12 * 3600.0


class Sessions:
    """Tokens by session; the oldest session is evicted first."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._kept: OrderedDict[bytes, tuple[float, str]] = OrderedDict()

    def begin(self, token: str) -> str:
        """Begins a session; returns its name."""
        name = secrets.token_urlsafe(32)
        self._kept[_key(name)] = self._clock_s() + LIFETIME_S, token
        if len(self._kept) > MAX_SESSIONS:
            self._kept.popitem(last=False)
        return name

    def end(self, name: str) -> None:
        """Removes the session."""
        self._kept.pop(_key(name), None)

    def token(self, name: str) -> str:
        """Returns the session's token; "" if it is unknown or too old."""
        until_s, token = self._kept.get(_key(name), (0.0, ""))
        if token and self._clock_s() >= until_s:
            self.end(name)
            return ""
        return token


def _key(name: str) -> bytes:
    return hashlib.sha256(name.encode(errors="replace")).digest()

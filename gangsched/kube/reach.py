"""Reach: whether the API server is reached and takes our credentials, said once for all that speak to it.

Lives here: what is said, and how often. Not here: individual refusals (kube.complaints), and waiting before
the next try, which each caller does by itself. A scheduler speaks over twenty connections, and each of them
finds out by itself; a person needs one line, now and then again while it lasts, and one when it is over. A
first failure alone is not said: a command that ends with it says it. Kept by kube.credentials; told by
kube.transport.pool, kube.transport.lane and kube.transport.stream.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable

import structlog

from gangsched.errors import ApiError, Unreachable
from gangsched.kube.tally import SILENCE, Answers

_log = structlog.get_logger(__name__)

# Said again after so long, then after twice as long, and so on.
AGAIN_S = 30.0
MAX_AGAIN_S = 600.0
# A server that comes and goes says another reason each time; so many are news within one trouble.
_MAX_REASONS = 5
# OpenSSL's words for a peer that answers the handshake with something else.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
UNAUTHORIZED = 401


def is_told(error: Exception) -> bool:
    """Whether Reach has said it already: who meets it only tries again."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.code == UNAUTHORIZED)


def plain(error: OSError) -> str:
    """Why there is no connection, without numbers and addresses that say nothing to a reader."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return "it does not speak TLS; is its address http:// instead of https://?"
    if isinstance(error, socket.gaierror):
        return f"its name cannot be resolved: {error.strerror}"
    if error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno).lower()
    return str(error) or "no answer in time"


class Reach:
    """The trouble with one server, if there is one."""

    def __init__(self, server: str, answers: Answers, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._answers = answers
        self._clock = clock
        self._is_refused = False
        self._reasons: set[str] = set()
        self._since_s: float | None = None
        self._n_failures = 0
        self._again_s = AGAIN_S
        self._due_s = 0.0

    def not_reached(self, why: str) -> Unreachable:
        """There is no connection, or it ended before an answer; the error to raise."""
        text = f"cannot reach {self._server}: {why}"
        self._trouble(text, is_refused=False)
        return Unreachable(text)

    def refused(self, why: str) -> None:
        """It has answered 401, to the newest credentials that there are."""
        self._trouble(why, is_refused=True)

    def _trouble(self, text: str, *, is_refused: bool) -> None:
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
            self._n_failures = 0
            self._reasons.clear()
        self._n_failures += 1
        # Answers are looked at only while there is trouble.
        self._is_refused = is_refused
        self._answers.hear = self._heard
        if self._n_failures == 1:
            return  # nobody has tried again yet
        is_news = text not in self._reasons and len(self._reasons) < _MAX_REASONS
        if now_s < self._due_s and (not is_news or not self._reasons):
            return
        lasts = {"for_s": round(now_s - self._since_s)} if self._reasons else {}
        if not is_news:
            self._again_s = min(2 * self._again_s, MAX_AGAIN_S)
        self._reasons.add(text)
        self._due_s = now_s + self._again_s
        _log.warning(f"{text}; trying again", **lasts)

    def _heard(self, status: int) -> None:
        if status == SILENCE or (self._is_refused and status == UNAUTHORIZED):
            return
        self._answers.hear = None
        now_s, since_s = self._clock(), self._since_s
        self._since_s = None
        if self._reasons and since_s is not None:
            _log.info(f"{self._server} answers again", after_s=round(now_s - since_s))
            self._reasons.clear()
        if now_s >= self._due_s:
            self._again_s = AGAIN_S

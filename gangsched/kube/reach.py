"""Reach: whether the API server can be reached and accepts our credentials, logged once for all connections.

Lives here: what is logged, and how often. Not here: individual refusals (kube.transport.complaints), and
waiting before a retry, which each caller does itself. A scheduler has over twenty connections, and each
notices an outage by itself. A person needs one line, repeated while the trouble lasts, and one when it is
over. A first failure alone is not logged: a command that ends with it prints it. Kept by
kube.access.credentials; updated by kube.transport.pool, kube.transport.lane and kube.transport.stream.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable

import structlog

from gangsched.errors import ApiError, Unreachable
from gangsched.kube.tally import SILENCE, AnswerTally

_log = structlog.get_logger(__name__)

# Logged again after this long, then after twice as long, and so on.
AGAIN_S = 30.0
MAX_AGAIN_S = 600.0
# A flapping server gives another reason each time; only this many are logged within one outage.
_MAX_REASONS = 5
# OpenSSL's errors for a peer that answers the handshake with something else.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
UNAUTHORIZED = 401


def is_logged(error: Exception) -> bool:
    """Whether Reach has already logged it; then the caller only retries."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.code == UNAUTHORIZED)


def plain(error: OSError) -> str:
    """Returns why there is no connection, without numbers and addresses that mean nothing to a reader."""
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
    """The current outage of one server, if any."""

    def __init__(
        self, server: str, answers: AnswerTally, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
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
        """Reports no connection, or one cut before an answer; returns the error to raise."""
        text = f"cannot reach {self._server}: {why}"
        self._trouble(text, is_refused=False)
        return Unreachable(text)

    def refused(self, why: str) -> None:
        """Reports that the server answered 401 to the newest credentials."""
        self._trouble(why, is_refused=True)

    def _trouble(self, text: str, *, is_refused: bool) -> None:
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
            self._n_failures = 0
            self._reasons.clear()
        self._n_failures += 1
        # Answers are watched only during an outage.
        self._is_refused = is_refused
        self._answers.on_answer = self._answered
        if self._n_failures == 1:
            return  # no retry yet
        is_news = text not in self._reasons and len(self._reasons) < _MAX_REASONS
        if now_s < self._due_s and (not is_news or not self._reasons):
            return
        lasts = {"for_s": round(now_s - self._since_s)} if self._reasons else {}
        if not is_news:
            self._again_s = min(2 * self._again_s, MAX_AGAIN_S)
        self._reasons.add(text)
        self._due_s = now_s + self._again_s
        _log.warning(f"{text}; trying again", **lasts)

    def _answered(self, status: int) -> None:
        if status == SILENCE or (self._is_refused and status == UNAUTHORIZED):
            return
        self._answers.on_answer = None
        now_s, since_s = self._clock(), self._since_s
        self._since_s = None
        if self._reasons and since_s is not None:
            _log.info(f"{self._server} answers again", after_s=round(now_s - since_s))
            self._reasons.clear()
        if now_s >= self._due_s:
            self._again_s = AGAIN_S

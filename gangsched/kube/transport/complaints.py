"""Logs failures without repeating each one a thousand times.

Called by kube.transport.lane and kube.effects.write_lanes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from gangsched.errors import ApiError
from gangsched.kube.reach import is_logged

_log = structlog.get_logger(__name__)

AGAIN_S = 10.0
MAX_KINDS = 64


class Complaints:
    """Failures by action, code and reason: the first is logged, further ones are counted.

    A systematic refusal is one line every AGAIN_S with its count, instead of one line per object.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[tuple[str, int, str], tuple[float, int]] = {}

    def say(self, what: str, error: ApiError, *, about: str = "") -> None:
        """Log or count a failure of the action `what`; `about` names the object."""
        if is_logged(error):
            return
        self._say("the API server refuses or cannot be reached", what, error, about)

    def doubt(self, what: str, error: ApiError, *, about: str) -> None:
        """As `say`, for an answer that is not from the API server or not about that object."""
        self._say(
            "an answer did not come from the API server itself: what stands in front of it?",
            what,
            error,
            about,
        )

    def _say(self, text: str, what: str, error: ApiError, about: str) -> None:
        key = (f"{text} {what}", error.code, error.reason)
        now_s = self._clock()
        said_s, n_more = self._logged.get(key, (None, 0))
        if said_s is not None and now_s - said_s < AGAIN_S:
            self._logged[key] = (said_s, n_more + 1)
            return
        self._logged[key] = (now_s, 0)
        if len(self._logged) > MAX_KINDS:  # the server writes the reasons, so their number must be bounded
            del self._logged[next(iter(self._logged))]
        more = {"n_more_like_it": n_more} if n_more else {}
        _log.warning(text, err=f"{what} of {about}: {error}" if about else f"{what}: {error}", **more)

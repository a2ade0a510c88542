"""Logs bugs of our own that the core has contained. Called by the assembly.

A thousand objects may trigger the same bug: its traceback is logged once, repetitions as one line a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from gangsched.core.turns.steps import Defect

_log = structlog.get_logger(__name__)

AGAIN_S = 60.0
_MAX_KINDS = 256


class Defects:
    """Logs each failing place once with its traceback."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_s: dict[tuple[str, str], float] = {}
        self._n_unlogged = 0

    def tell(self, defect: Defect) -> None:
        """Logs it, or counts it for the next line."""
        kind = (defect.where, _place(defect.story))
        now_s, said_s = self._clock(), self._logged_s.get(kind)
        if said_s is not None and now_s - said_s < AGAIN_S:
            self._n_unlogged += 1
            return
        more = {"n_more_like_it": self._n_unlogged} if self._n_unlogged else {}
        self._n_unlogged = 0
        if len(self._logged_s) >= _MAX_KINDS:
            self._logged_s.clear()
        self._logged_s[kind] = now_s
        _log.error(
            "a fault of this program, contained: please report it",
            where=defect.where,
            about=defect.about,
            err=defect.problem,
            story=defect.story if said_s is None else "",
            **more,
        )


def _place(story: str) -> str:
    """The innermost line of a traceback that names a file."""
    return next((line.strip() for line in reversed(story.splitlines()) if "File " in line), "")

"""How long to let things gather before they are looked at. Called by kube.watch and kube.readers."""

from __future__ import annotations

import math


class Pace:
    """From how much has come lately: nothing is held back when it is quiet, `hold_s` when much is going on.

    `_n` is what has come, forgotten evenly over `recent_s`. A gang of 8, bound and echoed, is far below
    `many`; thousands being bound are far above.
    """

    def __init__(self, hold_s: float, *, many: int = 30, recent_s: float = 0.05) -> None:
        self._hold_s = hold_s
        self._many = many
        self._recent_s = recent_s
        self._n = 0.0
        self._at_s = -math.inf

    def hold_s(self, n_come: int, now_s: float) -> float:
        """Seconds to wait before the next look, after one that found `n_come`."""
        self._n = self._n * max(0.0, 1.0 - (now_s - self._at_s) / self._recent_s) + n_come
        self._at_s = now_s
        return self._hold_s if self._n > self._many else 0.0

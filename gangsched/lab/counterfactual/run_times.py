"""Run times: how long each pod runs in a model, as far as the recording shows.

A pod that was cut off starts over, so the run time of its last replacement counts for all of them. A run time
that is not in the recording is taken as the limit that the user stated, or else as the median of the recorded
run times longer than the time for which it ran.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from gangsched.errors import ParseError
from gangsched.lab.counterfactual.day import Day, Life
from gangsched.model.walltime import pod_walltime


class RunTimes:
    """The run times of one day."""

    def __init__(self, day: Day) -> None:
        self._day = day
        self._known_s = sorted(run_s for life in day.lives.values() if (run_s := life.run_s) is not None)
        self._replaced_by = {life.replaces: uid for uid, life in day.lives.items() if life.replaces}

    def last(self, life: Life) -> Life:
        """Returns the last pod in the chain of replacements."""
        while (uid := self._replaced_by.get(life.uid)) is not None:
            life = self._day.lives[uid]
        return life

    def was_replaced(self, life: Life) -> bool:
        """Whether it was replaced when it was cut off."""
        return life.uid in self._replaced_by

    def run_time(self, life: Life) -> tuple[float | None, bool]:
        """Returns its run time, None if longer than any known one; and whether the recording has it."""
        last = self.last(life)
        if last.run_s is not None:
            return last.run_s, True
        ran_s = 0.0 if last.bound_s is None else (last.ended_s or self._day.length_s) - last.bound_s
        try:
            stated_s = pod_walltime(life.pod).seconds
        except ParseError:
            stated_s = math.inf
        if ran_s <= stated_s < math.inf:
            return stated_s, False
        longer = self._known_s[bisect_right(self._known_s, ran_s) :]
        return (longer[len(longer) // 2] if longer else None), False

"""What goes wrong by itself: one deed after the other, at random intervals, while the weather is bad.

Called by those who do the deeds, in lab.sim.faults and world.storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.weather import Rates, Weather


class AtRandom:
    """Changes an API server's store at random intervals.

    per_s: how often a second, by the weather's rates; deeds: names of its methods. Those that the rates are
    without are drawn and not done, so that all else stays as it was.
    """

    def __init__(
        self,
        api: SimApi,
        timeline: Timeline,
        weather: Weather,
        rng: Random,
        *,
        per_s: Callable[[Rates], float],
        deeds: Sequence[str],
    ) -> None:
        self._api = api
        self._timeline = timeline
        self._weather = weather
        self._rng = rng
        self._per_s = per_s
        self._deeds = deeds
        self._n = 0
        """Numbers what the deeds create."""

    def start(self) -> None:
        """Begins, unless the rates have none of this."""
        self._wait()

    def _wait(self) -> None:
        if rate := self._per_s(self._weather.rates):
            self._timeline.after(self._rng.expovariate(rate), self._next)

    def _next(self) -> None:
        if self._per_s(self._weather.rates):
            name = self._draw()
            if name not in self._weather.rates.without:
                getattr(self, name)()
            self._wait()

    def _draw(self) -> str:
        """Draws the next deed."""
        return self._rng.choice(self._deeds)

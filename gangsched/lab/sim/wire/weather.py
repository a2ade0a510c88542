"""Weather on the wire: faults of connections, requests and watches, drawn from a seed.

Only probabilities and delays live here; lab.sim.wire.network and lab.sim.wire.server ask for them. After
`clear()` nothing new goes wrong; connections that went silent before stay silent, since clients must notice
that.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from random import Random

import msgspec
from msgspec.structs import replace


class Dialled(enum.Enum):
    """The outcome of connecting."""

    CONNECTED = "connected"
    REFUSED = "refused"
    NOBODY = "nobody answers"


class Fate(enum.Enum):
    """The outcome of one request; `done` are those that the server has carried out."""

    ANSWERED = "answered"
    CUT_ASKING = "cut within the request"
    CUT_BEFORE = "cut before it was done"
    CUT_AFTER = "done, cut before the answer"
    CUT_ANSWER = "done, cut within the answer"
    SILENT_BEFORE = "not done, silence"
    SILENT_AFTER = "done, silence"
    THROTTLED = "429"
    BUSY = "503"
    UNAUTHORIZED = "401"
    PAGE_BEFORE = "not done, a proxy's page"
    PAGE_AFTER = "done, a proxy's page"
    OTHER_BEFORE = "not done, an answer about another object"
    OTHER_AFTER = "done, an answer about another object"
    TWICE = "done, answered twice"

    @property
    def is_done(self) -> bool:
        return self in _DONE


_DONE = frozenset(
    {
        *(Fate.ANSWERED, Fate.CUT_AFTER, Fate.CUT_ANSWER, Fate.SILENT_AFTER),
        *(Fate.PAGE_AFTER, Fate.OTHER_AFTER, Fate.TWICE),
    }
)


class WatchFate(enum.Enum):
    """The outcome of one watch after it was opened."""

    LIVES = "lives"
    CUT = "cut at some byte"
    SILENT = "silent from some moment on"
    ENDS = "ended early"
    GONE = "410 as an ERROR line"
    NO_BOOKMARKS = "lives without bookmarks"


class Rates(msgspec.Struct, frozen=True):
    """Probabilities; all zero is good weather. hangs_up: an answer announces that it is the last.

    mischief_per_s: compactions, kills, deletions, clocks set.
    """

    refused: float = 0.0
    nobody: float = 0.0
    cut: float = 0.0
    silent: float = 0.0
    throttled: float = 0.0
    page: float = 0.0
    other: float = 0.0
    twice: float = 0.0
    watch: float = 0.0
    gone: float = 0.0
    slow: float = 0.0
    split: float = 0.0
    short_send: float = 0.0
    hangs_up: float = 0.0
    mischief_per_s: float = 0.0

    def without(self, names: Collection[str]) -> Rates:
        """The same weather without some of its faults."""
        return replace(self, **dict.fromkeys(names, 0.0))

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults with a probability, by name."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name))

    def fates(self) -> tuple[Fate | WatchFate, ...]:
        """The faults that may occur in this weather."""
        likely = [fate for rate, fates in _by_rate(self) if rate for fate in fates]
        return (Fate.ANSWERED, *likely, *(WatchFate if self.watch else (WatchFate.LIVES,)))


def _by_rate(rates: Rates) -> tuple[tuple[float, tuple[Fate, ...]], ...]:
    return (
        (rates.cut, (Fate.CUT_ASKING, Fate.CUT_BEFORE, Fate.CUT_AFTER, Fate.CUT_ANSWER)),
        (rates.silent, (Fate.SILENT_BEFORE, Fate.SILENT_AFTER)),
        (rates.throttled, (Fate.THROTTLED, Fate.BUSY, Fate.UNAUTHORIZED)),
        (rates.page, (Fate.PAGE_BEFORE, Fate.PAGE_AFTER)),
        (rates.other, (Fate.OTHER_BEFORE, Fate.OTHER_AFTER)),
        (rates.twice, (Fate.TWICE,)),
    )


CALM = Rates(split=0.1)
STORM = Rates(
    refused=0.05,
    nobody=0.03,
    cut=0.05,
    silent=0.02,
    throttled=0.04,
    page=0.03,
    other=0.03,
    twice=0.02,
    watch=0.7,
    gone=0.1,
    slow=0.05,
    split=0.4,
    short_send=0.05,
    hangs_up=0.03,
    mischief_per_s=0.8,
)


def shaken(rates: Rates, rng: Random) -> Rates:
    """Leaves each fault out, as it is, or multiplies it: some mistakes show only under many faults of one
    kind.

    None exceeds a half: something must get through.
    """
    drawn = {
        name: min(getattr(rates, name) * rng.choice((0.0, 1.0, 1.0, 2.0, 4.0)), 0.5)
        for name in rates.__struct_fields__
        if name not in _STEADY
    }
    return replace(rates, **drawn)


_STEADY = ("watch", "mischief_per_s")


class Weather:
    """Draws faults, delays and cuts."""

    def __init__(self, rng: Random, rates: Rates) -> None:
        self.rng = rng
        self.rates = rates

    def clear(self) -> None:
        """Stops faults."""
        self.rates = CALM

    def happens(self, rate: float) -> bool:
        return self.rng.random() < rate

    def dial(self) -> Dialled:
        drawn = self.rng.random()
        if drawn < self.rates.refused:
            return Dialled.REFUSED
        return Dialled.NOBODY if drawn < self.rates.refused + self.rates.nobody else Dialled.CONNECTED

    def fate(self) -> Fate:
        drawn = self.rng.random()
        for rate, fates in _by_rate(self.rates):
            if drawn < rate:
                return self.rng.choice(fates)
            drawn -= rate
        return Fate.ANSWERED

    def watch_fate(self) -> WatchFate:
        if not self.happens(self.rates.watch):
            return WatchFate.LIVES
        return self.rng.choice(
            (
                *(WatchFate.CUT, WatchFate.CUT, WatchFate.CUT, WatchFate.SILENT),
                *(WatchFate.ENDS, WatchFate.GONE, WatchFate.NO_BOOKMARKS),
            )
        )

    def latency_s(self) -> float:
        """The delay of one piece, one way."""
        if self.happens(self.rates.slow):
            return self.rng.uniform(0.05, 1.5)
        return self.rng.uniform(0.0002, 0.004)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Cuts data anywhere, usually nowhere; often at the end of a line, where parsers begin and end."""
        while len(data) > 1 and self.happens(self.rates.split):
            at = self.rng.randint(1, len(data) - 1)
            if self.happens(0.5):
                line_end = data.find(b"\r\n", at)
                if 0 <= line_end < len(data) - 3:
                    at = line_end + self.rng.choice((0, 1, 1, 2, 3)) or at
            yield data[:at]
            data = data[at:]
        yield data

    def accepted(self, n_bytes: int) -> int:
        """How many bytes a socket takes now."""
        return self.rng.randint(0, n_bytes) if self.happens(self.rates.short_send) else n_bytes

"""Differences between two pages: rates, and percentiles of the times between them. Pure."""

from __future__ import annotations

from collections import deque

import msgspec

from gangsched.web.pages.answers import Times, TopPage

# Rates and percentiles cover this time, or as long as pages have been read.
WINDOW_S = 60.0
# At the shortest delay, half a second.
_MAX_LOOKS = 128


class Percentiles(msgspec.Struct, frozen=True, rename="camel"):
    """Seconds, by the histogram's buckets; n: the number of values; None: there are none."""

    n: int
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class Pace(msgspec.Struct, frozen=True, rename="camel"):
    """over_s: the time between the two pages; 0: there is only one. Rates are per second over that time;
    recent: percentiles over that time; since_start: over the scheduler's life.
    """

    over_s: float
    decisions: float | None
    binds: float | None
    recent: dict[str, Percentiles]
    since_start: dict[str, Percentiles]


KINDS = {
    "decision": "decision on a gang",
    "bind": "pod, attempt to bound",
    "start": "pod, complete to bound",
    "lag": "loop late by",
}


class Looks:
    """The pages of the last minute."""

    def __init__(self) -> None:
        self._kept: deque[TopPage] = deque(maxlen=_MAX_LOOKS)

    def add(self, page: TopPage) -> None:
        """Adds a page; drops earlier ones if the scheduler has restarted."""
        last = self._kept[-1] if self._kept else page
        if page.clock_s < last.clock_s or page.attempts < last.attempts or page.binds < last.binds:
            self._kept.clear()
        if not self._kept or page.clock_s > last.clock_s:
            self._kept.append(page)
        while len(self._kept) > 2 and page.clock_s - self._kept[1].clock_s >= WINDOW_S:
            self._kept.popleft()

    def pace(self) -> Pace:
        """Returns the pace from the oldest page to the newest; with one page, only since the start."""
        first, last = self._kept[0], self._kept[-1]
        over_s = last.clock_s - first.clock_s
        decisions = binds = None
        if over_s > 0:
            decisions = round((last.attempts - first.attempts) / over_s, 3)
            binds = round((last.binds - first.binds) / over_s, 3)
        return Pace(
            over_s=round(over_s, 3),
            decisions=decisions,
            binds=binds,
            recent={kind: percentiles(_between(_of(first, kind), _of(last, kind))) for kind in KINDS},
            since_start={kind: percentiles(_of(last, kind)) for kind in KINDS},
        )


def percentiles(times: Times) -> Percentiles:
    """Interpolates each within its bucket, as Prometheus does; above all bounds: the last bound."""
    n = sum(times.counts)
    if not n:
        return Percentiles(0)
    return Percentiles(n, *(round(_quantile(times, share * n), 6) for share in (0.5, 0.9, 0.99)))


def _quantile(times: Times, rank: float) -> float:
    below, lower_s = 0, 0.0
    for upper_s, count in zip(times.bounds, times.counts, strict=False):
        if count and below + count >= rank:
            return lower_s + (upper_s - lower_s) * (rank - below) / count
        below, lower_s = below + count, upper_s
    return times.bounds[-1] if times.bounds else 0.0


def _of(page: TopPage, kind: str) -> Times:
    return {"decision": page.decision, "bind": page.bind, "start": page.start, "lag": page.lag}[kind]


def _between(first: Times, last: Times) -> Times:
    if first.bounds != last.bounds or len(first.counts) != len(last.counts):
        return Times()
    counts = tuple(max(b - a, 0) for a, b in zip(first.counts, last.counts, strict=True))
    return Times(last.bounds, counts)

"""Loads: a snapshot of the books of LoadAware and RemainingBandwidth, for /metrics.

Lives here: finding the books, one walk over their rows. Not here: names and text (page.py). If no profile
runs the plugin, there is no book and no metric.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gangsched.core.scheduler import Scheduler
from gangsched.plugins.resources.bandwidth_book import BandwidthBook
from gangsched.plugins.resources.load_book import LoadBook


class Loads(msgspec.Struct, frozen=True):
    """h: by node; spread: over the cluster, None if nothing is measured. bandwidth: (node, direction, kind:
    total, used, promised), bytes a second.
    """

    h: Sequence[tuple[str, float]] = ()
    spread: float | None = None
    bandwidth: Sequence[tuple[str, str, str, int]] = ()


def read_loads(scheduler: Scheduler) -> Loads:
    """Reads each book from the first profile that has it; all books get the same events."""
    names = scheduler.shared.cache.nodes.names
    usage_trackers = [one for profile in scheduler.shared.profiles.values() for one in profile.usage_trackers]
    load = next((one for one in usage_trackers if isinstance(one, LoadBook)), None)
    links = next((one for one in usage_trackers if isinstance(one, BandwidthBook)), None)
    h: list[tuple[str, float]] = []
    spread: float | None = None
    if load is not None and load.n_known:
        rows, found = load.evenness()
        h = [(names[row], value) for row, value in zip(rows, found.h, strict=True)]
        spread = found.spread
    listed = () if links is None else links.listed()
    bandwidth = [(names[row], direction, what, value) for row, direction, what, value in listed]
    return Loads(h, spread, bandwidth)

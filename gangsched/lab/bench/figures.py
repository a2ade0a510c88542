"""Statistics: medians with their spread, percentiles, ratios of pairs. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """A median and how far the values lie apart."""

    median: float
    low: float
    high: float
    n: int


def spread(values: Sequence[float]) -> Spread | None:
    """Returns None for no values."""
    if not values:
        return None
    return Spread(median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank, so always one of the values; share in 0..1. Raises: ValueError for no values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def pair_ratios(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Spread | None:
    """Ours / theirs for every round that both have, by the round's number."""
    return spread([ours[n] / theirs[n] for n in sorted(ours.keys() & theirs.keys()) if theirs[n]])

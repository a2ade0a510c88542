"""Load against performance: the published sums L and S of nodes, the score, and H, how even a cluster is.

    L = L(cpu) + L(mem) + L(net) + L(disk)      S = n * S(cpu freq) + S(mem) + S(net) + S(disk)
    score = (1 - L/S) * 10                      H(i) = (L(i) / L(avg)) / (S(i) / S(avg))

| mode | a term of S | a term of L |
|---|---|---|
| literal | the capacity, in PAPER_UNITS | the node's utilisation, 0..1, as printed in the paper |
| paper | the same | the utilisation times the term of S: the used part of the capacity |
| normalized | the capacity as a share of the cluster's largest | the same |

In the last two modes the score is in 0..10, and H is 1 on every node if all have the same utilisation. In the
first, a sum of shares is compared with a sum of capacities: all scores are near 10, and H is 1 if a node
twice as strong has twice the utilisation. Shapes: [4, n], the terms in the order of model.stated.load.TERMS.
Called by plugins.resources.load_aware, `gangsched load`, the bench and the metrics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from gangsched.model.stated.load import TERMS, Performance, Term

FloatArray = npt.NDArray[np.float64]
Mode = Literal["literal", "paper", "normalized"]
MODES: tuple[Mode, ...] = get_args(Mode)

PAPER_UNITS = ("GHz, of all cores together", "GB (10^9 bytes)", "Gbit/s", "Gbit/s")
"""Units of S's terms in modes `literal` and `paper`; the paper prints none. With these units a common
server's terms have about two digits each.
"""

_GIGA = 1e9
_GBIT_A_MBPS = 8e-3


def terms_of(performance: Performance) -> tuple[float, float, float, float]:
    """The terms of S in PAPER_UNITS."""
    return (
        performance.cores * performance.mhz / 1000,
        performance.memory_bytes / _GIGA,
        performance.network_mbps * _GBIT_A_MBPS,
        performance.disk_mbps * _GBIT_A_MBPS,
    )


def terms_without_data(performance: Performance) -> tuple[Term, ...]:
    """Returns the terms without data: they are 0 in S, and so in L, whatever the utilisation."""
    return tuple(name for name, known in zip(TERMS, terms_of(performance), strict=True) if known <= 0)


def scaled(terms: FloatArray, largest: FloatArray) -> FloatArray:
    """Each term as a share of `largest` [4], so that no unit counts more than another; 0 of 0 is 0."""
    known: FloatArray = terms / np.where(largest > 0, largest, 1.0)[:, np.newaxis]
    return known


def load_and_strength(
    utilisation: FloatArray, terms: FloatArray, *, mode: Mode, largest: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns (L, S), each float64[n]. terms: from terms_of; a term of 0 does not count, nor does its use.
    largest: float64[4], the cluster's.
    """
    if mode == "normalized":
        terms = scaled(terms, largest)
    load: FloatArray = (utilisation * (terms > 0 if mode == "literal" else terms)).sum(axis=0)
    strength: FloatArray = terms.sum(axis=0)
    return load, strength


def paper_score(load: FloatArray, strength: FloatArray) -> FloatArray:
    """(1 - L/S) * 10, float64[n] in 0..10; a node without any known value has 0."""
    free: FloatArray = 1.0 - load / np.where(strength > 0, strength, 1.0)
    score: FloatArray = np.where(strength > 0, np.clip(free, 0.0, 1.0) * 10.0, 0.0)
    return score


class Evenness(msgspec.Struct, frozen=True):
    """h: one per node, 1 if its ratio of load to performance is average. spread: the standard deviation of h,
    0 in a perfectly evenly loaded cluster; range: the largest h minus the smallest.

    The paper calls a larger H better. But weighted by S, the mean of H is 1 for every placement: H grows on
    one node only by shrinking on others. What differs between placements is the spread.
    """

    h: tuple[float, ...]
    spread: float
    range: float


def evenness(load: FloatArray, strength: FloatArray) -> Evenness:
    """Computes the evenness of nodes; h = 0 without known performance. An idle cluster is even: h = 1."""
    if not len(load):
        return Evenness((), 0.0, 0.0)
    mean_load, mean_strength = float(load.mean()), float(strength.mean())
    if mean_load <= 0 or mean_strength <= 0:
        return Evenness((1.0,) * len(load), 0.0, 0.0)
    relative = load / mean_load
    h = np.where(strength > 0, relative / np.where(strength > 0, strength / mean_strength, 1.0), 0.0)
    return Evenness(tuple(float(x) for x in h), float(h.std()), float(h.max() - h.min()))


def largest_terms(terms: Iterable[tuple[float, float, float, float]]) -> FloatArray:
    """The largest value of each term over nodes. Shape: float64[4]."""
    listed = list(terms)
    return np.array(listed).max(axis=0) if listed else np.zeros(4)

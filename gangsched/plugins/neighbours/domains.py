"""Sums over topology domains: the nodes with the same value of a label.

Used by InterPodAffinity, PodTopologySpread and SelectorSpread. A domain is a code of the label's column, so a
sum over all domains is one pass over the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gangsched.core.cache.nodes.table import CodeArray
from gangsched.core.framework.interface import BoolArray, IntArray


def domain_totals(codes: CodeArray, n_domains: int, counts: IntArray) -> IntArray:
    """int64[n_domains]: sum of `counts` over each domain's nodes; nodes without the label are left out.

    Shapes: codes int32[n_rows], -1 where the label is missing; counts int64[n_rows].
    """
    with_pods = np.flatnonzero(counts)
    at = codes[with_pods]
    there = at >= 0
    totals = np.zeros(n_domains, dtype=np.int64)
    np.add.at(totals, at[there], counts[with_pods][there])
    return totals


def at_nodes(codes: CodeArray, totals: IntArray) -> IntArray:
    """int64[n_rows]: the total of each node's domain, 0 where the label is missing."""
    # One entry more than there are domains: code -1, a missing label, indexes the last one.
    answer: IntArray = np.append(totals, 0)[codes]
    return answer


def domains_present(codes: CodeArray, n_domains: int, nodes: BoolArray) -> BoolArray:
    """bool[n_domains]: domains with at least one of `nodes`."""
    present = np.zeros(n_domains, dtype=np.bool_)
    at = codes[nodes]
    present[at[at >= 0]] = True
    return present


def spread_out(rows: Mapping[int, int], n_rows: int) -> IntArray:
    """int64[n_rows] from counts given for a few rows only."""
    counts = np.zeros(n_rows, dtype=np.int64)
    at = np.fromiter(rows.keys(), dtype=np.int64, count=len(rows))
    counts[at] = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
    return counts

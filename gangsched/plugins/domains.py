"""Sums over topology domains: the nodes that have one value of a label.

What InterPodAffinity, PodTopologySpread and SelectorSpread are made of. A domain is a code of the label's
column, so that a sum over all domains is one pass over the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gangsched.core.cache.node_table import CodeArray
from gangsched.core.framework.interface import BoolArray, IntArray


def domain_totals(codes: CodeArray, n_domains: int, counts: IntArray) -> IntArray:
    """int64[n_domains]: what `counts` of all nodes of a domain come to; nodes without the label are left out.

    Shapes: codes int32[n_rows], -1 where the label is missing; counts int64[n_rows].
    """
    with_pods = np.flatnonzero(counts)
    at = codes[with_pods]
    there = at >= 0
    totals = np.zeros(n_domains, dtype=np.int64)
    np.add.at(totals, at[there], counts[with_pods][there])
    return totals


def at_nodes(codes: CodeArray, totals: IntArray) -> IntArray:
    """int64[n_rows]: each node's domain's total, 0 where the label is missing."""
    # One place more than there are domains: code -1, a missing label, reads the last one.
    answer: IntArray = np.append(totals, 0)[codes]
    return answer


def domains_present(codes: CodeArray, n_domains: int, nodes: BoolArray) -> BoolArray:
    """bool[n_domains]: those with at least one of `nodes` in them."""
    present = np.zeros(n_domains, dtype=np.bool_)
    at = codes[nodes]
    present[at[at >= 0]] = True
    return present


def spread_out(rows: Mapping[int, int], n_rows: int) -> IntArray:
    """int64[n_rows] of counts that are there for a few rows only."""
    counts = np.zeros(n_rows, dtype=np.int64)
    at = np.fromiter(rows.keys(), dtype=np.int64, count=len(rows))
    counts[at] = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
    return counts

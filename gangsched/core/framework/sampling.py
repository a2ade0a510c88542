"""EarlyStop: stops looking once enough nodes are found, as kube-scheduler does; off by default.

Arrays make it unnecessary here: filtering and scoring all nodes costs less than looking at a hundred one by
one. It exists because the method was published, and for users who want the same spreading over a large
cluster. Lone pods only: a gang is packed, which needs all nodes. Called by core.cycle.placing. Source:
kube-scheduler `pkg/scheduler/schedule_one.go`, numFeasibleNodesToFind and nextStartNodeIndex.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.types.arrays import IntArray

_AT_LEAST = 100
_LEAST_PERCENT = 5


def n_wanted(n_nodes: int, percentage: int) -> int:
    """Number of feasible nodes that are enough; percentage 0: a smaller share of larger clusters."""
    if n_nodes < _AT_LEAST:
        return n_nodes
    share = percentage or max(50 - n_nodes // 125, _LEAST_PERCENT)
    return max(n_nodes * share // 100, _AT_LEAST)


class EarlyStop:
    """One profile's early stop. Each search starts where the last one ended, so that all nodes get a turn."""

    def __init__(self, percentage: int) -> None:
        self._percentage = percentage
        self._start = 0

    def narrow(self, rows: IntArray, n_nodes: int, n_rows: int) -> IntArray:
        """Returns those of the ascending feasible `rows` that a search from here finds before it stops."""
        wanted = n_wanted(n_nodes, self._percentage)
        if len(rows) <= wanted:
            return rows  # every node was looked at: the next search starts at the same one
        first = int(np.searchsorted(rows, self._start))
        found: IntArray = np.concatenate([rows[first:], rows[:first]])[:wanted]
        self._start = (int(found[-1]) + 1) % n_rows
        return np.sort(found)

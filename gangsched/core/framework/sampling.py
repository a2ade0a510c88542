"""EarlyStop: looks for enough nodes and no further, as kube-scheduler does; off unless it is wanted.

Arrays make it unnecessary here: all nodes are filtered and scored for less than it costs to look at a
hundred one by one. It exists because it was published, and for who wants the same spreading over a large
cluster. Lone pods only: a gang is packed, which needs to see all nodes. Called by core.cycle.placing.
Source: kube-scheduler `pkg/scheduler/schedule_one.go`, numFeasibleNodesToFind and nextStartNodeIndex.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.types.arrays import IntArray

_AT_LEAST = 100
_LEAST_PERCENT = 5


def n_wanted(n_nodes: int, percentage: int) -> int:
    """How many feasible nodes are enough; percentage 0: fewer of a larger cluster."""
    if n_nodes < _AT_LEAST:
        return n_nodes
    share = percentage or max(50 - n_nodes // 125, _LEAST_PERCENT)
    return max(n_nodes * share // 100, _AT_LEAST)


class EarlyStop:
    """Of one profile. Each search goes on where the last one ended, so that all nodes have their turn."""

    def __init__(self, percentage: int) -> None:
        self._percentage = percentage
        self._start = 0

    def narrow(self, rows: IntArray, n_nodes: int, n_rows: int) -> IntArray:
        """Of the feasible `rows`, ascending, those that a search from here finds before it stops."""
        wanted = n_wanted(n_nodes, self._percentage)
        if len(rows) <= wanted:
            return rows  # every node was looked at: the next search begins at the same one
        first = int(np.searchsorted(rows, self._start))
        found: IntArray = np.concatenate([rows[first:], rows[:first]])[:wanted]
        self._start = (int(found[-1]) + 1) % n_rows
        return np.sort(found)

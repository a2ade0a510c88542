"""UsageTrackers: per-row amounts kept by plugins, updated with nodes and with pods that come and go.

A plugin with an attribute `usage_tracker` keeps count of something that nodes report and pods use, beyond
resources and devices: bandwidth, load. This module has the interface of such a tracker, the cache's list of
them, and MeasuredUsage, the arithmetic of reservations that show up in measurements. Called only by
core.cache.cache; no decisions here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import PodInfo
from gangsched.model.objects import Node
from gangsched.model.stated.load import ReportedUsage


class UsageNews(NamedTuple):
    """A tracker's result for a node's new state. is_news: it may let a rejected pod in."""

    is_news: bool = False
    problem: str = ""


NOTHING_NEW = UsageNews()


class UsageTracker(Protocol):
    """Rows as in core.cache.nodes.table; a row may be reused for another node after remove_node."""

    def put_node(self, row: int, node: Node, now_s: float) -> UsageNews:
        """Takes in the node's current state, whatever has changed."""
        ...

    def put_usage(self, row: int, usage: ReportedUsage, now_s: float) -> UsageNews:
        """Takes in metrics-server's report about the node."""
        ...

    def remove_node(self, row: int) -> None:
        """Drops a node, and with it the use of its pods."""
        ...

    def enter(self, infos: Iterable[PodInfo], row: int, now_s: float) -> None:
        """Adds pods that are on this row from now on, reserved or bound."""
        ...

    def leave(self, info: PodInfo, row: int, now_s: float) -> None:
        """Removes a pod from the row."""
        ...

    def advance(self, now_s: float) -> Iterable[int]:
        """Takes in that time has passed; returns the rows that this changes."""
        ...


class UsageTrackers:
    """All trackers of all profiles. With none it is false, and is not called for pods and nodes."""

    __slots__ = ("_nodes", "_trackers", "now_s")

    def __init__(self, nodes: NodeTable) -> None:
        """nodes: journals each row whose results may have changed."""
        self._trackers: tuple[UsageTracker, ...] = ()
        self._nodes = nodes
        self.now_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._trackers)

    def keep(self, usage_trackers: Iterable[UsageTracker]) -> None:
        """Uses these from now on; they are still empty (Cache.keep_usage_trackers fills them)."""
        self._trackers = tuple(usage_trackers)

    def put_node(self, row: int, node: Node, *, is_same: bool = False) -> tuple[bool, str]:
        """(whether it may let a rejected pod in, what is wrong with the node's report). is_same: nothing of
        the node has changed since the trackers last received it, so no result has."""
        news = [one.put_node(row, node, self.now_s) for one in self._trackers]
        return self._merged(row, news, is_same=is_same and not any(one.is_news for one in news))

    def put_usage(self, row: int, usage: ReportedUsage) -> tuple[bool, str]:
        """As put_node."""
        return self._merged(row, [one.put_usage(row, usage, self.now_s) for one in self._trackers])

    def _merged(self, row: int, news: Sequence[UsageNews], *, is_same: bool = False) -> tuple[bool, str]:
        if not is_same:
            self._nodes.note(row)
        problems = dict.fromkeys(one.problem for one in news if one.problem)
        return any(one.is_news for one in news), "; ".join(problems)

    def remove_node(self, row: int) -> None:
        for one in self._trackers:
            one.remove_node(row)

    def enter(self, infos: Iterable[PodInfo], row: int) -> None:
        for one in self._trackers:
            one.enter(infos, row, self.now_s)

    def leave(self, info: PodInfo, row: int) -> None:
        for one in self._trackers:
            one.leave(info, row, self.now_s)

    def advance(self, now_s: float) -> None:
        """Takes in the time; called before each turn."""
        self.now_s = now_s
        for one in self._trackers:
            for row in one.advance(now_s):
                self._nodes.note(row)


class MeasuredUsage:
    """What is measured and what is promised, by row, in k quantities: each amount is counted exactly once.

    | | |
    |---|---|
    | used | what was last measured in use, by any program |
    | reserved | what pods that hold a reservation may use |
    | others | the part of `used` that those pods do not use, as far as measurements show |
    | promised | what those pods have not been seen to use: reserved - (used - others) |
    | claimed | used + promised = others + reserved |

    A pod that comes raises `claimed` at once. When the measurement then rises, the rise is taken for what the
    pods use, as long as part of their reservation is unused: `promised` falls by as much, `claimed` stays.
    What they do not use stays promised for as long as they are there. A measurement that falls below `others`
    lowers it. So others lies within used - reserved and used, and claimed >= used always. Units: the
    caller's, integers.
    """

    __slots__ = ("others", "reserved", "used")

    def __init__(self, n_quantities: int) -> None:
        self.used: IntArray = np.zeros((n_quantities, 0), dtype=np.int64)
        self.others: IntArray = np.zeros((n_quantities, 0), dtype=np.int64)
        self.reserved: IntArray = np.zeros((n_quantities, 0), dtype=np.int64)

    def fit(self, n_rows: int) -> None:
        """Grows to this many rows."""
        if n_rows > self.used.shape[1]:
            extra = np.zeros((self.used.shape[0], max(n_rows, 64) * 2 - self.used.shape[1]), dtype=np.int64)
            self.used = np.concatenate([self.used, extra], axis=1)
            self.others = np.concatenate([self.others, extra], axis=1)
            self.reserved = np.concatenate([self.reserved, extra], axis=1)

    def clear(self, row: int) -> None:
        """Clears a row that now belongs to another node, or to none."""
        for array in (self.used, self.others, self.reserved):
            array[:, row] = 0

    def measure(self, row: int, used: Sequence[int]) -> None:
        """Takes in a new measurement of the row."""
        self.used[:, row] = used
        self._settle(row)

    def reserve(self, row: int, amounts: Sequence[int]) -> None:
        """Adds a pod that cannot be in a measurement yet."""
        self.reserved[:, row] += amounts

    def found(self, row: int, amounts: Sequence[int]) -> None:
        """Adds a pod whose use is already in the measurement: it started before that."""
        self.reserved[:, row] += amounts
        self.others[:, row] -= amounts
        self._settle(row)

    def release(self, row: int, amounts: Sequence[int]) -> None:
        """Removes a pod; its measured use stays counted until a measurement shows it gone."""
        self.reserved[:, row] -= amounts
        self._settle(row)

    def claimed(self, n_rows: int) -> IntArray:
        """int64[k, n_rows]: `claimed` of the first n_rows."""
        both: IntArray = self.others[:, :n_rows] + self.reserved[:, :n_rows]
        return both

    def promised(self, row: int) -> list[int]:
        """Returns `promised` for each quantity."""
        one = self.others[:, row] + self.reserved[:, row] - self.used[:, row]
        return [int(amount) for amount in one]

    def _settle(self, row: int) -> None:
        used = self.used[:, row]
        lowest = np.maximum(used - self.reserved[:, row], 0)
        self.others[:, row] = np.clip(self.others[:, row], lowest, used)

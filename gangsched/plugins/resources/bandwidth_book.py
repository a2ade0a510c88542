"""BandwidthBook: capacity of the nodes' links, measured use, and bandwidth promised to pods, by row.

The usage tracker (core.cache.nodes.usage_trackers) of RemainingBandwidth, which reads it. A promise is a
pod's required bandwidth; it begins when the pod is placed and ends with the pod. Use that is measured in the
meantime counts once (MeasuredUsage). In bytes a second: egress, ingress, then both together (`total`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from gangsched.core.cache.nodes.usage_trackers import NOTHING_NEW, MeasuredUsage, UsageNews
from gangsched.core.framework.interface import BoolArray, FloatArray, IntArray
from gangsched.core.types.group import PodInfo
from gangsched.errors import ParseError
from gangsched.model.objects import Node
from gangsched.model.stated.bandwidth import (
    REMAINING_KEY,
    REQUEST_KEYS,
    BandwidthRequest,
    Direction,
    RemainingBandwidth,
    parse_remaining,
    parse_request,
)
from gangsched.model.stated.load import ReportedUsage

_MAX_POOLS = 1000
_UNUSABLE = -1
_SIDES: dict[Direction, int] = {"egress": 0, "ingress": 1, "total": 2, "both": 3}
# A pod that started this long before a measurement counts as included: agents average over this by default.
_SHOWS_AFTER = timedelta(seconds=10)


class Entry(NamedTuple):
    """One row in one direction."""

    total: int
    used: int
    promised: int


class _Held(NamedTuple):
    info: PodInfo
    row: int
    request: BandwidthRequest
    amounts: tuple[int, int, int]


class BandwidthBook:
    """stale_s: how long a measurement is valid (math.inf: always). promise: False counts measurements only.
    pool: record which requests have a pool.
    """

    def __init__(self, *, stale_s: float, promise: bool, pool: bool, less_is_news: bool = False) -> None:
        """less_is_news: less bandwidth left is news too: a pod may have been refused because too much was
        left."""
        self._stale_s = stale_s
        self._promise = promise
        self._keeps_pools = pool
        self._less_is_news = less_is_news
        self._promised_since: set[int] = set()
        """Rows that have got a pod since their last report."""
        self._flow = MeasuredUsage(3)
        self._total: IntArray = np.zeros(0, dtype=np.int64)
        self._left: IntArray = np.zeros((4, 0), dtype=np.int64)
        self._heard_s: FloatArray = np.zeros(0)
        self._stale: BoolArray = np.zeros(0, dtype=np.bool_)
        self._observed: dict[int, datetime] = {}
        self._text: dict[int, str] = {}
        self._held: dict[str, _Held] = {}
        self._shared: dict[int, dict[str, PodInfo]] = {}
        self._pooled: set[BandwidthRequest] = set()
        self._next_stale_s = math.inf
        self._all_changed = False

    # -- updates ---------------------------------------------------------------------------------------

    def put_node(self, row: int, node: Node, now_s: float) -> UsageNews:
        self._fit(row + 1)
        text = (node.metadata.annotations or {}).get(REMAINING_KEY)
        if text == self._text.get(row):
            return NOTHING_NEW
        if text is None:
            self._forget_measurement(row)
            return NOTHING_NEW
        self._text[row] = text
        try:
            reported = parse_remaining(text)
        except ParseError as error:
            return UsageNews(problem=str(error))  # the last readable annotation stays valid until it is stale
        before = self._left[:, row].copy()
        self._measure(row, reported, now_s)
        is_news = bool((self._left[:, row] > before).any())
        if self._less_is_news:
            is_news = is_news or row in self._promised_since or bool((self._left[:, row] < before).any())
            self._promised_since.discard(row)
        return UsageNews(is_news=is_news)

    def put_usage(self, row: int, usage: ReportedUsage, now_s: float) -> UsageNews:
        """metrics-server reports no network use."""
        return NOTHING_NEW

    def remove_node(self, row: int) -> None:
        self._fit(row + 1)
        self._forget_measurement(row)
        self._promised_since.discard(row)
        self._flow.clear(row)
        self._reckon(row)
        for uid in [uid for uid, held in self._held.items() if held.row == row]:
            del self._held[uid]
        self._shared.pop(row, None)

    def enter(self, infos: Iterable[PodInfo], row: int, now_s: float) -> None:
        for info in infos:
            annotations = info.pod.metadata.annotations
            if annotations and not REQUEST_KEYS.isdisjoint(annotations):  # nearly no pods
                self._reserve(info, annotations, row)

    def _reserve(self, info: PodInfo, annotations: Mapping[str, str], row: int) -> None:
        try:
            request = parse_request(annotations)
        except ParseError:
            return  # another scheduler's pod, or older than the link: nothing is reserved for it
        if request is None:
            return
        self._fit(row + 1)
        if self._less_is_news:
            self._promised_since.add(row)
        own = _share(request, info)
        if self._keeps_pools:
            if len(self._pooled) >= _MAX_POOLS:
                self._pooled.clear()
            self._pooled.add(own)
        self._held[info.uid] = _Held(info, row, request, own.amounts)
        if request.scope == "group":
            self._shared.setdefault(row, {})[info.uid] = info
        started, observed = info.pod.status.start_time, self._observed.get(row)
        # Compares the difference: a time of the year 1, which Go writes for none, has no earlier time.
        if started is not None and observed is not None and observed - started >= _SHOWS_AFTER:
            self._flow.found(row, own.amounts)
        else:
            self._flow.reserve(row, own.amounts)
        self._reckon(row)

    def leave(self, info: PodInfo, row: int, now_s: float) -> None:
        if not self._held:
            return
        held = self._held.pop(info.uid, None)
        if held is None:
            return
        self._flow.release(held.row, held.amounts)
        self._reckon(held.row)
        shared = self._shared.get(held.row)
        if shared is not None:
            shared.pop(info.uid, None)

    def advance(self, now_s: float) -> Iterable[int]:
        changed: list[int] = []
        if now_s >= self._next_stale_s:
            known = np.isfinite(self._heard_s) & ~self._stale
            late = known & (self._heard_s + self._stale_s <= now_s)
            self._stale |= late
            changed += [int(row) for row in np.flatnonzero(late)]
            for row in changed:
                self._reckon(row)
            fresh = self._heard_s[known & ~late]
            self._next_stale_s = float(fresh.min()) + self._stale_s if len(fresh) else math.inf
        if self._all_changed:
            self._all_changed = False
            return sorted(self._observed)
        return changed

    def forget_answers(self) -> None:
        """Discards cached results; they are recomputed from the next turn on."""
        self._all_changed = True

    # -- queries ---------------------------------------------------------------------------------------

    def left(self, direction: Direction, n_rows: int) -> IntArray:
        """int64[n_rows], read-only: total less used and promised; for `both`, the smaller direction.

        For `total`, egress and ingress together are subtracted from the link's total. Below 0 where nothing
        may be promised: other pods or programs use too much, or there is no (recent) report.
        """
        self._fit(n_rows)
        return self._left[_SIDES[direction], :n_rows]

    def unused(self, direction: Direction, n_rows: int) -> IntArray:
        """int64[n_rows]: total less used; an ended pod's use counts until the next measurement."""
        self._fit(n_rows)
        unused: IntArray = self._total[:n_rows] - self._flow.used[_SIDES[direction], :n_rows]
        return unused

    def silent(self, n_rows: int) -> BoolArray:
        """Rows without any readable report so far."""
        self._fit(n_rows)
        return ~np.isfinite(self._heard_s[:n_rows])

    def stale(self, n_rows: int) -> BoolArray:
        """Rows whose last report is too old."""
        self._fit(n_rows)
        return self._stale[:n_rows]

    def entry(self, row: int, direction: Direction) -> Entry:
        """Returns one row's amounts for messages; of `both`, the direction with less left."""
        sides = (0, 1) if direction == "both" else (_SIDES[direction],)
        promised = self._flow.promised(row)
        side = max(sides, key=lambda i: int(self._flow.used[i, row]) + promised[i])
        return Entry(int(self._total[row]), int(self._flow.used[side, row]), promised[side])

    def listed(self) -> Iterator[tuple[int, str, str, int]]:
        """Yields (row, direction, what: total, used or promised; bytes a second) for all rows with a
        report."""
        for row in sorted(self._observed):
            promised = self._flow.promised(row)
            for side, direction in enumerate(("egress", "ingress")):
                yield row, direction, "total", int(self._total[row])
                yield row, direction, "used", int(self._flow.used[side, row])
                yield row, direction, "promised", promised[side]

    def has_pool(self, request: BandwidthRequest) -> bool:
        """Whether a pod with the same request was placed before, so that the next one uses the pool."""
        return request in self._pooled

    # -- inside ----------------------------------------------------------------------------------------

    def _measure(self, row: int, reported: RemainingBandwidth, now_s: float) -> None:
        self._total[row] = reported.total
        self._observed[row] = reported.observed_at
        self._heard_s[row] = now_s
        self._stale[row] = False
        self._next_stale_s = min(self._next_stale_s, now_s + self._stale_s)
        for info in self._shared.get(row, {}).values():
            self._update_share(info)
        egress, ingress = reported.total - reported.egress, reported.total - reported.ingress
        self._flow.measure(row, (egress, ingress, egress + ingress))
        self._reckon(row)

    def _update_share(self, info: PodInfo) -> None:
        """Recomputes the pod's share; the gang's size may have been unknown when the pod was found."""
        held = self._held[info.uid]
        own = _share(held.request, info)
        if own.amounts != held.amounts:
            self._flow.release(held.row, held.amounts)
            self._flow.reserve(held.row, own.amounts)
            self._held[info.uid] = held._replace(amounts=own.amounts)

    def _forget_measurement(self, row: int) -> None:
        self._text.pop(row, None)
        self._observed.pop(row, None)
        self._total[row] = 0
        self._heard_s[row] = math.inf
        self._stale[row] = False
        self._flow.measure(row, (0, 0, 0))
        self._reckon(row)

    def _reckon(self, row: int) -> None:
        """Computes what is left on one row, cached so that queries over all rows are cheap."""
        if self._stale[row] or row not in self._observed:
            self._left[:, row] = _UNUSABLE
            return
        flow = self._flow
        gone = flow.others[:, row] + flow.reserved[:, row] if self._promise else flow.used[:, row]
        egress, ingress, both_ways = (int(self._total[row]) - int(one) for one in gone)
        self._left[:, row] = (egress, ingress, both_ways, min(egress, ingress))

    def _fit(self, n_rows: int) -> None:
        missing = n_rows - len(self._total)
        if missing > 0:
            more = max(missing, len(self._total), 64)
            self._total = np.concatenate([self._total, np.zeros(more, dtype=np.int64)])
            self._heard_s = np.concatenate([self._heard_s, np.full(more, math.inf)])
            self._stale = np.concatenate([self._stale, np.zeros(more, dtype=np.bool_)])
            self._left = np.concatenate([self._left, np.full((4, more), _UNUSABLE, dtype=np.int64)], axis=1)
            self._flow.fit(len(self._total))


def _share(request: BandwidthRequest, info: PodInfo) -> BandwidthRequest:
    return request.share(info.group.start_count if info.group is not None else 1)

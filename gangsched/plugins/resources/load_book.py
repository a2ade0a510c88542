"""LoadBook: node performance, last measured load, and the expected load of just-placed pods.

The usage tracker (core.cache.nodes.usage_trackers) of LoadAware, which reads it; metrics read its evenness. A
pod's expected use comes from its requests, as shares of the node. It is reduced as the measured load rises,
and dropped with the first measurement that must include the pod, whatever it uses. Shapes: [4, rows], the
terms in the order of model.stated.load.TERMS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

import msgspec
import numpy as np

from gangsched.core.cache.nodes.usage_trackers import NOTHING_NEW, MeasuredUsage, UsageNews
from gangsched.core.framework.interface import BoolArray, FloatArray, IntArray
from gangsched.core.types.group import PodInfo
from gangsched.errors import ParseError
from gangsched.model.objects import Node
from gangsched.model.resources import CPU, MEMORY, parse_quantities
from gangsched.model.stated.bandwidth import MEGABYTE, parse_request
from gangsched.model.stated.evenness import Evenness, evenness, load_and_strength, terms_of
from gangsched.model.stated.load import LOAD_KEY, Performance, ReportedUsage, Utilisation, parse_load

# Shares are kept as integers, so that adding and subtracting leaves no remainder.
_WHOLE = 10**6


class _Predicted(msgspec.Struct, gc=False):
    amounts: tuple[int, int, int, int]
    since_s: float


class LoadBook:
    """settle_s: a pod shows in measurements this long after its start; None: no prediction."""

    def __init__(self, *, stale_s: float, settle_s: float | None, assumed_mhz: float) -> None:
        self.n_known = 0
        self.largest: FloatArray = np.zeros(4)
        self._stale_s = stale_s
        self._settle_s = settle_s
        self._assumed_mhz = assumed_mhz
        self._flow = MeasuredUsage(4)
        self._terms: FloatArray = np.zeros((4, 0))
        self._heard_s: FloatArray = np.zeros(0)
        self._stale: BoolArray = np.zeros(0, dtype=np.bool_)
        self._text: dict[int, str] = {}
        self._by_agent: set[int] = set()
        """Rows whose last measurement is the word of the node's own agent."""
        self._performance: dict[int, Performance] = {}
        self._observed: dict[int, datetime] = {}
        self._allocatable: dict[int, dict[str, int]] = {}
        self._predicted: dict[int, dict[str, _Predicted]] = {}
        self._next_stale_s = math.inf
        self._all_changed = False
        self._changed: dict[int, None] = {}
        self._all_news = True

    # -- updates ---------------------------------------------------------------------------------------

    def put_node(self, row: int, node: Node, now_s: float) -> UsageNews:
        self._fit(row + 1)
        with suppress(ParseError):  # the cache has logged it
            self._allocatable[row] = parse_quantities(node.status.allocatable)
        text = (node.metadata.annotations or {}).get(LOAD_KEY)
        if text == self._text.get(row):
            return NOTHING_NEW
        if text is None:
            self._forget_measurement(row)
            return NOTHING_NEW
        self._text[row] = text
        try:
            load = parse_load(text)
        except ParseError as error:
            return UsageNews(problem=str(error))
        self._measured(row, load.utilisation, load.performance, load.observed_at, now_s)
        self._by_agent.add(row)
        return NOTHING_NEW  # scores exclude no node, so a change cannot make a pod schedulable

    def put_usage(self, row: int, usage: ReportedUsage, now_s: float) -> UsageNews:
        self._fit(row + 1)
        if row in self._by_agent and not self._stale[row]:
            return NOTHING_NEW  # the node's agent reports more
        room = self._allocatable.get(row, {})
        cpu_milli, memory = room.get(CPU, 0), room.get(MEMORY, 0)
        performance = Performance(cores=cpu_milli / 1000, mhz=self._assumed_mhz, memory_bytes=float(memory))
        utilisation = Utilisation(_share(usage.cpu_milli, cpu_milli), _share(usage.memory_bytes, memory))
        if usage.observed_at == self._observed.get(row):
            return NOTHING_NEW  # metrics-server repeats its values until its next round
        self._measured(row, utilisation, performance, usage.observed_at, now_s)
        self._by_agent.discard(row)
        return NOTHING_NEW

    def remove_node(self, row: int) -> None:
        self._fit(row + 1)
        self._forget_measurement(row)
        self._flow.clear(row)
        self._changed[row] = None
        self._predicted.pop(row, None)
        self._allocatable.pop(row, None)

    def enter(self, infos: Iterable[PodInfo], row: int, now_s: float) -> None:
        if self._settle_s is None:
            return
        self._fit(row + 1)
        for info in infos:
            if not self._shows(info, row, self._settle_s):
                self._predict(info, row, now_s)

    def _shows(self, info: PodInfo, row: int, settle_s: float) -> bool:
        """Whether the last measurement includes the pod: it started at least settle_s before."""
        started, observed = info.pod.status.start_time, self._observed.get(row)
        if started is None or observed is None:
            return False
        # Compares the difference: a time of the year 1, which Go writes for none, has no earlier time.
        return (observed - started).total_seconds() >= settle_s

    def _predict(self, info: PodInfo, row: int, now_s: float) -> None:
        amounts = self._amounts(info, row)
        if any(amounts):
            self._predicted.setdefault(row, {})[info.uid] = _Predicted(amounts, now_s)
            self._flow.reserve(row, amounts)
            self._changed[row] = None

    def leave(self, info: PodInfo, row: int, now_s: float) -> None:
        found = self._predicted.get(row, {}).pop(info.uid, None)
        if found is not None:
            self._flow.release(row, found.amounts)
            self._changed[row] = None

    def advance(self, now_s: float) -> Iterable[int]:
        changed: list[int] = []
        if now_s >= self._next_stale_s:
            known = np.isfinite(self._heard_s) & ~self._stale
            late = known & (self._heard_s + self._stale_s <= now_s)
            self._stale |= late
            changed += [int(row) for row in np.flatnonzero(late)]
            self._changed.update(dict.fromkeys(changed))
            fresh = self._heard_s[known & ~late]
            self._next_stale_s = float(fresh.min()) + self._stale_s if len(fresh) else math.inf
        if self._all_changed:
            self._all_changed = False
            return sorted(self._allocatable)
        return changed

    # -- queries ---------------------------------------------------------------------------------------

    def take_changed(self, n_rows: int) -> IntArray:
        """Returns the rows below n_rows that changed since the last call."""
        self._fit(n_rows)
        rows = range(len(self._heard_s)) if self._all_news else sorted(self._changed)
        self._changed = {}
        self._all_news = False
        return np.array(rows, dtype=np.int64)

    def terms(self, rows: IntArray) -> FloatArray:
        """Returns the performance terms (S of the published method)."""
        self._fit_to(rows)
        return self._terms[:, rows]

    def expected_utilisation(self, rows: IntArray) -> FloatArray:
        """Returns measured plus predicted use."""
        self._fit_to(rows)
        claimed = self._flow.others[:, rows] + self._flow.reserved[:, rows]
        shares: FloatArray = np.minimum(claimed / _WHOLE, 1.0)
        return shares

    def unknown(self, rows: IntArray) -> BoolArray:
        """Whether each row was never measured."""
        self._fit_to(rows)
        return ~np.isfinite(self._heard_s[rows])

    def stale(self, rows: IntArray) -> BoolArray:
        """Whether each row was last measured too long ago."""
        self._fit_to(rows)
        return self._stale[rows]

    def evenness(self) -> tuple[IntArray, Evenness]:
        """Returns (rows, H of each) of all measured nodes, without predictions, terms normalized."""
        rows = np.flatnonzero(np.isfinite(self._heard_s) & ~self._stale)
        used = self._flow.used[:, rows] / _WHOLE
        sums = load_and_strength(used, self._terms[:, rows], mode="normalized", largest=self.largest)
        return rows, evenness(*sums)

    # -- inside ----------------------------------------------------------------------------------------

    def _measured(
        self, row: int, utilisation: Utilisation, performance: Performance, observed: datetime, now_s: float
    ) -> None:
        if not math.isfinite(self._heard_s[row]):
            self.n_known += 1
        self._heard_s[row] = now_s
        self._stale[row] = False
        self._next_stale_s = min(self._next_stale_s, now_s + self._stale_s)
        self._observed[row] = observed
        if self._performance.get(row) != performance:
            self._performance[row] = performance
            self._terms[:, row] = terms_of(performance)
            self._find_largest()
        if self._settle_s is not None:
            pods = self._predicted.get(row, {})
            for uid in [uid for uid, one in pods.items() if one.since_s + self._settle_s <= now_s]:
                self._flow.release(row, pods.pop(uid).amounts)
        self._flow.measure(row, [round(share * _WHOLE) for share in utilisation.terms])
        self._changed[row] = None

    def _amounts(self, info: PodInfo, row: int) -> tuple[int, int, int, int]:
        """Returns the pod's expected use, in millionths of the node, from the requests that count for
        scores."""
        template, room = info.template, self._allocatable.get(row, {})
        cpu, memory = template.requests.get(CPU, 0), template.requests.get(MEMORY, 0)
        if template.padding is not None:
            cpu, memory = cpu + template.padding[0], memory + template.padding[1]
        performance = self._performance.get(row) or Performance()
        network = 0.0
        try:
            request = parse_request(info.pod.metadata.annotations)
        except ParseError:
            request = None
        if request is not None:
            own = request.share(info.group.start_count if info.group is not None else 1)
            network = _share(own.required / MEGABYTE, performance.network_mbps)
        shares = (
            _share(cpu, performance.cores * 1000 or room.get(CPU, 0)),
            _share(memory, performance.memory_bytes or room.get(MEMORY, 0)),
            network,
            0.0,
        )
        return tuple(round(share * _WHOLE) for share in shares)  # type: ignore[return-value]

    def _forget_measurement(self, row: int) -> None:
        if math.isfinite(self._heard_s[row]):
            self.n_known -= 1
        self._text.pop(row, None)
        self._by_agent.discard(row)
        self._observed.pop(row, None)
        self._performance.pop(row, None)
        self._heard_s[row] = math.inf
        self._stale[row] = False
        self._terms[:, row] = 0.0
        self._flow.measure(row, (0, 0, 0, 0))
        self._changed[row] = None
        self._find_largest()

    def _find_largest(self) -> None:
        largest = self._terms.max(axis=1, initial=0.0)
        if (largest != self.largest).any():
            self.largest = largest
            self._all_changed = self._all_news = True  # scores are fractions of it

    def _fit_to(self, rows: IntArray) -> None:
        if len(rows):
            self._fit(int(rows.max()) + 1)

    def _fit(self, n_rows: int) -> None:
        missing = n_rows - len(self._heard_s)
        if missing > 0:
            more = max(missing, len(self._heard_s), 64)
            self._terms = np.concatenate([self._terms, np.zeros((4, more))], axis=1)
            self._heard_s = np.concatenate([self._heard_s, np.full(more, math.inf)])
            self._stale = np.concatenate([self._stale, np.zeros(more, dtype=np.bool_)])
            self._flow.fit(len(self._heard_s))
            self._all_news = True


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0

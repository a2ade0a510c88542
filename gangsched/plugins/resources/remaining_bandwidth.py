"""RemainingBandwidth: places pods that request bandwidth where enough is left, by the agents' measurements.

Lives here: what a pod's request means for nodes: capacity, scores, reasons. Not here: measurements and
promises (plugins.resources.bandwidth_book), the formats (model.stated.bandwidth). Source: the published
method of scheduling by remaining available bandwidth (RBW): nodes with less than the required bandwidth are
excluded; of the other nodes the best is the one whose remaining bandwidth is closest to the expected one, or
has the largest surplus. Promises between two measurements are our addition.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.pods import PodQueries
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.interface import (
    EVERYWHERE,
    MAX_SCORE,
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    FloatArray,
    IntArray,
    Rows,
    Status,
)
from gangsched.core.types.templates.per_template import PerTemplate
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.errors import ParseError
from gangsched.model.objects import Pod
from gangsched.model.stated.bandwidth import REQUEST_KEYS, BandwidthRequest, Direction, mbps, parse_request
from gangsched.plugins.resources.bandwidth_book import BandwidthBook

Moved = tuple[int, PodTemplate, int]
"""A row, a template, and how many of its pods were placed there on a Trial; below 0: how many departed."""

_MAX_STALE_S = 86_400.0
# Nodes that a reason names; a reason has 1,024 bytes in all.
_NEAR_MISSES = 3
# In the order of BandwidthRequest.amounts.
_QUANTITIES: tuple[Direction, ...] = ("egress", "ingress", "total")
_OF: dict[Direction, tuple[int, ...]] = {"egress": (0,), "ingress": (1,), "total": (2,), "both": (0, 1)}
_ASKED = {
    "egress": "egress",
    "ingress": "ingress",
    "both": "egress and ingress",
    "total": "egress plus ingress",
}


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which node with enough bandwidth is best, and what counts as left. Raises: ValueError.

    promise: without it (the published method) a burst overcommits. bound: a pod that expects more than it
    requires goes only to nodes whose remaining bandwidth is at least as close to the expected as the required
    is: a node with too much left is kept for pods that expect more.
    """

    strategy: Annotated[
        Literal["ClosestToExpected", "LargestSurplus"],
        Meta(
            description="Which node with enough bandwidth is best: the one closest to what is expected, or"
            " the one with most."
        ),
    ] = "ClosestToExpected"
    pool: Annotated[
        bool,
        Meta(
            description="Later pods that ask for the same first try the nodes with required to expected left"
            " (`LargestSurplus`: with more than expected)."
        ),
    ] = False
    stale_policy: Annotated[
        Literal["full", "ignore"],
        Meta(
            description="A node not heard of for `staleSeconds` counts as full, or by its last report"
            " (`ignore`)."
        ),
    ] = "full"
    stale_seconds: Annotated[float, Meta(description="When a report is too old.")] = 60.0
    promise: Annotated[
        bool,
        Meta(description="Subtract what was promised to pods since the node's last report."),
    ] = True
    bound: Annotated[
        bool,
        Meta(
            description="Leave out nodes with [more left](bandwidth-and-load.md#bandwidth) than a pod's"
            " bound; needs `ClosestToExpected`."
        ),
    ] = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.stale_seconds) and 0 < self.stale_seconds <= _MAX_STALE_S):
            raise ValueError(f"staleSeconds {self.stale_seconds:g} is not within 0..{_MAX_STALE_S:g}")
        if self.bound and self.strategy != "ClosestToExpected":
            raise ValueError(f"bound needs strategy ClosestToExpected: {self.strategy} wants the most left")


class RemainingBandwidth:
    """Capacity and score by the bandwidth that nodes have left."""

    name = "RemainingBandwidth"
    cured_by = Change.NODE_ADDED | Change.NODE_REPORT | Change.ROOM_FREED
    signed_annotations = REQUEST_KEYS
    tells_by_template: ClassVar[bool] = True

    def __init__(self, args: Args | None = None) -> None:
        self._args = args or Args()
        self.score_by_row = not self._args.pool
        self.usage_tracker = BandwidthBook(
            stale_s=self._args.stale_seconds if self._args.stale_policy == "full" else math.inf,
            promise=self._args.promise,
            pool=self._args.pool,
            less_is_news=self._args.bound,
        )
        self._requests: PerTemplate[tuple[BandwidthRequest | None]] = PerTemplate()

    def sign(self, pod: Pod) -> Hashable:
        """Returns the request; for one that a group shares, also the group."""
        try:
            request = parse_request(pod.metadata.annotations)
        except ParseError as error:
            return str(error)
        if request is None:
            return ()
        return request if request.scope == "member" else (request, stated_group(pod))

    def concerns(self, template: PodTemplate) -> bool:
        return not REQUEST_KEYS.isdisjoint(template.pod.metadata.annotations or ())

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        try:
            request = parse_request(template.pod.metadata.annotations)
        except ParseError as error:
            return Status.unresolvable(f"annotation {error}")
        if request is None:
            return SKIP
        if request.scope == "group":
            n_members = state.group.start_count if state.group is not None else 1
            request = request.share(n_members)
            known = self._requests.get(template)
            if known is not None and known[0] != request:
                self.usage_tracker.forget_answers()  # the gang's size has changed
        self._requests.put(template, (request,))
        return SUCCESS

    def capacity(
        self, state: CycleState, template: PodTemplate, view: PodQueries, rows: Rows = EVERYWHERE
    ) -> IntArray | None:
        request = self._request_of(template)
        if request is None or not request.required:
            return None
        left = self._left(request, view, rows)
        room: IntArray = np.maximum(left, 0) // request.required
        if (most := self._most(request)) is not None:
            room[left > most] = 0
        return room

    def is_stated(self, template: PodTemplate, view: PodQueries) -> bool:
        """Whether the pod expects more than it requires: by what is expected, nodes differ for it."""
        request = self._request_of(template)
        return request is not None and request.expected > request.required

    def preferred_capacity(
        self, state: CycleState, template: PodTemplate, view: PodQueries
    ) -> IntArray | None:
        """How many members each node takes that all have left what they expect; None: they expect no more
        than they require."""
        request = self._request_of(template)
        if request is None or request.expected <= request.required:
            return None
        room: IntArray = np.maximum(self._left(request, view, EVERYWHERE), 0) // request.expected
        return room

    def _most(self, request: BandwidthRequest) -> int | None:
        """Returns the most that a node may have left, bytes a second; None: any amount."""
        if not self._args.bound or request.expected <= request.required:
            return None
        return 2 * request.expected - request.required

    def reasons(
        self, state: CycleState, template: PodTemplate, view: PodQueries
    ) -> Sequence[tuple[str, BoolArray]]:
        request = self._request_of(template)
        if request is None or not request.required:
            return ()
        book = self.usage_tracker
        silent, stale = book.silent(view.n_rows), book.stale(view.n_rows)
        left = self._left(request, view, EVERYWHERE)
        short = (left < request.required) & ~silent & ~stale & view.live
        found = [
            ("node(s) did not report their remaining bandwidth", silent & view.live),
            (f"node(s) did not report their remaining bandwidth for {self._args.stale_seconds:g} s", stale),
        ]
        if short.any():
            asked = f"{mbps(request.required)} MB/s of {_ASKED[request.direction]}"
            near = self._near_misses(request, left, short, view)
            found.append((f"Insufficient remaining bandwidth for {asked} (nearest: {near})", short))
        most = self._most(request)
        if most is not None and (beyond := (left > most) & ~silent & ~stale & view.live).any():
            text = f"node(s) had more than {mbps(most)} MB/s of {_ASKED[request.direction]} left"
            found.append((f"{text}, too much for a pod that expects {mbps(request.expected)} MB/s", beyond))
        return found

    def score(
        self, state: CycleState, template: PodTemplate, view: PodQueries, rows: IntArray
    ) -> FloatArray | None:
        """0..100 by how far a node is from the expected bandwidth, in multiples of what is expected.

        One multiple off is half as good as none. Other nodes and their links do not enter the scale, so that
        a single fast node does not shrink the differences among the rest.
        """
        request = self._request_of(template)
        if request is None:
            return None
        return self._worth(request, self._left(request, view, rows))

    def score_filled_at(
        self, state: CycleState, template: PodTemplate, view: PodQueries, row: int, n: int
    ) -> FloatArray | None:
        """As score of one node with 0 to n - 1 more of these pods on it, float64[n]."""
        request = self._request_of(template)
        if request is None:
            return None
        at = np.array([row])
        if not self._args.promise:
            return self._worth(request, self._left(request, view, at)).repeat(n)
        steps = np.arange(n)
        sides = [left - steps * request.amounts[q] for q, left in self._sides(request, view, at)]
        return self._worth(request, _tighter(sides))

    def _worth(self, request: BandwidthRequest, left: IntArray) -> FloatArray:
        off = left - request.expected
        distance = np.abs(off)
        scale = distance + max(request.expected, 1)
        if self._args.strategy == "ClosestToExpected":
            scores: FloatArray = MAX_SCORE * (1.0 - distance / scale)
        else:
            scores = MAX_SCORE / 2 * (1.0 + off / scale)
        np.clip(scores, 0.0, MAX_SCORE, out=scores)
        if self._args.pool and self.usage_tracker.has_pool(request):
            first = self._pool(request, left)
            if first.any():
                scores = np.where(first, 0.5 * (MAX_SCORE + scores), 0.5 * scores)
        return scores

    def _pool(self, request: BandwidthRequest, left: IntArray) -> BoolArray:
        """Returns the nodes to try first, by what is left now: a report moves only its own node."""
        if self._args.strategy == "LargestSurplus":
            return left > request.expected
        return (left >= request.required) & (left <= request.expected)

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: PodQueries) -> bool:
        if template is None or change.row < 0:
            return True
        request = self._request_of(template)
        if request is None:
            return False  # invalid annotations stay invalid
        left = int(self._left(request, view, np.array([change.row]))[0])
        most = self._most(request)
        return left >= request.required and (most is None or left <= most)

    def _left(self, request: BandwidthRequest, view: PodQueries, rows: Rows) -> IntArray:
        """Bytes a second that may still be promised, in the tighter direction, or in both together.

        Shape: int64[rows]; below 0 where nothing is known, or the report is stale by policy.
        """
        book = self.usage_tracker
        if not (self._args.promise and view.moved):
            return book.left(request.direction, view.n_rows)[rows]
        return _tighter([left for _, left in self._sides(request, view, rows)])

    def _sides(
        self, request: BandwidthRequest, view: PodQueries, rows: Rows
    ) -> Iterator[tuple[int, IntArray]]:
        """Yields for each quantity of the request: its index, and what a Trial leaves.

        What a departing pod sends is measured until the next report: its amount is given back only as far as
        nothing is measured, and not where no report is recent. What takes its place counts on top.
        """
        book = self.usage_tracker
        placed, departed = (view.placed, _departed(view)) if self._args.promise else ((), ())
        for quantity in _OF[request.direction]:
            direction = _QUANTITIES[quantity]
            left = book.left(direction, view.n_rows)[rows].copy()
            if departed:
                freed = left.copy()
                self._subtract(freed, quantity, departed, rows)
                freed = np.minimum(freed, book.unused(direction, view.n_rows)[rows])
                left = np.where(book.stale(view.n_rows)[rows], left, freed)
            self._subtract(left, quantity, placed, rows)
            yield quantity, left

    def _subtract(self, left: IntArray, quantity: int, moved: Iterable[Moved], rows: Rows) -> None:
        for row, template, count in moved:
            own = self._request_of(template)
            if own is None or (own.scope == "group" and count < 0):
                continue  # how many members share a departing gang's amount is not known
            at = row if isinstance(rows, slice) else np.flatnonzero(rows == row)
            left[at] -= own.amounts[quantity] * count

    def _near_misses(
        self, request: BandwidthRequest, left: IntArray, short: BoolArray, view: RowQueries
    ) -> str:
        rows = np.flatnonzero(short)
        best = rows[np.lexsort((rows, -left[rows]))][:_NEAR_MISSES]
        texts = []
        for row in best:
            one = self.usage_tracker.entry(int(row), request.direction)
            # Amounts that members of the same gang would take here are promised too.
            promised = one.total - one.used - int(left[row]) if self._args.promise else 0
            texts.append(
                f"{view.name(int(row))} {mbps(max(int(left[row]), 0))} left of {mbps(one.total)} total,"
                f" {mbps(one.used)} measured, {mbps(promised)} promised"
            )
        return "; ".join(texts)

    def _request_of(self, template: PodTemplate) -> BandwidthRequest | None:
        known = self._requests.get(template)
        if known is not None:
            return known[0]
        try:
            request = parse_request(template.pod.metadata.annotations)
        except ParseError:
            request = None
        return self._requests.put(template, (request,))[0]


def _departed(view: PodQueries) -> Sequence[Moved]:
    return [one for one in view.moved if one[2] < 0]


def _tighter(sides: Sequence[IntArray]) -> IntArray:
    """Returns the smaller values of one or two directions."""
    return sides[0] if len(sides) == 1 else np.minimum(*sides)


def stated_group(pod: Pod) -> Hashable:
    """Returns what the pod states about its group: its labels and annotations, and the core API's field."""
    meta, group = pod.metadata, pod.spec.scheduling_group
    stated = (*sorted((meta.labels or {}).items()), *sorted((meta.annotations or {}).items()))
    return (stated, group.pod_group_name if group is not None else "")

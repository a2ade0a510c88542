"""DynamicResources: on which nodes a pod's resource claims are, or can be allocated, and for how many pods.

Claims of each pod's own are a capacity: the node takes as many pods as find devices there together, with
those of the gang's members that were placed there before, whose devices may still be others. A claim that
several pods use, and devices that more than one node reaches, make it one member at a time: all members
placed so far are solved again with each node that the next one may go to. Which devices are taken is decided
when all have their nodes (core.cycle.claim_allocation).

Source: kube-scheduler 1.37 `plugins/dynamicresources/dynamicresources.go`, for what is asked, its words, and
the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from gangsched.core.cache.nodes.table import MISSING
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.filters.row_cache import RowCache, n_kept
from gangsched.core.framework.interface import (
    EVERYWHERE,
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
from gangsched.core.resource_claims.book import KINDS, ClaimBook
from gangsched.core.resource_claims.candidates import AllocationError
from gangsched.core.resource_claims.pod_claims import ClaimNeed, own_digests, too_many_users
from gangsched.core.resource_claims.requests import DOMAIN_LABEL, ClaimProblem
from gangsched.core.resource_claims.search.copies import MOST, Copies
from gangsched.core.resource_claims.search.joint import PlacedPods, open_shared, solve
from gangsched.core.types.arrays import NO_LIMIT
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why
from gangsched.errors import ConfigError
from gangsched.model.objects import Node
from gangsched.model.resource_claims.objects import DEVICE_CLASSES, MAX_RESERVED_FOR, ResourceClaim
from gangsched.model.selectors import matches_node
from gangsched.plugins.resources.first_available import Preferences, has_lists
from gangsched.reading.durations import duration_s

REASON_ELSEWHERE = "resourceclaim not available on the node"
# Beyond it texts are forgotten, with the answers that name them.
_MAX_TEXTS = 4096
REASON_DOMAIN = "node(s) that serve another ComputeDomain"
REASON_STATED = "node(s) where no DeviceClass serves the pod, whose status states a claim for its resources"
REASON_NONE = "cannot allocate all claims"


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """DynamicResourcesArgs. Raises: ValueError."""

    filter_timeout: Annotated[str, Meta(description="Accepted; a search ends after a number of steps.")] = (
        "10s"
    )
    binding_timeout: Annotated[str, Meta(description="Accepted; binding conditions are waited for 10m.")] = (
        "10m"
    )

    def __post_init__(self) -> None:
        try:
            filter_s = duration_s(self.filter_timeout, "filterTimeout")
            binding_s = duration_s(self.binding_timeout, "bindingTimeout")
        except ConfigError as error:
            raise ValueError(f"{error.path}: {error.message}") from None
        if filter_s < 0:
            raise ValueError(f"filterTimeout: {self.filter_timeout} is below zero")
        if binding_s < 1:
            raise ValueError(f"bindingTimeout: {self.binding_timeout} is below 1s")


class _Asked(msgspec.Struct, frozen=True):
    """own: digests of the claims of each pod's own. allocated: claims that have a place. is_joint: whether
    nodes depend on each other, by a claim that several use or by devices that several nodes reach. domains:
    UIDs of the ComputeDomains whose channels are claimed. by_class: the resources of which a class must serve
    one, None: none must. left: of claims that are reserved pod by pod, by
    UID, for how many more they can be."""

    own: tuple[str, ...]
    allocated: tuple[ResourceClaim, ...]
    is_joint: bool
    domains: frozenset[str]
    by_class: frozenset[str] | None
    left: dict[str, int]


class DynamicResources:
    """Filter, capacity and Score for claims."""

    name = "DynamicResources"
    sees_pods: ClassVar[bool] = True
    watches: ClassVar[tuple[str, ...]] = (DEVICE_CLASSES,)
    """The others once there is a class, or a pod with claims: a cluster without either has none of them."""
    cured_by = Change.NODE_ADDED | Change.NODE_LABELS | Change.OBJECT | Change.ROOM_FREED

    def __init__(self, args: Args | None = None) -> None:
        self._args = args or Args()
        self._copies: Copies | None = None
        self._preferences = Preferences()
        self._refused: RowCache
        self._texts: list[str]
        self._text_codes: dict[str, int]
        self._forget_refusals()

    def concerns(self, template: PodTemplate) -> bool:
        return bool(template.spec.resource_claims or template.claims)

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        book = view.claims
        if template.claims is None or any(
            need.uid and need.uid not in book.claims for need in template.claims
        ):
            return Status.unresolvable(book.problem(template.pod) or "its resource claims are not ready")
        own = tuple(need.digest for need in template.claims if need.digest)
        open_to_all = open_shared(book, template.claims)
        allocated: list[ResourceClaim] = []
        domains: set[str] = set()
        try:
            for digest in (*own, *(book.digest(uid) for uid in open_to_all)):
                domains |= book.prepared(digest).domains
        except ClaimProblem as problem:
            return Status.unresolvable(problem.reason)
        left: dict[str, int] = {}
        for need in template.claims:
            if not need.uid:
                continue
            claim = book.claims[need.uid]
            if need.uid not in open_to_all:
                allocated.append(claim)
            if not need.is_group:
                left[need.uid] = MAX_RESERVED_FOR - book.n_taking(need.uid)
                if left[need.uid] <= 0:
                    return Status.unresolvable(too_many_users(claim))
        has_own = any(need.is_own for need in template.claims)
        is_joint = bool(open_to_all) or (has_own and book.pools.has_shared)
        is_stated = any(need.extended is not None and need.extended.is_stated for need in template.claims)
        by_class = template.by_class if is_stated else None
        state.data[self.name] = _Asked(own, tuple(allocated), is_joint, frozenset(domains), by_class, left)
        return SUCCESS if is_joint or allocated or domains or is_stated else SKIP

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        mask: BoolArray = view.live.copy()
        for _, out in self.reasons_of_filter(state, template, view):
            mask &= ~out
        return mask

    def capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: Rows = EVERYWHERE
    ) -> IntArray | None:
        if not template.claims or not any(need.is_own for need in template.claims):
            return None
        asked = np.arange(view.n_rows)[rows]
        found = np.zeros(len(asked), dtype=np.int64)
        placed = _placed(view)
        for i, row in enumerate(asked.tolist()):
            found[i] = self._count(template, view, row, placed.get(row, ()))[0]
        return found

    def capacity_on(
        self, state: CycleState, template: PodTemplate, view: ClusterView, row: int
    ) -> int | None:
        if not template.claims or not any(need.is_own for need in template.claims):
            return None
        return self._count(template, view, row, _placed(view).get(row, ()))[0]

    def at_most(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        room: IntArray,
        others: Sequence[PodTemplate],
    ) -> int:
        asked: _Asked = state.data[self.name]
        there = _n_sharing(view) if asked.left else {}
        return min((n - there.get(uid, 0) for uid, n in asked.left.items()), default=int(room.sum()))

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[Why, BoolArray]]:
        found = list(self.reasons_of_filter(state, template, view)) if self.name in state.data else []
        left = view.live.copy()
        for _, out in found:
            left &= ~out
        if template.claims:
            rows = np.flatnonzero(left)
            codes = self._refusals(template, view, rows)
            for code in dict.fromkeys(codes[codes > 0].tolist()):
                out = np.zeros(view.n_rows, dtype=np.bool_)
                out[rows[codes == code]] = True
                found.append((self._texts[code], out))
        return found

    def _refusals(self, template: PodTemplate, view: ClusterView, rows: IntArray) -> IntArray:
        """Why these nodes take no pod, as places in `_texts`, 0 where they do; kept until a node changes."""
        if len(self._texts) > _MAX_TEXTS:
            self._forget_refusals()
        kept, placed = self._refused.answers(template, view), _placed(view)
        # Of what victims leave nothing is kept.
        is_plain = view.claimed is view.claims.cluster
        codes = np.zeros(len(rows), dtype=np.int64)
        known = kept.known[rows] & is_plain
        known[np.isin(rows, list(placed))] = False
        codes[known] = kept.values[rows[known]]
        for i in np.flatnonzero(~known).tolist():
            row = int(rows[i])
            before = placed.get(row, ())
            n, reason = self._count(template, view, row, before)
            codes[i] = 0 if n else self._text_codes.setdefault(reason, len(self._texts))
            if codes[i] == len(self._texts):
                self._texts.append(reason)
            if is_plain and not before:
                kept.known[row], kept.values[row] = True, codes[i]
        return codes

    def _forget_refusals(self) -> None:
        self._refused = RowCache(n_kept)
        self._texts, self._text_codes = [""], {"": 0}

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """How good what a pod is served of its claims' firstAvailable is, 100 for the best of `rows`; None if
        no claim has such a list."""
        if not self.is_stated(template, view):
            return None
        placed, copies = _placed(view), self._copies_of(view.claims)
        points = self._preferences.points(template, view, rows, placed, copies)
        most = int(points.max(initial=0))
        # kube-scheduler's DefaultNormalizeScore: whole numbers, rounded down.
        return (100 * points // most).astype(np.float64) if most > 0 else None

    def is_stated(self, template: PodTemplate, view: ClusterView) -> bool:
        """Whether a claim has a list of requests of which the first possible one is served."""
        return bool(template.claims) and has_lists(view.claims, template.claims or ())

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        return change.what is not Change.OBJECT or change.kind in KINDS

    # -- nodes on their own ------------------------------------------------------------------------------

    def _count(
        self,
        template: PodTemplate,
        view: ClusterView,
        row: int,
        before: Sequence[tuple[tuple[ClaimNeed, ...], int]],
    ) -> tuple[int, str]:
        """How many more pods of the template find devices on the node, and why none does."""
        node = view.node(row)
        if not any(need.is_own for need in template.claims or ()):
            return NO_LIMIT, ""
        if node is None:
            return 0, REASON_NONE
        name, on = node.metadata.name, view.claims.extended.on
        own = own_digests(on(template.claims or (), name))
        if not own:  # a plugin serves there what it asks for
            return NO_LIMIT, ""
        there = [(own_digests(on(needs, name)), n) for needs, n in before]
        copies = self._copies_of(view.claims)
        before_own = [one for one in there if one[0]]
        count = copies.count(view.claims.offer(node), own, before_own, view.claimed)
        return (NO_LIMIT if count.n >= MOST else count.n), count.reason or REASON_NONE

    def _copies_of(self, book: ClaimBook) -> Copies:
        if self._copies is None or self._copies.book is not book:
            self._copies = Copies(book)
        return self._copies

    # -- nodes that depend on each other -----------------------------------------------------------------

    def reasons_of_filter(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> list[tuple[str, BoolArray]]:
        """Returns where allocated claims are not, where another ComputeDomain is served, and where the next
        member finds no devices beside those placed before; everywhere, if a claim can be reserved for no more
        pods."""
        asked: _Asked = state.data[self.name]
        book, elsewhere = view.claims, np.zeros(view.n_rows, dtype=np.bool_)
        for uid, n in _n_sharing(view).items() if asked.left else ():
            if n >= asked.left.get(uid, NO_LIMIT):
                return [(too_many_users(book.claims[uid]), view.live.copy())]
        for row in np.flatnonzero(view.live).tolist() if asked.allocated else ():
            node = view.node(row)
            elsewhere[row] = node is None or not all(_is_on(one, node, book) for one in asked.allocated)
        found = [(REASON_ELSEWHERE, elsewhere)]
        if asked.domains:
            codes, values = view.label(DOMAIN_LABEL)
            own = [values[one] for one in asked.domains if one in values]
            found.append((REASON_DOMAIN, view.live & (codes != MISSING) & ~np.isin(codes, own)))
            elsewhere = elsewhere | found[-1][1]
        if asked.by_class is not None:
            served = np.zeros(view.n_rows, dtype=np.bool_)
            for resource in asked.by_class:
                served |= view.served_by_class(resource)
            found.append((REASON_STATED, view.live & ~served))
            elsewhere = elsewhere | found[-1][1]
        if asked.is_joint:
            by_reason: dict[str, list[int]] = {}
            self._judge(template, view, view.live & ~elsewhere, by_reason)
            for reason, rows in by_reason.items():
                out = np.zeros(view.n_rows, dtype=np.bool_)
                out[rows] = True
                found.append((reason, out))
        return found

    def _judge(
        self, template: PodTemplate, view: ClusterView, among: BoolArray, by_reason: dict[str, list[int]]
    ) -> None:
        book = view.claims
        before = [
            PlacedPods(node, needs, n)
            for row, pods in _placed(view).items()
            if (node := view.node(row)) is not None
            for needs, n in pods
        ]
        there = {one.node.metadata.name for one in before}
        alike: dict[object, str] = {}
        for row in np.flatnonzero(among).tolist():
            node = view.node(row)
            if node is None or not template.claims:
                continue
            # Nodes that reach the same pools, and nothing placed on either, have one answer.
            name = node.metadata.name
            key = name if name in there else tuple(map(id, book.offer(node).pools))
            reason = alike.get(key)
            if reason is None:
                reason = alike[key] = _why_not(view, [*before, PlacedPods(node, template.claims)])
            if reason:
                by_reason.setdefault(reason, []).append(row)


def _why_not(view: ClusterView, placed: Sequence[PlacedPods]) -> str:
    try:
        return "" if solve(view.claims, placed, view.claimed).own is not None else REASON_NONE
    except (AllocationError, ClaimProblem) as error:
        return error.reason


def _placed(view: ClusterView) -> dict[int, list[tuple[tuple[ClaimNeed, ...], int]]]:
    """By row: the pods with claims that were placed on the Trial, (what each needs, how many)."""
    found: dict[int, dict[tuple[ClaimNeed, ...], int]] = {}
    for row, template, n in view.placed:
        if template.claims:
            there = found.setdefault(row, {})
            there[template.claims] = there.get(template.claims, 0) + n
    return {row: [*there.items()] for row, there in found.items()}


def _n_sharing(view: ClusterView) -> dict[str, int]:
    """How many pods that were placed on the Trial use each claim that is reserved pod by pod, by its UID."""
    found: dict[str, int] = {}
    for _, template, n in view.placed:
        for need in template.claims or ():
            if need.uid and not need.is_group:
                found[need.uid] = found.get(need.uid, 0) + n
    return found


def _is_on(claim: ResourceClaim, node: Node, book: ClaimBook) -> bool:
    """Whether an allocated claim can be used on the node."""
    allocation = book.allocation(claim.metadata.uid)
    if allocation is None or allocation.node_selector is None:
        return allocation is not None
    return matches_node(allocation.node_selector, node.metadata.name, node.metadata.labels or {})


__all__ = ["Args", "DynamicResources"]

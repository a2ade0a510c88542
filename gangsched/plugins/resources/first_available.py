"""Preferences: what pods are served of the lists in their claims of which the first possible request counts.

Of each request with such a list a pod has 8 points for the first subrequest, 1 less for each one after it.
Source: kube-scheduler 1.37 `plugins/dynamicresources/dynamicresources.go`, computeScore. Called by
plugins.resources.dynamic_resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.filters.row_cache import RowCache, n_kept
from gangsched.core.framework.interface import IntArray
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.candidates import AllocationError
from gangsched.core.resource_claims.pod_claims import ClaimNeed, own_digests
from gangsched.core.resource_claims.requests import ClaimProblem
from gangsched.core.resource_claims.search.copies import Copies
from gangsched.core.resource_claims.search.joint import PlacedPods, open_shared, solve
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Node

Placed = Mapping[int, Sequence[tuple[tuple[ClaimNeed, ...], int]]]
"""By row: the pods with claims that were placed on the Trial, (what each needs, how many)."""


def has_lists(book: ClaimBook, needs: Sequence[ClaimNeed]) -> bool:
    """Whether a claim that is still to be allocated has such a list."""
    open_claims = (*own_digests(needs), *(book.digest(uid) for uid in open_shared(book, needs)))
    try:
        return any(any(book.prepared(digest).is_prioritized) for digest in open_claims)
    except ClaimProblem:
        return False


class Preferences:
    """Points of nodes. Where nodes do not depend on each other they are kept until a node changes."""

    def __init__(self) -> None:
        self._kept = RowCache(n_kept)

    def points(
        self, template: PodTemplate, view: ClusterView, rows: IntArray, placed: Placed, copies: Copies
    ) -> IntArray:
        """int64[len(rows)]. Raises: ClaimProblem."""
        needs = template.claims or ()
        book = view.claims
        fixed = sum(_points_of_allocated(book, need.uid) for need in needs if need.uid)
        if open_shared(book, needs) or book.pools.has_shared:
            return fixed + _joint_points(view, needs, rows, placed)
        found = np.empty(len(rows), dtype=np.int64)
        on = book.extended.on
        # Of what victims leave nothing is kept.
        kept = self._kept.answers(template, view) if view.claimed is book.cluster else None
        for i, row in enumerate(rows.tolist()):
            before = placed.get(row, ())
            if kept is not None and not before and kept.known[row]:
                found[i] = kept.values[row]
                continue
            node = view.node(row)
            points = 0
            if node is not None:
                name = node.metadata.name
                there = [(own_digests(on(one, name)), n) for one, n in before]
                own = [one for one in there if one[0]]
                digests = own_digests(on(needs, name))
                points = copies.points(book.offer(node), digests, own, view.claimed)
            found[i] = points
            if kept is not None and not before:
                kept.known[row], kept.values[row] = True, points
        return fixed + found


def _points_of_allocated(book: ClaimBook, uid: str) -> int:
    allocation = book.allocation(uid)
    if allocation is None:
        return 0
    try:
        return book.prepared(book.digest(uid)).points(one.request for one in allocation.devices.results)
    except ClaimProblem:  # a class is gone; it is allocated all the same
        return 0


def _joint_points(
    view: ClusterView, needs: tuple[ClaimNeed, ...], rows: IntArray, placed: Placed
) -> IntArray:
    book = view.claims
    before = [
        PlacedPods(node, those, n)
        for row, pods in placed.items()
        if (node := view.node(row)) is not None
        for those, n in pods
    ]
    found = np.zeros(len(rows), dtype=np.int64)
    alike: dict[object, int] = {}
    for i, row in enumerate(rows.tolist()):
        node = view.node(row)
        if node is None:
            continue
        key: object = row if row in placed else tuple(map(id, book.offer(node).pools))
        points = alike.get(key)
        if points is None:
            points = alike[key] = _points_beside(view, before, node, needs)
        found[i] = points
    return found


def _points_beside(
    view: ClusterView, before: Sequence[PlacedPods], node: Node, needs: tuple[ClaimNeed, ...]
) -> int:
    book = view.claims
    try:
        solution = solve(book, [*before, PlacedPods(node, needs)], view.claimed)
    except (AllocationError, ClaimProblem):
        return 0
    if solution.own is None:
        return 0
    served = [
        *zip(own_digests(book.extended.on(needs, node.metadata.name)), solution.own[-1], strict=True),
        *((book.digest(uid), solution.shared[uid]) for uid in open_shared(book, needs)),
    ]
    return sum(book.prepared(digest).points(one.request.name for one in chosen) for digest, chosen in served)

"""Which devices the claims of placed members get: decided once all of them have their nodes; and whether a
selector fails on a device, which ends the attempt.

Called by core.cycle.cycle. Nodes are solved one by one where they do not depend on each other, so that what a
plan costs grows with its members. plugins.resources.dynamic_resources has counted that it is possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import count
from uuid import UUID

import numpy as np

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.framework.profile import CLAIMS, Demand
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.candidates import AllocationError, SelectorFailed
from gangsched.core.resource_claims.extended import ENTRY, not_made_yet
from gangsched.core.resource_claims.requests import ClaimProblem
from gangsched.core.resource_claims.results import allocation
from gangsched.core.resource_claims.search.joint import PlacedPods, open_shared, solve
from gangsched.core.types.placement import Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.cel.values import SelectorError
from gangsched.model.resource_claims.objects import Allocation
from gangsched.model.selectors import matches_node


def allocate_claims(view: ClusterView, having: Sequence[Placement]) -> dict[str, Allocation] | str:
    """Returns the allocations by the UIDs of these members' claims; or why there are none after all, where a
    search has ended at its budget."""
    book = view.claims
    is_joint = book.pools.has_shared or any(
        open_shared(book, one.info.template.claims or ()) for one in having
    )
    parts: dict[int, list[Placement]] = {}
    for one in having:
        parts.setdefault(0 if is_joint else one.row, []).append(one)
    found: dict[str, Allocation] = {}
    for part in parts.values():
        try:
            mine = _allocated(book, view, part)
        except (AllocationError, ClaimProblem) as error:
            return error.reason
        if mine is None:
            return "the search for devices for its resource claims was given up"
        found |= mine
    return found


def failed_selector(demand: Demand, template: PodTemplate, view: ClusterView) -> str:
    """Returns why a pod of the template fits nowhere because a selector fails on a device of a node that
    suits it otherwise; "": none does.

    Kubernetes ends the attempt with that error, though other nodes may have devices: such a selector is to be
    mended, and on which nodes it happens to work says nothing.
    """
    book, needs = view.claims, template.claims or ()
    try:
        claims = [book.prepared(need.digest) for need in needs if need.digest]
        claims += [book.prepared(book.digest(uid)) for uid in open_shared(book, needs)]
    except ClaimProblem:
        return ""
    asked = {text for claim in claims for request in claim.requests for text in request.selectors}
    failing = asked & book.selectors.failing
    if not failing:
        return ""
    state, status = demand.pre_filter(template, view)
    if not status.is_success:
        return ""
    given = [book.allocation(need.uid) for need in needs if need.uid]
    places = [one.node_selector for one in given if one is not None and one.node_selector is not None]
    for row in np.flatnonzero(demand.profile.filtering.reaching(CLAIMS, state, template, view)).tolist():
        node = view.node(row)
        if node is None or not all(
            matches_node(one, node.metadata.name, node.metadata.labels or {}) for one in places
        ):
            continue
        if not any(
            isinstance(book.selectors.verdict(text, device), SelectorError)
            for device, _ in book.offer(node).devices
            for text in failing
        ):
            continue
        try:
            solve(book, [PlacedPods(node, needs)], view.claimed)
        except SelectorFailed as error:
            return error.reason
        except AllocationError:
            continue
    return ""


def _allocated(book: ClaimBook, view: ClusterView, part: Sequence[Placement]) -> dict[str, Allocation] | None:
    # Equal pods of a node one after the other: they could change places, which need not be tried.
    ordered = sorted(part, key=lambda one: (one.row, one.info.template.serial))
    placed: list[PlacedPods] = []
    for one in ordered:
        node, needs = view.node(one.row), one.info.template.claims or ()
        assert node is not None, "a member was placed on a node"
        last = placed[-1] if placed else None
        if last is not None and last.node is node and last.needs == needs:
            placed[-1] = last._replace(n=last.n + 1)
        else:
            placed.append(PlacedPods(node, needs))
    solution = solve(book, placed, view.claimed, is_last=True)
    if solution.own is None:
        return None
    found: dict[str, Allocation] = {}
    for one, chosen_of in zip(ordered, solution.own, strict=True):
        name, chosen = view.name(one.row), iter(chosen_of)
        claims = book.claims_of(one.info.pod)
        for need in book.extended.on(one.info.template.claims or (), name):
            if need.digest:
                is_made = need.entry == ENTRY
                uid = made_uid(one) if is_made else claims[need.entry].metadata.uid
                prepared = book.prepared(need.digest)
                found[uid] = allocation(prepared, next(chosen), name, _share_ids(book, uid).__next__)
            elif need.uid in solution.shared and need.uid not in found:
                prepared = book.prepared(book.digest(need.uid))
                ids = _share_ids(book, need.uid)
                found[need.uid] = allocation(prepared, solution.shared[need.uid], name, ids.__next__)
    return found


def made_uid(one: Placement) -> str:
    """Returns what stands for the UID of the claim that is to be made for a placed pod."""
    group = one.info.group
    return not_made_yet(one.info.uid, group.attempts if group is not None else 0)


def _share_ids(book: ClaimBook, uid: str) -> Iterator[str]:
    """Yields IDs for shares of devices that no other claim, and no other version of this one, has."""
    known = book.claims.get(uid)
    version = "" if known is None else known.metadata.resource_version
    for n in count():
        digest = blake2b(f"{uid}/{version}/{n}".encode(), digest_size=16).digest()
        yield str(UUID(bytes=digest, version=4))

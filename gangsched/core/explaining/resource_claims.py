"""Which devices the resource claims of a member find where it does not fit, and who has the others.

Computed when somebody asks, from what the search for devices reads (core.resource_claims); no refusal costs
this. Called by core.explaining.room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from gangsched.core.framework.plan import FitError, Shortage
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.candidates import Cluster, NodeOffer
from gangsched.core.resource_claims.devices import A_LIST, CounterName, ListedDevice, Pool, Value
from gangsched.core.resource_claims.extended import ENTRY
from gangsched.core.resource_claims.pod_claims import used_claims
from gangsched.core.resource_claims.requests import (
    DOMAIN_LABEL,
    ClaimProblem,
    Constraint,
    PreparedClaim,
    Request,
)
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import MemberState
from gangsched.core.why import Why
from gangsched.core.why.resource_claims import (
    AllocatedThere,
    ConstraintUnmet,
    InUseBy,
    NotTogether,
    PoolUnusable,
    RequestLacks,
    Selected,
    SelectorFails,
    ServesOther,
)
from gangsched.model.cel.values import SelectorError
from gangsched.model.resource_claims.extended import served_resources
from gangsched.model.resource_claims.objects import DeviceId, ResourceClaim
from gangsched.model.selectors import matches_node

PLUGIN = "DynamicResources"
# Some 100 ms on the scheduler's loop; nodes beyond are not looked at, which is said.
_MAX_DEVICES = 5_000
_MAX_NAMED = 4


class _Found(NamedTuple):
    """A request with what it finds. most: of free devices on one node, n_least: how many have to be."""

    why: RequestLacks
    free: dict[DeviceId, ListedDevice]
    n_least: int
    errors: tuple[SelectorFails, ...]

    @property
    def share(self) -> float:
        return self.why.most / self.n_least


class _Asked(NamedTuple):
    """Where the member finds no devices. offers: of nodes that suit it otherwise, with their names.
    resources: by request of the claim that would be made for it: the extended resource that it serves."""

    scheduler: Scheduler
    book: ClaimBook
    cluster: Cluster
    offers: list[NodeOffer]
    devices: dict[DeviceId, tuple[ListedDevice, Pool]]
    n_unseen: int
    resources: dict[str, str]


def claim_sentences(scheduler: Scheduler, short: Shortage) -> Iterator[Why]:
    """Yields what the member's claims lack on the nodes that do not serve them; nothing if all do."""
    trial, template = short.trial, short.template
    rows = np.zeros(trial.n_rows, dtype=np.bool_)
    for plugin, _, out in short.found:
        if plugin == PLUGIN:
            rows |= out
    if not rows.any() or not template.claims:
        return
    book, offers = trial.claims, []
    devices: dict[DeviceId, tuple[ListedDevice, Pool]] = {}
    domains = frozenset[str]().union(*(claim.domains for _, claim in _open_claims(book, short)))
    others: list[str] = []
    n_unseen = 0
    for row in np.flatnonzero(rows & trial.live).tolist():
        node = trial.node(row)
        if node is None or len(devices) >= _MAX_DEVICES:
            n_unseen += 1
            continue
        served = (node.metadata.labels or {}).get(DOMAIN_LABEL)
        if domains and served is not None and served not in domains:
            others.append(node.metadata.name)
            continue
        offers.append(offer := book.offer(node))
        devices |= {one.id: (one, pool) for one, pool in offer.devices if offer.has(one)}
    asked = _Asked(scheduler, book, trial.claimed, offers, devices, n_unseen, {})
    is_open = False
    for used in used_claims(short.member.pod):
        claim = book.named(short.member.pod.metadata.namespace, used.name or "")
        if claim is None:
            continue
        if book.allocation(claim.metadata.uid) is not None:
            yield from _allocated(asked, claim)
        is_open = is_open or book.allocation(claim.metadata.uid) is None
    is_open = is_open or bool(template.by_class)
    if others:
        yield ServesOther(DOMAIN_LABEL, tuple(others[:_MAX_NAMED]), len(others))
    if is_open and offers:
        yield from _pools(offers)
        yield from _lacks(asked, short)


def claims_refused(scheduler: Scheduler, error: FitError) -> Iterator[Why]:
    """Yields the selector that fails on a device, where that has refused a group before any node was looked
    at."""
    if not any(plugin == PLUGIN for plugin, _ in error.rejected_by):
        return
    book, view = scheduler.shared.cache.claims, scheduler.shared.cache.view
    info = next(iter(error.group.in_state(MemberState.PENDING)), None)
    expressions = {
        text: None
        for claim in (book.claims_of(info.pod).values() if info is not None else ())
        for request in _requests(book, claim)
        for text in request.selectors
    }
    n_devices = 0
    for row in np.flatnonzero(view.live).tolist() if expressions else ():
        node = view.node(row)
        for device, _ in book.offer(node).devices if node is not None else ():
            n_devices += 1
            for text in expressions:
                verdict = book.selectors.verdict(text, device)
                if isinstance(verdict, SelectorError):
                    yield SelectorFails(text, str(device.id), str(verdict))
                    return
        if n_devices >= _MAX_DEVICES:
            return


def _requests(book: ClaimBook, claim: ResourceClaim) -> Sequence[Request]:
    try:
        return book.prepared(book.digest(claim.metadata.uid)).requests
    except ClaimProblem:
        return ()


def _allocated(asked: _Asked, claim: ResourceClaim) -> Iterator[Why]:
    allocation = asked.book.allocation(claim.metadata.uid)
    selector = allocation.node_selector if allocation is not None else None
    if selector is None:
        return
    view = asked.scheduler.shared.cache.view
    there = (node for row in np.flatnonzero(view.live).tolist() if (node := view.node(row)) is not None)
    names = [
        node.metadata.name
        for node in there
        if matches_node(selector, node.metadata.name, node.metadata.labels or {})
    ]
    here = {offer.name for offer in asked.offers}
    if not here.issuperset(names) or not names:
        yield AllocatedThere(claim.key, tuple(islice(names, _MAX_NAMED)), _users(asked, [(claim, 1)]))


def _pools(offers: Iterable[NodeOffer]) -> Iterator[Why]:
    broken = {pool.id: pool for offer in offers for pool in offer.pools if pool.problem}
    if broken:
        first = next(iter(broken.values()))
        yield PoolUnusable(str(first.id), first.is_incomplete, first.problem, len(broken) - 1)


def _lacks(asked: _Asked, short: Shortage) -> Iterator[Why]:
    """What is found for the request that lacks most; if each alone could be served, why all cannot."""
    claims = [*_open_claims(asked.book, short), *_extended(asked, short)]
    found = [(claim, each) for claim, prepared in claims for each in _served(asked, claim, prepared)]
    if not found:
        return
    _, worst = min(found, key=lambda one: one[1].share)
    if asked.devices:
        yield worst.why
    yield from worst.errors[:1]
    if worst.share < 1:
        return
    unmet: list[Why] = [
        why
        for claim, prepared in claims
        for constraint in prepared.constraints
        if (why := _unmet(asked, claim, prepared, constraint)) is not None
    ]
    yield from unmet[:1] or [NotTogether(bool(short.own))]


def _open_claims(book: ClaimBook, short: Shortage) -> Iterator[tuple[str, PreparedClaim]]:
    """The names of the member's claims that are still to be allocated, with what they ask for."""
    pod = short.member.pod
    for used in used_claims(pod):
        claim = book.named(pod.metadata.namespace, used.name or "")
        if claim is not None and book.allocation(claim.metadata.uid) is None:
            try:
                yield claim.key, book.prepared(book.digest(claim.metadata.uid))
            except ClaimProblem:
                continue


def _extended(asked: _Asked, short: Shortage) -> Iterator[tuple[str, PreparedClaim]]:
    """What the member's extended resources ask for on the first of the nodes where classes serve them."""
    extended, needs = asked.book.extended, short.template.claims or ()
    for offer in asked.offers if short.template.by_class else ():
        for need in extended.on(needs, offer.name):
            if need.entry == ENTRY:
                try:
                    prepared = asked.book.prepared(need.digest)
                except ClaimProblem:
                    return
                asked.resources.update(served_resources(extended.claims[need.digest].mappings))
                yield "", prepared
                return


def _served(asked: _Asked, claim: str, prepared: PreparedClaim) -> Iterator[_Found]:
    """What each request finds: of several subrequests, the one that comes closest."""
    for choices in prepared.choices:
        yield max((_finds(asked, claim, one) for one in choices), key=lambda one: one.share)


def _finds(asked: _Asked, claim: str, request: Request) -> _Found:
    n_of_class, passes, passing, errors = _selected(asked, request)
    cluster, taints = asked.cluster, dict[str, None]()
    usable: list[tuple[ListedDevice, Pool]] = []
    for device, pool in passing:
        bad = [taint.key for taint in cluster.taints(device) if not request.tolerates(taint)]
        taints |= dict.fromkeys(bad)
        if not bad:
            usable.append((device, pool))
    used = [one for one, _ in usable if one.id in cluster.holdings.whole and not request.admin_access]
    taken = {one.id for one in used}
    free, lacking = _counted(cluster, [one for one in usable if one[0].id not in taken])
    most, node = _most(asked.offers, free)
    why = RequestLacks(
        claim,
        request.name,
        request.device_class.metadata.name,
        0 if request.is_all else request.count,
        len(asked.devices),
        len(asked.offers),
        asked.n_unseen,
        n_of_class,
        passes,
        len(passing) - len(usable),
        tuple(islice(taints, _MAX_NAMED)),
        len(used),
        _holders(asked, used),
        len(usable) - len(used) - len(free),
        tuple(islice(lacking, _MAX_NAMED)),
        len(free),
        most,
        node,
        "" if claim else asked.resources.get(request.name, ""),
    )
    n_least = max(len(passing), 1) if request.is_all else request.count
    return _Found(why, free, n_least, errors)


def _selected(
    asked: _Asked, request: Request
) -> tuple[int, tuple[Selected, ...], list[tuple[ListedDevice, Pool]], tuple[SelectorFails, ...]]:
    """How many devices are of the class, how many pass each selector of the request, those that pass all, and
    the first failure."""
    errors: list[SelectorFails] = []
    passing = list(asked.devices.values())
    n_of_class, counts = len(passing), list[Selected]()
    for number, expression in enumerate(request.selectors):
        left = []
        for device, pool in passing:
            answer = asked.book.selectors.verdict(expression, device)
            if answer is True:
                left.append((device, pool))
            elif isinstance(answer, SelectorError) and not errors:
                errors.append(SelectorFails(expression, str(device.id), str(answer)))
        passing = left
        if number < request.of_class:
            n_of_class = len(passing)
        else:
            counts.append(Selected(len(passing), expression))
    return n_of_class, tuple(counts), passing, tuple(errors)


def _counted(
    cluster: Cluster, devices: Iterable[tuple[ListedDevice, Pool]]
) -> tuple[dict[DeviceId, ListedDevice], dict[str, None]]:
    """Those of these devices whose pools have left what they consume, and the counters that others lack."""
    free: dict[DeviceId, ListedDevice] = {}
    lacking: dict[str, None] = {}
    lefts: dict[int, dict[CounterName, int]] = {}
    for device, pool in devices:
        if device.counters and not (device.shareable and device.id in cluster.holdings.shared):
            if id(pool) not in lefts:
                lefts[id(pool)] = cluster.holdings.counters_left(pool)
            short_of = [name for name, n in device.counters if lefts[id(pool)][name] < n]
            if short_of:
                lacking |= dict.fromkeys("/".join(name) for name in short_of)
                continue
        free[device.id] = device
    return free, lacking


def _most(offers: Iterable[NodeOffer], free: dict[DeviceId, ListedDevice]) -> tuple[int, str]:
    """The most of these devices that one node reaches, and that node."""
    best, name = 0, ""
    for offer in offers:
        n = sum(one.id in free and offer.has(one) for one, _ in offer.devices)
        if n > best:
            best, name = n, offer.name
    return best, name


def _unmet(
    asked: _Asked, claim: str, prepared: PreparedClaim, constraint: Constraint
) -> ConstraintUnmet | None:
    """Whether no node has enough free devices that satisfy the constraint, each request's looked at alike."""
    concerned = [one for one in prepared.requests if constraint.concerns(one)]
    n_wanted = sum(one.count for one in concerned if not one.is_all)
    free: dict[DeviceId, ListedDevice] = {}
    for one in concerned:
        free |= _finds(asked, claim, one).free
    best, node = 0, ""
    for offer in asked.offers:
        values: Counter[Value] = Counter()
        for device, _ in offer.devices:
            value = device.value(constraint.attribute) if device.id in free and offer.has(device) else None
            if value is not None and value is not A_LIST:
                values[value] += 1
        n = len(values) if constraint.is_distinct else max(values.values(), default=0)
        if n > best or not node:
            best, node = n, offer.name
    if best >= n_wanted or not node:
        return None
    return ConstraintUnmet(claim, constraint.attribute, constraint.is_distinct, best, n_wanted, node)


def _holders(asked: _Asked, devices: Sequence[ListedDevice]) -> tuple[InUseBy, ...]:
    book = asked.book
    claims = Counter(uid for one in devices for uid in islice(book.holders(one.id), 1))
    return _users(asked, [(book.claims[uid], n) for uid, n in claims.items() if uid in book.claims])


def _users(asked: _Asked, claims: Iterable[tuple[ResourceClaim, int]]) -> tuple[InUseBy, ...]:
    """Who uses these claims, those with the most devices first."""
    pods = asked.scheduler.shared.cache.pods
    held: Counter[tuple[str, str]] = Counter()
    for claim, n in claims:
        info = pods.get(asked.book.user(claim))
        if info is None:
            held["resource claim", claim.key] += n
        elif info.group is None:
            held["scheduler", info.pod.spec.scheduler_name] += n
        else:
            held["gang" if info.group.is_gang else "pod", str(info.group.key)] += n
    return tuple(InUseBy(kind, name, n) for (kind, name), n in held.most_common(_MAX_NAMED))

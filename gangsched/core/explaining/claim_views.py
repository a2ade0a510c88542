"""Views of Dynamic Resource Allocation, as frozen values: pools with their devices, and a group's claims.

As core.explaining.reports, for people and programs, with text made safe to print; lists are bounded. Here is
also what a device's state is, for the dashboard's map. Called by gangsched.web.board.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from gangsched.core.binding.claim_writes import awaited
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.devices import CounterName, ListedDevice, Pool
from gangsched.core.resource_claims.extended import ENTRY
from gangsched.core.resource_claims.pod_claims import used_claims
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, MemberState, PodInfo
from gangsched.core.why.resource_claims import shortened
from gangsched.model.resource_claims.objects import (
    ALL,
    DeviceId,
    DeviceRequest,
    ExactRequest,
    ResourceClaim,
    SubRequest,
)
from gangsched.model.text.printable import clean

MAX_DEVICES = 256
"""Of one pool that are shown. A driver may list any number."""
_MAX_NAMED = 4
FREE, TAINTED, BLOCKED, KEPT, FOREIGN, RESERVED, BOUND = (
    *("free", "tainted", "blocked", "kept", "foreign", "reserved", "bound"),
)


class DeviceState(NamedTuple):
    """What is known of a device. user: a pod of ours that has it. kind: free; tainted, whoever has it;
    blocked, since others have the counters that it consumes; kept, after its pod was deleted by force;
    foreign, reserved or bound, by whose claims have it."""

    kind: str
    user: PodInfo | None = None


class DeviceUser(msgspec.Struct, frozen=True):
    """A claim that has a device, or a share of it. group: of ours; scheduler: another's; "" for neither."""

    claim: str
    pods: tuple[str, ...]
    n_pods: int
    group: str = ""
    scheduler: str = ""
    reserved: bool = False


class PoolDevice(msgspec.Struct, frozen=True):
    """One device: `state` as in DeviceState; taints: the keys of those that keep pods out; users: the first
    of n_users; counters: those of its pool that it lacks."""

    name: str
    state: str
    taints: tuple[str, ...]
    users: tuple[DeviceUser, ...]
    n_users: int
    counters: tuple[str, ...] = ()


class PoolView(msgspec.Struct, frozen=True):
    """A pool, or what one node reaches of it. problem: why none of its devices is given out; devices: the
    first of n_devices, with those that claims have though they are listed no more."""

    driver: str
    name: str
    problem: str
    n_devices: int
    devices: tuple[PoolDevice, ...]


class ClaimView(msgspec.Struct, frozen=True):
    """A claim of a group. name: "" if it is not made yet. pods: the first of n_pods of the group that use it;
    asks: a line for each request; state: in words; devices: by request."""

    name: str
    entry: str
    pods: tuple[str, ...]
    n_pods: int
    asks: tuple[str, ...]
    state: str
    devices: Mapping[str, tuple[str, ...]]


# -- devices -------------------------------------------------------------------------------------------


def device_states(
    book: ClaimBook, pods: Mapping[str, PodInfo], pool: Pool, most: int = MAX_DEVICES
) -> Iterator[tuple[ListedDevice, DeviceState]]:
    """Yields the first devices of a pool with their states; pods: all that are known, by UID."""
    left = book.holdings.counters_left(pool) if pool.counters else {}
    whole, shared = book.holdings.whole, book.holdings.shared
    users: dict[str, DeviceState] = {}
    """By claim: most devices of a node are of few."""
    for device in pool.devices[:most]:
        is_held = device.id in whole or device.id in shared
        if any(one.keeps_out for one in book.cluster.taints(device)):
            yield device, _TAINTED
        elif is_held:
            yield device, _taken(book, pods, device.id, users)
        else:
            yield device, _BLOCKED if left and _lacking(device, left) else _FREE


_FREE, _TAINTED, _BLOCKED, _KEPT = map(DeviceState, (FREE, TAINTED, BLOCKED, KEPT))


def _taken(
    book: ClaimBook, pods: Mapping[str, PodInfo], device: DeviceId, users: dict[str, DeviceState]
) -> DeviceState:
    """By whom: of several claims the first whose pods are ours. users: those that are known."""
    found = _KEPT
    for uid in book.holders(device):
        state = users.get(uid)
        if state is None:
            claim = book.claims.get(uid)
            info = pods.get(book.user(claim)) if claim is not None else None
            kind = FOREIGN if info is None or info.group is None else RESERVED
            is_bound = info is not None and info.state is MemberState.BOUND and kind == RESERVED
            state = users[uid] = DeviceState(BOUND if is_bound else kind, info)
        if state.kind != FOREIGN:
            return state
        found = state
    return found


def _lacking(device: ListedDevice, left: Mapping[CounterName, int]) -> list[str]:
    return ["/".join(name) for name, amount in device.counters if left[name] < amount]


def view_pool(scheduler: Scheduler, pool: Pool) -> PoolView:
    """One pool."""
    book, pods = scheduler.shared.cache.claims, scheduler.shared.cache.pods
    left = book.holdings.counters_left(pool) if pool.counters else {}
    devices = [
        PoolDevice(
            clean(device.id.name),
            state.kind,
            tuple(dict.fromkeys(clean(one.key) for one in book.cluster.taints(device) if one.keeps_out)),
            *_users(book, pods, device.id),
            tuple(map(clean, _lacking(device, left))) if state.kind == BLOCKED else (),
        )
        for device, state in device_states(book, pods, pool)
    ]
    listed = {device.id for device in pool.devices}
    # Of a pool that several nodes have parts of, the others' parts are not here.
    is_all = len(book.pools.nodes_of(pool.id)) == 1
    gone = [one for one in book.held_of(pool.id) if one not in listed] if is_all else []
    devices += [
        PoolDevice(clean(one.name), "not listed", (), *_users(book, pods, one))
        for one in gone[: MAX_DEVICES - len(devices)]
    ]
    problem = pool.problem and f"{'being updated' if pool.is_incomplete else 'invalid'}: {pool.problem}"
    n_devices = len(pool.devices) + len(gone)
    return PoolView(clean(pool.id.driver), clean(pool.id.name), clean(problem), n_devices, tuple(devices))


def _users(
    book: ClaimBook, pods: Mapping[str, PodInfo], device: DeviceId
) -> tuple[tuple[DeviceUser, ...], int]:
    uids = list(book.holders(device))
    claims = (book.claims[uid] for uid in uids if uid in book.claims)
    return tuple(_user(book, pods, claim) for claim in islice(claims, _MAX_NAMED)), len(uids)


def _user(book: ClaimBook, pods: Mapping[str, PodInfo], claim: ResourceClaim) -> DeviceUser:
    info = pods.get(book.user(claim))
    namespace = claim.metadata.namespace
    entries = [one for one in claim.status.reserved_for or () if one.resource == "pods"]
    names = [f"{namespace}/{one.name}" for one in entries] or ([info.pod.key] if info is not None else [])
    group = info.group if info is not None else None
    return DeviceUser(
        clean(claim.key),
        tuple(map(clean, names[:_MAX_NAMED])),
        len(names),
        clean(str(group.key)) if group is not None else "",
        clean(info.pod.spec.scheduler_name) if info is not None and group is None else "",
        group is not None and info is not None and info.state is not MemberState.BOUND,
    )


# -- claims --------------------------------------------------------------------------------------------


def view_claims(scheduler: Scheduler, groups: Iterable[Group], most: int) -> tuple[list[ClaimView], int]:
    """Returns the claims of the groups' pods, a shared one once, the first `most` of them; and how many."""
    book = scheduler.shared.cache.claims
    found: dict[tuple[str, str], list[str]] = {}
    claims: dict[tuple[str, str], ResourceClaim | None] = {}
    for info in (one for group in groups for one in group.members.values()):
        if not info.pod.uses_claims:
            continue
        of = info.pod.metadata.namespace
        mine = [(used.entry, book.named(of, used.name or "")) for used in used_claims(info.pod)]
        if (made := book.claims_of(info.pod).get(ENTRY)) is not None:
            mine.append((ENTRY, made))
        for entry, claim in mine:
            key = entry, info.uid if claim is None else claim.metadata.uid
            claims[key] = claim
            found.setdefault(key, []).append(clean(info.pod.metadata.name))
    shown = [
        _claim(scheduler, entry, claims[entry, uid], pods)
        for (entry, uid), pods in islice(found.items(), most)
    ]
    return shown, len(found)


def _claim(scheduler: Scheduler, entry: str, claim: ResourceClaim | None, pods: list[str]) -> ClaimView:
    named = tuple(pods[:_MAX_NAMED])
    if claim is None:
        return ClaimView("", clean(entry), named, len(pods), (), "not made yet", {})
    asks = tuple(clean(_asked(one)) for one in claim.spec.devices.requests or ())
    allocation = scheduler.shared.cache.claims.allocation(claim.metadata.uid)
    devices: dict[str, tuple[str, ...]] = {}
    for one in allocation.devices.results if allocation is not None else ():
        share = ", a share of it" * (one.share_id is not None)
        admin = ", as administrator" * bool(one.admin_access)
        text = clean(f"{one.pool}/{one.device}{share}{admin}")
        devices[clean(one.request)] = (*devices.get(clean(one.request), ()), text)
    return ClaimView(
        *(clean(claim.metadata.name), clean(entry), named, len(pods), asks),
        *(clean(_progress(claim, is_given=allocation is not None)), devices),
    )


def _progress(claim: ResourceClaim, *, is_given: bool) -> str:
    if claim.metadata.deletion_timestamp is not None:
        return "being deleted"
    if not is_given:
        return "waits for devices"
    if claim.status.allocation is None:
        return "being written"
    still = awaited(claim)
    return f"allocated, waits for {still[0]}" if still else "allocated"


def _asked(request: DeviceRequest) -> str:
    """ "gpu: 2 of class gpu.nvidia.com that pass `…`"."""
    if request.exactly is not None:
        return f"{request.name}: {_of_class(request.exactly)}"
    choices = [f"{one.name} ({_of_class(one)})" for one in request.first_available or ()]
    return f"{request.name}: the first to be had of {', '.join(choices)}"


def _of_class(asked: ExactRequest | SubRequest) -> str:
    n = "all" if asked.allocation_mode == ALL else str(asked.count)
    texts = [shortened(one.cel.expression) for one in asked.selectors or () if one.cel is not None]
    verb = "pass" if n != "1" else "passes"
    passing = f" that {verb} {' and '.join(texts)}" if texts else ""
    return f"{n} of class {asked.device_class_name}{passing}"

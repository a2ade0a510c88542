"""Pages: what people are shown of one process, against a plain count of what the process received.

Makes the pages of nodes, groups, the queue and queues, the numbers of /metrics, the estimated starts and a
few explanations as the web does, now and then. None may fail, and their counts must be those of the pods and
nodes as delivered. Called by lab.sim.judges.step_judges between two turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Iterator
from traceback import extract_tb
from typing import Any

import msgspec

from gangsched.core.estimates import estimated_starts
from gangsched.core.explaining.explain import explain
from gangsched.core.explaining.reports import NodeView, view_groups, view_members, view_nodes
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import LEAVING, PENDING
from gangsched.lab.sim.reading.documents import allocatable, healthy_ids, is_vast, pod_asks
from gangsched.lab.sim.reading.received import Received, reserved_on
from gangsched.model.objects import Node
from gangsched.model.text.printable import clean
from gangsched.web.metrics.reading import Totals, read_devices, read_groups, read_queueing
from gangsched.web.pages.answers import QueuesPage, ReservationsPage
from gangsched.web.pages.queue import Queue
from gangsched.web.pages.queues import queues_page
from gangsched.web.pages.reservations import Reservations

_EVERY_S = 5.0
_EXPLAINED_AT_ONCE = 2
# A deadline is due at once; until the next turn it may be over by a little.
_OVER_S = 1.0
# What holds the room of a claim may be late by 30 s before the claim is moved.
_LATE_S = 35.0


class Pages:
    """pages-true: no page fails, and what pages count is so."""

    def __init__(self, *, knows_ids: bool = True) -> None:
        """knows_ids: whether pods' annotations say which devices they have."""
        self._knows_ids = knows_ids
        self._next_s, self._n_looks = 0.0, 0

    def check(self, scheduler: Scheduler, received: Received, now_s: float) -> Iterator[str]:
        """Reads every page, and the explanations of a few groups, others each time."""
        if now_s < self._next_s or not scheduler.is_synced:
            return
        self._next_s = now_s + _EVERY_S
        self._n_looks += 1
        try:
            yield from (f"pages-true: {problem}" for problem in self._read(scheduler, received, now_s))
        except Exception as error:
            at = extract_tb(error.__traceback__)[-1]
            yield f"pages-true: a page fails in {at.name}, line {at.lineno}: {type(error).__name__}: {error}"

    def _read(self, scheduler: Scheduler, received: Received, now_s: float) -> Iterator[str]:
        nodes = view_nodes(scheduler)
        yield from _nodes(nodes, scheduler, received, knows_ids=self._knows_ids)
        totals = _finished(read_groups(scheduler, now_s, now_s))
        yield from _groups(scheduler, totals)
        yield from _pending(scheduler, received, totals)
        yield from _queue(scheduler, now_s)
        yield from _reserved(scheduler, received, now_s)
        kept = {one.node_name for one in scheduler.shared.cache.nominated.values()}
        open_to_all = [node for node in nodes if node.name not in kept]
        yield from _free_devices(open_to_all, _finished(read_devices(scheduler)), scheduler)
        read_queueing(scheduler, totals)
        yield from _queues(queues_page(scheduler.shared), scheduler, received)
        for key, at_s in estimated_starts(scheduler, now_s).items():
            if at_s < now_s:
                yield f"{key} is estimated to start {now_s - at_s:.1f} s ago"
        groups = list(scheduler.shared.groups.values())
        for k in range(min(_EXPLAINED_AT_ONCE, len(groups))):
            group = groups[(self._n_looks * _EXPLAINED_AT_ONCE + k) % len(groups)]
            if not explain(scheduler, group, now_s).answer:
                yield f"nothing explains why {group.key} is {group.state.value}"


def _nodes(
    nodes: list[NodeView], scheduler: Scheduler, received: Received, *, knows_ids: bool
) -> Iterator[str]:
    """Compares nodes, and the holders of their devices, with what was delivered and promised."""
    by_name = {node.name: node for node in nodes}
    unshown = _unshown(scheduler, received)
    unsure = {received.pods[uid].key for uid in unshown}
    for name, node in received.nodes.items():
        view = by_name.get(clean(name))
        if view is None:
            yield f"node {name} is not shown"
            continue
        if view.unschedulable != bool(node.spec.unschedulable):
            yield f"node {name} is shown as {'closed' if view.unschedulable else 'open'}"
        yield from _healthy(view, node)
        plain: dict[tuple[str, str], set[str]] = {}
        for claim in received.claims_on(name):
            for resource, ids in claim.ids.items():
                for one in ids:
                    plain.setdefault((resource, clean(one)), set()).add(received.pods[claim.uid].key)
        for resource, devices in view.devices.items() if knows_ids else ():
            for device in devices:
                shown, so = set(device.pods), plain.get((resource, device.id), set())
                if (shown ^ so) - unsure:
                    yield f"{device.id} of {resource} on {name} is {sorted(so)}'s, shown: {sorted(shown)}'s"
        if name not in unshown.values():
            yield from _room(view, node, received)


def _healthy(view: NodeView, node: Node) -> Iterator[str]:
    listed = healthy_ids(node)
    for resource, ids in (listed or {}).items():
        shown = {device.id for device in view.devices.get(resource, ()) if device.healthy}
        if shown != {clean(one) for one in ids}:
            yield f"{view.name} has the healthy {resource} {sorted(ids)}, shown: {sorted(shown)}"


def _unshown(scheduler: Scheduler, received: Received) -> dict[str, str]:
    """UID -> node of pods that are reserved, or bound, although nothing that was delivered shows it yet."""
    infos = scheduler.shared.cache.pods.values()
    return {info.uid: info.node_name for info in infos if received.is_held_unshown(info)}


def _room(view: NodeView, node: Node, received: Received) -> Iterator[str]:
    has = allocatable(node)
    if has is None:
        return
    used = Counter[str]()
    for claim in received.claims_on(node.metadata.name):
        used.update(claim.requests)
    for resource, n in has.items():
        if resource not in view.free or is_vast(n) or is_vast(used[resource]):
            continue
        if view.free[resource] != n - used[resource]:
            yield f"{view.name} has {n - used[resource]} {resource} free, shown: {view.free[resource]}"


def _groups(scheduler: Scheduler, totals: Totals) -> Iterator[str]:
    """Compares the counts of groups with those of their members, and the totals with both."""
    n_reserved = 0
    for view in view_groups(scheduler):
        members = view_members(scheduler.shared.groups[view.key])
        if len(members) < view.n_existing:
            yield f"{view.name}: {view.n_existing} exist, of {len(members)} members"
        n_reserved += view.n_reserved
    if totals.n_assumed != n_reserved:
        yield f"{n_reserved} pods are reserved, /metrics says {totals.n_assumed}"


def _pending(scheduler: Scheduler, received: Received, totals: Totals) -> Iterator[str]:
    """Compares how many pods wait with the pods as delivered."""
    reserved = reserved_on(scheduler)
    ours, known = scheduler.shared.profiles, scheduler.shared.cache.pods
    waiting = {
        uid
        for uid, pod in received.pods.items()
        if pod.spec.scheduler_name in ours
        and not pod.spec.node_name
        and not pod.is_terminal
        and pod.metadata.deletion_timestamp is None
        and uid not in reserved
        and uid not in received.promised.by_uid
        and uid not in received.answered
        # Pods of a new profile are still to be read; a read may say that one is gone before the watch does.
        and uid in known
        and known[uid].state is not LEAVING
    }
    # A read that was asked for before the watch showed more is not applied: the watch will show the same.
    n_unsure = sum(
        uid in received.pods
        and one.pod.metadata.resource_version != received.pods[uid].metadata.resource_version
        for uid, one in known.items()
        if one.state is PENDING
    )
    n = sum(totals.pending.values())
    if abs(n - len(waiting)) > n_unsure:
        states = Counter(known[uid].state.value for uid in waiting)
        yield f"{len(waiting)} pods wait ({dict(states)}), /metrics says {n}: {dict(totals.pending)}"


def _queues(page: QueuesPage, scheduler: Scheduler, received: Received) -> Iterator[str]:
    """Compares what all queues together use with what all pods hold."""
    top = [row for row in page.queues if not row.depth]
    if not top:
        return
    unshown, held = _unshown(scheduler, received), Counter[str]()
    for uid, pod in received.pods.items():
        claim = received.claim_of(uid)
        node = unshown.get(uid) or (claim.node if claim is not None else pod.spec.node_name)
        if node in received.nodes and not pod.is_terminal:
            held.update(pod_asks(pod.spec))
    for resource in {name for row in top for name in row.used}:
        used = sum(row.used.get(resource, 0) for row in top)
        if used != held[resource] and not is_vast(held[resource]):
            yield f"pods hold {held[resource]} {resource}, all queues use {used}"


def _queue(scheduler: Scheduler, now_s: float) -> Iterator[str]:
    page = Queue(scheduler, clock_s=lambda: now_s, wall_s=lambda: now_s).page()
    for position, row in enumerate(page.rows, 1):
        if row.position != position:
            yield f"{row.group} stands at {row.position}, shown at {position}"
        if row.next_s is not None and row.next_s < -_OVER_S:
            yield f"{row.group} is {row.state}, and that has been over for {-row.next_s:.1f} s"
        if row.age_s is not None and row.age_s < 0:
            yield f"{row.group} is {row.age_s} s old"
        if row.starts_in_s is not None and row.starts_in_s < -_LATE_S:
            yield f"{row.group} is to start in {row.starts_in_s} s"


def _reserved(scheduler: Scheduler, received: Received, now_s: float) -> Iterator[str]:
    """Compares the page of reservations with what the reserved pods ask for."""
    body = Reservations(scheduler, clock_s=lambda: now_s).listed()
    shown, asked = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in msgspec.json.decode(body, type=ReservationsPage).rows:
        if row.is_taken:
            shown[row.node, row.resource] += row.amount
        if len(row.ids) not in (0, row.amount):
            yield f"{row.group} has reserved {row.amount} {row.resource} on {row.node}, shown: {row.ids}"
    for uid, node in reserved_on(scheduler).items():
        for resource, n in pod_asks(received.pods[uid].spec).items():
            if "/" in resource and not is_vast(n):
                asked[clean(node), clean(resource)] += n
    if shown != asked:
        yield f"{dict(asked)} are reserved, {dict(shown)} are shown"


def _free_devices(
    nodes: list[NodeView], reported_free: list[tuple[str, str, int]], scheduler: Scheduler
) -> Iterator[str]:
    """Where it is not known which pod has which device, none is free (known-devices has its own view)."""
    cache = scheduler.shared.cache
    unknown = {
        (clean(cache.nodes.names[row]), clean(resource))
        for resource, column in cache.ledger.columns.items()
        for row, node in column.at.items()
        if not node.is_known
    }
    shown = {
        (node.name, resource): sum(one.healthy and not one.pods for one in devices)
        for node in nodes
        for resource, devices in node.devices.items()
    }
    for name, resource, n in reported_free:
        if (name, resource) not in unknown and shown.get((name, resource), n) != n:
            yield f"{name} has {shown[name, resource]} free {resource}, /metrics says {n}"


def _finished(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine that only lets others run now and then to its end."""
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            return done.value

"""Views: the scheduler's present state, as frozen values for people and programs to read.

For tables, explain pages and metrics; no decision depends on them. Take views between two turns, from the
loop that drives the scheduler: then all their numbers belong together. Text from users and servers is made
safe to print (one line, no control characters); the reader must escape markup. Called by gangsched.lab.demo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gangsched.core.scheduler import Scheduler
from gangsched.core.state.state import SharedState
from gangsched.core.types.ended import end_of, ended_text
from gangsched.core.types.group import LONG_AGO_S, NEVER_S, Group, GroupState, MemberState, PodInfo
from gangsched.core.types.lost_members import lacks
from gangsched.model.pod_group import GroupKey, needs_object
from gangsched.model.text.printable import clean

_HOLDING = (MemberState.ASSUMED, MemberState.BOUND)


class Holding(msgspec.Struct, frozen=True):
    """What a group holds on one node; IDs by resource, in the order of its members."""

    node: str
    n_reserved: int = 0
    n_bound: int = 0
    reserved_ids: Mapping[str, tuple[str, ...]] = {}
    bound_ids: Mapping[str, tuple[str, ...]] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """All device IDs, reserved and bound, of all resources."""
        both = (*self.reserved_ids.values(), *self.bound_ids.values())
        return tuple(device_id for ids in both for device_id in ids)


class GroupView(msgspec.Struct, frozen=True):
    """One group's present state. Times are on the clock of `handle(now_s)`; None: not, or never.

    n_bound counts members that have started, including ended ones; n_running and n_ended are as reported by
    kubelets. n_needed: how many must be bound for the gang to be whole. is_counted: False if that is unknown:
    the object that gives the number does not exist or cannot be read. why: what the group waits for or was
    refused for, "" when all is well. deadline_s: when its present state times out. created_at, in seconds
    since 1970, replaces complete_since_s in two cases. If members wait beside started ones: when the first of
    those was created. If the group was found at start-up: when its last member was created.
    """

    key: GroupKey
    name: str
    is_gang: bool
    state: GroupState
    why: str
    since_s: float
    complete_since_s: float | None
    created_at: float | None
    deadline_s: float | None
    scheduler_name: str
    priority: int
    min_count: int
    n_needed: int
    is_counted: bool
    n_existing: int
    n_gated: int
    n_pending: int
    n_reserved: int
    n_bound: int
    n_running: int
    n_ended: int
    is_whole: bool
    is_half_bound: bool
    attempts: int
    failures: int
    rejected_by: tuple[str, ...]
    start_together: tuple[str, ...]
    holds: tuple[Holding, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes where it has something reserved or bound."""
        return tuple(holding.node for holding in self.holds)

    @property
    def ids(self) -> tuple[str, ...]:
        """All device IDs that it holds, node by node."""
        return tuple(device_id for holding in self.holds for device_id in holding.ids)


class MemberView(msgspec.Struct, frozen=True):
    """One pod of a group. `why`: the last reason in its PodScheduled condition; claims: its entries of
    resource claims."""

    uid: str
    name: str
    state: MemberState
    phase: str
    node: str
    rank: int | None
    attempt: int
    ids: Mapping[str, tuple[str, ...]]
    why: str
    claims: tuple[str, ...] = ()


class DeviceView(msgspec.Struct, frozen=True):
    """One device in a node's inventory. `group`: its holder, "" if free or another scheduler's."""

    id: str
    healthy: bool
    pods: tuple[str, ...]
    group: str
    reserved: bool


class NodeView(msgspec.Struct, frozen=True):
    """One node: `topology` is its topologyKey label; amounts in the units of model.resources."""

    name: str
    topology: str
    unschedulable: bool
    allocatable: Mapping[str, int]
    free: Mapping[str, int]
    devices: Mapping[str, tuple[DeviceView, ...]]


def view_groups(scheduler: Scheduler) -> list[GroupView]:
    """Every group, lone pods too, by namespace and name."""
    groups = sorted(scheduler.shared.groups.values(), key=lambda g: (g.key.namespace, g.key.name, g.key))
    return [view_group(group) for group in groups]


def view_group(group: Group) -> GroupView:
    """One group."""
    phases = [info.pod.status.phase for info in group.in_state(MemberState.BOUND)]
    complete, late_at = group.first_complete_s, first_late_at(group)
    created_at = complete + LONG_AGO_S if complete < 0 else None
    return GroupView(
        key=group.key,
        name=clean(str(group.key)),
        is_gang=group.is_gang,
        state=group.state,
        why=_why(group),
        since_s=group.since_s,
        # Groups found at start-up are queued by an age far below this clock.
        complete_since_s=complete if 0 <= complete < NEVER_S and late_at is None else None,
        created_at=created_at if late_at is None else late_at,
        deadline_s=group.deadline_s if group.deadline_s < NEVER_S else None,
        scheduler_name=clean(group.scheduler_name),
        priority=group.priority,
        min_count=group.min_count,
        n_needed=group.start_count,
        is_counted=_is_counted(group),
        n_existing=group.n_existing,
        n_gated=group.counts[MemberState.GATED],
        n_pending=group.n_pending,
        n_reserved=group.n_assumed,
        n_bound=group.n_bound,
        n_running=phases.count("Running"),
        n_ended=group.counts[MemberState.DONE],
        is_whole=group.has_started,
        is_half_bound=group.is_half_bound,
        attempts=group.attempts,
        failures=group.failure,
        rejected_by=tuple(dict.fromkeys(plugin for plugin, _ in group.rejected_by)),
        start_together=tuple(clean(name) for name in group.start_together if name != str(group.key)),
        holds=tuple(_holds(group)),
    )


def first_late_at(group: Group) -> float | None:
    """When the first member that waits beside started ones was created, in seconds since 1970.

    None: no member waits so. The age of a gang that has run for a week says nothing about a new member.
    """
    if not group.n_bound:
        return None
    waiting = (*group.in_state(MemberState.PENDING), *group.in_state(MemberState.GATED))
    created = (info.pod.metadata.creation_timestamp for info in waiting)
    return min((at.timestamp() for at in created if at is not None), default=None)


def view_members(group: Group) -> list[MemberView]:
    """A group's pods by rank, then by name; those without a rank come last."""
    views = [
        MemberView(
            uid=info.uid,
            name=clean(info.pod.metadata.name),
            state=info.state,
            phase=clean(info.pod.status.phase),
            node=clean(info.node_name),
            rank=info.rank if info.rank >= 0 else None,
            attempt=info.attempt,
            ids={clean(resource): _clean_all(ids) for resource, ids in info.ids.items()},
            why=info.reported,
            claims=_clean_all(one.name for one in info.pod.spec.resource_claims or ()),
        )
        for info in group.members.values()
    ]
    return sorted(views, key=lambda m: (m.rank is None, m.rank or 0, len(m.name), m.name))


def view_nodes(scheduler: Scheduler) -> list[NodeView]:
    """Every node, sorted by name ("n2" before "n10"), with the holders of its devices."""
    shared = scheduler.shared
    names = sorted(shared.cache.nodes.row_of, key=lambda name: (len(name), name))
    return [_node(shared, name) for name in names]


def view_node(scheduler: Scheduler, name: str) -> NodeView | None:
    """One node; None if no node has that name."""
    shared = scheduler.shared
    return _node(shared, name) if name in shared.cache.nodes.row_of else None


def _is_counted(group: Group) -> bool:
    """Whether the number of members it needs is known, and its members agree on it."""
    if group.definition is None:
        return not group.is_gang
    return group.has_started or not group.problem or len(group.stated) <= 1


def lacks_object(group: Group) -> bool:
    """Whether its numbers are unknown because the object that gives them does not exist."""
    return group.definition is None and needs_object(group.key)


def _node(shared: SharedState, name: str) -> NodeView:
    nodes, ledger = shared.cache.nodes, shared.cache.ledger
    row = nodes.row_of[name]
    node = nodes.nodes[row]
    labels = (node.metadata.labels if node else None) or {}
    has = nodes.allocatable[:, row]
    columns = [(clean(name), i) for i, name in enumerate(nodes.table.names[: len(has)]) if has[i]]
    devices = {}
    for resource in sorted(ledger.columns):
        inventory = ledger.listed(row, resource)
        if inventory is not None:
            held = ledger.holders(row, resource)
            devices[clean(resource)] = tuple(
                _device(shared, device_id, bool(inventory.healthy >> i & 1), held.get(device_id, ()))
                for i, device_id in enumerate(inventory.ids)
            )
    return NodeView(
        name=clean(name),
        topology=clean(labels.get(shared.settings.topology_key, "")),
        unschedulable=bool(nodes.unschedulable[row]),
        allocatable={resource: int(has[i]) for resource, i in columns},
        free={resource: int(nodes.free[i, row]) for resource, i in columns},
        devices=devices,
    )


def _device(shared: SharedState, device_id: str, healthy: bool, uids: Iterable[str]) -> DeviceView:
    holders = [info for uid in uids if (info := shared.cache.pods.get(uid)) is not None]
    ours = next((info for info in holders if info.group is not None), None)
    return DeviceView(
        id=clean(device_id),
        healthy=healthy,
        pods=tuple(clean(info.pod.key) for info in holders),
        group=clean(str(ours.group.key)) if ours is not None and ours.group is not None else "",
        reserved=ours is not None and ours.state is MemberState.ASSUMED,
    )


def _holds(group: Group) -> Iterator[Holding]:
    """What the group holds, node by node in the order of names."""
    by_node: dict[str, list[PodInfo]] = {}
    for info in group.members.values():
        if info.node_name and info.state in _HOLDING:
            by_node.setdefault(info.node_name, []).append(info)
    for name in sorted(by_node, key=lambda name: (len(name), name)):
        reserved = [info for info in by_node[name] if info.state is MemberState.ASSUMED]
        bound = [info for info in by_node[name] if info.state is MemberState.BOUND]
        yield Holding(clean(name), len(reserved), len(bound), _ids(reserved), _ids(bound))


def _ids(infos: Iterable[PodInfo]) -> dict[str, tuple[str, ...]]:
    merged: dict[str, tuple[str, ...]] = {}
    for info in infos:
        for resource, ids in info.ids.items():
            name = clean(resource)
            merged[name] = merged.get(name, ()) + _clean_all(ids)
    return merged


def _clean_all(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(clean(device_id) for device_id in ids)


def _why(group: Group) -> str:
    """The scheduler's last message about it if there is one, else what its state waits for."""
    if group.problem:
        return clean(str(group.problem))
    if (lacking := lacks(group)) and not group.n_pending:
        return f"it has lost members: {lacking}"
    if group.state is GroupState.GATHERING and lacks_object(group):
        return "its PodGroup object does not exist (yet)"
    if group.state in (GroupState.GATHERING, GroupState.GATED) and not group.is_complete:
        gated = group.counts[MemberState.GATED]
        needed = "?" if group.definition is None else str(group.min_count)
        over = f"{ended_text(group)}; " if end_of(group) else ""
        return over + f"{group.n_existing} of {needed} members exist" + (f", {gated} gated" * bool(gated))
    if group.state in (GroupState.BOUND, GroupState.ACTIVE, GroupState.BINDING) and not group.message:
        return ""
    return clean(group.message)

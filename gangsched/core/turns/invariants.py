"""Recount: recounts the core's invariants from scratch.

Runs after every step in tests and in simulation, never on the hot path. The sums over pods are kept until a
pod changes; the core's own counts are compared with them every time. The numbers in the messages are those of
the invariants in the project's fault catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gangsched.core.cache.cache import Cache
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import (
    ASSUMED,
    BOUND,
    NEVER_S,
    NO_ROW,
    PENDING,
    UNASKED,
    Group,
    GroupState,
    MemberState,
    PodInfo,
)
from gangsched.core.types.lost_members import lacks
from gangsched.core.types.templates.pod_template import PodTemplate

# A module-level name costs a tenth of an Enum attribute, and these are read for every group after every step.
_ACTIVE, _BINDING = GroupState.ACTIVE, GroupState.BINDING
_HOLDING = (GroupState.WAITING, GroupState.BINDING)
_NONE = dict.fromkeys(MemberState, 0)
_NO_MEMBERS: Mapping[str, PodInfo] = {}
_NO_DEVICES: frozenset[str] = frozenset()


def find_broken(shared: SharedState) -> list[str]:
    """Every invariant that is violated now, in words; empty when all hold."""
    return Recount(shared).find_broken()


class Recount:
    """The invariants of one scheduler, recounted again and again."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._read: list[tuple[Any, ...]] = []
        self._sums = _Sums(self._read)
        self._sound: tuple[Any, ...] = ()
        """What `_counted` last found correct."""

    def find_broken(self) -> list[str]:
        """Every invariant that is violated now, in words; empty when all hold."""
        shared = self._shared
        # All that _Sums reads, compared in one go; mappings of IDs are replaced, never changed.
        read = [
            (
                uid,
                info,
                info.group,
                info.state,
                info.row,
                info.node_name,
                info.template,
                info.ids,
                info.bind_may_land,
                info.reported_gone,
                info.pod.spec.priority,
            )
            for uid, info in shared.cache.pods.items()
        ]
        if read != self._read:
            self._read, self._sums = read, _Sums(read)
        sums = self._sums
        return [
            *sums.broken,
            *_on_nodes(shared.cache, sums),
            *self._counted(shared.cache),
            *[f"counts: {wrong}" for wrong in shared.cache.index.recount(sums.using_volumes)],
            *_in_groups(shared, sums),
            *_promises(shared),
            *_claims(shared),
            *_templates(shared.cache),
            *_holes(shared),
        ]

    def _counted(self, cache: Cache) -> list[str]:
        """counts: the use counted on nodes; compared again only when it or a pod has changed."""
        nodes = cache.nodes
        arrays = (nodes.free.tobytes(), nodes.allocatable.tobytes(), nodes.padding.tobytes())
        now = (self._sums, arrays, nodes.beyond.copy(), cache.table.edition)
        if now == self._sound:
            return []
        broken = _summed(cache, self._sums.alike)
        self._sound = () if broken else now
        return broken


class _Sums:
    """Sums over the pods. broken: contradictions between pods."""

    def __init__(self, read: Iterable[tuple[Any, ...]]) -> None:
        self.broken: list[str] = []
        self.places: dict[str, dict[str, PodInfo]] = {}
        """node name -> UID -> pod."""
        self.alike: dict[tuple[int, PodTemplate], int] = {}
        """(row, template) -> number of pods."""
        self.rows: dict[str, dict[int, PodInfo]] = {}
        """node name -> each row on which its pods are counted -> one such pod."""
        self.using_volumes: list[PodInfo] = []
        self.priorities: dict[int, int] = {}
        self.owners: dict[tuple[str, str, str], str] = {}
        self.held: dict[tuple[str, int], set[str]] = {}
        """(resource, row) -> device IDs."""
        self.members: dict[Group, dict[str, PodInfo]] = {}
        self.by_state: dict[Group, dict[MemberState, int]] = {}
        self.unbound: list[PodInfo] = []
        """Members that are not bound, but hold something or may."""
        self._add(read)

    def _add(self, read: Iterable[tuple[Any, ...]]) -> None:
        members, by_state, unbound = self.members, self.by_state, self.unbound
        places, all_rows, alike, priorities = self.places, self.rows, self.alike, self.priorities
        for uid, info, group, state, row, name, template, ids, bind_may_land, reported_gone, priority in read:
            if group is not None:
                mine = members.get(group)
                if mine is None:
                    mine = members[group] = {}
                    by_state[group] = _NONE.copy()
                mine[uid] = info
                by_state[group][state] += 1
                if state is not BOUND and (state is ASSUMED or ids or bind_may_land):
                    unbound.append(info)
            if name:
                there = places.get(name)
                if there is None:
                    there = places[name] = {}
                    all_rows[name] = {}
                there[uid] = info
                all_rows[name][row] = info
                priority = priority or 0
                priorities[priority] = priorities.get(priority, 0) + 1
                if row != NO_ROW:
                    alike[row, template] = alike.get((row, template), 0) + 1
                    if template.volumes:
                        self.using_volumes.append(info)
            elif row != NO_ROW:
                self.broken.append(f"counts: {info!r} is counted on row {row}, and is on no node")
            if ids:
                self._hold(info, ids, is_ours=group is not None and not reported_gone)

    def _hold(self, info: PodInfo, held: Mapping[str, tuple[str, ...]], *, is_ours: bool) -> None:
        for resource, ids in held.items():
            self.held.setdefault((resource, info.row), set()).update(ids)
            # Claims in other schedulers' annotations are reported as conflicts, not guaranteed. And a pod
            # that is gone conflicts with no other, though a lagging watch still shows it.
            if is_ours:
                self._own(info, resource, ids)

    def _own(self, info: PodInfo, resource: str, ids: tuple[str, ...]) -> None:
        """one-holder: no device is on two pods."""
        for device_id in ids:
            place = (info.node_name, resource, device_id)
            other = self.owners.setdefault(place, info.uid)
            if other != info.uid:
                self.broken.append(
                    f"one-holder: device {place} is held by {other} and {info.uid}, {info.pod.key}"
                )


def _on_nodes(cache: Cache, sums: _Sums) -> list[str]:
    """1 and 6: what is counted on a node is the sum over the pods there."""
    broken = []
    if sums.places != cache.by_node:
        broken.append(
            f"counts: pods are known on {[*cache.by_node]} and are on {[*sums.places]}, or are others"
        )
    for name, rows in sums.rows.items():
        row = cache.nodes.row_of.get(name, NO_ROW)
        if rows.keys() != {row}:
            wrong = [info for at, info in rows.items() if at != row]
            broken += [
                f"counts: {info!r} is counted on row {info.row}, its node has row {row}" for info in wrong
            ]
    if sums.priorities != cache.priorities:
        broken.append(f"counts: pods by priority are {sums.priorities}, counted are {cache.priorities}")
    for resource, devices in cache.ledger.columns.items():
        for row, at in devices.at.items():
            held = sums.held.get((resource, row), _NO_DEVICES)
            if held != at.held.keys():
                broken.append(
                    f"one-holder: {resource} on row {row}: ledger {sorted(at.held)}, pods {sorted(held)}"
                )
    return broken


def _summed(cache: Cache, alike: Mapping[tuple[int, PodTemplate], int]) -> list[str]:
    """counts: the use counted on nodes is the sum over pods. alike: (row, template) -> number of pods."""
    nodes = cache.nodes
    # The counted use minus the sum over pods.
    left, padding = nodes.used.tolist(), nodes.padding.tolist()
    for (column, row), exact in nodes.beyond.items():
        left[column][row] = nodes.allocatable.item(column, row) - exact
    for (row, template), n in alike.items():
        if row >= nodes.n_rows:
            return [f"counts: {n} pods are counted on row {row}, and there are {nodes.n_rows}"]
        for column, amount in template.by_column.items():
            left[column][row] -= amount * n
        if template.padding:
            padding[0][row] -= template.padding[0] * n
            padding[1][row] -= template.padding[1] * n
    broken = []
    nothing = [0] * nodes.capacity  # lists compare faster than any array of a few rows
    if padding != [nothing] * 2:
        broken.append("counts: what scores count for pods without requests is not the sum over pods")
    if left != [nothing] * len(left):
        column, row = next((c, r) for c, over in enumerate(left) for r, n in enumerate(over) if n)
        used = nodes.allocatable.item(column, row) - nodes.exact_free(column, row)
        broken.append(
            f"counts: {cache.table.names[column]} on {nodes.names[row]} counts {used}, "
            f"pods add up to {used - left[column][row]}"
        )
    return broken


def _in_groups(shared: SharedState, sums: _Sums) -> list[str]:
    """4 and 5: every pod of ours is in one group, counted in one state, and holds what its state says."""
    broken: list[str] = []
    n_in_line = n_known = 0
    for group in shared.groups.values():
        mine = sums.members.get(group, _NO_MEMBERS)
        counts = group.counts
        n_known += bool(mine)
        if mine != group.members:
            for uid, info in group.members.items():
                if mine.get(uid) is not info:  # a pod knows one group, so it is in no other
                    broken.append(f"groups: {info!r} does not know its group {group!r}")
            strange = [uid for uid in mine if uid not in group.members]
            broken += [f"groups: {mine[uid]!r} is in no group" for uid in strange]
        if counts != sums.by_state.get(group, _NONE):
            broken.append(f"groups: {group!r} counts differ from its members")
        if group.active_token:
            n_in_line += 1
        elif group.state is _ACTIVE:
            broken.append(f"groups: {group!r} is active and not in line")
        if counts[ASSUMED] and group.state not in _HOLDING:
            broken.append(f"reservations: {group!r} holds {group.n_assumed} reservations")
    if n_known != len(sums.members):
        known = {id(group) for group in shared.groups.values()}
        lost = [own for group, own in sums.members.items() if id(group) not in known]
        broken += [f"groups: {info!r} is in no group" for own in lost for info in own.values()]
    for info in sums.unbound:
        broken += _unlike_its_state(info)
    if n_in_line != shared.queue.n_active:
        broken.append(f"groups: {n_in_line} groups in line, the queue counts {shared.queue.n_active}")
    return broken


def _unlike_its_state(info: PodInfo) -> list[str]:
    """2 and 4: an unbound member holds only what its state allows."""
    group = info.group
    if info.state is ASSUMED:
        sent = info.bind is not UNASKED
        if group is not None and sent != (group.state is _BINDING):
            return [f"reservations: {info!r} has bind {info.bind.value} in {group!r}"]
    elif info.bind_may_land and info.state is PENDING:
        return [f"late-binds: {info!r} holds nothing, and a bind of it may land"]
    elif info.ids:
        return [f"reservations: {info!r} holds devices"]
    return []


def _promises(shared: SharedState) -> list[str]:
    """reservations: room is reserved for a pod of ours exactly as long as its group waits for its victims."""
    broken = []
    nominated, claimants = shared.cache.nominated, shared.cache.ledger.claimants
    for uid in {*nominated, *claimants} if nominated or claimants else ():
        info = shared.cache.pods.get(uid)
        group = info.group if info is not None else None
        if group is not None and (group.preemption is None or group.state is not GroupState.WAITING):
            broken.append(f"reservations: room is kept for {info!r} in {group!r}, which waits for no victim")
        elif group is None and uid in claimants:
            broken.append(f"reservations: devices are claimed for {uid}, which is no pod of ours")
    preempting = [group for group in shared.groups.values() if group.preemption is not None]
    for group in preempting:
        for uid in group.preemption.waits_for if group.preemption is not None else ():
            victim = shared.cache.pods.get(uid)
            if group.preemption not in shared.victims.get(uid, ()):
                broken.append(
                    f"reservations: {group!r} waits for {uid} and would not be told that it has gone"
                )
            if victim is None or not victim.node_name:
                broken.append(f"reservations: {group!r} waits for {uid}, which holds nothing")
    for uid, waiting in shared.victims.items():
        for preemption in waiting:
            if not any(group.preemption is preemption for group in preempting):
                broken.append(f"reservations: {uid} is waited for by {preemption.unit}, which do not wait")
    return broken


def _claims(shared: SharedState) -> list[str]:
    """reservations: room is claimed only for pending members of groups that wait in line."""
    claims = shared.claims
    if claims is None:
        return []
    broken = []
    for key, claim in claims.by_key.items():
        group = shared.groups.get(key)
        if group is None or group not in claim.unit:
            broken.append(f"reservations: room is claimed for {key}, which is no group")
        elif not claims.is_sound(claim):
            broken.append(f"reservations: room is claimed for {group!r}, which does not wait as it did")
    for key in claims.too_idle:
        if key in claims.by_key or key not in shared.groups or claims.budget is None:
            broken.append(
                f"reservations: {key} waits for a budget, and has a claim, is no group, or there is none"
            )
    return broken


def _templates(cache: Cache) -> list[str]:
    """templates: a pod that waits is placed by what it needs of claims and classes as they are now."""
    book = cache.claims
    if book.stale or book.touched:
        return []  # this turn sees to them
    broken = []
    for uid, info in cache.pods.items():
        if info.state is PENDING and book.may_need(info.pod) and info.template.claims != book.needs(info.pod):
            broken.append(f"templates: {uid} is placed by {info.template.claims}, not {book.needs(info.pod)}")
    return broken


def _holes(shared: SharedState) -> list[str]:
    """holes: places of lost members are kept only for running gangs that lack as many, and for a time."""
    broken = []
    for group, places in shared.holes.by_group():
        here = shared.groups.get(group)
        if here is not None and here.state is GroupState.UNWINDING:
            continue  # until the first of its pods is gone
        lacking = lacks(here) if here is not None else None
        if lacking is None or len(places) > lacking.n_missing:
            broken.append(f"holes: {len(places)} places are kept for {group}, which lacks {lacking}")
        broken += [f"holes: {key} is kept for ever" for key, until_s in places if until_s == NEVER_S]
    return broken

"""find_broken: recounts the core's invariants from scratch. Slow and simple on purpose.

Runs after every turn in tests and in simulation, never on the hot path. The numbers in the messages are those
of the invariants in the project's fault catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.core.cache.cache import Cache
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import (
    ASSUMED,
    BOUND,
    NO_ROW,
    PENDING,
    UNASKED,
    GroupState,
    MemberState,
    PodInfo,
)
from gangsched.core.types.pod_template import PodTemplate

# A module-level name costs a tenth of an Enum attribute, and these are read for every group after every step.
_ACTIVE, _BINDING = GroupState.ACTIVE, GroupState.BINDING
_HOLDING = (GroupState.WAITING, GroupState.BINDING)
_NOBODY: Mapping[str, PodInfo] = {}
_NONE = dict.fromkeys(MemberState, 0)


def find_broken(shared: SharedState) -> list[str]:
    """Every invariant that is violated now, in words; empty when all hold."""
    return [
        *_one_owner(shared),
        *_counted_once(shared),
        *_one_place(shared),
        *_states(shared),
        *_promises(shared),
        *_claims(shared),
    ]


def _one_owner(shared: SharedState) -> list[str]:
    broken = []
    holders: dict[tuple[str, str, str], str] = {}
    for info in [info for info in shared.cache.pods.values() if info.ids]:
        if info.group is None or info.said_gone:
            # Claims in other schedulers' annotations are reported as conflicts and guaranteed by nothing; and
            # a pod that is gone harms no other, though a lagging watch shows it until its deletion.
            continue
        for resource, ids in info.ids.items():
            for device_id in ids:
                place = (info.node_name, resource, device_id)
                other = holders.setdefault(place, info.uid)
                if other != info.uid:
                    broken.append(f"1: device {place} is held by {other} and {info.uid}, {info.pod.key}")
    return broken


def _counted_once(shared: SharedState) -> list[str]:
    """6: the use counted on nodes is the sum of the pods that hold something there."""
    cache = shared.cache
    # What is counted less what the pods add up to. Plain integers in lists: for a handful of additions a
    # template this is cheaper than any array.
    left, padding = cache.nodes.used.tolist(), cache.nodes.padding.tolist()
    for (column, row), exact in cache.nodes.beyond.items():
        left[column][row] = cache.nodes.allocatable.item(column, row) - exact
    row_of = cache.nodes.row_of
    alike: dict[tuple[int, PodTemplate], int] = {}
    priorities: dict[int, int] = {}
    for info in cache.pods.values():
        if not info.node_name:
            if info.row != NO_ROW:
                return [f"6: {info!r} is counted on row {info.row}, and is on no node"]
            continue
        row = row_of.get(info.node_name, NO_ROW)
        if info.row != row:
            return [f"6: {info!r} is counted on row {info.row}, its node has row {row}"]
        priority = info.pod.spec.priority or 0
        priorities[priority] = priorities.get(priority, 0) + 1
        if row >= 0:
            on_row = (row, info.template)
            alike[on_row] = alike.get(on_row, 0) + 1
    for (row, template), n in alike.items():
        for column, amount in zip(template.columns, template.amounts, strict=True):
            left[column][row] -= amount * n
        if template.padding:
            padding[0][row] -= template.padding[0] * n
            padding[1][row] -= template.padding[1] * n
    broken = []
    if priorities != cache.priorities:
        broken.append(f"6: pods by priority are {priorities}, counted are {cache.priorities}")
    if any(map(any, padding)):
        broken.append("6: what scores count for pods without requests is not the sum over pods")
    if any(map(any, left)):
        column, row = next((c, r) for c, over in enumerate(left) for r, n in enumerate(over) if n)
        used = cache.nodes.allocatable.item(column, row) - cache.nodes.exact_free(column, row)
        broken.append(
            f"6: {cache.table.names[column]} on {cache.nodes.names[row]} counts {used}, "
            f"pods add up to {used - left[column][row]}"
        )
    broken += _held_by_ledger(cache)
    return broken + [f"6: {wrong}" for wrong in cache.index.recount()]


def _held_by_ledger(cache: Cache) -> list[str]:
    """1: the ledger holds the devices that the pods of a node hold there."""
    broken = []
    names, by_node = cache.nodes.names, cache.by_node
    for resource, devices in cache.ledger.columns.items():
        for row, at in devices.at.items():
            held: set[str] = set()
            for info in by_node.get(names[row], _NOBODY).values():
                if info.ids:
                    held.update(info.ids.get(resource, ()))
            if held != at.held.keys():
                broken.append(f"1: {resource} on row {row}: ledger {sorted(at.held)}, pods {sorted(held)}")
    return broken


def _one_place(shared: SharedState) -> list[str]:
    """5: every pod of ours is in one group, counted in one state."""
    broken: list[str] = []
    n_members = 0
    pods = shared.cache.pods
    for group in shared.groups.values():
        counts = _NONE.copy()
        members = group.members
        for uid, info in members.items():
            counts[info.state] += 1
            # It knows one group, so it is a member of no other.
            if info.group is not group or pods.get(uid) is not info:
                broken.append(f"5: {info!r} does not know its group {group!r}")
        if counts != group.counts:
            broken.append(f"5: {group!r} counts differ from its members")
        n_members += len(members)
    if n_members != len(pods):
        grouped = {uid for group in shared.groups.values() for uid in group.members}
        for uid in sorted(pods.keys() - grouped):
            if pods[uid].group is not None:
                broken.append(f"5: {pods[uid]!r} is in no group")
    return broken


def _states(shared: SharedState) -> list[str]:
    """4: reservations and places in line agree with the groups' states."""
    broken = []
    n_in_line = 0
    for group in shared.groups.values():
        n_in_line += bool(group.active_token)
        state = group.state
        if group.counts[ASSUMED] and state not in _HOLDING:
            broken.append(f"4: {group!r} holds {group.n_assumed} reservations")
        if state is _ACTIVE and not group.active_token:
            broken.append(f"5: {group!r} is active and not in line")
        for info in group.members.values():
            if info.state is BOUND:
                continue
            if info.state is ASSUMED:
                sent = info.bind is not UNASKED
                if sent != (state is _BINDING):
                    broken.append(f"4: {info!r} has bind {info.bind.value} in {group!r}")
            elif info.in_doubt and info.state is PENDING:
                broken.append(f"2: {info!r} holds nothing, and a bind of it may land")
            elif info.ids:
                broken.append(f"4: {info!r} holds devices")
    if n_in_line != shared.queue.n_active:
        broken.append(f"5: {n_in_line} groups in line, the queue counts {shared.queue.n_active}")
    return broken


def _promises(shared: SharedState) -> list[str]:
    """4: room is reserved for a pod of ours exactly as long as its group waits for its victims."""
    broken = []
    for uid in {*shared.cache.nominated, *shared.cache.ledger.claimants}:
        info = shared.cache.pods.get(uid)
        group = info.group if info is not None else None
        if group is not None and (group.preemption is None or group.state is not GroupState.WAITING):
            broken.append(f"4: room is kept for {info!r} in {group!r}, which waits for no victim")
        elif group is None and uid in shared.cache.ledger.claimants:
            broken.append(f"4: devices are claimed for {uid}, which is no pod of ours")
    for group in shared.groups.values():
        for uid in group.preemption.waits_for if group.preemption is not None else ():
            victim = shared.cache.pods.get(uid)
            if group.preemption not in shared.victims.get(uid, ()):
                broken.append(f"4: {group!r} waits for {uid} and would not be told that it has gone")
            if victim is None or not victim.node_name:
                broken.append(f"4: {group!r} waits for {uid}, which holds nothing")
    for uid, waiting in shared.victims.items():
        for preemption in waiting:
            if not any(group.preemption is preemption for group in shared.groups.values()):
                broken.append(f"4: {uid} is waited for by {preemption.unit}, which do not wait")
    return broken


def _claims(shared: SharedState) -> list[str]:
    """4: room is claimed for groups that wait in line, for members that are pending, and for nobody else."""
    claims = shared.queue.claims
    if claims is None:
        return []
    broken = []
    for key, claim in claims.by_key.items():
        group = shared.groups.get(key)
        if group is None or group not in claim.unit:
            broken.append(f"4: room is claimed for {key}, which is no group")
        elif not claims.is_sound(claim):
            broken.append(f"4: room is claimed for {group!r}, which does not wait as it did")
    for key in claims.too_idle:
        if key in claims.by_key or key not in shared.groups or claims.budget is None:
            broken.append(f"4: {key} waits for a budget, and has a claim, is no group, or there is none")
    return broken

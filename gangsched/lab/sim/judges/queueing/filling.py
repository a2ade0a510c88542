"""Filling: finds waiting pods and gangs that fit beside all claims, or in the room of less important pods.

claim-fills: what each node has free is recounted from events (lab.sim.reading.received), what claims keep is
read from the scheduler. All that a claim holds counts as kept, though some of it need not be free yet: what
fits beside that fits in any case. A gang fits if its smallest members do, one after the other, each on the
first node with room for it. If some do not, the gang may still fit, and nothing is reported. Called by
lab.sim.runs.driver between two turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group, GroupState
from gangsched.lab.sim.judges.gangs.starts import with_more_important
from gangsched.lab.sim.reading.documents import (
    allocatable,
    gang_of,
    healthy_ids,
    least,
    listed_ids,
    pod_asks,
    stated_s,
)
from gangsched.lab.sim.reading.received import Claim, Received
from gangsched.model.objects import CustomObject, Node, Pod
from gangsched.model.walltime import WALLTIME_KEY

_OURS = "gangsched.io/"
# Annotations that do not restrict where a pod may go, beside those of the simulation itself.
_HARMLESS = frozenset(
    (
        WALLTIME_KEY,
        *(f"{_OURS}{key}" for key in ("min-members", "queue", "disruption-mode")),
        *(f"{_OURS}{key}" for key in ("on-device-failure", "on-partial-bind")),
    )
)
# Fields of a PodGroup's spec, likewise.
_NUMBERS = frozenset(("schedulingPolicy", "minMember"))

# No pod of the simulation asks for more devices of one kind.
_MOST_OF_A_POD = 8

Room = dict[str, dict[str, int]]
"""By node: what is free of each resource; of listed devices, the healthy ones that no pod holds."""


def unfilled(
    scheduler: Scheduler,
    received: Received,
    now_s: float,
    keeps_out: Callable[[Sequence[Pod], Scheduler, Received], bool] | None = None,
    excuses: Callable[[Group], bool] | None = None,
) -> Iterator[str]:
    """claim-fills: at rest no group that waits for room fits beside the claims that keep room from it.

    keeps_out: whether a limit of their queue may keep pods out; excuses: whether the group may wait for
    something else. Skips groups with a claim, pods that ask for more than resources, and gangs with members
    that have ended or are being deleted.
    """
    claims = scheduler.shared.claims
    standing = claims.all if claims is not None else []
    found: dict[tuple[int, ...], Room] = {}
    for group in scheduler.shared.groups.values():
        if group.state is not GroupState.UNSCHEDULABLE or group.is_completing or group.problem:
            continue
        if any(group in claim.unit for claim in standing):
            continue
        needed = needed_pods(group, received)
        if not needed:
            continue
        until_s = now_s + max(stated_s(received.pods[uid]) for uid in group.members if uid in received.pods)
        holding = [c for c in standing if c.priority >= group.priority and c.start_s < until_s]
        serials = tuple(claim.serial for claim in holding)
        if serials not in found:
            found[serials] = free_room(scheduler, received, holding)
        nodes = places(needed, found[serials])
        if not nodes or (excuses is not None and excuses(group)):
            continue
        if keeps_out is None or not keeps_out(needed, scheduler, received):
            yield f"claim-fills: {group.key} waits, and fits on {', '.join(nodes)}: {group.message}"


def outranking(scheduler: Scheduler, received: Received, now_s: float) -> Iterator[str]:
    """preemption-used: at rest no group waits for room that less important pods could be evicted from.

    Pods whose eviction would take more important ones along do not count. For storms without queues, budgets
    or stated domains. Skips groups with a claim, as `unfilled` does, those for which pods were evicted in
    vain before (the next round may be an hour later), and all where pods have constraints on their
    neighbours.
    """
    if received.constrained:
        return
    claims = scheduler.shared.claims
    standing = claims.all if claims is not None else []
    for group in scheduler.shared.groups.values():
        if group.state is not GroupState.UNSCHEDULABLE or group.is_completing or group.problem:
            continue
        needed = [] if any(group in claim.unit for claim in standing) else needed_pods(group, received)
        if not needed or any(map(evicted_in_vain, _known_members(group, received))):
            continue
        lowest = min(pod.spec.priority or 0 for pod in needed)
        lower = {
            uid
            for uid, pod in received.pods.items()
            if pod.spec.node_name and not pod.is_terminal and (pod.spec.priority or 0) < lowest
        }
        holding = [claim for claim in standing if claim.priority >= lowest]
        if lower and places(needed, free_room(scheduler, received, holding, without=lower)):
            lower -= with_more_important(lowest, scheduler, received)
            if not places(needed, free_room(scheduler, received, holding, without=lower)):
                continue
            names = sorted(received.pods[uid].metadata.name for uid in lower)
            yield (
                f"preemption-used: {group.key} waits, and less important pods hold its room, "
                f"of {names}: {group.message}"
            )


def _known_members(group: Group, received: Received) -> list[Pod]:
    return [received.pods[uid] for uid in group.members if uid in received.pods]


def evicted_in_vain(pod: Pod) -> bool:
    """Whether a condition reports that two rounds of evictions, or one whose room others took, were not
    enough."""
    found = [one for one in pod.status.conditions or () if one.type == "gangsched.io/Evictions"]
    return any(one.reason == "RoomTakenByOthers" or not one.message.startswith("1 ") for one in found)


def needed_pods(group: Group, received: Received, *, with_volumes: bool = False) -> list[Pod]:
    """Returns the waiting pods that must start together, those that ask for least; empty if that is unknown.

    Unknown for pods that ask for more than resources; with_volumes: for more than resources and volumes. If
    as many as the group needs have started, each other one may start by itself.
    """
    pods = _known_members(group, received)
    staying = [pod for pod in pods if not pod.is_terminal and pod.metadata.deletion_timestamp is None]
    # A pod that is bound, though the watch has not shown it yet, no longer waits.
    has_place = received.promised.by_uid
    waiting = [pod for pod in staying if not (pod.spec.node_name or pod.metadata.uid in has_place)]
    if not group.is_gang:
        return [pod for pod in waiting[:1] if is_plain(pod, None, with_volumes=with_volumes)]
    gang = gang_of(waiting[0]) if waiting else None
    if gang is None or len(staying) < len(group.members):
        return []
    item = received.groups.get(gang)
    minima = {least(gang, pod, item) for pod in staying}
    n = minima.pop()
    are_plain = all(is_plain(pod, item, with_volumes=with_volumes) for pod in waiting)
    if minima or n is None or n > len(staying) or not are_plain:
        return []
    n_missing = max(n - (len(staying) - len(waiting)), 1)
    return sorted(waiting, key=lambda pod: sorted(pod_asks(pod.spec).items()))[:n_missing]


def is_plain(pod: Pod, item: CustomObject | None, *, with_volumes: bool = False) -> bool:
    """Whether the pod, and its gang's object, ask for resources and nothing else."""
    spec, own = pod.spec, pod.metadata.annotations or {}
    restricts = (spec.node_selector, spec.affinity, spec.topology_spread_constraints)
    if (
        any(restricts)
        or (spec.volumes and not with_volumes)
        or spec.resource_claims
        or spec.host_network
        or spec.scheduling_gates
    ):
        return False
    if any(one.ports for one in (*spec.containers, *(spec.init_containers or ()))):
        return False
    if item is not None:
        own = {**own, **(item.metadata.annotations or {})}
        if not _NUMBERS.issuperset(item.spec or {}):
            return False
    return all(key in _HARMLESS or key.startswith("sim/") for key in own)


def places(needed: Sequence[Pod], free: Room) -> list[str]:
    """Returns a node for each pod; empty if it is unknown whether they fit."""
    left = {name: dict(room) for name, room in free.items()}
    found = []
    for pod in needed:
        asked = pod_asks(pod.spec)
        for name, room in left.items():
            if all(amount <= room.get(resource, 0) for resource, amount in asked.items()):
                for resource, amount in asked.items():
                    room[resource] -= amount
                found.append(name)
                break
        else:
            return []
    return found


def free_room(
    scheduler: Scheduler, received: Received, holding: Sequence[StartClaim], *, without: Collection[str] = ()
) -> Room:
    """Returns the free room of nodes, except those that are overcommitted or cannot be read. without: UIDs of
    pods that count as gone."""
    found = {}
    for name, node in received.nodes.items():
        room = _free_on(scheduler, node, received, holding, without)
        if room is not None and all(amount >= 0 for amount in room.values()):
            found[name] = room
    return found


def _free_on(
    scheduler: Scheduler,
    node: Node,
    received: Received,
    holding: Sequence[StartClaim],
    without: Collection[str],
) -> dict[str, int] | None:
    room, healthy, name = allocatable(node), healthy_ids(node), node.metadata.name
    listed = listed_ids(node)
    if room is None or healthy is None or listed is None or node.spec.unschedulable or node.spec.taints:
        return None
    there = [one for one in received.claims_on(name) if one.uid not in without]
    for info in scheduler.shared.cache.by_node.get(name, {}).values():
        if received.is_held_unshown(info) and info.uid not in without:
            there.append(_claim(info.pod, name, info.ids))
    kept = [one for claim in holding for one in claim.held]
    kept += [one for uid, one in scheduler.shared.cache.nominated.items() if uid not in without]
    for place in kept:
        if place.node_name == name:  # a failed device will be replaced by another
            left = {r: tuple(i for i in own if i in healthy.get(r, ())) for r, own in place.ids.items()}
            there.append(_claim(place.info.pod, name, left))
    used: Counter[str] = Counter()
    taken: dict[str, set[str]] = {}
    for one in there:
        used.update(one.requests)
        for resource, ids in one.ids.items():
            taken.setdefault(resource, set()).update(ids)
    free = {resource: room.get(resource, 0) - used[resource] for resource in {**room, **used}}
    has_no_label = _has_no_label(scheduler, name)
    for resource, ids in healthy.items():
        # Where pods do not state which devices they hold, or state others, any may be in use.
        is_unknown = any(
            one.requests.get(resource, 0) > len(one.ids.get(resource, ()))
            or not one.ids.get(resource, frozenset()) <= listed[resource]
            for one in there
        )
        n_left = 0 if is_unknown or has_no_label(resource) else len(ids - taken.get(resource, set()))
        free[resource] = min(free.get(resource, 0), n_left)
    return free


def _has_no_label(scheduler: Scheduler, node: str) -> Callable[[str], bool]:
    """Whether IDs of a resource of this node are written as labels and may not fit one: by the scheduler's
    table, as the IDs of unhealthy devices count too."""
    view = scheduler.shared.cache.view
    row = view.row_of(node) if scheduler.shared.settings.devices.in_labels else None

    def check(resource: str) -> bool:
        room = None if row is None else view.label_room(resource)
        return room is not None and row is not None and int(room[row]) < _MOST_OF_A_POD

    return check


def _claim(pod: Pod, node: str, ids: Mapping[str, tuple[str, ...]]) -> Claim:
    held = {resource: frozenset(some) for resource, some in ids.items()}
    return Claim(pod.metadata.uid, node, pod_asks(pod.spec), held)

"""Finds pods and gangs with volumes that wait at rest though all of them would find a node.

Each pod is tried on each node in turn, with the volumes that it would get there. If all find a node, they
fit; if not, they may still fit, and nothing is reported. Called by lab.sim.world.storage when a run has come
to rest. Not here: what no bind may do (lab.sim.judges.places.volume_rules).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import GroupState
from gangsched.lab.sim.judges.places.volume_rules import (
    Held,
    StorageNow,
    attached_by,
    limit_of,
    node_of,
    reaches,
)
from gangsched.lab.sim.judges.queueing.filling import Room, free_room, needed_pods
from gangsched.lab.sim.reading.documents import pod_asks
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.world.volumes import LOCAL, MADE, ONE_POD, SELECTED, claims_of
from gangsched.model.objects import Pod
from gangsched.model.storage import (
    CAPACITIES,
    NODES,
    VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
)

_MADE_GIB = 5
"""How much each claim of this storm asks for."""


def unserved(
    scheduler: Scheduler,
    received: Received,
    store: Mapping[str, Mapping[Any, Any]],
    is_kept_out: Callable[[Sequence[Pod], Scheduler, Received], bool],
) -> Iterator[str]:
    """volumes-found: at rest no group with volumes waits that would find its room and its volumes.

    is_kept_out: whether its queue may keep it out. Skips groups with a claim; room that claims keep is not
    free.
    """
    claims = scheduler.shared.queue.claims
    standing = claims.all if claims is not None else []
    free = free_room(scheduler, received, standing)
    for group in scheduler.shared.groups.values():
        if group.state is not GroupState.UNSCHEDULABLE or group.is_completing or group.problem:
            continue
        if any(group in claim.unit for claim in standing):
            continue
        needed = needed_pods(group, received, with_volumes=True)
        if not any(pod.spec.volumes for pod in needed) or is_kept_out(needed, scheduler, received):
            continue
        if nodes := _Trial(received, store, free).places(needed):
            yield (
                f"volumes-found: {group.key} waits, and fits on {', '.join(nodes)} with its "
                f"volumes: {group.message}"
            )


class _Trial:
    """Places that are given to pods one after the other."""

    def __init__(self, received: Received, store: Mapping[str, Mapping[Any, Any]], free: Room) -> None:
        self._store, self._now = store, StorageNow(received, store)
        self._free = {name: dict(room) for name, room in free.items()}
        self._on = {
            name: [pod for pod in received.pods.values() if node_of(pod, received) == name] for name in free
        }
        self._used = {name for pods in self._on.values() for pod in pods for name in claims_of(pod)}
        self._attached: dict[str, set[Held]] = {
            name: {held for pod in pods for held in self._now.held(pod)} for name, pods in self._on.items()
        }
        self._given: dict[str, PersistentVolume] = {}
        """Free volumes, by the name of the claim that would get them."""
        self._made: dict[str, str] = {}
        """The node for which a claim's volume would be made, by the claim's name."""

    def places(self, needed: Sequence[Pod]) -> list[str]:
        """Returns a node for each pod; empty if it is unknown whether they fit."""
        found = []
        for pod in needed:
            node = next((name for name in self._free if self._take(pod, name)), "")
            if not node:
                return []
            found.append(node)
        return found

    def _take(self, pod: Pod, node: str) -> bool:
        """Whether the pod fits on the node; if so, it takes its room and volumes there."""
        room, asked = self._free[node], pod_asks(pod.spec)
        if any(amount > room.get(resource, 0) for resource, amount in asked.items()):
            return False
        given, made, attached = dict(self._given), dict(self._made), set(self._attached[node])
        for name in claims_of(pod):
            claim = self._now.claim(name)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                return False
            if ONE_POD in (claim.spec.access_modes or ()) and name in self._used:
                return False
            if not self._serves(claim, node, given, made, attached):
                return False
        limit = limit_of(self._store[NODES]["", node])
        if limit is not None and attached - self._attached[node] and len(attached) > limit:
            return False
        for resource, amount in asked.items():
            room[resource] -= amount
        self._given, self._made, self._attached[node] = given, made, attached
        self._used.update(claims_of(pod))
        return True

    def _serves(
        self,
        claim: PersistentVolumeClaim,
        node: str,
        given: dict[str, PersistentVolume],
        made: dict[str, str],
        attached: set[Held],
    ) -> bool:
        """Whether the claim has a volume for that node, or gets one, which is then recorded."""
        name, kind = claim.metadata.name, claim.spec.storage_class_name
        if claim.spec.volume_name:
            volume = self._now.volume(claim)
            if volume is None or claim.status.phase != "Bound" or not reaches(volume, node):
                return False
            attached |= attached_by(volume)
            return True
        if kind == LOCAL:
            chosen = given.get(name) or self._free_volume(node, given)
            if chosen is None or not reaches(chosen, node):
                return False
            given[name] = chosen
            return True
        if kind != MADE or (claim.metadata.annotations or {}).get(SELECTED, node) != node:
            return False
        made.setdefault(name, node)
        attached.add(("to be made", name))
        return self._has_room(node, sum(on == node for on in made.values()))

    def _free_volume(self, node: str, given: Mapping[str, PersistentVolume]) -> PersistentVolume | None:
        taken = {volume.metadata.name for volume in given.values()}
        volumes: Mapping[Any, PersistentVolume] = self._store[VOLUMES]
        for volume in volumes.values():
            is_free = volume.spec.claim_ref is None and volume.spec.storage_class_name == LOCAL
            if is_free and volume.metadata.name not in taken and reaches(volume, node):
                return volume
        return None

    def _has_room(self, node: str, n: int) -> bool:
        """Whether the driver reports room for n volumes; without a report it has none."""
        one = self._store[CAPACITIES].get(("kube-system", f"on-{node}"))
        return one is not None and int(one.capacity.removesuffix("Gi")) >= n * _MADE_GIB

"""What no bind may do with volumes, and pods with volumes that wait though all of them would find a node.

VolumeRules judges binds from the process's events and the store, after every turn. A claim's volume never
changes, so the store may be asked about a claim that the process knows by its UID. `unserved` tries, when a
run has come to rest, each pod on each node in turn, with the volumes that it would get there. If all find a
node, they fit; if not, they may still fit, and nothing is reported. Called by lab.sim.runs.volume_run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import GroupState
from gangsched.lab.sim.judges.queueing.filling import Room, free_room, needed_pods
from gangsched.lab.sim.reading.documents import pod_asks
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.hook_bodies import HookBodies
from gangsched.lab.sim.world.volumes import LOCAL, MADE, ONE_POD, SELECTED, claim_uid, claims_of, namespace_of
from gangsched.model.effects import BindPod
from gangsched.model.objects import Pod
from gangsched.model.storage import (
    CAPACITIES,
    CLAIMS,
    NODES,
    VOLUMES,
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
)

# Volumes are made between the choice of a node and the bind: so long an earlier limit may have counted.
_REMEMBERED_S = 60.0
Held = tuple[str, str]
"""A volume that is attached to nodes: its driver, and its name there."""


class VolumeRules:
    """volumes-reached: a bound pod reaches its volumes. volumes-for-one-pod: a claim for one pod has only
    one. volumes-counted: no node has too many volumes. volumes-given-once: no volume is given to two claims
    at once. volumes-bound-first: all claims of a bound pod are bound.

    Faults excuse only what can no longer be known: a claim that is gone, or was recreated.
    """

    def __init__(self) -> None:
        self._n_judged: dict[str, int] = {}
        """By UID: how many of the binds that were sent are judged."""
        self._limits: dict[str, deque[tuple[float, int | None]]] = {}
        """By node: the limits it had, and since when."""
        self._received: Received | None = None

    def check(
        self, api: SimApi, received: Received, sent: Mapping[str, Sequence[BindPod]], now_s: float
    ) -> Iterator[str]:
        """After every turn. sent: all binds that were sent, by UID."""
        if received is not self._received:
            self._received = received
            self._limits.clear()
        self._note_limits(received, now_s)
        for uid, binds in sent.items():
            n = self._n_judged.get(uid, 0)
            self._n_judged[uid] = len(binds)
            # A bind that is sent again is no decision.
            if len(binds) > n and uid in received.pods and binds[-1] not in binds[:-1]:
                yield from self._judge(binds[-1], received, api.objects)
        yield from _given_twice(api.hooks.bodies, received)

    def _note_limits(self, received: Received, now_s: float) -> None:
        for (_, name), one in received.objects.get(NODES, {}).items():
            limit = limit_of(one)
            known = self._limits.setdefault(name, deque())
            if not known or known[-1][1] != limit:
                known.append((now_s, limit))
            while len(known) > 1 and known[1][0] < now_s - _REMEMBERED_S:
                known.popleft()

    def _judge(
        self, bind: BindPod, received: Received, store: Mapping[str, Mapping[Any, Any]]
    ) -> Iterator[str]:
        pod, now = received.pods[bind.uid], StorageNow(received, store)
        others = [
            (one, node)
            for uid, one in received.pods.items()
            if uid != bind.uid and (node := node_of(one, received))
        ]
        for name in claims_of(pod):
            claim = now.claim(name)
            if claim is None:
                continue
            if not claim.spec.volume_name and now.is_first(claim):
                yield f"volumes-bound-first: {bind.name} is bound, and its claim {name} is not"
            volume = now.volume(claim)
            if volume is not None and not reaches(volume, bind.node):
                yield (
                    f"volumes-reached: {bind.name} is bound to {bind.node}, which "
                    f"{volume.metadata.name} does not reach"
                )
            # As in kube-scheduler, a pod on a node that is gone no longer uses anything.
            users = [
                one.metadata.name for one, on in others if on in received.nodes and name in claims_of(one)
            ]
            if ONE_POD in (claim.spec.access_modes or ()) and users:
                yield (
                    f"volumes-for-one-pod: {bind.name} is bound, and {users} has its claim {name} for one pod"
                )
        there = {held for one, node in others if node == bind.node for held in now.held(one)}
        new = now.held(pod) - there
        limits = [limit for _, limit in self._limits.get(bind.node, ())]
        if new and limits and None not in limits:
            most = max(limit for limit in limits if limit is not None)
            if len(there | new) > most:
                yield (
                    f"volumes-counted: {bind.name} is bound to {bind.node}, as volume "
                    f"{len(there | new)} of {most}"
                )


class StorageNow:
    """Claims and volumes as they are in the store, else as the process received them."""

    def __init__(self, received: Received, store: Mapping[str, Mapping[Any, Any]]) -> None:
        self._received = received.objects
        self._store = store

    def claim(self, name: str) -> PersistentVolumeClaim | None:
        """Returns the claim in the store if it is the same one, else the one that the process received."""
        known: PersistentVolumeClaim | None = self._received.get(CLAIMS, {}).get((namespace_of(name), name))
        now: PersistentVolumeClaim | None = self._store[CLAIMS].get((namespace_of(name), name))
        is_same = known is not None and now is not None and known.metadata.uid == now.metadata.uid
        return now if is_same else known

    def is_first(self, claim: PersistentVolumeClaim) -> bool:
        """Whether it is in the store and was never recreated: the one that the pod was placed for."""
        meta = claim.metadata
        there: PersistentVolumeClaim | None = self._store[CLAIMS].get((meta.namespace, meta.name))
        return there is not None and there.metadata.uid == meta.uid == claim_uid(meta.name)

    def volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        key = ("", claim.spec.volume_name)
        found: PersistentVolume | None = self._store[VOLUMES].get(key)
        found = found or self._received.get(VOLUMES, {}).get(key)
        owner = found.spec.claim_ref if found is not None else None
        return found if owner is not None and owner.uid == claim.metadata.uid else None

    def held(self, pod: Pod) -> set[Held]:
        """Returns what the pod has attached to its node. A bound pod has all its volumes; a claim that was
        recreated under it has none, and none is attached."""
        found: set[Held] = set()
        for name in claims_of(pod):
            claim = self.claim(name)
            if claim is None:
                continue
            volume = self.volume(claim)
            if volume is not None:
                found |= attached_by(volume)
        return found


def node_of(pod: Pod, received: Received) -> str:
    """Returns the node that the pod is on, or is about to be on; "" once it has ended."""
    promised = received.promised.by_uid.get(pod.metadata.uid)
    node = promised.node if promised is not None else pod.spec.node_name
    return "" if pod.is_terminal else node


def limit_of(node: CsiNode) -> int | None:
    """Returns how many volumes of the one driver here may be attached to the node; None: no limit."""
    counts = [driver.allocatable.count for driver in node.spec.drivers or () if driver.allocatable]
    return counts[0] if counts else None


def attached_by(volume: PersistentVolume) -> set[Held]:
    """Returns what is attached to a node for the volume; nothing for a local one, which is there already."""
    return {(csi.driver, csi.volume_handle)} if (csi := volume.spec.csi) is not None else set()


def reaches(volume: PersistentVolume, node: str) -> bool:
    """Whether the node can use the volume; reads the one form of affinity used here: to nodes by name."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(
        all(node in (one.values or ()) for one in term.match_expressions or ())
        for term in affinity.required.node_selector_terms or ()
    )


def _given_twice(bodies: HookBodies | None, received: Received) -> Iterator[str]:
    """Volumes are recreated under their names, so only one version is one volume. A pod that is gone has
    given its volume up: of two patches of one version the server takes the first. Each profile has
    reservations of its own, as in kube-scheduler: there too the server takes the first."""
    owners: dict[tuple[str, str, str], str] = {}
    for pod, path, patch in bodies.under_way() if bodies is not None else ():
        owner = patch.get("spec", {}).get("claimRef", {}).get("name", "")
        volume = (path, patch["metadata"]["resourceVersion"], pod.spec.scheduler_name)
        if not owner or pod.metadata.uid not in received.pods:
            continue
        if (first := owners.setdefault(volume, owner)) != owner:
            yield f"volumes-given-once: {path.rpartition('/')[2]} is given to {first} and {owner} at once"


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
    claims = scheduler.shared.claims
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

"""VolumeRules: what no bind may do with volumes, judged from the process's events and the store.

A claim's volume never changes, so the store may be asked about a claim that the process knows by its UID.
Called by lab.sim.runs.volume_run after every turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.hook_bodies import HookBodies
from gangsched.lab.sim.world.volumes import ONE_POD, claim_uid, claims_of, namespace_of
from gangsched.model.effects import BindPod
from gangsched.model.objects import Pod
from gangsched.model.storage import CLAIMS, NODES, VOLUMES, CsiNode, PersistentVolume, PersistentVolumeClaim

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

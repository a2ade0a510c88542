"""Storage: the controller of volumes, its drivers and users, and what goes wrong with them.

Binds claims to the volumes that are reserved for them, makes volumes for claims that ask for one, or reports
that it could not; frees and removes them again. Faults happen while the weather is bad; `repair` undoes what
would keep a pod from ever running. Not here: what exists at first (lab.sim.workloads.volumes), the checks
(lab.sim.judges.places.volumes).
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.errors import ApiError, Subject
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world import volumes
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.at_random import AtRandom
from gangsched.lab.sim.world.volumes import DRIVER, LOCAL, MANY, NET, SELECTED, claims_of, namespace_of
from gangsched.lab.sim.world.weather import Weather
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.storage import (
    CAPACITIES,
    CLAIMS,
    NODES,
    VOLUMES,
    CsiSource,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeSpec,
    VolumeStatus,
)

COMPLETED = "pv.kubernetes.io/bind-completed"
DEEDS = ("delete_claim", "lose_volume", "limit_node", "fill_node", "cut_watch")
_FAILS, _STRAYS = 0.25, 0.2
_CLAIMS = "/persistentvolumeclaims/"


class Storage(AtRandom):
    """The claims and volumes of one store."""

    def __init__(
        self, api: SimApi, timeline: Timeline, weather: Weather, rng: Random, first: volumes.Objects
    ) -> None:
        super().__init__(
            api, timeline, weather, rng, per_s=lambda rates: rates.mischief_per_s / 2, deeds=DEEDS
        )
        self._first = first
        api.serve(volumes.kinds())
        for kind, item in first:
            api.put_object(kind, item)
        api.on_gone.append(self._gone)

    def start(self) -> None:
        self._timeline.after(0.1, self._control)
        self._wait()

    @property
    def _claims(self) -> dict[tuple[str, ...], PersistentVolumeClaim]:
        return self._api.objects[CLAIMS]

    @property
    def _volumes(self) -> dict[tuple[str, ...], PersistentVolume]:
        return self._api.objects[VOLUMES]

    def _mark(self) -> str:
        self._n += 1
        return f"-s{self._n}"

    # -- the server ------------------------------------------------------------------------------------------

    def answer(self, path: str, body: Any) -> Any:
        """Answers a plugin's GET or patch. Raises: ApiError."""
        kind, name = (CLAIMS if _CLAIMS in path else VOLUMES), path.rpartition("/")[2]
        item = self._api.objects[kind].get((namespace_of(name) if kind == CLAIMS else "", name))
        if item is None:
            raise ApiError(f"{name} not found", code=404, reason="NotFound", subject=Subject(kind, name))
        if body is not None:
            meta, patched = item.metadata, body["metadata"]
            if patched["resourceVersion"] != meta.resource_version:
                raise ApiError("the object has been modified", code=409)
            merged = {**(meta.annotations or {}), **patched.get("annotations", {})}
            item = replace(item, metadata=replace(meta, annotations=merged))
            if owner := body.get("spec", {}).get("claimRef"):
                reference = ObjectReference(owner["name"], owner["namespace"], owner["uid"])
                item = replace(item, spec=replace(item.spec, claim_ref=reference))
            self._api.put_object(kind, item)
        return msgspec.to_builtins(item)

    # -- the controller --------------------------------------------------------------------------------------

    def _control(self) -> None:
        """Does one round; the next follows a moment later."""
        for claim in list(self._claims.values()):
            if claim.metadata.deletion_timestamp is not None:
                self._remove_unused(claim)
            elif not claim.spec.volume_name:
                self._serve(claim)
            elif claim.status.phase != "Lost" and ("", claim.spec.volume_name) not in self._volumes:
                self._api.put_object(CLAIMS, replace(claim, status=replace(claim.status, phase="Lost")))
        for volume in list(self._volumes.values()):
            owner = volume.spec.claim_ref
            now = self._claims.get((owner.namespace, owner.name)) if owner is not None else None
            if owner is not None and (now is None or now.metadata.uid != owner.uid):
                self._release(volume)
        self._timeline.after(self._rng.uniform(0.1, 0.6), self._control)

    def _serve(self, claim: PersistentVolumeClaim) -> None:
        """Binds the claim to a volume that is reserved for it, or to one made for it."""
        for volume in self._volumes.values():
            owner = volume.spec.claim_ref
            if owner is not None and owner.uid == claim.metadata.uid:
                self._bind(claim, volume)
                return
        node = (claim.metadata.annotations or {}).get(SELECTED)
        if claim.spec.storage_class_name == NET:
            self._make(claim, "")
        elif node is not None and self._weather.rates.mischief_per_s and self._rng.random() < _FAILS:
            own = {key: text for key, text in (claim.metadata.annotations or {}).items() if key != SELECTED}
            self._api.put_object(CLAIMS, replace(claim, metadata=replace(claim.metadata, annotations=own)))
        elif node is not None:
            is_local = MANY not in (claim.spec.access_modes or ()) and self._rng.random() < 0.5
            self._make(claim, self._strayed(node) if is_local else "")

    def _strayed(self, node: str) -> str:
        """Returns where the driver makes a volume for this node: it may be the wrong node."""
        if self._weather.rates.mischief_per_s and self._rng.random() < _STRAYS:
            return self._rng.choice([name for _, name in self._api.objects[NODES]])
        return node

    def _make(self, claim: PersistentVolumeClaim, node: str) -> None:
        meta, mark = claim.metadata, self._mark()
        spec = VolumeSpec(
            access_modes=claim.spec.access_modes,
            capacity={"storage": "5Gi"},
            storage_class_name=claim.spec.storage_class_name or "",
            claim_ref=ObjectReference(meta.name, meta.namespace, meta.uid),
            node_affinity=volumes.only_on(node) if node else None,
            csi=CsiSource(DRIVER, f"vol{mark}"),
        )
        name = f"pvc-{meta.name}{mark}"
        volume = PersistentVolume(
            volumes.local_volume(name, node, mark).metadata, spec, VolumeStatus("Available")
        )
        self._api.put_object(VOLUMES, volume)
        self._bind(claim, volume)

    def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        self._api.put_object(VOLUMES, replace(volume, status=VolumeStatus("Bound")))
        own = {**(claim.metadata.annotations or {}), COMPLETED: "yes"}
        bound = replace(
            claim,
            metadata=replace(claim.metadata, annotations=own),
            spec=replace(claim.spec, volume_name=volume.metadata.name),
            status=replace(claim.status, phase="Bound"),
        )
        self._api.put_object(CLAIMS, bound)

    def _release(self, volume: PersistentVolume) -> None:
        """Removes a volume whose claim is gone; a local one is emptied and offered again."""
        name = volume.metadata.name
        self._api.remove_object(VOLUMES, ("", name))
        if volume.spec.storage_class_name == LOCAL:
            self._api.put_object(VOLUMES, volumes.local_volume(name, name.partition("-")[0], self._mark()))

    def _remove_unused(self, claim: PersistentVolumeClaim) -> None:
        """Removes a claim that is being deleted, once no pod uses it."""
        name = claim.metadata.name
        if not self._is_used(name):
            self._api.remove_object(CLAIMS, (claim.metadata.namespace, name))
            self._timeline.after(self._rng.uniform(0.1, 5.0), lambda: self._recreate(name))

    def _is_used(self, name: str) -> bool:
        users = (pod for pod in self._api.pods.values() if pod.spec.node_name and not pod.is_terminal)
        return any(name in claims_of(pod) for pod in users)

    def _recreate(self, name: str) -> None:
        if (namespace_of(name), name) not in self._claims:
            self._api.put_object(CLAIMS, volumes.claim(name, self._mark()))

    def _gone(self, pod: Pod) -> None:
        """Deletes the claims of a pod that is gone, now and then."""
        for name in claims_of(pod):
            if self._rng.random() < 0.5:
                self._delete(name)

    def _delete(self, name: str) -> None:
        claim = self._claims.get((namespace_of(name), name))
        if claim is not None and claim.metadata.deletion_timestamp is None:
            leaving = replace(claim.metadata, deletion_timestamp=self._api.wall_time())
            self._api.put_object(CLAIMS, replace(claim, metadata=leaving))

    # -- faults ----------------------------------------------------------------------------------------------

    def delete_claim(self) -> None:
        if self._claims:
            self._delete(self._rng.choice([name for _, name in self._claims]))

    def lose_volume(self) -> None:
        if self._volumes:
            self._api.remove_object(VOLUMES, self._rng.choice(list(self._volumes)))

    def limit_node(self) -> None:
        _, name = self._rng.choice(list(self._api.objects[NODES]))
        self._api.put_object(NODES, volumes.csi_node(name, self._rng.randrange(5)))

    def fill_node(self) -> None:
        _, name = self._rng.choice(list(self._api.objects[NODES]))
        self._api.put_object(CAPACITIES, volumes.capacity(name, self._rng.choice((0, 4, 50))))

    def cut_watch(self) -> None:
        kind = self._rng.choice((CLAIMS, VOLUMES, NODES, CAPACITIES))
        self._api.streams[kind].cut(self._rng.uniform(0.0, 2.0))

    def repair(self) -> None:
        """Gives drivers room, brings lost local volumes back, and recreates claims whose volume is lost, or
        was made elsewhere and may share no node with the next."""
        for kind, item in self._first:
            if kind in (NODES, CAPACITIES):
                self._api.put_object(kind, item)
            elif kind == VOLUMES and ("", item.metadata.name) not in self._volumes:
                node, mark = item.metadata.name.partition("-")[0], self._mark()
                self._api.put_object(kind, volumes.local_volume(f"{node}-new{mark}", node, mark))
        for (_, name), claim in list(self._claims.items()):
            volume = self._volumes.get(("", claim.spec.volume_name))
            if claim.spec.volume_name and (volume is None or self._is_astray(claim, volume)):
                self._delete(name)

    def _is_astray(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
        """Whether the volume was made elsewhere than asked for, and no pod uses it yet."""
        node = (claim.metadata.annotations or {}).get(SELECTED, "")
        is_here = volume.spec.node_affinity in (None, volumes.only_on(node))
        return volume.spec.csi is not None and not is_here and not self._is_used(claim.metadata.name)

    def events(self) -> Iterable[ev.Event]:
        """Yields all objects, as a new process receives them."""
        for kind, some in self._api.objects.items():
            yield from (ev.ObjectPut(kind, item) for item in some.values())

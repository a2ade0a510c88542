"""A scenario's cluster with Dynamic Resource Allocation: slices, claims, and a server that writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import (
    ObjectMeta,
    OwnerReference,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
)
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    DEVICE_CLASSES,
    SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from tests.support.scenario import Cluster

DRIVER = "gpu.example.com"
Json = dict[str, Any]


def gpus(node: str, n: int, **more: Any) -> Json:
    """A node's slice of n devices, two NUMA nodes with half of them each."""
    devices = [
        {"name": f"gpu-{i}", "attributes": {"model": {"string": "H200"}, "numa": {"int": 2 * i // n}}}
        for i in range(n)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices, **more}


def wish(count: int = 1, expression: str = "", **more: Any) -> Json:
    """The spec of a claim with one request, `gpu`."""
    selectors = [{"cel": {"expression": expression}}] if expression else None
    exactly = {"deviceClassName": "gpu", "count": count, "allocationMode": "ExactCount", **more}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly | {"selectors": selectors}}]}}


class ClaimCluster(Cluster):
    """`claim_answer` says ok, hold (no answer yet), lost (unclear, nothing written), late (unclear, written),
    or a code."""

    def __init__(self, **options: Any) -> None:
        self.resource_claims: dict[str, Json] = {}
        self.claim_answer: Callable[[Any], str] = lambda one: "ok"
        self.dropped: list[str] = []
        """Names of claims that the scheduler has deleted."""
        self.held_patches: list[ef.PatchClaim] = []
        self.shows_claims = self.answers_reads = True
        self.others: dict[tuple[str, str], Any] = {}
        super().__init__(**options)
        self.device_class("gpu", f"device.driver == '{DRIVER}'")

    def put(self, kind: str, raw: Json, type_: Any) -> Self:
        """An object that is listed at once."""
        raw["metadata"]["resourceVersion"] = self._next()
        one = _read(raw, type_)
        self.others[kind, one.metadata.name] = one
        return self.tell(ev.ObjectPut(kind, one))

    def device_class(self, name: str, expression: str, *, serves: str = "") -> Self:
        spec: Json = {"selectors": [{"cel": {"expression": expression}}]}
        if serves:
            spec["extendedResourceName"] = serves
        return self.put(
            DEVICE_CLASSES, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}, DeviceClass
        )

    def offer(self, *names: str, gpus_each: int = 8, **more: Any) -> Self:
        """Nodes with their slices."""
        for name in names:
            self.node(make_node(name, gpus=0, listed=False))
            spec = gpus(name, gpus_each, **more)
            self.slice(f"slice-{name}", spec)
        return self

    def slice(self, name: str, spec: Json) -> Self:
        return self.put(
            SLICES, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}, ResourceSlice
        )

    def make_claim(self, name: str, spec: Json, *, owner: Pod | None = None, **status: Any) -> Json:
        """A claim is created; with an owner as its controller does."""
        namespace = "d" if owner is None else owner.metadata.namespace
        meta: Json = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        if owner is not None:
            meta["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": owner.metadata.name,
                    "uid": owner.metadata.uid,
                    "controller": True,
                }
            ]
        raw = {"metadata": meta, "spec": spec, "status": status}
        self.write(raw)
        return raw

    def write(self, raw: Json) -> None:
        """A version of a claim is stored, and shown unless the watch lags."""
        raw["metadata"]["resourceVersion"] = self._next()
        self.resource_claims[raw["metadata"]["uid"]] = raw
        if self.shows_claims:
            self.show(raw["metadata"]["uid"])

    def show(self, uid: str) -> Self:
        return self.tell(ev.ObjectPut(CLAIMS, _read(self.resource_claims[uid], ResourceClaim)))

    def lose(self, name: str) -> Self:
        """A claim is gone, and the watch shows that."""
        raw = self.resource_claims.pop(f"uid-{name}")
        meta = raw["metadata"]
        return self.tell(ev.ObjectGone(CLAIMS, meta["namespace"], meta["name"], meta["uid"]))

    def show_all(self) -> Self:
        self.shows_claims = True
        for uid in self.resource_claims:
            self.show(uid)
        return self

    def want(self, name: str, spec: Json, **options: Any) -> Pod:
        """A pod with a claim of its own, which is made for it."""
        pod = with_claims(make_pod(name, gpus=0, **options), own=("gpu",))
        self.make_claim(f"{name}-gpu", spec, owner=pod)
        return pod

    def restart(self) -> Self:
        super().restart()
        events: list[ev.Event] = [ev.ObjectPut(kind, one) for (kind, _), one in self.others.items()]
        events += [ev.ObjectPut(CLAIMS, _read(raw, ResourceClaim)) for raw in self.resource_claims.values()]
        self.held_patches.clear()
        return self.tell(*events)

    # -- the server's answers ----------------------------------------------------------------------------

    def _done(self, effects: list[ef.Effect]) -> None:
        super()._done(effects)
        for effect in effects:
            if isinstance(effect, ef.PatchClaim):
                self._patch_claim(effect)
            elif isinstance(effect, ef.MakeClaim):
                self._create(effect)
            elif isinstance(effect, ef.DropClaim):
                self._drop(effect)
            elif isinstance(effect, ef.NoteClaim):
                self._state(effect)
            elif isinstance(effect, ef.GetClaim):
                if self.answers_reads:
                    self.read_claim(effect.uid, effect.name if effect.owner else "")
            elif isinstance(effect, ef.BumpClaim):
                raw = self.resource_claims.get(effect.uid)
                if raw is not None:
                    self.write(json.loads(json.dumps(raw)))
                self.tell(ev.ClaimBumped(effect.uid, self._stored(effect.uid)))
            elif isinstance(effect, ef.CancelBinds):
                for patch in [one for one in self.held_patches if one.cause_id == effect.cause_id]:
                    self.held_patches.remove(patch)
                    self.tell(ev.ClaimCancelled(patch.uid, patch.ticket))

    def read_claim(self, uid: str, made: str = "") -> Self:
        """The API server's answer to GetClaim: the claim as it is in the store. made: the name of one whose
        UID is not known yet."""
        return self.tell(ev.ClaimRead(uid, self._stored(f"uid-{made}" if made else uid)))

    def _create(self, effect: ef.MakeClaim) -> None:
        said = self.claim_answer(effect)
        if said in ("ok", "late"):
            uid = f"uid-{effect.name}"
            if uid in self.resource_claims:
                self.tell(ev.ClaimRefused(effect.uid, effect.ticket, 409, "AlreadyExists", "it exists"))
                return
            raw = json.loads(effect.body)
            raw["metadata"]["uid"] = uid
            self.write(raw)
            if said == "ok":
                made = self._stored(uid)
                assert made is not None
                self.tell(ev.ClaimPatched(effect.uid, effect.ticket, made))
                return
        if said in ("late", "lost"):
            self.tell(ev.ClaimUnclear(effect.uid, effect.ticket, "timed out"))
        elif said != "hold":
            self.tell(ev.ClaimRefused(effect.uid, effect.ticket, int(said), "Refused", "no"))

    def _drop(self, effect: ef.DropClaim) -> None:
        raw = self.resource_claims.get(effect.uid)
        if raw is None:
            self.tell(ev.ClaimRefused(effect.uid, effect.ticket, 404, "NotFound", "it is gone"))
        elif raw["metadata"]["resourceVersion"] != effect.resource_version:
            self.tell(ev.ClaimUnclear(effect.uid, effect.ticket, "the object has been modified"))
        else:
            self.dropped.append(effect.name)
            self.tell(ev.ClaimGone(effect.uid, effect.ticket))
            self.lose(effect.name)

    def _state(self, effect: ef.NoteClaim) -> None:
        said = self.claim_answer(effect)
        if said != "ok":
            code = int(said) if said.isdecimal() else 0
            self.tell(ev.ClaimNoted(effect.uid, effect.ticket, code, "no"))
            return
        pod = self.pods[effect.uid]
        if pod.metadata.resource_version != effect.resource_version:
            self.tell(ev.ClaimNoted(effect.uid, effect.ticket, 409, "the object has been modified"))
            return
        status = replace(pod.status, extended_resource_claim_status=effect.claim)
        self.update(replace(pod, status=status))
        self.tell(ev.ClaimNoted(effect.uid, effect.ticket))

    def _stored(self, uid: str) -> ResourceClaim | None:
        raw = self.resource_claims.get(uid)
        return None if raw is None else _read(raw, ResourceClaim)

    def _patch_claim(self, patch: ef.PatchClaim) -> None:
        said = self.claim_answer(patch)
        if said == "hold":
            self.held_patches.append(patch)
        elif said == "lost":
            self.held_patches.append(patch)
            self.tell(ev.ClaimUnclear(patch.uid, patch.ticket, "timed out"))
        elif said == "late":
            self.land(patch)
            self.tell(ev.ClaimUnclear(patch.uid, patch.ticket, "timed out"))
        elif said != "ok":
            self.tell(ev.ClaimRefused(patch.uid, patch.ticket, int(said), "Refused", "no"))
        elif self.land(patch):
            claim = self._stored(patch.uid)
            assert claim is not None
            self.tell(ev.ClaimPatched(patch.uid, patch.ticket, claim))
        else:
            self.tell(ev.ClaimUnclear(patch.uid, patch.ticket, "the object has been modified"))

    def land(self, patch: ef.PatchClaim) -> bool:
        """The server takes in the patch, if it is about the stored version."""
        raw = self.resource_claims.get(patch.uid)
        if raw is None or raw["metadata"]["resourceVersion"] != patch.resource_version:
            return False
        now, body = json.loads(json.dumps(raw)), json.loads(patch.patch)
        if patch.is_status:
            _merge_status(now.setdefault("status", {}), body["status"])
        else:
            meta, more = now["metadata"], body["metadata"]
            meta["finalizers"] = more["finalizers"]
            meta["annotations"] = {**meta.get("annotations", {}), **more["annotations"]}
        self.write(now)
        return True

    # -- what can be seen --------------------------------------------------------------------------------

    def devices(self, claim: str) -> list[str]:
        """The names of the devices that the claim has, with their pools."""
        allocation = (self.resource_claims[f"uid-{claim}"].get("status") or {}).get("allocation") or {}
        return [f"{one['pool']}/{one['device']}" for one in allocation.get("devices", {}).get("results", ())]

    def reserved(self, claim: str) -> list[str]:
        return [
            one["name"]
            for one in (self.resource_claims[f"uid-{claim}"].get("status") or {}).get("reservedFor") or ()
        ]


def with_claims(pod: Pod, *, own: tuple[str, ...] = (), shared: Mapping[str, str] | None = None) -> Pod:
    """The pod with claims made for it, named after it, and with others by their name."""
    entries = [PodResourceClaim(one, resource_claim_template_name=f"{one}s") for one in own]
    entries += [PodResourceClaim(entry, resource_claim_name=name) for entry, name in (shared or {}).items()]
    statuses = [PodResourceClaimStatus(one, f"{pod.metadata.name}-{one}") for one in own]
    return replace(
        pod,
        spec=replace(pod.spec, resource_claims=entries),
        status=replace(pod.status, resource_claim_statuses=statuses or None),
    )


def _merge_status(status: Json, more: Json) -> None:
    for key, value in more.items():
        if value is None:
            status.pop(key, None)
        else:
            assert key == "reservedFor" or key not in status, "a set allocation cannot be changed"
            status[key] = value


def _read(raw: Json, type_: Any) -> Any:
    return msgspec.json.decode(json.dumps(raw).encode(), type=type_)


__all__ = ["ClaimCluster", "ObjectMeta", "OwnerReference", "gpus", "wish", "with_claims"]

"""Devices and claims on the real API server: put there, waited for until kube-scheduler has seen them, and
taken away again.

Does what the resourceclaim controller does: claims of a pod's own are made when the pod is there, and
finalizers end with the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.contract.api import Api
from tests.differential.draw import Devices, Json
from tests.differential.draw_claims import SPACES

GROUP = "/apis/resource.k8s.io/v1"
# Our name of the kind, and where it is.
KINDS = {
    "deviceclasses.resource.k8s.io": f"{GROUP}/deviceclasses",
    "devicetaintrules.resource.k8s.io": f"{GROUP}/devicetaintrules",
    "resourceslices.resource.k8s.io": f"{GROUP}/resourceslices",
}
CLAIMS = "resourceclaims.resource.k8s.io"
_OUR_FINALIZER = "tests.example.com/kept"


class Seen:
    """What kube-scheduler's log tells of devices and claims: names by path, newest versions of claims."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {path: set() for path in KINDS.values()}
        self.versions: dict[str, int] = {}

    def take(self, said: str, fields: Mapping[str, str]) -> None:
        """Takes in a line."""
        for (what, field), names in zip(_LOGGED, self.names.values(), strict=True):
            if said == f"{what} added":
                names.add(fields[field])
            elif said == f"{what} deleted":
                names.discard(fields[field])
        if fields.get("description") != "ResourceClaim":
            return
        if said == "Adding object to assume cache":
            self.versions[fields["cacheKey"]] = version_in(fields["assumeCache"])
        elif said.startswith("Skip adding object to assume cache"):  # of its own writes it knows already
            self.versions[fields["cacheKey"]] = int(fields["newVersion"])


_LOGGED = (
    ("DeviceClass", "deviceClass"),
    ("DeviceTaintRule", "deviceTaintRule"),
    ("ResourceSlice", "slice"),
)


def version_in(text: str) -> int:
    """The resourceVersion of an object that was printed whole."""
    _, found, rest = text.partition("ObjectMeta:{")
    assert found, text
    # Its name, generateName, namespace, selfLink and UID come first.
    return int(rest.split(" ", 6)[5])


class ClaimStage:
    """The devices and claims of one cluster at a time."""

    def __init__(self, api: Api, seen: Seen, until: Callable[[Callable[[], Any]], None]) -> None:
        self._api = api
        self._seen = seen
        self._until = until

    def put(self, devices: Devices) -> dict[str, list[Json]]:
        """Makes all but pods' own claims; returns what there is, by our names of the kinds."""
        made: dict[str, list[Json]] = {}
        listed = (devices.classes, devices.rules, devices.slices)
        for (kind, path), items in zip(KINDS.items(), listed, strict=True):
            made[kind] = [self._api.post(path, one).ok(201) for one in items]
        for claim in devices.claims:
            self._claim(claim, is_leaving=claim["metadata"]["name"] in devices.leaving)
        # Deletions of the claims before are seen once what came after them is.
        mark: Json = {"metadata": {"name": "mark", "namespace": "default"}, "spec": {}}
        self._claim(mark)
        self._until(lambda: self._has(made))
        self.wait()
        return made

    def _has(self, made: Mapping[str, list[Json]]) -> bool:
        return all(
            self._seen.names[KINDS[kind]] == {one["metadata"]["name"] for one in items}
            for kind, items in made.items()
        )

    def _claim(self, claim: Json, *, is_leaving: bool = False) -> None:
        meta = claim["metadata"]
        path = _path(meta["namespace"])
        body = {"metadata": dict(meta), "spec": claim["spec"]}
        if is_leaving:
            body["metadata"]["finalizers"] = [_OUR_FINALIZER]
        # With blanks in drivers' parameters, the API server would refuse later patches of its own.
        self._api.post(path, json.dumps(body, separators=(",", ":")).encode()).ok(201)
        if "status" in claim:
            self._api.patch(f"{path}/{meta['name']}/status", {"status": claim["status"]}).ok(200)
        if is_leaving:
            self._api.delete(f"{path}/{meta['name']}").ok(200)

    def make_own(self, pod: Json, own: Mapping[str, Json]) -> tuple[Json, list[Json]]:
        """Makes the claims of a pod's own; returns the pod, which then names them, and all claims as they
        were when it did."""
        meta = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        statuses = []
        for entry, claim in own.items():
            owned = claim["metadata"] | {"ownerReferences": [owner | {"controller": True}]}
            self._claim(claim | {"metadata": owned})
            statuses.append({"name": entry, "resourceClaimName": owned["name"]})
        claims = self.wait()
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        named: Json = self._api.patch(path, {"status": {"resourceClaimStatuses": statuses}}).ok(200)
        return named, claims

    def _claims(self) -> list[Json]:
        """All claims, as the API server has them."""
        listed: list[Json] = self._api.get(f"{GROUP}/resourceclaims").ok()["items"]
        return listed

    def wait(self) -> list[Json]:
        """Returns the claims as they are, when kube-scheduler knows that."""
        claims = self._claims()
        versions = {
            f"{one['metadata']['namespace']}/{one['metadata']['name']}": one["metadata"]["resourceVersion"]
            for one in claims
        }
        seen = self._seen.versions
        self._until(lambda: all(seen.get(key, 0) >= int(version) for key, version in versions.items()))
        return claims

    def clear(self) -> None:
        """Takes away all of it; the pods are gone."""
        for claim in self._claims():
            meta = claim["metadata"]
            if meta.get("finalizers"):
                path = f"{_path(meta['namespace'])}/{meta['name']}"
                self._api.patch(path, {"metadata": {"finalizers": None}}).ok(200)
        for space in SPACES:
            self._api.delete(_path(space)).ok(200)
        for path in KINDS.values():
            self._api.delete(path).ok(200)
        self._until(lambda: not any(self._seen.names.values()))


def _path(namespace: str) -> str:
    return f"{GROUP}/namespaces/{namespace}/resourceclaims"

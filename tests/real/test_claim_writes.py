"""What the edge asks about ResourceClaims, on a real API server and with no more rights than it needs."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
import yaml
from msgspec.structs import replace

from gangsched.errors import ApiError
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.watch.catch_up import CatchUp
from gangsched.kube.watch.decode import followed
from gangsched.kube.watch.reflector import Reflector
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.effects import BumpClaim, BumpPod, GetClaim, PatchClaim
from gangsched.model.events import (
    ClaimBumped,
    ClaimPatched,
    ClaimRead,
    ClaimRefused,
    ClaimUnclear,
    Event,
    KindSynced,
    PodBumped,
)
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    DEVICE_CLASSES,
    FINALIZER,
    MAX_RESERVED_FOR,
    SLICES,
    TAINT_RULES,
)
from tests.real.edge import Edge, edge_by, make_pod
from tests.support.applying import token_of
from tests.support.tasks import until

pytestmark = pytest.mark.real

Json = dict[str, Any]
PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MARK = "gangsched.io/claimed-for"
MERGE = "application/merge-patch+json"
DEVICES: Json = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}
PARAMETERS = '{"z":1.50,"none":null,"a":[{"deep":null},9007199254740993]}'
GET_AND_PATCH = {
    "apiGroups": ["resource.k8s.io"],
    "resources": ["resourceclaims", "resourceclaims/status"],
    "verbs": ["get", "patch"],
}
READ = {
    "apiGroups": ["resource.k8s.io"],
    "resources": ["deviceclasses", "resourceslices", "resourceclaims", "devicetaintrules"],
    "verbs": ["list", "watch"],
}
BINDING = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["patch"]}
PODS = {"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}


class Claims:
    """The store's claims, and what is written to them."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.n_tickets = 0

    def make(self, name: str, **meta: Any) -> Json:
        body = {"metadata": {"name": name, **meta}, "spec": {"devices": DEVICES}}
        made: Json = self.plane.request("POST", PATH, body)
        return made

    def make_raw(self, body: Json, parameters: str) -> Json:
        """With these bytes in place of "@"; returns its metadata."""
        text = json.dumps(body).replace('"@"', parameters)
        request = urllib.request.Request(self.plane.base_url + PATH, data=text.encode(), method="POST")
        request.add_header("Authorization", f"Bearer {self.plane.token}")
        request.add_header("Content-Type", "application/json")
        context = ssl.create_default_context(cafile=str(self.plane.ca_file))
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            made: Json = json.loads(answer.read())["metadata"]
        return made

    def now(self, name: str) -> Json:
        found: Json = self.plane.request("GET", f"{PATH}/{name}")
        return found

    def patch(self, name: str, status: Json | None = None, *, version: str = "", **more: Any) -> PatchClaim:
        """Of the status, or of `metadata`; for the version that the store has, or that one."""
        meta = self.now(name)["metadata"]
        self.n_tickets += 1
        body = {"status": status} if status is not None else more
        return PatchClaim(
            uid=meta["uid"],
            namespace="default",
            name=name,
            resource_version=version or meta["resourceVersion"],
            patch=json.dumps(body).encode(),
            is_status=status is not None,
            group="default/g",
            ticket=self.n_tickets,
            cause_id="c",
        )

    def allow(self, *rules: Json) -> None:
        """What the account `claims` may."""
        role = {"metadata": {"name": "claims"}, "rules": list(rules)}
        self.plane.request("PUT", f"{RBAC}/clusterroles/claims", role)


def allocation(device: str = "gpu-0") -> Json:
    result = {"request": "gpu", "driver": "d.example.com", "pool": "n0", "device": device}
    return {"devices": {"results": [result]}}


def pods(*names: str) -> list[Json]:
    return [{"resource": "pods", "name": name, "uid": f"u-{name}"} for name in names]


@pytest.fixture
def claims(fresh_cluster: ControlPlane) -> Iterator[Claims]:
    """With an account of their own, that fresh_cluster deletes."""
    plane = fresh_cluster
    plane.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "claims"}})
    plane.request("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "claims"}, "rules": []})
    subject = {"kind": "ServiceAccount", "name": "claims", "namespace": "default"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "claims"}
    binding = {"metadata": {"name": "claims"}, "roleRef": ref, "subjects": [subject]}
    plane.request("POST", f"{RBAC}/clusterrolebindings", binding)
    yield Claims(plane)
    for kind in ("clusterrolebindings", "clusterroles"):
        plane.request("DELETE", f"{RBAC}/{kind}/claims")
    plane.request("DELETE", "/api/v1/namespaces/default/serviceaccounts/claims")
    for item in plane.request("GET", PATH)["items"]:
        name = item["metadata"]["name"]
        if item["metadata"].get("finalizers"):
            plane.request("PATCH", f"{PATH}/{name}", {"metadata": {"finalizers": None}}, content_type=MERGE)
        with suppress(ApiError):  # it was being deleted, and is gone with its finalizers
            plane.request("DELETE", f"{PATH}/{name}")


@asynccontextmanager
async def edge(claims: Claims, directory: Path, *rules: Json) -> AsyncIterator[Edge]:
    """The edge by that account, with these rights beside those on what the edge always follows."""
    claims.allow(PODS, {"apiGroups": ["*"], "resources": ["podgroups", "nodes"], "verbs": ["*"]}, *rules)
    config = yaml.safe_load(claims.plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token_of(claims.plane, "claims", "default")}
    path = directory / "kubeconfig.yaml"
    path.write_text(yaml.safe_dump(config))
    async with edge_by(await load_credentials(kubeconfig=str(path))) as running:
        yield running


async def answer_to(edge: Edge, effect: Any, answer: type[Any]) -> Any:
    """The one event about the effect's object since it was submitted."""
    edge.said.clear()
    return await edge.does(effect, answer)


async def test_a_claim_is_marked_allocated_bumped_and_taken_back(claims: Claims, tmp_path: Path) -> None:
    claims.make("c")
    async with edge(claims, tmp_path, GET_AND_PATCH, BINDING) as running:
        metadata = {"finalizers": [FINALIZER], "annotations": {MARK: "default/g"}}
        marked = await answer_to(running, claims.patch("c", metadata=metadata), ClaimPatched)
        meta = claims.now("c")["metadata"]
        assert (meta["finalizers"], meta["annotations"][MARK]) == ([FINALIZER], "default/g")
        assert marked.claim.metadata.resource_version == meta["resourceVersion"]

        status: Json = {"allocation": allocation(), "reservedFor": pods("a", "b")}
        config = [{"source": "FromClaim", "opaque": {"driver": "d.example.com", "parameters": "@"}}]
        status["allocation"]["devices"]["config"] = config
        version = marked.claim.metadata.resource_version
        effect = claims.patch("c", status, version=version)
        effect = replace(effect, patch=effect.patch.replace(b'"@"', PARAMETERS.encode()))
        allocated = await answer_to(running, effect, ClaimPatched)
        assert allocated.ticket == effect.ticket
        found = allocated.claim.status.allocation
        assert [str(one.id) for one in found.devices.results] == ["d.example.com/n0/gpu-0"]
        assert found.allocation_timestamp is not None
        assert bytes(found.devices.config[0].opaque.parameters) == PARAMETERS.encode()
        assert allocated.claim.metadata.finalizers == [FINALIZER]

        bumped = await answer_to(running, BumpClaim(effect.uid, "default", "c", "c"), ClaimBumped)
        assert bumped.claim.metadata.resource_version != allocated.claim.metadata.resource_version
        assert bumped.claim.status.allocation is not None
        before = allocated.claim.metadata.resource_version
        late = claims.patch("c", {"reservedFor": pods("late")}, version=before)
        assert await answer_to(running, late, ClaimUnclear)

        read = await answer_to(running, GetClaim(effect.uid, "default", "c", "c"), ClaimRead)
        assert read.claim == bumped.claim
        assert bumped.claim.status.allocation == found
        fewer = await answer_to(running, claims.patch("c", {"reservedFor": pods("b")}), ClaimPatched)
        assert fewer.claim.status.allocation == found, "what surrounds an entry keeps its bytes"
        back = {"allocation": None, "reservedFor": None}
        freed = await answer_to(running, claims.patch("c", back), ClaimPatched)
        assert freed.claim.status.allocation is None
        assert "allocation" not in claims.now("c").get("status", {})


async def test_reservations_of_others_stay(claims: Claims, tmp_path: Path) -> None:
    claims.make("c")
    async with edge(claims, tmp_path, GET_AND_PATCH, BINDING) as running:

        async def reserved(**status: Any) -> list[str]:
            answer = await answer_to(running, claims.patch("c", status), ClaimPatched)
            return sorted(one.name for one in answer.claim.status.reserved_for or ())

        assert await reserved(allocation=allocation(), reservedFor=pods("a")) == ["a"]
        theirs = {"status": {"reservedFor": pods("a", "theirs")}}
        claims.plane.request("PATCH", f"{PATH}/c/status", theirs, content_type=MERGE)
        assert await reserved(reservedFor=pods("a", "theirs", "b")) == ["a", "b", "theirs"]
        assert await reserved(reservedFor=pods("theirs")) == ["theirs"]
        refused = await answer_to(running, claims.patch("c", {"allocation": None}), ClaimRefused)
        assert "may not be specified when `allocated` is not set" in refused.message


# As the API server stores them, and whether it takes a merge patch of what is beside them.
STORED = [('{"z":1,"a":[1.5,"é"]}', True), ('{"z": 1}', False), ('{"a":"<&>"}', False)]


@pytest.mark.parametrize(("parameters", "is_taken"), STORED)
async def test_parameters_of_any_form_keep_no_claim_from_being_bumped(
    claims: Claims, tmp_path: Path, parameters: str, is_taken: bool
) -> None:
    config = [{"opaque": {"driver": "d.example.com", "parameters": "@"}}]
    spec = {"devices": {**DEVICES, "config": config}}
    made = claims.make_raw({"metadata": {"name": "c"}, "spec": spec}, parameters)
    async with edge(claims, tmp_path, GET_AND_PATCH, BINDING) as running:
        for _ in range(2):
            bumped = await answer_to(running, BumpClaim(made["uid"], "default", "c", "c"), ClaimBumped)
            assert bumped.claim.metadata.resource_version != made["resourceVersion"]
            made = claims.now("c")["metadata"]
            assert bumped.claim.metadata.resource_version == made["resourceVersion"]
        metadata = {"finalizers": [FINALIZER]}
        answer = ClaimPatched if is_taken else ClaimRefused
        found = await answer_to(running, claims.patch("c", metadata=metadata), answer)
        assert is_taken or "field is immutable" in found.message
        status = {"allocation": allocation(), "reservedFor": pods("a")}
        assert await answer_to(running, claims.patch("c", status), ClaimPatched), "of the status at any rate"
        bumped = await answer_to(running, BumpClaim(made["uid"], "default", "c", "c"), ClaimBumped)
        assert bumped.claim.status.allocation is not None, "a bump takes nothing away"
        assert bumped.claim.status.reserved_for is not None


async def test_a_stale_version_is_unclear_and_another_uid_is_refused(claims: Claims, tmp_path: Path) -> None:
    claims.make("c")
    async with edge(claims, tmp_path, GET_AND_PATCH, BINDING) as running:
        status = {"allocation": allocation(), "reservedFor": pods("a")}
        stale = claims.patch("c", status)
        claims.plane.request("PATCH", f"{PATH}/c", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
        unclear = await answer_to(running, stale, ClaimUnclear)
        assert not unclear.refused
        assert "the object has been modified" in unclear.message

        claims.plane.request("DELETE", f"{PATH}/c")
        gone = await answer_to(running, stale, ClaimRefused)
        assert (gone.code, gone.reason) == (404, "NotFound")
        version = claims.make("c")["metadata"]["resourceVersion"]
        assert await answer_to(running, stale, ClaimUnclear)
        other = await answer_to(running, replace(stale, resource_version=version), ClaimRefused)
        assert other.code == 422
        assert "metadata.uid" in other.message
        read = await answer_to(running, GetClaim(stale.uid, "default", "c", "c"), ClaimRead)
        assert read == ClaimRead(stale.uid, None)
        bump = BumpClaim(stale.uid, "default", "c", "c")
        assert await answer_to(running, bump, ClaimBumped) == ClaimBumped(stale.uid, None)
        assert "status" not in claims.now("c") or not claims.now("c")["status"]


async def test_a_patch_that_changes_nothing_is_unclear(claims: Claims, tmp_path: Path) -> None:
    claims.make("c")
    async with edge(claims, tmp_path, GET_AND_PATCH, BINDING) as running:
        patch = claims.patch("c", {"allocation": None, "reservedFor": None})
        unclear = await answer_to(running, patch, ClaimUnclear)
        assert unclear.message == "answered with the claim as it was"


@pytest.mark.since(36)
async def test_a_missing_right_is_named(claims: Claims, tmp_path: Path) -> None:
    """Allocating needs patch on resourceclaims/binding, in the whole cluster; a bump does not."""
    made = claims.make("c")
    status = {"allocation": allocation(), "reservedFor": pods("a")}
    update = {**BINDING, "verbs": ["update"]}
    async with edge(claims, tmp_path, GET_AND_PATCH, update) as running:
        refused = await answer_to(running, claims.patch("c", status), ClaimRefused)
        assert refused.code == 422
        assert 'cannot patch resource "resourceclaims/binding"' in refused.message
        assert "at the cluster scope" in refused.message
        assert await answer_to(running, BumpClaim(made["metadata"]["uid"], "default", "c", "c"), ClaimBumped)
        metadata = {"finalizers": [FINALIZER]}
        assert await answer_to(running, claims.patch("c", metadata=metadata), ClaimPatched)


async def test_what_may_not_be_patched_is_refused_and_named(claims: Claims, tmp_path: Path) -> None:
    claims.make("c")
    async with edge(claims, tmp_path, {**GET_AND_PATCH, "resources": ["resourceclaims"]}, BINDING) as running:
        status = {"allocation": allocation(), "reservedFor": pods("a")}
        refused = await answer_to(running, claims.patch("c", status), ClaimRefused)
        assert (refused.code, refused.reason) == (403, "Forbidden")
        assert 'cannot patch resource "resourceclaims/status"' in refused.message


async def test_what_the_server_refuses_of_an_allocation(claims: Claims, tmp_path: Path) -> None:
    claims.make("c", finalizers=[FINALIZER])
    async with edge(claims, tmp_path, GET_AND_PATCH, BINDING) as running:

        async def refusal(**status: Any) -> str:
            answer = await answer_to(running, claims.patch("c", status), ClaimRefused)
            assert answer.code == 422
            return str(answer.message)

        many = pods(*(f"p{i}" for i in range(MAX_RESERVED_FOR + 1)))
        assert "Too many: 257" in await refusal(allocation=allocation(), reservedFor=many)
        assert await answer_to(running, claims.patch("c", {"allocation": allocation()}), ClaimPatched)
        other = allocation("gpu-1")
        assert "field cannot be modified once set" in await refusal(allocation=other)
        claims.plane.request("DELETE", f"{PATH}/c")
        assert "new entries may not be added" in await refusal(reservedFor=pods("a"))


async def test_an_object_whose_annotations_are_full_is_bumped_all_the_same(
    claims: Claims, tmp_path: Path
) -> None:
    """A pod or a claim that is listed in the fence would keep every new leader from leading."""
    full = {"annotations": {"a": "x" * (256 * 1024 - 1)}}
    made = claims.make("c", **full)["metadata"]
    pod = make_pod(claims.plane, "p")["metadata"]
    claims.plane.request("PATCH", "/api/v1/namespaces/default/pods/p", {"metadata": full}, content_type=MERGE)
    async with edge(claims, tmp_path, GET_AND_PATCH) as running:
        bumped = await answer_to(running, BumpClaim(made["uid"], "default", "c", "c"), ClaimBumped)
        assert int(bumped.claim.metadata.resource_version) > int(made["resourceVersion"])
        answer = await answer_to(running, BumpPod(pod["uid"], "default", "p", "c"), PodBumped)
        assert answer.pod.metadata.labels.keys() == {"gangsched.io/fenced"}


async def test_claims_slices_and_rules_are_followed(claims: Claims, tmp_path: Path) -> None:
    """With list and watch alone; a new leader's watch of claims catches up with what was written last."""
    claims.make("c")
    said: list[Event] = []

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    kinds = [SLICES, CLAIMS, TAINT_RULES, DEVICE_CLASSES]
    async with edge(claims, tmp_path, GET_AND_PATCH, BINDING, READ) as running:
        client = running.dispatcher.bumps._client
        reflectors = {kind: Reflector(client, followed(kind), emit, rng=Random(1)) for kind in kinds}
        async with anyio.create_task_group() as group:
            for reflector in reflectors.values():
                group.start_soon(reflector.run)
            await until(lambda: {event.kind for event in said if isinstance(event, KindSynced)} == {*kinds})
            status = {"allocation": allocation(), "reservedFor": pods("a")}
            patched = await answer_to(running, claims.patch("c", status), ClaimPatched)
            catch_up = CatchUp(reflectors[CLAIMS].state)
            await catch_up.ask(client)
            await until(lambda: not catch_up.n_missing())
            known = reflectors[CLAIMS].state.known["default/c"]
            assert known.metadata.resource_version == patched.claim.metadata.resource_version
            group.cancel_scope.cancel()

"""Bumps: what each answer of the API server means, and that nothing uncertain ends one."""

from __future__ import annotations

import re
from random import Random
from typing import Any, cast

import msgspec
import pytest

from gangsched.errors import ApiError, Subject
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.bumps import Bumps
from gangsched.model.effects import BumpClaim, BumpPod
from gangsched.model.events import Event
from gangsched.model.objects import Pod
from gangsched.model.resource_claims.objects import ResourceClaim

BUMP = BumpPod("u1", "ns", "p", "c")
BUMP_CLAIM = BumpClaim("u1", "ns", "p", "c")
CLAIM_PATH = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/p"
GONE = ApiError("not found", code=404, reason="NotFound", subject=Subject("pods", "p"))
OTHER_GONE = ApiError("not found", code=404, reason="NotFound", subject=Subject("pods", "q"))
PAGE = ApiError("page not found", code=404)
CONFLICT = ApiError("modified", code=409, reason="Conflict", subject=Subject("pods", "p"))
IMMUTABLE = ApiError("uid is immutable", code=422, reason="Invalid", subject=Subject("Pod", "p"))
SILENCE = ApiError("no answer in time")


def pod(uid: str = "u1", *, node: str = "", name: str = "p", is_deep: bool = False) -> bytes:
    """is_deep: with managedFields as any user can shape them."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "9"}
    if is_deep:
        metadata["managedFields"] = msgspec.Raw(b'{"a":' * 3_000 + b"1" + b"}" * 3_000)
    return msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": node, "containers": []}})


class Server:
    """Answers in their order; what was asked."""

    def __init__(self, *answers: bytes | ApiError) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []
        self.marks: list[str] = []

    def another(self) -> Server:
        return self

    def _answer(self, what: str) -> bytes:
        self.asked.append(what)
        answer = self._answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def patch(self, path: str, body: bytes, *, content_type: str) -> bytes:
        sent: dict[str, Any] = msgspec.json.decode(body)
        assert sent["metadata"]["uid"] == "u1"
        path, _, manager = path.partition("?fieldManager=gangsched-")
        if manager:
            assert (path, content_type) == (f"{CLAIM_PATH}/status", "application/apply-patch+yaml")
            assert (sent["kind"], sent["status"]) == ("ResourceClaim", {})
            self.marks.append(manager)
            return self._answer("apply")
        assert content_type == "application/merge-patch+json"
        assert path in ("/api/v1/namespaces/ns/pods/p/status", CLAIM_PATH)
        [place] = [place for place in ("annotations", "labels") if place in sent["metadata"]]
        self.marks += sent["metadata"][place].values()
        return self._answer("PATCH" if place == "annotations" else "PATCH a label")

    async def get(self, path: str) -> bytes:
        assert path in ("/api/v1/namespaces/ns/pods/p", CLAIM_PATH)
        return self._answer("GET")


async def bumped(*answers: bytes | ApiError) -> tuple[str, Server]:
    """What came of it: free, gone, or a node."""
    server, events = Server(*answers), list[Event]()
    bumps = Bumps(cast(ApiClient, server), emit_nowait=events.append, rng=Random(1))
    found = await bumps.bump(BUMP)
    assert not server._answers
    assert found is None or isinstance(found, Pod)
    return ("gone" if found is None else found.spec.node_name or "free"), server


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ((pod(),), "free"),
        ((pod(node="n1"),), "n1"),
        ((GONE,), "gone"),
        ((IMMUTABLE, pod("another")), "gone"),
        ((CONFLICT, GONE), "gone"),
        ((CONFLICT, pod(node="n1")), "n1"),
        ((CONFLICT, pod(), pod()), "free"),
        ((SILENCE, pod()), "free"),
        ((PAGE, pod()), "free"),
        ((OTHER_GONE, pod()), "free"),
        ((pod(name="q"), pod()), "free"),
        ((b"<html>", pod()), "free"),
        ((pod(is_deep=True),), "free"),
        ((CONFLICT, pod(node="n1", is_deep=True)), "n1"),
    ],
)
async def test_what_an_answer_means(answers: tuple[bytes | ApiError, ...], outcome: str) -> None:
    said, _ = await bumped(*answers)
    assert said == outcome


async def test_each_try_writes_what_nobody_has_written() -> None:
    """A patch that changes nothing does not change the version: the same mark twice would be none."""
    _, server = await bumped(SILENCE, PAGE, pod())
    assert server.asked == ["PATCH"] * 3
    assert len(set(server.marks)) == 3
    assert all(re.fullmatch(r"[0-9a-f]{16}", mark) for mark in server.marks)


async def test_an_object_whose_annotations_are_full_gets_a_label() -> None:
    """Whoever may write a pod that is next in line could keep every later leader from leading."""
    full = ApiError("metadata.annotations: Too long", code=422, reason="Invalid", subject=Subject("Pod", "p"))
    said, server = await bumped(full, pod(), CONFLICT, pod(), full, pod(), pod())
    assert said == "free"
    assert server.asked == ["PATCH", "GET", "PATCH a label", "GET", "PATCH", "GET", "PATCH a label"]


def of_claim(code: int, reason: str, *, kind: str = "resourceclaims", name: str = "p") -> ApiError:
    return ApiError(reason, code=code, reason=reason, subject=Subject(kind, name, "resource.k8s.io"))


def claim(uid: str = "u1", *, name: str = "p", **more: Any) -> bytes:
    metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "9"}
    return msgspec.json.encode({"metadata": metadata, "spec": {"devices": {}}} | more)


ALLOCATED: dict[str, Any] = {"status": {"allocation": {"devices": {"results": []}}}}


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ((claim(),), "free"),
        ((claim(**ALLOCATED),), "allocated"),
        ((of_claim(404, "NotFound"),), "gone"),
        ((GONE, claim()), "free"),
        ((of_claim(404, "NotFound", name="q"), claim()), "free"),
        ((of_claim(422, "Invalid", kind="ResourceClaim"), claim("another")), "gone"),
        ((of_claim(409, "Conflict"), of_claim(404, "NotFound")), "gone"),
        ((of_claim(409, "Conflict"), claim(**ALLOCATED), claim()), "free"),
        ((SILENCE, claim()), "free"),
        ((PAGE, claim()), "free"),
        ((of_claim(403, "Forbidden"), claim()), "free"),
        ((claim(name="q"), claim()), "free"),
        ((claim(""), claim()), "free"),
        ((b"<html>", claim()), "free"),
        ((b"{}", claim()), "free"),
        ((claim(**{**ALLOCATED, "spec": 5}),), "allocated"),
    ],
)
async def test_what_an_answer_about_a_claim_means(
    answers: tuple[bytes | ApiError, ...], outcome: str
) -> None:
    server, events = Server(*answers), list[Event]()
    bumps = Bumps(cast(ApiClient, server), emit_nowait=events.append, rng=Random(1))
    found = await bumps.bump(BUMP_CLAIM)
    assert not server._answers
    assert found is None or isinstance(found, ResourceClaim)
    said = "gone" if found is None else "allocated" if found.status.allocation is not None else "free"
    assert said == outcome


async def test_a_claim_that_takes_no_patch_is_bumped_by_its_status() -> None:
    """Its parameters are stored with blanks, as a client in Python writes them, and may not change."""
    immutable = of_claim(422, "Invalid", kind="ResourceClaim")
    server = Server(immutable, claim(), immutable, claim(), claim())
    bumps = Bumps(cast(ApiClient, server), emit_nowait=lambda event: None, rng=Random(1))
    assert await bumps.bump(BUMP_CLAIM) is not None
    assert server.asked == ["PATCH", "GET", "apply", "GET", "apply"]
    assert len(set(server.marks)) == 3

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
from gangsched.model.effects import BumpPod
from gangsched.model.events import Event

BUMP = BumpPod("u1", "ns", "p", "c")
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

    async def patch(self, path: str, body: bytes) -> bytes:
        sent: dict[str, Any] = msgspec.json.decode(body)
        assert path == "/api/v1/namespaces/ns/pods/p/status"
        assert sent["metadata"]["uid"] == "u1"
        self.marks += sent["metadata"]["annotations"].values()
        return self._answer("PATCH")

    async def get(self, path: str) -> bytes:
        return self._answer("GET")


async def bumped(*answers: bytes | ApiError) -> tuple[str, Server]:
    """What came of it: free, gone, or a node."""
    server, events = Server(*answers), list[Event]()
    bumps = Bumps(cast(ApiClient, server), emit_nowait=events.append, rng=Random(1))
    found = await bumps.bump(BUMP)
    assert not server._answers
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

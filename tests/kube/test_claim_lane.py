"""Patches of ResourceClaims: their requests, and every row of the table that they share with binds."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import pytest

from gangsched.kube.effects.claim_lane import ClaimLane
from gangsched.kube.transport.readers import Readers
from gangsched.model.effects import PatchClaim
from gangsched.model.events import ClaimCancelled, ClaimPatched, ClaimRefused, ClaimUnclear, Event
from tests.kube.scripted import CUT, SILENCE, SUCCESS, Request, ScriptedServer, credentials, page, status
from tests.support.tasks import until

GROUP = "resource.k8s.io"
PATH = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
RESERVED = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "pu"}]}}


def patch(n: int = 0, *, cause: str = "c", body: Any = RESERVED, is_status: bool = True) -> PatchClaim:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return PatchClaim(f"u{n}", "ns", f"c{n}", "7", text, is_status, "ns/g", 3, cause)


def claim(n: int = 0, *, version: str = "8", **changed: Any) -> bytes:
    """A claim as the server answers it; `changed`: of its metadata, or of the whole."""
    meta = {"name": f"c{n}", "namespace": "ns", "uid": f"u{n}", "resourceVersion": version}
    whole = {"kind": "ResourceClaim", "apiVersion": f"{GROUP}/v1", "metadata": meta, "spec": {}}
    for name, value in changed.items():
        (whole if name in ("kind", "spec", "status") else meta)[name] = value
    return json.dumps(whole).encode()


def about(code: int, n: int = 0, *, kind: str = "resourceclaims", group: str = GROUP, **more: str) -> bytes:
    return status(code, about=f"c{n}", kind=kind, group=group, **more)


def obliging(request: Request) -> bytes:
    found = re.search(r"/c(\d+)", request.line)
    assert found is not None
    return page(200, claim(int(found[1])))


class Running:
    """A lane that runs, and what it has said."""

    def __init__(self, port: int, tokens: tuple[str, ...], *, size: int, timeout_s: float) -> None:
        self.events: list[Event] = []
        self.account = credentials(port, *tokens)
        self.lane = ClaimLane(
            self.account,
            emit_nowait=self.events.append,
            rng=Random(1),
            readers=Readers(),
            size=size,
            timeout_s=timeout_s,
            backoff_s=(0.01, 0.05),
        )

    async def said(self, n: int = 1) -> list[Event]:
        await until(lambda: len(self.events) >= n)
        await anyio.sleep(0.02)  # a second answer to the same patch would show up now
        assert len(self.events) == n
        return self.events


@asynccontextmanager
async def running(port: int, *tokens: str, size: int = 1, timeout_s: float = 10.0) -> AsyncIterator[Running]:
    lane = Running(port, tokens, size=size, timeout_s=timeout_s)
    async with anyio.create_task_group() as group:
        group.start_soon(lane.lane.run)
        yield lane
        group.cancel_scope.cancel()


async def sent(effect: PatchClaim, answer: Any = obliging) -> tuple[Request, Event]:
    """The one request, and what came of it."""
    async with ScriptedServer(default=answer) as server, running(server.port) as lane:
        lane.lane.submit(effect)
        [event] = await lane.said()
        [request] = server.requests
        return request, event


def written(request: Request) -> dict[str, Any]:
    """By field: what a JSON patch writes into the status."""
    steps = [one for one in request.json if one["op"] == "add"]
    return {one["path"].removeprefix("/status/"): one["value"] for one in steps}


async def test_a_status_is_patched_for_this_version_of_this_claim_only() -> None:
    request, event = await sent(patch())
    assert request.line == f"PATCH {PATH}/c0/status"
    assert request.headers["content-type"] == "application/json-patch+json"
    assert request.json == [
        {"op": "replace", "path": "/metadata/uid", "value": "u0"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/status/reservedFor", "value": RESERVED["status"]["reservedFor"]},
    ]
    assert isinstance(event, ClaimPatched)
    assert (event.uid, event.ticket, event.claim.metadata.resource_version) == ("u0", 3, "8")


async def test_a_finalizer_goes_to_the_claim_itself() -> None:
    metadata = {"finalizers": ["resource.kubernetes.io/delete-protection"], "annotations": {"a": "b"}}
    request, _ = await sent(patch(body={"metadata": metadata}, is_status=False))
    assert request.line == f"PATCH {PATH}/c0"
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert request.json == {"metadata": {**metadata, "uid": "u0", "resourceVersion": "7"}}


async def test_an_allocation_gets_the_time_of_sending_and_stays_as_it_is() -> None:
    parameters = b'{"z": 1.50, "a":{"deep":[[[{"b":1e400}]]],"none":null}}'
    body = b'{"status":{"allocation":{"devices":{"config":[{"opaque":{"parameters":%s}}]}}}}' % parameters
    request, _ = await sent(patch(body=body))
    assert parameters in request.body
    time = written(request)["allocation"]["allocationTimestamp"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", time)


async def test_an_allocation_with_a_time_keeps_it_and_none_gets_none() -> None:
    was = "2026-01-01T00:00:00Z"
    request, _ = await sent(patch(body={"status": {"allocation": {"allocationTimestamp": was}}}))
    assert written(request)["allocation"] == {"allocationTimestamp": was}
    request, _ = await sent(patch(body={"status": {"allocation": None, "reservedFor": None}}))
    assert written(request) == {"allocation": None, "reservedFor": None}


@pytest.mark.parametrize(
    ("code", "kind"),
    [(403, "resourceclaims"), (404, "resourceclaims"), (413, "resourceclaims"), (422, "ResourceClaim")],
)
async def test_a_refusal_for_good_that_names_the_claim_fails(code: int, kind: str) -> None:
    _, event = await sent(patch(), about(code, kind=kind, reason="Why", message="because"))
    assert event == ClaimRefused("u0", 3, code, "Why", "because")


@pytest.mark.parametrize("code", [400, 403, 404, 422])
async def test_a_refusal_that_names_no_claim_is_unclear_and_reported_as_a_refusal(code: int) -> None:
    _, event = await sent(patch(), status(code, message="denied by a webhook"))
    assert isinstance(event, ClaimUnclear)
    assert event.refused
    assert "denied by a webhook" in event.message


@pytest.mark.parametrize(
    "strange",
    [
        page(404),
        page(404, b"404 page not found\n"),
        page(403),
        page(200),
        page(200, b"{}"),
        page(200, SUCCESS),
        page(200, claim(1)),
        page(200, claim(uid="another")),
        page(200, claim(uid="")),
        page(200, claim(kind="Pod")),
        page(200, b"[" * 5000),
        page(200, b"\xff\xfe"),
        about(404, 1),
        about(404, kind="pods"),
        about(404, group="example.com"),
        about(403, kind="Pod"),
    ],
)
async def test_what_is_not_the_servers_word_about_this_claim_is_unclear(strange: bytes) -> None:
    async with ScriptedServer(default=obliging, script=[strange]) as server, running(server.port) as lane:
        lane.lane.submit(patch(0))
        lane.lane.submit(patch(1))
        first, second = await lane.said(2)
        assert isinstance(first, ClaimUnclear)
        assert (first.uid, first.refused) == ("u0", False)
        assert isinstance(second, ClaimPatched)
        assert lane.account.answers.doubtful == {"PATCH": 1}


@pytest.mark.parametrize("version", ["7", ""])
async def test_an_answer_with_the_claim_as_it_was_is_unclear(version: str) -> None:
    """The API server found nothing to change, or a front end has dropped the patch and answers 200."""
    _, event = await sent(patch(), page(200, claim(version=version)))
    assert event == ClaimUnclear("u0", 3, "answered with the claim as it was")


@pytest.mark.parametrize(
    "answer",
    [
        about(409),
        about(409, reason="Conflict"),
        *map(status, (500, 502, 503, 504)),
        CUT,
        SILENCE,
        page(200, claim())[:30],
        b"SSH-2.0-Dropbear\r\n\r\n",
    ],
)
async def test_what_is_not_certain_is_unclear_and_never_sent_twice(answer: bytes) -> None:
    async with (
        ScriptedServer(default=obliging, script=[answer]) as server,
        running(server.port, timeout_s=0.1) as lane,
    ):
        lane.lane.submit(patch())
        [event] = await lane.said()
        assert isinstance(event, ClaimUnclear)
        assert not event.refused
        assert len(server.requests) == 1


async def test_throttling_and_new_credentials_are_no_answer() -> None:
    script = [status(429, headers="Retry-After: 0\r\n"), status(401)]
    async with (
        ScriptedServer(default=obliging, script=script) as server,
        running(server.port, "t1", "t2") as lane,
    ):
        lane.lane.submit(patch())
        [event] = await lane.said()
        assert isinstance(event, ClaimPatched)
        assert [one.headers["authorization"] for one in server.requests] == [
            "Bearer t1",
            "Bearer t1",
            "Bearer t2",
        ]


async def test_without_a_connection_nothing_is_lost() -> None:
    async with ScriptedServer() as server:
        port = server.port
    async with running(port) as lane:
        lane.lane.submit(patch())
        await anyio.sleep(0.05)
        async with ScriptedServer(default=obliging, port=port):
            [event] = await lane.said()
        assert isinstance(event, ClaimPatched)


async def test_what_is_withdrawn_before_it_is_sent_is_cancelled_by_its_cause() -> None:
    async with ScriptedServer(script=[SILENCE]) as server, running(server.port, timeout_s=0.3) as lane:
        lane.lane.submit(patch(8))
        lane.lane.submit(patch(9))
        await until(lambda: len(server.requests) == 1)
        for n, cause in ((1, "a"), (2, "b"), (3, "a")):
            lane.lane.submit(patch(n, cause=cause))
        lane.lane.cancel("a")
        assert lane.events == [ClaimCancelled("u1", 3), ClaimCancelled("u3", 3)]
        lane.lane.cancel_all()
        assert lane.events[2:] == [ClaimCancelled("u2", 3)]


async def test_what_is_withdrawn_after_a_429_is_unclear() -> None:
    busy = status(429, headers="Retry-After: 1\r\n")
    async with ScriptedServer(default=busy) as server, running(server.port) as lane:
        lane.lane.submit(patch())
        await until(lambda: lane.lane.n_throttled == 1)
        lane.lane.cancel("c")
        assert lane.events == [ClaimUnclear("u0", 3, "taken back after it was sent")]


async def test_a_claim_that_does_not_parse_is_read_in_part() -> None:
    allocation = {"devices": {"results": [{"driver": "d", "pool": "p", "device": "gpu-0", "request": 5}]}}
    answer = page(200, claim(status={"allocation": allocation}))
    _, event = await sent(patch(), answer)
    assert isinstance(event, ClaimPatched)
    assert event.claim.unreadable == "status.allocation.devices.results"
    found = event.claim.status.allocation
    assert found is not None
    assert [str(one.id) for one in found.devices.results] == ["d/p/gpu-0"]

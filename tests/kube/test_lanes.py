"""What all slow lanes share, seen on statuses: trouble, silence, credentials, the last word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import anyio
import pytest
from structlog.testing import capture_logs

from gangsched.kube.effects.write_lanes import STATUS_TRIES, StatusLane
from gangsched.kube.transport.backoff import Backoff
from gangsched.kube.transport.http1 import Answer, whole_success
from gangsched.kube.transport.readers import Readers
from gangsched.model.effects import WritePodCondition
from tests.kube.scripted import (
    CUT,
    SILENCE,
    Last,
    Request,
    ScriptedServer,
    created,
    credentials,
    page,
    status,
)
from tests.support.tasks import until

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{ }\r\n0\r\n\r\n"


def chunked(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def written(name: str) -> bytes:
    """What the API server answers to a status write with: the pod."""
    return b'{"kind":"Pod","metadata":{"name":"%b","namespace":"ns","uid":"u"}}' % name.encode()


class Quiet:
    is_busy = False


@asynccontextmanager
async def running(
    port: int, *tokens: str, timeout_s: float = 20.0, size: int = 1
) -> AsyncIterator[StatusLane]:
    lane = StatusLane(
        credentials(port, *tokens),
        lambda event: None,
        rng=Random(1),
        readers=Readers(),
        binds=Quiet(),
        size=size,
        limit=100,
        timeout_s=timeout_s,
    )
    lane._backoff = Backoff(Random(1), first_s=0.01, max_s=0.05)
    async with anyio.create_task_group() as group:
        group.start_soon(lane.run)
        yield lane
        group.cancel_scope.cancel()


def word(message: str, *, name: str = "p") -> WritePodCondition:
    return WritePodCondition(f"u-{name}", "ns", name, "PodScheduled", "False", "Unschedulable", message, "c")


def said(request: Request) -> str:
    return str(request.json["status"]["conditions"][0]["message"])


STRANGE = [
    page(404, b"404 page not found\n"),
    page(409, b""),
    page(403),
    page(302, b""),
    page(200),
    created(),
    created(written("q")),
    status(404, about="q"),
    status(409, about="p", kind="nodes"),
]


@pytest.mark.parametrize("trouble", [status(429), status(503), CUT, b"SSH-2.0\r\n\r\n", SILENCE, *STRANGE])
async def test_what_may_pass_is_tried_again(trouble: bytes) -> None:
    timeout_s = 0.1 if trouble == SILENCE else 20.0
    async with ScriptedServer(script=[trouble]) as server, running(server.port, timeout_s=timeout_s) as lane:
        lane.submit(word("x"))
        await until(lambda: not lane.n_waiting)
        assert [said(request) for request in server.requests] == ["x", "x"]
        assert lane.n_dropped == 0


async def test_trouble_without_end_is_given_up_and_counted() -> None:
    async with ScriptedServer(default=status(500)) as server, running(server.port) as lane:
        lane.submit(word("x"))
        await until(lambda: not lane.n_waiting)
        assert len(server.requests) == STATUS_TRIES
        assert lane.n_dropped == 1


async def test_a_later_word_takes_the_place_of_one_that_was_thrown_back() -> None:
    async with ScriptedServer() as server, running(server.port) as lane:

        def throttle(_: Request) -> bytes:
            lane.submit(word("two"))
            return status(429)

        server.script.append(throttle)
        lane.submit(word("one"))
        await until(lambda: not lane.n_waiting)
        assert [said(request) for request in server.requests] == ["one", "two"]


async def test_a_later_word_never_overtakes_one_that_is_on_its_way() -> None:
    async with ScriptedServer() as server, running(server.port, size=2, timeout_s=1.0) as lane:

        def hang(_: Request) -> bytes:
            for later in ("two", "three"):
                lane.submit(word(later))
            lane.submit(word("of another", name="q"))
            return SILENCE

        server.script.append(hang)
        lane.submit(word("one"))
        await until(lambda: len(server.requests) == 2)
        assert lane.n_waiting == 2  # the one that is silent, and the last word
        await until(lambda: not lane.n_waiting)
        assert [said(request) for request in server.requests] == ["one", "of another", "three"]


async def test_nothing_is_lost_while_there_is_no_server() -> None:
    async with ScriptedServer() as server:
        pass
    with capture_logs() as logs:
        async with running(server.port, size=2) as lane:
            for n in range(10):
                lane.submit(word("x", name=f"p{n}"))
            await until(lambda: logs)
            async with ScriptedServer(port=server.port) as server:
                await until(lambda: not lane.n_waiting)
                assert len(server.requests) == 10
            assert lane.n_dropped == 0
    said = [line["event"] for line in logs]
    address = f"http://127.0.0.1:{server.port}"
    assert said == [f"cannot reach {address}: connection refused; trying again", f"{address} answers again"]


async def test_401_renews_the_token_and_counts_as_no_try() -> None:
    script = [status(401), *[status(503)] * (STATUS_TRIES - 1)]
    async with ScriptedServer(script=script) as server, running(server.port, "old", "new") as lane:
        lane.submit(word("x"))
        await until(lambda: not lane.n_waiting)
        sent = [request.headers["authorization"] for request in server.requests]
        assert sent == ["Bearer old", *["Bearer new"] * STATUS_TRIES]
        assert lane.n_dropped == 0


async def test_answers_of_any_form_are_taken_off_the_wire_whole() -> None:
    closing = page(200, written("p2"), "Connection: close\r\n")
    script = [chunked(written("p0")), created(written("p1")), closing]
    async with ScriptedServer(script=script) as server, running(server.port) as lane:
        for n in range(4):
            lane.submit(word("x", name=f"p{n}"))
        await until(lambda: not lane.n_waiting)
        assert len(server.requests) == 4
        assert server.n_connections == 2  # only what the server closed is not used again


async def test_an_answer_that_ends_with_its_connection_is_an_answer() -> None:
    script = [Last(b"HTTP/1.0 500 Trouble\r\n\r\ntrouble"), Last(b"HTTP/1.1 200 OK\r\n\r\n" + written("q"))]
    async with ScriptedServer(script=script) as server, running(server.port) as lane:
        lane.submit(word("x"))
        lane.submit(word("x", name="q"))
        await until(lambda: not lane.n_waiting)
        assert len(server.requests) == 3
        assert lane._credentials.answers.by_code_and_method() == {
            ("500", "PATCH"): 1,
            ("200", "PATCH"): 1,
            ("201", "PATCH"): 1,
        }


def test_a_trailer_belongs_to_its_answer() -> None:
    answer = Answer()
    answer.feed(CHUNKED.replace(b"\r\n0\r\n", b"\r\n0\r\nX-Sum: 7\r\n") + b"HTTP/1.1")
    assert (answer.whole, answer.rest) == (True, b"HTTP/1.1")


HEAD = b"HTTP/1.1 201 Created\r\nAudit-Id: 7\r\ncontent-length:  4 \r\nDate: today\r\n\r\n"


def test_a_whole_success_is_seen_at_one_look() -> None:
    assert whole_success(HEAD + b"body") == (201, b"body", b"")
    assert whole_success(HEAD + b"bodyHTTP") == (201, b"body", b"HTTP")


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"bod",
        HEAD[:-2],
        HEAD.replace(b"201", b"409") + b"body",
        HEAD.replace(b"1.1", b"1.0") + b"body",
        HEAD.replace(b"4", b"-4") + b"body",
        HEAD.replace(b"Audit-Id: 7", b"Connection: close") + b"body",
        HEAD.replace(b"Audit-Id: 7", b"Transfer-Encoding: chunked") + b"body",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        CHUNKED,
    ],
)
def test_any_other_answer_is_left_to_the_piecewise_reader(data: bytes) -> None:
    assert whole_success(data) is None

"""Every row of the binding lane's table, against a server that answers as it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import anyio
import pytest
from structlog.testing import capture_logs

from gangsched.kube.access.credentials import Credentials
from gangsched.kube.effects.binding_lane import BindingLane
from gangsched.kube.transport.http1 import Answer, ProtocolError
from gangsched.kube.transport.readers import Readers
from gangsched.model.effects import BindPod
from gangsched.model.events import BindCancelled, BindFailed, BindSucceeded, BindUnknown, Event
from tests.kube.scripted import CUT, SILENCE, SUCCESS, ScriptedServer, created, credentials, page, status
from tests.support.tasks import until


def bind(n: int = 0, *, cause: str = "c", name: str = "") -> BindPod:
    annotations = {"gangsched.io/rank": str(n)}
    return BindPod(f"u{n}", "ns", name or f"p{n}", "node-1", annotations, "ns/g", 3, cause)


class Running:
    """A lane that runs, and what it has said."""

    def __init__(self, account: Credentials, *, size: int, timeout_s: float) -> None:
        self.account = account
        self.events: list[Event] = []
        self.may_send = True
        self.lane = BindingLane(
            account,
            emit_nowait=self.events.append,
            rng=Random(1),
            readers=Readers(),
            size=size,
            timeout_s=timeout_s,
            backoff_s=(0.01, 0.05),
            may_send=lambda: self.may_send,
        )

    async def said(self, n: int = 1) -> list[Event]:
        await until(lambda: len(self.events) >= n)
        await anyio.sleep(0.02)  # a second answer to the same bind would show up now
        return self.events


@asynccontextmanager
async def running(port: int, *tokens: str, size: int = 1, timeout_s: float = 10.0) -> AsyncIterator[Running]:
    lane = Running(credentials(port, *tokens), size=size, timeout_s=timeout_s)
    async with anyio.create_task_group() as group:
        group.start_soon(lane.lane.run)
        yield lane
        group.cancel_scope.cancel()


async def test_request_is_a_binding_with_uid_and_annotations() -> None:
    async with ScriptedServer() as server, running(server.port, "t1") as lane:
        lane.lane.submit(bind(1))
        assert await lane.said() == [BindSucceeded("u1", 3)]
        [request] = server.requests
        assert request.line == "POST /api/v1/namespaces/ns/pods/p1/binding"
        assert request.headers["authorization"] == "Bearer t1"
        assert request.headers["host"] == f"127.0.0.1:{server.port}"
        assert request.json == {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": "p1",
                "namespace": "ns",
                "uid": "u1",
                "annotations": {"gangsched.io/rank": "1"},
            },
            "target": {"kind": "Node", "name": "node-1"},
        }


async def test_nothing_is_sent_from_the_moment_it_may_not_be() -> None:
    async with ScriptedServer(script=[SILENCE]) as server, running(server.port, timeout_s=0.1) as lane:
        for n in range(3):
            lane.lane.submit(bind(n))
        await until(lambda: len(server.requests) == 1)
        lane.may_send = False
        # A connection is free again.
        assert [type(event) for event in await lane.said(2)] == [BindUnknown, BindUnknown]
        lane.lane.submit(bind(3))
        await anyio.sleep(0.05)
        assert len(server.requests) == 1
        lane.lane.cancel_all()
        assert lane.events[2:] == [BindCancelled("u2", 3), BindCancelled("u3", 3)]


async def test_strange_names_stay_one_segment_of_the_path() -> None:
    async with ScriptedServer() as server, running(server.port) as lane:
        lane.lane.submit(bind(1, name="a/b?c d\r\nX: y"))
        await lane.said()
        assert server.requests[0].line == (
            "POST /api/v1/namespaces/ns/pods/a%2Fb%3Fc%20d%0D%0AX%3A%20y/binding"
        )


@pytest.mark.parametrize(("code", "kind"), [(403, "pods"), (404, "pods"), (413, "pods"), (422, "Pod")])
async def test_a_refusal_for_good_that_names_the_pod_fails(code: int, kind: str) -> None:
    refusal = status(code, reason="Why", message="because", about="p0", kind=kind)
    async with ScriptedServer(script=[refusal]) as server, running(server.port) as lane:
        lane.lane.submit(bind())
        assert await lane.said() == [BindFailed("u0", 3, code, "Why", "because")]


@pytest.mark.parametrize("code", [400, 403, 404, 413, 422])
@pytest.mark.parametrize("reason", ["", "Why"])
async def test_a_refusal_that_names_no_pod_is_unknown_and_reported_as_a_refusal(
    code: int, reason: str
) -> None:
    refusal = status(code, reason=reason, message="denied by a webhook")
    async with ScriptedServer(script=[refusal]) as server, running(server.port) as lane:
        lane.lane.submit(bind())
        [event] = await lane.said()
        assert isinstance(event, BindUnknown)
        assert event.refused
        assert "denied by a webhook" in event.message


STRANGE = [
    page(404, b"404 page not found\n"),
    page(404),
    page(404, b""),
    page(404, SUCCESS),
    page(
        404, b'{"kind":"Status","apiVersion":"v1","reason":"NotFound","details":{"name":"p0","kind":"pods"}}'
    ),
    page(403),
    page(422, b"{}"),
    page(409),
    page(410, b"gone"),
    page(302, b"", "Location: /login\r\n"),
    page(200),
    page(200, b""),
    page(200, b"{}"),
    created(b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p0","namespace":"ns","uid":"u0"}}'),
    created(b"[" * 5000),
    created(b"\xff\xfe"),
    status(404, about="another"),
    status(404, about="p0", kind="nodes"),
    status(404, about="p0", group="example.com"),
    status(403, about="another"),
    page(404, status(403, about="p0").partition(b"\r\n\r\n")[2]),
]


@pytest.mark.parametrize("strange", STRANGE)
async def test_what_is_not_the_servers_word_about_this_pod_is_unknown(strange: bytes) -> None:
    async with ScriptedServer(script=[strange]) as server, running(server.port) as lane:
        with capture_logs() as logs:
            lane.lane.submit(bind(0))
            lane.lane.submit(bind(1))
            first, second = await lane.said(2)
        assert isinstance(first, BindUnknown)
        assert (first.uid, first.refused) == ("u0", False)
        assert second == BindSucceeded("u1", 3)
        assert lane.account.answers.doubtful == {"POST": 1}
        assert "did not come from the API server itself" in logs[0]["event"]
        assert "ns/p0" in logs[0]["err"]


async def test_nonsense_without_end_is_asked_slowly_and_reported_once() -> None:
    async with ScriptedServer(default=page(404)) as server, running(server.port) as lane:
        with capture_logs() as logs:
            for n in range(40):
                lane.lane.submit(bind(n))
            await until(lambda: lane.lane.n_in_flight == 0 and lane.lane._paused_until_s > 0.0)
            assert len(server.requests) < 10
            await lane.said(40)
        assert all(isinstance(event, BindUnknown) for event in lane.events)
        assert len([log for log in logs if "the API server itself" in log["event"]]) == 1


@pytest.mark.parametrize("answer", [status(409), status(500), status(502), status(503), status(504)])
async def test_what_is_not_certain_is_unknown_and_the_lane_goes_on(answer: bytes) -> None:
    async with ScriptedServer(script=[answer]) as server, running(server.port) as lane:
        lane.lane.submit(bind(0))
        lane.lane.submit(bind(1))
        first, second = await lane.said(2)
        assert isinstance(first, BindUnknown)
        assert first.uid == "u0"
        assert second == BindSucceeded("u1", 3)
        assert len(server.requests) == 2  # never sent twice by itself


async def test_with_its_connection_all_that_was_sent_on_it_becomes_unknown() -> None:
    async with ScriptedServer(script=[CUT]) as server, running(server.port) as lane:
        for n in range(4):
            lane.lane.submit(bind(n))
        first, second, *others = await lane.said(4)
        assert isinstance(first, BindUnknown)
        assert isinstance(second, BindUnknown)  # it may have been read and carried out
        assert (first.uid, second.uid) == ("u0", "u1")
        assert others == [BindSucceeded("u2", 3), BindSucceeded("u3", 3)]
        assert len(server.requests) == 3


async def test_truncated_answer_is_unknown() -> None:
    async with ScriptedServer(script=[created()[:25]]) as server, running(server.port, timeout_s=0.2) as lane:
        lane.lane.submit(bind())
        [event] = await lane.said()
        assert isinstance(event, BindUnknown)


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-Dropbear\r\n\r\n", created() + b"more", b"HTTP/1.1 200 OK\r\n\r\n"]
)
async def test_nonsense_is_unknown_and_its_connection_is_given_up(answer: bytes) -> None:
    async with ScriptedServer(script=[answer]) as server, running(server.port) as lane:
        lane.lane.submit(bind())
        [event] = await lane.said()
        assert isinstance(event, BindUnknown)
        lane.lane.submit(bind(1))
        assert (await lane.said(2))[1] == BindSucceeded("u1", 3)
        assert server.n_connections == 2


async def test_silence_is_unknown_after_the_timeout() -> None:
    async with ScriptedServer(script=[SILENCE]) as server, running(server.port, timeout_s=0.1) as lane:
        lane.lane.submit(bind())
        [event] = await lane.said()
        assert isinstance(event, BindUnknown)
        assert "no answer" in event.message


async def test_429_decides_nothing_and_the_bind_is_sent_again() -> None:
    script = [status(429, headers="Retry-After: 0\r\n"), status(429)]
    async with ScriptedServer(script=script) as server, running(server.port) as lane:
        lane.lane.submit(bind(0))
        lane.lane.submit(bind(1))
        assert await lane.said(2) == [BindSucceeded("u0", 3), BindSucceeded("u1", 3)]
        assert len(server.requests) == 4
        assert lane.lane.n_throttled == 2


async def test_taken_back_while_throttled_is_not_sent_again() -> None:
    """Whoever said 429 may have passed it on: only a read can say that it was not done."""
    async with ScriptedServer() as server, running(server.port) as lane:

        def throttle(_: object) -> bytes:
            lane.lane.cancel("c")
            return status(429)

        server.script.append(throttle)
        lane.lane.submit(bind())
        assert await lane.said() == [BindUnknown("u0", 3, "taken back after it was sent")]
        assert len(server.requests) == 1


async def test_only_this_causes_unsent_binds_are_taken_back() -> None:
    async with ScriptedServer(script=[SILENCE]) as server, running(server.port, timeout_s=0.3) as lane:
        for n, cause in enumerate(["c", "c", "c", "other", "c"]):
            lane.lane.submit(bind(n, cause=cause))
        await until(lambda: server.requests)
        lane.lane.cancel("c")
        assert lane.events == [BindCancelled("u2", 3), BindCancelled("u4", 3)]
        events = await lane.said(5)
        assert [type(event) for event in events[2:4]] == [BindUnknown, BindUnknown]
        assert events[4] == BindSucceeded("u3", 3)


async def test_server_that_is_not_there_yet_is_waited_for() -> None:
    async with ScriptedServer() as server:
        pass
    async with running(server.port, size=4) as lane:
        lane.lane.submit(bind())
        await anyio.sleep(0.1)
        assert lane.events == []
        async with ScriptedServer(port=server.port):
            assert await lane.said() == [BindSucceeded("u0", 3)]


async def test_401_renews_the_token_once() -> None:
    async with ScriptedServer(script=[status(401)]) as server, running(server.port, "old", "new") as lane:
        lane.lane.submit(bind())
        assert await lane.said() == [BindSucceeded("u0", 3)]
        sent = [request.headers["authorization"] for request in server.requests]
        assert sent == ["Bearer old", "Bearer new"]


async def test_401_twice_is_unknown() -> None:
    script = [status(401), status(401)]
    async with ScriptedServer(script=script) as server, running(server.port, "old", "new") as lane:
        lane.lane.submit(bind())
        [event] = await lane.said()
        assert isinstance(event, BindUnknown)
        assert not event.refused  # of the credentials, not of the bind


async def test_many_binds_over_few_connections_are_each_answered_once() -> None:
    async with ScriptedServer() as server, running(server.port, size=4) as lane:
        for n in range(200):
            lane.lane.submit(bind(n))
        events = await lane.said(200)
        assert sorted(event.uid for event in events if isinstance(event, BindSucceeded)) == sorted(
            f"u{n}" for n in range(200)
        )
        assert server.n_connections == 4


async def test_a_second_request_waits_at_the_server_once_each_connection_has_one() -> None:
    n_in_flight: list[int] = []
    async with ScriptedServer() as server, running(server.port, size=2) as lane:

        def answer(_: object) -> bytes:
            n_in_flight.append(lane.lane.n_in_flight)
            return created()

        server.default = answer
        for n in range(12):
            lane.lane.submit(bind(n))
        await lane.said(12)
        assert server.n_connections == 2
    assert max(n_in_flight) == 4


@pytest.mark.parametrize("first", [created(), status(403, about="p0")])
async def test_answers_that_come_in_one_piece_are_each_their_own(first: bytes) -> None:
    async with ScriptedServer() as server, running(server.port) as lane:
        held: list[bytes] = []

        def answer(_: object) -> bytes:
            held.append(first if not held else created())
            return b"" if len(held) == 1 else b"".join(held)

        server.default = answer
        lane.lane.submit(bind(0))
        lane.lane.submit(bind(1))
        one, two = await lane.said(2)
        assert isinstance(one, BindSucceeded if first == created() else BindFailed)
        assert one.uid == "u0"
        assert two == BindSucceeded("u1", 3)
        assert server.n_connections == 1


async def test_a_server_that_closes_after_an_answer_gets_one_request_at_a_time() -> None:
    """As a proxy that cannot read ahead: it answers the first and drops the second with the connection."""
    n_in_flight: list[int] = []
    async with ScriptedServer() as server, running(server.port) as lane:

        def answer(_: object) -> bytes:
            n_in_flight.append(lane.lane.n_in_flight)
            return created()

        server.script.append(created().replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        server.default = answer
        for n in range(6):
            lane.lane.submit(bind(n))
        first, second, *others = await lane.said(6)
        assert first == BindSucceeded("u0", 3)
        assert isinstance(second, BindUnknown)
        assert others == [BindSucceeded(f"u{n}", 3) for n in range(2, 6)]
        assert server.n_connections == 2
        assert max(n_in_flight[-4:]) == 1


async def test_stopping_answers_what_is_in_flight() -> None:
    async with ScriptedServer(script=[SILENCE]) as server:
        async with running(server.port) as lane:
            lane.lane.submit(bind())
            await until(lambda: server.requests)
        assert [type(event) for event in lane.events] == [BindUnknown]


CHUNKED = b"HTTP/1.1 403 Forbidden\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
INTERIM = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nCONTENT-LENGTH:5\r\nConnection: close\r\n\r\nabcde"
)


@pytest.mark.parametrize(("data", "code", "keep"), [(CHUNKED, 403, True), (INTERIM, 200, False)])
def test_answers_are_read_wherever_they_are_cut(data: bytes, code: int, keep: bool) -> None:
    for step in (1, 2, 7, len(data)):
        answer = Answer()
        for at in range(0, len(data), step):
            assert not answer.whole
            answer.feed(data[at : at + step])
        assert (answer.whole, answer.status, answer.body, answer.keep_alive) == (True, code, b"abcde", keep)


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_too_long_or_not_http_is_refused(data: bytes) -> None:
    feed: Callable[[bytes], None] = Answer().feed
    with pytest.raises(ProtocolError):
        feed(data)

"""Small requests over warm connections, against a server that answers as it is told; and the complaints."""

from __future__ import annotations

import anyio
import pytest
from structlog.testing import capture_logs

from gangsched.errors import ApiError
from gangsched.kube.transport.complaints import Complaints
from gangsched.kube.transport.http1 import JSON
from gangsched.kube.transport.pool import RequestPool
from tests.kube.scripted import CUT, SILENCE, ScriptedServer, created, credentials, status


async def test_request_is_sent_whole_and_connections_stay_warm() -> None:
    async with (
        ScriptedServer(default=created(b"yes")) as server,
        RequestPool(credentials(server.port)) as pool,
    ):
        for _ in range(3):
            assert await pool.request("POST", "/a/b%20c", body=b"{}", content_type=JSON) == b"yes"
        assert await pool.request("GET", "/a") == b"yes"
        assert server.n_connections == 1
        first, *_, last = server.requests
        assert (first.line, first.body, first.headers["content-type"]) == ("POST /a/b%20c", b"{}", JSON)
        assert (last.line, last.headers["accept"]) == ("GET /a", JSON)


async def test_requests_at_once_have_a_connection_each() -> None:
    async with ScriptedServer() as server, RequestPool(credentials(server.port)) as pool:
        async with anyio.create_task_group() as group:
            for n in range(4):
                group.start_soon(pool.request, "GET", f"/{n}")
        assert len(server.requests) == 4
        assert server.n_connections <= 4


async def test_refusal_carries_what_the_server_said() -> None:
    answer = status(429, reason="TooManyRequests", message="slow down", headers="Retry-After: 7\r\n")
    async with ScriptedServer(default=answer) as server, RequestPool(credentials(server.port)) as pool:
        with pytest.raises(ApiError, match="slow down") as caught:
            await pool.request("GET", "/x")
        error = caught.value
        assert (error.code, error.reason, error.retry_after_s) == (429, "TooManyRequests", 7.0)


@pytest.mark.parametrize(("answer", "timeout_s"), [(CUT, 5.0), (SILENCE, 0.05), (b"SSH-2.0\r\n\r\n", 5.0)])
async def test_silence_is_an_error_without_a_code(answer: bytes, timeout_s: float) -> None:
    async with ScriptedServer(default=answer) as server, RequestPool(credentials(server.port)) as pool:
        with pytest.raises(ApiError) as caught:
            await pool.request("POST", "/x", timeout_s=timeout_s)
        assert caught.value.code == 0
        assert len(server.requests) == 1
        server.default = created()
        await pool.request("POST", "/x")
        assert server.n_connections == 2  # what failed is not used again


async def test_server_that_is_not_there_is_an_error_without_a_code() -> None:
    async with ScriptedServer() as server:
        pass
    with pytest.raises(ApiError) as caught:
        await RequestPool(credentials(server.port)).request("GET", "/x")
    assert caught.value.code == 0


@pytest.mark.parametrize(("method", "n_sent"), [("GET", 3), ("POST", 2)])
async def test_only_a_read_is_asked_twice_when_a_warm_connection_is_gone(method: str, n_sent: int) -> None:
    script = [created(), CUT]
    async with ScriptedServer(script=script) as server, RequestPool(credentials(server.port)) as pool:
        await pool.request("GET", "/x")
        if method == "GET":
            await pool.request(method, "/x")
        else:
            with pytest.raises(ApiError):
                await pool.request(method, "/x")
        assert len(server.requests) == n_sent


async def test_connection_that_the_server_closes_is_not_used_again() -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with ScriptedServer(script=[last]) as server, RequestPool(credentials(server.port)) as pool:
        await pool.request("POST", "/x")
        await pool.request("POST", "/x")
        assert server.n_connections == 2


async def test_401_renews_the_token_once() -> None:
    async with ScriptedServer(script=[status(401)]) as server:
        async with RequestPool(credentials(server.port, "old", "new")) as pool:
            await pool.request("GET", "/x")
        assert [r.headers["authorization"] for r in server.requests] == ["Bearer old", "Bearer new"]


async def test_cancelled_request_leaves_no_connection_behind() -> None:
    async with ScriptedServer(script=[SILENCE]) as server, RequestPool(credentials(server.port)) as pool:
        with anyio.move_on_after(0.05):
            await pool.request("GET", "/x")
        assert await pool.request("GET", "/x")
        assert server.n_connections == 2


def test_failures_of_one_kind_are_reported_once_and_then_counted() -> None:
    now_s = 0.0
    complaints = Complaints(clock=lambda: now_s)
    with capture_logs() as logs:
        for n in range(875):
            complaints.say("write", ApiError(f"g{n} is invalid", code=422, reason="Invalid"), about=f"g{n}")
        complaints.say("write", ApiError("no", code=403, reason="Forbidden"))
        now_s = 11.0
        complaints.say("write", ApiError("still", code=422, reason="Invalid"))
    said = [(line["err"], line.get("n_more_like_it")) for line in logs]
    assert said == [
        ("write of g0: 422 Invalid: g0 is invalid", None),
        ("write: 403 Forbidden: no", None),
        ("write: 422 Invalid: still", 874),
    ]

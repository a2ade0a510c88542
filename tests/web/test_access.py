"""Who may read: the API server is asked once, and its answer kept for ten seconds."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from gangsched.errors import ApiError
from gangsched.web.access import (
    ACCESS_REVIEWS,
    ADDRESSES_WORTH,
    ANONYMOUS,
    CACHE_S,
    MAX_ADDRESSES,
    MAX_ASKED_AT_ONCE,
    MAX_CACHED,
    STRANGERS_A_SECOND,
    STRANGERS_AT_ONCE,
    TOKEN_REVIEWS,
    Access,
    Refused,
)

OPEN = ("/healthz", "/livez*")


class Server:
    """An API server that knows tokens and what their users may read."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {"good": {"username": "prometheus", "groups": ["monitors"]}}
        self.may: set[tuple[str, str]] = {
            ("prometheus", path)
            for path in (
                "/metrics",
                "/queue",
                "/reservations",
                "/explain/d/train",
                "/story/d/train",
                "/story/d/none",
            )
        }
        self.may_post: set[tuple[str, str]] = set()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.error: ApiError | None = None
        self.lies: dict[str, bytes] = {}
        """By path: what is answered instead."""
        self.takes_s = 0.0

    async def post(self, path: str, body: bytes, *, timeout_s: float = 0.0) -> bytes:
        if self.error is not None:
            raise self.error
        review = msgspec.json.decode(body)
        spec = review["spec"]
        self.asked.append((path, spec))
        if self.takes_s:
            await anyio.sleep(self.takes_s)
        if path in self.lies:
            return self.lies[path]
        if path == TOKEN_REVIEWS:
            user = self.users.get(spec["token"])
            status: dict[str, Any] = {"authenticated": user is not None, "user": user or {}}
        else:
            attributes = spec["nonResourceAttributes"]
            wanted = (spec["user"], attributes["path"])
            status = {"allowed": wanted in (self.may if attributes["verb"] == "get" else self.may_post)}
        return msgspec.json.encode({**review, "status": status})


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(server: Server, clock: Clock) -> Access:
    return Access(server, always_allow=OPEN, clock=clock)


async def refused(access: Access, path: str, authorization: str, address: str = "") -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        await access.check(path, authorization, address=address)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/livez/ping"])
async def test_an_open_path_needs_no_review(access: Access, server: Server, path: str) -> None:
    await access.check(path, "")
    assert not server.asked


async def test_who_may_read_reads_and_is_not_asked_for_again_for_a_while(
    access: Access, server: Server, clock: Clock
) -> None:
    for _ in range(3):
        await access.check("/metrics", "Bearer good")
    assert [path for path, _ in server.asked] == [TOKEN_REVIEWS, ACCESS_REVIEWS]
    clock.now_s += CACHE_S
    server.may.clear()
    code, message = await refused(access, "/metrics", "Bearer good")
    assert (code, message) == (403, 'User "prometheus" cannot get path "/metrics"')


async def test_what_one_of_a_users_sessions_may_another_may_not(access: Access, server: Server) -> None:
    """An authorizer may decide by `extra`: scopes of a token, a session, the pod that it was made for."""
    for token, scope in (("wide", "metrics"), ("narrow", "none")):
        server.users[token] = {"username": "prometheus", "groups": ["monitors"], "extra": {"scope": [scope]}}
    await access.check("/metrics", "Bearer wide")
    server.may.clear()
    assert (await refused(access, "/metrics", "Bearer narrow"))[0] == 403
    assert [spec["extra"] for path, spec in server.asked if path == ACCESS_REVIEWS] == [
        {"scope": ["metrics"]},
        {"scope": ["none"]},
    ]
    await access.check("/metrics", "Bearer wide")
    assert len(server.asked) == 4


async def test_an_open_path_does_not_open_what_begins_like_it(access: Access) -> None:
    assert (await refused(access, "/healthz/x", ""))[0] == 403


async def test_a_stranger_is_asked_for_once(access: Access, server: Server) -> None:
    for _ in range(3):
        assert (await refused(access, "/metrics", ""))[0] == 403
    [(path, spec)] = server.asked
    assert path == ACCESS_REVIEWS
    assert (spec["user"], spec["groups"]) == ("system:anonymous", ["system:unauthenticated"])


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Basic Z29vZA==", "Bearer", "good", "Bearer \udcff", "Bearer \u0663"]
)
async def test_an_unknown_token_is_unauthorized(access: Access, header: str) -> None:
    assert await refused(access, "/metrics", header) == (401, "Unauthorized")


async def test_a_wrong_token_is_asked_for_once(access: Access, server: Server) -> None:
    for _ in range(3):
        await refused(access, "/metrics", "Bearer wrong")
    assert len(server.asked) == 1


async def test_masters_may_read_everything(access: Access, server: Server) -> None:
    server.users["root"] = {"username": "admin", "groups": ["system:masters"]}
    await access.check("/configz", "bearer root")
    assert [path for path, _ in server.asked] == [TOKEN_REVIEWS]


async def test_while_the_api_server_is_unreachable_all_are_refused(access: Access, server: Server) -> None:
    server.error = ApiError("connection refused")
    assert (await refused(access, "/metrics", "Bearer good"))[0] == 503
    server.error = None
    await access.check("/metrics", "Bearer good")


async def test_answers_kept_are_bounded(access: Access, clock: Clock) -> None:
    for k in range(MAX_CACHED + 10):
        clock.now_s += 1.0 / STRANGERS_A_SECOND
        assert (await refused(access, "/metrics", f"Bearer wrong-{k}"))[0] == 401
    assert len(access._refused._kept) == MAX_CACHED


async def test_strangers_are_asked_about_so_often_and_no_more(
    access: Access, server: Server, clock: Clock
) -> None:
    """1,000 made-up tokens in ten seconds made 1,000 TokenReviews."""
    codes = []
    for k in range(1000):
        clock.now_s += 0.01
        codes.append((await refused(access, "/metrics", f"Bearer wrong-{k}"))[0])
    n = int(STRANGERS_AT_ONCE + 10 * STRANGERS_A_SECOND)
    assert abs(len(server.asked) - n) <= 1
    assert codes.count(401) == len(server.asked)
    assert codes.count(429) == 1000 - len(server.asked)


async def test_a_flood_does_not_lock_out_known_clients(access: Access, server: Server, clock: Clock) -> None:
    await access.check("/metrics", "Bearer good")
    for k in range(2000):
        clock.now_s += 0.1
        await refused(access, "/metrics", f"Bearer wrong-{k}")
        if k % 300 == 0:
            assert await access.check("/metrics", "Bearer good") == "prometheus"


async def test_one_address_that_makes_up_tokens_is_not_in_the_way_of_the_others(
    access: Access, clock: Clock
) -> None:
    """After a restart nobody is known, and all shared one bucket: a flood gave 429 to everybody."""
    for k in range(1000):
        clock.now_s += 0.01
        await refused(access, "/metrics", f"Bearer wrong-{k}", address="10.0.0.1")
    assert (await refused(access, "/metrics", "Bearer other", address="10.0.0.1"))[0] == 429
    assert await access.check("/metrics", "Bearer good", address="10.0.0.2") == "prometheus"


async def test_many_addresses_together_are_bounded_too(access: Access, server: Server, clock: Clock) -> None:
    for k in range(3 * MAX_ADDRESSES):
        address = f"10.0.{k // 256}.{k % 256}"
        await refused(access, "/metrics", f"Bearer wrong-{k}", address=address)
    assert len(server.asked) == STRANGERS_AT_ONCE * ADDRESSES_WORTH
    assert len(access._strangers._by_address) == MAX_ADDRESSES


@pytest.mark.parametrize("form", ["2001:db8::{:x}", "::ffff:10.0.0.1", "fe80::{:x}%eth0", "nothing"])
async def test_what_one_client_may_call_itself_is_one_address(
    access: Access, server: Server, form: str
) -> None:
    for k in range(100):
        await refused(access, "/metrics", f"Bearer wrong-{k}", address=form.format(k + 1))
    assert len(server.asked) == STRANGERS_AT_ONCE


async def test_one_address_does_not_hold_all_turns(access: Access, server: Server) -> None:
    server.takes_s = 0.5
    async with anyio.create_task_group() as group:
        for k in range(MAX_ASKED_AT_ONCE * ADDRESSES_WORTH):
            group.start_soon(refused, access, "/metrics", f"Bearer wrong-{k}", "10.0.0.1")
        await anyio.wait_all_tasks_blocked()
        assert len(server.asked) == MAX_ASKED_AT_ONCE
        group.start_soon(refused, access, "/metrics", "Bearer else", "10.0.0.2")
        await anyio.wait_all_tasks_blocked()
        assert server.asked[-1][1] == {"token": "else"}


async def test_made_up_paths_are_bounded_as_made_up_tokens_are(access: Access, server: Server) -> None:
    for k in range(1000):
        await refused(access, f"/permit/default/g{k}/allow", "")
    assert len(server.asked) <= STRANGERS_AT_ONCE


async def test_a_token_that_was_refused_is_not_asked_about_again_for_a_while(
    access: Access, server: Server, clock: Clock
) -> None:
    for _ in range(50):
        assert (await refused(access, "/metrics", "Bearer wrong"))[0] == 401
    assert len(server.asked) == 1
    server.users["wrong"] = server.users["good"]
    clock.now_s += CACHE_S
    assert await access.check("/metrics", "Bearer wrong") == "prometheus"


async def test_who_may_read_a_path_may_not_say_something_there(access: Access, server: Server) -> None:
    path = "/permit/d/a/allow"
    server.may.add(("prometheus", path))
    assert await access.check(path, "Bearer good") == "prometheus"
    with pytest.raises(Refused) as caught:
        await access.check(path, "Bearer good", verb="post")
    assert (caught.value.code, caught.value.message) == (
        403,
        f'User "prometheus" cannot post path "{path}"',
    )
    server.may_post.add(("prometheus", "/permit/d/b/allow"))
    assert await access.check("/permit/d/b/allow", "Bearer good", verb="post") == "prometheus"


async def test_a_path_that_is_open_to_read_is_not_open_to_write(access: Access) -> None:
    await access.check("/healthz", "")
    with pytest.raises(Refused) as caught:
        await access.check("/healthz", "", verb="post")
    assert caught.value.code == 403


async def test_the_text_of_anothers_review_sent_as_a_token_refuses_nobody_else(
    access: Access, server: Server
) -> None:
    """Answers were kept by the hash of the token, and by that of the review: the same for the same text."""
    spec = {"user": ANONYMOUS.username, "uid": "", "groups": ANONYMOUS.groups, "extra": {}}
    attributes = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec | attributes,
    }
    text = msgspec.json.encode(review).decode()
    server.may.add((ANONYMOUS.username, "/metrics"))
    assert (await refused(access, "/metrics", f"Bearer {text}"))[0] == 401
    assert await access.check("/metrics", "") == ANONYMOUS.username
    assert server.asked[-1][1] == msgspec.json.decode(text)["spec"]


@pytest.mark.parametrize(
    "lie",
    [
        b"<html><body>Log in</body></html>",
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"kind": "Status", "status": "Success"}',
        b'{"kind": "TokenReview"}',
        b'{"kind": "TokenReview", "status": null}',
        b'{"kind": "TokenReview", "status": {"authenticated": "yes", "user": {"username": "a"}}}',
        b'{"kind": "TokenReview", "status": {"authenticated": 1, "user": {"username": "a"}}}',
        b'{"kind": "TokenReview", "status": {"authenticated": true, "user": {"username": ["a"]}}}',
        b'{"kind": "Pod", "status": {"authenticated": true, "user": {"username": "a"}}}',
        b'{"kind": "SubjectAccessReview", "status": {"allowed": true}}',
        b'{"kind": "TokenReview", "status": ' + b"[" * 100_000,
    ],
)
async def test_an_answer_that_is_no_review_of_a_token_is_no_answer(
    access: Access, server: Server, lie: bytes
) -> None:
    server.lies[TOKEN_REVIEWS] = lie
    assert (await refused(access, "/metrics", "Bearer good"))[0] == 503
    server.lies.clear()
    assert await access.check("/metrics", "Bearer good") == "prometheus"


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        (b'{"kind": "SubjectAccessReview", "status": {"allowed": true, "denied": true}}', 403),
        (b'{"kind": "SubjectAccessReview", "status": {"allowed": "true"}}', 503),
        (b'{"kind": "SubjectAccessReview"}', 503),
        (b'{"kind": "TokenReview", "status": {"allowed": true}}', 503),
        (b"{}", 503),
    ],
)
async def test_only_a_plain_yes_is_a_yes(access: Access, server: Server, lie: bytes, code: int) -> None:
    server.lies[ACCESS_REVIEWS] = lie
    assert (await refused(access, "/metrics", "Bearer good"))[0] == code


async def test_what_a_user_is_called_is_shown_as_text_and_cut(access: Access, server: Server) -> None:
    server.users["odd"] = {"username": "a\r\n\x1b[31m" + "b" * 100_000, "extra": {"scopes": None}}
    code, message = await refused(access, "/metrics", "Bearer odd")
    assert code == 403
    assert message.startswith('User "a\\x0d\\x0a\\x1b[31mbbb')
    assert len(message) < 500


async def test_known_clients_do_not_wait_behind_strangers_whose_tokens_take_long(
    access: Access, server: Server, clock: Clock
) -> None:
    await access.check("/metrics", "Bearer good")
    clock.now_s += CACHE_S
    server.takes_s = 3600.0
    async with anyio.create_task_group() as group:
        for k in range(MAX_ASKED_AT_ONCE * 2):
            group.start_soon(refused, access, "/metrics", f"Bearer wrong-{k}")
        await anyio.wait_all_tasks_blocked()
        server.takes_s = 0.0
        with anyio.fail_after(5.0):
            assert await access.check("/metrics", "Bearer good") == "prometheus"
        group.cancel_scope.cancel()


async def test_a_stranger_waits_for_a_turn_so_long_and_no_longer(
    access: Access, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangsched.web.access.REVIEW_TIMEOUT_S", 0.01)
    server.takes_s = 3600.0
    async with anyio.create_task_group() as group:
        for k in range(MAX_ASKED_AT_ONCE):
            group.start_soon(refused, access, "/metrics", f"Bearer wrong-{k}")
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5.0):
            assert (await refused(access, "/metrics", "Bearer another"))[0] == 503
        group.cancel_scope.cancel()

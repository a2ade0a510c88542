"""The keeper of the fence: how many writes it takes under load, and which answers it believes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Self, cast

import anyio
import msgspec
import pytest

from gangsched.config import LeaderElectionSettings
from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.election import fence_keeper
from gangsched.kube.election.fence import Fenced, FenceState
from gangsched.kube.election.fence_keeper import LIST_KEY, FenceKeeper
from gangsched.kube.election.fence_list import Expected
from gangsched.kube.transport.backoff import Backoff
from gangsched.model.effects import BindPod
from tests.kube.test_fence import bind
from tests.kube.test_fence_ahead import expected


class OneLease:
    """An API server's answers about the one object, over any connection."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] = {
            "metadata": {"name": "gangsched-fence", "namespace": "kube-system", "resourceVersion": "1"},
            "spec": {},
        }
        self.n_writes = 0
        self.n_refused = 0
        """Writes that are refused first."""
        self.drops: set[int] = set()
        """Writes, by number, that are not done; their answer is the object as it was, and a 200."""

    def another(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def close(self) -> None:
        pass

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        await anyio.lowlevel.checkpoint()
        return msgspec.json.encode(self.lease)

    async def put(self, path: str, body: bytes, *, timeout_s: float) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self.n_refused:
            self.n_refused -= 1
            raise ApiError("no", code=403, reason="Forbidden")
        self.n_writes += 1
        if self.n_writes not in self.drops:
            self.lease = msgspec.json.decode(body)
            self.lease["metadata"]["resourceVersion"] = str(1 + self.n_writes)
        return msgspec.json.encode(self.lease)

    @property
    def listed(self) -> str:
        return str(self.lease["metadata"].get("annotations", {}).get(LIST_KEY, ""))


class Leader:
    """A process that leads: its keeper, and what was released to it. `n_unsent` of that is not sent yet."""

    def __init__(self, server: OneLease) -> None:
        self.keeper = FenceKeeper(
            cast(ApiClient, server),
            LeaderElectionSettings(resource_name="gangsched", resource_namespace="kube-system"),
            identity="me",
            rng=Random(1),
            is_on_its_way=lambda uid: uid not in self.settled,
            deposed=lambda why: None,
            line=lambda: self.line,
        )
        self.line: list[Sequence[Expected]] = []
        self.settled: set[str] = set()
        self.released: list[str] = []
        self.n_unsent = 0

    def release(self, effects: Sequence[Fenced]) -> None:
        self.released += [one.name for one in effects if isinstance(one, BindPod)]
        self.n_unsent += len(effects)

    async def reaches(self, n_released: int) -> None:
        with anyio.fail_after(5):
            while len(self.released) < n_released:
                await anyio.sleep(0.001)


@asynccontextmanager
async def leading(server: OneLease, *, enough: int = 10) -> AsyncIterator[Leader]:
    leader = Leader(server)

    async def run() -> None:
        await leader.keeper.run(leader.release, has_enough=lambda: leader.n_unsent >= enough)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await leader.keeper.take()
        leader.keeper.bumped()
        yield leader
        group.cancel_scope.cancel()


async def test_while_enough_is_still_to_be_sent_the_next_binds_share_one_write() -> None:
    server = OneLease()
    async with leading(server, enough=10) as leader:
        for i in range(10):
            leader.keeper.submit(bind(f"a{i}"))
        await leader.reaches(10)
        n_writes = server.n_writes
        for i in range(20):
            leader.keeper.submit(bind(f"b{i}"))
            await anyio.sleep(0.002)
        assert (server.n_writes, len(leader.released)) == (n_writes, 10), "the lanes are busy with the first"
        leader.n_unsent = 9
        await leader.reaches(30)
        assert server.n_writes == n_writes + 1


async def test_a_gang_that_comes_alone_does_not_wait_for_others() -> None:
    server = OneLease()
    async with leading(server, enough=10) as leader:
        leader.keeper.submit(bind("a"))
        await leader.reaches(1)
        leader.keeper.submit(bind("b"))
        await leader.reaches(2)


async def test_the_first_in_line_are_asked_for_before_the_loop_places_them() -> None:
    server = OneLease()
    async with leading(server) as leader:
        await anyio.wait_all_tasks_blocked()
        n_writes = server.n_writes
        leader.line = [expected("a", "b")]
        assert leader.keeper.expect()
        await anyio.lowlevel.checkpoint()
        assert not leader.keeper.expect(), "a request is on its way"
        leader.line = []
        leader.keeper.submit(bind("a"))
        leader.keeper.submit(bind("b"))
        assert not leader.released, "not answered yet"
        await leader.reaches(2)
        assert server.n_writes == n_writes + 1


async def test_what_was_in_line_and_is_placed_after_the_answer_leaves_without_a_write() -> None:
    server = OneLease()
    async with leading(server) as leader:
        await anyio.wait_all_tasks_blocked()
        leader.line = [expected("a")]
        leader.keeper.expect()
        await anyio.wait_all_tasks_blocked()
        n_writes = server.n_writes
        leader.keeper.submit(bind("a"))
        await leader.reaches(1)
        assert server.n_writes == n_writes


async def test_a_long_line_leaves_with_few_writes_and_none_waits_though_the_lanes_are_busy() -> None:
    server = OneLease()
    async with leading(server, enough=1) as leader:
        await anyio.wait_all_tasks_blocked()
        n_writes = server.n_writes
        names = [f"p{i}" for i in range(2000)]
        leader.line = [expected(name) for name in names]
        leader.keeper.expect()
        await anyio.wait_all_tasks_blocked()
        for n, name in enumerate(names):
            del leader.line[0]
            leader.keeper.submit(bind(name))
            if n % 100 == 99:
                await leader.reaches(n + 1)
        assert leader.released == names
        assert server.n_writes - n_writes <= 5


async def test_a_write_whose_answer_is_the_object_as_it_was_releases_nothing() -> None:
    """A front end has dropped the write and answers 200 all the same."""
    server = OneLease()
    async with leading(server) as leader:
        server.drops = {server.n_writes + 1}
        leader.keeper.submit(bind("a"))
        await leader.reaches(1)
        assert '"ns/a"' in server.listed
        assert leader.keeper.fence.state is FenceState.OWNED


async def test_a_leader_that_ends_leaves_a_list_of_what_is_unanswered() -> None:
    server = OneLease()
    async with leading(server) as leader:
        for name in "abc":
            leader.keeper.submit(bind(name))
        await leader.reaches(3)
        leader.settled = {"uid-a", "uid-c"}
        n_writes = server.n_writes
        await leader.keeper.close()
        assert (server.listed, server.n_writes) == ('{"ns/g":{"uid-b":"ns/b"}}', n_writes + 1)
        leader.settled.add("uid-b")
        await leader.keeper.close()
        assert server.listed == "{}"


async def test_a_last_list_that_is_not_written_is_written_again() -> None:
    server = OneLease()
    async with leading(server) as leader:
        leader.keeper.submit(bind("a"))
        await leader.reaches(1)
        leader.settled = {"uid-a"}
        server.drops = {server.n_writes + 1}
        await leader.keeper.close()
        assert server.listed == "{}"


async def test_an_end_waits_for_the_last_list_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_keeper, "CLOSE_S", 0.05)
    server = OneLease()
    async with leading(server) as leader:
        leader.keeper.submit(bind("a"))
        await leader.reaches(1)
        leader.settled = {"uid-a"}
        server.drops = set(range(1000))
        with anyio.fail_after(5):
            await leader.keeper.close()
        assert '"ns/a"' in server.listed


async def test_writes_that_are_refused_though_reads_are_not_are_tried_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, told = list[float](), list[str]()
    next_s = Backoff.next_s

    def wait_s(self: Backoff, retry_after_s: float | None = None) -> float:
        waits.append(next_s(self, retry_after_s))
        return 0.0

    monkeypatch.setattr(Backoff, "next_s", wait_s)
    monkeypatch.setattr(fence_keeper._log, "warning", lambda text, **_: told.append(text), raising=False)
    server = OneLease()
    server.n_refused = 10
    async with leading(server) as leader:
        leader.keeper.submit(bind("a"))
        await leader.reaches(1)
    assert len(waits) == 10
    assert waits[-1] >= 1.0
    assert told == ["the fence cannot be read or written"]


async def test_a_follower_that_ends_has_no_list_to_write() -> None:
    server = OneLease()
    leader = Leader(server)
    with anyio.fail_after(1):
        await leader.keeper.close()
    assert server.n_writes == 0

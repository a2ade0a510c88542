"""The lease lane in its own thread: a long turn keeps the lease, a turn that never ends loses it."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random

import anyio
import pytest

from gangsched.kube.client import ApiClient
from gangsched.kube.election import elector as elector_module
from gangsched.kube.election.elector import LeaderElector
from gangsched.kube.election.lease import ElectionState
from tests.kube.scripted import Request, ScriptedServer, credentials, within
from tests.kube.test_elector import QUICK, LeaseServer
from tests.support.tasks import until


@contextmanager
def served(answer: Callable[[Request], bytes]) -> Iterator[ScriptedServer]:
    """A server in another thread: it answers while this one's loop is busy."""
    server, ready, end = ScriptedServer(default=answer), threading.Event(), threading.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            while not end.is_set():
                await anyio.sleep(0.01)

    thread = threading.Thread(target=lambda: anyio.run(serve), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield server
    finally:
        end.set()
        thread.join(20)


@asynccontextmanager
async def leading(server: ScriptedServer) -> AsyncIterator[LeaderElector]:
    leads = anyio.Event()
    elector = LeaderElector(ApiClient(credentials(server.port)), QUICK, identity="me", rng=Random(1))
    async with anyio.create_task_group() as group:
        group.start_soon(elector.run_apart, leads.set)
        with within():
            await leads.wait()
        yield elector
        group.cancel_scope.cancel()


async def test_a_turn_longer_than_the_renew_deadline_keeps_the_lease() -> None:
    lease = LeaseServer()
    with served(lease) as server:
        async with leading(server) as elector:
            before = lease.version
            time.sleep(2 * QUICK.renew_deadline_s)
            assert elector.holds
            assert lease.version > before
            assert await elector.release()
    assert lease.lease is not None
    assert lease.lease["spec"]["holderIdentity"] == ""


async def test_a_turn_that_does_not_end_loses_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elector_module, "MAX_TURN_S", 1.0)
    lease = LeaseServer()
    with served(lease) as server:
        async with leading(server) as elector:
            time.sleep(1.5)  # stuck: from here on nothing is renewed
            renewed = lease.version
            time.sleep(2 * QUICK.renew_deadline_s)
            assert elector.has_lost
            assert not elector.holds
            assert lease.version - renewed <= 1, "one may have been on its way"
            await until(lambda: elector.election.state is ElectionState.LOST)


async def test_a_loop_that_runs_again_in_time_renews_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elector_module, "MAX_TURN_S", 0.5)
    lease = LeaseServer()
    with served(lease) as server:
        async with leading(server) as elector:
            time.sleep(1.2)
            stuck = lease.version
            await until(lambda: lease.version > stuck + 1)
            assert elector.holds


async def test_nothing_is_renewed_once_the_process_ends_without_giving_the_lease_back() -> None:
    lease = LeaseServer()
    with served(lease) as server:
        async with leading(server):
            pass
        time.sleep(0.2)  # one renewal may be on its way
        before = lease.version
        time.sleep(4 * QUICK.retry_period_s)
        assert lease.version == before
        assert lease.lease is not None
        assert lease.lease["spec"]["holderIdentity"] == "me"

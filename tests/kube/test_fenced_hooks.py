"""Hooks and the fence: what may bind a pod waits until the pod is listed, everything else does not wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import anyio

from gangsched.config import LeaderElectionSettings
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.dispatcher import Dispatcher
from gangsched.kube.election.fence_keeper import FenceKeeper
from gangsched.kube.election.fence_list import Expected
from gangsched.lab.sim.objects import make_pod
from gangsched.model.effects import BlamePlugin, CancelHooks, RunHook
from gangsched.model.pod_group import GroupKey
from tests.kube.scripted import credentials
from tests.kube.test_fence import bind
from tests.kube.test_fence_ahead import expected
from tests.kube.test_fence_keeper import OneLease
from tests.support.tasks import until


def hook(ticket: int, point: str) -> RunHook:
    key = GroupKey("gangsched", "ns", "g")
    return RunHook(
        ticket, point, "gangsched", "P", key, make_pod(f"p{ticket}", namespace="ns"), "n0", {}, "c"
    )


class Fenced:
    """A dispatcher with a fence, in a process that follows until it is told to lead."""

    def __init__(self, server: OneLease, client: ApiClient) -> None:
        self.started: list[RunHook | CancelHooks | BlamePlugin] = []
        self.keeper = FenceKeeper(
            cast(ApiClient, server),
            LeaderElectionSettings(resource_name="gangsched", resource_namespace="kube-system"),
            identity="me",
            rng=Random(1),
            is_on_its_way=lambda uid: True,
            deposed=lambda why: None,
            line=lambda: self.line,
        )
        self.line: list[list[Expected]] = []
        self.dispatcher = Dispatcher(
            client,
            emit_nowait=lambda event: None,
            rng=Random(1),
            to_plugins=self.started.append,
            fence=self.keeper,
        )

    async def lead(self) -> None:
        await self.keeper.take()
        self.keeper.bumped()

    @property
    def points(self) -> list[str]:
        return [one.point for one in self.started if isinstance(one, RunHook)]


@asynccontextmanager
async def fenced(server: OneLease) -> AsyncIterator[Fenced]:
    # Nothing goes to this address: hooks are not sent, and the fence has its server in memory.
    async with ApiClient(credentials(1)) as client, anyio.create_task_group() as group:
        run = Fenced(server, client)
        group.start_soon(run.dispatcher.run)
        yield run
        group.cancel_scope.cancel()


async def test_hooks_that_may_bind_wait_until_their_pod_is_listed() -> None:
    server = OneLease()
    async with fenced(server) as run:
        run.dispatcher.submit([hook(i, p) for i, p in enumerate(("Permit", "PreBind", "Bind", "PostBind"))])
        await anyio.sleep(0.05)
        assert run.points == ["Permit", "PostBind"]
        await run.lead()
        await until(lambda: len(run.points) == 4)
        assert run.points[2:] == ["PreBind", "Bind"]
        assert '"ns/p1"' in server.listed
        assert '"ns/p2"' in server.listed


async def test_a_hook_that_is_taken_back_before_its_pod_is_listed_never_starts() -> None:
    server = OneLease()
    async with fenced(server) as run:
        run.dispatcher.submit([hook(1, "PreBind"), hook(2, "PreBind")])
        run.dispatcher.submit([CancelHooks((1,))])
        await run.lead()
        await until(lambda: bool(run.points))
        assert [one.ticket for one in run.started if isinstance(one, RunHook)] == [2]
        assert CancelHooks((1,)) in run.started
        assert '"ns/p1"' not in server.listed


async def test_decisions_are_ahead_of_what_is_sent_or_of_what_is_listed_and_not_of_both() -> None:
    async with fenced(OneLease()) as run:
        await run.lead()
        run.line = [expected("a", "b", "c")]
        assert run.keeper.expect()
        await anyio.wait_all_tasks_blocked()
        run.dispatcher.submit([bind("a"), bind("b"), bind("x")])
        assert (run.dispatcher.n_binds_waiting, run.dispatcher.n_binds_ahead) == (3, 2)
        run.dispatcher.submit([bind("y"), bind("z")])
        assert (run.dispatcher.n_binds_waiting, run.dispatcher.n_binds_ahead) == (5, 3)

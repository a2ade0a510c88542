"""Leadership: whether this process may act, from the lease it holds and the fence it writes.

Lives here: combining both, and logging about them. Not here: the protocols (kube.election), the steps between
gaining the lease and the first decision (kube.take_over). Called by the assembly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING

import structlog

from gangsched.config import SchedulerConfig
from gangsched.core.types.group import PENDING
from gangsched.kube.client import ApiClient
from gangsched.kube.election.elector import LeaderElector
from gangsched.kube.election.fence_keeper import FenceKeeper
from gangsched.kube.election.fence_list import Expected, expected_claim, expected_of
from gangsched.kube.election.other_scheduler import OtherScheduler
from gangsched.kube.queue_usage import QueueUsage
from gangsched.kube.take_over import take_over
from gangsched.model.objects import Pod
from gangsched.model.resource_claims.objects import ResourceClaim
from gangsched.process.queue_memory import QueueMemory

if TYPE_CHECKING:
    from gangsched.core.cache.queues.book import QueueBook
    from gangsched.core.types.group import Group
    from gangsched.kube.effects.bumps import Bumps
    from gangsched.kube.watch.watch_state import WatchState
    from gangsched.model.events import Event

_log = structlog.get_logger(__name__)


class Leadership:
    """Without leader election this process leads; without a fence nothing is listed before it is bound."""

    def __init__(
        self,
        client: ApiClient,
        config: SchedulerConfig,
        *,
        instance: str,
        rng: Random,
        acts: bool,
        is_on_its_way: Callable[[str], bool],
        in_line: Callable[[], Iterable[Group]],
        claims_of: Callable[[Pod], Iterable[ResourceClaim]],
        ended: Callable[[], None],
        queues: Callable[[], QueueBook | None],
        put: Callable[[Sequence[Event]], Awaitable[None]],
    ) -> None:
        """`acts`: false in shadow mode, where no process may act. `ended`: called once, when the lease or the
        fence is lost: from then on nothing may leave the process."""
        # Unique to this process, even against a container on a host of the same name.
        identity = f"{instance}_{rng.randbytes(8).hex()}"
        election = config.leader_election
        self._client = client
        self._rng = rng
        self._acts = acts
        self._ended = ended
        self.has_lost = False
        self.elector: LeaderElector | None = None
        self.fence: FenceKeeper | None = None
        self._others = OtherScheduler(client, election, identity=identity) if acts else None
        self._queues = QueueMemory(QueueUsage(client, election), queues, put, may_act=self.may_act)
        if election.leader_elect:
            self.elector = LeaderElector(client, election, identity=identity, rng=rng)
        if config.settings.fence:
            self.fence = FenceKeeper(
                client,
                election,
                identity=identity,
                rng=rng,
                is_on_its_way=is_on_its_way,
                deposed=self._lose,
                line=lambda: foreseen(in_line(), claims_of),
            )

    def may_act(self) -> bool:
        """Whether this process leads right now; after a pause the lease's own task may run late."""
        if self.elector is None:
            return self._acts
        if self.elector.has_lost:
            self._lose("its time ran out while we were busy or asleep")
        return self.elector.holds

    @property
    def foresees(self) -> Callable[[], bool] | None:
        """Returns a call that asks the fence to list the first queued groups ahead; None without a fence.

        So its round trip overlaps with placing them.
        """
        fence = self.fence
        return None if fence is None else lambda: self.may_act() and fence.expect()

    async def elect(self, elector: LeaderElector, gained: Callable[[], None]) -> None:
        """Follows until the lease is gained, then renews it until it is lost or released."""
        await (elector.run_apart if elector.runs_apart else elector.run)(gained)
        if elector.has_lost:
            self._lose("it could not be renewed in time, or another holds it")

    async def notice_others(self) -> None:
        """Looks for a scheduler that leader election does not keep apart from this one; until cancelled."""
        if self._others is not None:
            await self._others.run()

    async def take_over(
        self, pods: WatchState, claims: Callable[[], WatchState | None], bumps: Bumps
    ) -> None:
        """Returns once no earlier leader's write can succeed, and the watches have shown those that did; the
        one of claims, if they are followed."""
        await self._queues.recall()
        await take_over(self._client, pods, claims, self.fence, bumps, self._rng)

    async def remember(self) -> None:
        """Saves state for the next leader; runs until cancelled."""
        if self._acts and self.elector is None and self.fence is None:
            await self._queues.recall()  # it leads from the start
        await self._queues.run()

    async def give_up(self, *, is_settled: bool) -> None:
        """Ends cleanly. With a bind unanswered the lease is left to expire: the bind may still succeed."""
        if self.has_lost:
            return
        await self._queues.save()
        if self.fence is not None:
            await self.fence.close()
        if self.elector is not None and is_settled and not self.has_lost:
            was_leading = self.elector.holds
            released = await self.elector.release()
            if was_leading:
                _log.info("the lease is released" if released else "the lease could not be released")

    def _lose(self, why: str) -> None:
        if self.has_lost:
            return
        self.has_lost = True
        self._ended()
        _log.error("the lease is lost, stopping", why=why)


def foreseen(
    groups: Iterable[Group], claims_of: Callable[[Pod], Iterable[ResourceClaim]]
) -> Iterator[Sequence[Expected]]:
    """Yields the pending pods of these queued groups with their resource claims; none for a group that was
    tried before.

    A group that did not fit once most likely will not fit again, and would only make the list longer.
    """
    for group in groups:
        gang = str(group.key)
        pods = [] if group.attempts else [info.pod for info in group.in_state(PENDING)]
        claims = {
            claim.metadata.uid: expected_claim(claim, gang)
            for pod in pods
            if pod.spec.resource_claims
            for claim in claims_of(pod)
        }
        yield [*(expected_of(pod, gang) for pod in pods), *claims.values()]

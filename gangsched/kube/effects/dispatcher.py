"""Carries out the core's effects: each goes into its lane, and its outcome comes back as an event.

Lives here: which lane an effect belongs to, the clean stop. Not here: sending binds
(kube.effects.binding_lane), patches of claims (kube.effects.claim_lane) and everything else
(kube.effects.write_lanes). Called by the assembly, which passes in the core's effects and an `emit_nowait`
that puts events into the core's inbox. That inbox is bounded by the core's own requests: each effect has at
most one outcome.

| lane | effects | order | connections | under load |
|---|---|---|---|---|
| binds | BindPod, CancelBinds | FIFO | 16 | first, and two on each |
| claims | Patch-, Make-, Drop-, NoteClaim, CancelBinds | FIFO | 16 | as binds: binds depend on them |
| reads | GetPod, GetClaim | FIFO | 4 | as binds: binds depend on them |
| bumps | BumpPod, BumpClaim | FIFO | 16 | as binds: they free reserved nodes and devices |
| evictions | EvictPod, DeletePod | FIFO | 2 | |
| patches | PatchPod | FIFO | 2 | up to 1 s after binds |
| status | WritePod…Status, …Condition, NominateNode | by object, the latest | 4 | up to 1 s after binds |
| events | RecordEvent | FIFO, bounded, oldest dropped | 4 | up to 2 s after binds |
| refusals | ReadRefusals | FIFO, bounded, oldest dropped | 1 | up to 2 s after binds |
| (plugins) | RunHook, CancelHooks, BlamePlugin | not here: extension.edge | | |

With a fence (kube.election.fence), binds, and hooks that run before or instead of one, wait until the fence
lists their pods, and patches of claims until it lists the claims.

The answers of all lanes are read together (kube.transport.readers), so many connections cost hardly more than
one; that is why statuses and events have several, though they are not urgent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import anyio
import msgspec

from gangsched.kube.client import ApiClient
from gangsched.kube.effects.binding_lane import BindingLane
from gangsched.kube.effects.bumps import Bumps
from gangsched.kube.effects.claim_lane import ClaimLane
from gangsched.kube.effects.refusals_lane import RefusalsLane
from gangsched.kube.effects.slow_lane import BusyLane, LaneOptions
from gangsched.kube.effects.write_lanes import EventLane, EvictionLane, PatchLane, ReadLane, StatusLane
from gangsched.kube.election.fence import Fenced
from gangsched.kube.election.fence_keeper import FenceKeeper
from gangsched.kube.transport.lane import always
from gangsched.kube.transport.readers import Readers
from gangsched.model.effects import (
    BindPod,
    BlamePlugin,
    BumpClaim,
    BumpPod,
    CancelBinds,
    CancelHooks,
    DeletePod,
    DropClaim,
    Effect,
    EvictPod,
    GetClaim,
    GetPod,
    MakeClaim,
    NominateNode,
    NoteClaim,
    PatchClaim,
    PatchPod,
    ReadRefusals,
    RecordEvent,
    RunHook,
    WritePodCondition,
    WritePodGroupStatus,
)
from gangsched.model.events import BindCancelled, BindSucceeded, ClaimCancelled, ClaimPatched, Event

MAX_WAITING = 200_000  # one status write for each pod of the largest cluster we support
MAX_EVENTS = 1_000
DRAIN_STEP_S = 0.01
# Sending these takes the lanes longer than a write takes the fence.
ENOUGH_BINDS = 128
# They act on behalf of a bind, or start something that only a bind ends.
_FENCED_POINTS = ("PreBind", "Bind")


class DispatcherStatistics(msgspec.Struct, gc=False):
    """Counts since the start, and current queue lengths."""

    n_binds_sent: int
    n_binds_unknown: int
    n_binds_throttled: int
    n_binds_waiting: int
    n_binds_in_flight: int
    n_claims_sent: int
    n_claims_unclear: int
    n_claims_throttled: int
    n_reads_sent: int
    n_bumps_sent: int
    n_fence_writes: int
    n_evictions_sent: int
    n_patches_sent: int
    n_status_sent: int
    n_status_dropped: int
    n_events_sent: int
    n_events_dropped: int
    n_events_repeated: int
    n_waiting: int


class _Either:
    """Two lanes that the slower ones give way to."""

    def __init__(self, one: BusyLane, other: BusyLane) -> None:
        self._one, self._other = one, other

    @property
    def is_busy(self) -> bool:
        return self._one.is_busy or self._other.is_busy


class Dispatcher:
    """The lanes, side by side. `run()` must be running for anything to be sent."""

    def __init__(
        self,
        client: ApiClient,
        *,
        emit_nowait: Callable[[Event], None],
        rng: Random,
        controller: str = "gangsched",
        instance: str = "",
        n_binds: int = 16,
        bind_timeout_s: float = 10.0,
        max_events: int = MAX_EVENTS,
        may_send: Callable[[], bool] = always,
        to_plugins: Callable[[RunHook | CancelHooks | BlamePlugin], None] | None = None,
        fence: FenceKeeper | None = None,
    ) -> None:
        """`may_send`: whether this process may still act; asked before every write.

        `to_plugins` takes the effects meant for plugins; without it there are no plugins. `fence`: an effect
        that may bind a pod is sent only after the pod is listed there.
        """
        self._emit = emit_nowait
        self._may_send = may_send
        self._to_plugins = to_plugins
        self._fence = fence
        self.bumps = Bumps(client, emit_nowait=emit_nowait, rng=rng)
        self._draining = False
        credentials = client.credentials
        self._readers = readers = Readers(credentials.network)
        self.binds = binds = BindingLane(
            credentials,
            emit_nowait=self._bind_answered,
            rng=rng,
            size=n_binds,
            timeout_s=bind_timeout_s,
            may_send=may_send,
            readers=readers,
        )
        self.claims = ClaimLane(
            credentials,
            emit_nowait=self._claim_answered,
            rng=rng,
            size=n_binds,
            timeout_s=bind_timeout_s,
            may_send=may_send,
            readers=readers,
        )
        urgent = _Either(binds, self.claims)
        reads: LaneOptions = {
            "rng": rng,
            "binds": urgent,
            "readers": readers,
            "size": 4,
            "limit": MAX_WAITING,
        }
        writes: LaneOptions = {**reads, "may_send": may_send}
        few: LaneOptions = {**writes, "size": 2}
        bounded: LaneOptions = {**writes, "limit": max_events}
        reads["timeout_s"] = 10.0
        self._reads = ReadLane(credentials, emit_nowait, **reads)
        self._evictions = EvictionLane(credentials, emit_nowait, **few)
        self._patches = PatchLane(credentials, emit_nowait, **few)
        self._status = StatusLane(credentials, emit_nowait, **writes)
        self._events = EventLane(
            credentials, emit_nowait, controller=controller, instance=instance, **bounded
        )
        one: LaneOptions = {**reads, "size": 1, "limit": max_events}
        self._refusals = RefusalsLane(credentials, emit_nowait, **one)
        self._takers = self._takers_by_type()
        self._lanes = (self._reads, self._evictions, self._patches, self._status, self._events)

    def _takers_by_type(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        """Where each effect goes; effects for plugins are dropped if there are no plugins."""
        takers: dict[type[Effect], Callable[[Any], None]] = {
            BindPod: self._bind,
            CancelBinds: self._cancel_binds,
            BumpPod: self.bumps.submit,
            GetPod: self._reads.submit,
            PatchClaim: self._patch_claim,
            MakeClaim: self._write_claim,
            DropClaim: self._write_claim,
            NoteClaim: self._write_claim,
            BumpClaim: self.bumps.submit,
            GetClaim: self._reads.submit,
            EvictPod: self._evictions.submit,
            DeletePod: self._evictions.submit,
            PatchPod: self._patches.submit,
            WritePodCondition: self._status.submit,
            WritePodGroupStatus: self._status.submit,
            NominateNode: self._status.submit,
            RecordEvent: self._events.submit,
            ReadRefusals: self._refusals.submit,
        }
        if self._to_plugins is not None:
            takers |= {
                RunHook: self._run_hook,
                CancelHooks: self._cancel_hooks,
                BlamePlugin: self._to_plugins,
            }
        return takers

    @property
    def n_binds_waiting(self) -> int:
        """Binds and patches of claims not yet sent, not even in part."""
        return self._n_unsent + (self._fence.fence.n_waiting if self._fence is not None else 0)

    @property
    def n_binds_ahead(self) -> int:
        """By how many binds the decisions are ahead of the lanes, or of the fence if that is more.

        So binds that were not listed ahead can gather for one write of the fence while others are sent.
        """
        if self._fence is None:
            return self._n_unsent
        fence = self._fence.fence
        return max(self._n_unsent + fence.n_released, fence.n_waiting - fence.n_released)

    @property
    def _n_unsent(self) -> int:
        return self.binds.n_unsent + self.claims.n_unsent

    @property
    def n_binds_in_flight(self) -> int:
        """Binds and patches of claims sent and not answered."""
        return self.binds.n_in_flight + self.claims.n_in_flight

    @property
    def n_waiting(self) -> int:
        """All other requests that are not done."""
        return sum(lane.n_waiting for lane in self._lanes) + self.bumps.n_open

    @property
    def is_settled(self) -> bool:
        """Whether every request that affects placement is answered: all but statuses and events."""
        binds = self.n_binds_in_flight or self.n_binds_waiting or self._reads.n_waiting or self.bumps.n_open
        return not (binds or self._evictions.n_waiting or self._patches.n_waiting)

    def warm(self) -> None:
        """Open the connections for binds now."""
        self.binds.warm()

    def submit(self, effects: Sequence[Effect]) -> None:
        """Put each effect into its lane; never blocks."""
        takers = self._takers
        for effect in effects:
            taker = takers.get(type(effect))
            if taker is not None:
                taker(effect)

    def _bind(self, effect: BindPod) -> None:
        if self._draining:
            self._emit(BindCancelled(effect.uid, effect.attempt))
        elif self._fence is not None:
            self._fence.submit(effect)
        else:
            self.binds.submit(effect)

    def _patch_claim(self, effect: PatchClaim) -> None:
        if self._draining:
            self._emit(ClaimCancelled(effect.uid, effect.ticket))
        elif self._fence is not None:
            self._fence.submit(effect)
        else:
            self.claims.submit(effect)

    def _write_claim(self, effect: MakeClaim | DropClaim | NoteClaim) -> None:
        """Sends what a new leader need not know of: until it is allocated a claim holds nothing, and a pod's
        status decides nothing."""
        if self._draining:
            self._emit(ClaimCancelled(effect.uid, effect.ticket))
        else:
            self.claims.submit(effect)

    def _claim_answered(self, event: Event) -> None:
        if self._fence is not None and isinstance(event, ClaimPatched):
            self._fence.fence.patched(event.uid, event.claim.metadata.resource_version)
        self._emit(event)

    def _bind_answered(self, event: Event) -> None:
        if isinstance(event, BindSucceeded):
            self._status.bound(event.uid)
        self._emit(event)

    def _cancel_binds(self, effect: CancelBinds) -> None:
        cause = effect.cause_id
        self._take_back(lambda one: isinstance(one, BindPod | PatchClaim) and one.cause_id == cause)
        self.binds.cancel(cause)
        self.claims.cancel(cause)

    def _run_hook(self, effect: RunHook) -> None:
        assert self._to_plugins is not None
        if self._fence is not None and effect.point in _FENCED_POINTS:
            self._fence.submit(effect)
        else:
            self._to_plugins(effect)

    def _cancel_hooks(self, effect: CancelHooks) -> None:
        assert self._to_plugins is not None
        self._take_back(lambda one: isinstance(one, RunHook) and one.ticket in effect.tickets)
        self._to_plugins(effect)

    def _take_back(self, is_meant: Callable[[Fenced], bool]) -> None:
        """Withdraw matching effects that the fence has not listed yet; a withdrawn hook gets no answer."""
        if self._fence is not None:
            for one in self._fence.fence.take_back(is_meant):
                if isinstance(one, BindPod):
                    self._emit(BindCancelled(one.uid, one.attempt))
                elif isinstance(one, PatchClaim):
                    self._emit(ClaimCancelled(one.uid, one.ticket))

    def _release(self, effects: Sequence[Fenced]) -> None:
        """The fence has listed them: send them, if this process still may act."""
        if not self._may_send():
            return
        for effect in effects:
            if isinstance(effect, BindPod):
                self.binds.submit(effect)
            elif isinstance(effect, PatchClaim):
                self.claims.submit(effect)
            elif self._to_plugins is not None:
                self._to_plugins(effect)

    def _has_enough(self) -> bool:
        return self._n_unsent >= ENOUGH_BINDS

    def cancel_all(self) -> None:
        """Withdraw all unsent binds and patches of claims."""
        self._take_back(lambda one: True)
        self.binds.cancel_all()
        self.claims.cancel_all()

    async def run(self) -> None:
        """Run all lanes until cancelled."""
        try:
            async with anyio.create_task_group() as group:
                for lane in self._lanes:
                    group.start_soon(lane.run)
                group.start_soon(self.claims.run)
                group.start_soon(self.bumps.run)
                group.start_soon(self._refusals.run)
                if self._fence is not None:
                    run = partial(self._fence.run, has_enough=self._has_enough)
                    group.start_soon(run, self._release)
                await self.binds.run()
        finally:
            self._readers.close()

    async def drain(self, grace_s: float) -> bool:
        """Stop cleanly: send no further binds, wait for those in flight, then finish the other writes.

        True if everything was done within `grace_s`. The caller cancels `run()` afterwards.
        """
        self._draining = True
        self.cancel_all()
        self._status.hurry = self._events.hurry = True
        with anyio.move_on_after(grace_s):
            # Happens once per process; a signal from every lane would add cost to each request.
            while self.n_binds_in_flight or self.n_binds_waiting or self.n_waiting:  # noqa: ASYNC110
                await anyio.sleep(DRAIN_STEP_S)
            return True
        return False

    def statistics(self) -> DispatcherStatistics:
        """Counts for metrics."""
        return DispatcherStatistics(
            n_binds_sent=self.binds.n_sent,
            n_binds_unknown=self.binds.n_unknown,
            n_binds_throttled=self.binds.n_throttled,
            n_binds_waiting=self.binds.n_unsent,
            n_binds_in_flight=self.binds.n_in_flight,
            n_claims_sent=self.claims.n_sent,
            n_claims_unclear=self.claims.n_unknown,
            n_claims_throttled=self.claims.n_throttled,
            n_reads_sent=self._reads.n_sent,
            n_bumps_sent=self.bumps.n_sent,
            n_fence_writes=self._fence.fence.n_written if self._fence is not None else 0,
            n_evictions_sent=self._evictions.n_sent,
            n_patches_sent=self._patches.n_sent,
            n_status_sent=self._status.n_sent,
            n_status_dropped=self._status.n_dropped,
            n_events_sent=self._events.n_sent,
            n_events_dropped=self._events.n_dropped,
            n_events_repeated=self._events.n_repeated,
            n_waiting=self.n_waiting,
        )

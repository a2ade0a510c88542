"""ClaimServer: the scheduler's requests about ResourceClaims, as lab.sim.world.api has those about pods.

Every check that kube-apiserver makes on a write of a claim is made here: UID and version first, then what may
change; and on a pod's status that states a claim. Other actors write claims with the store's plain methods,
by the helpers at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.resource_claims.objects import Json, raw_of, read
from gangsched.lab.sim.world.store import SimStore
from gangsched.lab.sim.world.weather import BindFate, Weather
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.resource_claims.objects import CLAIMS, MAX_RESERVED_FOR, ResourceClaim

# Few, so that some patches have not left the process when they are withdrawn.
_PARALLEL = 4
# As of pods' bumps in lab.sim.world.api.
_BUMP_TIMEOUT_S = 0.5
Written = Callable[[ResourceClaim, ResourceClaim], None]
_Write = ef.PatchClaim | ef.MakeClaim | ef.DropClaim | ef.NoteClaim
_WRITES = (ef.PatchClaim, ef.MakeClaim, ef.DropClaim, ef.NoteClaim)
_Done = ResourceClaim | tuple[int, str] | None


class ClaimServer:
    """One process's requests in flight. there_s: the delay until a request of a kind reaches the server."""

    def __init__(
        self,
        store: SimStore,
        timeline: Timeline,
        weather: Weather,
        answer: Callable[[ev.Event], None],
        there_s: Callable[[str], float],
        peer: ClaimServer | None = None,
    ) -> None:
        self._store = store
        self._timeline = timeline
        self._weather = weather
        self._answer = answer
        self._there_s = there_s
        self.on_written: list[Written] = [] if peer is None else peer.on_written
        """Told of each patch of a scheduler that has taken effect: the claim before it, and after."""
        self.patched: Callable[[str, str], None] = lambda uid, version: None
        """Told of each version that a patch has made, as far as it was answered (kube.election.fence)."""
        self.checks_version = True
        self._waiting: deque[_Write] = deque()
        self._n_sent = self._n_asked = self._session = 0

    @property
    def n_open(self) -> int:
        """Requests without an answer."""
        return len(self._waiting) + self._n_sent + self._n_asked

    def hang_up(self) -> None:
        """Ends the process; what it has sent may still arrive."""
        self._session += 1
        self._waiting.clear()
        self._n_sent = self._n_asked = 0

    def carry_out(self, effect: _Write | ef.GetClaim | ef.BumpClaim) -> None:
        if isinstance(effect, _WRITES):
            self._waiting.append(effect)
            self._pump()
        elif isinstance(effect, ef.GetClaim):
            self._n_asked += 1
            self._timeline.after(self._there_s("reads"), partial(self._get, effect, self._session))
        else:
            self._n_asked += 1
            self.bump(effect, partial(self._bumped, effect, self._session))

    def cancel(self, cause_id: str) -> None:
        """Withdraws what has not been sent."""
        taken = [one for one in self._waiting if one.cause_id == cause_id]
        self._waiting = deque(one for one in self._waiting if one.cause_id != cause_id)
        for one in taken:
            self._later(ev.ClaimCancelled(one.uid, one.ticket), 0.0)

    # -- patches ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        while self._waiting and self._n_sent < _PARALLEL:
            self._n_sent += 1
            self._send(self._waiting.popleft())

    def _send(self, patch: _Write) -> None:
        fate, there_s = self._weather.bind_fate(), self._there_s("claims")
        unclear = _answer(patch, (0, fate.value))
        if fate in (BindFate.LOST_BEFORE, BindFate.LOST_AFTER, BindFate.LATE):
            timeout_s = self._weather.timeout_s()
            if fate is not BindFate.LOST_BEFORE:
                delay_s = min(there_s, timeout_s) if fate is BindFate.LOST_AFTER else timeout_s + there_s
                self._timeline.after(delay_s, partial(self.commit, patch))
            self._later(unclear, timeout_s, ends=True)
        elif fate is BindFate.PROXIED:
            if self._weather.coin():
                self._timeline.after(there_s, partial(self.commit, patch))
            self._later(unclear, there_s, ends=True)
        else:
            self._timeline.after(there_s, partial(self._arrive, patch, fate, self._session))

    def _arrive(self, patch: _Write, fate: BindFate, session: int) -> None:
        done = _REFUSALS.get(fate) or self.commit(patch)
        if session == self._session:
            self._later(_answer(patch, done), self._weather.latency_s(), ends=True)

    def commit(self, patch: _Write) -> _Done:
        """The server takes in a write: the claim after it, None where it has no claim to show; or the code
        that it answers with, 0: nothing has changed."""
        key = (patch.namespace, patch.name)
        if isinstance(patch, ef.NoteClaim):
            return self._state(patch, key)
        before: ResourceClaim | None = self._store.objects[CLAIMS].get(key)
        if isinstance(patch, ef.MakeClaim):
            return self._make(patch, before)
        if before is None:
            return 404, f'resourceclaims "{patch.name}" not found'
        if before.metadata.uid != patch.uid:
            return 422, "metadata.uid: field is immutable"
        if self.checks_version and before.metadata.resource_version != patch.resource_version:
            return 409, "the object has been modified"
        if isinstance(patch, ef.DropClaim):
            delete_claim(self._store, before)
            return None
        after = self._merged(before, patch)
        if isinstance(after, str):
            return 422, after
        if after == before:
            return 0, "answered with the claim as it was"
        stored = put_claim(self._store, after)
        for told in self.on_written:
            told(before, stored)
        return stored

    def _make(self, effect: ef.MakeClaim, before: ResourceClaim | None) -> _Done:
        if before is not None:
            return 409, f'resourceclaims "{effect.name}" already exists'
        raw: Json = msgspec.json.decode(effect.body)
        raw["metadata"]["uid"] = f"uid-{effect.name}-{self._timeline.now_s:.6f}"
        return put_claim(self._store, read(raw, ResourceClaim))

    def _state(self, effect: ef.NoteClaim, key: tuple[str, str]) -> _Done:
        pod = self._store.pods.get(key)
        if pod is None or pod.metadata.uid != effect.uid:
            return 404, f'pods "{effect.name}" not found'
        if pod.metadata.resource_version != effect.resource_version:
            return 409, "the object has been modified"
        self._store.update_pod(pod, status=replace(pod.status, extended_resource_claim_status=effect.claim))
        return None

    def _merged(self, before: ResourceClaim, patch: ef.PatchClaim) -> ResourceClaim | str:
        raw, body = raw_of(before), msgspec.json.decode(patch.patch)
        if not patch.is_status:
            meta = body["metadata"]
            annotations = {**raw["metadata"].get("annotations", {}), **meta.get("annotations", {})}
            raw["metadata"] |= {**meta, "annotations": annotations}
            return read(raw, ResourceClaim)
        status: Json = raw.setdefault("status", {})
        entries = _entries(status)
        had = set(entries)
        written: Json = body["status"]
        if "reservedFor" in written:
            entries = {one["uid"]: one for one in written["reservedFor"] or ()}
        if "allocation" in written:
            allocation = written["allocation"]
            if allocation is None:
                status.pop("allocation", None)
            elif "allocation" in status:
                return "status.allocation: field is immutable"
            else:
                stamp = raw_of(self._store.wall_time())
                status["allocation"] = {"allocationTimestamp": stamp, **allocation}
        if entries and "allocation" not in status:
            return "status.reservedFor: may not be specified when `allocated` is not set"
        if len(entries) > MAX_RESERVED_FOR:
            return f"status.reservedFor: must have at most {MAX_RESERVED_FOR} items"
        if entries.keys() - had and before.metadata.deletion_timestamp is not None:
            return "status.reservedFor: new entries may not be added to a claim in deletion"
        status["reservedFor"] = list(entries.values())
        if not entries:
            del status["reservedFor"]
        return read(raw, ResourceClaim)

    # -- reads and bumps -------------------------------------------------------------------------------

    def _get(self, effect: ef.GetClaim, session: int) -> None:
        if session != self._session:
            return
        if self._weather.is_proxied():  # proves nothing: it is asked again
            self._later(ev.ClaimUnread(effect.uid, BindFate.PROXIED.value), self._weather.latency_s())
            self._timeline.after(self._there_s("reads"), partial(self._get, effect, session))
            return
        answer = ev.ClaimRead(effect.uid, self._stored(effect))
        self._later(answer, self._weather.latency_s(), asked=True)

    def bump(self, effect: ef.BumpClaim, done: Callable[[], None]) -> None:
        """Changes the claim's version, and retries until an answer arrives."""
        fate, there_s = self._weather.bind_fate(), self._there_s("bumps")
        if fate is not BindFate.LOST_BEFORE:
            self._timeline.after(there_s, partial(self._bump, effect))
        if fate is BindFate.ARRIVES:
            self._timeline.after(there_s + self._weather.latency_s(), done)
        else:
            again_s = min(self._weather.timeout_s(), _BUMP_TIMEOUT_S)
            self._timeline.after(again_s, partial(self.bump, effect, done))

    def _bump(self, effect: ef.BumpClaim) -> None:
        now = self._stored(effect)
        if now is not None:
            put_claim(self._store, now)

    def _bumped(self, effect: ef.BumpClaim, session: int) -> None:
        if session == self._session:
            self._n_asked -= 1
            self._answer(ev.ClaimBumped(effect.uid, self._stored(effect)))

    def _stored(self, effect: ef.GetClaim | ef.BumpClaim) -> ResourceClaim | None:
        now: ResourceClaim | None = self._store.objects[CLAIMS].get((effect.namespace, effect.name))
        if isinstance(effect, ef.GetClaim) and effect.owner:
            return now if now is not None and now.extended_for == effect.owner else None
        return now if now is not None and now.metadata.uid == effect.uid else None

    def _later(self, event: ev.Event, delay_s: float, *, ends: bool = False, asked: bool = False) -> None:
        session = self._session

        def arrive() -> None:
            if session != self._session:
                return
            if isinstance(event, ev.ClaimPatched):
                self.patched(event.uid, event.claim.metadata.resource_version)
            self._answer(event)
            self._n_asked -= asked
            if ends:
                self._n_sent -= 1
                self._pump()

        self._timeline.after(delay_s, arrive)


def _entries(status: Json) -> dict[str, Any]:
    return {one["uid"]: one for one in status.get("reservedFor", ())}


def put_claim(store: SimStore, claim: ResourceClaim) -> ResourceClaim:
    """Stores a claim, in a new version; without a finalizer one that is being deleted goes."""
    key = (claim.metadata.namespace, claim.metadata.name)
    if claim.metadata.deletion_timestamp is not None and not claim.metadata.finalizers:
        store.remove_object(CLAIMS, key)
        return claim
    store.put_object(CLAIMS, claim)
    stored: ResourceClaim = store.objects[CLAIMS][key]
    return stored


def delete_claim(store: SimStore, claim: ResourceClaim) -> None:
    """Deletes a claim, as far as its finalizers allow."""
    if claim.metadata.deletion_timestamp is None:
        put_claim(
            store, replace(claim, metadata=replace(claim.metadata, deletion_timestamp=store.wall_time()))
        )


def _answer(effect: _Write, done: _Done) -> ev.Event:
    """The event that an answer becomes."""
    uid, ticket = effect.uid, effect.ticket
    if isinstance(effect, ef.NoteClaim):
        return ev.ClaimNoted(uid, ticket, *(done if isinstance(done, tuple) else ()))
    if isinstance(done, ResourceClaim):
        return ev.ClaimPatched(uid, ticket, done)
    if done is None:
        return ev.ClaimGone(uid, ticket)
    code, why = done
    if code == 0 or (code == 409 and not isinstance(effect, ef.MakeClaim)):
        return ev.ClaimUnclear(uid, ticket, why)
    return ev.ClaimRefused(uid, ticket, code, "Refused", why)


_REFUSALS = {
    BindFate.CONFLICT: (409, "the object has been modified"),
    BindFate.FORBIDDEN: (403, "cannot patch resource resourceclaims/status"),
    BindFate.INVALID: (422, "Invalid value"),
}

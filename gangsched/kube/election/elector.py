"""Drives an Election against the API server: the lease lane, over one connection of its own.

Lives here: requests, their deadlines, waiting, the Lease object as JSON. Not here: what an answer means for
who leads (kube.election.lease).

It runs in a thread of its own (`run_apart`), so that no turn of the core holds up a renewal: what a turn
costs depends on objects that users write, and one such object must not end one replica after the other. A
process whose loop is stuck must not lead for ever either: while the loop has not run for MAX_TURN_S nothing
is renewed, and after renewDeadline more the lease is lost. It is renewed at once when the loop runs again
before that. Whether this process may act is asked at every effect by the clock, so a turn that outlives the
lease sends nothing. The simulation's network lives on one loop: there the elector is a task on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

import anyio
import msgspec
import structlog

from gangsched.config import LeaderElectionSettings
from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.election.lease import Done, Election, ElectionState, LeaseRecord, Wait
from gangsched.kube.election.steps import Create, Get, Update
from gangsched.kube.evidence import Target, is_doubtful, is_gone, outline_of
from gangsched.kube.reach import is_logged
from gangsched.model.text import bounded

_log = structlog.get_logger(__name__)

MIN_TIMEOUT_S = 0.05
# A leader whose loop has not run for this long does not renew its lease.
MAX_TURN_S = 30.0
# How often the loop shows that it runs.
BEAT_S = 0.5


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""


class _Lease(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode_any = bounded.lenient_decoder(dict[str, Any])


def suspend_aware_clock_s() -> float:
    """Monotonic seconds that include machine suspend, where the system has such a clock."""
    return time.clock_gettime(_CLOCK) if _CLOCK is not None else time.monotonic()


_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class LeaderElector:
    """Drives an Election against the API server over one connection of its own: the lease lane."""

    def __init__(
        self,
        client: ApiClient,
        settings: LeaderElectionSettings,
        *,
        identity: str,
        rng: Random,
        clock_s: Callable[[], float] = suspend_aware_clock_s,
    ) -> None:
        self.election = Election(identity, settings, rng=rng)
        self.runs_apart = client.credentials.network.spans_threads
        self._client = client.apart() if self.runs_apart else client.another()
        self._settings = settings
        self._clock_s = clock_s
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{settings.resource_namespace}/leases"
        self._target = Target(
            "leases", "Lease", settings.resource_name, settings.resource_namespace, "coordination.k8s.io"
        )
        self._lease: dict[str, Any] = {}
        self._wake = anyio.Event()
        self._done = anyio.Event()
        self._logged = ""
        self._leader = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat_s = math.inf
        self._is_abandoned = False
        self._logged_stuck = False

    @property
    def holds(self) -> bool:
        """Whether this process may act as the leader at this moment."""
        return self.election.holds(self._clock_s())

    @property
    def has_lost(self) -> bool:
        """Whether it led and may not act any more, even if its task has not noticed yet."""
        state = self.election.state
        is_over = state is ElectionState.LEADING and self._clock_s() >= self.election.deadline_s
        return is_over or state is ElectionState.LOST

    async def run(self, on_leading: Callable[[], None]) -> None:
        """Returns when the lease is lost or released; calls `on_leading` when it is acquired."""
        self._loop = asyncio.get_running_loop()
        async with self._client:
            leading = False
            while not isinstance(step := self.election.next(self._clock_s(), _wall()), Done):
                if self._is_abandoned:
                    return
                if isinstance(step, Wait):
                    await self._sleep(step.until_s - self._clock_s())
                    continue
                if self._is_stuck(step):
                    await self._sleep(BEAT_S)
                    continue
                await self._ask(step)
                if self.holds and not leading:
                    leading = True
                    on_leading()
                self._say_leader()
        self._done.set()

    async def run_apart(self, on_leading: Callable[[], None]) -> None:
        """As `run`, in a thread of its own; `on_leading` is called on this loop.

        If cancelled, nothing is renewed any more: the lease runs out, unless it was released.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(error: BaseException | None) -> None:
            if not ended.done():
                ended.set_result(None) if error is None else ended.set_exception(error)

        def leads() -> None:
            loop.call_soon_threadsafe(on_leading)

        def body() -> None:
            error: BaseException | None = None
            try:
                anyio.run(self.run, leads)
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(end, error)

        self._beat_s = self._clock_s()
        threading.Thread(target=body, name="lease", daemon=True).start()
        try:
            while not ended.done():
                self._beat_s = self._clock_s()
                await asyncio.wait([ended], timeout=BEAT_S)
            ended.result()
        finally:
            self._is_abandoned = True
            self._wake_up()

    def _is_stuck(self, step: Get | Create[LeaseRecord] | Update[LeaseRecord]) -> bool:
        """Whether to ask for nothing now, because the scheduler's own loop has not run for too long."""
        late_s = self._clock_s() - self._beat_s
        if late_s <= MAX_TURN_S:
            self._logged_stuck = False
            return False
        if not self._logged_stuck:
            self._logged_stuck = True
            _log.error(
                "the scheduler's loop is stuck: its lease is not renewed",
                for_s=round(late_s),
                asked=type(step).__name__.lower(),
            )
        return True

    async def _sleep(self, for_s: float) -> None:
        self._wake = anyio.Event()
        with anyio.move_on_after(max(0.0, for_s)):
            await self._wake.wait()

    def _wake_up(self) -> None:
        """Lets `run` look again, from whichever thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(lambda: self._wake.set())

    async def release(self) -> bool:
        """Give the lease back and wait for the answer; false if that took too long."""
        if self._loop not in (None, asyncio.get_running_loop()):
            assert self._loop is not None
            release = self._release()
            try:
                asked = asyncio.run_coroutine_threadsafe(release, self._loop)
            except RuntimeError:  # it has ended
                release.close()
                return self.election.state is ElectionState.RELEASED
            with anyio.move_on_after(self._settings.renew_deadline_s):
                return await asyncio.wrap_future(asked)
            return False
        return await self._release()

    async def _release(self) -> bool:
        self.election.release()
        self._wake.set()
        with anyio.move_on_after(self._settings.renew_deadline_s / 2):
            await self._done.wait()
        return self.election.state is ElectionState.RELEASED

    async def _ask(self, step: Get | Create[LeaseRecord] | Update[LeaseRecord]) -> None:
        """One request, within its deadline; its answer goes to the election."""
        election = self.election
        # As kube-scheduler: two hanging requests must not use up the renew deadline.
        timeout_s = self._settings.renew_deadline_s / 2
        if election.state is ElectionState.LEADING:
            timeout_s = min(timeout_s, election.deadline_s - self._clock_s())
        timeout_s = max(timeout_s, MIN_TIMEOUT_S)
        try:
            # Covers the whole call: renewing credentials has its own, longer patience.
            with anyio.fail_after(timeout_s):
                body = await self._send(step, timeout_s)
            found = _decode_any(body)
            lease = msgspec.convert(found, _Lease)
            self._check(step, body, lease)
            self._lease = found
        except (ApiError, TimeoutError, ValueError) as error:
            if isinstance(step, Get) and isinstance(error, ApiError) and is_gone(error, self._target):
                election.absent(self._clock_s())
            else:
                election.failed(self._clock_s())
                await self._complain(step, error)
            return
        if isinstance(step, Get):
            election.found(_record(lease.spec), lease.metadata.resource_version, self._clock_s())
        else:
            election.written(lease.metadata.resource_version, self._clock_s())
            self._logged = ""

    def _check(
        self, step: Get | Create[LeaseRecord] | Update[LeaseRecord], body: bytes, lease: _Lease
    ) -> None:
        """Check that this is our lease and, after a write, that it holds what we wrote; else we do not lead.

        Raises: ApiError.
        """
        if outline_of(body, self._target) is None:
            raise ApiError(f"not the API server's own answer: {body[:200].decode('utf-8', 'replace')}")
        if isinstance(step, Get):
            return
        found = _record(lease.spec)
        if (found.holder, found.renewed) != (step.record.holder, step.record.renewed):
            raise ApiError(
                f"the lease was written, but came back with another holder: {found.holder or 'none'}"
            )

    async def _send(self, step: Get | Create[LeaseRecord] | Update[LeaseRecord], timeout_s: float) -> bytes:
        name = self._settings.resource_name
        if isinstance(step, Get):
            return await self._client.get(f"{self._collection}/{name}", timeout_s=timeout_s)
        if isinstance(step, Create):
            body = _document({"metadata": {"name": name}}, step.record)
            return await self._client.post(self._collection, body, timeout_s=timeout_s)
        # Keep fields that other clients have set on the object.
        metadata = {**self._lease.get("metadata", {}), "resourceVersion": step.version}
        body = _document({**self._lease, "metadata": metadata}, step.record)
        return await self._client.put(f"{self._collection}/{name}", body, timeout_s=timeout_s)

    async def _complain(
        self, step: Get | Create[LeaseRecord] | Update[LeaseRecord], error: Exception
    ) -> None:
        code = error.code if isinstance(error, ApiError) else 0
        if isinstance(error, ApiError) and is_doubtful(error, self._target):
            self._client.credentials.answers.doubt("GET" if isinstance(step, Get) else "PUT")
            code = 0
        if code == 0:
            self._client.close()  # the connection may be as dead as it looks
        if code == 409:
            return  # another process was faster: the next GET shows which
        if is_logged(error):
            return
        text = str(error) or "no answer in time"
        if text != self._logged:
            self._logged = text
            _log.warning("the lease cannot be read or written", asked=type(step).__name__.lower(), err=text)

    def _say_leader(self) -> None:
        holder = self.election.observed.holder
        if holder != self._leader:
            self._leader = holder
            if holder and holder != self.election.identity:
                _log.info("following", leader=holder)


def _record(spec: _Spec) -> LeaseRecord:
    return LeaseRecord(
        spec.holder_identity or "",
        spec.lease_duration_seconds or 0,
        spec.acquire_time or "",
        spec.renew_time or "",
        spec.lease_transitions or 0,
    )


def _document(lease: dict[str, Any], record: LeaseRecord) -> bytes:
    spec = {
        **(lease.get("spec") or {}),
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    }
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return msgspec.json.encode({**lease, **kind, "spec": spec})


def _wall() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

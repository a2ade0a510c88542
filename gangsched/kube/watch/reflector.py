"""The reflector: drives one kind's WatchState against the API server and hands its events on.

Lives here: requests, waiting, backoff, finding dead connections, kinds that the server does not serve. Not
here: what the answers mean (kube.watch.watch_state). Started by the assembly, one `Reflector.run()` a kind,
all at the same time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from random import Random

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient, offers
from gangsched.kube.reach import is_logged
from gangsched.kube.same_cluster import SameCluster
from gangsched.kube.transport.backoff import Backoff
from gangsched.kube.transport.connection import Connection
from gangsched.kube.transport.pace import Pace
from gangsched.kube.transport.stream import Stream, open_stream
from gangsched.kube.watch.decode import Kind
from gangsched.kube.watch.envelopes import continue_of
from gangsched.kube.watch.first_read import FirstRead
from gangsched.kube.watch.watch_state import ListPage, WatchState
from gangsched.kube.watch.watch_timing import WatchTiming
from gangsched.model.events import Event, KindMissing

_log = structlog.get_logger(__name__)

# A wake-up, and the core's turn after it, cost as much as reading several events, so under load events are
# read together. Decisions lose nothing: more binds wait ahead of them than can be sent in this time.
HOLD_S = 0.05
# For kinds other than pods, fewer events count as many: we and kubelets cause most of them, and a turn for
# each group status costs as much as writing it.
FEWER = 8
# Older servers say Gone. TooLarge: the server's history was set back and our version is ahead of it.
_TOO_OLD = ("Expired", "Gone", "ResourceVersionTooLarge")

Emit = Callable[[list[Event]], Awaitable[None]]


def reading_pace() -> Pace:
    """How long events may gather before they are read."""
    return Pace(HOLD_S)


class Reflector:
    """Follows one kind, from the API server to `emit`; awaiting `emit` is the back-pressure.

    Counters: n_lists, n_watches, n_dead (silent watches found dead). `watching`: a watch is open now.
    """

    def __init__(
        self,
        client: ApiClient,
        kind: Kind,
        emit: Emit,
        *,
        rng: Random,
        timing: WatchTiming | None = None,
        pace: Pace | None = None,
        same_cluster: SameCluster | None = None,
    ) -> None:
        """`pace`: shared by all reflectors of one core, so that quiet kinds wait too. `same_cluster`: asked
        before the kind is followed again after an outage, or is listed again."""
        # Its own few connections: when one is dead all are dropped, and no other kind's watch is affected.
        self._client = client.another()
        self._emit = emit
        self._rng = rng
        self._timing = timing or WatchTiming()
        first_s, max_s = self._timing.backoff_s
        self._backoff = Backoff(rng, first_s=first_s, max_s=max_s)
        soon = Backoff(rng, first_s=first_s, max_s=min(max_s, self._timing.unread_backoff_s))
        self._first = FirstRead(soon, is_optional=kind.is_optional, unread_s=self._timing.unread_s)
        self._version = "" if kind.versions else "v1"
        self._logged = ""
        self._pace = pace or reading_pace()
        self._own_pace = self._pace if kind.name == "pods" else Pace(HOLD_S, many=FEWER)
        self._emitting = False
        self._has_heard = False  # on the watch that is open
        self._dead = False
        self._missing = False
        self._is_relisting = False
        self._same_cluster = same_cluster
        self._in_doubt = False
        self._scope: anyio.CancelScope | None = None
        self.watching = False
        self.kind = kind
        self.state = WatchState(kind, version=self._version or kind.versions[0])
        self.last_heard_s = -math.inf
        self.n_lists = 0
        self.n_watches = 0
        self.n_dead = 0

    @property
    def is_missing(self) -> bool:
        """Whether the server does not serve the kind, or not to us; retried now and then."""
        return self._missing

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        async with self._client:
            await self._follow()

    def emit_all(self) -> None:
        """List and emit everything again: a new listener needs the events that were skipped before."""
        self._is_relisting = True
        # Events waiting for the core are already applied here; if dropped, a deletion would be lost for good.
        if self._scope is not None and not self._emitting:
            self._scope.cancel()

    async def _follow(self) -> None:
        while True:
            try:
                if self._is_relisting:
                    self._is_relisting = False
                    self.state.emit_all()
                if not self._version and not await self._resolve():
                    # Known objects stay: a group's pods still exist and still belong together.
                    self.state.missing()
                    await self._say_missing("API not offered by the server; checking for it now and then")
                    await anyio.sleep(self._timing.missing_s * self._rng.uniform(0.8, 1.2))
                    continue
                if self._in_doubt and self._same_cluster is not None:
                    await self._same_cluster.check(self._client)
                self._in_doubt = False
                await self._step()
            except ApiError as error:
                await self._failed(error)

    async def _say_missing(self, why: str, *, is_forbidden: bool = False) -> None:
        if not self._missing:
            self._missing = True
            _log.info(why, kind=self.kind.name)
            await self._emit([KindMissing(self.kind.name, is_forbidden=is_forbidden)])

    async def _resolve(self) -> bool:
        """Find the first version of the kind that the server serves now."""
        for version in self.kind.versions:
            if await offers(self._client, self.kind.group, version, self.kind.resource):
                self._version = version
                self.state.use_version(version)
                return True
        return False

    async def _step(self) -> None:
        request = self.state.next_request()
        if isinstance(request, ListPage):
            await self._list(request)
        else:
            await self._watch(request.resource_version)

    async def _list(self, first: ListPage) -> None:
        """Read the list to its end, prefetching the next page while one is processed. Raises: ApiError."""
        if not first.token:
            self.n_lists += 1
        send, receive = anyio.create_memory_object_stream[bytes | ApiError](0)
        async with receive, anyio.create_task_group() as group:
            group.start_soon(self._fetch, first.token, send)
            failure = await self._take_in(receive)
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _fetch(self, token: str, pages: MemoryObjectSendStream[bytes | ApiError]) -> None:
        limit = self._timing.page_limit or self.kind.page_limit
        params = {**self.kind.selector, "limit": str(limit)}
        async with pages:
            while True:
                if token:
                    params["continue"] = token
                try:
                    body = await self._client.get(self.kind.path(self._version), params, timeout_s=60.0)
                except ApiError as error:
                    await pages.send(error)
                    return
                token = continue_of(body)
                await pages.send(body)
                del body  # megabytes
                if not token:
                    return

    async def _take_in(self, pages: MemoryObjectReceiveStream[bytes | ApiError]) -> ApiError | None:
        """Emit the pages' events until the list is complete or the prefetched page is not the next one."""
        async for page in pages:
            if isinstance(page, ApiError):
                return page
            self.last_heard_s = time.monotonic()
            token = continue_of(page)
            try:
                events = self.state.page(page)
            except ApiError as error:
                return error
            del page  # freed before the core catches up
            if events:
                await self._emit(events)
            request = self.state.next_request()
            if not isinstance(request, ListPage):
                self._recovered()
                return None
            if request.token != token:
                return None
        return None

    async def _watch(self, resource_version: str) -> None:
        """One watch, from opening to end, however it ends. Raises: ApiError."""
        self.n_watches += 1
        started_s = time.monotonic()
        watch_s = self._rng.uniform(*self._timing.watch_s)
        params = {
            **self.kind.selector,
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(watch_s))),
        }
        failure: ApiError | None = None
        try:
            # The list has just come over it; a new one would make two connections per kind for the server.
            warm = self._client.take_idle()
            async with self._stream(params, timeout_s=self._timing.open_timeout_s, warm=warm) as stream:
                self.watching = True
                failure = await self._read(stream)
        finally:
            self.watching = False
            self.state.closed()
        if failure is not None:
            raise failure
        if self._dead:
            self._dead = False
            self._client.close()  # idle connections to the same place may be dead too
        worked = self.state.resource_version != resource_version
        if worked or time.monotonic() - started_s >= self._timing.worked_s:
            self._backoff.reset()
        else:
            await anyio.sleep(self._backoff.next_s())  # for a server that hangs up at once

    def _stream(
        self, params: Mapping[str, str], *, timeout_s: float, warm: Connection | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        path = self.kind.path(self._version)
        return open_stream(self._client.credentials, path, params, timeout_s=timeout_s, warm=warm)

    async def _read(self, stream: Stream) -> ApiError | None:
        """Read until the end or a dead connection; returns the server's ERROR line, if it sent one."""
        self.last_heard_s = time.monotonic()
        self._emitting = self._has_heard = False
        hold_s = 0.0
        async with anyio.create_task_group() as group:
            self._scope = group.cancel_scope
            group.start_soon(self._find_silence, group.cancel_scope)
            try:
                while True:
                    chunk = await stream.read(hold_s)
                    if not chunk:
                        break
                    self.last_heard_s = time.monotonic()
                    self._has_heard = True
                    events = self.state.lines(chunk)
                    hold_s = self._hold_s(len(events))
                    if events:
                        self._emitting = True
                        await self._emit(events)
                        self._emitting = False
                        self.last_heard_s = time.monotonic()
                        self._recovered()
                    if self.state.failure is not None:
                        return self.state.failure
                    if self._is_relisting:
                        break
            except OSError as error:
                _log.debug("watch cut", kind=self.kind.name, err=str(error))
            finally:
                self._scope = None
                group.cancel_scope.cancel()
        return None

    def _hold_s(self, n_events: int) -> float:
        hold_s = self._pace.hold_s(n_events, self.last_heard_s)
        if self._own_pace is not self._pace:
            hold_s = max(hold_s, self._own_pace.hold_s(n_events, self.last_heard_s))
        return hold_s

    async def _find_silence(self, watch: anyio.CancelScope) -> None:
        """Cut a watch that is silent although events exist.

        A half-open connection is found by the kernel's keepalive; a proxy or a server that stalls only this
        stream is not. So after a silence another connection opens a short watch from the same
        resourceVersion: what it receives, the silent one should have received. The collection's
        resourceVersion would not do as a probe, since it rises with every write to any kind. A refusal (429,
        5xx) proves nothing, and a working watch is most valuable just then, so it is kept.

        A watch that is silent for longer than a bookmark may take is replaced even if the probe finds
        nothing: its end may have been lost on the way, which shows only at the next change, and resuming
        costs one request. It counts as dead if it received something before. If it never did, the kind is
        idle: kube-apiserver sends only bookmarks newer than the watch's start (cacheWatcher.processInterval).
        """
        timing = self._timing
        while True:
            # This watch may live long without any other request; it ends when the credentials have changed.
            await self._client.credentials.headers()
            if self._emitting:
                # We do not read while the core catches up; do not cut events that are waiting for it.
                await anyio.sleep(timing.silence_s)
                continue
            idle_s = time.monotonic() - self.last_heard_s
            if idle_s < timing.silence_s:
                await anyio.sleep(timing.silence_s - idle_s + 0.01)
                continue
            heard_s = self.last_heard_s
            missed = await self._probe()
            await anyio.sleep(timing.grace_s)
            is_late = time.monotonic() - heard_s >= timing.bookmark_s
            if not missed and is_late and self._has_heard:
                missed = f"nothing in {timing.bookmark_s:g} s, not even a bookmark"
            if self.last_heard_s != heard_s or self._emitting:
                continue
            if not missed and is_late:
                _log.debug("watch of an idle kind, opening it anew", kind=self.kind.name)
                watch.cancel()
                return
            if missed:
                self.n_dead += 1
                self._dead = True
                _log.warning("watch is dead, resuming", kind=self.kind.name, why=missed)
                watch.cancel()
                return
            await anyio.sleep(max(timing.silence_s - timing.grace_s - timing.probe_s, 0.01))

    async def _probe(self) -> str:
        """The reason why the watch must be dead, or ""."""
        params = {
            **self.kind.selector,
            "watch": "1",
            "resourceVersion": self.state.resource_version,
            "timeoutSeconds": str(max(1, int(self._timing.probe_s))),
        }
        try:
            with anyio.fail_after(self._timing.probe_timeout_s):
                async with self._stream(params, timeout_s=self._timing.probe_timeout_s) as stream:
                    # Another server's page is no event.
                    return "another watch has received more" if b'"type"' in await stream.read() else ""
        except ApiError as error:
            return "" if error.code else f"the server cannot be reached: {error}"
        except OSError as error:  # TimeoutError is one
            return f"the server cannot be reached: {str(error) or 'no answer in time'}"

    async def _failed(self, error: ApiError) -> None:
        self._in_doubt = self._in_doubt or error.code == 0 or error.reason in _TOO_OLD
        if error.subject is not None and error.reason in _TOO_OLD:
            _log.info("resourceVersion is too old, listing anew", kind=self.kind.name, err=str(error))
            self.state.gone()
        elif error.code == 404 and self.kind.versions:
            self._version = ""  # discovery shows whether the kind still exists
        elif self._is_forbidden(error) and self.kind.versions and not self.state.synced:
            # Without the right to read groups, pods that need none can still be scheduled; retried all the
            # same.
            await self._say_missing(f"not allowed to follow: {error}", is_forbidden=True)
        elif is_logged(error):
            _log.debug("cannot follow", kind=self.kind.name, err=str(error))
        elif str(error) != self._logged:
            self._logged = str(error)
            _log.warning("cannot follow", kind=self.kind.name, err=str(error))
        if error.code == 0:
            self._client.close()
        is_awaited = not (self.state.synced or self._missing or self._first.goes_without)
        if is_awaited and not is_logged(error) and self._first.failed(time.monotonic()):
            _log.warning("cannot be read, going on without it", kind=self.kind.name, err=str(error))
            await self._emit([KindMissing(self.kind.name, is_unread=True)])
        backoff = self._first.backoff if is_awaited else self._backoff
        await anyio.sleep(backoff.next_s(error.retry_after_s))

    def _is_forbidden(self, error: ApiError) -> bool:
        subject = error.subject
        return subject is not None and error.reason == "Forbidden" and subject.kind == self.kind.resource

    def _recovered(self) -> None:
        self._missing = False
        self._backoff.reset()
        if self._logged:
            self._logged = ""
            _log.info("following again", kind=self.kind.name)

"""The pages of one scheduler: their parts, and when they start.

Lives here: the sockets from the start, the loop's pulse, the checks, one reading for all concurrent requests.
Not here: the content of any page. Made by process.app if a port is configured; `run()` is one task of its
loop.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import anyio
import msgspec
import structlog

from gangsched.certificates import self_signed, server_context, server_context_from_files
from gangsched.config import SchedulerConfig
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.dispatcher import Dispatcher
from gangsched.model.events import Event
from gangsched.web.listening import WebSettings, listen, port_of
from gangsched.web.metrics.loads import read_loads
from gangsched.web.metrics.measures import Measures
from gangsched.web.pages.queues import queues_page
from gangsched.web.serving import checks
from gangsched.web.serving.health import Check, Health

if TYPE_CHECKING:
    from gangsched.extension.reload import Reload
    from gangsched.process.following import Following
    from gangsched.process.leadership import Leadership
    from gangsched.process.loop import Inbox
    from gangsched.process.recording import Recording
    from gangsched.web.board.feed import Feed
    from gangsched.web.serving.server import Server

_log = structlog.get_logger(__name__)

# The first gang does not wait for an HTTP server to load; probes do not wait longer than this.
_LATEST_START_S = 2.0
_LOOK_S = 0.05
_PULSE_S = 0.25
# How long readyz reports a stuck loop; delays below STUCK_S are not reported.
_REMEMBER_S = 30.0
_SLIP_S = 0.1
# Requests within this time get the same answer.
_FRESH_S = 1.0
_AGAIN_S = 60.0
_CERTIFICATES_S = 60.0


class Process(Protocol):
    """What the pages read of a scheduler's process, and tell it; gangsched.process.app has the one
    implementation.
    """

    config: SchedulerConfig
    scheduler: Scheduler
    client: ApiClient
    dispatcher: Dispatcher
    inbox: Inbox
    following: Following
    leadership: Leadership
    recording: Recording
    reload: Reload | None
    is_stopping: bool


class Pulse:
    """Measures how late the loop is for a timer, and for how long the inbox has been full."""

    def __init__(self, measures: Measures, inbox: Inbox) -> None:
        self._measures = measures
        self._inbox = inbox
        self._slips: deque[tuple[float, float]] = deque()
        self._full_since_s: float | None = None

    async def run(self) -> None:
        while True:
            due_s = time.monotonic() + _PULSE_S
            await asyncio.sleep(_PULSE_S)
            self.beat(time.monotonic(), due_s)

    def beat(self, now_s: float, due_s: float) -> None:
        """The timer that was due at `due_s` has fired."""
        lag_s = max(now_s - due_s, 0.0)
        self._measures.lag.observe(lag_s)
        if lag_s > _SLIP_S:
            self._slips.append((now_s, lag_s))
        while self._slips and now_s - self._slips[0][0] > _REMEMBER_S:
            self._slips.popleft()
        if not self._inbox.is_full:
            self._full_since_s = None
        elif self._full_since_s is None:
            self._full_since_s = now_s

    def worst_lag_s(self) -> float:
        """The largest lag of the last half minute."""
        return max((lag_s for _, lag_s in self._slips), default=0.0)

    def full_for_s(self) -> float:
        return 0.0 if self._full_since_s is None else time.monotonic() - self._full_since_s


class Web:
    """Binds the port when constructed. Raises: ConfigError (the port, the certificate)."""

    def __init__(self, settings: WebSettings, measures: Measures, process: Process) -> None:
        """`measures`: the observer of the process's scheduler."""
        self._settings = settings
        self._measures = measures
        self._process = process
        self._pulse = Pulse(measures, process.inbox)
        self._tls: ssl.SSLContext | None = None
        self._feed: Feed | None = None
        self._cluster = ""
        if settings.certificate:
            self._tls = server_context_from_files(settings.certificate, settings.key)
        self._sockets: Sequence[socket.socket] = listen(settings)
        self._lock = anyio.Lock()
        self._last: dict[str, tuple[float, bytes]] = {}
        """By content type: when the page was made, and its body."""

    @property
    def port(self) -> int:
        return port_of(self._sockets)

    def note_events(self, events: Sequence[Event]) -> None:
        """Takes in a turn's events, after the core has handled them."""
        self._measures.count_answers(events, self._process.scheduler.shared.cache.pods)

    async def run(self) -> None:
        """Serves until cancelled, from the first quiet moment on."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._pulse.run)
            await self._quiet()
            group.start_soon(self._read_cluster)
            server = await anyio.to_thread.run_sync(self._load)
            if self._feed is not None:
                group.start_soon(self._feed.run)
            if self._settings.certificate:
                group.start_soon(self._follow_certificates)
            _log.info("serving", port=self.port, address=self._settings.bind_address)
            try:
                await server.run()
            finally:
                for one in self._sockets:
                    one.close()

    async def _quiet(self) -> None:
        process = self._process
        with anyio.move_on_after(_LATEST_START_S):
            # Polled a few times per process; a signal would add cost to every turn.
            while not (  # noqa: ASYNC110
                not process.following.unlisted
                and not process.scheduler.n_active
                and not process.dispatcher.n_binds_waiting
                and not process.dispatcher.n_binds_in_flight
            ):
                await anyio.sleep(_LOOK_S)

    def _load(self) -> Server:
        """Runs in a thread: its imports take a few tenths of a second."""
        from gangsched.web.access import MAX_REVIEW_BYTES, Access
        from gangsched.web.board.feed import Feed
        from gangsched.web.board.history import History
        from gangsched.web.board.pages import Board
        from gangsched.web.board.whatif import WhatIf
        from gangsched.web.pages.explanations import Explanations
        from gangsched.web.pages.queue import Queue
        from gangsched.web.pages.reservations import Reservations
        from gangsched.web.pages.stories import Stories
        from gangsched.web.pages.waiting import Waiting
        from gangsched.web.serving.server import Server
        from gangsched.web.top.page import Top
        from gangsched.web.turns import Turns
        from gangsched.whatif.cluster import priority_classes

        process, may_act = self._process, self._process.leadership.may_act
        if self._tls is None and not self._settings.plain:
            hosts = ["localhost", "127.0.0.1", "::1", socket.gethostname()]
            self._tls = server_context(self_signed("gangsched", hosts=hosts))
        turns = Turns()
        stories, queue = (
            Stories(process.scheduler),
            Queue(process.scheduler, turns=turns, leader=self._leader),
        )
        explanations = Explanations(
            process.scheduler, tracing=lambda: process.config.tracing, may_act=may_act
        )
        board: Board | None = None
        if self._settings.dashboard:
            history = History(process.scheduler, n_attempts=lambda: self._measures.n_attempts)
            self._feed = Feed(process.scheduler, history, queue, may_act=may_act)
            whatif = WhatIf(process.scheduler, priorities=lambda: priority_classes(process.client))
            board = Board(
                process.scheduler,
                self._feed,
                stories=stories,
                explanations=explanations,
                whatif=whatif,
                turns=turns,
            )
        return Server(
            self._sockets,
            self._tls,
            access=Access(
                self._process.client.another(max_body_bytes=MAX_REVIEW_BYTES),
                always_allow=self._settings.always_allow,
            ),
            health=self._health(),
            metrics=self._metrics,
            configz=self._configz,
            waiting=Waiting(process.scheduler, put_nowait=process.inbox.put_nowait, may_act=may_act),
            stories=stories,
            queue=queue,
            explanations=explanations,
            board=board,
            reservations=Reservations(process.scheduler, may_act=may_act),
            top=Top(process.scheduler, queue, self._measures, may_act=may_act, turns=turns),
            turns=turns,
            leader=self._leader,
            cluster=lambda: self._cluster,
        )

    async def _read_cluster(self) -> None:
        """Reads which cluster this is, until it is known: commands compare it with their kubeconfig's."""
        from gangsched.web.leader import cluster_uid

        while not self._cluster:
            self._cluster = await cluster_uid(self._process.client)
            await anyio.sleep(_AGAIN_S)

    def _leader(self) -> str | None:
        """Returns the one that leads instead of this replica; "" while unknown."""
        leadership = self._process.leadership
        elector = leadership.elector
        return None if elector is None or leadership.may_act() else elector.election.observed.holder

    def _health(self) -> dict[str, Health]:
        process, elector = self._process, self._process.leadership.elector
        alive: list[Check] = [] if elector is None else [checks.lease_check(elector)]
        ready = [
            *alive,
            checks.sync_check(lambda: process.following.unlisted),
            checks.watch_check(process.following.reflectors, time.monotonic),
            checks.credentials_check(lambda: process.client.credentials.last_error),
            checks.loop_check(self._pulse.worst_lag_s),
            checks.inbox_check(self._pulse.full_for_s),
            checks.shutdown_check(lambda: process.is_stopping),
        ]
        return {
            "livez": Health("livez", alive),
            "readyz": Health("readyz", ready),
            "healthz": Health("healthz", alive),
        }

    async def _metrics(self, content_type: str) -> bytes:
        from gangsched.web.metrics import page as metrics
        from gangsched.web.metrics import reading

        async with self._lock:
            taken_s, last = self._last.get(content_type, (float("-inf"), b""))
            if time.monotonic() - taken_s < _FRESH_S:
                return last
            process = self._process
            totals = await reading.read_groups(process.scheduler, time.monotonic(), time.time())
            devices = await reading.read_devices(process.scheduler)
            now_s = time.monotonic()
            elector = process.leadership.elector
            election = process.config.leader_election
            cache = process.scheduler.shared.cache
            read = reading.Reading(
                pending=totals.pending,
                oldest_s=totals.oldest_s,
                unschedulable=totals.unschedulable,
                n_nodes=cache.nodes.n_live,
                n_pods=len(cache.pods),
                n_assumed=totals.n_assumed,
                n_partial_gangs=totals.n_partial_gangs,
                n_wounded_gangs=totals.n_wounded_gangs,
                device_free=devices,
                device_drift=process.scheduler.audit.statistics(),
                counters=dict(process.scheduler.shared.counters),
                reloads=None if process.reload is None else process.reload.counted,
                watch_age_s={
                    kind: now_s - reflector.last_heard_s
                    for kind, reflector in process.following.reflectors.items()
                    if not reflector.is_missing and reflector.last_heard_s > 0
                },
                leader={} if elector is None else {election.resource_name: int(elector.holds)},
                n_bind_unknown=process.dispatcher.binds.n_unknown,
                requests=process.client.credentials.answers.by_code_and_method(),
                doubtful_answers=dict(process.client.credentials.answers.doubtful),
                host=urlsplit(process.client.credentials.server).netloc,
                loads=read_loads(process.scheduler),
                queueing=reading.read_queueing(process.scheduler, totals),
                queues=queues_page(process.scheduler.shared),
                journal=process.recording.counted,
            )
            families = metrics.measured(self._measures)
            body = await anyio.to_thread.run_sync(
                partial(metrics.text, families, read, content_type=content_type)
            )
            self._last[content_type] = (time.monotonic(), body)
            return body

    def _configz(self) -> bytes:
        from gangsched.config.effective import effective_documents

        kube, ours = effective_documents(self._process.config)
        return msgspec.json.encode({"componentconfig": kube, "gangsched": ours})

    async def _follow_certificates(self) -> None:
        """Loads rotated files into the context in use: new connections get the new certificate."""
        certificate, key = self._settings.certificate, self._settings.key
        before = _stamp(certificate, key)
        while True:
            await anyio.sleep(_CERTIFICATES_S)
            stamp = _stamp(certificate, key)
            if stamp == before or stamp is None or self._tls is None:
                continue
            try:
                # Tried on a separate context first: a half-replaced pair would break the one in use.
                server_context_from_files(certificate, key)
                self._tls.load_cert_chain(certificate, key)
                _log.info("certificate renewed", file=certificate)
                before = stamp
            except (ConfigError, OSError) as error:  # SSLError is an OSError
                _log.warning("the new certificate cannot be used (yet)", err=str(error))


def _stamp(*paths: str) -> tuple[int, ...] | None:
    try:
        return tuple(Path(path).stat().st_mtime_ns for path in paths)
    except OSError:
        return None

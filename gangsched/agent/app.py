"""The assembly: sources in their threads, the watch of the node's pods, the loop around the reporter.

Lives here: all I/O of the agent. Nothing here makes decisions: events go to the reporter, its requests are
carried out, and the outcomes go back to it. Called by `command`. The other parts of the agent
(`agent.plugins.runner`, `probes`) have their own pure parts, and a task each here; they are loaded only if
they are configured.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

import anyio
import structlog

from gangsched.agent.node import (
    manager_name,
    measurements_patch,
    node_patch,
    node_path,
    read_node,
)
from gangsched.agent.plugins.plan import NodePods, PlannedPod, planned_pod
from gangsched.agent.report.notices import Notice
from gangsched.agent.report.reports import Report, Silence
from gangsched.agent.reporter import InventoryReporter, ReadNode, WriteNode, explained
from gangsched.agent.settings import AgentSettings
from gangsched.agent.sources import Source
from gangsched.agent.sources.files import FileSource
from gangsched.agent.sources.nvml import NvmlSource
from gangsched.errors import ApiError, ConfigError
from gangsched.kube.access.credentials import Credentials
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.writes import event_body, events_path
from gangsched.kube.evidence import Target, is_gone
from gangsched.kube.reach import is_logged
from gangsched.kube.watch.decode import decode_raw_page, pods
from gangsched.kube.watch.reflector import Reflector
from gangsched.kube.watch.unparsed import read_meta
from gangsched.model.devices.report import DEVICE_REPORT_KEY
from gangsched.model.effects import RecordEvent
from gangsched.model.events import Event, KindSynced
from gangsched.reading.strict import nearest

if TYPE_CHECKING:
    from gangsched.agent.plugins.runner import PluginRunner
    from gangsched.agent.probes.running import Probes

_log = structlog.get_logger(__name__)

# Limit on the names listed in the error for a wrong one.
_MAX_NAMES = 500
_REQUEST_S = 10.0
# kubelet waits for the answer.
_LIST_S = 2.0
CONTROLLER = "gangsched-agent"


def sources_of(settings: AgentSettings) -> list[Source]:
    """The enabled sources, in order of precedence."""
    sources: list[Source] = []
    if settings.nvml.mode != "off":
        nvml = settings.nvml
        sources.append(NvmlSource(nvml.mode, resource=nvml.resource, ignored_xids=nvml.ignore_xids))
    sources += [FileSource(path) for path in settings.devices]
    if settings.kubelet.resources:
        from gangsched.agent.sources.pod_resources import PodResourcesSource

        sources.append(PodResourcesSource(settings.kubelet))
    return sources


class AgentApp:
    """One agent process, for one node."""

    def __init__(
        self,
        settings: AgentSettings,
        credentials: Credentials,
        *,
        sources: list[Source] | None = None,
        seed: int | None = None,
    ) -> None:
        self._settings = settings
        self._sources = sources_of(settings) if sources is None else sources
        self._client = ApiClient(credentials)
        self._manager = manager_name(f"{os.uname().nodename}_{os.urandom(4).hex()}")
        rng = Random(seed)
        silences = {source.name: source.silence for source in self._sources}
        silences |= {register.source: Silence.NORMAL for register in settings.registers}
        self.reporter = InventoryReporter(
            settings.node_name,
            silences,
            heartbeat_s=settings.heartbeat_s,
            rng=rng,
            in_labels=settings.in_labels,
        )
        self._pods = Reflector(self._client, pods(settings.node_name), self._take_events, rng=rng)
        self._probes = self._made_probes(rng) if settings.probes.is_on else None
        self._node_pods = NodePods()
        reads_kubelet = settings.plugins or settings.kubelet.resources
        self._runner = self._made_runner() if reads_kubelet else None
        self._n_events = 0
        self._news = anyio.Event()

    async def run(self) -> int:
        """Report until SIGTERM or SIGINT. Raises: ConfigError, if the node does not exist."""
        await self._check_name()
        loop = get_running_loop()
        threads = [_SourceThread(source, self._take_report, loop) for source in self._sources]
        try:
            async with anyio.create_task_group() as everything:
                everything.start_soon(self._stop_on_signal, everything.cancel_scope)
                everything.start_soon(self._pods.run)
                if self._probes is not None:
                    everything.start_soon(self._probes.run)
                if self._runner is not None:
                    everything.start_soon(self._runner.run)
                for thread in threads:
                    thread.start()
                await self._report()
        finally:
            for thread in threads:
                thread.stop()
            self._client.close()
        return 0

    async def look_once(self) -> tuple[str | None, list[Notice]]:
        """Returns what would be written now, as JSON (labels, if they carry the list) or None, and the
        notices.

        Raises: ConfigError, ApiError.
        """
        await self._check_name(must_answer=True)
        try:
            for source in self._sources:
                self._take_report(await anyio.to_thread.run_sync(source.read))
            try:
                self._take_node(await self._get())
            except ApiError as error:
                raise ApiError(explained(error, "read", self._settings.node_name)) from None
            await self._take_events(await self._listed_pods())
        finally:
            self._client.close()
        value = self.reporter.value()
        if value is not None and self._settings.in_labels:
            value = json.dumps(self.reporter.labels)
        return value, self.reporter.take_notices()

    # -- tasks -----------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        while True:
            self._news = anyio.Event()
            effect = self.reporter.decide(time.monotonic())
            await self._say()
            if self._runner is not None and (listed := self.reporter.listed) is not None:
                self._runner.show(listed)
            if isinstance(effect, ReadNode):
                await self._read()
            elif isinstance(effect, WriteNode):
                await self._write(effect)
            else:
                with anyio.move_on_after(max(0.0, self.reporter.next_deadline_s() - time.monotonic())):
                    await self._news.wait()

    async def _read(self) -> None:
        try:
            body = await self._get()
        except ApiError as error:
            self.reporter.failed("read", error, time.monotonic())
        else:
            self._take_node(body)

    async def _write(self, effect: WriteNode) -> None:
        path = node_path(self._settings.node_name, manager=self._manager)
        body = node_patch(effect.uid, effect.resource_version, effect.annotations, effect.labels)
        try:
            seen = read_node(await self._client.patch(path, body, timeout_s=_REQUEST_S))
        except ApiError as error:
            self.reporter.failed("write", error, time.monotonic())
        else:
            self.reporter.written(seen, time.monotonic())

    async def _annotate(self, annotations: Mapping[str, str]) -> None:
        """Write measurements; only the latest counts, so no version is checked. Raises: ApiError."""
        path = node_path(self._settings.node_name, manager=self._manager)
        await self._client.patch(path, measurements_patch(annotations), timeout_s=_REQUEST_S)

    async def _stop_on_signal(self, everything: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                # The annotation stays: pods run on whether or not an agent watches their devices.
                _log.info("stopping", signal=signal.Signals(number).name, node=self._settings.node_name)
                everything.cancel()
                return

    # -- events ----------------------------------------------------------------------------------------------

    def _take_report(self, report: Report) -> None:
        self.reporter.source_reported(report, time.monotonic())
        self._news.set()

    async def _take_events(self, events: list[Event]) -> None:
        self.reporter.pods_changed(events)
        if self._runner is not None:
            self._node_pods.apply(events)
            self._runner.pods_changed()
        self._news.set()

    def _note(self, key: str, value: str) -> None:
        self.reporter.note(key, value)
        self._news.set()

    def _take_node(self, body: bytes) -> None:
        now_s = time.monotonic()
        try:
            seen = read_node(body)
        except ApiError as error:
            self.reporter.failed("read", error, now_s)
            return
        for register in self._settings.registers:
            self.reporter.source_reported(register.report(seen.annotations), now_s)
        self.reporter.node_read(seen, now_s)

    async def _say(self) -> None:
        for notice in self.reporter.take_notices():
            getattr(_log, notice.level)(notice.message, **notice.fields)
            if notice.reason:
                await self._record(self._node_event(notice))

    async def _not_measured(self, text: str) -> None:
        await self._record(self._node_event(Notice("warning", text, {}, reason="NotMeasured")))

    def _node_event(self, notice: Notice) -> RecordEvent:
        name = self._settings.node_name
        return RecordEvent(
            kind="Node",
            api_version="v1",
            namespace="",
            name=name,
            uid=name,
            type="Warning",
            reason=notice.reason,
            action="Report",
            message=notice.message,
            cause_id="",
        )

    # -- measurements and device plugins ---------------------------------------------------------------------

    def _made_probes(self, rng: Random) -> Probes:
        from gangsched.agent.probes.running import Probes

        node = self._settings.node_name
        return Probes(self._settings.probes, self._annotate, self._not_measured, node=node, rng=rng)

    def _made_runner(self) -> PluginRunner:
        from gangsched.agent.plugins.runner import PluginRunner

        return PluginRunner(
            self._settings.node_name,
            self._settings.kubelet,
            self._settings.plugins,
            self._node_pods,
            write_report=lambda value: self._note(DEVICE_REPORT_KEY, value),
            record=self._record,
            listed=self._planned_pods,
        )

    async def _planned_pods(self) -> tuple[PlannedPod, ...] | None:
        kind = pods(self._settings.node_name)
        try:
            body = await self._client.get(kind.path("v1"), kind.selector, timeout_s=_LIST_S)
            items, refused, _ = kind.read_page(body)
        except ApiError:
            return None
        # Take an unreadable pod as the watch last showed it: kubelet may be admitting it.
        unreadable = {one.uid for one in refused}
        kept = (pod for pod in self._node_pods.all() if pod.uid in unreadable)
        return (*(planned_pod(pod) for pod in items if not pod.is_terminal), *kept)

    async def _record(self, event: RecordEvent) -> None:
        """Write an Event; a failure goes to the log."""
        self._n_events += 1
        serial = time.time_ns() + self._n_events
        body = event_body(
            event, controller=CONTROLLER, instance=self._manager, wall_s=time.time(), serial=serial
        )
        try:
            await self._client.post(events_path(event), body, timeout_s=_REQUEST_S)
        except ApiError as error:
            if is_logged(error):
                return
            _log.warning("an Event could not be written", reason=event.reason, err=str(error))

    # -- requests --------------------------------------------------------------------------------------------

    async def _get(self) -> bytes:
        return await self._client.get(node_path(self._settings.node_name), timeout_s=_REQUEST_S)

    async def _check_name(self, *, must_answer: bool = False) -> None:
        """Fail at once for a wrong node name; other errors may pass and are retried."""
        name = self._settings.node_name
        try:
            await self._get()
        except ApiError as error:
            if is_gone(error, Target("nodes", "Node", name)):
                self._client.close()
                raise ConfigError(
                    f"there is no node {name!r}{await self._near(name)}", path="--node-name"
                ) from None
            if must_answer and is_logged(error):
                self._client.close()
                raise

    async def _near(self, name: str) -> str:
        try:
            body = await self._client.get("/api/v1/nodes", {"limit": str(_MAX_NAMES)}, timeout_s=_REQUEST_S)
            metas = [read_meta(item) for item in decode_raw_page(body).items or ()]
        except (ApiError, ValueError):  # an agent may lack the right to list nodes
            return ""
        return nearest(name, [meta.name for meta in metas if meta is not None])

    async def _listed_pods(self) -> list[Event]:
        kind = pods(self._settings.node_name)
        body = await self._client.get(kind.path("v1"), kind.selector, timeout_s=_REQUEST_S)
        items, refused, _ = kind.read_page(body)
        return [*(kind.added(pod, "v1") for pod in items), *refused, KindSynced(kind.name)]


class _SourceThread:
    """Polls one source; a driver that never answers blocks this thread and nothing else."""

    def __init__(
        self, source: Source, take_report: Callable[[Report], None], loop: AbstractEventLoop
    ) -> None:
        self._source = source
        self._take_report = take_report
        self._loop = loop
        self._stop = threading.Event()
        # A daemon: a thread that hangs in a driver must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name=f"source {source.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                report = self._source.read()
            except Exception:  # a bug of ours: the source will count as silent, and this log line says why
                _log.exception("a source of devices failed", source=self._source.name)
            else:
                try:
                    self._loop.call_soon_threadsafe(self._take_report, report)
                except RuntimeError:
                    return  # the loop has ended
            self._stop.wait(self._source.period_s)

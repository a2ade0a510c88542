"""The measuring task: reads counters in a thread, lets the pure part evaluate them, writes the result.

Lives here: the loop and the clocks. Not here: the request itself (agent.app passes it in). A failure to read
or write is logged once and retried. A node that cannot be measured stays silent; schedulers notice that by
the age of its last report.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import anyio
import structlog

from gangsched.agent.probes.cgroup import read_cgroup
from gangsched.agent.probes.gaps import gaps
from gangsched.agent.probes.heartbeat import Heartbeat
from gangsched.agent.probes.machine import MachineSample, is_in_memory, measure_disk_mbps, read_machine
from gangsched.agent.probes.meters import BandwidthMeter, LoadMeter, Rates
from gangsched.agent.probes.nics import Nic, read_nics
from gangsched.agent.probes.probe_settings import ProbeSettings
from gangsched.errors import ApiError
from gangsched.kube.transport.backoff import Backoff
from gangsched.model.stated.bandwidth import MEGABYTE, REMAINING_KEY, mbps, remaining_annotation
from gangsched.model.stated.load import LOAD_KEY, NodeLoad, load_annotation

_log = structlog.get_logger(__name__)

_SAMPLES_A_WINDOW = 10
_MIN_SAMPLE_S, _MAX_SAMPLE_S = 0.2, 5.0
_WRITES_A_WINDOW = 5
_MAX_BACKOFF_S = 30.0

Write = Callable[[Mapping[str, str]], Awaitable[None]]
Tell = Callable[[str], Awaitable[None]]


class Probes:
    """One node's probes. `write` patches annotations of the Node, by key; it raises ApiError. `tell` makes an
    Event about the Node: lists terms without data, once until that changes.
    """

    def __init__(self, settings: ProbeSettings, write: Write, tell: Tell, *, node: str, rng: Random) -> None:
        self._settings = settings
        self._write = write
        self._tell_people = tell
        self._node = node
        self._backoff = Backoff(rng, max_s=_MAX_BACKOFF_S)
        bandwidth, load = settings.bandwidth, settings.load
        windows_s = bandwidth.windows_seconds
        if load.enabled:
            windows_s = (*windows_s, load.window_seconds)
        self._bandwidth = BandwidthMeter(
            bandwidth.nics, total=round(bandwidth.total_mbps * MEGABYTE), windows_s=windows_s
        )
        self._load = LoadMeter(window_s=load.window_seconds, mhz=load.cpu_mhz, disk_mbps=load.disk_mbps)
        self._beats = {
            REMAINING_KEY: _heartbeat(
                bandwidth.period_seconds, bandwidth.threshold_percent, bandwidth.windows_seconds[0]
            ),
            LOAD_KEY: _heartbeat(load.period_seconds, load.threshold_percent, load.window_seconds),
        }
        self._not_before_s = 0.0
        self._logged: dict[str, str] = {}
        self._untold: list[str] = []
        self._probe_failed = ""
        shortest_s = min(
            ([bandwidth.windows_seconds[0]] if bandwidth.enabled else [])
            + ([load.window_seconds] if load.enabled else [])
        )
        self._sample_s = min(max(shortest_s / _SAMPLES_A_WINDOW, _MIN_SAMPLE_S), _MAX_SAMPLE_S)

    async def run(self) -> None:
        """Run until cancelled."""
        load = self._settings.load
        if load.enabled and load.disk_probe:
            await self._measure_disk(Path(load.disk_probe))
        while True:
            began_s = time.monotonic()
            try:
                nics, machine = await anyio.to_thread.run_sync(self._read)
            except OSError as error:
                self._say("read", f"counters cannot be read: {error}")
            else:
                self._well("read", "counters are read again")
                self._tell(nics, machine, began_s)
                await self._report(began_s)
                while self._untold:
                    await self._tell_people(self._untold.pop(0))
            await anyio.sleep(max(0.0, began_s + self._sample_s - time.monotonic()))

    def _read(self) -> tuple[list[Nic], MachineSample | None]:
        load = self._settings.load
        if not load.enabled:
            return read_nics(), None
        if load.cgroup:
            return read_nics(), read_cgroup(load.cgroup, disk_mbps=load.disk_mbps)
        return read_nics(), read_machine()

    def _tell(self, nics: list[Nic], machine: MachineSample | None, at_s: float) -> None:
        before = self._bandwidth.names, self._bandwidth.total
        self._bandwidth.add(nics, at_s)
        if (self._bandwidth.names, self._bandwidth.total) != before:
            names = ", ".join(self._bandwidth.names) or "none"
            _log.info(
                "NICs counted", nics=names, total=f"{mbps(self._bandwidth.total)} MB/s", node=self._node
            )
        if machine is not None:
            self._load.add(machine, at_s)

    async def _report(self, now_s: float) -> None:
        found = self._values()
        due = {
            key: (text, values)
            for key, (text, values) in found.items()
            if self._beats[key].is_due(values, now_s)
        }
        if not due or now_s < self._not_before_s:
            return
        try:
            await self._write({key: text for key, (text, _) in due.items()})
        except ApiError as error:
            self._not_before_s = time.monotonic() + self._backoff.next_s(error.retry_after_s)
            self._say("write", f"the node cannot be written: {error}")
            return
        self._backoff.reset()
        self._well("write", "the node is written again")
        for key, (_, values) in due.items():
            self._beats[key].written(values, now_s)

    def _values(self) -> dict[str, tuple[str, tuple[float, ...]]]:
        """By key: the annotation, and the numbers whose changes trigger a write."""
        found: dict[str, tuple[str, tuple[float, ...]]] = {}
        now = datetime.now(UTC)
        if self._settings.bandwidth.enabled:
            remaining = self._bandwidth.remaining(now)
            if remaining is not None:
                self._well("total", "the links' speed is known")
                shares = (remaining.egress / remaining.total, remaining.ingress / remaining.total)
                text = remaining_annotation(remaining, self._longer_windows())
                found[REMAINING_KEY] = (text, (*shares, float(remaining.total)))
            elif not self._bandwidth.total:
                names = ", ".join(self._bandwidth.names) or "no NIC that is counted"
                text = f"the speed of {names} is not known: give bandwidth.totalMBps, or other nics"
                self._say("total", text, to_all=True)
        if self._settings.load.enabled:
            load = self._load.load(self._bandwidth, now)
            if load is not None:
                found[LOAD_KEY] = (load_annotation(load), load.utilisation.terms)
                self._say_gaps(load)
        return found

    def _say_gaps(self, load: NodeLoad) -> None:
        missing = gaps(
            load,
            self._settings.load,
            nics=", ".join(self._bandwidth.names) or "no NIC that is counted",
            probe_failed=self._probe_failed,
        )
        if missing:
            text = f"no data for a part of the load, which counts as 0: {'; '.join(missing)}"
            self._say("gaps", text, to_all=True)
        else:
            self._well("gaps", "there is data for every part of the load")

    def _longer_windows(self) -> dict[str, Rates]:
        """Returns usage over the other windows that are full."""
        windows_s = self._settings.bandwidth.windows_seconds[1:]
        used = {window_s: self._bandwidth.used_over_all(window_s) for window_s in windows_s}
        return {f"{window_s:g}s": rates for window_s, rates in used.items() if rates is not None}

    async def _measure_disk(self, directory: Path) -> None:
        load = self._settings.load
        try:
            if is_in_memory(directory):
                self._probe_failed = f"{directory} is in memory, not on a disk"
                return
            measured = await anyio.to_thread.run_sync(measure_disk_mbps, directory)
        except OSError as error:
            self._probe_failed = f"the throughput cannot be measured in {directory}: {error.strerror}"
            return
        _log.info("disk measured", mbps=round(measured, 1), directory=str(directory), node=self._node)
        self._load = LoadMeter(window_s=load.window_seconds, mhz=load.cpu_mhz, disk_mbps=measured)

    def _say(self, key: str, text: str, *, to_all: bool = False) -> None:
        """Logs the text, unless it was logged last; `to_all`: as an Event too."""
        if self._logged.get(key) != text:
            self._logged[key] = text
            _log.warning(text, node=self._node)
            if to_all:
                self._untold.append(text)

    def _well(self, key: str, text: str) -> None:
        if self._logged.pop(key, None) is not None:
            _log.info(text, node=self._node)


def _heartbeat(period_s: float, threshold_percent: float, window_s: float) -> Heartbeat:
    return Heartbeat(
        period_s=period_s, threshold=threshold_percent / 100, apart_s=max(window_s / _WRITES_A_WINDOW, 0.5)
    )

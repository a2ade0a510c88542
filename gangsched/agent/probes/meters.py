"""Turns counters into the values of the two annotations: remaining bandwidth, utilisation. Pure.

`running` passes in the readings of `nics` and `machine`, with times of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from gangsched.agent.probes.counters import Window, growth
from gangsched.agent.probes.machine import MachineSample
from gangsched.agent.probes.nics import Nic, counted
from gangsched.model.stated.bandwidth import MAX_BANDWIDTH, RemainingBandwidth
from gangsched.model.stated.load import NodeLoad, Performance, Utilisation

# A rate above this multiple of the link's speed cannot be real.
_TOO_FAST = 2.0
_MEGA = 1e6


class Rates(NamedTuple):
    """Bytes a second."""

    egress: float
    ingress: float


class BandwidthMeter:
    """windows_s: windows to keep; total: bytes a second in one direction, 0: the sum of the links' speeds."""

    def __init__(self, patterns: Sequence[str], *, total: int, windows_s: Sequence[float]) -> None:
        self._patterns = tuple(patterns)
        self._configured = total
        self.windows_s = tuple(windows_s)
        self._window = Window(2, keep_s=max(windows_s))
        self._before: dict[str, Nic] = {}
        self._at_s = 0.0
        self.total = total
        self.names: tuple[str, ...] = ()

    def add(self, nics: Sequence[Nic], at_s: float) -> None:
        """Take in all NICs' counters at one moment."""
        mine = counted(nics, self._patterns)
        usable = [nic for nic in mine if nic.is_up and not nic.is_standby]
        self.names = tuple(nic.name for nic in mine)
        self.total = self._configured or sum(nic.speed for nic in usable)
        sent = received = 0
        elapsed_s = at_s - self._at_s
        for nic in mine:
            before = self._before.get(nic.name)
            if before is None:
                continue  # its counts from before the first reading are not recent
            most = (nic.speed or MAX_BANDWIDTH) * elapsed_s * _TOO_FAST
            sent += growth(before.sent, nic.sent, most)
            received += growth(before.received, nic.received, most)
        self._before = {nic.name: nic for nic in mine}
        self._at_s = at_s
        self._window.add(at_s, (sent, received))

    def used(self, window_s: float) -> Rates | None:
        """Rates over a window; None before there are two samples."""
        rates = self._window.rates(window_s)
        return None if rates is None else Rates(*rates)

    def used_over_all(self, window_s: float) -> Rates | None:
        """Like `used`, but None until the window is full."""
        return self.used(window_s) if self._window.spans_s >= window_s else None

    def remaining(self, observed_at: datetime) -> RemainingBandwidth | None:
        """Returns the bandwidth left over the first window; None if that, or the links' speed, is unknown."""
        used = self.used(self.windows_s[0])
        if used is None or not self.total:
            return None
        egress, ingress = (max(0, self.total - round(rate)) for rate in used)
        return RemainingBandwidth(egress, ingress, self.total, observed_at)


class LoadMeter:
    """Utilisation over a window. disk_mbps: the disks' total throughput, 0: not known."""

    def __init__(self, *, window_s: float, mhz: float, disk_mbps: float) -> None:
        self._window_s = window_s
        self._mhz = mhz
        self._disk_mbps = disk_mbps
        self._window = Window(2, keep_s=window_s)
        self._disks = _Disks(window_s)
        self._before: MachineSample | None = None

    def add(self, sample: MachineSample, at_s: float) -> None:
        """Take in the machine's counters at one moment."""
        before, self._before = self._before, sample
        if before is None:
            self._window.add(at_s, (0.0, 0.0))
        else:
            busy = max(0.0, sample.cpu_busy_s - before.cpu_busy_s)
            whole = max(0.0, sample.cpu_total_s - before.cpu_total_s)
            self._window.add(at_s, (min(busy, whole), whole))
        self._disks.add(sample.disk_busy_ms, at_s)

    def load(self, network: BandwidthMeter, observed_at: datetime) -> NodeLoad | None:
        """Returns the load; None before there are two samples."""
        sample, rates = self._before, self._window.rates(self._window_s)
        if sample is None or rates is None:
            return None
        busy, whole = rates
        used = network.used(self._window_s)
        moved = max(used) if used is not None else 0.0
        utilisation = Utilisation(
            cpu=_share(busy, whole),
            memory=_share(sample.memory_bytes - sample.memory_available_bytes, sample.memory_bytes),
            network=_share(moved, network.total),
            disk=self._disks.busiest(),
        )
        performance = Performance(
            cores=float(sample.n_cores),
            mhz=self._mhz or sample.mhz,
            memory_bytes=float(sample.memory_bytes),
            network_mbps=network.total / _MEGA,
            # A capacity with unknown usage would make the node look idle.
            disk_mbps=self._disk_mbps if sample.disk_busy_ms else 0.0,
        )
        return NodeLoad(utilisation, performance, observed_at)


class _Disks:
    """The share of time in which the busiest disk was busy."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._windows: dict[str, Window] = {}
        self._before: dict[str, int] = {}

    def add(self, busy_ms: dict[str, int], at_s: float) -> None:
        for gone in [name for name in self._windows if name not in busy_ms]:
            del self._windows[gone], self._before[gone]
        for name, now in busy_ms.items():
            window = self._windows.setdefault(name, Window(1, keep_s=self._window_s))
            window.add(at_s, (growth(self._before.get(name, now), now, 1e6),))
            self._before[name] = now

    def busiest(self) -> float:
        rates = [window.rates(self._window_s) for window in self._windows.values()]
        return max((_share(rate[0], 1000.0) for rate in rates if rate is not None), default=0.0)


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0

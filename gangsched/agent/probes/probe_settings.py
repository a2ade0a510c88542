"""The agent's sections `bandwidth` and `load`: the documents as written, and their validation.

Called by agent.settings. Both are off by default: a node that measures itself writes its Node object every
few seconds, which should be enabled deliberately.
"""

from __future__ import annotations

import math
from pathlib import PurePath

import msgspec

from gangsched.errors import ConfigError
from gangsched.model.stated.bandwidth import MAX_BANDWIDTH, MEGABYTE

_MAX_SECONDS = 3600.0
_MAX_WINDOWS = 8


class BandwidthDocument(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """nics: shell patterns of names; none: the physical ones. total_mbps: of one direction; 0: the links'
    speed. windows_seconds: averaging windows; the first one's value counts.
    """

    enabled: bool = False
    nics: tuple[str, ...] = ()
    total_mbps: float = msgspec.field(default=0.0, name="totalMBps")
    windows_seconds: tuple[float, ...] = (10.0, 60.0, 300.0)
    period_seconds: float = 20.0
    threshold_percent: float = 5.0


class LoadDocument(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """cpu_mhz: 0: as the system reports it; disk_mbps: 0: unknown. disk_probe: a directory on the disk whose
    throughput is measured once at the start, "" for none. cgroup: the node is this cgroup, not the machine.
    """

    enabled: bool = False
    window_seconds: float = 10.0
    period_seconds: float = 20.0
    threshold_percent: float = 10.0
    cpu_mhz: float = msgspec.field(default=0.0, name="cpuMHz")
    disk_mbps: float = msgspec.field(default=0.0, name="diskMBps")
    disk_probe: str = ""
    cgroup: str = ""


class ProbeSettings(msgspec.Struct, frozen=True):
    """Both."""

    bandwidth: BandwidthDocument = BandwidthDocument()
    load: LoadDocument = LoadDocument()

    @property
    def is_on(self) -> bool:
        """Whether there is anything to measure."""
        return self.bandwidth.enabled or self.load.enabled


def check_probes(bandwidth: BandwidthDocument, load: LoadDocument) -> ProbeSettings:
    """Raises: ConfigError."""
    if not 1 <= len(bandwidth.windows_seconds) <= _MAX_WINDOWS:
        raise ConfigError(f"needs 1 to {_MAX_WINDOWS} windows", path="bandwidth.windowsSeconds")
    for i, window_s in enumerate(bandwidth.windows_seconds):
        _within(window_s, 1.0, _MAX_SECONDS, f"bandwidth.windowsSeconds[{i}]", "seconds")
    for i, pattern in enumerate(bandwidth.nics):
        if not pattern or "/" in pattern:
            raise ConfigError(
                f"{pattern!r} is not a pattern of names such as eth*", path=f"bandwidth.nics[{i}]"
            )
    _within(bandwidth.total_mbps, 0.0, MAX_BANDWIDTH / MEGABYTE, "bandwidth.totalMBps", "MB/s")
    _within(load.window_seconds, 1.0, _MAX_SECONDS, "load.windowSeconds", "seconds")
    for name, section in (("bandwidth", bandwidth), ("load", load)):
        _within(section.period_seconds, 1.0, _MAX_SECONDS, f"{name}.periodSeconds", "seconds")
        _within(section.threshold_percent, 0.1, 100.0, f"{name}.thresholdPercent", "percent")
    _within(load.cpu_mhz, 0.0, 1e6, "load.cpuMHz", "MHz")
    _within(load.disk_mbps, 0.0, 1e7, "load.diskMBps", "MB/s")
    if load.disk_probe and not PurePath(load.disk_probe).is_absolute():
        raise ConfigError(f"{load.disk_probe!r} is not an absolute path", path="load.diskProbe")
    if load.disk_probe and load.disk_mbps:
        raise ConfigError("conflicts with diskMBps; keep one of them", path="load.diskProbe")
    if load.cgroup and (not load.cgroup.startswith("/") or ".." in PurePath(load.cgroup).parts):
        raise ConfigError(f"{load.cgroup!r} is not a cgroup as /proc/PID/cgroup names it", path="load.cgroup")
    if load.cgroup and load.disk_probe:
        raise ConfigError(
            "measures the machine's disk, not what the cgroup may have of it; give diskMBps",
            path="load.diskProbe",
        )
    return ProbeSettings(bandwidth, load)


def _within(value: float, least: float, most: float, path: str, unit: str) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise ConfigError(f"{value:g} is not within {least:g} to {most:g} {unit}", path=path)

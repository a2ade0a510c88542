"""The agent's sections `bandwidth` and `load`: the documents as written, and their validation.

Called by agent.settings. Both are off by default: a node that measures itself writes its Node object every
few seconds, which should be enabled deliberately.
"""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Annotated

import msgspec
from msgspec import Meta

from gangsched.errors import ConfigError
from gangsched.model.stated.bandwidth import MAX_BANDWIDTH, MEGABYTE

_MAX_SECONDS = 3600.0
_MAX_WINDOWS = 8


class BandwidthDocument(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How bandwidth is measured and reported; nics are shell patterns."""

    enabled: Annotated[bool, Meta(description="Write `gangsched.io/remaining-bandwidth`.")] = False
    nics: Annotated[
        tuple[str, ...],
        Meta(description="Patterns of NIC names that count; none: the physical ones."),
    ] = ()
    total_mbps: Annotated[
        float,
        Meta(description="Of one direction; 0: what the links' speeds add up to."),
    ] = msgspec.field(default=0.0, name="totalMBps")
    windows_seconds: Annotated[
        tuple[float, ...],
        Meta(description="Averaging windows; the first one counts, the others are shown."),
    ] = (10.0, 60.0, 300.0)
    period_seconds: Annotated[float, Meta(description="Written at least this often.")] = 20.0
    threshold_percent: Annotated[
        float,
        Meta(description="And when it moved by this much of the total."),
    ] = 5.0


class LoadDocument(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How load is measured and reported."""

    enabled: Annotated[bool, Meta(description="Write `gangsched.io/load`.")] = False
    window_seconds: Annotated[float, Meta(description="The averaging window.")] = 10.0
    period_seconds: Annotated[float, Meta(description="Written at least this often.")] = 20.0
    threshold_percent: Annotated[float, Meta(description="And when a term moved by this much.")] = 10.0
    cpu_mhz: Annotated[
        float,
        Meta(description="The clock rate; 0: what the system reports."),
    ] = msgspec.field(default=0.0, name="cpuMHz")
    disk_mbps: Annotated[
        float,
        Meta(description="The disks' throughput; 0: not known."),
    ] = msgspec.field(default=0.0, name="diskMBps")
    disk_probe: Annotated[
        str,
        Meta(description="A directory in which the throughput is measured once at the start; empty: not."),
    ] = ""
    cgroup: Annotated[
        str,
        Meta(description="A cgroup that is this node, as `/proc/PID/cgroup` names it; empty: the machine."),
    ] = ""


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

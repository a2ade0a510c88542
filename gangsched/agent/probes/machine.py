"""What this machine counts of itself: CPU time, memory, disks; and how fast its disk is. All of it I/O.

A container sees the host's CPU time, memory and disks in /proc; which of the disks are counted is decided
here: whole physical ones, no partitions, loops, RAM disks or device-mapper devices above them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import psutil

SYS_BLOCK = Path("/sys/block")
# The measured probe: bounded in bytes and in time, whichever comes first.
PROBE_BYTES = 64 * 2**20
PROBE_S = 1.0
_BLOCK = 2**20


class MachineSample(NamedTuple):
    """Times since the machine started; disk_busy_ms by disk."""

    n_cores: int
    mhz: float
    cpu_busy_s: float
    cpu_total_s: float
    memory_bytes: int
    memory_available_bytes: int
    disk_busy_ms: dict[str, int]


def read_machine() -> MachineSample:
    """As it is now."""
    times = psutil.cpu_times()
    # Linux counts a guest's time as the user's, too.
    counted = [getattr(times, name) for name in times._fields if name not in ("guest", "guest_nice")]
    idle = times.idle + getattr(times, "iowait", 0.0)
    memory = psutil.virtual_memory()
    frequency = psutil.cpu_freq()
    # Its stubs do not know that there is none in some virtual machines.
    mhz = getattr(frequency, "max", 0.0) or getattr(frequency, "current", 0.0)
    disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    return MachineSample(
        n_cores=psutil.cpu_count() or 1,
        mhz=float(mhz),
        cpu_busy_s=sum(counted) - idle,
        cpu_total_s=sum(counted),
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        disk_busy_ms={name: int(disk.busy_time) for name, disk in disks.items() if _is_disk(name)},
    )


def _is_disk(name: str) -> bool:
    return (SYS_BLOCK / name / "device").exists()


def measure_disk_mbps(directory: Path) -> float:
    """MB/s (10^6 bytes) at which a file in `directory` is written to the disk itself; the file is removed.

    At most PROBE_BYTES, at most about PROBE_S. Raises: OSError.
    """
    path = directory / f".gangsched-probe-{os.getpid()}"
    block = os.urandom(_BLOCK)  # a disk that packs zeros would look faster than it is
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        written, began_s = 0, time.perf_counter()
        while written < PROBE_BYTES and time.perf_counter() - began_s < PROBE_S:
            written += os.write(handle, block)
            os.fdatasync(handle)
        took_s = time.perf_counter() - began_s
    finally:
        os.close(handle)
        path.unlink()
    return written / took_s / 1e6

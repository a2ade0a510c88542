"""This machine's own counters: CPU time, memory, disks; and the speed of its disk. All of it I/O.

A container sees the host's CPU time, memory and disks in /proc. Only whole physical disks count, not
partitions, loops, RAM disks or device-mapper devices on top of them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import psutil

SYS_BLOCK = Path("/sys/block")
MOUNTS = Path("/proc/self/mountinfo")
_MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
# The throughput probe is bounded in bytes and in time.
PROBE_BYTES = 64 * 2**20
PROBE_S = 1.0
_BLOCK = 2**20


class MachineSample(NamedTuple):
    """Times since the machine started; disk_busy_ms by disk."""

    n_cores: float
    mhz: float
    cpu_busy_s: float
    cpu_total_s: float
    memory_bytes: int
    memory_available_bytes: int
    disk_busy_ms: dict[str, int]


def read_machine() -> MachineSample:
    """The current counters."""
    times = psutil.cpu_times()
    # Linux counts a guest's time as user time too.
    counted = [getattr(times, name) for name in times._fields if name not in ("guest", "guest_nice")]
    idle = times.idle + getattr(times, "iowait", 0.0)
    memory = psutil.virtual_memory()
    frequency = psutil.cpu_freq()
    # psutil's stubs ignore that some virtual machines have none.
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
    """Measures MB/s (10^6 bytes) of writing a file in `directory` through to the disk; removes the file.

    At most PROBE_BYTES, at most about PROBE_S. Raises: OSError.
    """
    path = directory / f".gangsched-probe-{os.getpid()}"
    block = os.urandom(_BLOCK)  # incompressible: a disk that compresses zeros would look faster than it is
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


def is_in_memory(directory: Path, mounts: Path = MOUNTS) -> bool:
    """Whether files in `directory` are on no disk at all. Raises: OSError, if there is no such directory."""
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.read_text().splitlines():
        # 36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw: fields that may be left out end at "-".
        fields, _, tail = line.partition(" - ")
        if fields.split()[2:3] == [number]:
            return tail.split(maxsplit=1)[0] in _MEMORY_FILESYSTEMS
    return False

"""A cgroup's own counters, for a node that is a cgroup, as with several nodes on one machine. All I/O. The
counterpart of read_machine, which is for a whole machine. The cgroup's limits are the node's capacity;
without a limit of cpu or memory the machine's counts. Supports both versions of the kernel's interface; the
cgroup is named as in /proc/PID/cgroup. Its disk counts as busy for the time that its transfers take at
`disk_mbps`.
"""

from __future__ import annotations

import time
from pathlib import Path

from gangsched.agent.probes.machine import MachineSample, read_machine

CGROUPS = Path("/sys/fs/cgroup")
# Files of version 1 express "no limit" by a number that no machine reaches.
_NO_LIMIT_BYTES = 2**60
_ALL = "cgroup"


def read_cgroup(name: str, *, disk_mbps: float, root: Path = CGROUPS) -> MachineSample:
    """Reads the current counters. Raises: OSError, if the cgroup is missing or its files are malformed."""
    machine = read_machine()
    read = _read_2 if (root / "cgroup.controllers").exists() else _read_1
    try:
        cores, busy_s, limit, used, moved = read(root, name.strip("/"))
    except (ValueError, IndexError, KeyError) as error:
        raise OSError(f"files of cgroup {name} are not as expected: {error}") from None
    n_cores = cores or float(machine.n_cores)
    memory = min(limit or machine.memory_bytes, machine.memory_bytes)
    return MachineSample(
        n_cores=n_cores,
        mhz=machine.mhz,
        cpu_busy_s=busy_s,
        cpu_total_s=n_cores * time.monotonic(),
        memory_bytes=memory,
        memory_available_bytes=max(0, memory - used),
        disk_busy_ms={_ALL: round(moved / (disk_mbps * 1e3))} if disk_mbps else {},
    )


# (cores or 0 for no limit, CPU seconds, memory limit or 0, memory in use, bytes read and written)
_Read = tuple[float, float, int, int, int]


def _read_2(root: Path, name: str) -> _Read:
    folder = root / name
    quota, period = (folder / "cpu.max").read_text().split()
    limit = (folder / "memory.max").read_text().strip()
    reclaimable = _table(folder / "memory.stat")["inactive_file"]
    moved = 0
    for line in (folder / "io.stat").read_text().splitlines():
        fields = dict(field.split("=") for field in line.split()[1:])
        moved += int(fields.get("rbytes", 0)) + int(fields.get("wbytes", 0))
    return (
        0.0 if quota == "max" else int(quota) / int(period),
        _table(folder / "cpu.stat")["usage_usec"] / 1e6,
        0 if limit == "max" else int(limit),
        int((folder / "memory.current").read_text()) - reclaimable,
        moved,
    )


def _read_1(root: Path, name: str) -> _Read:
    cpu, memory, disk = (root / controller / name for controller in ("cpu", "memory", "blkio"))
    quota = int((cpu / "cpu.cfs_quota_us").read_text())
    limit = int((memory / "memory.limit_in_bytes").read_text())
    # Without "recursive", as in older kernels, it does not include child groups.
    counted = disk / "blkio.throttle.io_service_bytes_recursive"
    if not counted.exists():
        counted = disk / "blkio.throttle.io_service_bytes"
    moved = (line.split() for line in counted.read_text().splitlines())
    return (
        quota / int((cpu / "cpu.cfs_period_us").read_text()) if quota > 0 else 0.0,
        int((root / "cpuacct" / name / "cpuacct.usage").read_text()) / 1e9,
        limit if limit < _NO_LIMIT_BYTES else 0,
        int((memory / "memory.usage_in_bytes").read_text())
        - _table(memory / "memory.stat")["total_inactive_file"],
        sum(int(words[2]) for words in moved if words[1:2] in (["Read"], ["Write"])),
    )


def _table(path: Path) -> dict[str, int]:
    """Reads lines "name number"."""
    return {name: int(value) for name, value in map(str.split, path.read_text().splitlines())}

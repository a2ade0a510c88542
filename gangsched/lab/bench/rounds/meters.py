"""CPU time, memory and writes, read from outside while a round runs.

What does not live here: times of binds (watch_log.py). Linux's /proc through psutil; the peak of a process's
memory is read directly.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

DISTURBED_CORES = 0.15
"""Other processes may use this share of one core before a round counts as disturbed."""
QUIET_CORES = 0.10
QUIET_PERIOD_S = 0.5
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE", "APPLY"})
_REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PREFIX = "apiserver_request_total{"
SLOW_SYNC_S = 0.032
"""A sync of etcd's log this long is a delay that no scheduler can help; one of etcd's histogram's bounds."""
_SYNC_COUNT = "etcd_disk_wal_fsync_duration_seconds_count "
_SYNC_QUICK = f'etcd_disk_wal_fsync_duration_seconds_bucket{{le="{SLOW_SYNC_S:g}"}} '


class Sample(msgspec.Struct, frozen=True):
    """CPU seconds so far: of the whole machine, and of each of our processes."""

    at_s: float
    machine_cpu_s: float
    cpu_s: Mapping[str, float]


def cpu_s(pid: int) -> float:
    """User and system time of a process and its children, those that have ended included.

    Raises: psutil.NoSuchProcess.
    """
    process = psutil.Process(pid)
    times = process.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in process.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:2])
        except psutil.NoSuchProcess:  # then it is in its parent's sum, from the next look on
            continue
    return float(total)


def sample(pids: Mapping[str, int]) -> Sample:
    """CPU times now; `bench` is added for this process itself."""
    machine = psutil.cpu_times()
    # Interrupts are left out: they belong to no process, and our own loopback traffic causes most.
    busy_s = machine.user + machine.system + getattr(machine, "nice", 0.0) + getattr(machine, "steal", 0.0)
    ours = {name: cpu_s(pid) for name, pid in pids.items()}
    own = psutil.Process().cpu_times()
    ours["bench"] = own.user + own.system
    return Sample(time.monotonic(), busy_s, ours)


def others_cores(before: Sample, after: Sample) -> float:
    """Returns the cores that processes other than ours used in between, on average; never negative."""
    ours_s = sum(after.cpu_s.values()) - sum(before.cpu_s.get(name, 0.0) for name in after.cpu_s)
    elapsed_s = after.at_s - before.at_s
    return max(after.machine_cpu_s - before.machine_cpu_s - ours_s, 0.0) / elapsed_s if elapsed_s else 0.0


def is_disturbed(cores: float) -> bool:
    """Whether other load was large enough to change a round's figures."""
    return cores > DISTURBED_CORES


def wait_quiet(pids: Mapping[str, int], *, timeout_s: float) -> bool:
    """Returns when each of these processes has nearly stopped working, or False after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        time.sleep(QUIET_PERIOD_S)
        most = max(cpu_s(pid) - before[name] for name, pid in pids.items())
        if most < QUIET_CORES * QUIET_PERIOD_S:
            return True
        if time.monotonic() > deadline_s:
            return False


def peak_memory_bytes(pid: int) -> int:
    """The most memory a process has had resident; if the system does not report that, what it has now."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:  # it has ended just now: the round says so
        return 0


def count_writes(metrics: str) -> dict[str, int]:
    """Write requests so far by "VERB resource/subresource", whatever was answered.

    Source: apiserver_request_total. Reviews of tokens and rights write nothing and are left out.
    """
    counts: dict[str, int] = {}
    for line in metrics.splitlines():
        if not line.startswith(_PREFIX):
            continue
        labels, _, value = line[len(_PREFIX) :].rpartition("} ")
        found = dict(_LABEL.findall(labels))
        verb = found.get("verb", "")
        if verb not in _WRITES or found.get("group") in _REVIEW_GROUPS:
            continue
        resource = found.get("resource", "")
        if found.get("subresource"):
            resource += f"/{found['subresource']}"
        key = f"{verb} {resource}"
        counts[key] = counts.get(key, 0) + int(float(value))
    return counts


def new_writes(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Returns the writes in between, most first; without zeros."""
    grown = {key: n - before.get(key, 0) for key, n in after.items() if n > before.get(key, 0)}
    return dict(sorted(grown.items(), key=lambda item: (-item[1], item[0])))


def is_lease(key: str) -> bool:
    """Whether these writes only renew a lease; listed apart from writes per pod."""
    return key.partition(" ")[2] == "leases"


def count_slow_syncs(metrics: str) -> int:
    """How often etcd has waited longer than SLOW_SYNC_S for its log to be on the disk.

    Source: etcd_disk_wal_fsync_duration_seconds. Raises: ValueError if that is missing.
    """
    found = {
        prefix: float(line.removeprefix(prefix))
        for line in metrics.splitlines()
        for prefix in (_SYNC_COUNT, _SYNC_QUICK)
        if line.startswith(prefix)
    }
    if len(found) != 2:
        raise ValueError("etcd's metrics have no etcd_disk_wal_fsync_duration_seconds")
    return int(found[_SYNC_COUNT] - found[_SYNC_QUICK])


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""One round: all pods pending, a scheduler is started, and everything is recorded until it rests.

Not here: the order of rounds (lab.bench.command), and their sums (report.py).
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangsched.errors import GangschedError
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.rounds import checks, contenders, meters
from gangsched.lab.bench.rounds.cluster import Cluster
from gangsched.lab.bench.rounds.watch_log import WatchProcess
from gangsched.lab.bench.rounds.workload import RESOURCE, Shape, inventory, node_name, planned_bindings
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.devices.annotations import DeviceInventory, parse_inventory

POLL_PERIOD_S = 0.1
BEFORE_QUIET_S = 20.0
AFTER_QUIET_S = 30.0
STALL_S = 120.0
"""kube-scheduler's own gang scheduling needs half a minute to its first bind on two cores."""


class Round(msgspec.Struct, kw_only=True):
    """The results of one round of one scheduler; seconds count from just before its process was made.

    CPU is from then until it rests, all processes; writes are the API server's count over the same time.
    """

    number: int
    scheduler: str
    warm_up: bool
    at: str
    n_pods: int
    n_bound: int
    first_bind_s: float
    last_bind_s: float
    pods_per_s: float
    pods_per_s_from_start: float
    cpu_us_per_pod: dict[str, float]
    writes_per_pod: float
    writes: dict[str, int]
    lease_writes: dict[str, int]
    peak_memory_mib: float
    others_cores: float
    disturbed: bool
    rested: bool
    gangs: checks.Gangs | None
    problems: list[str]
    log_tail: str = ""
    journal_bytes_per_pod: float = 0.0


class _Seen(NamedTuple):
    """What was read while the scheduler ran."""

    start_ns: int
    before: meters.Sample
    after: meters.Sample
    rested: bool
    peak_memory_bytes: int
    writes: dict[str, int]
    problems: tuple[str, ...]
    log_tail: str
    journal_bytes: int


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0


class Bench:
    """A control plane with the nodes on it, and all that rounds have in common."""

    def __init__(
        self, cp: ControlPlane, cluster: Cluster, shape: Shape, folder: Path, progress: Progress
    ) -> None:
        self.cp = cp
        self.cluster = cluster
        self.shape = shape
        self.folder = folder
        self.progress = progress
        self.inventories: dict[str, DeviceInventory] = {}

    def set_up(self) -> None:
        """Makes the nodes."""
        with self.progress.bar("creating nodes", self.shape.n_nodes) as advance:
            self.cluster.create_nodes(self.shape, advance)
        for i in range(self.shape.n_nodes):
            text = msgspec.json.encode(inventory(i, self.shape.gpus)).decode()
            self.inventories[node_name(i)] = parse_inventory(text)[RESOURCE]

    def pids(self) -> dict[str, int]:
        """The servers' processes. Raises: GangschedError when one has ended."""
        servers = {"apiserver": self.cp.apiserver, "etcd": self.cp.etcd}
        pids = {}
        for name, daemon in servers.items():
            if daemon is None or not daemon.running:
                raise GangschedError(f"{name} has ended during the bench")
            pids[name] = daemon.pid
        return pids

    def run(self, scheduler: str, number: int, *, warm_up: bool = False) -> Round:
        """Runs one round, from creating the pods to deleting them."""
        prefix = f"r{number}-{scheduler}"
        uids = self._create(prefix, scheduler)
        plan = self.folder / "plan"
        if scheduler == contenders.NULL:
            bindings = planned_bindings(self.shape, prefix, uids)
            contenders.write_null_plan(plan, bindings, self.cp)
        result = self._measure(scheduler, number, plan, warm_up=warm_up)
        with self.progress.phase("deleting pods"):
            self.cluster.clear()
        return result

    def _create(self, prefix: str, scheduler: str) -> dict[str, str]:
        with self.progress.bar(f"{prefix}: creating pods", self.shape.n_gangs + self.shape.n_pods) as advance:
            self.cluster.create_groups(prefix, range(self.shape.n_gangs), self.shape.gang_size, advance)
            name = contenders.SCHEDULER_NAMES[scheduler]
            return self.cluster.create_pods(prefix, self.shape, name, advance)

    def _measure(self, scheduler: str, number: int, plan: Path, *, warm_up: bool) -> Round:
        at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        _, version = self.cluster.pods()
        watcher = WatchProcess(self.cp, self.folder, version)
        try:
            seen = self._observe(scheduler, plan, watcher)
            log = watcher.finish()
        finally:
            watcher.kill()
        final, _ = self.cluster.pods()
        findings = checks.check(
            log,
            final,
            gang_size=self.shape.gang_size,
            gpus=self.shape.gpus,
            inventories=self.inventories if scheduler in contenders.WRITES_DEVICES else None,
            gang_by_gang=scheduler in contenders.OURS,
        )
        n = self.shape.n_pods
        problems = [*findings.problems, *seen.problems]
        if len(final) != n:
            problems.append(f"{len(final)} pods are there, {n} were created")
        times = _times(findings, seen.start_ns)
        # The fence is a Lease, and what is written there is written for pods.
        all_count = scheduler == contenders.FENCED
        real_writes = {key: n for key, n in seen.writes.items() if all_count or not meters.is_lease(key)}
        others = meters.others_cores(seen.before, seen.after)
        return Round(
            number=number,
            scheduler=scheduler,
            warm_up=warm_up,
            at=at,
            n_pods=n,
            n_bound=findings.n_bound,
            first_bind_s=times.first_s,
            last_bind_s=times.last_s,
            pods_per_s=times.pods_per_s,
            pods_per_s_from_start=times.pods_per_s_from_start,
            cpu_us_per_pod=_cpu_us_per_pod(seen.before, seen.after, n),
            writes_per_pod=sum(real_writes.values()) / n,
            writes=real_writes,
            lease_writes={key: count for key, count in seen.writes.items() if meters.is_lease(key)},
            peak_memory_mib=seen.peak_memory_bytes / 2**20,
            others_cores=others,
            disturbed=meters.is_disturbed(others),
            rested=seen.rested,
            gangs=findings.gangs,
            problems=problems,
            log_tail=seen.log_tail if problems else "",
            journal_bytes_per_pod=seen.journal_bytes / n,
        )

    def _observe(self, scheduler: str, plan: Path, watcher: WatchProcess) -> _Seen:
        """Starts the scheduler, reads the meters once it rests, and stops it."""
        writes_before = meters.count_writes(self.cluster.metrics())
        servers = self.pids() | {"watcher": watcher.daemon.pid}
        meters.wait_quiet(servers, timeout_s=BEFORE_QUIET_S)
        before = meters.sample(servers)
        shutil.rmtree(contenders.journal(self.folder), ignore_errors=True)
        started = contenders.start(scheduler, self.cp, self.folder, plan)
        try:
            self._wait_bound(watcher, started)
            running = started.daemon.running
            pids = servers | ({"scheduler": started.daemon.pid} if running else {})
            rested = meters.wait_quiet(pids, timeout_s=AFTER_QUIET_S)
            after = meters.sample(pids)
            return _Seen(
                start_ns=started.at_ns,
                before=before,
                after=after,
                rested=rested,
                peak_memory_bytes=meters.peak_memory_bytes(started.daemon.pid) if running else 0,
                writes=meters.new_writes(writes_before, meters.count_writes(self.cluster.metrics())),
                problems=() if running else (f"{scheduler} ended during the round",),
                log_tail=started.daemon.tail(),
                journal_bytes=_bytes_in(contenders.journal(self.folder)),
            )
        finally:
            contenders.stop(started, self.cp)

    def _wait_bound(self, watcher: WatchProcess, started: contenders.Started) -> None:
        """Waits until all pods are bound, none was for a long time, or the scheduler has ended."""
        n_bound, changed_s = 0, time.monotonic()
        with self.progress.bar("binding", self.shape.n_pods) as advance:
            while n_bound < self.shape.n_pods and started.daemon.running and watcher.daemon.running:
                time.sleep(POLL_PERIOD_S)
                for _ in range(watcher.n_bound - n_bound):
                    advance()
                    n_bound += 1
                    changed_s = time.monotonic()
                if time.monotonic() - changed_s > STALL_S:
                    return


class _Times(NamedTuple):
    first_s: float
    last_s: float
    pods_per_s: float
    pods_per_s_from_start: float


def _times(findings: checks.Findings, start_ns: int) -> _Times:
    n = findings.n_bound
    if n < 2:
        return _Times(0.0, 0.0, 0.0, 0.0)
    first_s = (findings.first_bind_ns - start_ns) / 1e9
    last_s = (findings.last_bind_ns - start_ns) / 1e9
    # Only in small runs do all come in one read of the watch; then there is no speed to report.
    between_s = last_s - first_s
    return _Times(first_s, last_s, (n - 1) / between_s if between_s else 0.0, n / last_s)


def _cpu_us_per_pod(before: meters.Sample, after: meters.Sample, n_pods: int) -> dict[str, float]:
    return {
        name: (cpu - before.cpu_s.get(name, 0.0)) * 1e6 / max(n_pods, 1) for name, cpu in after.cpu_s.items()
    }

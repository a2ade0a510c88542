"""Workers that are cgroups of this machine, with a link of their own each; tasks are processes in them.

Lives here: making, limiting and removing them. Limits: CPU time, memory, writing to the disk, and what the
link sends. Not here: what measures them (their agents) and places tasks on them (`real`). Needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gangsched.agent.probes.cgroup import CGROUPS
from gangsched.errors import GangschedError
from gangsched.lab.bench.balance.model import Kind, Worker
from gangsched.lab.controlplane.daemon import Daemon

SCALE = 25
"""The model's workers are this many times as strong, and its tasks use this many times as much."""
MOST_S = 900.0
"""A task ends by itself after this time, even if the bench is gone."""
_TASK = Path(__file__).with_name("task.py")
_PERIOD_US = 100_000
_PORT = 9
_V1 = ("cpu", "cpuacct", "memory", "blkio")


class Site:
    """One worker. `nic` is the machine's end of its link, where its agent counts; `network` the namespace
    where the other end is."""

    def __init__(self, worker: Worker, number: int, *, host_mhz: float, scratch: Path) -> None:
        self.worker = worker
        self.name = worker.name
        own = os.getpid()
        self.nic = f"gsb{own}-{number}"
        self.cgroup = f"/gangsched-bench-{own}-{number}"
        self.network = f"gangsched-bench-{own}-{number}"
        # From a range for benchmarks; another run beside us most probably has another part of it.
        net = f"198.19.{own % 80 * 3 + number}"
        self._here, self._there = f"{net}.1", f"{net}.2"
        self._scratch = scratch
        self._host_mhz = host_mhz
        self._tasks: list[Daemon] = []
        self._sink: socket.socket | None = None

    @property
    def cores(self) -> float:
        """Cores of this machine that make up the worker's clock cycles."""
        can = self.worker.performance
        return can.cores * can.mhz / self._host_mhz / SCALE

    @property
    def network_mbps(self) -> float:
        return self.worker.performance.network_mbps / SCALE

    @property
    def disk_mbps(self) -> float:
        return self.worker.performance.disk_mbps / SCALE

    def open(self) -> None:
        """Makes the cgroups and the link. Raises: OSError, CalledProcessError."""
        device = _disk_of(self._scratch)
        memory = round(self.worker.performance.memory_bytes / SCALE)
        quota, write_bps = round(self.cores * _PERIOD_US), round(self.disk_mbps * 1e6)
        if (CGROUPS / "cgroup.controllers").exists():
            there = (CGROUPS / "cgroup.controllers").read_text().split()
            wanted = [f"+{one}" for one in ("cpu", "memory", "io", "cpuset", "pids") if one in there]
            (CGROUPS / "cgroup.subtree_control").write_text(" ".join(wanted))
            limits = {
                "cpu.max": f"{quota} {_PERIOD_US}",
                "memory.max": f"{memory}",
                "io.max": f"{device} wbps={write_bps}",
            }
        else:
            limits = {
                "cpu/cpu.cfs_period_us": f"{_PERIOD_US}",
                "cpu/cpu.cfs_quota_us": f"{quota}",
                "memory/memory.limit_in_bytes": f"{memory}",
                "blkio/blkio.throttle.write_bps_device": f"{device} {write_bps}",
            }
        for folder in self._folders():
            folder.mkdir(exist_ok=True)
        for name, text in limits.items():
            controller, _, file = name.rpartition("/")
            (CGROUPS / controller / self.cgroup[1:] / file).write_text(text)
        self._open_link()

    def _open_link(self) -> None:
        inside = ("netns", "exec", self.network, "ip")
        _ip("netns", "add", self.network)
        _ip("link", "add", self.nic, "type", "veth", "peer", "name", "gsb", "netns", self.network)
        _ip("address", "add", f"{self._here}/30", "dev", self.nic)
        _ip("link", "set", self.nic, "mtu", "65535", "up")
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "address", "add", f"{self._there}/30", "dev", "gsb")
        _ip(*inside, "link", "set", "gsb", "mtu", "65535", "up")
        rate = f"{self.network_mbps * 8:.3f}mbit"
        shaper = ("qdisc", "add", "dev", "gsb", "root", "tbf", "rate", rate, "burst", "256kb")
        _ip("netns", "exec", self.network, "tc", *shaper, "latency", "50ms")
        # Nothing reads it: what does not fit any more is dropped.
        self._sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sink.bind((self._here, _PORT))

    @property
    def sink(self) -> tuple[str, int]:
        """Where its tasks send to."""
        return self._here, _PORT

    def file_of(self, number: int) -> Path:
        """The task's file, which exists once the task runs and has its memory."""
        return self._scratch / f"{self.name}-{number}"

    def start(self, task: Kind, number: int) -> None:
        """Runs a task as a process, until `close`."""
        cgroups = [str(folder / "cgroup.procs") for folder in self._folders()]
        wanted = task_arguments(task, number, [self], self._host_mhz, self._scratch, self.name)
        # Not `ip netns exec`, which hides the cgroups: it mounts another /sys.
        command = [str(shutil.which("nsenter")), f"--net=/run/netns/{self.network}"]
        command += task_command({**wanted, "cgroups": cgroups})
        log = self._scratch / "tasks.log"
        self._tasks.append(Daemon(f"task {number}", command, log=log, env={}))

    def ended(self) -> list[str]:
        """Returns tasks that no longer run, and their last output; there should be none."""
        return [f"{one.name}: {one.tail()}" for one in self._tasks if not one.running]

    def close(self) -> None:
        """Ends its tasks, and removes its link and cgroups."""
        for task in self._tasks:
            task.kill()
        if self._sink is not None:
            self._sink.close()
        for command in (("netns", "delete", self.network), ("link", "delete", self.nic)):
            with suppress(OSError, subprocess.CalledProcessError):
                _ip(*command)
        # Also cgroups in which only its kubelet's containers were counted.
        for folder in [*self._folders(), *CGROUPS.glob(f"*{self.cgroup}")]:
            with suppress(OSError):
                folder.rmdir()

    def _folders(self) -> list[Path]:
        if (CGROUPS / "cgroup.controllers").exists():
            return [CGROUPS / self.cgroup[1:]]
        return [CGROUPS / controller / self.cgroup[1:] for controller in _V1]


def task_arguments(
    task: Kind, number: int, made: Sequence[Site], host_mhz: float, scratch: Path, node: str
) -> dict[str, object]:
    """The arguments of `task` for a task that may run on any of `made`; node: the one that it runs on."""
    return {
        "cgroups": [],
        "cores": task.cpu_ghz * 1000 / host_mhz / SCALE,
        "memory_bytes": task.memory_bytes / SCALE,
        "network_bytes_s": task.network_mbps * 1e6 / SCALE,
        "disk_bytes_s": task.disk_mbps * 1e6 / SCALE,
        "sinks": {site.name: site.sink for site in made},
        "node": node,
        "file": str(scratch / f"{node}-{number}"),
        "most_s": MOST_S,
    }


def task_command(wanted: Mapping[str, object]) -> list[str]:
    """The command of a task's process."""
    return [sys.executable, "-I", "-S", str(_TASK), json.dumps(wanted)]


@contextmanager
def sites(workers: Sequence[Worker], *, host_mhz: float, scratch: Path) -> Iterator[list[Site]]:
    """Opens a site for each worker, limited and linked. Raises: GangschedError, with what would be needed."""
    _check_possible()
    made = [
        Site(worker, number, host_mhz=host_mhz, scratch=scratch) for number, worker in enumerate(workers, 1)
    ]
    try:
        for site in made:
            try:
                site.open()
            except (OSError, subprocess.CalledProcessError) as error:
                output = (getattr(error, "stderr", "") or str(error)).strip()
                raise GangschedError(f"{site.name} cannot be made of a cgroup and a link: {output}") from None
        yield made
    finally:
        for site in made:
            site.close()


def _check_possible() -> None:
    if os.geteuid() != 0:
        raise GangschedError("real workers are cgroups with links of their own: run this as root")
    missing = [name for name in ("ip", "tc", "nsenter") if shutil.which(name) is None]
    if missing:
        raise GangschedError(f"real workers need {' and '.join(missing)}: install iproute2 and util-linux")


def _disk_of(directory: Path) -> str:
    """The whole disk's number, as 254:0. Raises: OSError."""
    device = os.stat(directory).st_dev
    link = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not link.exists():
        raise OSError(f"{directory} is on no disk whose writes can be limited")
    folder = link.resolve()
    if (folder / "partition").exists():
        folder = folder.parent
    return (folder / "dev").read_text().strip()


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True, timeout=30)

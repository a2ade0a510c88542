"""A node that is a cgroup: its limits are what it has, in both versions of the kernel's files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gangsched.agent.probes.cgroup import read_cgroup
from gangsched.agent.probes.machine import read_machine
from gangsched.agent.settings import AgentFlags, parse_settings
from gangsched.errors import ConfigError

TWO = {
    "cgroup.controllers": "cpu io memory",
    "w/cpu.max": "50000 100000",
    "w/cpu.stat": "usage_usec 1500000\nuser_usec 1000000",
    "w/memory.max": "500000000",
    "w/memory.current": "300000000",
    "w/memory.stat": "anon 200000000\ninactive_file 100000000",
    "w/io.stat": "8:0 rbytes=1000000 wbytes=2000000 rios=1\n8:16 rbytes=0 wbytes=1000000",
}
ONE = {
    "cpu/w/cpu.cfs_quota_us": "50000",
    "cpu/w/cpu.cfs_period_us": "100000",
    "cpuacct/w/cpuacct.usage": "1500000000",
    "memory/w/memory.limit_in_bytes": "500000000",
    "memory/w/memory.usage_in_bytes": "300000000",
    "memory/w/memory.stat": "cache 5\ntotal_inactive_file 100000000",
    "blkio/w/blkio.throttle.io_service_bytes": "8:0 Read 1000000\n8:0 Write 3000000\n8:0 Total 4000000\n"
    "Total 4000000",
}
NO_LIMIT_TWO = {"w/cpu.max": "max 100000", "w/memory.max": "max"}
NO_LIMIT_ONE = {
    "cpu/w/cpu.cfs_quota_us": "-1",
    "memory/w/memory.limit_in_bytes": "9223372036854771712",
}


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


@pytest.mark.parametrize("files", [ONE, TWO], ids=["version 1", "version 2"])
def test_its_limits_are_what_there_is(files: Mapping[str, str], tmp_path: Path) -> None:
    before_s = time.monotonic()
    read = read_cgroup("/w", disk_mbps=2.0, root=tree(tmp_path, files))
    assert (read.n_cores, read.cpu_busy_s) == (0.5, 1.5)
    assert 0.5 * before_s <= read.cpu_total_s <= 0.5 * time.monotonic()
    assert (read.memory_bytes, read.memory_available_bytes) == (500_000_000, 300_000_000)
    assert read.disk_busy_ms == {"cgroup": 2000}, "4 MB at 2 MB/s"
    assert read_cgroup("/w", disk_mbps=0, root=tmp_path).disk_busy_ms == {}


def test_what_groups_inside_of_it_move_is_counted_too(tmp_path: Path) -> None:
    """Version 1 has a file of its own for that; version 2 always counts them."""
    inside = {"blkio/w/blkio.throttle.io_service_bytes_recursive": "8:0 Read 1000000\n8:0 Write 7000000\n"}
    read = read_cgroup("/w", disk_mbps=2.0, root=tree(tmp_path, {**ONE, **inside}))
    assert read.disk_busy_ms == {"cgroup": 4000}


@pytest.mark.parametrize(
    "files", [{**ONE, **NO_LIMIT_ONE}, {**TWO, **NO_LIMIT_TWO}], ids=["version 1", "version 2"]
)
def test_without_a_limit_the_machines_counts(files: Mapping[str, str], tmp_path: Path) -> None:
    read, machine = read_cgroup("/w", disk_mbps=0, root=tree(tmp_path, files)), read_machine()
    assert (read.n_cores, read.memory_bytes) == (machine.n_cores, machine.memory_bytes)


@pytest.mark.parametrize("files", [ONE, TWO], ids=["version 1", "version 2"])
def test_one_that_is_not_there_or_is_strange_cannot_be_read(files: Mapping[str, str], tmp_path: Path) -> None:
    tree(tmp_path, files)
    with pytest.raises(OSError, match="No such file"):
        read_cgroup("/other", disk_mbps=0, root=tmp_path)
    for name in files:
        if name.endswith(("cpu.max", "cfs_quota_us")):
            (tmp_path / name).write_text("what?\n")
    with pytest.raises(OSError, match="files of cgroup /w are not as expected"):
        read_cgroup("/w", disk_mbps=0, root=tmp_path)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ("cgroup: w", "load.cgroup: 'w' is not a cgroup as /proc/PID/cgroup names it"),
        ("cgroup: /a/../b", "load.cgroup: '/a/../b' is not a cgroup"),
        ("cgroup: /w, diskProbe: /var", "load.diskProbe: measures the machine's disk, not what the cgroup"),
    ],
)
def test_mistakes_have_their_place(load: str, message: str) -> None:
    head = "apiVersion: gangsched.io/v1\nkind: AgentConfiguration\nnodeName: n1\n"
    with pytest.raises(ConfigError, match=r"agent\.yaml: ") as caught:
        parse_settings(head + f"load: {{{load}}}\n", source="agent.yaml", flags=AgentFlags(), environ={})
    assert message in str(caught.value)

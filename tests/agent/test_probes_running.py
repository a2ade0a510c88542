"""The task that measures: what it writes, and what it does when nothing can be read or written."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import anyio
import msgspec
import pytest
import structlog

from gangsched.agent.probes import running
from gangsched.agent.probes.machine import MachineSample
from gangsched.agent.probes.nics import Nic
from gangsched.agent.probes.probe_settings import BandwidthDocument, LoadDocument, ProbeSettings
from gangsched.agent.probes.running import Probes
from gangsched.errors import ApiError
from gangsched.model.stated.bandwidth import REMAINING_KEY, parse_remaining
from gangsched.model.stated.evenness import terms_without_data
from gangsched.model.stated.load import LOAD_KEY, parse_load

BOTH = ProbeSettings(
    BandwidthDocument(enabled=True, windows_seconds=(1.0, 2.0)),
    LoadDocument(enabled=True, window_seconds=1.0, disk_mbps=200),
)
SPEED = 125_000_000


class Node:
    """What was written; `refuse`: so many writes fail first."""

    def __init__(self, refuse: int = 0) -> None:
        self.refuse = refuse
        self.n_tried = 0
        self.annotations: dict[str, str] = {}
        self.events: list[str] = []

    async def tell(self, text: str) -> None:
        self.events.append(text)

    async def write(self, annotations: Mapping[str, str]) -> None:
        self.n_tried += 1
        if self.n_tried <= self.refuse:
            raise ApiError("refused", code=503, reason="ServiceUnavailable", retry_after_s=0.01)
        self.annotations.update(annotations)


async def run_until_written(settings: ProbeSettings, node: Node, *keys: str) -> list[str]:
    """What was logged meanwhile."""
    probes = Probes(settings, node.write, node.tell, node="n1", rng=Random(1))
    with structlog.testing.capture_logs() as logged:
        async with anyio.create_task_group() as task:
            task.start_soon(probes.run)
            with anyio.fail_after(30):
                while not set(keys) <= set(node.annotations):
                    await anyio.sleep(0.01)
            task.cancel_scope.cancel()
    return [str(line["event"]) for line in logged]


DISK = {"vda": 0}


def machine(mhz: float = 2400.0, disks: Mapping[str, int] = DISK) -> MachineSample:
    """Its counters, the same each time."""
    return MachineSample(8, mhz, 1.0, 8.0, 16 * 10**9, 4 * 10**9, dict(disks))


@pytest.fixture(autouse=True)
def reads_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "read_machine", machine)


@pytest.fixture(autouse=True)
def nics(monkeypatch: pytest.MonkeyPatch) -> list[Nic]:
    """The machine's: one, that says the same each time."""
    found = [Nic("eth0", True, True, False, SPEED, 5, 7)]
    monkeypatch.setattr(running, "read_nics", lambda: found)
    return found


async def test_both_annotations_are_written() -> None:
    node = Node()
    said = await run_until_written(BOTH, node, REMAINING_KEY, LOAD_KEY)
    remaining, load = parse_remaining(node.annotations[REMAINING_KEY]), parse_load(node.annotations[LOAD_KEY])
    assert (remaining.egress, remaining.total) == (SPEED, SPEED)
    assert load.performance.network_mbps == 125
    assert load.performance.disk_mbps == 200
    assert said == ["NICs counted"]
    assert node.events == [], "there is data for all of it"


async def test_only_what_is_wanted_is_written() -> None:
    node = Node()
    await run_until_written(ProbeSettings(bandwidth=BOTH.bandwidth), node, REMAINING_KEY)
    assert set(node.annotations) == {REMAINING_KEY}
    node = Node()
    await run_until_written(ProbeSettings(load=BOTH.load), node, LOAD_KEY)
    assert set(node.annotations) == {LOAD_KEY}


async def test_a_failed_write_is_reported_once_and_retried() -> None:
    node = Node(refuse=2)
    said = await run_until_written(BOTH, node, REMAINING_KEY)
    assert node.n_tried >= 3
    assert said.count("the node cannot be written: 503 ServiceUnavailable: refused") == 1
    assert "the node is written again" in said


async def test_a_link_of_unknown_speed_is_reported_with_the_cure(nics: list[Nic]) -> None:
    nics[:] = [Nic("eth0", True, True, False, 0, 5, 7)]
    node = Node()
    said = await run_until_written(BOTH, node, LOAD_KEY)
    assert "the speed of eth0 is not known: give bandwidth.totalMBps, or other nics" in said
    assert REMAINING_KEY not in node.annotations
    assert node.events[0] == "the speed of eth0 is not known: give bandwidth.totalMBps, or other nics"


@pytest.mark.parametrize(
    ("read", "load", "gap"),
    [
        (machine(mhz=0), LoadDocument(disk_mbps=5), "cpu: the system does not report its clock rate: set"),
        (
            machine(),
            LoadDocument(),
            "disk: its throughput is not known: set load.diskMBps, or load.diskProbe",
        ),
        (
            machine(),
            LoadDocument(disk_probe="/absent"),
            "disk: the throughput cannot be measured in /absent: No",
        ),
        (machine(disks={}), LoadDocument(disk_mbps=5), "disk: the system counts no physical disk"),
    ],
    ids=["clock rate", "not given", "probe", "no disk"],
)
async def test_a_term_without_data_is_reported_in_the_log_and_by_an_event(
    read: MachineSample, load: LoadDocument, gap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "read_machine", lambda: read)
    load = msgspec.structs.replace(load, enabled=True, window_seconds=1.0, period_seconds=1.0)
    node, n_written = Node(), 0

    async def write(annotations: Mapping[str, str]) -> None:
        nonlocal n_written
        n_written += 1
        if n_written > 1:  # by now it would have been said twice
            await Node.write(node, annotations)

    monkeypatch.setattr(node, "write", write)
    said = await run_until_written(ProbeSettings(load=load), node, LOAD_KEY)
    (event,) = node.events
    assert event.startswith(f"no data for a part of the load, which counts as 0: {gap}")
    assert said.count(event) == 1
    assert terms_without_data(parse_load(node.annotations[LOAD_KEY]).performance) == (gap.partition(":")[0],)


async def test_a_probe_in_memory_measures_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "is_in_memory", lambda directory: True)
    load = LoadDocument(enabled=True, window_seconds=1.0, disk_probe="/dev/shm")
    node = Node()
    await run_until_written(ProbeSettings(load=load), node, LOAD_KEY)
    assert "disk: /dev/shm is in memory, not on a disk: give load.diskMBps, or another" in node.events[0]
    assert parse_load(node.annotations[LOAD_KEY]).performance.disk_mbps == 0


async def test_counters_that_cannot_be_read_are_reported_and_tried_again(
    nics: list[Nic], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([OSError("no such directory")])

    def read() -> list[Nic]:
        for error in answers:
            raise error
        return nics

    monkeypatch.setattr(running, "read_nics", read)
    said = await run_until_written(BOTH, Node(), REMAINING_KEY)
    assert "counters cannot be read: no such directory" in said
    assert "counters are read again" in said

"""The agent's probes: counters that wrap and reset, NICs that are counted once, when the Node is written."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gangsched.agent.probes.counters import Window, growth
from gangsched.agent.probes.heartbeat import Heartbeat
from gangsched.agent.probes.machine import MachineSample, is_in_memory, measure_disk_mbps, read_machine
from gangsched.agent.probes.meters import BandwidthMeter, LoadMeter
from gangsched.agent.probes.nics import Nic, counted, read_nics
from gangsched.agent.settings import AgentFlags, parse_settings
from gangsched.errors import ConfigError

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
MB = 10**6
GBIT = 125 * MB


# -- counters ------------------------------------------------------------------------------------------


def test_a_counter_that_grows() -> None:
    assert growth(100, 350, 1e9) == 250


@pytest.mark.parametrize("size", [2**32, 2**64])
def test_a_counter_that_wraps_goes_on(size: int) -> None:
    assert growth(size - 100, 150, 1e9) == 250


def test_a_counter_that_was_reset_starts_over() -> None:
    assert growth(5_000_000, 150, 1e9) == 150, "far from any end: the driver was loaded again"
    assert growth(2**32 - 100, 150, 200) == 150, "a wrap would be more than the link can"
    assert growth(5_000_000, 4_000_000, 1000) == 0, "what it shows cannot have been counted since"


def test_rates_over_windows_of_different_length() -> None:
    window = Window(1, keep_s=60)
    for second in range(61):
        window.add(float(second), (100.0 if second > 50 else 10.0,))
    assert window.rates(10) == (100.0,)
    assert window.rates(60) == pytest.approx((25.0,))
    assert window.rates(20) == pytest.approx((55.0,))


def test_a_window_that_is_not_full_yet_gives_the_rate_so_far() -> None:
    window = Window(1, keep_s=60)
    assert window.rates(10) is None
    window.add(0.0, (0.0,))
    assert window.rates(10) is None
    window.add(2.0, (30.0,))
    assert window.rates(10) == (15.0,)


def test_a_window_keeps_no_more_than_it_needs() -> None:
    window = Window(1, keep_s=10)
    for second in range(1000):
        window.add(float(second), (1.0,))
    assert window.spans_s == 10.0


# -- NICs ----------------------------------------------------------------------------------------------


def nic(name: str, sent: int = 0, received: int = 0, **more: object) -> Nic:
    fields: dict[str, object] = {
        "is_up": True, "is_physical": True, "is_standby": False, "speed": 10 * GBIT, **more
    }  # fmt: skip
    return Nic(name=name, sent=sent, received=received, **fields)  # type: ignore[arg-type]


ETH0, ETH1 = nic("eth0"), nic("eth1")
BOND = nic("bond0", is_physical=False, lower=("eth0", "eth1"))
VLAN = nic("bond0.100", is_physical=False, lower=("bond0",))
VETH = nic("veth12", is_physical=False)
LO = nic("lo", is_physical=False, speed=0)
ALL = [BOND, VLAN, ETH0, ETH1, LO, VETH]


def names(nics: list[Nic]) -> list[str]:
    return [one.name for one in nics]


def test_without_patterns_the_physical_ones_are_counted() -> None:
    assert names(counted(ALL, [])) == ["eth0", "eth1"]


def test_a_byte_through_a_bond_or_a_vlan_is_counted_once() -> None:
    assert names(counted(ALL, ["eth*", "bond*"])) == ["eth0", "eth1"]
    assert names(counted(ALL, ["bond*"])) == ["bond0"], "the VLAN is stacked upon it"
    assert names(counted(ALL, ["bond0.100"])) == ["bond0.100"]
    assert names(counted(ALL, ["bond0.100", "eth0"])) == ["eth0"], "two floors below"


def test_virtual_ones_are_counted_where_they_are_named() -> None:
    assert names(counted(ALL, ["veth*"])) == ["veth12"]


def tree(root: Path, name: str, **files: str) -> Path:
    """A NIC as /sys/class/net shows it."""
    entry = root / name
    (entry / "statistics").mkdir(parents=True)
    shown = {
        "operstate": "up",
        "speed": "1000",
        "statistics/tx_bytes": "7",
        "statistics/rx_bytes": "9",
        **files,
    }
    for path, text in shown.items():
        (entry / path).parent.mkdir(parents=True, exist_ok=True)
        (entry / path).write_text(text + "\n")
    return entry


def test_nics_as_the_kernel_shows_them(tmp_path: Path) -> None:
    tree(tmp_path, "eth0", **{"device/vendor": "0x8086"})
    tree(tmp_path, "eth1", operstate="down", speed="-1")
    tree(tmp_path, "eth2", speed="4294967295")
    tree(tmp_path, "lo", operstate="unknown", speed="")
    (tmp_path / "bonding_masters").write_text("bond0\n")
    assert read_nics(tmp_path) == [
        Nic("eth0", True, True, False, GBIT, 7, 9),
        Nic("eth1", False, False, False, 0, 7, 9),
        Nic("eth2", True, False, False, 0, 7, 9),
        Nic("lo", True, False, False, 0, 7, 9),
    ]


def test_the_standby_of_a_bond_adds_nothing_to_the_total(tmp_path: Path) -> None:
    bond = tree(tmp_path, "bond0", **{"bonding/mode": "active-backup 1", "bonding/active_slave": "eth1"})
    for name in ("eth0", "eth1"):
        entry = tree(tmp_path, name, **{"device/vendor": "0x8086"})
        (entry / "master").symlink_to(bond)
        (bond / f"lower_{name}").symlink_to(entry)
    nics = read_nics(tmp_path)
    assert {one.name: one.is_standby for one in nics} == {"bond0": False, "eth0": True, "eth1": False}
    meter = BandwidthMeter([], total=0, windows_s=(10,))
    meter.add(nics, 0.0)
    assert meter.names == ("eth0", "eth1")
    assert meter.total == GBIT


# -- remaining bandwidth -------------------------------------------------------------------------------


def test_remaining_is_total_less_what_the_window_saw_in_each_direction() -> None:
    meter = BandwidthMeter([], total=0, windows_s=(10, 60))
    for second in range(21):
        meter.add([nic("eth0", 100 * MB * second, 250 * MB * second)], float(second))
    remaining = meter.remaining(NOW)
    assert remaining is not None
    assert (remaining.egress, remaining.ingress, remaining.total) == (1150 * MB, 1000 * MB, 1250 * MB)


def test_traffic_is_seen_whole_after_one_window() -> None:
    meter = BandwidthMeter([], total=1000 * MB, windows_s=(10,))
    sent = 0
    for second in range(31):
        sent += 400 * MB if 15 < second <= 30 else 0
        meter.add([nic("eth0", sent)], float(second))
        used = meter.used(10)
        if second == 20:
            assert used is not None
            assert used.egress == pytest.approx(200 * MB), "half of the window"
    assert meter.used(10) == (400 * MB, 0)


def test_several_windows_are_kept_side_by_side() -> None:
    meter = BandwidthMeter([], total=1000 * MB, windows_s=(10, 30))
    for second in range(31):
        sent = 300 * MB * max(0, second - 20)
        meter.add([nic("eth0", sent)], float(second))
        if second == 20:
            assert meter.used_over_all(10) == (0, 0)
            assert meter.used_over_all(30) is None, "not full yet"
    assert meter.used_over_all(10) == (300 * MB, 0)
    assert meter.used_over_all(30) == (100 * MB, 0)


def test_a_nic_that_appears_brings_its_speed_and_not_its_past() -> None:
    meter = BandwidthMeter([], total=0, windows_s=(10,))
    meter.add([ETH0], 0.0)
    meter.add([ETH0, nic("eth1", 10**15, 10**15)], 1.0)
    assert meter.used(10) == (0.0, 0.0)
    assert meter.total == 2 * 10 * GBIT


def test_a_link_that_goes_down_takes_its_speed_away() -> None:
    meter = BandwidthMeter([], total=0, windows_s=(10,))
    meter.add([ETH0, ETH1], 0.0)
    meter.add([ETH0, nic("eth1", is_up=False, speed=0)], 1.0)
    assert meter.total == 10 * GBIT


def test_links_of_unknown_speed_are_not_reported() -> None:
    meter = BandwidthMeter([], total=0, windows_s=(10,))
    for second in range(3):
        meter.add([nic("eth0", speed=0)], float(second))
    assert meter.remaining(NOW) is None
    told = BandwidthMeter([], total=500 * MB, windows_s=(10,))
    for second in range(3):
        told.add([nic("eth0", speed=0)], float(second))
    remaining = told.remaining(NOW)
    assert remaining is not None
    assert remaining.total == 500 * MB


def test_more_than_the_total_leaves_nothing_and_not_less() -> None:
    meter = BandwidthMeter([], total=100 * MB, windows_s=(10,))
    for second in range(3):
        meter.add([nic("eth0", 150 * MB * second)], float(second))
    remaining = meter.remaining(NOW)
    assert remaining is not None
    assert (remaining.egress, remaining.ingress) == (0, 100 * MB)


# -- load ----------------------------------------------------------------------------------------------


def sample(
    busy_s: float, total_s: float, *, free: int = 4, disks: dict[str, int] | None = None
) -> MachineSample:
    return MachineSample(8, 2400.0, busy_s, total_s, 16 * 10**9, free * 10**9, disks or {})


def test_utilisation_of_all_four() -> None:
    network = BandwidthMeter([], total=1000 * MB, windows_s=(10,))
    meter = LoadMeter(window_s=10, mhz=0, disk_mbps=300)
    for second in range(11):
        network.add([nic("eth0", 100 * MB * second, 250 * MB * second)], float(second))
        meter.add(
            sample(2.0 * second, 8.0 * second, disks={"sda": 100 * second, "sdb": 600 * second}),
            float(second),
        )
    load = meter.load(network, NOW)
    assert load is not None
    assert load.utilisation.terms == pytest.approx((0.25, 0.75, 0.25, 0.6))
    performance = load.performance
    assert (performance.cores, performance.mhz, performance.memory_bytes) == (8, 2400, 16e9)
    assert (performance.network_mbps, performance.disk_mbps) == (1000, 300)


def test_a_configured_clock_rate_is_used_unchanged() -> None:
    meter = LoadMeter(window_s=10, mhz=3000, disk_mbps=0)
    meter.add(sample(0, 0), 0.0)
    meter.add(sample(1, 8), 1.0)
    load = meter.load(BandwidthMeter([], total=0, windows_s=(10,)), NOW)
    assert load is not None
    assert load.performance.mhz == 3000


def test_a_disk_that_goes_and_comes_does_no_harm() -> None:
    meter = LoadMeter(window_s=10, mhz=0, disk_mbps=0)
    for second, disks in enumerate([{"sda": 10}, {}, {"sda": 5}, {"sda": 505}]):
        meter.add(sample(second, 8 * second, disks=disks), float(second))
    load = meter.load(BandwidthMeter([], total=0, windows_s=(10,)), NOW)
    assert load is not None
    assert load.utilisation.disk == pytest.approx(0.5)


def test_this_machine_can_be_read() -> None:
    here = read_machine()
    assert here.n_cores >= 1
    assert 0 < here.memory_available_bytes <= here.memory_bytes
    assert 0 <= here.cpu_busy_s <= here.cpu_total_s


def test_the_disk_probe_measures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    assert measure_disk_mbps(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No such file"):
        measure_disk_mbps(tmp_path / "absent")


@pytest.mark.parametrize(("kind", "found"), [("ext4", False), ("tmpfs", True)])
def test_a_directory_in_memory_is_no_disk(kind: str, found: bool, tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:9999 / /other rw,noatime shared:1 - tmpfs tmpfs rw\n"
        f"36 22 {os.major(device)}:{os.minor(device)} / /here rw - {kind} /dev/x rw\n"
    )
    assert is_in_memory(tmp_path, mounts) is found
    mounts.write_text("")
    assert not is_in_memory(tmp_path, mounts), "not known to be"


def test_without_a_disk_that_is_counted_its_throughput_is_not_known() -> None:
    """A share of 0 of 300 MB/s would be a disk that idles."""
    meter = LoadMeter(window_s=10, mhz=0, disk_mbps=300)
    for second in range(2):
        meter.add(sample(second, 8 * second), float(second))
    load = meter.load(BandwidthMeter([], total=5, windows_s=(10,)), NOW)
    assert load is not None
    assert load.performance.disk_mbps == 0


# -- when it is written --------------------------------------------------------------------------------


def test_a_heartbeat_comes_at_least_every_period() -> None:
    beat = Heartbeat(period_s=20, threshold=0.05, apart_s=2)
    assert beat.is_due((0.5,), 0.0), "the first one at once"
    beat.written((0.5,), 0.0)
    assert not beat.is_due((0.5,), 19.9)
    assert beat.is_due((0.5,), 20.0)


def test_a_change_beyond_the_threshold_is_written_at_once_but_rate_limited() -> None:
    beat = Heartbeat(period_s=20, threshold=0.05, apart_s=2)
    beat.written((0.5, 0.5), 0.0)
    assert not beat.is_due((0.5, 0.54), 10.0)
    assert beat.is_due((0.5, 0.56), 10.0)
    beat.written((0.5, 0.56), 10.0)
    assert not beat.is_due((0.9, 0.1), 11.9)
    assert beat.is_due((0.9, 0.1), 12.0)


# -- the configuration ---------------------------------------------------------------------------------


HEAD = "apiVersion: gangsched.io/v1\nkind: AgentConfiguration\nnodeName: n1\n"


def test_both_are_off_unless_wanted() -> None:
    read = parse_settings(HEAD, source="f", flags=AgentFlags(), environ={})
    assert not read.probes.is_on
    read = parse_settings(
        HEAD + "bandwidth: {enabled: true, nics: [eth*]}\n", source="f", flags=AgentFlags(), environ={}
    )
    assert read.probes.is_on
    assert read.probes.bandwidth.nics == ("eth*",)
    assert not read.probes.load.enabled


def test_flags_turn_them_on_and_choose_nics() -> None:
    flags = AgentFlags(bandwidth=True, load=True, nics=("veth*",))
    read = parse_settings(HEAD, source="f", flags=flags, environ={})
    assert read.probes.bandwidth.enabled
    assert read.probes.load.enabled
    assert read.probes.bandwidth.nics == ("veth*",)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("bandwidth: {windowsSeconds: []}", "bandwidth.windowsSeconds: needs 1 to 8 windows"),
        (
            "bandwidth: {windowsSeconds: [0.5]}",
            "bandwidth.windowsSeconds[0]: 0.5 is not within 1 to 3600 seconds",
        ),
        ("bandwidth: {nics: ['']}", "bandwidth.nics[0]: '' is not a pattern of names"),
        ("bandwidth: {totalMBps: -1}", "bandwidth.totalMBps: -1 is not within 0 to"),
        (
            "bandwidth: {thresholdPercent: 0}",
            "bandwidth.thresholdPercent: 0 is not within 0.1 to 100 percent",
        ),
        ("bandwidth: {periodSeconds: .inf}", "bandwidth.periodSeconds: inf is not within 1 to 3600 seconds"),
        ("bandwidth: {nic: eth0}", "bandwidth.nic"),
        ("load: {periodSeconds: 0}", "load.periodSeconds: 0 is not within 1 to 3600 seconds"),
        ("load: {diskProbe: here}", "load.diskProbe: 'here' is not an absolute path"),
        ("load: {diskProbe: /var, diskMBps: 5}", "load.diskProbe: conflicts with diskMBps"),
    ],
)
def test_mistakes_have_their_place(section: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(HEAD + section + "\n", source="agent.yaml", flags=AgentFlags(), environ={})
    assert str(caught.value).startswith("agent.yaml: ")
    assert message in str(caught.value)

"""GPUs by NVML: what they are, when they are not well and when again, a driver that comes and goes."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gangsched.agent.report.reports import Report
from gangsched.agent.sources.nvml import RECOVERY_S, Mode, NvmlSource
from gangsched.agent.sources.nvml_links import pci_address
from gangsched.model.devices.annotations import Device
from tests.agent.fake_nvml import CODES, FakeNvml, Gpu, calls

GPU = "nvidia.com/gpu"


class Machine:
    """Some GPUs, a clock, and a source that reads them."""

    def __init__(self, *gpus: Gpu, mode: Mode = "auto", sysfs: Path = Path("/nowhere"), **more: Any) -> None:
        self.nvml = FakeNvml(*gpus)
        self.now_s = 100.0
        self.source = NvmlSource(mode, load=lambda: self.nvml, sysfs=sysfs, clock=lambda: self.now_s, **more)

    def read(self, after_s: float = 2.0) -> Report:
        self.now_s += after_s
        return self.source.read()

    def health(self, after_s: float = 2.0) -> dict[str, str]:
        return {device.id: device.health for device in devices(self.read(after_s))}


def devices(report: Report) -> tuple[Device, ...]:
    return tuple(device for place in report.places for device in place.listed[GPU])


def two() -> tuple[Gpu, Gpu]:
    return Gpu("GPU-a", 0x3B), Gpu("GPU-b", 0xD8)


def test_the_stand_in_has_no_call_that_the_real_library_lacks() -> None:
    for name, stand_in in calls().items():
        real = getattr(pynvml, name)
        assert len(inspect.signature(real).parameters) >= len(inspect.signature(stand_in).parameters) - 1, (
            name
        )


def test_every_name_that_is_used_is_in_the_real_library() -> None:
    from gangsched.agent.sources import nvml, nvml_links

    used = {
        name
        for module in (nvml, nvml_links)
        for name in inspect.getsource(module).replace("(", " ").replace(".", " ").split()
        if name.startswith(("nvmlDevice", "nvmlEvent", "nvmlInit", "nvmlShutdown", "NVML_"))
    }
    assert len(used) > 15
    assert [name for name in sorted(used) if not hasattr(pynvml, name.rstrip(",:)"))] == []


def test_a_gpu_is_described(tmp_path: Path) -> None:
    folder = tmp_path / "bus/pci/devices/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text("1\n")
    machine = Machine(Gpu("GPU-a", 0x3B), sysfs=tmp_path)
    assert devices(machine.read()) == (Device("GPU-a", "Healthy", 1, "NVIDIA H100 80GB HBM3", 81559),)


def test_addresses_are_the_kernels() -> None:
    assert pci_address("00000000:3B:00.0") == "0000:3b:00.0"
    assert pci_address(b"00010000:D8:00.1\0\0") == "10000:d8:00.1"


def test_gpus_behind_a_switch_are_linked_with_each_other_those_at_a_cable_in_pairs() -> None:
    a, b, c, d = (Gpu(f"GPU-{name}", 16 + i) for i, name in enumerate("abcd"))
    a.links = b.links = ["switch"] * 18
    c.links, d.links = [d, d, d, d, None], [c, c, c, c, None]
    machine = Machine(a, b, c, d)
    machine.nvml.levels[frozenset(("GPU-b", "GPU-c"))] = CODES["NVML_TOPOLOGY_HOSTBRIDGE"]
    links = {device.id: device.links for device in devices(machine.read())}
    assert links == {
        "GPU-a": {"GPU-b": "NV18"},
        "GPU-b": {"GPU-a": "NV18", "GPU-c": "PHB"},
        "GPU-c": {"GPU-b": "PHB", "GPU-d": "NV4"},
        "GPU-d": {"GPU-c": "NV4"},
    }


def test_a_lost_gpu_stays_listed_and_is_well_only_after_it_has_answered_for_a_while() -> None:
    a, b = two()
    machine = Machine(a, b)
    assert machine.health() == {"GPU-a": "Healthy", "GPU-b": "Healthy"}
    b.lost = True
    assert machine.health() == {"GPU-a": "Healthy", "GPU-b": "Unhealthy"}
    assert machine.read().problems == ("NVML: GPU-b: it is lost",)
    b.lost = False
    assert machine.health(1.0)["GPU-b"] == "Unhealthy"
    assert machine.health(RECOVERY_S - 2.0)["GPU-b"] == "Unhealthy"
    assert machine.health(2.0)["GPU-b"] == "Healthy"


def test_a_gpu_that_fell_off_the_bus_stays_listed_with_what_is_known_of_it() -> None:
    a, b = two()
    machine = Machine(a, b)
    machine.read()
    machine.nvml.gpus.remove(b)
    found = {device.id: device for device in devices(machine.read())}
    assert found["GPU-b"].health == "Unhealthy"
    assert found["GPU-b"].model == b.name


@pytest.mark.parametrize("number", [48, 63, 74, 79, 94, 95])
def test_an_xid_of_the_hardware_makes_a_gpu_unhealthy_for_good(number: int) -> None:
    a, b = two()
    machine = Machine(a, b)
    machine.read()
    machine.nvml.xid(number, b)
    assert machine.health() == {"GPU-a": "Healthy", "GPU-b": "Unhealthy"}
    found = machine.read(10 * RECOVERY_S)
    assert found.problems == (f"NVML: GPU-b: XID {number}",)


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109])
def test_an_xid_of_an_application_changes_nothing(number: int) -> None:
    a, b = two()
    machine = Machine(a, b)
    machine.read()
    machine.nvml.xid(number, b)
    assert set(machine.health().values()) == {"Healthy"}


def test_the_ignored_xids_can_be_configured() -> None:
    a, b = two()
    machine = Machine(a, b, ignored_xids=[79])
    machine.read()
    machine.nvml.xid(79, a)
    machine.nvml.xid(31, b)
    assert machine.health() == {"GPU-a": "Healthy", "GPU-b": "Unhealthy"}


def test_an_error_of_an_unidentified_gpu_counts_for_every_gpu() -> None:
    machine = Machine(*two())
    machine.read()
    machine.nvml.xid(79, None)
    assert set(machine.health().values()) == {"Unhealthy"}


def test_a_double_bit_error_as_an_event() -> None:
    a, b = two()
    machine = Machine(a, b)
    machine.read()
    machine.nvml.pending.append((int(pynvml.nvmlEventTypeDoubleBitEccError), 0, a))
    assert machine.health() == {"GPU-a": "Unhealthy", "GPU-b": "Healthy"}


def test_uncorrected_errors_and_a_failed_remapping_are_read_from_the_counters() -> None:
    a, b = two()
    a.n_uncorrected, b.remapping_failed = 2, 1
    machine = Machine(a, b)
    found = machine.read()
    assert {device.health for device in devices(found)} == {"Unhealthy"}
    assert found.problems == (
        "NVML: GPU-a: 2 uncorrected ECC errors since the driver was loaded",
        "NVML: GPU-b: a row of its memory could not be remapped",
    )


def test_a_gpu_without_such_counters_is_well() -> None:
    a, _ = two()
    a.has_ecc = False
    assert Machine(a).health() == {"GPU-a": "Healthy"}


def test_a_gpu_in_mig_mode_is_left_out_and_reported() -> None:
    a, b = two()
    a.mig = CODES["NVML_DEVICE_MIG_ENABLE"]
    machine = Machine(a, b)
    found = machine.read()
    assert [device.id for device in devices(found)] == ["GPU-b"]
    assert "GPU-a is in MIG mode; list its slices in a file" in found.problems[0]
    b.mig = CODES["NVML_DEVICE_MIG_ENABLE"]
    assert machine.health() == {"GPU-b": "Unhealthy"}, "it was there before, and pods may hold it"


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_a_node_without_a_driver_has_no_gpus(mode: Mode) -> None:
    machine = Machine(mode=mode)
    machine.nvml.broken = CODES["NVML_ERROR_LIBRARY_NOT_FOUND"]
    found = machine.read()
    assert found.places == ()
    assert found.looked.startswith("NVML: ")
    assert bool(found.problems) == (mode == "on")


def test_a_driver_that_comes_later_is_found() -> None:
    machine = Machine(*two())
    machine.nvml.broken = CODES["NVML_ERROR_DRIVER_NOT_LOADED"]
    assert machine.health() == {}
    machine.nvml.broken = 0
    assert set(machine.health().values()) == {"Healthy"}


def test_a_driver_that_goes_takes_no_gpu_from_the_list_and_is_opened_again_when_it_is_back() -> None:
    machine = Machine(*two())
    machine.read()
    machine.nvml.broken = CODES["NVML_ERROR_DRIVER_NOT_LOADED"]
    assert machine.health() == {"GPU-a": "Unhealthy", "GPU-b": "Unhealthy"}
    machine.nvml.broken = 0
    assert set(machine.health().values()) == {"Unhealthy"}
    assert machine.nvml.n_inits == 2
    assert machine.nvml.registered == ["GPU-a", "GPU-b"] * 2
    assert set(machine.health(RECOVERY_S).values()) == {"Healthy"}


def test_without_the_package_there_are_no_gpus_and_that_is_reported() -> None:
    def missing() -> Any:
        raise ImportError("No module named 'pynvml'")

    assert "nvidia-ml-py is not installed" in NvmlSource("on", load=missing).read().problems[0]


def test_the_real_library_on_this_machine_answers_one_way_or_the_other() -> None:
    found = NvmlSource("on").read()
    assert found.places or found.problems

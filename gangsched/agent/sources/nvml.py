"""NVIDIA GPUs by NVML: which exist, their properties, their health.

Lives here: one reading, from opening the library to a Report; what makes a GPU sick and when it recovers. Not
here: paths between GPUs (nvml_links). nvidia-ml-py calls the driver's library and blocks, so this source has
its own thread. It is imported at the first reading, and not at all if switched off.

| sick because | until |
|---|---|
| lost, or it does not answer | it has answered for RECOVERY_S |
| an XID not caused by an application, a double-bit error | the agent is restarted: a person has checked |
| uncorrected ECC errors, a failed row remapping | the counters have been clean for RECOVERY_S |
| the driver stopped answering | it has answered for RECOVERY_S |

Sources: NVML's API reference; the XIDs caused by applications are those of NVIDIA's k8s-device-plugin
(`internal/rm/health.go`). A GPU that was seen once stays listed: one that disappears has failed.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from gangsched.agent.report.inventory import HEALTHY, UNHEALTHY
from gangsched.agent.report.reports import Place, Report, Silence
from gangsched.agent.sources.nvml_links import links_between, pci_address
from gangsched.model.devices.annotations import Device

RECOVERY_S = 30.0
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
# Further events are left for the next reading.
_MAX_EVENTS = 256
_NO_XID = frozenset({0})

Mode = Literal["auto", "on", "off"]


class _Gpu:
    """handle: NVML's. sick: why it is unhealthy now. stuck: why it will not recover by itself."""

    def __init__(self, device: Device, address: str) -> None:
        self.device = device
        self.address = address
        self.handle: Any = None
        self.sick = ""
        self.stuck = ""
        self.well_from_s = 0.0

    @property
    def why(self) -> str:
        return self.stuck or self.sick


class NvmlSource:
    """All GPUs of the node. Without the library there are none; mode `on` reports that it is missing."""

    name = "NVML"
    period_s = 2.0
    silence = Silence.SICKNESS

    def __init__(
        self,
        mode: Mode = "auto",
        *,
        resource: str = "nvidia.com/gpu",
        ignored_xids: Iterable[int] = APPLICATION_XIDS,
        load: Callable[[], Any] = lambda: importlib.import_module("pynvml"),
        sysfs: Path = Path("/sys"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mode = mode
        self._resource = resource
        self._ignored = frozenset(ignored_xids) | _NO_XID
        self._load = load
        self._sysfs = sysfs
        self._clock = clock
        self._nvml: Any = None
        self._events: Any = None
        self._gpus: dict[str, _Gpu] = {}
        self._in_mig: dict[str, str] = {}

    def read(self) -> Report:
        """Raises: nothing."""
        try:
            if self._nvml is None:
                self._nvml = self._opened()
            self._enumerate()
            self._hear_events()
        except ImportError as error:
            return self._nothing(f"{self.name}: nvidia-ml-py is not installed: {error}")
        except Exception as error:
            # ctypes and the driver may raise anything; that must not make a GPU healthy.
            return self._unanswered(error)
        return self._report(f"{self.name}: {len(self._gpus)} GPUs")

    # -- the library -------------------------------------------------------------------------------------

    def _opened(self) -> Any:
        nvml = self._load()
        nvml.nvmlInit()
        try:
            self._events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            self._events = None  # not on every system; what is supported is still used
        return nvml

    def _unanswered(self, error: Exception) -> Report:
        """The library or the driver is missing, or stopped answering."""
        if self._nvml is not None:
            with suppress(Exception):  # shutting down may fail in the same way
                self._nvml.nvmlShutdown()
            self._nvml = self._events = None
        why = f"{self.name}: {str(error) or type(error).__name__}"
        if not self._gpus:
            return self._nothing(why)
        for gpu in self._gpus.values():
            gpu.handle = None
            self._is_sick(gpu, "the driver does not answer")
        return self._report(why, why)

    def _nothing(self, why: str) -> Report:
        return Report(self.name, problems=(why,) if self._mode == "on" else (), looked=why)

    # -- the GPUs ----------------------------------------------------------------------------------------

    def _enumerate(self) -> None:
        nvml, now_s = self._nvml, self._clock()
        seen: set[str] = set()
        before = {name for name, gpu in self._gpus.items() if gpu.handle is not None}
        self._in_mig = {}
        for i in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(i)
                name = nvml.nvmlDeviceGetUUID(handle)
            except nvml.NVMLError:
                continue  # lost; handled with the unseen GPUs
            if self._is_in_mig_mode(handle):
                self._in_mig[name] = f"{self.name}: {name} is in MIG mode; list its slices in a file"
                continue
            gpu = self._gpus.get(name)
            if gpu is None:
                try:
                    gpu = self._gpus[name] = self._described(handle, name)
                except nvml.NVMLError:
                    continue  # lost just now
            if gpu.handle is None:
                gpu.handle = handle
                self._register_events(gpu)
            seen.add(name)
            self._look(gpu, now_s)
        for name, gpu in self._gpus.items():
            if name not in seen:
                gpu.handle = None
                self._is_sick(gpu, "it is in MIG mode" if name in self._in_mig else "it is lost")
        if seen - before:
            self._link()

    def _described(self, handle: Any, name: str) -> _Gpu:
        nvml = self._nvml
        address = pci_address(nvml.nvmlDeviceGetPciInfo(handle).busId)
        device = Device(
            id=name,
            numa=self._numa(address),
            model=self._asked(nvml.nvmlDeviceGetName, handle, ""),
            memory_mib=self._asked(lambda h: nvml.nvmlDeviceGetMemoryInfo(h).total, handle, 0) // 2**20,
        )
        return _Gpu(device, address)

    def _numa(self, address: str) -> int:
        try:
            text = (self._sysfs / "bus/pci/devices" / address / "numa_node").read_text()
            return max(int(text), -1)
        except (OSError, ValueError):
            return -1

    def _asked(self, question: Callable[[Any], Any], handle: Any, default: Any) -> Any:
        """A GPU's answer; `default` if it does not support the query. Raises: NVMLError."""
        nvml = self._nvml
        try:
            return question(handle)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                return default
            raise

    def _is_in_mig_mode(self, handle: Any) -> bool:
        nvml = self._nvml
        try:
            current, _ = self._asked(nvml.nvmlDeviceGetMigMode, handle, (0, 0))
        except nvml.NVMLError:
            return False
        return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)

    def _link(self) -> None:
        there = {name: gpu.handle for name, gpu in self._gpus.items() if gpu.handle is not None}
        addresses = {self._gpus[name].address: name for name in there}
        links = links_between(self._nvml, there, addresses)
        for name in there:
            gpu = self._gpus[name]
            gpu.device = msgspec.structs.replace(gpu.device, links=links.get(name) or None)

    # -- health ------------------------------------------------------------------------------------------

    def _look(self, gpu: _Gpu, now_s: float) -> None:
        nvml = self._nvml
        try:
            n_errors = self._asked(self._uncorrected, gpu.handle, 0)
            _, _, _, remapping_failed = self._asked(nvml.nvmlDeviceGetRemappedRows, gpu.handle, (0, 0, 0, 0))
        except nvml.NVMLError as error:
            is_lost = error.value == nvml.NVML_ERROR_GPU_IS_LOST
            self._is_sick(gpu, "it is lost" if is_lost else f"it does not answer: {error}")
            return
        if n_errors:
            self._is_sick(gpu, f"{n_errors} uncorrected ECC errors since the driver was loaded")
        elif remapping_failed:
            self._is_sick(gpu, "a row of its memory could not be remapped")
        elif gpu.sick and now_s >= gpu.well_from_s:
            gpu.sick = ""

    def _uncorrected(self, handle: Any) -> int:
        nvml = self._nvml
        n_errors = nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
        return int(n_errors)

    def _is_sick(self, gpu: _Gpu, why: str) -> None:
        gpu.sick = why
        gpu.well_from_s = self._clock() + RECOVERY_S

    def _register_events(self, gpu: _Gpu) -> None:
        nvml = self._nvml
        if self._events is None:
            return
        wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        try:
            supported = nvml.nvmlDeviceGetSupportedEventTypes(gpu.handle)
            nvml.nvmlDeviceRegisterEvents(gpu.handle, wanted & supported, self._events)
        except nvml.NVMLError:
            pass  # an older GPU; what is supported is still used

    def _hear_events(self) -> None:
        nvml = self._nvml
        if self._events is None:
            return
        for _ in range(_MAX_EVENTS):
            try:
                event = nvml.nvmlEventSetWait(self._events, 0)
            except nvml.NVMLError as error:
                if error.value in (nvml.NVML_ERROR_TIMEOUT, nvml.NVML_ERROR_GPU_IS_LOST):
                    return
                raise
            self._take(event)

    def _take(self, event: Any) -> None:
        nvml = self._nvml
        if event.eventType == nvml.nvmlEventTypeXidCriticalError:
            if event.eventData in self._ignored:
                return
            why = f"XID {event.eventData}"
        else:
            why = "a double-bit ECC error"
        try:
            gpus = [self._gpus[nvml.nvmlDeviceGetUUID(event.device)]]
        except (nvml.NVMLError, KeyError):
            gpus = list(self._gpus.values())  # one of them, unknown which: offer none
            why += " of a GPU that cannot be told"
        for gpu in gpus:
            gpu.stuck = gpu.stuck or why

    # -- messages ----------------------------------------------------------------------------------------

    def _report(self, looked: str, *problems: str) -> Report:
        devices = tuple(
            msgspec.structs.replace(gpu.device, health=UNHEALTHY if gpu.why else HEALTHY)
            for gpu in self._gpus.values()
        )
        sick = tuple(f"{self.name}: {gpu.device.id}: {gpu.why}" for gpu in self._gpus.values() if gpu.why)
        places = (Place(self.name, {self._resource: devices}),) if devices else ()
        return Report(self.name, places, (*problems, *sick, *self._in_mig.values()), looked)

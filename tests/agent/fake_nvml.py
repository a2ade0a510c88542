"""A library of GPUs that behaves as NVML's documentation says, for machines that have none.

Same names and error codes as nvidia-ml-py's module `pynvml`; test_nvml compares them with the real module, so
that a name which is not there cannot pass. What it cannot show is a real driver's behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

CODES = {name: value for name, value in vars(pynvml).items() if name.startswith("NVML_")}


class Gpu:
    def __init__(self, uuid: str, bus: int) -> None:
        self.uuid = uuid
        self.bus_id = f"00000000:{bus:02X}:00.0"
        self.name = "NVIDIA H100 80GB HBM3"
        self.memory_bytes = 81559 * 2**20
        self.n_uncorrected = 0
        self.remapping_failed = 0
        self.mig = 0
        self.lost = False
        self.has_ecc = True
        self.links: list[Gpu | str | None] = []
        """The other end of each NVLink: a GPU, "switch", or None for one that is not active."""


class Info:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class FakeNvml:
    """gpus: what is in the machine. broken: an error code with which every call fails."""

    NVMLError = pynvml.NVMLError

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = list(gpus)
        self.broken = 0
        self.pending: list[tuple[int, int, Gpu | None]] = []
        self.levels: dict[frozenset[str], int] = {}
        self.n_inits = 0
        self.registered: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in CODES:
            return CODES[name]
        if name in ("nvmlEventTypeXidCriticalError", "nvmlEventTypeDoubleBitEccError"):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def _check(self, gpu: Gpu | None = None) -> None:
        if self.broken:
            raise pynvml.NVMLError(self.broken)
        if gpu is not None and gpu.lost:
            raise pynvml.NVMLError(CODES["NVML_ERROR_GPU_IS_LOST"])

    def nvmlInit(self) -> None:
        self._check()
        self.n_inits += 1

    def nvmlShutdown(self) -> None:
        self._check()

    def nvmlDeviceGetCount(self) -> int:
        self._check()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, i: int) -> Gpu:
        self._check(self.gpus[i])
        return self.gpus[i]

    def nvmlDeviceGetUUID(self, handle: Gpu) -> str:
        self._check(handle)
        return handle.uuid

    def nvmlDeviceGetName(self, handle: Gpu) -> str:
        self._check(handle)
        return handle.name

    def nvmlDeviceGetMemoryInfo(self, handle: Gpu) -> Info:
        self._check(handle)
        return Info(total=handle.memory_bytes)

    def nvmlDeviceGetPciInfo(self, handle: Gpu) -> Info:
        self._check(handle)
        return Info(busId=handle.bus_id)

    def nvmlDeviceGetMigMode(self, handle: Gpu) -> list[int]:
        self._check(handle)
        return [handle.mig, handle.mig]

    def nvmlDeviceGetTotalEccErrors(self, handle: Gpu, kind: int, counter: int) -> int:
        self._check(handle)
        assert (kind, counter) == (CODES["NVML_MEMORY_ERROR_TYPE_UNCORRECTED"], CODES["NVML_VOLATILE_ECC"])
        if not handle.has_ecc:
            raise pynvml.NVMLError(CODES["NVML_ERROR_NOT_SUPPORTED"])
        return handle.n_uncorrected

    def nvmlDeviceGetRemappedRows(self, handle: Gpu) -> tuple[int, int, int, int]:
        self._check(handle)
        if not handle.has_ecc:
            raise pynvml.NVMLError(CODES["NVML_ERROR_NOT_SUPPORTED"])
        return (0, 0, 0, handle.remapping_failed)

    def nvmlDeviceGetNvLinkState(self, handle: Gpu, link: int) -> int:
        self._check(handle)
        if link >= len(handle.links):
            raise pynvml.NVMLError(CODES["NVML_ERROR_INVALID_ARGUMENT"])
        return int(handle.links[link] is not None)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Gpu, link: int) -> int:
        kind = "SWITCH" if handle.links[link] == "switch" else "GPU"
        return int(CODES[f"NVML_NVLINK_DEVICE_TYPE_{kind}"])

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Gpu, link: int) -> Info:
        peer = handle.links[link]
        assert isinstance(peer, Gpu)
        return Info(busId=peer.bus_id.encode())

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Gpu, other: Gpu) -> int:
        self._check(one)
        return self.levels.get(frozenset((one.uuid, other.uuid)), int(CODES["NVML_TOPOLOGY_SYSTEM"]))

    def nvmlEventSetCreate(self) -> object:
        self._check()
        return object()

    def nvmlDeviceGetSupportedEventTypes(self, handle: Gpu) -> int:
        self._check(handle)
        return 0xFFFF

    def nvmlDeviceRegisterEvents(self, handle: Gpu, types: int, events: object) -> None:
        self._check(handle)
        self.registered.append(handle.uuid)

    def nvmlEventSetWait(self, events: object, timeout_ms: int) -> Info:
        self._check()
        assert timeout_ms == 0
        if not self.pending:
            raise pynvml.NVMLError(CODES["NVML_ERROR_TIMEOUT"])
        kind, data, gpu = self.pending.pop(0)
        return Info(eventType=kind, eventData=data, device=gpu or Gpu("GPU-unknown", 99))

    def xid(self, number: int, gpu: Gpu | None) -> None:
        """The driver reports an error of one of them; None: it does not say of which."""
        self.pending.append((int(pynvml.nvmlEventTypeXidCriticalError), number, gpu))


def calls() -> dict[str, Callable[..., Any]]:
    """The library's functions that this one stands in for."""
    return {name: member for name, member in vars(FakeNvml).items() if name.startswith("nvml")}

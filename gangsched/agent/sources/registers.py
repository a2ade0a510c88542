"""Reads what other programs' node agents wrote on the Node as an inventory. Pure: takes annotation text.

HAMi writes `hami.io/node-nvidia-register`: a JSON list of {"id", "count", "devmem", "type", "numa", "mode",
"health"}, without the fields that are zero (no numa is 0, no health is false); older versions write
`id,count,devmem,devcore,type,numa,health[,index,mode]:` for each device. Volcano's vGPU device plugin writes
`volcano.sh/node-vgpu-register`: `id,count,devmem,type,health[,mode]:` for each device, or HAMi's JSON.

Sources: HAMi `pkg/device/devices.go` (MarshalNodeDevices, DecodeNodeDevices) and its protocol page; Volcano
`pkg/scheduler/api/devices/nvidia/vgpu/utils.go` (decodeNodeDevices). `count` is the number of shares into
which they divide a device; we allocate whole devices, so an entry is one device here, however many shares it
has. Called by `app` with each Node that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gangsched.agent.report.inventory import HEALTHY, UNHEALTHY
from gangsched.agent.report.reports import Place, Report
from gangsched.agent.sources.device_file import check_id
from gangsched.errors import ParseError
from gangsched.model.devices.annotations import Device
from gangsched.model.text import bounded
from gangsched.model.text.printable import several

HAMI_KEY = "hami.io/node-nvidia-register"
VOLCANO_KEY = "volcano.sh/node-vgpu-register"
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


class _Entry(msgspec.Struct, gc=False):
    id: str = ""
    devmem: int = 0
    type: str = ""
    numa: int = 0
    mode: str = ""
    health: bool = False


_decode = bounded.decoder(list[_Entry])


class Register(msgspec.Struct, frozen=True):
    """One such annotation, and the resource under which its devices are listed."""

    key: str
    resource: str
    parse: Callable[[str], tuple[Device, ...]]

    @property
    def source(self) -> str:
        """Its name as a source."""
        return f"annotation {self.key}"

    def report(self, annotations: Mapping[str, str]) -> Report:
        """Its report for this node. Raises: nothing."""
        text = annotations.get(self.key)
        if text is None:
            return Report(self.source, looked=f"{self.source}: not on the node")
        try:
            devices = self.parse(text)
        except ParseError as error:
            return Report(self.source, problems=(f"{self.source}: {error.message}",), whole=False)
        looked = f"{self.source}: {several(len(devices), 'device')}"
        return Report(self.source, (Place(self.source, {self.resource: devices}),), looked=looked)


def parse_hami(text: str) -> tuple[Device, ...]:
    """Raises: ParseError."""
    if text.lstrip().startswith("["):
        return _checked(_from_json(text))
    return _checked(_from_fields(entry) for entry in _entries(text))


def parse_volcano(text: str) -> tuple[Device, ...]:
    """Raises: ParseError."""
    if text.lstrip().startswith("["):
        return _checked(_from_json(text))
    return _checked(_from_volcano_fields(entry) for entry in _entries(text))


HAMI = Register(HAMI_KEY, "nvidia.com/gpu", parse_hami)
VOLCANO = Register(VOLCANO_KEY, "volcano.sh/vgpu-number", parse_volcano)


def _from_json(text: str) -> list[_Entry]:
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        raise ParseError(f"is not a list of devices: {error}") from None


def _entries(text: str) -> list[list[str]]:
    entries = [entry.split(",") for entry in text.strip().split(":") if entry]
    if not entries:
        raise ParseError("has no entry; each ends in a colon")
    return entries


def _from_fields(fields: list[str]) -> _Entry:
    if len(fields) not in (7, 9):
        raise ParseError(
            f"the entry {','.join(fields)[:120]!r} has {several(len(fields), 'field')}; expected"
            " id,count,devmem,devcore,type,numa,health and perhaps index,mode"
        )
    return _Entry(
        id=fields[0],
        devmem=_number(fields[2], "devmem", fields),
        type=fields[4],
        numa=_number(fields[5], "numa", fields),
        mode=fields[8] if len(fields) == 9 else "",
        health=_truth(fields[6], fields),
    )


def _from_volcano_fields(fields: list[str]) -> _Entry:
    if len(fields) not in (5, 6):
        raise ParseError(
            f"the entry {','.join(fields)[:120]!r} has {several(len(fields), 'field')}; expected"
            " id,count,devmem,type,health and perhaps mode"
        )
    return _Entry(
        id=fields[0],
        devmem=_number(fields[2], "devmem", fields),
        type=fields[3],
        numa=-1,
        mode=fields[5] if len(fields) == 6 else "",
        health=_truth(fields[4], fields),
    )


def _number(text: str, name: str, fields: list[str]) -> int:
    try:
        return int(text)
    except ValueError:
        raise ParseError(f"{name} of {fields[0][:80]!r} is {text[:40]!r}, not a number") from None


def _truth(text: str, fields: list[str]) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ParseError(f"health of {fields[0][:80]!r} is {text[:40]!r}, neither true nor false")


def _checked(entries: Iterable[_Entry]) -> tuple[Device, ...]:
    """Devices in MIG mode cannot be allocated whole, so they are listed as unhealthy."""
    devices: dict[str, Device] = {}
    for entry in entries:
        problem = check_id(entry.id)
        if problem:
            raise ParseError(problem)
        if entry.id in devices:
            raise ParseError(f"lists {entry.id!r} twice")
        fit = entry.health and entry.mode != "mig"
        devices[entry.id] = Device(
            id=entry.id,
            health=HEALTHY if fit else UNHEALTHY,
            numa=max(entry.numa, -1),
            model=entry.type,
            memory_mib=max(entry.devmem, 0),
        )
    return tuple(devices.values())

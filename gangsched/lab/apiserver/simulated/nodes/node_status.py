"""A Node's status as a simulated kubelet writes it: pure functions on the object's dict.

Lives here: conditions, capacity and allocatable, addresses, nodeInfo. Not here: when they are written
(node_agent.py), taints (lab.apiserver.simulated.node_lifecycle). Source of reasons and messages: kubernetes
pkg/kubelet/nodestatus/setters.go, read in v1.37.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from gangsched import __version__
from gangsched.lab.apiserver.strategy import timestamp

Status = dict[str, Any]

KUBELET_VERSION = "v1.37.1+simulated"
RUNTIME = f"simulated://{__version__}"
OS_IMAGE = "Simulated by gangsched (no containers run)"
_RESERVED_KI = 100 * 1024
"""kubelet's default hard eviction threshold, which is not part of allocatable."""
_DISK_BYTES = 7 * 2**40

_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status (simulated)"),
)
CONDITIONS = tuple(type_ for type_, _, _, _ in _HEALTHY)
DEVICE_CONDITION = "DeviceAllocationConflict"


class Size(msgspec.Struct, frozen=True):
    """A node's capacity; `devices` by resource name. The defaults are for nodes that state nothing."""

    cpu: int = 96
    memory_gib: int = 1024
    pods: int = 110
    devices: Mapping[str, int] = {}


def fresh(name: str, ip: str, size: Size, now: datetime | None) -> Status:
    """Returns the status of a newly registered, ready node; `now` defaults to the clock."""
    moment = now or datetime.now(UTC)
    status: Status = {}
    complete(status, name, ip, size, boot=0)
    report_healthy(status, moment)
    return status


def complete(status: Status, name: str, ip: str, size: Size, *, boot: int) -> None:
    """Adds what a kubelet reports about its machine, if not set yet; `boot` counts reboots."""
    if not status.get("capacity") and not status.get("allocatable"):
        _measure(status, size)
    addresses = [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}]
    status.setdefault("addresses", addresses)
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 10250}})
    info = {
        "machineID": _identity(name, "machine"),
        "systemUUID": _identity(name, "system"),
        "bootID": _identity(name, f"boot {boot}"),
        "kernelVersion": "6.12.0-simulated",
        "osImage": OS_IMAGE,
        "containerRuntimeVersion": RUNTIME,
        "kubeletVersion": KUBELET_VERSION,
        # Deprecated, and empty since kube-proxy no longer reports it.
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    known = status.setdefault("nodeInfo", {})
    for key, value in info.items():
        if not known.get(key) or key == "bootID":
            known[key] = value


def _measure(status: Status, size: Size) -> None:
    memory_ki = size.memory_gib * 2**20
    shared = {
        "cpu": str(size.cpu),
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        **{resource: str(count) for resource, count in size.devices.items() if count},
        "pods": str(size.pods),
    }
    disk = {"capacity": f"{_DISK_BYTES // 1024}Ki", "allocatable": str(_DISK_BYTES * 9 // 10)}
    memory = {"capacity": f"{memory_ki}Ki", "allocatable": f"{memory_ki - _RESERVED_KI}Ki"}
    for which in ("capacity", "allocatable"):
        status[which] = {**shared, "ephemeral-storage": disk[which], "memory": memory[which]}


def report_healthy(status: Status, now: datetime) -> bool:
    """Sets the four conditions of a running kubelet, with a heartbeat of now; returns whether Ready has
    become True."""
    was_ready = _ready(status)
    for type_, value, reason, message in _HEALTHY:
        set_condition(status, type_, value, reason, message, now)
    return was_ready != "True"


def report_silent(status: Status, now: datetime) -> bool:
    """Sets what the node lifecycle controller writes about a silent kubelet; returns whether Ready has
    changed."""
    was_ready = _ready(status)
    for type_ in CONDITIONS:
        known = condition(status, type_)
        if known is None:
            set_condition(
                status, type_, "Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.", now
            )
        elif known.get("status") != "Unknown":
            set_condition(
                status,
                type_,
                "Unknown",
                "NodeStatusUnknown",
                "Kubelet stopped posting node status.",
                now,
                heartbeat=False,
            )
    return was_ready != "Unknown"


def condition(status: Status, type_: str) -> dict[str, Any] | None:
    """The condition of that type, or None."""
    found: list[dict[str, Any]] = status.get("conditions") or []
    return next((each for each in found if each.get("type") == type_), None)


def set_condition(
    status: Status,
    type_: str,
    value: str,
    reason: str,
    message: str,
    now: datetime,
    *,
    heartbeat: bool = True,
) -> None:
    """Sets or adds a condition; its transition time changes with its status only."""
    known = condition(status, type_)
    moment = timestamp(now)
    if known is None:
        known = {"type": type_, "status": "", "lastHeartbeatTime": moment, "lastTransitionTime": moment}
        conditions: list[dict[str, Any]] = status.setdefault("conditions", [])
        conditions.append(known)
    if heartbeat:
        known["lastHeartbeatTime"] = moment
    if known["status"] != value:
        known["lastTransitionTime"] = moment
    known.update(status=value, reason=reason, message=message)


def _ready(status: Status) -> str:
    known = condition(status, "Ready")
    return "" if known is None else str(known.get("status", ""))


def _identity(name: str, what: str) -> str:
    """Returns an ID that is the same for a node in every run."""
    text = hashlib.sha256(f"{what} of {name}".encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"

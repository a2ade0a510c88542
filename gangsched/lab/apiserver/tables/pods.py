"""The row of a pod, above all its STATUS, which shows more than the phase.

Called by printer.py. Source: kubernetes pkg/printers/internalversion/printers.go (printPod).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from gangsched.lab.apiserver.tables.ages import since
from gangsched.lab.apiserver.tables.columns import AGE, Cells, Kind, Object, columns

_NONE = "<none>"
_COMPLETED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


class _Summary(NamedTuple):
    """The summary of some containers' statuses; `last_restart` is a timestamp or ""."""

    reason: str
    n_ready: int
    n_restarts: int
    last_restart: str
    initializing: bool = False
    n_sidecar_restarts: int = 0
    last_sidecar_restart: str = ""


def _cells(pod: Object, now: datetime) -> Cells:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    before = _init_containers(spec, status)
    found = before
    if not before.initializing or _condition(status, "Initialized") == "True":
        found = _containers(status, before)
    restarts = str(found.n_restarts)
    if found.n_restarts and found.last_restart:
        restarts += f" ({since(found.last_restart, now)} ago)"
    n_containers = len(spec.get("containers") or ()) + len(_sidecars(spec))
    ips = status.get("podIPs") or ()
    return [
        pod["metadata"].get("name", ""),
        f"{found.n_ready}/{n_containers}",
        _at_end(pod, status, found.reason),
        restarts,
        since(pod["metadata"].get("creationTimestamp"), now),
        (ips[0].get("ip") if ips else "") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _readiness_gates(spec, status),
    ]


def _at_end(pod: Object, status: Object, reason: str) -> str:
    """Returns Terminating for a pod being deleted, unless it has ended by itself."""
    if not pod["metadata"].get("deletionTimestamp"):
        return reason
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in _COMPLETED else "Terminating"


def _first_reason(status: Object) -> str:
    reason: str = status.get("reason") or status.get("phase") or ""
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    return reason


def _sidecars(spec: Object) -> set[str]:
    """Returns the init containers that go on running beside the main ones."""
    return {
        each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"
    }


def _init_containers(spec: Object, status: Object) -> _Summary:
    """Summarizes init containers up to the first unfinished one, which gives the reason."""
    sidecars = _sidecars(spec)
    reason, initializing = _first_reason(status), False
    n_ready = n_restarts = n_sidecar_restarts = 0
    last = last_sidecar = ""
    for at, container in enumerate(status.get("initContainerStatuses") or ()):
        restarted = _restarted(container)
        n_restarts += container.get("restartCount", 0)
        last = max(last, restarted)
        is_sidecar = container["name"] in sidecars
        if is_sidecar:
            n_sidecar_restarts += container.get("restartCount", 0)
            last_sidecar = max(last_sidecar, restarted)
        state = container.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            n_ready += bool(container.get("ready"))
            continue
        initializing = True
        waits_for = (state.get("waiting") or {}).get("reason")
        if ended is not None:
            reason = f"Init:{_how_it_ended(ended)}"
        elif waits_for and waits_for != "PodInitializing":
            reason = f"Init:{waits_for}"
        else:
            reason = f"Init:{at}/{len(spec.get('initContainers') or ())}"
        break
    return _Summary(reason, n_ready, n_restarts, last, initializing, n_sidecar_restarts, last_sidecar)


def _containers(status: Object, before: _Summary) -> _Summary:
    """Summarizes main containers; the last one with a reason gives it; restarts include sidecars'."""
    reason, n_ready = before.reason, before.n_ready
    n_restarts, last = before.n_sidecar_restarts, before.last_sidecar_restart
    is_running, error = False, ""
    for container in reversed(status.get("containerStatuses") or ()):
        n_restarts += container.get("restartCount", 0)
        last = max(last, _restarted(container))
        state = container.get("state") or {}
        ended = state.get("terminated")
        if waits_for := (state.get("waiting") or {}).get("reason"):
            reason = waits_for
        elif ended is not None:
            reason = _how_it_ended(ended)
            if ended.get("exitCode"):
                error = reason
        elif container.get("ready") and state.get("running") is not None:
            is_running = True
            n_ready += 1
    if reason == "Completed":
        if is_running and _condition(status, "Ready") == "True":
            reason = "Running"
        elif error:
            reason = error
        elif is_running:
            reason = "NotReady"
    return _Summary(reason, n_ready, n_restarts, last)


def _how_it_ended(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _restarted(container: Object) -> str:
    """Returns when the container's previous run ended; timestamps in UTC sort as text."""
    ended: Object = (container.get("lastState") or {}).get("terminated") or {}
    return ended.get("finishedAt") or ""


def _condition(status: Object, type_: str) -> str:
    for each in status.get("conditions") or ():
        if each["type"] == type_:
            return str(each.get("status", ""))
    return ""


def _readiness_gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return _NONE
    return f"{sum(_condition(status, gate['conditionType']) == 'True' for gate in gates)}/{len(gates)}"


def _row_conditions(pod: Object) -> list[Object]:
    """Returns conditions by which kubectl can leave out ended pods."""
    phase = (pod.get("status") or {}).get("phase")
    message: Any = _COMPLETED.get(phase or "")
    if message is None:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


POD = Kind(
    columns(
        "Ready",
        "Status",
        "Restarts",
        AGE,
        wide=("IP", "Node", "Nominated Node", "Readiness Gates"),
    ),
    _cells,
    conditions=_row_conditions,
)

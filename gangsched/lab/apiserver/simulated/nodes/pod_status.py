"""A Pod's status as a simulated kubelet writes it: pure functions that change the object's dict in place.

Lives here: container states, conditions, phases. Not here: when (kubelets.py). Source of the conditions, with
their reasons: kubernetes pkg/kubelet/status/generate.go and kubelet_pods.go, read in v1.37.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gangsched.lab.apiserver.simulated.nodes.node_status import RUNTIME
from gangsched.lab.apiserver.strategy import Object, timestamp

_BACK_OFF = "CrashLoopBackOff"
_READY_CONDITIONS = ("Ready", "ContainersReady")
# 128 + SIGKILL and SIGTERM, as a shell counts them.
KILLED, TERMINATED = 137, 143


def containers(obj: Object) -> list[dict[str, Any]]:
    """Returns the containers that run concurrently: sidecars (init containers that restart) and main ones."""
    sidecars = [each for each in _init(obj) if each.get("restartPolicy") == "Always"]
    return [*sidecars, *obj["spec"].get("containers", ())]


def create(obj: Object, host_ip: str, now: datetime) -> None:
    """Sets the status after admission: nothing runs yet."""
    status = obj.setdefault("status", {})
    status["phase"] = "Pending"
    status["hostIP"] = host_ip
    status["hostIPs"] = [{"ip": host_ip}]
    status.setdefault("startTime", timestamp(now))
    waits_for = [each["name"] for each in _init(obj)]
    _condition(obj, "PodScheduled", "True", now)
    _condition(obj, "PodReadyToStartContainers", "False", now)
    if waits_for:
        why = f"containers with incomplete status: [{' '.join(waits_for)}]"
        _condition(obj, "Initialized", "False", now, "ContainersNotInitialized", why)
    else:
        _condition(obj, "Initialized", "True", now)
    _not_ready(obj, now)
    reason = "PodInitializing" if waits_for else "ContainerCreating"
    _each(obj, {"waiting": {"reason": reason}}, ready=False, started=False)


def cannot_start(obj: Object, reason: str, message: str) -> None:
    """Notes that the containers cannot be created for now; the rest of the status stays."""
    _each(obj, {"waiting": {"reason": reason, "message": message}}, ready=False, started=False)


def run(obj: Object, pod_ip: str, now: datetime) -> None:
    """Makes all containers run and ready; a container that ended before counts as restarted."""
    status = obj["status"]
    status["phase"] = "Running"
    status["podIP"] = pod_ip
    status["podIPs"] = [{"ip": pod_ip}]
    moment = timestamp(now)
    _each(obj, {"running": {"startedAt": moment}}, ready=True, started=True)
    for init in status.get("initContainerStatuses", ()):
        if _spec_of(obj, init["name"]).get("restartPolicy") != "Always" and "terminated" not in init["state"]:
            ended = {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment}
            ended["containerID"] = _container_id(obj, init["name"], 0)
            init.update(state={"terminated": ended}, ready=True, started=False)
            init["containerID"] = ended["containerID"]
    for type_ in ("PodReadyToStartContainers", "Initialized", *_READY_CONDITIONS):
        _condition(obj, type_, "True", now)


def restart(obj: Object, exit_code: int, now: datetime) -> None:
    """Notes that the containers have ended and are about to be restarted."""
    for each in obj["status"].get("containerStatuses", ()):
        each["state"] = {"terminated": _terminated(each, exit_code, now)}
        each.update(ready=False, started=False)
    _not_ready(obj, now)


def back_off(obj: Object, delay_s: float) -> None:
    """Makes ended containers wait for their restart; their end becomes their last state."""
    name, namespace, uid = (obj["metadata"][key] for key in ("name", "namespace", "uid"))
    for each in obj["status"].get("containerStatuses", ()):
        each["lastState"] = each["state"]
        pod = f"{name}_{namespace}({uid})"
        message = f"back-off {_printed(delay_s)} restarting failed container={each['name']} pod={pod}"
        each["state"] = {"waiting": {"reason": _BACK_OFF, "message": message}}


def end(obj: Object, exit_code: int, now: datetime) -> None:
    """Ends all containers for good."""
    status = obj["status"]
    status["phase"] = "Succeeded" if exit_code == 0 else "Failed"
    reason = "PodCompleted" if exit_code == 0 else "PodFailed"
    for each in _side_by_side(obj):
        each["state"] = {"terminated": _terminated(each, exit_code, now)}
        each.update(ready=False, started=False)
    _condition(obj, "PodReadyToStartContainers", "False", now)
    _condition(obj, "Initialized", "True", now, "PodCompleted" if exit_code == 0 else "")
    for type_ in _READY_CONDITIONS:
        _condition(obj, type_, "False", now, reason)


def refuse(obj: Object, reason: str, message: str, now: datetime) -> None:
    """Rejects the pod for good. Source: pkg/kubelet/kubelet.go, rejectPod."""
    status = obj.setdefault("status", {})
    status.update(phase="Failed", reason=reason, message=f"Pod was rejected: {message}")
    status.setdefault("startTime", timestamp(now))


def mark_not_ready(obj: Object, now: datetime) -> None:
    """Does what the node lifecycle controller does to pods of a silent node."""
    conditions = obj.get("status", {}).get("conditions") or ()
    if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
        _condition(obj, "Ready", "False", now)


def disrupt(obj: Object, reason: str, message: str, now: datetime) -> None:
    """Notes why the control plane is about to delete the pod."""
    _condition(obj, "DisruptionTarget", "True", now, reason, message)


def _each(obj: Object, state: dict[str, Any], *, ready: bool, started: bool) -> None:
    """Gives every container this state; statuses are made on first use, in the order of the spec."""
    status = obj["status"]
    for field, specs in (("initContainerStatuses", _init(obj)), ("containerStatuses", _main(obj))):
        known = {each["name"]: each for each in status.get(field, ())}
        for spec in specs:
            plain_init = field.startswith("init") and spec.get("restartPolicy") != "Always"
            if plain_init and (
                "running" in state or "terminated" in known.get(spec["name"], {}).get("state", {})
            ):
                continue
            one = known.setdefault(
                spec["name"],
                {
                    "name": spec["name"],
                    "state": {},
                    "lastState": {},
                    "ready": False,
                    "restartCount": 0,
                    "image": spec.get("image", ""),
                    "imageID": "",
                    "started": False,
                },
            )
            before = one["state"]
            if "running" in state and "running" in before:
                continue  # a sidecar that went on running while the rest were restarted
            if "running" in state:
                was_ended = "terminated" in before
                if was_ended:
                    one["lastState"] = before
                one["restartCount"] += was_ended or before.get("waiting", {}).get("reason") == _BACK_OFF
            one.update(state=dict(state), ready=ready, started=started)
            if "running" in state:
                one["containerID"] = _container_id(obj, spec["name"], one["restartCount"])
                one["imageID"] = f"simulated/{spec.get('image', '')}"
        if known:
            status[field] = list(known.values())


def _side_by_side(obj: Object) -> Iterable[dict[str, Any]]:
    status = obj["status"]
    for each in status.get("initContainerStatuses", ()):
        if _spec_of(obj, each["name"]).get("restartPolicy") == "Always":
            yield each
    yield from status.get("containerStatuses", ())


def _terminated(container: dict[str, Any], exit_code: int, now: datetime) -> dict[str, Any]:
    began = container.get("state", {}).get("running", {}).get("startedAt")
    ended = {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else "Error",
        "startedAt": began,
        "finishedAt": timestamp(now),
    }
    if container.get("containerID"):
        ended["containerID"] = container["containerID"]
    return ended


def _not_ready(obj: Object, now: datetime) -> None:
    names = " ".join(each["name"] for each in containers(obj))
    why = f"containers with unready status: [{names}]"
    for type_ in _READY_CONDITIONS:
        _condition(obj, type_, "False", now, "ContainersNotReady", why)


def _condition(
    obj: Object, type_: str, value: str, now: datetime, reason: str = "", message: str = ""
) -> None:
    conditions: list[dict[str, Any]] = obj["status"].setdefault("conditions", [])
    known = next((each for each in conditions if each["type"] == type_), None)
    if known is None:
        known = {"type": type_, "status": "", "lastProbeTime": None, "lastTransitionTime": timestamp(now)}
        conditions.append(known)
    elif known["status"] != value:
        known["lastTransitionTime"] = timestamp(now)
    known["status"] = value
    known["observedGeneration"] = obj["metadata"].get("generation", 1)
    for key, text in (("reason", reason), ("message", message)):
        if text:
            known[key] = text
        else:
            known.pop(key, None)


def _init(obj: Object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["spec"].get("initContainers") or []
    return found


def _main(obj: Object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["spec"].get("containers") or []
    return found


def _spec_of(obj: Object, name: str) -> dict[str, Any]:
    return next((each for each in (*_init(obj), *_main(obj)) if each["name"] == name), {})


def _container_id(obj: Object, name: str, restarts: int) -> str:
    uid = obj["metadata"].get("uid", "")
    return f"{RUNTIME.partition(':')[0]}://{hashlib.sha256(f'{uid}/{name}/{restarts}'.encode()).hexdigest()}"


def _printed(seconds: float) -> str:
    """Prints a duration of whole seconds like Go."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"

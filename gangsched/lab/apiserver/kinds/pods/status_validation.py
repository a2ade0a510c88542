"""Validation of a pod's status in an update. Called by the pods' strategy.

Source: pkg/apis/core/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems, qualified_name_problems
from gangsched.api_rules.status import forbidden_field, invalid_value
from gangsched.lab.apiserver.strategy import Object


def status_problems(new: Object, old: Object) -> Problems:
    """Returns the problems of a status update. Both are whole pods (ValidatePodStatusUpdate)."""
    status, before = new.get("status") or {}, old.get("status") or {}
    problems: Problems = []
    for index, condition in enumerate(status.get("conditions") or ()):
        type_ = condition.get("type") or ""
        if type_ not in ("PodScheduled", "Ready", "Initialized"):
            problems += [
                invalid_value(f"status.conditions[{index}].Type", type_, each)
                for each in qualified_name_problems(type_)
            ]
    nominated = status.get("nominatedNodeName") or ""
    if nominated and nominated != before.get("nominatedNodeName"):
        problems += names.subdomain("status.nominatedNodeName", nominated)
        if old["spec"].get("nodeName"):
            problems.append(
                forbidden_field(
                    "status.nominatedNodeName", "may not be set on pods that are already bound to a node"
                )
            )
    quality = status.get("qosClass")
    if quality != before.get("qosClass"):
        problems.append(invalid_value("status.qosClass", quality, "field is immutable"))
    problems += _terminated_stay_so(
        status.get("containerStatuses") or [], before.get("containerStatuses") or [], old["spec"]
    )
    return problems + _ip_problems(status, before)


def _terminated_stay_so(now: list[Object], before: list[Object], spec: Object) -> Problems:
    policy = spec.get("restartPolicy")
    if policy == "Always":
        return []
    problems: Problems = []
    running = {each.get("name") for each in now if "terminated" not in (each.get("state") or {})}
    for index, each in enumerate(before):
        ended = (each.get("state") or {}).get("terminated")
        if ended is None or each.get("name") not in running:
            continue
        if policy == "OnFailure" and ended.get("exitCode"):
            continue
        problems.append(
            forbidden_field(
                f"status.containerStatuses[{index}].state", "may not be transitioned to non-terminated state"
            )
        )
    return problems


def _ip_problems(status: Object, before: Object) -> Problems:
    problems: Problems = []
    for key in ("podIPs", "hostIPs"):
        known = {each.get("ip") for each in before.get(key) or ()}
        for index, each in enumerate(status.get(key) or ()):
            if each.get("ip") not in known:
                problems += names.ip(f"status.{key}[{index}]", each.get("ip") or "")
    return problems

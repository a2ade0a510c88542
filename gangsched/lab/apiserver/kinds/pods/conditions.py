"""Conditions of a pod's status, updated as in the API server.

Lives here: setting one, with its transition time. Called by binding.py and eviction.py.
Source: pkg/api/v1/pod/util.go (UpdatePodCondition) of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def set_condition(
    status: Object, type_: str, value: str, now: str, *, reason: str = "", message: str = ""
) -> None:
    """Replaces the condition of its type, or appends it; its transition time changes with its status only."""
    condition: Object = {"type": type_, "status": value, "lastProbeTime": None, "lastTransitionTime": now}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    conditions = status.setdefault("conditions", [])
    for index, existing in enumerate(conditions):
        if existing["type"] == type_:
            if existing["status"] == value and existing.get("lastTransitionTime"):
                condition["lastTransitionTime"] = existing["lastTransitionTime"]
            conditions[index] = condition
            return
    conditions.append(condition)

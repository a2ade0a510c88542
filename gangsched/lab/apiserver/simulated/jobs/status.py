"""A Job's status: counts and conditions, written in place. Pure functions.

Source of reasons and messages: kubernetes pkg/controller/job/job_controller.go, read in v1.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from gangsched.lab.apiserver.strategy import Object, timestamp


class Verdict(NamedTuple):
    """How a Job ends: with `interim` first, and `final` once it has no pods left."""

    interim: str
    final: str
    reason: str
    message: str


class Said(NamedTuple):
    """An event that goes with a change of status."""

    reason: str
    message: str
    warning: bool


COMPLETED = Verdict(
    "SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
)
TOO_MANY_FAILURES = Verdict(
    "FailureTarget", "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
)
TOO_LONG = Verdict(
    "FailureTarget", "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
)
_FINAL = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


def is_finished(status: Mapping[str, Any]) -> bool:
    return any(_is_true(status, type_) for type_ in _FINAL.values())


def interim(status: Mapping[str, Any]) -> Verdict | None:
    """Returns the verdict written by an earlier look, while pods are still terminating."""
    for each in status.get("conditions") or ():
        if each["type"] in _FINAL and each["status"] == "True":
            return Verdict(each["type"], _FINAL[each["type"]], each["reason"], each["message"])
    return None


def write(
    obj: Object, counts: Mapping[str, Any], verdict: Verdict | None, now: datetime, *, suspended: bool
) -> list[Said]:
    """Writes the current counts and the resulting conditions; returns the events for them."""
    status: dict[str, Any] = obj.setdefault("status", {})
    said: list[Said] = []
    for key, value in counts.items():
        # Zeros are left out, as in Go, except for the two fields that are pointers there.
        if value or key in ("ready", "terminating"):
            status[key] = value
        else:
            status.pop(key, None)
    status.setdefault("uncountedTerminatedPods", {})
    if verdict is not None:
        _set(status, verdict.interim, "True", verdict.reason, verdict.message, now)
        if not counts["active"] and not counts["terminating"]:
            _set(status, verdict.final, "True", verdict.reason, verdict.message, now)
            if verdict.final == "Complete":
                status["completionTime"] = timestamp(now)
                said.append(Said("Completed", "Job completed", False))
            else:
                said.append(Said(verdict.reason, verdict.message, True))
    elif suspended:
        if _set(status, "Suspended", "True", "JobSuspended", "Job suspended", now):
            status.pop("startTime", None)
            said.append(Said("Suspended", "Job suspended", False))
    elif _is_true(status, "Suspended"):
        _set(status, "Suspended", "False", "JobResumed", "Job resumed", now)
        status["startTime"] = timestamp(now)
        said.append(Said("Resumed", "Job resumed", False))
    if not suspended:
        status.setdefault("startTime", timestamp(now))
    return said


def _is_true(status: Mapping[str, Any], type_: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(each["type"] == type_ and each["status"] == "True" for each in conditions)


def _set(status: dict[str, Any], type_: str, value: str, reason: str, message: str, now: datetime) -> bool:
    """Sets a condition; returns whether it is new or its status changed."""
    conditions: list[dict[str, Any]] = status.setdefault("conditions", [])
    known = next((each for each in conditions if each["type"] == type_), None)
    if known is not None and known["status"] == value:
        return False
    if known is None:
        known = {"type": type_}
        conditions.append(known)
    moment = timestamp(now)
    known.update(
        status=value, lastProbeTime=moment, lastTransitionTime=moment, reason=reason, message=message
    )
    return True

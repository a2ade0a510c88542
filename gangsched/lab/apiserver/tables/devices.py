"""The rows of Dynamic Resource Allocation: claims of devices, templates, classes, slices, rules of taints.

Called by printer.py. Source: kubernetes pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from datetime import datetime

from gangsched.lab.apiserver.tables.ages import since
from gangsched.lab.apiserver.tables.cluster import name_and_age
from gangsched.lab.apiserver.tables.columns import AGE, Cells, Kind, Object, columns


def _plain(obj: Object, now: datetime) -> Cells:
    return [*name_and_age(obj, now)]


def _claim(claim: Object, now: datetime) -> Cells:
    name, age = name_and_age(claim, now)
    status = claim.get("status") or {}
    deleted = bool(claim["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    return [name, ",".join(states), age]


def _slice(found: Object, now: datetime) -> Cells:
    name, age = name_and_age(found, now)
    spec = found.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    return [name, spec.get("nodeName") or "", spec.get("driver", ""), pool, age]


def _taint_rule(rule: Object, now: datetime) -> Cells:
    name, age = name_and_age(rule, now)
    taint = (rule.get("spec") or {}).get("taint") or {}
    added = since(taint["timeAdded"], now) if taint.get("timeAdded") else ""
    return [name, *(taint.get(key, "") for key in ("key", "value", "effect")), added, age]


_GROUP = "resource.k8s.io"
KINDS: dict[str, Kind] = {
    f"{_GROUP}/deviceclasses": Kind(columns(AGE), _plain),
    f"{_GROUP}/devicetaintrules": Kind(columns("Key", "Value", "Effect", "TimeAdded", AGE), _taint_rule),
    f"{_GROUP}/resourceclaims": Kind(columns("State", AGE), _claim),
    f"{_GROUP}/resourceclaimtemplates": Kind(columns(AGE), _plain),
    f"{_GROUP}/resourceslices": Kind(columns("Node", "Driver", "Pool", AGE), _slice),
}

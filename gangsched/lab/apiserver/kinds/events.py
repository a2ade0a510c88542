"""Events: one store in the core group's form, also served through events.k8s.io.

Lives here: both strategies and the conversion between the two forms.
Source: pkg/registry/core/event/strategy.go, pkg/apis/core/validation/events.go,
pkg/apis/events/v1/conversion.go of Kubernetes 1.37.
"""

from __future__ import annotations

import json

from gangsched.api_rules import names
from gangsched.api_rules.canonical import tidy
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import FieldProblem, invalid_value, required
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.strategy import Context, Object, Strategy

# core/v1 -> events.k8s.io/v1
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_NAMES = {new: old for old, new in _NAMES.items()}
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_GO_REFERENCE = ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath")
_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_FIRST_OF_SERIES = 2


class EventStrategy(Strategy):
    """The core group's Events: hardly validated, for compatibility with old clients."""

    creates_on_update = True
    name_rule = "path"

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _default(obj)

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        _default(new)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        return _problems(new, "reportingComponent")

    def fields(self, obj: Object) -> dict[str, str]:
        about = obj.get("involvedObject") or {}
        found = {key: about.get(key) or "" for key in _REFERENCE}
        reporter = obj.get("reportingComponent") or ""
        return {
            **{f"involvedObject.{key}": value for key, value in found.items()},
            **{f"regarding.{key}": value for key, value in found.items()},
            "reason": obj.get("reason") or "",
            "reportingComponent": reporter,
            "reportingController": reporter,
            "source": (obj.get("source") or {}).get("component") or reporter,
            "type": obj.get("type") or "",
        }

    def field_names(self) -> tuple[str, ...]:
        return (
            *(f"involvedObject.{key}" for key in _REFERENCE),
            "reason",
            "reportingComponent",
            "source",
            "type",
        )


class NewEventStrategy(EventStrategy):
    """events.k8s.io: the same objects, complete at creation and not changed afterwards."""

    name_rule = "subdomain"
    converts = True

    def to_storage(self, obj: Object, version: str, resource: Resource) -> Object:
        return {_CORE_NAMES.get(key, key): value for key, value in obj.items()}

    def from_storage(self, obj: Object, version: str, resource: Resource) -> Object:
        shown = {_NAMES.get(key, key): value for key, value in obj.items()}
        for key in ("reportingController", "reportingInstance", "note"):
            if not shown.get(key):
                shown.pop(key, None)
        return shown

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        problems = _problems(new, "reportingController")
        if old is not None:
            return problems + _changes(new, old)
        problems += _series(new)
        if not new["eventTime"]:
            problems.append(required("eventTime"))
        type_ = new.get("type") or ""
        if type_ not in ("Normal", "Warning"):
            problems.append(invalid_value("type", "", f"has invalid value: {type_}"))
        problems += [
            invalid_value(key, "", "needs to be unset")
            for key in ("firstTimestamp", "lastTimestamp", "count", "source")
            if new.get(key)
        ]
        return problems

    def field_names(self) -> tuple[str, ...]:
        return (*(f"regarding.{key}" for key in _REFERENCE), "reason", "reportingController", "type")


def _default(event: Object) -> None:
    """Adds the fields that Go's type prints even if they were not set."""
    for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(key, None)
    for key in ("reportingComponent", "reportingInstance"):
        if not event.get(key):
            event[key] = ""
    for key in ("source", "involvedObject"):
        found = event.get(key)
        if found is None:
            event[key] = {}
        else:
            tidy(found)
    for key in ("action", "reason", "message", "type", "count"):
        if not event.get(key):
            event.pop(key, None)


def _problems(event: Object, reporter_field: str) -> Problems:
    problems: Problems = []
    namespace = event["metadata"].get("namespace") or ""
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    mismatch = invalid_value("involvedObject.namespace", about, "does not match event.namespace")
    if not event["eventTime"]:
        if about != namespace and (about or namespace != "default"):
            problems.append(mismatch)
        return problems
    if not about and namespace not in ("default", "kube-system"):
        problems.append(mismatch)
    reporter = event["reportingComponent"]
    if not reporter:
        problems.append(required(reporter_field))
    problems += names.qualified(reporter_field, reporter)
    for key, limit in _LIMITS.items():
        value = event.get(key) or ""
        if not value and key != "message":
            problems.append(required(key))
        if len(value.encode()) > limit:
            problems.append(invalid_value(key, "", f"can have at most {limit} characters"))
    return problems


def _series(event: Object) -> Problems:
    problems: Problems = []
    if (series := event.get("series")) is not None:
        if (series.get("count") or 0) < _FIRST_OF_SERIES:
            problems.append(invalid_value("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            problems.append(required("series.lastObservedTime"))
    return problems


def _changes(new: Object, old: Object) -> Problems:
    problems = _series(new) if new.get("series") != old.get("series") else []
    for key in (
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ):
        if new.get(key) != old.get(key):
            field = "reportingController" if key == "reportingComponent" else key
            problems.append(_immutable(field, new.get(key)))
    return problems


def _immutable(field: str, value: object) -> FieldProblem:
    if field not in ("involvedObject", "related") or not isinstance(value, dict):
        return invalid_value(field, value or "", "field is immutable")
    printed = {go: value.get(key) or "" for key, go in zip(_REFERENCE, _GO_REFERENCE, strict=True)}
    text = json.dumps(printed, separators=(",", ":"))
    return FieldProblem(field, "FieldValueInvalid", f"Invalid value: {text}: field is immutable")

"""Errors of the API: problems of single fields, and Kubernetes' Status objects, in the real server's words.

Lives here: the exception that carries a Status. Not here: the others of its constructors, which only a server
needs (lab.apiserver.status). Source: k8s.io/apimachinery pkg/api/errors/errors.go,
pkg/util/validation/field/errors.go.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

# Kubernetes' field.ErrorType: the beginning of its message, and its name among a Status's causes.
REQUIRED = "Required value"
INVALID = "Invalid value"
NOT_SUPPORTED = "Unsupported value"
FORBIDDEN = "Forbidden"
DUPLICATE = "Duplicate value"
NOT_FOUND = "Not found"
TOO_LONG = "Too long"
TOO_MANY = "Too many"

_CAUSES = {
    REQUIRED: "FieldValueRequired",
    INVALID: "FieldValueInvalid",
    NOT_SUPPORTED: "FieldValueNotSupported",
    FORBIDDEN: "FieldValueForbidden",
    DUPLICATE: "FieldValueDuplicate",
    NOT_FOUND: "FieldValueNotFound",
    TOO_LONG: "FieldValueTooLong",
    TOO_MANY: "FieldValueTooMany",
}
_WITHOUT_VALUE = (REQUIRED, FORBIDDEN, TOO_LONG)


class FieldProblem(NamedTuple):
    """A problem with one field; `message` is what the server prints after the field's path."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def field_problem(kind: str, field: str, detail: str = "", value: Any = None) -> FieldProblem:
    """Makes a problem of one of the kinds above; `value`: what was found there, if the kind prints it."""
    message = kind if kind in _WITHOUT_VALUE else f"{kind}: {_printed(value)}"
    return FieldProblem(field, _CAUSES[kind], f"{message}: {detail}" if detail else message)


def required(field: str, detail: str = "") -> FieldProblem:
    return field_problem(REQUIRED, field, detail)


def invalid_value(field: str, value: Any, detail: str) -> FieldProblem:
    return field_problem(INVALID, field, detail, value)


def forbidden_field(field: str, detail: str) -> FieldProblem:
    return field_problem(FORBIDDEN, field, detail)


def duplicate_value(field: str, value: Any) -> FieldProblem:
    return field_problem(DUPLICATE, field, "", value)


def not_supported(field: str, value: Any, supported: Sequence[str]) -> FieldProblem:
    """`supported` is printed in the order given: the server sorts it for most fields."""
    return field_problem(
        NOT_SUPPORTED, field, "supported values: " + ", ".join(quoted(each) for each in supported), value
    )


def quoted(text: str) -> str:
    """Quotes like Go's %q, for text that JSON quotes the same way."""
    return json.dumps(text, ensure_ascii=False)


def _printed(value: Any) -> str:
    if value is None:
        return '"null"'
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class Cause(NamedTuple):
    """One of the causes in a Status's details."""

    reason: str
    message: str
    field: str = ""


class StatusError(Exception):
    """A rejected request, with its Status object.

    `name`, `group` and `kind` go into `details`; `kind` is a resource's plural, but a kind if the reason is
    Invalid.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        name: str = "",
        group: str = "",
        kind: str = "",
        uid: str = "",
        causes: Sequence[Cause | FieldProblem] = (),
        retry_after_s: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.name = name
        self.group = group
        self.kind = kind
        self.uid = uid
        self.causes = tuple(causes)
        self.retry_after_s = retry_after_s
        self.headers = headers or {}
        # A token that continues the list, though inconsistently.
        self.continue_ = ""
        super().__init__(message)

    def details(self) -> dict[str, Any]:
        details: dict[str, Any] = {}
        for key in ("name", "group", "kind", "uid"):
            if getattr(self, key):
                details[key] = getattr(self, key)
        if self.causes:
            details["causes"] = [_cause(cause) for cause in self.causes]
        if self.retry_after_s:
            details["retryAfterSeconds"] = self.retry_after_s
        return details

    def as_status(self) -> dict[str, Any]:
        """The Status object, its keys in the real server's order."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_} if self.continue_ else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        details = self.details()
        if details or self.reason in _ALWAYS_DETAILED:
            status["details"] = details
        status["code"] = self.code
        return status


_ALWAYS_DETAILED = ("NotFound", "AlreadyExists", "Forbidden", "Conflict", "Invalid", "MethodNotAllowed")


def _cause(cause: Cause | FieldProblem) -> dict[str, str]:
    shown = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {key: value for key, value in shown.items() if value}


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)

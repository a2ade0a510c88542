"""Errors of the API: Kubernetes' Status objects, with the real server's messages.

Lives here: the exception that carries one, its constructors, the problems of single fields. Not here: when
they are raised. Raised everywhere in apiserver/, turned into a response by the HTTP face. Source:
k8s.io/apimachinery pkg/api/errors/errors.go, pkg/util/validation/field/errors.go.
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


def success(*, name: str = "", group: str = "", kind: str = "", uid: str = "") -> dict[str, Any]:
    """The answer to a deletion that removed the object at once."""
    details = {"name": name, "group": group, "kind": kind, "uid": uid}
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    shown = {key: value for key, value in details.items() if value}
    if shown:
        status["details"] = shown
    return status


def qualified(group: str, name: str) -> str:
    """Returns a resource or kind with its group, as in messages: `podgroups.scheduling.k8s.io`, `pods`."""
    return f"{name}.{group}" if group else name


def not_found(resource: str, name: str, *, group: str = "") -> StatusError:
    return StatusError(
        404,
        "NotFound",
        f"{qualified(group, resource)} {quoted(name)} not found",
        name=name,
        group=group,
        kind=resource,
    )


def unknown_path() -> StatusError:
    """No such resource is served; used only for paths that look like a resource's."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: str, name: str, *, group: str = "") -> StatusError:
    return StatusError(
        409,
        "AlreadyExists",
        f"{qualified(group, resource)} {quoted(name)} already exists",
        name=name,
        group=group,
        kind=resource,
    )


def conflict(
    resource: str, name: str, why: str, *, group: str = "", causes: Sequence[Cause] = ()
) -> StatusError:
    return StatusError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {qualified(group, resource)} {quoted(name)}: {why}",
        name=name,
        group=group,
        kind=resource,
        causes=causes,
    )


def forbidden(
    resource: str, name: str, why: str, *, group: str = "", causes: Sequence[Cause] = ()
) -> StatusError:
    if not resource:
        message = f"forbidden: {why}"
    elif not name:
        message = f"{qualified(group, resource)} is forbidden: {why}"
    else:
        message = f"{qualified(group, resource)} {quoted(name)} is forbidden: {why}"
    return StatusError(403, "Forbidden", message, name=name, group=group, kind=resource, causes=causes)


def invalid(kind: str, name: str, problems: Sequence[FieldProblem], *, group: str = "") -> StatusError:
    """Fields that do not pass validation; equal problems are named once in the message."""
    texts = list(dict.fromkeys(map(str, problems)))
    said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f"{qualified(group, kind)} {quoted(name)} is invalid"
    return StatusError(
        422,
        "Invalid",
        f"{message}: {said}" if texts else message,
        name=name,
        group=group,
        kind=kind,
        causes=problems,
    )


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    """The history does not go back far enough, or a continue token is too old."""
    return StatusError(410, "Expired", message)


def too_many_requests(
    message: str, *, retry_after_s: int | None = None, causes: Sequence[Cause] = ()
) -> StatusError:
    headers = {"Retry-After": str(retry_after_s)} if retry_after_s is not None else None
    return StatusError(
        429, "TooManyRequests", message, causes=causes, retry_after_s=retry_after_s, headers=headers
    )


def method_not_supported(resource: str, action: str, *, group: str = "") -> StatusError:
    """The resource exists but lacks this action (not in rest.Storage)."""
    return StatusError(
        405,
        "MethodNotAllowed",
        f"{action} is not supported on resources of kind {quoted(qualified(group, resource))}",
        group=group,
        kind=resource,
    )


def method_not_allowed() -> StatusError:
    """No route for this HTTP method at this path."""
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    return StatusError(
        406, "NotAcceptable", f"only the following media types are accepted: {', '.join(accepted)}"
    )


def request_too_large(limit_bytes: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit_bytes}")


def timeout(message: str, *, retry_after_s: int | None = None, causes: Sequence[Cause] = ()) -> StatusError:
    return StatusError(504, "Timeout", f"Timeout: {message}", causes=causes, retry_after_s=retry_after_s)


def internal_error(message: str) -> StatusError:
    return StatusError(
        500, "InternalError", f"Internal error occurred: {message}", causes=[Cause("", message)]
    )

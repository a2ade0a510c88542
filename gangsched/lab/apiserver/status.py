"""The errors of a server, with the real server's messages, and its answer to a deletion.

Not here: the exception itself, and the problems of single fields (api_rules.status); when they are raised.
Raised everywhere in apiserver/, turned into a response by the HTTP face. Source: k8s.io/apimachinery
pkg/api/errors/errors.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangsched.api_rules.status import Cause, FieldProblem, StatusError, quoted


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
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f"{qualified(group, kind)} {quoted(name)} is invalid"
    return StatusError(
        422,
        "Invalid",
        f"{message}: {text}" if texts else message,
        name=name,
        group=group,
        kind=kind,
        causes=problems,
    )


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

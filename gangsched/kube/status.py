"""Reads the API server's description of a failure as an ApiError. Called by everything that reads answers.

A Status is distinguished from a proxy's answer, a login page or a half-written answer by its own marks: kind,
apiVersion, `status: Failure`, and a code that equals the answer's. Without one of them the error has no
`subject`.
"""

from __future__ import annotations

import msgspec

from gangsched.errors import ApiError, Subject
from gangsched.model.text import bounded


class StatusCause(msgspec.Struct, gc=False):
    reason: str = ""


class StatusDetails(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    retry_after_seconds: int = 0
    causes: list[StatusCause] | None = None


class ApiStatus(msgspec.Struct, gc=False, rename="camel"):
    """The API server's own description of a failure."""

    kind: str = ""
    api_version: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


_NO_DETAILS = StatusDetails()
_decode_status = bounded.lenient_decoder(ApiStatus)


def api_error(code: int, retry_after: str | None, body: bytes) -> ApiError:
    """Returns the error for an answer of status `code`; quotes a body that is no Status."""
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    try:
        status = _decode_status(body)
    except ValueError:  # not JSON of that form, or not text
        status = ApiStatus()
    if status.kind != "Status" or code < 300:
        text = body[:300].decode("utf-8", "replace").strip()
        return ApiError(text or "no message", code=code, retry_after_s=seconds)
    return status_error(status, code=code, retry_after_s=seconds)


def status_error(status: ApiStatus, *, code: int = 0, retry_after_s: float | None = None) -> ApiError:
    """Returns the error for a Status object; `code`: of the answer that carried it."""
    reason, details = status.reason, status.details or _NO_DETAILS
    if retry_after_s is None and details.retry_after_seconds > 0:
        retry_after_s = float(details.retry_after_seconds)
    # Finer than the reason (Timeout, TooManyRequests); we need the difference.
    for cause in details.causes or ():
        if cause.reason in ("ResourceVersionTooLarge", "DisruptionBudget"):
            reason = cause.reason
    own = (status.kind, status.api_version, status.status) == ("Status", "v1", "Failure")
    subject = None
    if own and (not code or code == status.code):
        subject = Subject(details.kind, details.name, details.group, details.uid)
    return ApiError(
        status.message[:2000],
        code=code or status.code,
        reason=reason,
        retry_after_s=retry_after_s,
        subject=subject,
    )


def is_success(body: bytes) -> bool:
    """Whether this is a Status with Success: the answer to a Binding and to an Eviction."""
    try:
        status = _decode_status(body)
    except ValueError:
        return False
    return status.kind == "Status" and status.status == "Success"


def read_status(raw: bytes | msgspec.Raw) -> ApiError:
    """Returns the error for a Status in JSON, as in an ERROR line of a watch."""
    try:
        return status_error(_decode_status(raw))
    except ValueError as error:
        return ApiError(f"an error of the API server is not readable: {error}")

"""The API server's words about a failure, as an ApiError. Called by all that reads answers."""

from __future__ import annotations

import msgspec

from gangsched.errors import ApiError
from gangsched.model import bounded


class StatusCause(msgspec.Struct, gc=False):
    reason: str = ""


class StatusDetails(msgspec.Struct, gc=False, rename="camel"):
    retry_after_seconds: int = 0
    causes: list[StatusCause] | None = None


class Status(msgspec.Struct, gc=False):
    """The API server's own words about a failure."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


_decode_status = bounded.lenient_decoder(Status)


def api_error(code: int, retry_after: str | None, body: bytes) -> ApiError:
    """The error that an answer of status `code` stands for; a body that is no Status is quoted."""
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
    try:
        status = _decode_status(body)
    except msgspec.MsgspecError:
        text = body[:300].decode("utf-8", "replace").strip()
        return ApiError(text or "no message", code=code, retry_after_s=seconds)
    return status_error(status, code=code, retry_after_s=seconds)


def status_error(status: Status, *, code: int = 0, retry_after_s: float | None = None) -> ApiError:
    """The error that a Status object stands for."""
    reason = status.reason
    if status.details is not None:
        if retry_after_s is None and status.details.retry_after_seconds > 0:
            retry_after_s = float(status.details.retry_after_seconds)
        # Finer than the reason (Timeout, TooManyRequests), and what we have to tell apart.
        for cause in status.details.causes or ():
            if cause.reason in ("ResourceVersionTooLarge", "DisruptionBudget"):
                reason = cause.reason
    return ApiError(
        status.message[:2000], code=status.code or code, reason=reason, retry_after_s=retry_after_s
    )


def read_status(raw: bytes | msgspec.Raw) -> ApiError:
    """The error that a Status in JSON stands for, as an ERROR line of a watch carries it."""
    try:
        return status_error(_decode_status(raw))
    except msgspec.MsgspecError as error:
        return ApiError(f"an error of the API server is not readable: {error}")

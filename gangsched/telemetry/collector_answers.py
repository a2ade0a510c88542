"""Answers of a trace collector, of which only the begin is read: an answer without end would fill the memory.

One that sends elsewhere is a refusal: OpenTelemetry's exporter follows no redirect and takes it for success.
Called by telemetry.service; loads requests, with which that exporter sends.
"""

from __future__ import annotations

import os
import time
from typing import Any

import requests

# What a collector says of spans that it refuses has some hundred bytes.
MAX_ANSWER = 64 * 1024
_LIMIT_S = 10.0
_OWN_SESSIONS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
)


def bounded_session() -> requests.Session | None:
    """None: the environment names a provider of sessions, which OpenTelemetry asks for one."""
    if any(os.environ.get(name) for name in _OWN_SESSIONS):
        return None
    session = requests.Session()
    # A compressed answer of 64 KiB is one of 64 MiB.
    session.headers["Accept-Encoding"] = "identity"
    session.hooks["response"].append(_read)
    return session


def _read(response: requests.Response, *_: Any, **__: Any) -> None:
    """Reads the answer's begin, before requests would read all of it."""
    body, end_s = b"", time.monotonic() + _LIMIT_S
    while len(body) < MAX_ANSWER and time.monotonic() < end_s:
        part = response.raw.read1(MAX_ANSWER - len(body), decode_content=False)
        if not part:
            break
        body += part
    else:
        response.close()  # the rest is never read
    response._content = body
    response._content_consumed = True
    if 300 <= response.status_code < 400:
        response.reason = f"it redirects, with code {response.status_code}; give the address where it is"
        response.status_code = 400

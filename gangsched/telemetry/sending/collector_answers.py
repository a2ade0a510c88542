"""Answers of a trace collector, read only up to a limit: an endless answer would fill the memory.

A redirect counts as a refusal: OpenTelemetry's exporter does not follow it and takes it for success. Called
by telemetry.service; loads requests, which that exporter uses.
"""

from __future__ import annotations

import os
import time
from typing import Any

import requests
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from gangsched.model.text.printable import one_line

# A collector's message about refused spans takes some hundred bytes.
MAX_ANSWER = 64 * 1024
_LIMIT_S = 10.0
_MAX_WHY = 400
_OWN_SESSIONS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
)


class Answers:
    """A collector's last answer: how many spans of a batch it refused, and why.

    OpenTelemetry's exporter takes a partial success for a full one.
    """

    def __init__(self) -> None:
        self._refused = (0, "")

    def refused(self) -> tuple[int, str]:
        """How many spans of the last batch were refused, and why."""
        return self._refused

    def session(self) -> requests.Session | None:
        """The session to use; None: the environment names a session provider, which OpenTelemetry uses."""
        if any(os.environ.get(name) for name in _OWN_SESSIONS):
            return None
        session = _bounded_session()
        session.hooks["response"].append(self._read)
        return session

    def _read(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self._refused = (0, "")
        try:
            partial = ExportTraceServiceResponse.FromString(response.content).partial_success
        except DecodeError:
            return  # not an OTLP answer, and none is needed
        self._refused = (partial.rejected_spans, one_line(partial.error_message[:_MAX_WHY]))


def _bounded_session() -> requests.Session:
    """Returns a session that reads only the begin of an answer."""
    session = requests.Session()
    # A compressed answer of 64 KiB may be 64 MiB uncompressed.
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

"""Spans as OTLP JSON, one request a line, as the OpenTelemetry Collector's file exporter writes them.

Called by telemetry.sending.export, in the exporter's thread. Ids are hex and 64-bit numbers are strings, as
in OTLP's JSON mapping (unlike protobuf's own, which would write ids in base64).
Source: opentelemetry-proto, `docs/specification.md`, JSON Protobuf Encoding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanKind
from opentelemetry.trace.status import StatusCode

from gangsched.errors import ConfigError
from gangsched.telemetry.sending.trace_file import BEFORE, opened

# A scheduler that traces everything writes about 10 kB a gang. At this size the file is renamed to `FILE.1`
# and restarted, so that a forgotten flag does not fill a disk.
MAX_FILE_BYTES = 256 * 2**20
_KINDS = {
    SpanKind.INTERNAL: 1,
    SpanKind.SERVER: 2,
    SpanKind.CLIENT: 3,
    SpanKind.PRODUCER: 4,
    SpanKind.CONSUMER: 5,
}
_encode = msgspec.json.Encoder().encode


def encode_line(spans: Sequence[ReadableSpan]) -> bytes:
    """Encodes one line of spans that share a resource and a scope, as a GangTracer's do."""
    scope = spans[0].instrumentation_scope
    scope_spans = {
        "scope": {} if scope is None else {"name": scope.name, "version": scope.version or ""},
        "spans": [_span(span) for span in spans],
    }
    resource = {"attributes": _attributes(spans[0].resource.attributes)}
    return _encode({"resourceSpans": [{"resource": resource, "scopeSpans": [scope_spans]}]}) + b"\n"


def _span(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    fields: dict[str, Any] = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "parentSpanId": f"{span.parent.span_id:016x}" if span.parent is not None else "",
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes or {}),
    }
    if span.events:
        fields["events"] = [_event(event) for event in span.events]
    if span.links:
        fields["links"] = [_link(link) for link in span.links]
    code = span.status.status_code
    fields["status"] = {} if code is StatusCode.UNSET else {"code": code.value}
    return fields


def _event(event: Event) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event.timestamp),
        "name": event.name,
        "attributes": _attributes(event.attributes or {}),
    }


def _link(link: Link) -> dict[str, Any]:
    return {
        "traceId": f"{link.context.trace_id:032x}",
        "spanId": f"{link.context.span_id:016x}",
        "attributes": _attributes(link.attributes or {}),
    }


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}


class FileExporter(SpanExporter):
    """Appends to a file, and recreates it if it was moved or deleted.

    Raises: ConfigError, when it cannot be opened for appending.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        try:
            self._file = opened(path)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", source=str(path)) from None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """One line, in one write. Raises: OSError; the next call tries again."""
        line = encode_line(spans)
        if not self._is_there():
            self._open_again()
        # Not where the last write ended: the file may have been truncated since.
        n_before = os.fstat(self._file.fileno()).st_size
        if n_before and n_before + len(line) > self._max_bytes:
            os.replace(self._path, f"{self._path}{BEFORE}")
            self._open_again()
            n_before = 0
        if self._file.write(line) != len(line):
            self._file.truncate(n_before)  # half a line would make the rest of the file unreadable
            raise OSError("the disk is full")
        return SpanExportResult.SUCCESS

    def _is_there(self) -> bool:
        """Whether the open file still has that name."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _open_again(self) -> None:
        """Raises: OSError; the old file then stays open."""
        before, self._file = self._file, opened(self._path)
        before.close()

    def shutdown(self) -> None:
        self._file.close()

"""Traces read back: OTLP JSON lines from a file, or Jaeger's query API, as one plain shape.

Lives here: decoding, and finding a gang's traces. Not here: drawing (telemetry.showing.waterfall). Called by
telemetry.showing.command; loads nothing of OpenTelemetry. A file may be as large as a disk: it is read twice,
line by line, and only the names of other gangs are kept.
Sources: opentelemetry-proto's JSON encoding; Jaeger `model/json`.
"""

from __future__ import annotations

import difflib
import http.client
import json
import os
import re
import stat
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from gangsched.errors import ApiError, ConfigError
from gangsched.kube.reach import plain
from gangsched.model.text import bounded
from gangsched.model.text.printable import clean
from gangsched.telemetry import names
from gangsched.telemetry.sending.trace_file import BEFORE

MAX_NAMES = 10_000
"""Other gangs whose names are kept, to suggest the nearest."""
# OTLP writes 64 bits as text. Anything else in its place is shown as it is.
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_LOOK_BACK_S = 7 * 86_400
_JAEGER_LIMIT = 200
_ANSWER_S = 30.0
# 200 traces of gangs of a hundred take some ten MiB, with 40 bytes for each comma.
_MAX_ANSWER = 128 * 2**20
# Limit for an answer or a line: two bytes of text may take 130 bytes of memory.
_MAX_VALUES = 5_000_000
_FORWARD = "kubectl -n gangsched-system port-forward deployment/gangsched-jaeger 16686"


class NoTrace(ConfigError):
    """There is no trace of this gang, or none yet."""


class SpanView(msgspec.Struct, frozen=True):
    """One span. events: (name, ns, attributes)."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, int, dict[str, Any]], ...] = ()
    links: tuple[str, ...] = ()
    """Ids of linked traces: from a file only the submitters'; Jaeger does not keep a link's purpose."""


class TraceView(msgspec.Struct, frozen=True, dict=True):
    """The spans of one trace, by start; the longer first if two start together. Values derived from all spans
    are cached, as each line of a picture needs them.
    """

    trace_id: str
    spans: tuple[SpanView, ...]

    @cached_property
    def root(self) -> SpanView | None:
        """None while the gang waits, or if its scheduler died."""
        return next((span for span in self.spans if not span.parent_id), None)

    @cached_property
    def start_ns(self) -> int:
        return min(span.start_ns for span in self.spans)

    @cached_property
    def end_ns(self) -> int:
        return max(span.end_ns for span in self.spans)


# -- a file of OTLP JSON lines -----------------------------------------------------------------------------


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    int_value: str | int | None = None
    double_value: float | None = None
    bool_value: bool | None = None
    array_value: dict[str, list[_Value]] | None = None

    def plain(self) -> Any:
        if self.array_value is not None:
            return [one.plain() for one in self.array_value.get("values", ())]
        if isinstance(self.int_value, str):
            return int(self.int_value) if _INTEGER.fullmatch(self.int_value) else self.int_value
        if self.int_value is not None:
            return self.int_value
        return next((v for v in (self.string_value, self.bool_value, self.double_value) if v is not None), "")


class _Attribute(msgspec.Struct):
    key: str
    value: _Value = msgspec.field(default_factory=_Value)


class _Event(msgspec.Struct, rename="camel"):
    name: str = ""
    time_unix_nano: str | int = 0
    attributes: list[_Attribute] = []


class _Link(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    attributes: list[_Attribute] = []


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    name: str
    start_time_unix_nano: str | int
    end_time_unix_nano: str | int
    parent_span_id: str = ""
    attributes: list[_Attribute] = []
    events: list[_Event] = []
    links: list[_Link] = []


class _ScopeSpans(msgspec.Struct):
    spans: list[_Span] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    scope_spans: list[_ScopeSpans] = []


class _Line(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


_decode = bounded.decoder(_Line, max_bytes=bounded.MAX_ANSWER)
_decode_answer = bounded.decoder(dict[str, Any], max_bytes=bounded.MAX_ANSWER)
_decode_list = bounded.decoder(list[Any])


def from_file(path: Path, gang: str) -> list[TraceView]:
    """Returns the gang's traces, oldest first, including those in the earlier file that reached its limit.

    Raises: ConfigError, naming the line, or the nearest gang.
    """
    if _is_pipe(path):
        raise ConfigError("is a pipe, and a file of traces is read twice: give a file", source=str(path))
    ids: set[str] = set()
    known: dict[str, None] = {}
    before = Path(f"{path}{BEFORE}")
    paths = [before, path] if os.path.isfile(before) else [path]
    for span in (span for one in paths for span in _spans(one)):
        for attribute in span.attributes:
            if attribute.key == names.GROUP:
                text = str(attribute.value.plain())
                if text == gang:
                    ids.add(span.trace_id)
                elif len(known) < MAX_NAMES:
                    known[text] = None
    if not ids:
        raise NoTrace(_no_such(gang, known), source=str(path))
    return _traces(_view(span, one) for one in paths for span in _spans(one) if span.trace_id in ids)


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:  # reported when it is read
        return False


def _spans(path: Path) -> Iterator[_Span]:
    try:
        with open(path, "rb") as lines:
            # At most one byte more than is decoded, so that a file without lines does not fill the memory.
            parts = iter(partial(lines.readline, bounded.MAX_ANSWER + 1), b"")
            for number, line in enumerate(parts, 1):
                if not line.strip():
                    continue
                if line.count(b",") > _MAX_VALUES:
                    problem = f"line {number} has more than {_MAX_VALUES} values, which no exporter writes"
                    raise ConfigError(problem, source=str(path))
                try:
                    decoded = _decode(line)
                except msgspec.MsgspecError as error:
                    raise ConfigError(
                        f"line {number} is not a line of OTLP JSON traces: {error}", source=str(path)
                    ) from None
                for resource in decoded.resource_spans:
                    for scope in resource.scope_spans:
                        yield from scope.spans
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from None


def _view(span: _Span, path: Path) -> SpanView:
    try:
        return SpanView(
            span.trace_id,
            span.span_id,
            span.parent_span_id,
            span.name,
            _ns(int(span.start_time_unix_nano)),
            _ns(int(span.end_time_unix_nano)),
            _plain(span.attributes),
            tuple((e.name, _ns(int(e.time_unix_nano)), _plain(e.attributes)) for e in span.events),
            tuple(k.trace_id for k in span.links if _plain(k.attributes).get(names.LINK) == "submitter"),
        )
    except ValueError as error:
        raise ConfigError(f"span {span.span_id[:16]!r}: {error}", source=str(path)) from None


def _plain(attributes: Iterable[_Attribute]) -> dict[str, Any]:
    return {attribute.key: attribute.value.plain() for attribute in attributes}


# -- Jaeger ------------------------------------------------------------------------------------------------


def from_jaeger(url: str, gang: str) -> list[TraceView]:
    """The gang's traces of the last week, oldest first. Raises: ConfigError, ApiError."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise ConfigError(f"{url!r} is not the URL of Jaeger, as http://localhost:16686 is", path="--jaeger")
    spans = _ask(url, {"tags": json.dumps({names.GROUP: gang})})
    if not spans:
        others = {
            str(span.attributes[names.GROUP]) for span in _ask(url, {}) if names.GROUP in span.attributes
        }
        raise NoTrace(_no_such(gang, others), source=url)
    return _traces(spans)


def _ask(url: str, more: dict[str, str]) -> list[SpanView]:
    """All spans of the requested traces."""
    now_s = time.time()
    query = {
        "service": names.SERVICE,
        "limit": str(_JAEGER_LIMIT),
        "start": str(int((now_s - _LOOK_BACK_S) * 1e6)),
        "end": str(int((now_s + 60) * 1e6)),
        **more,
    }
    full = f"{url.rstrip('/')}/api/traces?{urllib.parse.urlencode(query)}"
    try:
        body = _fetched(full)
        if body.count(b",") > _MAX_VALUES:
            raise ConfigError(f"answers more than {_MAX_VALUES} values; is it Jaeger?", source=url)
        found = _decode_answer(body)["data"]
        return [_jaeger_span(span) for trace in found for span in trace["spans"]]
    except urllib.error.HTTPError as error:
        raise ApiError(f"{url}: {error.reason}", code=error.code, reason="Jaeger") from None
    except (OSError, http.client.HTTPException) as error:
        raise ApiError(f"no Jaeger answers at {url}: {_plainly(error)}; in a cluster: {_FORWARD}") from None
    except (ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError):
        problem = "does not answer as Jaeger's query API does (its port is 16686 by default)"
        raise ConfigError(problem, source=url) from None


def _fetched(url: str) -> bytes:
    """Returns the answer, up to a limit. Raises: OSError, http.client.HTTPException, ValueError.

    Runs in a thread: urllib's timeout applies to each read, and an answer may arrive in small pieces.
    """
    done: list[bytes | BaseException] = []

    def fetch() -> None:
        try:
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
                done.append(answer.read(_MAX_ANSWER))
        except Exception as error:
            done.append(error)

    thread = threading.Thread(target=fetch, name="jaeger", daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    found = done[0] if done else TimeoutError("timed out")
    if isinstance(found, BaseException):
        raise found
    return found


def _plainly(error: OSError | http.client.HTTPException) -> str:
    inner = getattr(error, "reason", error)
    return clean(plain(inner) if isinstance(inner, OSError) else str(inner) or type(inner).__name__)


def _jaeger_span(span: dict[str, Any]) -> SpanView:
    references = span.get("references") or ()
    parents = [r["spanID"] for r in references if r["refType"] == "CHILD_OF"]
    start_ns = _ns(int(span["startTime"]) * 1000)
    logs = []
    for log in span.get("logs") or ():
        fields = _tags(log["fields"])
        logs.append((str(fields.pop("event", "")), _ns(int(log["timestamp"]) * 1000), fields))
    return SpanView(
        _text(span["traceID"]),
        _text(span["spanID"]),
        _text(parents[0]) if parents else "",
        _text(span["operationName"]),
        start_ns,
        _ns(start_ns + int(span["duration"]) * 1000),
        _tags(span.get("tags") or ()),
        tuple(logs),
        () if parents else tuple(_text(r["traceID"]) for r in references),
    )


def _tags(tags: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {tag["key"]: _decoded(tag["value"]) for tag in tags}


def _decoded(value: Any) -> Any:
    """Jaeger stores a list as JSON."""
    if isinstance(value, str) and value.startswith("["):
        try:
            return _decode_list(value)
        except msgspec.MsgspecError:
            return value
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


# -- both --------------------------------------------------------------------------------------------------


def _ns(at: int) -> int:
    """Checks a time since 1970 as OTLP writes it, in 64 bits. Raises: ValueError."""
    if not 0 <= at < 2**64:
        raise ValueError("its times are not in nanoseconds since 1970")
    return at


def _traces(spans: Iterable[SpanView]) -> list[TraceView]:
    by_id: dict[str, list[SpanView]] = {}
    for span in spans:
        by_id.setdefault(span.trace_id, []).append(span)
    for mine in by_id.values():
        mine.sort(key=lambda span: (span.start_ns, -span.end_ns))
    traces = [TraceView(trace_id, tuple(mine)) for trace_id, mine in by_id.items()]
    return sorted(traces, key=lambda trace: trace.start_ns)


def _no_such(gang: str, known: Iterable[str]) -> str:
    others = sorted(known)
    if not others:
        return f"no trace of gang {gang!r}, nor of any other"
    near = difflib.get_close_matches(gang, others, n=3, cutoff=0.5) or others[:3]
    return f"no trace of gang {gang!r}; there are traces of {', '.join(near)}" + (
        f" and {len(others) - len(near)} more" if len(others) > len(near) else ""
    )

"""Kubernetes' protobuf bodies, read only: kubectl's typed commands and other Go programs send them.

Lives here: `decoded`, bytes -> the same dict as from the object's JSON. Not here: writing protobuf; every
client that sends it accepts JSON answers. Called by bodies.py; the field numbers are read at the first such
request.

fields.json.gz contains, by message, `{number: [JSON name, type]}`, where a name of "" means that the
message's fields are its parent's (Go's inline), and a type is

    string bytes bool int double    and names of messages
    []T  {}T                        lists and maps by string
    T?                              a pointer in Go: zero is a value, while otherwise it means absent

It is made from the generated.proto files and Go types of the k8s.io/api and k8s.io/apimachinery modules:
`python -m tests.apiserver.protobuf.record` regenerates it.
Source of the envelope: k8s.io/apimachinery pkg/runtime/serializer/protobuf/doc.go.
"""

from __future__ import annotations

import base64
import gzip
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

import msgspec

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
_META = "apis.meta.v1."
_TIMES = (f"{_META}Time", f"{_META}MicroTime")
_LISTS = (f"{_META}Verbs", "ExtraValue")
_RAW = ("runtime.RawExtension", f"{_META}FieldsV1")
# Groups whose package is not the first part of their name.
_PACKAGES = {"": "core"}
# One varint, of at most ten bytes, holds 64 bits.
_MAX_VARINT = 10

Fields = dict[str, list[str]]


class BadProtobuf(Exception):
    """The bytes are not a protobuf object; the message says why."""


@cache
def _messages() -> dict[str, Fields]:
    packed = resources.files(__package__).joinpath("fields.json.gz").read_bytes()
    found: dict[str, Fields] = msgspec.json.decode(gzip.decompress(packed))["messages"]
    return found


def decoded(body: bytes) -> dict[str, Any]:
    """The object in a protobuf body, with its kind and apiVersion. Raises: BadProtobuf."""
    if not body.startswith(MAGIC):
        raise BadProtobuf(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        return _unwrapped(body[len(MAGIC) :])
    except (IndexError, struct.error, UnicodeDecodeError):
        raise BadProtobuf("proto: unexpected EOF") from None


def _unwrapped(data: bytes) -> dict[str, Any]:
    kind = api_version = ""
    raw = b""
    for number, value in _parts(data):
        if number == 1 and isinstance(value, bytes):
            named = {inner: text for inner, text in _parts(value) if isinstance(text, bytes)}
            api_version, kind = named.get(1, b"").decode(), named.get(2, b"").decode()
        elif number == 2 and isinstance(value, bytes):
            raw = value
    message = message_of(api_version, kind)
    if message not in _messages():
        raise BadProtobuf(f'no kind "{kind}" is registered for version "{api_version}"')
    return {"kind": kind, "apiVersion": api_version} | _message(message, raw)


def message_of(api_version: str, kind: str) -> str:
    """The message that describes a kind, as fields.json.gz names it."""
    if kind == "DeleteOptions":
        return f"{_META}{kind}"
    group, slash, version = api_version.rpartition("/")
    package = group.partition(".")[0] if slash else ""
    return f"{_PACKAGES.get(package, package)}.{version}.{kind}"


def _parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """A message's fields in wire form: their numbers with a varint or with bytes."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise BadProtobuf(f"proto: illegal wireType {wire}")
        if at + size > end:
            raise BadProtobuf("proto: unexpected EOF")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(_MAX_VARINT):
        byte = data[at + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, at + i + 1
    raise BadProtobuf("proto: integer overflow")


def _message(name: str, data: bytes) -> dict[str, Any]:
    fields = _messages()[name]
    found: dict[str, Any] = {}
    for number, value in _parts(data):
        known = fields.get(str(number))
        if known is None:
            continue
        json_name, type_ = known
        if type_.startswith("[]"):
            held = found.setdefault(json_name, [])
            held.append(_value(type_[2:], value))
        elif type_.startswith("{}"):
            key, member = _entry(type_[2:], value)
            found.setdefault(json_name, {})[key] = member
        else:
            keeps_zero = type_.endswith("?")
            read = _value(type_.removesuffix("?"), value)
            if not json_name:
                found |= read
            elif read is not None and (keeps_zero or read not in ("", 0, {})):
                found[json_name] = read
    return found


def _entry(type_: str, value: int | bytes) -> tuple[str, Any]:
    parts = dict(_parts(_bytes(value)))
    key = _bytes(parts.get(1, b"")).decode()
    default: int | bytes = 0 if type_ in ("int", "bool") else b""
    return key, _value(type_, parts.get(2, default))


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise BadProtobuf("proto: wrong wireType for a message")
    return value


def _value(type_: str, value: int | bytes) -> Any:
    match type_:
        case "int":
            number = int(value) if isinstance(value, int) else int.from_bytes(value, "little")
            return number - 2**64 if number >= 2**63 else number
        case "bool":
            return bool(value)
        case "double":
            return struct.unpack("<d", _bytes(value))[0]
        case "string":
            return _bytes(value).decode()
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
    data = _bytes(value)
    if type_ in _TIMES:
        return _time(data, micro=type_.endswith("MicroTime"))
    if type_ in _RAW:
        raw = next((_bytes(part) for number, part in _parts(data) if number == 1), b"")
        return msgspec.json.decode(raw) if raw else None
    if type_ == "api.resource.Quantity":
        return next((_bytes(part).decode() for number, part in _parts(data) if number == 1), "0")
    if type_ == "util.intstr.IntOrString":
        parts = dict(_parts(data))
        return _bytes(parts.get(3, b"")).decode() if parts.get(1) else _value("int", parts.get(2, 0))
    if type_.endswith(_LISTS):
        return [_bytes(part).decode() for number, part in _parts(data) if number == 1]
    return _message(type_, data)


def _time(data: bytes, *, micro: bool) -> str | None:
    if not data:
        return None
    parts = {number: _value("int", part) for number, part in _parts(data)}
    moment = datetime.fromtimestamp(parts.get(1, 0), UTC)
    if micro:
        return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{parts.get(2, 0) // 1000:06d}Z"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

"""The string formats that the server checks in custom objects; it accepts any other format unchecked.

Called by custom.py and definitions.py. Source: k8s.io/apiextensions-apiserver
pkg/apiserver/validation/formats.go.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime
from uuid import UUID

_DURATION = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+|0")
_HOST = re.compile(
    r"([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*"
)


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _date_time(text: str) -> datetime:
    if not re.match(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z", text):
        raise ValueError(text)
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper()))


def _date(text: str) -> date:
    return datetime.strptime(text, "%Y-%m-%d").date()


_CHECKS: dict[str, Callable[[str], bool]] = {
    "date-time": _parses(_date_time),
    "date": _parses(_date),
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "uuid": _parses(UUID),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(lambda text: ipaddress.ip_network(text, strict=False)),
    "byte": _parses(lambda text: base64.b64decode(text, validate=True)),
    "hostname": lambda text: len(text) <= 253 and _HOST.fullmatch(text) is not None,
    "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None,
    "uri": lambda text: re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|/", text) is not None,
}
KNOWN = frozenset(_CHECKS) | {
    "int32", "int64", "float", "double", "password", "mac", "uuid3", "uuid4", "uuid5", "bsonobjectid",
    "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "datetime", "int-or-string",
    "k8s-short-name", "k8s-long-name",
}  # fmt: skip


def is_format(name: str, text: str) -> bool:
    check = _CHECKS.get(name)
    return check is None or check(text)

"""URLs, and the named formats that texts are checked against.

What parses is as in Go's net/url of 1.26. Source: k8s.io/apiserver v0.37.1 `pkg/cel/library/urls.go` and
`format.go`, k8s.io/apimachinery v0.37.1 `pkg/api/validation`, k8s.io/kube-openapi `pkg/validation/strfmt`.
The messages of a text that does not fit are our own, one for each text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

from gangsched.model.cel.library.functions import overloads, reads_as
from gangsched.model.cel.values import NONE, Fault, Optional, define, same_type_only
from gangsched.model.text.names import is_label_value, is_qualified_name, is_subdomain


class URL(NamedTuple):
    """A URL in its parts, escapes in the path as they were written; `query` is None where there is no `?`."""

    scheme: str = ""
    user: str = ""
    host: str = ""
    path: str = ""
    opaque: str = ""
    query: str | None = None
    fragment: str = ""


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT = re.compile(r"(?::[0-9]*)?", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", re.ASCII)
# A host escapes bytes beyond ASCII and the percent sign only, the zone of an address also spaces.
_HOST_CHAR = r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"\x80-\U0010ffff]|%25|%[89A-Fa-f][0-9A-Fa-f]"
_HOST = re.compile(rf"(?:{_HOST_CHAR})*")
_ZONE = re.compile(rf"(?:{_HOST_CHAR}|%20)+")
# A path that stays as it was written; any other is escaped anew.
_PATH = re.compile(r"(?:[A-Za-z0-9\-_.~$&+/:=@!'()*,;\[\]]|%[0-9A-Fa-f]{2})*", re.ASCII)
_SAFE_IN_PATH = "$&+,/:;=@~"


def _wrong(text: str, why: str) -> Fault:
    return Fault(f"{text[:60]!r} is not a URL: {why}")


def _read_url(text: str) -> URL:
    # Kubernetes reads it twice: as what a server is asked for, which has no fragment, then as any URL.
    _parse(text, is_request=True)
    rest, _, fragment = text.partition("#")
    if _BAD_ESCAPE.search(fragment):
        raise _wrong(text, "an escape is not of two digits")
    return _parse(rest, is_request=False)._replace(fragment=unquote(fragment))


def _parse(text: str, *, is_request: bool) -> URL:
    if _CONTROL.search(text) or (is_request and not text):
        raise _wrong(text, "it is empty or has control characters")
    if text == "*":
        return URL(path=text)
    found = _SCHEME.match(text)
    scheme, rest = (found[1].lower(), text[found.end() :]) if found else ("", text)
    if not found and text.startswith(":"):
        raise _wrong(text, "its scheme is missing")
    rest, mark, query = rest.partition("?")
    url = URL(scheme, query=query if mark else None)
    if not rest.startswith("/"):
        if scheme:
            return url._replace(opaque=rest)
        if is_request or ":" in rest.partition("/")[0]:
            raise _wrong(text, "it has neither a scheme nor a path from the root")
    if rest.startswith("//") and (scheme or not (is_request or rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        user, at, host = authority.rpartition("@")
        if at and (not _USER.fullmatch(user) or _BAD_ESCAPE.search(user)):
            raise _wrong(text, "its user has characters that must be escaped")
        rest = slash + path
        url = url._replace(user=unquote(user) + at, host=_host(text, scheme, host))
    if _BAD_ESCAPE.search(rest):
        raise _wrong(text, "an escape is not of two digits")
    path = rest if _PATH.fullmatch(rest) else quote(unquote_to_bytes(rest), safe=_SAFE_IN_PATH)
    return url._replace(path=path)


def _host(text: str, scheme: str, host: str) -> str:
    if "[" in host:
        name, bracket, port = host[1:].rpartition("]")
        address, percent, zone = name.partition("%25")
        if (
            host.rfind("[") > 0
            or not bracket
            or not _PORT.fullmatch(port)
            or (percent and not _ZONE.fullmatch(zone))
            or not _is_version_6(address)
        ):
            raise _wrong(text, f"{host[:40]!r} is not an address of version 6 in brackets")
        return f"[{address}{'%' if percent else ''}{unquote(zone)}]{port}"
    # Databases take several hosts with ports; for the web's schemes a second colon is wrong.
    colon = host.find(":") if scheme in ("http", "https") else host.rfind(":")
    if not _HOST.fullmatch(host) or (colon >= 0 and not _PORT.fullmatch(host, colon)):
        raise _wrong(text, f"{host[:40]!r} is not a host with or without a port")
    return unquote(host)


def _is_version_6(text: str) -> bool:
    try:
        return "%" not in text and isinstance(ip_address(text), IPv6Address)
    except ValueError:
        return False


def _hostname_and_port(url: URL) -> tuple[str, str]:
    name, colon, port = url.host.rpartition(":")
    if not colon or not _PORT.fullmatch(f":{port}"):
        name, port = url.host, ""
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name, port


def _query(url: URL) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in (url.query or "").split("&"):
        # As Go does: what does not parse is left out.
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            key, _, value = pair.replace("+", " ").partition("=")
            found.setdefault(unquote(key), []).append(unquote(value))
    return found


define(URL, "kubernetes.URL", same_type_only(lambda one, other: one == other))
overloads("url", {(str,): _read_url})
overloads("isURL", {(str,): reads_as(lambda text: _parse(text, is_request=True))})
overloads("getScheme", {(URL,): lambda url: url.scheme})
overloads("getHost", {(URL,): lambda url: url.host})
overloads("getHostname", {(URL,): lambda url: _hostname_and_port(url)[0]})
overloads("getPort", {(URL,): lambda url: _hostname_and_port(url)[1]})
overloads("getEscapedPath", {(URL,): lambda url: url.path})
overloads("getQuery", {(URL,): _query})


class Format(NamedTuple):
    """A format that has a name."""

    name: str


_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", re.ASCII)
_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME = re.compile(
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)
_MAX_LABEL = 63


def _is_label(text: str) -> bool:
    return len(text) <= _MAX_LABEL and _LABEL.fullmatch(text) is not None


def _is_label_1035(text: str) -> bool:
    return len(text) <= _MAX_LABEL and _NAME_1035.fullmatch(text) is not None


def _as_prefix(is_name: Callable[[str], bool]) -> Callable[[str], bool]:
    """Returns whether a text begins a name; a dash at its end stands for what follows."""
    return lambda text: is_name(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _is_date(text: str) -> bool:
    try:
        # Go has a year 0, a leap year.
        return _DATE.fullmatch(text) is not None and bool(
            date.fromisoformat(text.replace("0000-", "0004-", 1))
        )
    except ValueError:
        return False


def _is_date_time(text: str) -> bool:
    day, _, rest = text.lower().partition("t")
    return _is_date(day) and _TIME.fullmatch(rest.split("t")[0]) is not None


_FORMATS: dict[str, Callable[[str], bool]] = {
    "dns1123Label": _is_label,
    "dns1123LabelPrefix": _as_prefix(_is_label),
    "dns1123Subdomain": is_subdomain,
    "dns1123SubdomainPrefix": _as_prefix(is_subdomain),
    "dns1035Label": _is_label_1035,
    "dns1035LabelPrefix": _as_prefix(_is_label_1035),
    "qualifiedName": is_qualified_name,
    "labelValue": is_label_value,
    "uri": reads_as(lambda text: _parse(text, is_request=True)),
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
    "byte": lambda text: _BASE64.fullmatch(text) is not None,
    "date": _is_date,
    "datetime": _is_date_time,
}


def _validate(form: Format, text: str) -> Optional:
    return NONE if _FORMATS[form.name](text) else Optional([f"{text[:60]!r} is not a {form.name}"])


define(Format, "kubernetes.NamedFormat", same_type_only(lambda one, other: one == other), is_key=False)
overloads("format.named", {(str,): lambda name: Optional(Format(name)) if name in _FORMATS else NONE})
overloads("validate", {(Format, str): _validate})
for _name in _FORMATS:
    overloads(f"format.{_name}", {(): lambda name=_name: Format(name)})

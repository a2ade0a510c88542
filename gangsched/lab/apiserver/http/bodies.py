"""Bodies of requests: JSON, YAML or protobuf, of the kind that the path requires; others are rejected in the
real server's words.

Lives here: bytes -> a dict whose kind and apiVersion are right. Not here: fields (schema/), patches
(patching/). Called by handlers.py. Source: k8s.io/apiserver pkg/endpoints/handlers/{create,update,rest}.go.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gangsched.api_rules.status import StatusError, bad_request, invalid_value, quoted
from gangsched.errors import ConfigError
from gangsched.lab.apiserver import protobuf
from gangsched.lab.apiserver.http.negotiation import JSON, YAML
from gangsched.lab.apiserver.protobuf import PROTOBUF
from gangsched.lab.apiserver.status import invalid, unsupported_media_type

MAX_BODY_BYTES = 3 * 2**20
# A CRD, the longest YAML that people send, has a tenth of this; each value blocks the loop for 20 us.
_MAX_YAML_VALUES = 200_000
_SUMMARY_BYTES = 30
_ACCEPTED = (JSON, YAML, PROTOBUF)
_decode = msgspec.json.Decoder().decode


class Expected(NamedTuple):
    """The kind that a body must have, in any version if `api_version` is ""; `custom`: a CRD defines it.

    Custom kinds, and those with `names_itself`, must state their kind; others may leave it out.
    """

    kind: str
    api_version: str
    custom: bool = False
    names_itself: bool = False

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def package(self) -> str:
        """The Go package of the server's internal type."""
        group, slash, _ = self.api_version.partition("/")
        return group.partition(".")[0] if slash else "core"


def decoded(body: bytes, content_type: str, expected: Expected) -> dict[str, Any]:
    """Raises: StatusError (400, 415)."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in ("", JSON):
        obj = _from_json(body, expected)
    elif kind == YAML:
        obj = _from_yaml(body, expected)
    elif kind == PROTOBUF:
        obj = _from_protobuf(body, expected)
    else:
        raise unsupported_media_type(_ACCEPTED)
    _check_type(obj, body, expected)
    return obj


def _from_json(body: bytes, expected: Expected) -> dict[str, Any]:
    try:
        obj = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unrecognized(
            f"couldn't get version/kind; json parse error: {_in_go_words(body, error)}", body, expected
        ) from None
    if not isinstance(obj, dict):
        what = {list: "array", str: "string", bool: "bool", type(None): "null"}.get(type(obj), "number")
        raise _unrecognized(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of "
            'type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
            'Kind string "json:\\"kind,omitempty\\"" }',
            body,
            expected,
        )
    return obj


def _from_yaml(body: bytes, expected: Expected) -> dict[str, Any]:
    import yaml

    from gangsched.reading.yaml_bounds import check_yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        check_yaml(body, max_values=_MAX_YAML_VALUES)
        # Through JSON: timestamps and the like are strings there, as in the real server.
        obj = msgspec.json.decode(msgspec.json.encode(yaml.load(body, Loader=loader)))
    except (yaml.YAMLError, ConfigError, ValueError, TypeError, OverflowError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise _unrecognized(f"couldn't get version/kind; json parse error: {text}", body, expected) from None
    if not isinstance(obj, dict):
        raise _unrecognized("couldn't get version/kind; json parse error: not an object", body, expected)
    return obj


def _from_protobuf(body: bytes, expected: Expected) -> dict[str, Any]:
    try:
        return protobuf.decoded(body)
    except protobuf.BadProtobuf as error:
        raise _unrecognized(str(error), body, expected) from None


def _in_go_words(body: bytes, error: Exception) -> str:
    """encoding/json's words for the commonest mistakes."""
    text = body.decode("utf-8", "replace").strip()
    if not text or "truncated" in str(error):
        return "unexpected end of JSON input"
    if text[0] not in '{["-0123456789tfn':
        return f"invalid character '{text[0]}' looking for beginning of value"
    return str(error)


def _check_type(obj: dict[str, Any], body: bytes, expected: Expected) -> None:
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    if kind == expected.kind and api_version == expected.api_version:
        return
    for key, value in (("kind", kind), ("apiVersion", api_version)):
        if value is not None and not isinstance(value, str):
            raise _unrecognized(
                f"couldn't get version/kind; json parse error: {key} is not a string", body, expected
            )
    if (expected.custom or expected.names_itself) and not kind:
        shown = body.decode("utf-8", "replace").strip()
        raise _unrecognized(f"Object 'Kind' is missing in '{shown}'", body, expected)
    if kind and kind != expected.kind:
        if expected.custom:
            raise _not_of_kind(kind, obj, expected)
        version = (api_version or expected.api_version).rpartition("/")[2]
        raise bad_request(
            f"{kind} in version {quoted(version)} cannot be handled as a {expected.kind}: "
            f"converting ({version}.{kind}) to ({expected.package}.{expected.kind}): unknown conversion"
        )
    if expected.api_version and api_version and api_version != expected.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({expected.api_version})"
        )
    obj["kind"], obj["apiVersion"] = expected.kind, expected.api_version


def _not_of_kind(kind: str, obj: dict[str, Any], expected: Expected) -> StatusError:
    """Words the error like the handler of custom resources."""
    meta = obj.get("metadata")
    name = str(meta.get("name") or "") if isinstance(meta, dict) else ""
    problem = invalid_value("kind", kind, f"must be {expected.kind}")
    return invalid(kind, name, [problem], group=expected.api_version.rpartition("/")[0])


def _unrecognized(why: str, body: bytes, expected: Expected) -> StatusError:
    return bad_request(
        f"the object provided is unrecognized (must be of type {expected.kind}): {why} ({_summary(body)})"
    )


def _summary(body: bytes) -> str:
    if not body:
        return "<empty>"
    cut = body[:_SUMMARY_BYTES]
    shown = cut.decode("utf-8", "replace") if body[:1] == b"{" else cut.hex()
    return f"{shown} ..." if len(body) > _SUMMARY_BYTES else shown

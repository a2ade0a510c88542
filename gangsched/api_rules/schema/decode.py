"""Decodes objects as the server does: checks types, finds and drops unknown fields, makes values canonical.

Lives here: what Kubernetes' JSON decoder does for built-in kinds, in its words, and pruning for custom ones.
Not here: reading bytes, validation of values. Called by whatif, and by the bodies and patches of the embedded
API server (lab.apiserver). Source: sigs.k8s.io/json (Go's encoding/json with case-sensitive names), whose
first error in document order is reported.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.schema.quantities import BadText, canonical_quantity, canonical_time

# Go's value for a null in a list or map.
_ZERO: dict[str, Any] = {"string": "", "struct": {}, "integer": 0, "quantity": "0"}
_INT_LIMITS = {"int32": 2**31, "int64": 2**63}
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"


class DecodeFailed(Exception):
    """A value has the wrong type for its field; the message is the decoder's.

    `schema` and `value` are set if a strategic merge patch has another message.
    """

    def __init__(self, message: str, schema: Schema | None = None, value: Any = None) -> None:
        self.schema = schema
        self.value = value
        super().__init__(message)


class Decoded(NamedTuple):
    """`obj` is new and has only fields of the schema; `unknown`: the paths of other fields."""

    obj: dict[str, Any]
    unknown: list[str]


def decode(schema: Schema, obj: dict[str, Any]) -> Decoded:
    """Decodes a whole object of a built-in or custom kind. Raises: DecodeFailed.

    Drops null fields, and empty lists and maps unless the schema requires the field: this is the form in
    which it is stored and sent. A custom object's own fields are only pruned: validate_custom checks their
    types.
    """
    decoder = _Decoder()
    found = decoder.struct(schema, obj, "", ())
    return Decoded(found, decoder.unknown)


class _Decoder:
    """`path`: the place, for people; `go`: the Go decoder's context: struct, then names to the field."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def struct(self, schema: Schema, value: dict[str, Any], path: str, go: tuple[str, ...]) -> dict[str, Any]:
        owner = schema.name.rpartition(".")[2]
        properties = schema.properties
        found = {}
        for key, inner in value.items():
            place = f"{path}.{key}" if path else key
            known = properties.get(key)
            if known is None:
                if schema.custom and "additionalProperties" in schema.spec:
                    known = schema.element
                elif schema.preserves_unknown:
                    found[key] = inner
                    continue
                else:
                    self.unknown.append(place)
                    continue
            if inner is None and not (schema.custom and known.custom):
                continue
            names = schema.go.get(key)
            field = (names[1], *go[1:], names[2]) if names else (owner, *go[1:], key)
            if schema.custom and not known.custom:
                # The server decodes a custom object's metadata separately.
                field = ()
            inner = self.value(known, inner, place, field)
            if inner in ({}, []) and _is_omitted(schema, known, key):
                continue
            found[key] = inner
        return found

    def value(self, schema: Schema, value: Any, path: str, go: tuple[str, ...]) -> Any:
        if schema.custom:
            return self._custom(schema, value, path)
        match schema.kind:
            case "any":
                return value
            case "struct" if isinstance(value, dict):
                return self.struct(schema, value, path, go)
            case "map" if isinstance(value, dict):
                element = schema.element
                return {key: self._member(element, each, f"{path}.{key}", go) for key, each in value.items()}
            case "list" if isinstance(value, list):
                element = schema.element
                return [
                    self._member(element, each, f"{path}[{position}]", go)
                    for position, each in enumerate(value)
                ]
        return _scalar(schema, value, go)

    def _member(self, schema: Schema, value: Any, path: str, go: tuple[str, ...]) -> Any:
        if value is None:
            return _ZERO.get(schema.kind)
        return self.value(schema, value, path, go)

    def _custom(self, schema: Schema, value: Any, path: str) -> Any:
        """Prunes structurally: only objects lose fields; validation handles values of another type."""
        if schema.spec.get("x-kubernetes-embedded-resource") and isinstance(value, dict):
            head = {key: value[key] for key in ("apiVersion", "kind", "metadata") if key in value}
            return head | self.struct(schema, {k: v for k, v in value.items() if k not in head}, path, ())
        if isinstance(value, dict) and schema.kind in ("struct", "map"):
            return self.struct(schema, value, path, ())
        if isinstance(value, list) and schema.kind == "list":
            element = schema.element
            return [self._custom(element, each, f"{path}[{position}]") for position, each in enumerate(value)]
        return value


def _is_omitted(schema: Schema, field: Schema, key: str) -> bool:
    """Whether Go's omitempty leaves it out: empty lists and maps, not structs."""
    if schema.custom or field.custom or field.kind not in ("list", "map"):
        return False
    return key not in schema.required


def _scalar(schema: Schema, value: Any, go: tuple[str, ...]) -> Any:
    try:
        match schema.kind:
            case "quantity":
                return canonical_quantity(_quantity_text(value))
            case "string" if isinstance(value, str):
                return value
            case "bytes" if isinstance(value, str):
                return _base64(value)
            case "time" if isinstance(value, str):
                return canonical_time(value, micro=schema.name == _MICRO_TIME)
            case "boolean" if isinstance(value, bool):
                return value
            case "number" if _is_number(value):
                return value
            case "integer" if _is_number(value) and _fits(value, str(schema.spec.get("format", "int64"))):
                return value
            case "int-or-string" if isinstance(value, str) or (_is_number(value) and _fits(value, "int32")):
                return value
    except BadText as bad:
        raise DecodeFailed(str(bad)) from None
    what = _json_type(value)
    if _is_number(value) and schema.kind in ("integer", "int-or-string"):
        what = f"number {value!r}"
    raise DecodeFailed(
        f"json: cannot unmarshal {what} into Go struct field {'.'.join(go)} of type {schema.go_type}",
        schema,
        value,
    )


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    for python, name in ((dict, "object"), (list, "array"), (str, "string")):
        if isinstance(value, python):
            return name
    return "number"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits(value: float, format: str) -> bool:
    limit = _INT_LIMITS.get(format, 2**63)
    return isinstance(value, int) and -limit <= value < limit


def _quantity_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return repr(value) if _is_number(value) else ""


def _base64(text: str) -> str:
    plain = text.replace("\r", "").replace("\n", "")
    body = re.match(r"[A-Za-z0-9+/]*", plain)
    end = body.end() if body else 0
    rest = plain[end:]
    if rest.strip("=") or len(rest) > 2 or (rest and len(plain) % 4):
        raise BadText(f"illegal base64 data at input byte {end}")
    if len(plain) % 4:
        raise BadText(f"illegal base64 data at input byte {len(plain) // 4 * 4}")
    return plain

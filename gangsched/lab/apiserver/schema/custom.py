"""Custom objects: validation against their CRD's schema, and its defaults.

Lives here: the real server's errors for a value that the schema does not allow. Rules in CEL
(x-kubernetes-validations) are accepted but not evaluated. Not here: pruning (decode.py), validation of the
CRD itself (definitions.py). Called by the strategy of custom resources. Source of wording:
k8s.io/kube-openapi pkg/validation, k8s.io/apiextensions-apiserver pkg/apiserver/schema/{defaulting,listtype}.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

from gangsched.api_rules.schema.catalog import CustomRoot
from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import FieldProblem, field_problem, required
from gangsched.lab.apiserver.schema.formats import is_format

_HEAD = ("apiVersion", "kind", "metadata")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}
_GO_FORMATS = {int: "int64", float: "float64"}
_INT_LIMITS = {"int32": 2**31, "int64": 2**63}


def validate_custom(schema: Schema, obj: dict[str, Any]) -> list[FieldProblem]:
    """Returns problems of an object by its CRD's schema; the registry checks metadata."""
    own = {key: value for key, value in obj.items() if key not in _HEAD}
    found = list(_problems(schema, own, ""))
    if isinstance(schema, CustomRoot) and schema.declared_metadata:
        found += _problems(Schema(schema.declared_metadata, custom=True), obj.get("metadata", {}), "metadata")
    return found + list(_repeated(schema, own, ""))


def fill_defaults(schema: Schema, obj: dict[str, Any]) -> None:
    """Add the schema's defaults in place, and remove nulls of fields that may not be null."""
    for key, field in schema.properties.items():
        if not field.custom or (isinstance(schema, CustomRoot) and key in _HEAD):
            continue
        if key in obj and obj[key] is None and not field.spec.get("nullable"):
            del obj[key]
        if key not in obj and "default" in field.spec:
            obj[key] = copy.deepcopy(field.default)
    for key, value in obj.items():
        known = schema.properties.get(key)
        if known is None and isinstance(schema.spec.get("additionalProperties"), dict):
            known = Schema(schema.spec["additionalProperties"], custom=True)
        if known is not None and known.custom:
            _fill(known, value)


def _fill(schema: Schema, value: Any) -> None:
    if isinstance(value, dict):
        fill_defaults(schema, value)
    elif isinstance(value, list) and schema.kind == "list":
        for each in value:
            _fill(schema.element, each)


def _problems(schema: Schema, value: Any, path: str) -> Iterator[FieldProblem]:
    spec = schema.spec
    if value is None and spec.get("nullable"):
        return
    yield from _type_problems(spec, value, path)
    if value is None:
        return
    yield from _junctions(spec, value, path)
    if isinstance(value, str):
        yield from _string_problems(spec, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_problems(spec, value, path)
    elif isinstance(value, list):
        yield from _list_problems(schema, value, path)
    if "enum" in spec and not any(_same(value, each) for each in spec["enum"]):
        supported = ", ".join(_quoted(each) for each in spec["enum"])
        yield field_problem("Unsupported value", path, f"supported values: {supported}", value)
    if isinstance(value, dict):
        yield from _object_problems(schema, value, path)


def _type_problems(spec: dict[str, Any], value: Any, path: str) -> Iterator[FieldProblem]:
    allowed = [spec["type"]] if spec.get("type") else []
    if spec.get("x-kubernetes-int-or-string"):
        allowed = ["integer", "string"]
    if not allowed:
        return
    found = "null" if value is None else _TYPES[type(value)]
    whole = isinstance(value, float) and value.is_integer()
    if found in allowed or (whole and "integer" in allowed) or (found == "integer" and "number" in allowed):
        return
    format = spec.get("format")
    if format and not isinstance(value, str | list | None):
        yield _wrong_type(path, format, _GO_FORMATS.get(type(value), ""))
    else:
        yield _wrong_type(path, ",".join(allowed), found)


def _wrong_type(path: str, wanted: str, found: str) -> FieldProblem:
    shown = json.dumps(found)
    return FieldProblem(
        path,
        "FieldValueTypeInvalid",
        f"Invalid value: {shown}: {path} in body must be of type {wanted}: {shown}",
    )


def _without_field(message: str) -> FieldProblem:
    """Returns a problem without a field, for which the server prints Go's nil."""
    return FieldProblem("<nil>", "FieldValueInvalid", f'Invalid value: "": {message}')


def _invalid(path: str, value: Any, detail: str) -> FieldProblem:
    return field_problem("Invalid value", path, f"{path} in body {detail}", value)


def _junctions(spec: dict[str, Any], value: Any, path: str) -> Iterator[FieldProblem]:
    for each in spec.get("allOf") or ():
        yield from _problems(Schema(each, custom=True), value, path)
    shown = f'"{path}"'
    choices = spec.get("anyOf") or ()
    if choices:
        outcomes = [list(_problems(Schema(each, custom=True), value, path)) for each in choices]
        if all(outcomes):
            yield _without_field(f"{shown} must validate at least one schema (anyOf)")
            yield from outcomes[0]
    choices = spec.get("oneOf") or ()
    if choices:
        outcomes = [list(_problems(Schema(each, custom=True), value, path)) for each in choices]
        n_valid = sum(not each for each in outcomes)
        text = f"{shown} must validate one and only one schema (oneOf). Found "
        if n_valid == 0:
            yield _without_field(f"{text}none valid")
            yield from outcomes[0]
        elif n_valid > 1:
            yield _without_field(f"{text}{n_valid} valid alternatives")
    if spec.get("not") and not list(_problems(Schema(spec["not"], custom=True), value, path)):
        yield _without_field(f"{shown} must not validate the schema (not)")


def _string_problems(spec: dict[str, Any], value: str, path: str) -> Iterator[FieldProblem]:
    longest, shortest = spec.get("maxLength"), spec.get("minLength")
    if longest is not None and len(value) > longest:
        yield field_problem("Too long", path, f"may not be more than {longest} bytes")
    if shortest is not None and len(value) < shortest:
        yield _invalid(path, value, f"should be at least {shortest} chars long")
    pattern = spec.get("pattern")
    if pattern and not re.search(python_pattern(pattern), value):
        yield _invalid(path, value, f"should match '{pattern}'")
    format = spec.get("format")
    if format and spec.get("type") == "string" and not is_format(format, value):
        yield _wrong_type(path, format, value)


def python_pattern(pattern: str) -> str:
    """Converts Go's `$` and `\\z`, which mean the very end, to Python's `\\Z`."""
    return re.sub(r"(?<!\\)\$$", r"\\Z", pattern).replace(r"\z", r"\Z")


def _number_problems(spec: dict[str, Any], value: float, path: str) -> Iterator[FieldProblem]:
    if spec.get("type") == "integer":
        format = spec.get("format")
        limit = _INT_LIMITS.get(format or "", 2**63)
        if value != int(value) or not -limit <= value < limit:
            text = f"with format {format}" if format else "(default format)"
            yield _without_field(f"Checked value must be of type integer {text} in {path}")
    factor = spec.get("multipleOf")
    if factor and (value / factor) != int(value / factor):
        yield _invalid(path, value, f"should be a multiple of {_number(factor)}")
    most, least = spec.get("maximum"), spec.get("minimum")
    if most is not None and (value >= most if spec.get("exclusiveMaximum") else value > most):
        than = "less than" if spec.get("exclusiveMaximum") else "less than or equal to"
        yield _invalid(path, value, f"should be {than} {_number(most)}")
    if least is not None and (value <= least if spec.get("exclusiveMinimum") else value < least):
        than = "greater than" if spec.get("exclusiveMinimum") else "greater than or equal to"
        yield _invalid(path, value, f"should be {than} {_number(least)}")


def _list_problems(schema: Schema, value: list[Any], path: str) -> Iterator[FieldProblem]:
    if isinstance(schema.spec.get("items"), dict):
        element = Schema(schema.spec["items"], custom=True)
        for position, each in enumerate(value):
            yield from _problems(element, each, f"{path}[{position}]")
    least, most = schema.spec.get("minItems"), schema.spec.get("maxItems")
    if least is not None and len(value) < least:
        yield _invalid(path, len(value), f"should have at least {least} items")
    if most is not None and len(value) > most:
        yield field_problem("Too many", path, f"must have at most {most} items", len(value))


def _object_problems(schema: Schema, value: dict[str, Any], path: str) -> Iterator[FieldProblem]:
    spec = schema.spec
    least, most = spec.get("minProperties"), spec.get("maxProperties")
    if least is not None and len(value) < least:
        yield _invalid(path, len(value), f"should have at least {least} properties")
        return
    if most is not None and len(value) > most:
        yield field_problem("Too many", path, f"must have at most {most} items", len(value))
        return
    others = spec.get("additionalProperties")
    for key, each in value.items():
        known = schema.properties.get(key)
        if known is None and isinstance(others, dict):
            known = Schema(others, custom=True)
        if known is not None and known.custom:
            yield from _problems(known, each, _below(path, key))
    for key in spec.get("required") or ():
        if key not in value and not (isinstance(schema, CustomRoot) and key in _HEAD):
            yield required(_below(path, key))


def _repeated(schema: Schema, value: Any, path: str) -> Iterator[FieldProblem]:
    """Duplicate items of sets and maps."""
    if isinstance(value, dict):
        for key, each in value.items():
            known = schema.properties.get(key)
            if known is not None:
                yield from _repeated(known, each, _below(path, key))
    if not isinstance(value, list) or schema.kind != "list":
        return
    keys = schema.list_keys if schema.list_type == "map" else None
    seen: list[Any] = []
    for position, each in enumerate(value):
        if schema.list_type == "atomic":
            break
        if keys is not None and not isinstance(each, dict):
            continue
        mark = each if keys is None else {key: each[key] for key in keys if key in each}
        if mark in seen:
            yield field_problem("Duplicate value", f"{path}[{position}]", "", mark)
        seen.append(mark)
    for position, each in enumerate(value):
        yield from _repeated(schema.element, each, f"{path}[{position}]")


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _quoted(value: Any) -> str:
    return json.dumps(value if isinstance(value, str) else json.dumps(value))


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)

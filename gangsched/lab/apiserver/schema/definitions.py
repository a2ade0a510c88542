"""Validation of a CustomResourceDefinition's schema.

Lives here: the rules of schemas on which validation, pruning and apply rely. Nowhere: the other rules of
structural schemas, and whether defaults are valid; a definition is written once and tried on a real server.
Not here: the rest of a CRD, which its strategy checks, and custom objects (custom.py). Called by the CRDs'
strategy. Source of wording: k8s.io/apiextensions-apiserver pkg/apis/apiextensions/validation/validation.go
and pkg/apiserver/schema/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gangsched.api_rules.status import FieldProblem, forbidden_field, invalid_value, not_supported, required
from gangsched.lab.apiserver.schema.custom import python_pattern
from gangsched.lab.apiserver.schema.formats import KNOWN

Spec = dict[str, Any]
TYPES = ("array", "boolean", "integer", "number", "object", "string")
_FORBIDDEN = ("$ref", "definitions", "dependencies", "patternProperties", "additionalItems")


def schema_problems(versions: list[Spec]) -> list[FieldProblem]:
    """Returns problems of a CRD's `spec.versions`; paths are as the server prints them: with one version, the
    schema is at `spec.validation`.
    """
    found: list[FieldProblem] = []
    for position, version in enumerate(versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        path = f"spec.versions[{position}].schema.openAPIV3Schema"
        if schema is None:
            found.append(required(path))
            continue
        if len(versions) == 1:
            path = "spec.validation.openAPIV3Schema"
        found += _root_problems(schema, path, has_status="status" in (version.get("subresources") or {}))
    return found


def schema_warnings(versions: list[Spec]) -> list[str]:
    """Warnings about fields that are accepted and have no effect."""
    warnings: dict[str, None] = {}
    for version in versions:
        for schema in _schemas((version.get("schema") or {}).get("openAPIV3Schema")):
            format = schema.get("format")
            if format and format not in KNOWN:
                warnings[f'unrecognized format "{format}"'] = None
            if schema.get("x-kubernetes-validations"):
                warnings[
                    "x-kubernetes-validations: this server accepts CEL rules and does not evaluate them"
                ] = None
    return list(warnings)


def _schemas(schema: Any) -> Iterator[Spec]:
    if not isinstance(schema, dict):
        return
    yield schema
    below = [*(schema.get("properties") or {}).values(), schema.get("items")]
    below += [schema.get("additionalProperties")]
    for each in below:
        yield from _schemas(each)


def _root_problems(schema: Spec, path: str, *, has_status: bool) -> Iterator[FieldProblem]:
    kind = schema.get("type")
    if kind and kind != "object" and has_status:
        yield invalid_value(
            f"{path}.type",
            kind,
            'only "object" is allowed as the type at the root of the schema if the status subresource is '
            "enabled",
        )
    if not kind:
        yield required(f"{path}.type", "must not be empty at the root")
    elif kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object at the root")
    properties = schema.get("properties") or {}
    for key in ("apiVersion", "kind"):
        type_name = (properties.get(key) or {}).get("type")
        if key in properties and type_name != "string":
            yield invalid_value(f"{path}.properties[{key}].type", type_name or "", "must be string")
    metadata = properties.get("metadata")
    if metadata is not None:
        if metadata.get("type") != "object":
            yield invalid_value(
                f"{path}.properties[metadata].type", metadata.get("type") or "", "must be object"
            )
        if set(metadata.get("properties") or ()) - {"name", "generateName"} or metadata.get("required"):
            yield forbidden_field(
                f"{path}.properties[metadata]",
                "must not specify anything other than name and generateName, but metadata is implicitly "
                "specified",
            )
    yield from _own_problems(schema, path)
    yield from _below_problems(schema, path)


def _below_problems(schema: Spec, path: str) -> Iterator[FieldProblem]:
    for key, each in (schema.get("properties") or {}).items():
        yield from _field_problems(each, f"{path}.properties[{key}]")
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _field_problems(items, f"{path}.items", what="array items")
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        yield from _field_problems(others, f"{path}.additionalProperties")


def _field_problems(schema: Spec, path: str, *, what: str = "object fields") -> Iterator[FieldProblem]:
    kind = schema.get("type")
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if not kind and not free and not schema.get("$ref"):
        yield required(f"{path}.type", f"must not be empty for specified {what}")
    elif kind and kind not in TYPES:
        yield not_supported(f"{path}.type", kind, TYPES)
    yield from _own_problems(schema, path)
    yield from _below_problems(schema, path)


def _own_problems(schema: Spec, path: str) -> Iterator[FieldProblem]:
    for key in _FORBIDDEN:
        if schema.get(key):
            yield forbidden_field(f"{path}.{key}", f"{key} is not supported")
    if isinstance(schema.get("items"), list):
        yield forbidden_field(f"{path}.items", "items must be a schema object and not an array")
    if schema.get("type") == "array" and not schema.get("items"):
        yield required(f"{path}.items", "must be specified")
    if pattern := schema.get("pattern"):
        try:
            re.compile(python_pattern(pattern))
        except re.error as error:
            yield invalid_value(
                f"{path}.pattern",
                pattern,
                "must be a valid regular expression, but isn't: error parsing regexp: "
                f"{error.msg}: `{pattern}`",
            )
    yield from _list_problems(schema, path)


def _list_problems(schema: Spec, path: str) -> Iterator[FieldProblem]:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type is not None and list_type not in ("atomic", "set", "map"):
        yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if list_type != "map":
        return
    keys = schema.get("x-kubernetes-list-map-keys") or []
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield required(where, "must not be empty if x-kubernetes-list-type is map")
    items = schema.get("items")
    if not isinstance(items, dict):
        return
    properties = items.get("properties") or {}
    if any(key not in properties for key in keys):
        yield invalid_value(where, keys, "entries must all be names of item properties")
    for key in keys:
        known = properties.get(key)
        if known is not None and "default" not in known and key not in (items.get("required") or ()):
            yield required(
                f"{path}.items.properties[{key}].default",
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a "
                "required property",
            )

"""Checks that an applied configuration conforms to its schema, with structured-merge-diff's messages.

Lives here: what server-side apply rejects before it merges anything: unknown fields, wrong types, duplicate
items. Called by apply.py. Source: sigs.k8s.io/structured-merge-diff typed/{validate,helpers}.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gangsched.api_rules.schema.node import Schema
from gangsched.lab.apiserver.patching.fieldsets import field, shown
from gangsched.lab.apiserver.patching.refusal import go_printed
from gangsched.lab.apiserver.patching.typed import item_element

_SCALARS = ("string", "bytes", "time", "integer", "number", "boolean", "quantity", "int-or-string")


def problems(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """Yields one message for each problem; names only the first of several unknown fields in one object."""
    kind = schema.kind
    if value is None or kind == "any":
        return
    if kind in _SCALARS:
        if problem := _scalar_problem(kind, value):
            yield f"{path}: {problem}"
    elif kind == "list":
        yield from _list_problems(schema, value, path)
    elif not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{go_printed(value)}}}"
    else:
        for key, each in value.items():
            here = path + shown((field(key),))
            known = schema.element if kind == "map" else schema.properties.get(key)
            if known is not None:
                yield from problems(known, each, here)
            elif not schema.preserves_unknown:
                yield f"{here}: field not declared in schema"
                return


def _list_problems(schema: Schema, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got &{{{go_printed(value)}}}"
        return
    seen: set[str] = set()
    for position, each in enumerate(value):
        element = f"i:{position}" if schema.is_atomic else item_element(schema, each)
        if element in seen:
            yield f"{path}: duplicate entries for key {shown((element,))}"
        seen.add(element)
        yield from problems(schema.element, each, path + shown((element,)))


def _scalar_problem(kind: str, value: Any) -> str:
    if kind in ("integer", "number"):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return ""
        names = {str: "string", bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}
        return f"expected numeric (int or float), got {names[type(value)]}"
    if kind == "boolean":
        return "" if isinstance(value, bool) else f"expected boolean, got &{{{go_printed(value)}}}"
    if kind in ("quantity", "int-or-string"):
        if isinstance(value, str | int | float):
            return ""
        return f"expected any scalar, got &{{{go_printed(value)}}}"
    if isinstance(value, str):
        return ""
    literal = json.dumps(value) if isinstance(value, bool | int | float) else go_printed(value)
    return f"expected string, got &value.valueUnstructured{{Value:{literal}}}"

"""fieldValidation: rejects, warns about or ignores unknown and duplicate fields of an object.

Lives here: the strict decoding errors of a body and their consequence. Not here: the walk over the schema
(decode.py), the body's kind (bodies.py). Called by the HTTP face for create and update, by patching/ for the
result of a patch. Source: k8s.io/apiserver pkg/endpoints/handlers/create.go, sigs.k8s.io/json.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gangsched.api_rules.schema.decode import DecodeFailed, decode
from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import StatusError, bad_request, quoted

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
# The decoder stops counting here, and its message says so.
_LIMIT = 100

Object = dict[str, Any]


def taken_in(
    schema: Schema,
    obj: Object,
    *,
    kind: str,
    version: str,
    directive: str,
    warn: Callable[[str], None],
    body: bytes | None = None,
) -> Object:
    """Decodes the object of a create or update; `kind` and `version`: the object's own.

    `directive`: fieldValidation's value ("" means Warn); `body`: the JSON of `obj`, searched for duplicate
    fields. Raises: StatusError 400.
    """

    def refused(why: str) -> StatusError:
        return bad_request(f"{kind} in version {quoted(version)} cannot be handled as a {kind}: {why}")

    try:
        found = decode(schema, obj)
    except DecodeFailed as failed:
        raise refused(str(failed)) from None
    if directive == IGNORE:
        return found.obj
    problems = [f"duplicate field {quoted(path)}" for path in (duplicates(body) if body else ())]
    problems += [f"unknown field {quoted(path)}" for path in found.unknown]
    complain(problems, directive, warn, lambda text: refused(text))
    return found.obj


def complain(
    problems: list[str],
    directive: str,
    warn: Callable[[str], None],
    refused: Callable[[str], StatusError],
) -> None:
    """Reject or warn, according to the directive."""
    if not problems:
        return
    problems = problems[:_LIMIT]
    if directive == STRICT:
        raise refused("strict decoding error: " + ", ".join(problems))
    if directive != IGNORE:
        for problem in problems:
            warn(problem)


class _Repeated(dict[str, Any]):
    """An object with duplicate keys."""

    keys_again: list[str]


def duplicates(body: bytes) -> list[str]:
    """Paths of the duplicate fields, each once, in document order."""
    seen_any = False

    def noted(pairs: list[tuple[str, Any]]) -> Object:
        nonlocal seen_any
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        seen_any = True
        marked = _Repeated(found)
        keys = [key for key, _ in pairs]
        marked.keys_again = list(dict.fromkeys(key for at, key in enumerate(keys) if key in keys[:at]))
        return marked

    try:
        root = json.loads(body, object_pairs_hook=noted)
    except ValueError:
        return []
    if not seen_any:
        return []
    paths: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            again = value.keys_again if isinstance(value, _Repeated) else []
            for key, inner in value.items():
                place = f"{path}.{key}" if path else key
                if key in again:
                    paths.append(place)
                walk(inner, place)
        elif isinstance(value, list):
            for at, inner in enumerate(value):
                walk(inner, f"{path}[{at}]")

    walk(root, "")
    return paths

"""The server's errors for a patch, or its result, that is not acceptable.

Lives here: the errors that several patch formats share. Called by patching/ only. Source: k8s.io/apiserver
pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gangsched.api_rules.schema.decode import DecodeFailed
from gangsched.api_rules.status import StatusError, bad_request, invalid_value
from gangsched.lab.apiserver.status import invalid


def does_not_apply(why: str) -> StatusError:
    """A JSON patch that cannot be applied; `why` is not sent, as in the real server."""
    failed = StatusError(422, "Invalid", "the server rejected our request due to an error in our request")
    failed.add_note(why)
    return failed


def not_json() -> StatusError:
    return bad_request("invalid JSON patch")


def wrong_json_type(value: Any, wanted: str, *, prefix: str = "error decoding patch: ") -> StatusError:
    """The patch is JSON of the wrong type for its format; `wanted` is Go's name of the right one."""
    what = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    return bad_request(f"{prefix}json: cannot unmarshal {what} into Go value of type {wanted}")


def internal(message: str) -> StatusError:
    """A strategic merge patch with directives that contradict each other: the real server answers 500."""
    return StatusError(500, "", message)


def patched_object(patched: Any, why: str, *, by_name: bool) -> StatusError:
    """A JSON or merge patch's result is not an object of the kind; custom objects are printed `by_name`."""
    shown = msgspec.json.encode(patched, order="sorted" if by_name else None).decode()
    return invalid("", "", [invalid_value("patch", shown, why)])


def patch_itself(patch: Mapping[str, Any], why: str) -> StatusError:
    """The result of a strategic merge patch is not an object of the kind."""
    return invalid("", "", [invalid_value("patch", go_printed(patch), why)])


def conversion(failed: DecodeFailed) -> str:
    """Returns runtime.DefaultUnstructuredConverter's message, if it differs from the JSON decoder's."""
    schema, value = failed.schema, failed.value
    if schema is None or schema.kind in ("time", "quantity", "int-or-string"):
        return str(failed)
    names = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64"}
    found = names.get(type(value), "float64")
    match schema.kind:
        case "struct":
            return f"cannot restore struct from: {found}"
        case "map":
            return f"cannot restore map from {found}"
        case "list" | "bytes":
            return f"cannot restore slice from {found}"
    # Go can convert between numbers, and an integer to text; it rejects only these by name.
    numbers = ("int64", "float64")
    if found in numbers and (
        schema.kind in ("integer", "number") or (found, schema.kind) == ("int64", "string")
    ):
        return f"cannot convert {found} to {schema.go_type}"
    return f"unrecognized type: {'string' if schema.kind == 'string' else schema.go_type}"


def go_printed(value: Any) -> str:
    """Prints a decoded JSON value like Go's %v: `map[a:1 b:[x y]]`."""
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{go_printed(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return "[" + " ".join(map(go_printed, value)) + "]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)

"""JSON Patch (RFC 6902) as the real server applies it, and JSON Merge Patch (RFC 7386).

Lives here: both, on plain values. Not here: whether the outcome is an object of the kind (patched.py). Where
the server's library is more lenient than the RFC, this is too: `replace` creates a missing field, `copy` of a
missing one gives null, array indices may be negative. Source: gopkg.in/evanphx/json-patch.v4.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.patching.refusal import does_not_apply, wrong_json_type

MAX_OPERATIONS = 10_000
# Limit for all `copy` operations of a patch together, as each can double the document.
MAX_COPIED_BYTES = 3 * 2**20
OPERATION_FIELDS = ("op", "path", "from", "value")
_FIELD_TYPES = {"op": "string", "path": "string", "from": "string"}


def json_patch(doc: Any, operations: Any) -> Any:
    """Returns a new document; `doc` stays unchanged. Raises: StatusError (400, 413, 422)."""
    _check(operations)
    doc = copy.deepcopy(doc)
    left_bytes = MAX_COPIED_BYTES
    for operation in operations:
        if operation.get("op") == "copy":
            left_bytes -= _copy(doc, operation, left_bytes)
        else:
            doc = _apply(doc, operation)
    return doc


def unknown_operation_fields(operations: list[dict[str, Any]]) -> list[str]:
    """Returns strict decoding's errors about the patch itself."""
    return [
        f'json patch unknown field "[{position}].{key}"'
        for position, operation in enumerate(operations)
        for key in operation
        if key not in OPERATION_FIELDS
    ]


def merge_patch(doc: Any, patch: Any) -> Any:
    """Returns a new document: the patch's fields replace the document's, null removes, lists are replaced."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if not isinstance(doc, dict):
        return without_nulls(patch)
    merged = dict(doc)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(merged.get(key), dict):
            merged[key] = merge_patch(merged[key], value)
        else:
            merged[key] = without_nulls(value)
    return merged


def without_nulls(value: Any) -> Any:
    """Returns a patch's value for a missing field without its nulls, which have nothing to delete."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def _check(operations: Any) -> None:
    if not isinstance(operations, list):
        raise wrong_json_type(operations, "[]handlers.jsonPatchOp")
    for operation in operations:
        if not isinstance(operation, dict):
            raise wrong_json_type(operation, "handlers.jsonPatchOp")
        for field in _FIELD_TYPES:
            value = operation.get(field)
            if value is not None and not isinstance(value, str):
                failed = wrong_json_type(value, "string")
                failed.message = failed.message.replace("Go value", f"Go struct field jsonPatchOp.{field}")
                raise failed
    if len(operations) > MAX_OPERATIONS:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{MAX_OPERATIONS}, got {len(operations)}",
        )


def _copy(doc: Any, operation: dict[str, Any], left_bytes: int) -> int:
    """Returns how many bytes of JSON it has copied, of at most `left_bytes`."""
    path = _path(operation)
    found = _get(doc, _source(operation))
    n_bytes = len(msgspec.json.encode(found))
    if n_bytes > left_bytes:
        raise does_not_apply(f"its copies are more than {MAX_COPIED_BYTES} bytes together")
    _add(doc, path, copy.deepcopy(found))
    return n_bytes


def _path(operation: dict[str, Any]) -> str:
    path = operation.get("path")
    if path is None:
        raise does_not_apply("the operation has no path")
    return str(path)


def _apply(doc: Any, operation: dict[str, Any]) -> Any:
    path = _path(operation)
    value = copy.deepcopy(operation.get("value"))
    match operation.get("op"):
        case "add":
            _add(doc, path, value)
        case "remove":
            _remove(doc, path)
        case "replace":
            if path == "":
                return _root(value)
            _replace(doc, path, value)
        case "move":
            moved = _get(doc, _source(operation))
            _remove(doc, _source(operation))
            _add(doc, path, moved)
        case "test":
            found = doc if path == "" else _get(doc, path)
            if not _same(found, value):
                raise does_not_apply(f"testing value {path} failed")
        case unknown:
            raise does_not_apply(f"unexpected kind of operation: {unknown}")
    return doc


def _root(value: Any) -> Any:
    if not isinstance(value, dict | list):
        raise does_not_apply("a whole document must be an object or array")
    return value


def _source(operation: dict[str, Any]) -> str:
    source = operation.get("from")
    if source is None:
        raise does_not_apply("the operation has no from")
    return str(source)


def _container(doc: Any, path: str) -> tuple[Any, str]:
    """Returns the container to which a JSON pointer leads, and the key in it."""
    parts = path.split("/")
    if len(parts) < 2:
        raise does_not_apply(f"not a path: {path}")
    for part in parts[1:-1]:
        doc = _member(doc, _key(part))
    if not isinstance(doc, dict | list):
        raise does_not_apply(f"doc is missing path: {path}")
    return doc, _key(parts[-1])


def _key(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _member(container: Any, key: str) -> Any:
    if isinstance(container, dict):
        return container.get(key)
    if isinstance(container, list):
        return container[_index(key, len(container))]
    raise does_not_apply(f"nothing to look up {key} in")


def _index(key: str, length: int) -> int:
    try:
        index = int(key)
    except ValueError:
        raise does_not_apply(f"not an array index: {key}") from None
    if not -length <= index < length:
        raise does_not_apply(f"no such index: {key}")
    return index


def _get(doc: Any, path: str) -> Any:
    container, key = _container(doc, path)
    return _member(container, key)


def _add(doc: Any, path: str, value: Any) -> None:
    container, key = _container(doc, path)
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        index = _index(key, len(container) + 1)
        container.insert(index + len(container) + 1 if index < 0 else index, value)


def _remove(doc: Any, path: str) -> None:
    container, key = _container(doc, path)
    if isinstance(container, dict):
        if key not in container:
            raise does_not_apply(f"no such key: {key}")
        del container[key]
    else:
        del container[_index(key, len(container))]


def _replace(doc: Any, path: str, value: Any) -> None:
    container, key = _container(doc, path)
    container[key if isinstance(container, dict) else _index(key, len(container))] = value


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)

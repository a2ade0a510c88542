"""Strategic merge patch: maps merge, lists merge by key or are replaced, as the kind's schema says.

Lives here: objects and their directives ($patch, $retainKeys, $setElementOrder, $deleteFromPrimitiveList).
Not here: one list with another (strategic_lists.py), whether the outcome is an object of the kind
(patched.py). Source: k8s.io/apimachinery pkg/util/strategicpatch/patch.go.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import bad_request
from gangsched.lab.apiserver.patching import strategic_lists as lists
from gangsched.lab.apiserver.patching.json_patch import without_nulls
from gangsched.lab.apiserver.patching.refusal import go_printed, internal
from gangsched.lab.apiserver.patching.strategic_lists import DELETE, MARKER, REPLACE, bad_type

RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"
SET_ORDER = "$setElementOrder"

Object = dict[str, Any]


def merge_map(original: Object, patch: Object, schema: Schema | None) -> Object:
    """Changes and returns `original`; `patch` is consumed."""
    if MARKER in patch:
        return _by_directive(patch)
    _retain_keys(original, patch)
    _merge_ordered_lists(original, patch, schema)
    for key, value in patch.items():
        deletes = key.startswith(DELETE_FROM)
        if deletes:
            key = _after_prefix(key, "primitive list")
        if value is None:
            original.pop(key, None)
            continue
        held = original.get(key)
        if deletes:
            if isinstance(held, list) and isinstance(value, list):
                original[key] = lists.without(held, value)
            continue
        if isinstance(held, dict) and isinstance(value, dict):
            original[key] = _merged(held, value, child(schema, key))
        elif isinstance(held, list) and isinstance(value, list):
            original[key] = _merged_list(held, value, child(schema, key))
        else:
            _set(original, key, without_nulls(value))
    return original


def child(schema: Schema | None, key: str) -> Schema | None:
    """Returns a field's schema; None for unknown fields, whose maps are merged and lists replaced."""
    if schema is None:
        return None
    if schema.kind == "map":
        return schema.element
    return schema.properties.get(key)


def strategy_of(schema: Schema | None) -> str:
    """`merge`, `replace` or ""; retainKeys is only a hint to clients."""
    if schema is None:
        return ""
    return next((each for each in schema.merge_strategies if each != "retainKeys"), "")


def _merged(held: Object, value: Object, schema: Schema | None) -> Object:
    return value if strategy_of(schema) == REPLACE else merge_map(held, value, schema)


def _merged_list(held: list[Any], value: list[Any], schema: Schema | None) -> list[Any]:
    if schema is None or strategy_of(schema) != lists.MERGE:
        return value
    element = schema.element if schema.kind == "list" else None
    return lists.merge_list(held, value, schema.merge_key, lambda one, two: merge_map(one, two, element))


def _by_directive(patch: Object) -> Object:
    directive = patch[MARKER]
    if directive == REPLACE:
        del patch[MARKER]
        return patch
    if directive == DELETE:
        return {}
    raise internal(f"unknown patch type: {go_printed(directive)} in map: {go_printed(patch)}")


def _retain_keys(original: Object, patch: Object) -> None:
    """Drop the fields that the patch's $retainKeys does not name; it must name those that the patch sets."""
    if RETAIN_KEYS not in patch:
        return
    retained = patch.pop(RETAIN_KEYS)
    directives = (DELETE_FROM, SET_ORDER)
    kept = {key for key in retained if isinstance(key, str)} if isinstance(retained, list) else None
    if kept is None or any(
        value is not None and not key.startswith(directives) and key not in kept
        for key, value in patch.items()
    ):
        raise bad_request("invalid patch format of retainKeys")
    for key in [key for key in original if key not in kept]:
        del original[key]


def _merge_ordered_lists(original: Object, patch: Object, schema: Schema | None) -> None:
    """Merge the lists that have $setElementOrder, and put their items in that order."""
    for directive in [key for key in patch if key.startswith(SET_ORDER)]:
        order = patch.pop(directive)
        if not isinstance(order, list):
            raise bad_type(list, order)
        key = _after_prefix(directive, "setElementOrder list")
        held, value = original.get(key), patch.get(key)
        for each in (held, value):
            if each is not None and not isinstance(each, list):
                raise bad_type(list, each)
        known = child(schema, key)
        merge_key = known.merge_key if known is not None else ""
        if isinstance(value, list):
            lists.check_order(value, order, merge_key)
        if not held and not value and (held is not None or value is not None):
            raise internal("no elements in any of the given slices")
        if isinstance(held, list) and isinstance(value, list):
            merged = _merged_list(held, value, known)
        elif isinstance(value, list):
            merged = without_directives(value)
        elif isinstance(held, list):
            merged = held
        else:
            continue
        patch.pop(key, None)
        original[key] = lists.in_order(merged, order, held or [], merge_key)


def _after_prefix(key: str, what: str) -> str:
    prefix, slash, rest = key.partition("/")
    if not slash or prefix not in (DELETE_FROM, SET_ORDER):
        raise bad_request(f"invalid patch format of {what}")
    return rest


def _set(original: Object, key: str, value: Any) -> None:
    """Sets a value that was missing or of another type; a directive is dropped."""
    if isinstance(value, dict) and MARKER in value:
        original.pop(key, None)
    else:
        original[key] = without_directives(value)


def without_directives(value: Any) -> Any:
    """Returns a value that has nothing to merge into, without items and fields marked with $patch."""
    if isinstance(value, dict):
        return {key: without_directives(each) for key, each in value.items() if not _is_marked(each)}
    if isinstance(value, list):
        return [without_directives(each) for each in value if not _is_marked(each)]
    return value


def _is_marked(value: Any) -> bool:
    return isinstance(value, dict) and MARKER in value

"""Values with their schema: their fields, the difference between two, merging one into the other.

Lives here: the four walks that server-side apply consists of. Not here: the owners of fields (managed.py),
the rules of applying (apply.py). Source: sigs.k8s.io/structured-merge-diff typed/{tofieldset,compare,merge,
remove}.go and fieldpath/set.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from gangsched.api_rules.schema.node import Schema
from gangsched.lab.apiserver.patching.fieldsets import FieldSet, Path, Tree, field, keyed, tree_of, valued

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()
_UNKNOWN = Schema({})


class Difference(NamedTuple):
    """Fields only in the second value, only in the first, or unequal."""

    added: FieldSet
    removed: FieldSet
    modified: FieldSet


def _shape(schema: Schema, value: Any) -> Literal["map", "list", "leaf"]:
    """`map` and `list` are walked into, everything else is owned as a whole."""
    kind = schema.kind
    if kind == "any" and isinstance(value, dict):
        kind = "map"
    if kind in ("struct", "map") and not schema.is_atomic and isinstance(value, dict | None):
        return "map"
    if kind == "list" and not schema.is_atomic and isinstance(value, list | None):
        return "list"
    return "leaf"


def _below(schema: Schema, key: str) -> Schema:
    if schema.kind == "map":
        return schema.element
    known = schema.properties.get(key) if schema.kind == "struct" else None
    return known or _UNKNOWN


def _is_named(schema: Schema, key: str) -> bool:
    """Whether it is a struct's own field rather than a key of a map."""
    return schema.kind == "struct" and key in schema.properties


def item_element(schema: Schema, item: Any) -> str:
    """Returns an associative list's item as a path element; missing keys get their default, if any."""
    if schema.list_type != "map" or not isinstance(item, dict):
        return valued(item)
    keys = {}
    for key in schema.list_keys:
        value = item.get(key)
        if value is None:
            known = schema.element.properties.get(key)
            value = known.default if known is not None else None
        if value is not None:
            keys[key] = value
    return keyed(keys)


def field_set(schema: Schema, value: Any) -> FieldSet:
    """All fields that a value has."""
    return frozenset(_fields(schema, value, ()))


def _fields(schema: Schema, value: Any, path: Path) -> Iterator[Path]:
    match _shape(schema, value):
        case "leaf":
            yield path
        case "map":
            for key, each in (value or {}).items():
                here = (*path, field(key))
                yield from _fields(_below(schema, key), each, here)
                if each is None or each == {} or not _is_named(schema, key):
                    yield here
        case "list":
            for each in value or ():
                here = (*path, item_element(schema, each))
                yield from _fields(schema.element, each, here)
                yield here


def compare(schema: Schema, old: Any, new: Any) -> Difference:
    added: set[Path] = set()
    removed: set[Path] = set()
    modified: set[Path] = set()
    _compare(schema, old, new, (), added, removed, modified)
    return Difference(frozenset(added), frozenset(removed), frozenset(modified))


def _compare(
    schema: Schema,
    old: Any,
    new: Any,
    path: Path,
    added: set[Path],
    removed: set[Path],
    modified: set[Path],
) -> None:
    shape = _shape(schema, old if new is MISSING else new)
    if old is not MISSING and new is not MISSING and _shape(schema, old) != shape:
        shape = "leaf"
    held, given = (None if each is MISSING else each for each in (old, new))
    if shape != "leaf" and not held and not given:
        shape = "leaf"
    if old is MISSING:
        added.add(path)
    elif new is MISSING:
        removed.add(path)
    elif shape == "leaf" and not equal(old, new):
        modified.add(path)
    if shape == "leaf":
        return
    for element, below, one, other in _pairs(schema, shape, held, given):
        _compare(below, one, other, (*path, element), added, removed, modified)


def _pairs(schema: Schema, shape: str, held: Any, given: Any) -> Iterator[tuple[str, Schema, Any, Any]]:
    if shape == "map":
        held, given = held or {}, given or {}
        for key in {**held, **given}:
            yield field(key), _below(schema, key), held.get(key, MISSING), given.get(key, MISSING)
        return
    before = {item_element(schema, each): each for each in reversed(held or [])}
    after = {item_element(schema, each): each for each in reversed(given or [])}
    for element in {**before, **after}:
        yield element, schema.element, before.get(element, MISSING), after.get(element, MISSING)


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def merge(schema: Schema, live: Any, config: Any) -> Any:
    """Merges values; `config` takes precedence, maps and associative lists are merged. MISSING: no value."""
    if config is MISSING or live is MISSING:
        return live if config is MISSING else config
    shape = _shape(schema, config)
    if shape == "leaf" or _shape(schema, live) != shape or (not live and not config):
        return config
    if shape == "list":
        return _merged_list(schema, live or [], config or [])
    merged = {}
    for key in {**(live or {}), **(config or {})}:
        merged[key] = merge(
            _below(schema, key), (live or {}).get(key, MISSING), (config or {}).get(key, MISSING)
        )
    return merged


def _merged_list(schema: Schema, live: list[Any], config: list[Any]) -> list[Any]:
    """Merges items in the order of `config`; those only in `live` keep their places between them."""
    ours = [(item_element(schema, each), each) for each in live]
    theirs = [(item_element(schema, each), each) for each in config]
    held, given = dict(ours), dict(theirs)
    shared = [element for element, _ in theirs if element in held]
    done: set[str] = set()
    merged: list[Any] = []
    at = to = 0

    def take(element: str) -> None:
        merged.append(merge(schema.element, held.get(element, MISSING), given[element]))
        done.add(element)
        if shared and shared[0] == element:
            shared.pop(0)

    while at < len(ours) or to < len(theirs):
        if at < len(ours) and to < len(theirs):
            element = ours[at][0]
            if element == theirs[to][0]:
                take(element)
                at, to = at + 1, to + 1
                continue
            if element in given and shared and shared[0] != element:
                at += 1
                continue
        if at < len(ours):
            element, item = ours[at]
            if element not in given:
                merged.append(item)
                at += 1
                continue
            if element in done:
                at += 1
        if to < len(theirs):
            take(theirs[to][0])
            to += 1
    return merged


def remove(schema: Schema, value: Any, fields: FieldSet) -> Any:
    """Returns the value without these fields; parts that become empty become None."""
    return _removed(schema, value, tree_of(fields)) if fields else value


def _removed(schema: Schema, value: Any, tree: Tree) -> Any:
    shape = _shape(schema, value)
    if shape == "leaf":
        return value if schema.kind not in ("list", "map", "struct") else None
    if not value:
        return None
    if shape == "list":
        items = []
        for each in value:
            is_member, below = tree.get(item_element(schema, each), (False, {}))
            if not is_member:
                items.append(_removed(schema.element, each, below) if below else each)
        return items or None
    kept = {}
    for key, each in value.items():
        is_member, below = tree.get(field(key), (False, {}))
        if not is_member:
            kept[key] = _removed(_below(schema, key), each, below) if below else each
    return kept or None


def with_named_fields(schema: Schema, fields: FieldSet) -> FieldSet:
    """Adds the structs' fields on the path to each, for removal: `.spec.replicas` adds `.spec`."""
    found = set(fields)
    for path in fields:
        here: Schema = schema
        for depth, element in enumerate(path[:-1], start=1):
            if element.startswith("f:"):
                name = element[2:]
                if _is_named(here, name):
                    found.add(path[:depth])
                here = _below(here, name)
            else:
                here = here.element if here.kind == "list" else _UNKNOWN
    return frozenset(found)

"""Sets of an object's fields, as managedFields keeps them.

Lives here: paths, their text, and FieldsV1. Not here: which fields a value has (typed.py). A path is a tuple
of FieldsV1's own elements: `f:spec`, `k:{"name":"c"}`, `v:"x"`, `i:0`. Source:
sigs.k8s.io/structured-merge-diff fieldpath/{element,serialize,set}.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

Path = tuple[str, ...]
FieldSet = frozenset[Path]
Tree = dict[str, Any]
EMPTY: FieldSet = frozenset()
_SELF = "."
_ORDER = "fkvi"


def field(name: str) -> str:
    return f"f:{name}"


def keyed(keys: dict[str, Any]) -> str:
    """Returns the element of a list item, by the values of its keys."""
    return "k:" + _compact(dict(sorted(keys.items())))


def valued(value: Any) -> str:
    """Returns the element of a set's item."""
    return "v:" + _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def from_fields_v1(tree: Tree) -> FieldSet:
    return frozenset(_paths(tree, ()))


def _paths(tree: Tree, path: Path) -> Iterator[Path]:
    for element, below in tree.items():
        if element == _SELF:
            yield path
        elif not below:
            yield (*path, element)
        else:
            yield from _paths(below, (*path, element))


def to_fields_v1(fields: Iterable[Path]) -> Tree:
    """Returns the tree in the server's order; an owned field that has owned fields below it gets a `.`."""
    root: Tree = {}
    members = set(fields)
    for path in sorted(members, key=order):
        below = root
        for element in path:
            below = below.setdefault(element, {})
    _mark(root, (), members)
    return root


def _mark(tree: Tree, path: Path, members: set[Path]) -> None:
    for element, below in tree.items():
        here = (*path, element)
        _mark(below, here, members)
        if below and here in members:
            rest = dict(below)
            below.clear()
            below[_SELF] = {}
            below.update(rest)


def order(path: Path) -> tuple[tuple[int, str], ...]:
    """Sorts as the server does: names, then keys, values and indices."""
    return tuple((_ORDER.index(element[0]), element) for element in path)


def shown(path: Path) -> str:
    """Formats a path as in messages: `.spec.containers[name="c"].image`."""
    return "".join(map(_shown, path))


def _shown(element: str) -> str:
    sort, _, text = element.partition(":")
    match sort:
        case "f":
            return f".{text}"
        case "k":
            keys = json.loads(text)
            return "[" + ",".join(f"{key}={_compact(value)}" for key, value in keys.items()) + "]"
        case "v":
            return f"[={text}]"
    return f"[{text}]"


def without_prefix(fields: FieldSet, prefixes: Iterable[Path]) -> FieldSet:
    """Returns the set without the given fields and everything below them."""
    for prefix in prefixes:
        fields = frozenset(path for path in fields if path[: len(prefix)] != prefix)
    return fields


def tree_of(fields: Iterable[Path]) -> Tree:
    """Returns element -> (is it a member, the tree below it)."""
    root: Tree = {}
    for path in fields:
        below = root
        for element in path[:-1]:
            below = below.setdefault(element, [False, {}])[1]
        below.setdefault(path[-1], [False, {}])[0] = True
    return root

"""Merges two lists as strategic merge patch does: by merge key or as a set, in the patch's order.

Lives here: matching, deleting, replacing and ordering of list items. Not here: how two matching items merge
(strategic.py, which calls this). Source: k8s.io/apimachinery pkg/util/strategicpatch/patch.go and
pkg/util/mergepatch/errors.go.

Order: items of the patch keep the order of the patch (or of $setElementOrder), the rest that of the live
list. Between the two, the live list decides if it has both, else the patch's item comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.patching.refusal import go_printed, internal

MARKER = "$patch"
DELETE, REPLACE, MERGE = "delete", "replace", "merge"

List = list[Any]
MergeItems = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]


def merge_list(original: List, patch: List, merge_key: str, merge_items: MergeItems) -> List:
    """Returns a new list. Deleting items from `original` moves the rest up and leaves the tail unchanged, as
    in Go's slices; $setElementOrder depends on that. Raises: StatusError.
    """
    if not original and not patch:
        return original
    if _item_type(original, patch) is dict:
        if not merge_key:
            raise internal("cannot merge lists without merge key for ")
        patch, n_kept = _directives_done(original, patch, merge_key)
        if n_kept is None:
            return in_order(patch, [], patch, merge_key)
        kept = original[:n_kept]
        merged = _merged_items(kept, patch, merge_key, merge_items)
        free = original[n_kept : len(merged)]
        original[n_kept : n_kept + len(free)] = merged[n_kept : n_kept + len(free)]
        return in_order(merged, patch, kept, merge_key)
    distinct: dict[Hashable, Any] = {}
    for each in [*original, *patch]:
        distinct.setdefault(_hashable(each), each)
    merged = list(distinct.values())
    return in_order(merged, patch, original, merge_key)


def in_order(merged: List, order: List, live: List, merge_key: str) -> List:
    """Returns `merged` with the items in `order` in that order, the rest in the order of `live`."""

    wanted, had = _places(order, merge_key), _places(live, merge_key)
    keyed = [(_hashable(_key(each, merge_key)), each) for each in merged]
    named = deque(sorted((each for each in keyed if each[0] in wanted), key=lambda each: wanted[each[0]]))
    last = len(live)
    others = deque(
        sorted((each for each in keyed if each[0] not in wanted), key=lambda each: had.get(each[0], last))
    )
    result: List = []
    while named and others:
        left, right = others[0][0], named[0][0]
        live_decides = left in had and right in had and had[left] < had[right]
        result.append((others if live_decides else named).popleft()[1])
    return result + [each for _, each in (*named, *others)]


def without(items: List, removed: List) -> List:
    """Returns the items that equal none of `removed`."""
    gone = {_hashable(each) for each in removed}
    return [each for each in items if _hashable(each) not in gone]


def check_order(patch: List, order: List, merge_key: str) -> None:
    """Checks that the patch's items are in $setElementOrder, in the same order. Raises: StatusError."""
    if not patch or not order:
        return
    kept = patch
    if merge_key:
        for each in patch:
            _require_map(each)
        kept = [each for each in patch if each.get(MARKER) != DELETE]
    at = 0
    for each in order:
        while at < len(kept) and isinstance(kept[at], dict) and MARKER in kept[at]:
            at += 1
        if at < len(kept) and _key(kept[at], merge_key) == _key(each, merge_key):
            at += 1
    if at < len(kept):
        raise internal(
            f"The order in patch list:\n{go_printed(patch)}\n doesn't match $setElementOrder list:\n"
            f"{go_printed(order)}\n"
        )


def bad_type(wanted: type, value: Any) -> StatusError:
    return internal(f"expected a {_go_type(wanted)}, but received a {_go_type(type(value))}")


def _directives_done(original: List, patch: List, merge_key: str) -> tuple[List, int | None]:
    """Returns the patch's items without $patch, and how many of the original remain; None: replaced."""
    plain = []
    replaces = False
    deleted: List = []
    for each in patch:
        if MARKER not in each:
            plain.append(each)
            continue
        match each[MARKER]:
            case "delete":
                deleted.append(_key(each, merge_key))
            case "replace":
                replaces = True
            case "merge":
                raise internal("merging lists cannot yet be specified in the patch")
            case other:
                raise internal(f"unknown patch type: {go_printed(other)} in map: {go_printed(each)}")
    n_kept = _deleted(original, deleted, merge_key)
    return plain, None if replaces else n_kept


def _deleted(items: List, keys: List, merge_key: str) -> int:
    """Moves the items without these keys to the front, and returns their number."""
    places: dict[Hashable, list[int]] = {}
    for at, item in enumerate(items):
        places.setdefault(_hashable(item.get(merge_key)), []).append(at)
    gone: set[int] = set()
    tail: List = []
    last = len(items) - 1
    for key in keys:
        for at in places.pop(_hashable(key), ()):
            tail.append(items[last])  # moving up the rest leaves the last item there twice
            gone.add(at)
            while last in gone:
                last -= 1
    kept = [item for at, item in enumerate(items) if at not in gone]
    items[:] = [*kept, *reversed(tail)]
    return len(kept)


def _merged_items(original: List, patch: List, merge_key: str, merge_items: MergeItems) -> List:
    merged = list(original)
    places: dict[Hashable, int] = {}
    for at, item in enumerate(merged):
        places.setdefault(_hashable(item.get(merge_key)), at)
    for each in patch:
        at = places.setdefault(_hashable(_key(each, merge_key)), len(merged))
        if at == len(merged):
            merged.append(each)
        else:
            merged[at] = merge_items(merged[at], each)
    return merged


def _places(items: List, merge_key: str) -> dict[Hashable, int]:
    """Returns the first place of each key."""
    found: dict[Hashable, int] = {}
    for at, each in enumerate(items):
        found.setdefault(_hashable(_key(each, merge_key)), at)
    return found


def _hashable(value: Any) -> Hashable:
    """Returns a key equal only for equal values, so that a list of 10,000 items is indexed, not searched."""
    if isinstance(value, dict):
        return ("map", frozenset((key, _hashable(each)) for key, each in value.items()))
    if isinstance(value, list):
        return ("list", tuple(map(_hashable, value)))
    found: Hashable = value
    return found


def _key(item: Any, merge_key: str) -> Any:
    """Returns the value that identifies an item. Raises: StatusError for a map without its merge key."""
    if not merge_key:
        return item
    _require_map(item)
    if merge_key not in item:
        raise internal(f"map: {go_printed(item)} does not contain declared merge key: {merge_key}")
    return item[merge_key]


def _require_map(item: Any) -> None:
    if not isinstance(item, dict):
        raise bad_type(dict, item)


def _item_type(original: List, patch: List) -> type:
    """Returns the common type of all items. Raises: StatusError."""
    found: type | None = None
    for each in (*original, *patch):
        if found is None:
            found = type(each)
            if found is list:
                raise StatusError(
                    422, "Invalid", "the server rejected our request due to an error in our request"
                )
        elif type(each) is not found:
            raise internal(f"list element types are not identical: {go_printed([original, patch])}")
    if found is None:
        raise internal("no elements in any of the given slices")
    return found


def _go_type(python: type) -> str:
    names = {dict: "map[string]interface {}", list: "[]interface {}", str: "string", bool: "bool"}
    return names.get(python, "int64" if python is int else "float64")

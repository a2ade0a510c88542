"""Fields: every field that the scheduler knows of a kind, and what it does about each.

A field that decides how pods start must not be passed over because this version does not know it: a kind
lists the fields that are read, those that decide nothing here, with the reason, and those that are not done
here, with what to write instead. What is in none of the lists is unknown. Lives here: the form of such a list
and the search for what is not in it. The lists of PodGroups are in model.dialects.

A path is written as `spec.subGroups[].name`, or `spec.devices[].capacity.{}.value` below the keys of a map;
`spec.minResources.**` is everything below `spec.minResources`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect

from gangsched.errors import ParseError

EVERYTHING = "**"
_ITEM = "[]"
_KEY = "{}"
# The largest list that is read has a thousand subgroups with a handful of fields each.
_MAX_WALKED = 20_000
_MAX_SHOWN = 80
_MAX_FOUND = 3
_UNKNOWN = (
    "this version of gangsched does not know the field, so it cannot tell whether the pods may start without "
    "it; remove it, or use a version that knows it"
)

Tree = dict[str, Any]
"""Steps of paths; a leaf is {} and EVERYTHING matches any step and what is below."""


class Fields(msgspec.Struct, frozen=True):
    """The fields of a kind.

    read: paths. without_effect: path -> why it decides nothing here. refused: path -> what is not done, and
    what to write instead. wishes: as refused, but the pods may start without it.
    """

    read: tuple[str, ...] = ()
    without_effect: Mapping[str, str] = {}
    refused: Mapping[str, str] = {}
    wishes: Mapping[str, str] = {}

    @property
    def known(self) -> Tree:
        """All paths, as a tree."""
        return tree_of((*self.read, *self.without_effect, *self.refused, *self.wishes))


def tree_of(paths: tuple[str, ...]) -> Tree:
    """Returns the paths as a tree of their steps."""
    root: Tree = {}
    for path in paths:
        at = root
        for step in steps(path):
            at = at.setdefault(step, {})
    return root


def steps(path: str) -> list[str]:
    """Splits a path: `a.b[].c` has the steps a, b, [], c."""
    return path.replace(_ITEM, f".{_ITEM}").split(".")


def paths_of(kind: type[Any]) -> tuple[str, ...]:
    """Returns the paths that decoding as this struct reads; what is kept as plain JSON is read whole."""
    return tuple(_paths(msgspec.inspect.type_info(kind), ""))


def _paths(kind: msgspec.inspect.Type, at: str) -> Iterator[str]:
    if isinstance(kind, msgspec.inspect.UnionType):
        kind = next(one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType))
    if isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield from _paths(field.type, f"{at}.{field.encode_name}" if at else field.encode_name)
    elif isinstance(kind, msgspec.inspect.ListType) and isinstance(
        kind.item_type, msgspec.inspect.StructType
    ):
        yield from _paths(kind.item_type, f"{at}{_ITEM}")
    elif isinstance(kind, msgspec.inspect.DictType) and isinstance(
        kind.value_type, msgspec.inspect.StructType
    ):
        yield from _paths(kind.value_type, f"{at}.{_KEY}")
    else:
        inner = kind
        while isinstance(inner, msgspec.inspect.ListType | msgspec.inspect.DictType):
            inner = inner.item_type if isinstance(inner, msgspec.inspect.ListType) else inner.value_type
        yield f"{at}.{EVERYTHING}" if isinstance(inner, msgspec.inspect.AnyType) else at


class Ungranted(NamedTuple):
    """`path: why` of what an object asks for and does not get; `wishes` do not keep it from starting."""

    unsupported: tuple[str, ...]
    wishes: tuple[str, ...]


class Known:
    """A kind's fields, prepared for the search in many objects."""

    def __init__(self, fields: Fields, *, at: str = "spec") -> None:
        self._known: Tree = fields.known.get(at, {})
        self._refused = {tuple(steps(path)): why for path, why in fields.refused.items()}
        self._wishes = {tuple(steps(path)): why for path, why in fields.wishes.items()}
        self._at = at

    def search(self, value: Mapping[str, Any]) -> Ungranted:
        """Returns what is refused or unknown in `value`, at most three of each. Raises: ParseError, if it has
        too many fields to look at.
        """
        refused, wishes = [], []
        for at, path, is_empty in self._leaves(value):
            why = self._refused.get(at, "") or self._wishes.get(at, "")
            if at in self._wishes and not is_empty:
                wishes.append(f"{path}: {why}")
            elif not why or not is_empty:
                refused.append(f"{path}: {why or _UNKNOWN}")
            if len(refused) > _MAX_FOUND:
                break
        return Ungranted(tuple(refused[:_MAX_FOUND]), tuple(wishes[:_MAX_FOUND]))

    def _leaves(self, value: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, bool]]:
        """Yields (steps, path, whether it is empty) of each field that is unknown, refused or a wish."""
        left = _MAX_WALKED
        todo: list[tuple[object, Tree, tuple[str, ...], str]] = [(value, self._known, (self._at,), self._at)]
        while todo:
            found, known, at, shown = todo.pop()
            if EVERYTHING in known:
                continue
            below = found.items() if isinstance(found, dict) else ((_ITEM, one) for one in _list(found))
            further = []
            for i, (step, one) in enumerate(below):
                left -= 1
                if left < 0:
                    raise ParseError(f"more than {_MAX_WALKED} fields", field=self._at)
                if one is None:
                    continue
                here = (*at, step)
                path = f"{shown}[{i}]" if isinstance(found, list) else f"{shown}.{step[:_MAX_SHOWN]}"
                if step not in known or here in self._refused or here in self._wishes:
                    yield here, path, one in ("", {}, []) or one is False or one == 0
                else:
                    further.append((one, known[step], here, path))
            todo += reversed(further)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

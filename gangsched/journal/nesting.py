"""Nesting: the expanded size and depth of values while a state is read.

A value that may be a key is hashed as a whole, with a shared part once for each of its places, by recursion
in C. So a hundred bytes may take unlimited time, or more than the stack holds. Called by journal.state.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gangsched.errors import ParseError

# A state of 5,000 nodes has tuples of some thousand values, nested five levels deep.
_MAX_VALUES = 2**20
_MAX_DEPTH = 100
_FLAT = 2


class Nesting:
    """Weighs values as they are made, parts first."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int, Any]] = {}
        """By id, for values nested more than two levels: the number of expanded values, the depth, and the
        value itself, so that its id stays taken.
        """

    def weigh(self, made: Any, parts: Iterable[Any]) -> None:
        """Takes in a value made of these parts. Raises: ParseError."""
        n, depth = 1, 1
        for part in parts:
            n_of_it, its_depth = self._of(part)
            n += n_of_it
            depth = max(depth, its_depth + 1)
        if n > _MAX_VALUES or depth > _MAX_DEPTH:
            raise ParseError("has values within values as no state of a core has them")
        if depth > _FLAT:
            self._known[id(made)] = n, depth, made

    def _of(self, part: Any) -> tuple[int, int]:
        if (known := self._known.get(id(part))) is not None:
            return known[:2]
        if isinstance(part, tuple | frozenset):
            return 1 + len(part), _FLAT
        return (1 + len(part.__struct_fields__), _FLAT) if isinstance(part, msgspec.Struct) else (1, 1)


def weighed(unpickler: Any) -> dict[int, Callable[[Any], None]]:
    """Returns weighing steps for tuples and frozensets, by opcode, for unpicklers with a `nesting`."""
    load = unpickler.dispatch
    codes = (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.FROZENSET)
    return {code[0]: _then_weighs(load[code[0]]) for code in codes}


def _then_weighs(load: Callable[[Any], None]) -> Callable[[Any], None]:
    def loaded(reader: Any) -> None:
        load(reader)
        reader.nesting.weigh(reader.stack[-1], reader.stack[-1])

    return loaded

"""Nesting: how much one value stands for, and how deep it is, while a state is read.

A value that may be a key is hashed: all of it, once for each place at which it is in itself, and by recursion
in C. A hundred bytes can stand for more than anybody waits for, or for more than the stack holds. Called by
journal.state.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gangsched.errors import ParseError

# A state of 5,000 nodes has tuples of some thousand values, in one another five levels deep.
_MAX_VALUES = 2**20
_MAX_DEPTH = 100
_FLAT = 2


class Nesting:
    """Weighs values as they are made, parts first."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int, Any]] = {}
        """By id, of what has others in it that have others: how many values it is, written out, its depth,
        and itself, which keeps its id."""

    def weigh(self, made: Any, parts: Iterable[Any]) -> None:
        """A value that has these in it. Raises: ParseError."""
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
    """pickle's steps that make tuples and frozensets, by code, for an unpickler that has a `nesting`."""
    load = unpickler.dispatch
    codes = (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.FROZENSET)
    return {code[0]: _then_weighs(load[code[0]]) for code in codes}


def _then_weighs(load: Callable[[Any], None]) -> Callable[[Any], None]:
    def loaded(reader: Any) -> None:
        load(reader)
        reader.nesting.weigh(reader.stack[-1], reader.stack[-1])

    return loaded

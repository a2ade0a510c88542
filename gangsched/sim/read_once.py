"""Reading each document once: the checkers look at the same ones after every step."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

_MAX_REMEMBERED = 8192

_Document = TypeVar("_Document")
_Read = TypeVar("_Read")


def read_once(read: Callable[[_Document], _Read]) -> Callable[[_Document], _Read]:
    """Reads each document once: a change in the store makes another object, and results are not written to.

    By identity, as documents cannot be hashed. Each is kept alive, so that no other gets its identity.
    """
    kept: dict[int, tuple[_Document, _Read]] = {}

    @wraps(read)
    def once(document: _Document) -> _Read:
        found = kept.get(id(document))
        if found is None:
            if len(kept) >= _MAX_REMEMBERED:
                kept.clear()
            found = kept[id(document)] = (document, read(document))
        return found[1]

    return once

"""The least that any of several pods requests, of what all request: it bounds how many share a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

Key = TypeVar("Key")


def least_asked(requests: Sequence[Mapping[Key, int]]) -> list[tuple[Key, int]]:
    """(resource, amount) in the order of the first request's resources; amounts above 0."""
    first, *others = requests
    least = ((key, min([n, *(one.get(key, 0) for one in others)])) for key, n in first.items())
    return [(key, n) for key, n in least if n > 0]

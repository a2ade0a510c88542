"""Texts that count how often they are compared, for tests that long lists are indexed and not searched."""

from __future__ import annotations


class Compared(str):
    """n_times: of all of them together."""

    n_times = 0

    def __eq__(self, other: object) -> bool:
        Compared.n_times += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)

"""The natural order of names, as people count: rack-10 comes after rack-2."""

from __future__ import annotations

import re

Natural = tuple[str | int, ...]
"""Text and numbers in turns, text first, so that any two can be compared."""

_NUMBER = re.compile(r"([0-9]+)")
# Addresses and digests: their numbers count nothing, and a journal that is written under other names keeps
# only their order as text (gangsched.journal.anonymise).
_TEXT = re.compile(r"(?:[0-9]{1,3}[-.]){3}[0-9]|[0-9a-f]{12}")


def natural(name: str) -> Natural:
    """Returns a key that sorts names naturally."""
    if _TEXT.search(name):
        return (name,)
    parts: list[str | int] = list(_NUMBER.split(name))
    for at in range(1, len(parts), 2):
        parts[at] = int(parts[at])
    return tuple(parts)

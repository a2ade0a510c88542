"""A plain parser of objects' texts: JSON and numbers of members; None for what cannot be read.

Shared by the checkers, and by nothing that they check. Called by lab.sim.reading.documents,
lab.sim.reading.roles, lab.sim.judges.gangs.starts and lab.sim.judges.places.asked_devices.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

_MAX_MEMBERS = 100_000


def json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def whole_number(value: object, *, at_least: int = 1) -> int | None:
    """Reads how many members, from a number or a text of digits."""
    return _number(str(value), at_least)


@lru_cache(maxsize=4096)
def _number(text: str, at_least: int) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if is_number and at_least <= int(text) <= _MAX_MEMBERS else None

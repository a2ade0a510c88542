"""What somebody could have done to a file: a byte, a value, a whole record, for the tests that read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**53, 2**63, -(2**63), 2**70, 1e308, -1e308, 1.5),
    *("", "a" * 5000, "\x00", "\x1b[31m", "\u202e", "[red]", "9" * 400, "-5", "1Ei", "0.0000001", "nan"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "../../x", "/", "a/b/c"),
    *([], {}, [[]], [None], {"a": None}),
)
_DEEP = 100_000


def mutated(rng: Random, body: bytes) -> bytes:
    """JSON with a value or three replaced, most by their like; or bytes, or a depth that no reader has."""
    if rng.random() < 0.1:
        return with_bytes(rng, body)
    try:
        whole = json.loads(body)
    except (ValueError, RecursionError):
        return with_bytes(rng, body)
    for _ in range(rng.choice((1, 1, 1, 3))):
        path = rng.choice(list(_paths(whole)))
        if not path:
            continue
        *above, last = path
        at = whole
        for key in above:
            at = at[key]
        if rng.random() < 0.15:
            del at[last]
        else:
            alike = [one for one in HOSTILE if type(one) is type(at[last])]
            at[last] = rng.choice(alike if alike and rng.random() < 0.85 else HOSTILE)
    text = json.dumps(whole, separators=(",", ":"))
    if rng.random() < 0.03:
        text = f"{text[:-1]},{'[' * _DEEP}{text[-1]}"
    return text.encode()


def with_bytes(rng: Random, body: bytes) -> bytes:
    """Some bytes are others, are missing, or come again."""
    found = bytearray(body)
    for _ in range(rng.randint(1, 8)):
        if found:
            found[rng.randrange(len(found))] = rng.randrange(256)
    if rng.random() < 0.2:
        del found[rng.randrange(len(found) + 1) :]
    if rng.random() < 0.2:
        at = rng.randrange(len(found) + 1)
        found[at:at] = found[: rng.randrange(200)]
    return bytes(found)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from _paths(value[key], (*path, key))
    elif isinstance(value, list):
        for at in range(len(value)):
            yield from _paths(value[at], (*path, at))

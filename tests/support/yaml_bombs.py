"""YAML that is short and ends a reader without limits: the same for all that read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
MERGES = "b0: &b0 {a: 1}\n" + "".join(
    f"b{i}: &b{i} {{<<: [{', '.join([f'*b{i - 1}'] * 10)}]}}\n" for i in range(1, 9)
)
# What each is told; the line is that of the bomb's own.
BOMBS: Mapping[str, tuple[str, str]] = {
    "aliases of aliases": (LAUGHS, "with what its aliases repeat it has more than 1000000 values"),
    "merges of merges": (MERGES, "with what its aliases repeat it has more than 1000000 values"),
    "an alias within its anchor": ("a: &a {b: [*a]}\n", "*a stands within what it refers to"),
    "a number to the base 60": ("a: 1" + ":1" * 200_000 + "\n", "a number has 400001 characters"),
    "a number with a point": ("a: 1" + ":1" * 200_000 + ".5\n", "a number has 400003 characters"),
    "a number to the base 16": ("a: 0x" + "f" * 400_000 + "\n", "a number has 400002 characters"),
    "a tagged number": (f"a: !!int '{'9' * 5000}'\n", "a number has 5000 characters"),
    "a tag on another kind of value": ("a: !!bool abc\n", "'abc' is no !!bool"),
    "a number of no digits": ("a: !!int ''\n", "'' is no !!int"),
    "a number of a point's tag and no digits": ("a: !!float _\n", "'_' is no !!float"),
    "a time that is none": ("a: !!timestamp soon\n", "'soon' is no !!timestamp"),
    "depth": ("a: " + "[" * 100_000 + "\n", "is nested more than 100 levels deep"),
}


def refused(bomb: str, read: Callable[[str], object], kind: type[Exception], before: str = "") -> None:
    """Asserts that `read` raises a `kind` that names the bomb."""
    text, said = BOMBS[bomb]
    with pytest.raises(kind, match=re.escape(said)) as caught:
        read(before + text)
    assert "\n" not in str(caught.value)

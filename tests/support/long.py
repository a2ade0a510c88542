"""Comparisons by the hundreds: `make check` runs the first few of their cases, `make test` all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def all_but(n_quick: int, values: Iterable[Any]) -> list[Any]:
    """Returns cases for `parametrize`: those after the first n_quick are marked `long`. A tuple is several
    arguments, as there."""
    cases: list[Any] = []
    for at, value in enumerate(values):
        marks = () if at < n_quick else (pytest.mark.long,)
        cases.append(pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks))
    return cases

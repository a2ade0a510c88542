"""Kubernetes quantities ("500m", "64Gi", "1e3") as exact integers: the one place that rounds units.

Called by model.resources and by readers of a single quantity. Source of the grammar and of rounding
up: k8s.io/apimachinery `pkg/api/resource/quantity.go`.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from gangsched.errors import ParseError

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)"
)

_SUFFIX: dict[str, Decimal] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip

MAX_VALUE = 2**61
"""Larger quantities and sums count as this much, 2 EiB. An int64 holds three of them: what a node has, what
is used beyond that, and another pod's request.
"""
# The API server writes a dozen; a megabyte of digits must not reach arithmetic.
_MAX_CHARS = 8192


def _parse(text: str) -> Decimal:
    if len(text) > _MAX_CHARS:
        raise ParseError(f"a quantity of {len(text)} characters, at most {_MAX_CHARS}: {text[:40]!r}…")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ParseError(f"{text[:80]!r} is not a quantity; examples: 2, 500m, 64Gi, 1e3")
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _SUFFIX[suffix or ""]


@lru_cache(maxsize=16384)
def to_int(text: str) -> int:
    """Whole units, rounded up (bytes, devices, pods). Raises: ParseError."""
    if text.isascii() and text.isdecimal() and len(text) < 18:
        return int(text)
    return _clamp(_parse(text))


def saturated(amount: int) -> int:
    """Clamps a sum of quantities to MAX_VALUE."""
    if -MAX_VALUE <= amount <= MAX_VALUE:  # nearly always, and twice as fast as min and max
        return amount
    return MAX_VALUE if amount > 0 else -MAX_VALUE


@lru_cache(maxsize=16384)
def to_milli(text: str) -> int:
    """Thousandths, rounded up (cpu). Raises: ParseError."""
    return _clamp(_parse(text) * 1000)


def _clamp(value: Decimal) -> int:
    return saturated(int(value.to_integral_value(rounding=ROUND_CEILING)))

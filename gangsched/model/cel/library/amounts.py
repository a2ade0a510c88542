"""Quantities and semantic versions, compared and computed as Kubernetes does it.

Source: k8s.io/apimachinery v0.37.1 `pkg/api/resource`, blang/semver v4.0.0, k8s.io/apiserver v0.37.1
`pkg/cel/library/quantity.go` and `semverlib.go`.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

from gangsched.model.cel.library.functions import overloads, reads_as
from gangsched.model.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    Fault,
    Run,
    Value,
    a_type,
    define,
    same_type_only,
)

_MAX_CHARS = 256
# One with a larger exponent would be a number of that many digits.
_MAX_EXPONENT = 400
_QUANTITY = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,18})", re.ASCII)
_NANO = -9
# Kubernetes keeps this many digits in an int64, and knows only of such quantities whether they are whole.
_SHORT_DIGITS = 18
_SHORT_BINARY_DIGITS = 14


class Quantity(NamedTuple):
    """`digits` times ten to the power of `exponent`.

    is_short: Kubernetes keeps it in an int64. is_computed: made by add or sub.
    """

    digits: int
    exponent: int = 0
    is_short: bool = True
    is_computed: bool = False


@lru_cache(maxsize=4096)
def read_quantity(text: str) -> Quantity:
    """Reads 500m, 64Gi, 1e3. Raises: Fault."""
    found = _QUANTITY.fullmatch(text) if 0 < len(text) <= _MAX_CHARS else None
    if found is None:
        raise Fault(f"{text[:40]!r} is not a quantity; examples: 2, 500m, 64Gi, 1e3")
    sign, whole, fraction, suffix = found[1], found[2] or "0", found[3] or "", found[4]
    base, power = _scale_of(text, suffix)
    digits = int(whole + fraction)
    exponent = -len(fraction)
    n_digits = len(whole) + len(fraction)
    if base == 10:
        exponent += power
        is_short = n_digits <= _SHORT_DIGITS and exponent >= _NANO
    else:
        digits *= 2**power
        is_short = not fraction and len(whole) + power * 3 // 10 <= _SHORT_BINARY_DIGITS and digits <= INT_MAX
    if not is_short:
        digits, exponent = _rounded(digits, exponent)
        if base == 2 and digits > INT_MAX * 10**-exponent:
            digits, exponent = INT_MAX, 0
    return Quantity(-digits if sign == "-" else digits, exponent, is_short)


def _scale_of(text: str, suffix: str) -> tuple[int, int]:
    """Returns the base and the power that the suffix stands for."""
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix]
    if suffix in _BINARY:
        return 2, _BINARY[suffix]
    found = _EXPONENT.fullmatch(suffix)
    if found is None or abs(int(found[1])) > _MAX_EXPONENT:
        raise Fault(f"{text[:40]!r} is not a quantity: what is {suffix[:20]!r}?")
    return 10, int(found[1])


def _rounded(digits: int, exponent: int) -> tuple[int, int]:
    """Returns a positive amount in billionths, rounded up."""
    if digits == 0:
        return digits, exponent
    if exponent >= _NANO:
        return digits * 10 ** (exponent - _NANO), _NANO
    return -(-digits // 10 ** (_NANO - exponent)), _NANO


def _order(one: Quantity, other: Quantity) -> int:
    low = min(one.exponent, other.exponent)
    left: int = one.digits * 10 ** (one.exponent - low)
    right: int = other.digits * 10 ** (other.exponent - low)
    return (left > right) - (left < right)


def _plus(one: Quantity, other: Quantity) -> Quantity:
    if one.is_short and other.is_short and 0 in (one.digits, other.digits):
        return (one if other.digits == 0 else other)._replace(is_computed=True)
    low = min(one.exponent, other.exponent)
    parts = one.digits * 10 ** (one.exponent - low), other.digits * 10 ** (other.exponent - low)
    is_short = (
        one.is_short and other.is_short and all(INT_MIN <= part <= INT_MAX for part in (*parts, sum(parts)))
    )
    return Quantity(sum(parts), low, is_short, is_computed=True)


def _minus(one: Quantity, other: Quantity) -> Quantity:
    return _plus(one, other._replace(digits=-other.digits))


def _whole(quantity: Quantity) -> int | None:
    """Returns the int, None if Kubernetes does not take the quantity for one."""
    if not quantity.is_short or quantity.exponent < 0:
        return None
    whole = quantity.digits * 10**quantity.exponent
    return whole if INT_MIN <= whole <= INT_MAX else None


def _as_integer(quantity: Quantity) -> int:
    whole = _whole(quantity)
    if whole is None:
        raise Fault("the quantity is not a whole number of 64 bits")
    return whole


def _as_float(quantity: Quantity) -> float:
    try:
        digits = float(quantity.digits)
    except OverflowError:
        digits = math.copysign(math.inf, quantity.digits)
    # Powers of ten as Go has them: from two tables, which is not always the nearest double.
    sign, power = (-1, -quantity.exponent) if quantity.exponent < 0 else (1, quantity.exponent)
    high, low = float(f"1e{sign * (power - power % 32)}"), float(f"1e{power % 32}")
    return digits * (high / low if sign < 0 else high * low)


def _equal_quantities(one: Value, other: Value, run: Run) -> bool:
    # cel-go does not compare with a quantity that add or sub has made, only the other way round.
    if type(other) is not Quantity or other.is_computed:
        raise Fault(f"a quantity is not compared with {a_type(other)} here")
    return _order(one, other) == 0


define(Quantity, "kubernetes.Quantity", _equal_quantities)
overloads("quantity", {(str,): read_quantity})
overloads("isQuantity", {(str,): reads_as(read_quantity)})
overloads("sign", {(Quantity,): lambda one: (one.digits > 0) - (one.digits < 0)})
overloads("isGreaterThan", {(Quantity, Quantity): lambda one, other: _order(one, other) > 0})
overloads("isLessThan", {(Quantity, Quantity): lambda one, other: _order(one, other) < 0})
overloads("compareTo", {(Quantity, Quantity): _order})
overloads("asApproximateFloat", {(Quantity,): _as_float})
overloads("asInteger", {(Quantity,): _as_integer})
overloads("isInteger", {(Quantity,): lambda one: _whole(one) is not None})
overloads("add", {(Quantity, Quantity): _plus, (Quantity, int): lambda one, n: _plus(one, Quantity(n))})
overloads("sub", {(Quantity, Quantity): _minus, (Quantity, int): lambda one, n: _minus(one, Quantity(n))})


class Semver(NamedTuple):
    """A semantic version. `before`: what tells whether it is before the release, in an order of tuples."""

    major: int
    minor: int
    patch: int
    before: tuple[tuple[int, int, str], ...]


_VERSION = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
# After all that may be before a release: (0, number, "") and (1, 0, word).
_RELEASE = ((2, 0, ""),)


@lru_cache(maxsize=4096)
def read_semver(text: str) -> Semver:
    """Reads major.minor.patch, with or without what is before the release and the build. Raises: Fault."""
    found = _VERSION.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if found is None:
        raise Fault(f"{text[:40]!r} is not a semantic version; examples: 1.2.3, 1.2.3-beta.1")
    before = (
        tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in found[4].split("."))
        if found[4]
        else _RELEASE
    )
    version = Semver(int(found[1]), int(found[2]), int(found[3]), before)
    if max(*version[:3], *(number for _, number, _ in before)) > UINT_MAX:
        raise Fault(f"{text[:40]!r} is not a semantic version: a number is beyond 64 bits")
    return version


def _normalized(text: str, is_loose: bool) -> Semver:
    """Reads also v1.2.3, 1.2 and 01.2.3 if `is_loose`. Raises: Fault."""
    if not is_loose:
        return read_semver(text)
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise Fault(
            f"{text[:40]!r} is not a semantic version: a short one has no build, and nothing before a release"
        )
    return read_semver(".".join([*parts, "0", "0"][: max(3, len(parts))]))


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    rest = part.lstrip("0")
    return rest if rest[:1] in tuple("123456789") else f"0{rest}"


def _compare_versions(one: Semver, other: Semver) -> int:
    return (one > other) - (one < other)


define(Semver, "kubernetes.Semver", same_type_only(lambda one, other: one == other), is_key=False)
overloads("semver", {(str,): read_semver, (str, bool): _normalized})
overloads(
    "isSemver",
    {
        (str,): reads_as(read_semver),
        (str, bool): lambda text, is_loose: reads_as(lambda one: _normalized(one, is_loose))(text),
    },
)
overloads("isGreaterThan", {(Semver, Semver): lambda one, other: one > other})
overloads("isLessThan", {(Semver, Semver): lambda one, other: one < other})
overloads("compareTo", {(Semver, Semver): _compare_versions})
overloads("major", {(Semver,): lambda one: one.major})
overloads("minor", {(Semver,): lambda one: one.minor})
overloads("patch", {(Semver,): lambda one: one.patch})

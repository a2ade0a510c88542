"""Functions by name and by types of arguments, and those of CEL itself: arithmetic, size, conversions.

A library registers its functions with `overloads` as its module is loaded. An overload is found by the
values' own types when it is called, since nothing checks types beforehand. Texts that a call reads, and texts
and lists that it makes, are charged by their length, unless the function charges for itself. Source: cel-go
v0.29.2 `common/stdlib` and `common/types`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from gangsched.model.cel.values import (
    CHARS_PER_STEP,
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    DeviceMap,
    Fault,
    Run,
    TypeValue,
    Uint,
    Value,
    type_name,
)

Implementation = Callable[..., Any]
Kinds = tuple[type, ...]
"""The types of the arguments, the receiver first."""
ANY = object
"""In place of a type: any."""
_TEXTS = frozenset({str, bytes})
_INT = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:inf|infinity|[0-9._]+(?:e[+-]?[0-9_]+)?)|nan", re.ASCII | re.IGNORECASE)
_HEX_DOUBLE = re.compile(r"[+-]?0x[0-9a-f._]+p[+-]?[0-9]+", re.ASCII | re.IGNORECASE)
_MAX_DIGITS = 20
# Of what a function has been called with in vain, so much is remembered: what is called again and again.
_MAX_REFUSED = 64
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class Function:
    """The overloads of one name."""

    __slots__ = ("_found", "_overloads", "_refused", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._overloads: dict[Kinds, Implementation] = {}
        self._found: dict[Kinds, Implementation] = {}
        self._refused: set[Kinds] = set()

    def add(self, kinds: Kinds, implementation: Implementation) -> None:
        """Adds an overload; it takes the Run, then the arguments."""
        self._overloads[kinds] = implementation

    def overload(self, kinds: Kinds) -> Implementation:
        """Returns the overload for arguments of these types, or one that raises a Fault."""
        found = self._found.get(kinds)
        if found is not None:
            return found
        if kinds not in self._refused:
            for takes, implementation in self._overloads.items():
                if _fit(takes, kinds):
                    self._found[kinds] = implementation
                    return implementation
            if len(self._refused) >= _MAX_REFUSED:
                self._refused.clear()
            self._refused.add(kinds)
        return self._no_overload

    def _no_overload(self, run: Run, *values: Value) -> Value:
        raise Fault(f"{self.name} does not take ({', '.join(map(type_name, values))})")


def _fit(takes: Kinds, kinds: Kinds) -> bool:
    return len(takes) == len(kinds) and all(
        want is kind or want is ANY or (want is dict and kind is DeviceMap)
        for want, kind in zip(takes, kinds, strict=True)
    )


FUNCTIONS: dict[str, Function] = {}


def overloads(name: str, table: Mapping[Kinds, Implementation], *, charging: bool = False) -> None:
    """Registers a function's overloads. charging: they take the Run first and spend the steps themselves."""
    function = FUNCTIONS.setdefault(name, Function(name))
    for kinds, implementation in table.items():
        function.add(kinds, implementation if charging else _charged(implementation, kinds))


def _charged(implementation: Implementation, kinds: Kinds) -> Implementation:
    if not _TEXTS.union({list}).intersection(kinds):
        return lambda run, *values: implementation(*values)

    def charged(run: Run, *values: Value) -> Value:
        run.spend(sum(len(value) for value in values if type(value) in _TEXTS) // CHARS_PER_STEP)
        made = implementation(*values)
        if type(made) in _TEXTS:
            run.spend(len(made) // CHARS_PER_STEP)
        elif type(made) is list:
            run.spend(len(made))
        return made

    return charged


def reads_as(read: Callable[[str], object]) -> Callable[[str], bool]:
    """Returns whether a text is what `read` reads, which raises a Fault for others."""

    def is_one(text: str) -> bool:
        try:
            read(text)
        except Fault:
            return False
        return True

    return is_one


def in_range(value: int) -> int:
    """Returns the int. Raises: Fault (beyond 64 bits)."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise Fault("integer overflow")


def _uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise Fault("unsigned integer overflow")


def _quotient(one: int, other: int) -> int:
    """Divides towards zero."""
    if other == 0:
        raise Fault("division by zero")
    found = abs(int(one)) // abs(int(other))
    return in_range(found if (one < 0) == (other < 0) else -found)


def _remainder(one: int, other: int) -> int:
    return one - other * _quotient(one, other)


def _divided(one: float, other: float) -> float:
    if other != 0:
        return one / other
    if one == 0 or math.isnan(one):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1.0, other)


overloads(
    "+",
    {
        (int, int): lambda a, b: in_range(a + b),
        (Uint, Uint): lambda a, b: _uint(a + b),
        (float, float): lambda a, b: a + b,
        (str, str): lambda a, b: a + b,
        (bytes, bytes): lambda a, b: a + b,
        (list, list): lambda a, b: a + b,
    },
)
overloads(
    "-",
    {
        (int, int): lambda a, b: in_range(a - b),
        (Uint, Uint): lambda a, b: _uint(a - b),
        (float, float): lambda a, b: a - b,
        (int,): lambda a: in_range(-a),
        (float,): lambda a: -a,
    },
)
overloads(
    "*",
    {
        (int, int): lambda a, b: in_range(a * b),
        (Uint, Uint): lambda a, b: _uint(a * b),
        (float, float): lambda a, b: a * b,
    },
)
overloads(
    "/",
    {
        (int, int): _quotient,
        (Uint, Uint): lambda a, b: _uint(a // b) if b else _quotient(a, b),
        (float, float): _divided,
    },
)
overloads("%", {(int, int): _remainder, (Uint, Uint): lambda a, b: _uint(a % b) if b else _quotient(a, b)})
overloads("!", {(bool,): lambda a: not a})
overloads("size", {(kind,): lambda run, value: len(value) for kind in (*_TEXTS, list, dict)}, charging=True)
overloads("type", {(ANY,): lambda value: TypeValue(type_name(value))})
overloads("dyn", {(ANY,): lambda value: value})


def _same(value: Value) -> Value:
    return value


def _integer(text: str) -> int:
    # Python takes long to read thousands of digits, and refuses to.
    digits = text.lstrip("+-").lstrip("0") or "0"
    if _INT.fullmatch(text) is None or len(digits) > _MAX_DIGITS:
        raise Fault(f"{text[:40]!r} is not an integer of 64 bits")
    return -int(digits) if text.startswith("-") else int(digits)


def _int_of_double(value: float) -> int:
    if not INT_MIN < value < INT_MAX:  # also not NaN
        raise Fault("integer overflow")
    return int(value)


def _uint_of_text(text: str) -> Uint:
    if text.startswith(("+", "-")):
        raise Fault(f"{text[:40]!r} is not an unsigned integer")
    return _uint(_integer(text))


def _uint_of_double(value: float) -> Uint:
    if not 0 <= value < UINT_MAX:
        raise Fault("unsigned integer overflow")
    return _uint(int(value))


def _double_of_text(text: str) -> float:
    try:
        if _HEX_DOUBLE.fullmatch(text):
            return float.fromhex(text.replace("_", ""))
        if _DOUBLE.fullmatch(text):
            value = float(text)
            # Beyond a double's range, unless it says so itself.
            if not math.isinf(value) or text.lstrip("+-")[0] in "iI":
                return value
    except (ValueError, OverflowError):
        pass
    raise Fault(f"{text[:40]!r} is not a double")


def _bool_of_text(text: str) -> bool:
    if text not in _BOOLS:
        raise Fault(f"{text[:40]!r} is not a bool")
    return _BOOLS[text]


def utf8(text: str) -> bytes:
    """Writes UTF-8. Raises: Fault (half a character)."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Fault("the string has half a character") from None


def text_of_bytes(value: bytes) -> str:
    """Reads UTF-8. Raises: Fault."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fault("the bytes are not UTF-8") from None


def _digits(value: float) -> tuple[str, int]:
    """Returns the fewest digits that are read as this positive double, and the first one's power of ten."""
    _, digits, exponent = Decimal(repr(value)).as_tuple()
    power = len(digits) + int(exponent) - 1
    return "".join(map(str, digits)).rstrip("0") or "0", power


def plain_text_of_double(value: float) -> str:
    """Writes a finite double without an exponent, as briefly as it is exact: 1.5, 360000000."""
    return format(Decimal(repr(value)).normalize(), "f")


def text_of_double(value: float) -> str:
    """Writes a double as Go's %g does: 1.5, 123456, 1e+06, +Inf, NaN."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    digits, power = _digits(abs(value))
    if value == 0 or -4 <= power < 6:
        return plain_text_of_double(value)
    sign = "-" if value < 0 else ""
    point = "." if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}{digits[1:]}e{'-' if power < 0 else '+'}{abs(power):02d}"


overloads("bool", {(bool,): _same, (str,): _bool_of_text})
overloads("bytes", {(bytes,): _same, (str,): utf8})
overloads("double", {(float,): _same, (int,): float, (Uint,): float, (str,): _double_of_text})
overloads(
    "int",
    {
        (int,): _same,
        (Uint,): lambda a: in_range(int(a)),
        (float,): _int_of_double,
        (str,): lambda a: in_range(_integer(a)),
    },
)
overloads("uint", {(Uint,): _same, (int,): _uint, (float,): _uint_of_double, (str,): _uint_of_text})
overloads(
    "string",
    {
        (str,): _same,
        (bool,): lambda a: "true" if a else "false",
        (int,): str,
        (Uint,): lambda a: str(int(a)),
        (float,): text_of_double,
        (bytes,): text_of_bytes,
    },
)

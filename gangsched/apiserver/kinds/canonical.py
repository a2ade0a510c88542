"""Objects as a Go server would print what it decoded: quantities, and what says nothing left out.

Lives here: the canonical form of quantities and resource lists, the removal of nulls and empty values that
Kubernetes' types omit. Not here: defaults (each kind's file). Called by the kinds that have such fields.
Source: k8s.io/apimachinery pkg/api/resource/quantity.go, pkg/api/v1 defaults of ResourceList.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Decimal, localcontext
from functools import lru_cache
from typing import Any

from gangsched.apiserver.status import StatusError, bad_request

_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)\Z")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = {0: "", **{power: suffix for suffix, power in _BINARY.items()}}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)\Z")
_MILLI = Decimal("0.001")
_MAX_FAST_DIGITS = 18

_NOT_A_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


class NotAQuantity(ValueError):
    """The message is the real server's."""


class Quantity:
    """A value with the text that it is printed as; compares by value."""

    __slots__ = ("text", "value")

    def __init__(self, text: str, value: Decimal) -> None:
        self.text = text
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


@lru_cache(maxsize=8192)
def quantity(text: str) -> Quantity:
    """What a resource list makes of it: no finer than thousandths, rounded up. Raises: NotAQuantity."""
    match = _FORM.match(text)
    if match is None or not (match[2] or match[3]):
        raise NotAQuantity(_NOT_A_QUANTITY)
    sign, whole, fraction, suffix = match[1], match[2].lstrip("0") or "0", match[3] or "", match[4]
    exponent = _EXPONENT.match(suffix)
    if exponent is None and suffix not in _DECIMAL and suffix not in _BINARY:
        raise NotAQuantity("unable to parse quantity's suffix")
    with localcontext() as context:
        context.prec = 60
        number = Decimal(f"{sign}{whole}.{fraction or '0'}")
        if suffix in _BINARY:
            value = number * 2 ** _BINARY[suffix]
        else:
            value = number.scaleb(int(exponent[1]) if exponent else _DECIMAL[suffix])
        rounded = value.quantize(_MILLI, ROUND_UP) if abs(value) < Decimal(10) ** 50 else value
        if rounded == value and _keeps_its_text(whole, fraction, suffix, exponent):
            return Quantity(text, value)
        if suffix in _BINARY and abs(rounded) >= 1024 and rounded == rounded.to_integral_value():
            return Quantity(_binary_text(int(rounded)), rounded)
        return Quantity(_decimal_text(rounded, exponential=exponent is not None), rounded)


def _keeps_its_text(whole: str, fraction: str, suffix: str, exponent: re.Match[str] | None) -> bool:
    """Whether the server takes the text for canonical without working it out."""
    digits = whole + fraction
    if suffix in _BINARY:
        fits = 15 - len(whole) - int(_BINARY[suffix] * 3 / 10) - 1 >= 0
        return fits and not fraction and int(whole) & 7 != 0
    scale = (int(exponent[1]) if exponent else _DECIMAL[suffix]) - len(fraction)
    if digits == "0":
        return False
    return (
        len(digits) <= _MAX_FAST_DIGITS
        and scale >= -9
        and scale % 3 == 0
        and not digits.endswith("000")
        and digits[0] != "0"
    )


def _binary_text(value: int) -> str:
    power = 0
    while value and value % 1024 == 0 and power < 60:
        value //= 1024
        power += 10
    return f"{value}{_BINARY_SUFFIX[power]}"


def _decimal_text(value: Decimal, *, exponential: bool) -> str:
    if not value:
        return "0"
    sign, digits, scale = value.as_tuple()
    mantissa, power = int("".join(map(str, digits))), int(scale)
    while mantissa % 10 == 0:
        mantissa //= 10
        power += 1
    while power % 3:
        mantissa *= 10
        power -= 1
    lead = "-" if sign else ""
    if not exponential and power in _SUFFIX:
        return f"{lead}{mantissa}{_SUFFIX[power]}"
    return f"{lead}{mantissa}e{power}" if power else f"{lead}{mantissa}"


def canonical_list(found: Any, kind: str, version: str = "v1") -> None:
    """Write a resource list's quantities in their canonical form, in place. Raises: StatusError 400."""
    if not found:
        return
    for name, given in found.items():
        text = given if type(given) is str else str(given)
        try:
            found[name] = quantity(text.strip()).text
        except NotAQuantity as error:
            raise not_decoded(kind, version, str(error)) from None


def not_decoded(kind: str, version: str, why: str) -> StatusError:
    """As the server answers a body that cannot be decoded into the kind's type."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


# Maps of strings, or of quantities: an empty one says nothing, and what is in one is the user's.
_MAPS = frozenset(
    ("annotations", "data", "labels", "limits", "matchLabels", "nodeSelector", "overhead", "requests")
)
# Not pointers in Go and omitted when false or zero: the same as not said.
_OMITTED_IF_ZERO = frozenset(
    [
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPort",
        "initialDelaySeconds",
        "readOnly",
        "stdin",
        "stdinOnce",
        "tty",
    ]
)


def tidy(obj: dict[str, Any]) -> None:
    """Take out what says nothing (null, empty text, empty lists), in place; never looks into maps."""
    drop: list[str] = []
    for key, value in obj.items():
        if type(value) is dict:
            if key not in _MAPS:
                tidy(value)
            elif not value:
                drop.append(key)
        elif type(value) is list:
            if not value:
                drop.append(key)
            elif type(value[0]) is dict:
                for each in value:
                    if type(each) is dict:
                        tidy(each)
        elif value is None or value == "" or (not value and key in _OMITTED_IF_ZERO):
            drop.append(key)
    for key in drop:
        del obj[key]

"""Quantities and times as the server writes them back: `0.5` is `500m`, `1024Mi` is `1Gi`.

Lives here: the canonical texts, and the errors for invalid ones. Not here: quantities as numbers
(model/text/quantity.py). Called by decode.py. Source: k8s.io/apimachinery pkg/api/resource/quantity.go and
pkg/apis/meta/v1/time.go; the wording of Go's time.Parse.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import ROUND_UP, Decimal, localcontext
from functools import lru_cache

from gangsched.api_rules.status import quoted

_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)\Z")
_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)\Z")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = {0: "", **{power: suffix for suffix, power in _BINARY.items()}}
_NANO, _MILLI = Decimal("1e-9"), Decimal("0.001")
# A number with this many digits always fits an int64.
_MAX_DIGITS = 18
_DIGITS = 60
# Decimal does not calculate beyond a million digits. The real server computes such a number until the request
# times out, and rejects an exponent that is no int64 in the same words as here.
_EXPONENT_DIGITS = 6
_WRONG_SUFFIX = "unable to parse quantity's suffix"


class BadText(ValueError):
    """The text cannot be parsed; the message is the server's."""


class Quantity:
    """A value with its canonical text; compares by value."""

    __slots__ = ("text", "value")

    def __init__(self, text: str, value: Decimal) -> None:
        self.text = text
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def canonical_quantity(text: str) -> str:
    """Raises: BadText."""
    return quantity(text).text


@lru_cache(maxsize=8192)
def quantity(text: str, *, in_list: bool = False) -> Quantity:
    """Parses a quantity, or one in a resource list, where it is no finer than thousandths. Raises: BadText.

    Digits finer than the server keeps are rounded away from zero.
    """
    match = _FORM.match(text)
    if match is None or not (match[2] or match[3]):
        raise BadText(_WRONG_FORMAT)
    sign, whole, fraction, suffix = match[1], match[2].lstrip("0") or "0", match[3] or "", match[4]
    exponent = _EXPONENT.match(suffix)
    if exponent is None and suffix not in _DECIMAL and suffix not in _BINARY:
        raise BadText(_WRONG_SUFFIX)
    if exponent is not None and len(exponent[1].lstrip("+-0")) > _EXPONENT_DIGITS:
        raise BadText(_WRONG_SUFFIX)
    with localcontext() as context:
        context.prec = _DIGITS
        number = Decimal(f"{sign}{whole}.{fraction or '0'}")
        try:
            if suffix in _BINARY:
                value = number * 2 ** _BINARY[suffix]
            else:
                value = number.scaleb(int(exponent[1]) if exponent else _DECIMAL[suffix])
        except ArithmeticError:
            raise BadText(_WRONG_SUFFIX) from None
        rounded = value
        if value.adjusted() < _DIGITS - 10:
            rounded = value.quantize(_MILLI if in_list else _NANO, ROUND_UP)
        if rounded == value and _keeps_its_text(whole, fraction, suffix, exponent):
            return Quantity(text, value)
        if suffix in _BINARY and abs(rounded) >= 1024 and rounded == rounded.to_integral_value():
            return Quantity(_binary_text(int(rounded)), rounded)
        return Quantity(_decimal_text(rounded, exponential=exponent is not None), rounded)


def _keeps_its_text(whole: str, fraction: str, suffix: str, exponent: re.Match[str] | None) -> bool:
    """Whether the server accepts the text as canonical without parsing it."""
    digits = whole + fraction
    if suffix in _BINARY:
        fits = 15 - len(whole) - int(_BINARY[suffix] * 3 / 10) - 1 >= 0
        return fits and not fraction and int(whole) & 7 != 0
    scale = (int(exponent[1]) if exponent else _DECIMAL[suffix]) - len(fraction)
    return (
        len(digits) <= _MAX_DIGITS
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
    if not exponential and power in _DECIMAL_SUFFIX:
        return f"{lead}{mantissa}{_DECIMAL_SUFFIX[power]}"
    return f"{lead}{mantissa}e{power}" if power else f"{lead}{mantissa}"


_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICROSECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def canonical_time(text: str, *, micro: bool) -> str:
    """Returns RFC 3339 in UTC, with whole seconds or six decimals. Raises: BadText."""
    if (_MICROSECONDS if micro else _SECONDS).fullmatch(text) and _is_date(text):
        return text
    layout = [("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T")]
    layout += [("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d")]
    # A fraction may follow the seconds although the layout has none.
    layout += [(".000000", r"\.\d{6,9}" if micro else r"(\.\d+)?"), ("Z07:00", r"Z|[+-]\d\d:\d\d")]
    shape = "".join(element for element, _ in layout if micro or element != ".000000")
    at = 0
    for element, pattern in layout:
        found = re.compile(pattern).match(text, at)
        if not found:
            raise BadText(
                f"parsing time {quoted(text)} as {quoted(shape)}: "
                f"cannot parse {quoted(text[at:])} as {quoted(element)}"
            )
        at = found.end()
    if at < len(text):
        raise BadText(f"parsing time {quoted(text)}: extra text: {quoted(text[at:])}")
    if not _is_date(text):
        raise BadText(f"parsing time {quoted(text)}: out of range")
    moment = datetime.fromisoformat(_six_decimals(text)).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(_six_decimals(text))
    except ValueError:
        return False
    return True


def _six_decimals(text: str) -> str:
    return re.sub(r"(\.\d{6})\d+", r"\1", text)

"""Quantities and times as the server writes them back: `0.5` is `500m`, `1024Mi` is `1Gi`.

Lives here: the canonical texts and what is said of those that are none. Not here: quantities to calculate
with (model/quantity.py). Called by decode.py. Source: k8s.io/apimachinery pkg/api/resource/quantity.go and
pkg/apis/meta/v1/time.go; the wording of Go's time.Parse.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from gangsched.apiserver.status import quoted

_FORMAT = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()}


class BadText(ValueError):
    """The text is none; the message is what the server says."""


@lru_cache(maxsize=4096)
def canonical_quantity(text: str) -> str:
    """Raises: BadText."""
    found = _FORMAT.fullmatch(text)
    if not found or not _NUMBER.fullmatch(found[1]):
        raise BadText(_WRONG_FORMAT)
    number, suffix = Fraction(found[1]), found[2]
    if suffix in _BINARY:
        whole = _up(number * 1024 ** _BINARY[suffix])
        if abs(whole) >= 1024:
            power = 0
            while power < 6 and whole % 1024 == 0:
                whole //= 1024
                power += 1
            return f"{whole}{_BINARY_SUFFIX.get(power, '')}"
        return _decimal(number * 1024 ** _BINARY[suffix], exponent=False)
    if suffix in _DECIMAL:
        return _decimal(number * Fraction(10) ** _DECIMAL[suffix], exponent=False)
    exponent = re.fullmatch(r"[eE]([+-]?[0-9]+)", suffix)
    if not exponent:
        raise BadText("unable to parse quantity's suffix")
    return _decimal(number * Fraction(10) ** int(exponent[1]), exponent=True)


def _decimal(value: Fraction, *, exponent: bool) -> str:
    power = 0
    while value.denominator != 1 and power > -9:
        value *= 1000
        power -= 3
    whole = _up(value)
    while whole and whole % 1000 == 0 and power < 18:
        whole //= 1000
        power += 3
    if exponent:
        return f"{whole}e{power}" if power else str(whole)
    return f"{whole}{_DECIMAL_SUFFIX[power]}"


def _up(value: Fraction) -> int:
    """Away from zero, as the server rounds what is finer than it keeps."""
    whole = -(-abs(value).numerator // value.denominator)
    return whole if value >= 0 else -whole


_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICROSECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def canonical_time(text: str, *, micro: bool) -> str:
    """RFC 3339 in UTC, whole seconds or six decimals. Raises: BadText."""
    if (_MICROSECONDS if micro else _SECONDS).fullmatch(text) and _is_date(text):
        return text
    layout = [("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T")]
    layout += [("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d")]
    # A fraction may follow the seconds though the layout has none.
    layout += [(".000000", r"\.\d{6,9}" if micro else r"(\.\d+)?"), ("Z07:00", r"Z|[+-]\d\d:\d\d")]
    said = "".join(element for element, _ in layout if micro or element != ".000000")
    at = 0
    for element, pattern in layout:
        found = re.compile(pattern).match(text, at)
        if not found:
            raise BadText(
                f"parsing time {quoted(text)} as {quoted(said)}: "
                f"cannot parse {quoted(text[at:])} as {quoted(element)}"
            )
        at = found.end()
    if at < len(text):
        raise BadText(f"parsing time {quoted(text)}: extra text: {quoted(text[at:])}")
    if not _is_date(text):
        raise BadText(f"parsing time {quoted(text)}: {_out_of_range(text)} out of range")
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


def _out_of_range(text: str) -> str:
    limits = (("month", 5, 1, 12), ("day", 8, 1, 31), ("hour", 11, 0, 23), ("minute", 14, 0, 59))
    for name, at, low, high in limits:
        if not low <= int(text[at : at + 2]) <= high:
            return name
    return "second" if int(text[17:19]) > 59 else "day"

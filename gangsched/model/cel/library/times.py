"""Durations and timestamps: reading and writing them as Go does, their arithmetic and their parts.

Time zones are UTC or offsets as +01:30. Zones with a name are refused: what they mean depends on the
machine's data, and a decision must not. Source: cel-go v0.29.2 `common/types`, Go's time.ParseDuration and
time.Parse.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from gangsched.model.cel.library.functions import in_range, overloads, plain_text_of_double
from gangsched.model.cel.values import INT_MAX, YEAR_ONE_NANOS, Duration, Fault, Timestamp

_NANO = 10**9
_LAST_NANOS = 253402300800 * _NANO - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6,
    "s": _NANO, "m": 60 * _NANO, "h": 3600 * _NANO,
}  # fmt: skip
_MAX_DURATION_CHARS = 1000
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
)
_OFFSET = re.compile(r"([+-]?[0-9]{1,18}):([+-]?[0-9]{1,18})", re.ASCII)


def read_duration(text: str) -> Duration:
    """Reads a sum of numbers with units: 1h30m, 1.5s, -5ms. Raises: Fault."""
    wrong = Fault(f"{text[:40]!r} is not a duration; examples: 1h30m, 1.5s")
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return Duration(0)
    if not rest or len(rest) > _MAX_DURATION_CHARS:
        raise wrong
    nanos = at = 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or not (part[1] or part[2]) or part[3] not in _UNITS:
            raise wrong
        nanos += int(part[1] or "0") * _UNITS[part[3]] + _fraction(part[2] or "", _UNITS[part[3]])
        at = part.end()
        if nanos > INT_MAX + 1:
            raise wrong
    if text.startswith("-"):
        return Duration(-nanos)
    if nanos > INT_MAX:
        raise wrong
    return Duration(nanos)


def _fraction(digits: str, unit: int) -> int:
    # In doubles and cut off, as Go does it. It stops before the digits are beyond an int64.
    while int(digits or "0") > INT_MAX:
        digits = digits[:-1]
    return int(float(int(digits or "0")) * (float(unit) / 10.0 ** len(digits)))


def _text_of_duration(duration: Duration) -> str:
    seconds, nanos = divmod(abs(duration.nanos), _NANO)
    value = float(seconds) + nanos / 1e9
    return plain_text_of_double(-value if duration.nanos < 0 else value) + "s"


def read_timestamp(text: str) -> Timestamp:
    """Reads RFC 3339. Raises: Fault."""
    found = _TIMESTAMP.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        day = datetime(int(found[1]), int(found[2]), int(found[3]), tzinfo=UTC)
        hours, minutes, seconds = int(found[4]), int(found[5]), int(found[6])
        offset = int(found[9] or 0) * 60 + int(found[10] or 0)
        if hours > 23 or minutes > 59 or seconds > 59 or int(found[9] or 0) > 24 or int(found[10] or 0) > 60:
            raise ValueError
    except ValueError:
        raise Fault(f"{text[:40]!r} is not a time; example: 2026-01-31T12:00:00Z") from None
    offset = -offset if found[8] == "-" else offset
    whole_s = (day - _EPOCH).days * 86400 + hours * 3600 + minutes * 60 + seconds - offset * 60
    return _timestamp(whole_s * _NANO + int((found[7] or "0")[:9].ljust(9, "0")), offset)


def _timestamp(nanos: int, offset_minutes: int) -> Timestamp:
    if not YEAR_ONE_NANOS <= nanos <= _LAST_NANOS:
        raise Fault("timestamp overflow")
    return Timestamp(nanos, offset_minutes)


def _text_of_timestamp(when: Timestamp) -> str:
    seconds, nanos = divmod(when.nanos, _NANO)
    local = _local(seconds, when.offset_minutes)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    hours, minutes = divmod(abs(when.offset_minutes), 60)
    zone = (
        f"{'-' if when.offset_minutes < 0 else '+'}{hours:02d}:{minutes:02d}" if when.offset_minutes else "Z"
    )
    return f"{local.year:04d}{local:-%m-%dT%H:%M:%S}{fraction}{zone}"


def _local(seconds: int, offset_minutes: int) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=seconds + offset_minutes * 60)
    except OverflowError:
        raise Fault("the time is outside of the years 1 to 9999 in that zone") from None


def _plus(when: Timestamp, duration: Duration) -> Timestamp:
    return _timestamp(when.nanos + duration.nanos, when.offset_minutes)


def _minutes_of(zone: str) -> int:
    if zone in ("", "UTC"):
        return 0
    found = _OFFSET.fullmatch(zone)
    if found is None:
        raise Fault(f"the time zone {zone[:40]!r} is not evaluated here; write an offset such as +01:00")
    hours, minutes = int(found[1]), int(found[2])
    if not 0 <= minutes <= 59:
        raise Fault(f"the time zone {zone[:40]!r} has more than 59 minutes")
    return hours * 60 - minutes if zone.startswith("-") else hours * 60 + minutes


def _whole(duration: Duration, unit: int) -> int:
    # Through a double, as Go does it.
    units, rest = divmod(abs(duration.nanos), unit)
    whole = int(float(units) + rest / float(unit))
    return -whole if duration.nanos < 0 else whole


overloads(
    "duration",
    {(Duration,): lambda duration: duration, (str,): read_duration},
)
overloads(
    "timestamp",
    {
        (Timestamp,): lambda when: when,
        (int,): lambda seconds: _timestamp(seconds * _NANO, 0),
        (str,): read_timestamp,
    },
)
overloads("string", {(Duration,): _text_of_duration, (Timestamp,): _text_of_timestamp})
overloads("int", {(Duration,): lambda one: one.nanos, (Timestamp,): lambda when: when.nanos // _NANO})
overloads(
    "+",
    {
        (Duration, Duration): lambda a, b: Duration(in_range(a.nanos + b.nanos)),
        (Timestamp, Duration): _plus,
        (Duration, Timestamp): lambda a, b: _plus(b, a),
    },
)
overloads(
    "-",
    {
        (Duration, Duration): lambda a, b: Duration(in_range(a.nanos - b.nanos)),
        (Timestamp, Duration): lambda a, b: _plus(a, Duration(in_range(-b.nanos))),
        (Timestamp, Timestamp): lambda a, b: Duration(in_range(a.nanos - b.nanos)),
        (Duration,): lambda a: Duration(in_range(-a.nanos)),
    },
)
_PARTS = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDate": lambda at: at.day,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
}
for _name, _part in _PARTS.items():
    overloads(
        _name,
        {
            (Timestamp,): lambda when, part=_part: part(_local(when.nanos // _NANO, 0)),
            (Timestamp, str): lambda when, zone, part=_part: part(
                _local(when.nanos // _NANO, _minutes_of(zone))
            ),
        },
    )
overloads("getHours", {(Duration,): lambda one: _whole(one, 3600 * _NANO)})
overloads("getMinutes", {(Duration,): lambda one: _whole(one, 60 * _NANO)})
overloads("getSeconds", {(Duration,): lambda one: _whole(one, _NANO)})
overloads(
    "getMilliseconds",
    {
        (Duration,): lambda one: abs(one.nanos) // 10**6 * (-1 if one.nanos < 0 else 1),
        (Timestamp,): lambda when: when.nanos % _NANO // 10**6,
        # The zone changes nothing, but must be one.
        (Timestamp, str): lambda when, zone: when.nanos % _NANO // 10**6 + 0 * _minutes_of(zone),
    },
)

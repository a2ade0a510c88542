"""Values of CEL: how they are represented, equality and order, and what an evaluation may take.

bool, int, float, str, bytes, list and None are CEL's bool, int, double, string, bytes, list and null; a map
is a dict whose keys are those of `key_of`. Types are told apart by `type(value)`, never by isinstance: a uint
is an int to Python. Source: cel-go v0.29.2 `common/types`, and the types of k8s.io/apiserver v0.37.1
`pkg/cel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gangsched.errors import ParseError

Value = Any
"""Any of the values above, or of the classes below and beside this file."""

STEP_LIMIT = 1_000_000
"""The most steps of one evaluation: Kubernetes' limit of CEL's cost, which steps are counted after.

A step takes a tenth of a microsecond, with the slowest functions up to two.
"""
CHARS_PER_STEP = 10
"""As in CEL's cost. A list that is made costs a step an item."""
INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1


class SelectorError(ParseError):
    """A selector that does not compile, or whose evaluation fails on a device.

    `position`: the offset in the expression, in characters; None where it is about all of it.
    """

    def __init__(self, reason: str, *, expression: str = "", position: int | None = None) -> None:
        self.reason = reason
        self.position = position
        where = ""
        if position is not None:
            line = expression.count("\n", 0, position) + 1
            column = position - expression.rfind("\n", 0, position)
            near = expression[position : position + 24].split("\n")[0]
            where = f" (line {line}, column {column}: {near!r})" if near else f" (line {line}, at its end)"
        super().__init__(reason + where)


class Fault(Exception):
    """An error as a value of CEL: `&&`, `||` and their like may do without what failed."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


class Aborted(Exception):
    """The evaluation has ended, since its steps are spent or cel-go's would; nothing does without that."""


def placed(fault: Fault, position: int) -> Fault:
    """Gives a fault its place, unless a part of the expression has done so."""
    if fault.position is None:
        fault.position = position
    return fault


class Run:
    """One evaluation: the device as a map, the values of variables, and the steps that are left."""

    __slots__ = ("device", "left", "patterns", "slots")

    def __init__(self, device: Mapping[str, Value], n_slots: int = 0) -> None:
        self.device = device
        self.slots: list[Value] = [None] * n_slots
        self.left = STEP_LIMIT
        self.patterns: set[str] = set()

    def spend(self, steps: int) -> None:
        """Takes steps. Raises: Aborted."""
        self.left -= steps
        if self.left < 0:
            raise Aborted(f"the evaluation takes more than {STEP_LIMIT} steps")


class Uint(int):
    """CEL's uint."""

    __slots__ = ()


class Duration(NamedTuple):
    """CEL's duration."""

    nanos: int


class Timestamp(NamedTuple):
    """CEL's timestamp: nanoseconds since 1970, and the offset of the zone that it was written in."""

    nanos: int
    offset_minutes: int = 0


class TypeValue(NamedTuple):
    """A type as a value, by name."""

    name: str


class Optional:
    """CEL's optional; ABSENT is the value of one that is empty."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class BoolKey:
    """true or false as the key of a map: Python's own would be the keys 1 and 0."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


class DeviceMap(dict[str, Value]):
    """A map of the device, whose keys are all strings; `default` is found for every other key."""

    __slots__ = ("default",)

    def __init__(self, items: Mapping[str, Value], default: Value) -> None:
        super().__init__(items)
        self.default = default


ABSENT: Value = object()
NONE = Optional(ABSENT)
_BOOL_KEYS = {True: BoolKey(True), False: BoolKey(False)}
NUMBERS = frozenset({int, Uint, float})
_ORDERED = frozenset({bool, str, bytes, Duration})
# What selects a member of a map, and what may be zero.
_SELECTING = frozenset({bool, int, Uint, float, str})
_WITH_ZERO = frozenset({*_SELECTING, bytes, list, dict, DeviceMap})
YEAR_ONE_NANOS = -62135596800 * 10**9
_NAMES: dict[type, str] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes", list: "list",
    dict: "map", DeviceMap: "map", type(None): "null_type", Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp", TypeValue: "type", Optional: "optional_type",
}  # fmt: skip
Equality = Callable[[Value, Value, Run], bool]
_OWN_EQUALITY: dict[type, Equality] = {}
# Values that cel-go cannot look up in a table of its own: the evaluation ends with an error.
_NO_KEYS: set[type] = {bytes}


def type_name(value: Value) -> str:
    """Returns the name of the value's type, as `type(x)` has it."""
    return _NAMES[type(value)]


def a_type(value: Value) -> str:
    """Returns the type for a sentence: "an int", "a string"."""
    name = type_name(value)
    return f"an {name}" if name[0] in "aeio" else f"a {name}"


def is_type_name(name: str) -> bool:
    """Whether an expression may name a type so."""
    return name in _NAMES.values() and not name.startswith("kubernetes.")


def define(kind: type, name: str, equality: Equality, *, is_key: bool = True) -> None:
    """Makes the class a type of CEL. equality: raises Fault for a value that it is not compared with."""
    _NAMES[kind] = name
    _OWN_EQUALITY[kind] = equality
    if not is_key:
        _NO_KEYS.add(kind)


def same_type_only(is_equal: Callable[[Value, Value], bool]) -> Equality:
    """Returns the equality of values that are only compared with their like."""

    def equality(one: Value, other: Value, run: Run) -> bool:
        if type(one) is not type(other):
            raise Fault(f"{a_type(one)} is not compared with {a_type(other)}")
        return is_equal(one, other)

    return equality


def equal(one: Value, other: Value, run: Run) -> bool:
    """CEL's `==`: numbers by value, whatever their types. Raises: Fault, Aborted."""
    if one is None or other is None:
        return one is other
    return equal_to(one, other, run)


def equal_to(one: Value, other: Value, run: Run) -> bool:
    """As `equal`; but types of Kubernetes are not compared with null either. Raises: Fault, Aborted."""
    kind, other_kind = type(one), type(other)
    if kind in NUMBERS:
        if other_kind not in NUMBERS:
            return False
        if kind is float or other_kind is float:
            return float(one) == float(other)
        return bool(one == other)
    if kind is str or kind is bytes:
        run.spend(len(one) // CHARS_PER_STEP)
        return kind is other_kind and bool(one == other)
    if kind is list:
        return other_kind is list and len(one) == len(other) and _are_equal(zip(one, other, strict=True), run)
    if kind is dict or kind is DeviceMap:
        if (other_kind is not dict and other_kind is not DeviceMap) or len(one) != len(other):
            return False
        pairs = ((value, find(other, plain_key(key))) for key, value in one.items())
        return _are_equal(pairs, run)
    if kind is Timestamp:
        return other_kind is Timestamp and one.nanos == other.nanos
    if kind is Optional:
        if other_kind is not Optional or one.value is ABSENT or other.value is ABSENT:
            return other_kind is Optional and one.value is other.value
        return equal_to(one.value, other.value, run)
    own = _OWN_EQUALITY.get(kind)
    if own is not None:
        return own(one, other, run)
    return kind is other_kind and bool(one == other)


def _are_equal(pairs: Iterator[tuple[Value, Value]], run: Run) -> bool:
    for one, other in pairs:
        run.spend(1)
        if other is ABSENT:
            return False
        try:
            if not equal(one, other, run):
                return False
        except Fault:
            # Within lists and maps, cel-go takes what cannot be compared as equal.
            continue
    return True


def contains(values: list[Value], value: Value, run: Run) -> bool:
    """CEL's `in` for lists. Raises: Aborted."""
    for one in values:
        run.spend(1)
        try:
            if equal_to(value, one, run):
                return True
        except Fault:
            continue
    return False


def compare(one: Value, other: Value) -> int:
    """Returns -1, 0 or 1. Raises: Fault (types without an order between them, NaN)."""
    kind, other_kind = type(one), type(other)
    if kind in NUMBERS and other_kind in NUMBERS:
        if kind is float or other_kind is float:
            one, other = float(one), float(other)
            if math.isnan(one) or math.isnan(other):
                raise Fault("NaN has no order")
    elif kind is Timestamp and other_kind is Timestamp:
        one, other = one.nanos, other.nanos
    elif kind is not other_kind or kind not in _ORDERED:
        raise Fault(f"there is no order between {a_type(one)} and {a_type(other)}")
    return int(one > other) - int(one < other)


def is_ordered(value: Value) -> bool:
    """Whether values of its type have an order."""
    kind = type(value)
    return kind in NUMBERS or kind in _ORDERED or kind is Timestamp


def key_of(value: Value) -> Value:
    """Returns a value as the key of a map. Raises: Fault."""
    kind = type(value)
    if kind is bool:
        return _BOOL_KEYS[value]
    if kind is str or kind is int or kind is Uint or kind is float or value is None:
        return value
    raise Fault(f"{a_type(value)} cannot be the key of a map")


def plain_key(key: Value) -> Value:
    """Returns the key of a map as a value."""
    return key.value if type(key) is BoolKey else key


def find(values: Mapping[Value, Value], key: Value) -> Value:
    """Returns the value of a map's key, ABSENT if there is none."""
    kind = type(key)
    if type(values) is DeviceMap:
        return values.get(key, values.default) if kind is str else values.default
    if kind is bool:
        key = _BOOL_KEYS[key]
    elif kind is not str and kind not in NUMBERS and key is not None:
        return ABSENT
    return values.get(key, ABSENT)


def has_key(values: Mapping[Value, Value], key: Value) -> bool:
    """CEL's `in` for maps. Raises: Aborted."""
    if type(values) is DeviceMap:
        return type(key) is str and key in values
    if values:
        check_key(key)
    return find(values, key) is not ABSENT


def check_key(value: Value) -> None:
    """Raises Aborted for a value that cel-go breaks off at, as it looks it up among constants or in a map."""
    if type(value) in _NO_KEYS:
        raise Aborted(f"{a_type(value)} cannot be looked up in constants or a map; compare it with ==")


def index_of(index: Value) -> int:
    """Returns a list's index; doubles and uints may stand for one. Raises: Fault."""
    kind = type(index)
    if kind is int or (kind is Uint and index <= INT_MAX):
        return int(index)
    if kind is float and math.isfinite(index) and index == int(index) and INT_MIN < index < INT_MAX:
        return int(index)
    raise Fault(f"{a_type(index)} is not the index of a list")


def probe(holder: Value, key: Value) -> Value:
    """Returns what a map or list has at the key, ABSENT if nothing, or if it is neither. Raises: Fault."""
    kind = type(holder)
    if kind is dict or kind is DeviceMap:
        if type(key) not in _SELECTING:
            raise Fault(f"{a_type(key)} is not the key of a map")
        return find(holder, key)
    if kind is list:
        at = index_of(key)
        return holder[at] if 0 <= at < len(holder) else ABSENT
    return ABSENT


def is_zero(value: Value) -> bool:
    """Whether the value is its type's zero; false for types that have none."""
    kind = type(value)
    if value is None or kind is Duration:
        return value is None or value.nanos == 0
    if kind is Timestamp:
        return bool(value.nanos == YEAR_ONE_NANOS)
    return kind in _WITH_ZERO and not value


def truth(value: Value, position: int) -> bool:
    """Returns a condition's value. Raises: Fault (it is no bool)."""
    if value is True or value is False:
        return bool(value)
    raise Fault(f"a condition is true or false, not {a_type(value)}", position)


def decided(conditions: Iterable[Callable[[Run], Value]], run: Run, position: int, *, by: bool) -> bool:
    """Whether one of the conditions is `by`, which decides, whatever fails beside it; `not by` if none is.

    Raises: Fault (none decides, and one has failed: the first that did), Aborted.
    """
    failed: Fault | None = None
    for condition in conditions:
        try:
            if truth(condition(run), position) is by:
                return by
        except Fault as fault:
            failed = failed or fault
    if failed is not None:
        raise failed
    return not by

"""Lists, sets and optionals: functions on them that are not macros.

Source: cel-go v0.29.2 `ext/lists.go` (version 3), `ext/sets.go` and `cel/library.go`, k8s.io/apiserver
v0.37.1 `pkg/cel/library/lists.go`.
"""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise

from gangsched.model.cel.library.functions import ANY, FUNCTIONS, overloads
from gangsched.model.cel.values import (
    ABSENT,
    NONE,
    Duration,
    Fault,
    Optional,
    Run,
    Uint,
    Value,
    a_type,
    compare,
    contains,
    equal_to,
    is_ordered,
    is_zero,
)

_MAX_RANGE = 1_000_000


def _is_equal(one: Value, other: Value, run: Run) -> bool:
    run.spend(1)
    try:
        return equal_to(one, other, run)
    except Fault:
        return False


def _order(one: Value, other: Value) -> int:
    """As `compare`; what has no order is left where it is."""
    try:
        return compare(one, other)
    except Fault:
        return 0


def _ordered(run: Run, values: list[Value]) -> list[Value]:
    run.spend(len(values))
    for one in values:
        if not is_ordered(one):
            raise Fault(f"{a_type(one)} has no order")
    return values


def _is_sorted(run: Run, values: list[Value]) -> bool:
    _ordered(run, values)
    return all(_order(one, after) <= 0 for one, after in pairwise(values))


def _extreme(run: Run, values: list[Value], sign: int) -> Value:
    if not values:
        raise Fault("an empty list has no least or greatest value")
    found, *rest = _ordered(run, values)
    for one in rest:
        if _order(one, found) == sign:
            found = one
    return found


def _sum(run: Run, values: list[Value]) -> Value:
    # The zero of the items' type, which cel-go knows from the types that it has checked.
    kind = type(values[0]) if values else int
    zeros = {int: 0, Uint: Uint(0), float: 0.0, Duration: Duration(0)}
    if kind not in zeros:
        raise Fault(f"{a_type(values[0])} cannot be summed")
    total = zeros[kind]
    for one in values:
        run.spend(1)
        total = FUNCTIONS["+"].overload((type(total), type(one)))(run, total, one)
    return total


def _index_of(run: Run, values: list[Value], value: Value) -> int:
    return next((at for at, one in enumerate(values) if _is_equal(one, value, run)), -1)


def _last_index_of(run: Run, values: list[Value], value: Value) -> int:
    return next((at for at in reversed(range(len(values))) if _is_equal(values[at], value, run)), -1)


def _includes(run: Run, holder: Value, value: Value) -> bool:
    if type(holder) is list:
        return any(_is_equal(one, value, run) for one in holder)
    return _is_equal(holder, value, run)


def _slice(values: list[Value], start: int, end: int) -> list[Value]:
    if not 0 <= start <= end <= len(values):
        raise Fault(f"{start} to {end} is not a range within {len(values)} items")
    return values[start:end]


def _flatten(run: Run, values: list[Value], depth: int = 1) -> list[Value]:
    if depth < 0:
        raise Fault("flatten takes a depth of 0 or more")
    flat: list[Value] = []
    for one in values:
        run.spend(1)
        if type(one) is list and depth > 0:
            flat.extend(_flatten(run, one, depth - 1))
        else:
            flat.append(one)
    return flat


def sort_by(run: Run, values: list[Value], keys: list[Value]) -> list[Value]:
    """Returns the values in the order of their keys, those of equal keys as they were. Raises: Fault."""
    if not values:
        return values
    if not is_ordered(keys[0]):
        raise Fault(f"{a_type(keys[0])} has no order")
    if len(set(map(type, keys))) > 1:
        raise Fault("values of several types are not sorted")
    run.spend(2 * len(values) * len(values).bit_length())

    def by_key(one: tuple[Value, Value], other: tuple[Value, Value]) -> int:
        return _order(one[0], other[0])

    return [value for _, value in sorted(zip(keys, values, strict=True), key=cmp_to_key(by_key))]


def _distinct(run: Run, values: list[Value]) -> list[Value]:
    found: list[Value] = []
    for one in values:
        if not any(_is_equal(one, other, run) for other in found):
            found.append(one)
    return found


def _range(run: Run, n: int) -> list[Value]:
    if not 0 <= n <= _MAX_RANGE:
        raise Fault(f"a range has 0 to {_MAX_RANGE} items, not {n}")
    run.spend(n)
    return list(range(n))


def _has_all(run: Run, values: list[Value], others: list[Value]) -> bool:
    return all(contains(values, one, run) for one in others)


def _has_any(run: Run, values: list[Value], others: list[Value]) -> bool:
    return any(contains(others, one, run) for one in values)


_ON_LISTS = {
    "isSorted": _is_sorted,
    "min": lambda run, values: _extreme(run, values, -1),
    "max": lambda run, values: _extreme(run, values, 1),
    "sum": _sum,
    "sort": lambda run, values: sort_by(run, values, values),
    "distinct": _distinct,
    "flatten": _flatten,
}
for _name, _function in _ON_LISTS.items():
    overloads(_name, {(list,): _function}, charging=True)
overloads("flatten", {(list, int): _flatten}, charging=True)
overloads("indexOf", {(list, ANY): _index_of}, charging=True)
overloads("lastIndexOf", {(list, ANY): _last_index_of}, charging=True)
overloads("includes", {(ANY, ANY): _includes}, charging=True)
overloads("lists.range", {(int,): _range}, charging=True)
overloads("sets.contains", {(list, list): _has_all}, charging=True)
overloads("sets.intersects", {(list, list): _has_any}, charging=True)
overloads(
    "sets.equivalent",
    {(list, list): lambda run, one, other: _has_all(run, one, other) and _has_all(run, other, one)},
    charging=True,
)
overloads("slice", {(list, int, int): _slice})
overloads("reverse", {(list,): lambda values: values[::-1]})


def _value(optional: Optional) -> Value:
    if optional.value is ABSENT:
        raise Fault("the optional has no value")
    return optional.value


def _unwrap(optionals: list[Value]) -> list[Value]:
    for one in optionals:
        if type(one) is not Optional:
            raise Fault(f"{a_type(one)} is no optional")
    return [one.value for one in optionals if one.value is not ABSENT]


overloads("optional.of", {(ANY,): Optional})
overloads("optional.ofNonZeroValue", {(ANY,): lambda value: NONE if is_zero(value) else Optional(value)})
overloads("optional.none", {(): lambda: NONE})
overloads("value", {(Optional,): _value})
overloads("hasValue", {(Optional,): lambda optional: optional.value is not ABSENT})
overloads("optional.unwrap", {(list,): _unwrap})
overloads("unwrapOpt", {(list,): _unwrap})
overloads("first", {(list,): lambda values: Optional(values[0]) if values else NONE})
overloads("last", {(list,): lambda values: Optional(values[-1]) if values else NONE})

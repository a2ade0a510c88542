"""Macros: what looks like a call and has variables of its own, as `list.exists(x, x > 1)` and `cel.bind`.

A macro that goes through a list or map runs its body once for each item, and spends the steps of the body
each time. Source: cel-go v0.29.2 `parser/macro.go`, `cel/library.go`, `ext/comprehensions.go`,
`ext/bindings.go`, `ext/lists.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from gangsched.model.cel.library.lists import sort_by
from gangsched.model.cel.scope import DEPTH_OF_VALUES, Scope, Step, Variable
from gangsched.model.cel.syntax import Invocation, Name, Part
from gangsched.model.cel.values import (
    ABSENT,
    NONE,
    DeviceMap,
    Fault,
    Optional,
    Run,
    Value,
    a_type,
    decided,
    key_of,
    placed,
    plain_key,
    truth,
)

Macro = Callable[[Scope, Invocation], Step]
# Names that cel-go uses itself.
_TAKEN = ("__result__", "@result")


class _Rounds(NamedTuple):
    """The rounds of a macro: `each` sets the variables in `slots` for one round after the other."""

    each: Callable[[Run], Iterator[None]]
    body: tuple[Step, ...]
    slots: tuple[int, ...]


def _variable(scope: Scope, part: Part) -> str:
    if not isinstance(part, Name) or part.is_absolute or part.text in _TAKEN:
        raise scope.error("a macro takes a simple name for its variable here", part)
    return part.text


def _rounds(scope: Scope, call: Invocation, n_variables: int) -> _Rounds:
    assert call.receiver is not None
    holder, position = scope.visit(call.receiver), call.position
    names = [_variable(scope, argument) for argument in call.arguments[:n_variables]]
    if len(set(names)) < n_variables:
        raise scope.error("both variables of a macro have one name", call)
    variables = [scope.slot() for _ in names]
    before = scope.weight
    body = scope.visit_with(dict(zip(names, variables, strict=True)), call.arguments[n_variables:])
    weight = scope.weight - before + 1
    slots = tuple(variable.slot for variable in variables)
    first, last = slots[0], slots[-1]

    def each(run: Run) -> Iterator[None]:
        held = holder(run)
        kind = type(held)
        if kind is not list and kind is not dict and kind is not DeviceMap:
            raise Fault(f"{call.function} goes through lists and maps, not {a_type(held)}", position)
        items = enumerate(held) if kind is list else held.items()
        for key, value in items:
            run.spend(weight)
            if first != last:
                run.slots[first], run.slots[last] = plain_key(key), value
            else:
                run.slots[first] = value if kind is list else plain_key(key)
            yield

    return _Rounds(each, body, slots)


def _quantifier(decides: bool) -> Macro:
    """`all` and `exists`."""

    def quantifier(scope: Scope, call: Invocation) -> Step:
        each, (predicate,), _ = _rounds(scope, call, len(call.arguments) - 1)
        position = call.position
        return lambda run: decided((predicate for _ in each(run)), run, position, by=decides)

    return quantifier


def _exists_one(scope: Scope, call: Invocation) -> Step:
    each, (predicate,), _ = _rounds(scope, call, len(call.arguments) - 1)
    position = call.position
    return lambda run: sum([truth(predicate(run), position) for _ in each(run)]) == 1


def _to_list(n_variables: int) -> Macro:
    """`map` and `transformList`, with or without a filter before what is made."""

    def to_list(scope: Scope, call: Invocation) -> Step:
        each, (*filters, made), _ = _rounds(scope, call, n_variables)
        position = call.position
        if not filters:
            return lambda run: [made(run) for _ in each(run)]
        condition = filters[0]
        return lambda run: [made(run) for _ in each(run) if truth(condition(run), position)]

    return to_list


def _filter(scope: Scope, call: Invocation) -> Step:
    with_result = msgspec.structs.replace(call, arguments=(*call.arguments, call.arguments[0]))
    return _to_list(1)(scope, with_result)


def _to_map(of_entries: bool) -> Macro:
    """`transformMap`, which keeps the keys, and `transformMapEntry`, whose body makes maps to be joined."""

    def to_map(scope: Scope, call: Invocation) -> Step:
        each, (*filters, made), (key_slot, _) = _rounds(scope, call, 2)
        position = call.position

        def gathered(run: Run) -> dict[Value, Value]:
            found: dict[Value, Value] = {}
            for _ in each(run):
                if filters and not truth(filters[0](run), position):
                    continue
                value = made(run)
                if not of_entries:
                    value = {key_of(run.slots[key_slot]): value}
                elif type(value) is not dict and type(value) is not DeviceMap:
                    raise Fault(f"{call.function} joins maps, not {a_type(value)}", position)
                run.spend(len(value))
                if not found.keys().isdisjoint(value):
                    raise Fault(f"{call.function} makes one key twice", position)
                found.update(value)
            return found

        return gathered

    return to_map


def _sort_by(scope: Scope, call: Invocation) -> Step:
    each, (key,), (slot,) = _rounds(scope, call, 1)
    position = call.position

    def sorted_by(run: Run) -> list[Value]:
        pairs = [(run.slots[slot], key(run)) for _ in each(run)]
        try:
            return sort_by(run, [value for value, _ in pairs], [key for _, key in pairs])
        except Fault as fault:
            raise placed(fault, position) from None

    return sorted_by


def bind(scope: Scope, call: Invocation) -> Step:
    """`cel.bind(name, value, result)`."""
    name, value, result = _variable(scope, call.arguments[0]), *call.arguments[1:]
    path = scope.path(value)
    if path is not None and len(path.keys) < DEPTH_OF_VALUES:
        # The variable is another name for this part of the device, so that what is read of it is known.
        return scope.visit_with({name: Variable(path=path)}, [result])[0]
    bound, variable = scope.visit(value), scope.slot(is_lazy=True)
    slot = variable.slot
    (body,) = scope.visit_with({name: variable}, [result])

    def bound_in(run: Run) -> Value:
        # An error that is never used is none: cel-go evaluates the value when it is needed.
        try:
            run.slots[slot] = bound(run)
        except Fault as fault:
            run.slots[slot] = fault
        return body(run)

    return bound_in


def _on_optional(wraps: bool) -> Macro:
    """`optMap` and `optFlatMap`, whose body makes an optional itself."""

    def on_optional(scope: Scope, call: Invocation) -> Step:
        assert call.receiver is not None
        optional, variable, position = scope.visit(call.receiver), scope.slot(), call.position
        slot = variable.slot
        (body,) = scope.visit_with({_variable(scope, call.arguments[0]): variable}, call.arguments[1:])

        def mapped(run: Run) -> Value:
            found = optional(run)
            if type(found) is not Optional:
                raise Fault(f"{call.function} takes an optional, not {a_type(found)}", position)
            if found.value is ABSENT:
                return NONE
            run.slots[slot] = found.value
            made = body(run)
            return Optional(made) if wraps else made

        return mapped

    return on_optional


MACROS: dict[tuple[str, int], Macro] = {
    ("all", 2): _quantifier(decides=False),
    ("all", 3): _quantifier(decides=False),
    ("exists", 2): _quantifier(decides=True),
    ("exists", 3): _quantifier(decides=True),
    ("exists_one", 2): _exists_one,
    ("exists_one", 3): _exists_one,
    ("existsOne", 3): _exists_one,
    ("map", 2): _to_list(1),
    ("map", 3): _to_list(1),
    ("filter", 2): _filter,
    ("transformList", 3): _to_list(2),
    ("transformList", 4): _to_list(2),
    ("transformMap", 3): _to_map(of_entries=False),
    ("transformMap", 4): _to_map(of_entries=False),
    ("transformMapEntry", 3): _to_map(of_entries=True),
    ("transformMapEntry", 4): _to_map(of_entries=True),
    ("sortBy", 2): _sort_by,
    ("optMap", 2): _on_optional(wraps=True),
    ("optFlatMap", 2): _on_optional(wraps=False),
}
"""By name and number of arguments, called on a receiver."""

"""From a tree to closures: names, macros and operators are settled once, so that an evaluation only calls.

Each part of an expression becomes a function of the Run. Steps are spent where work is repeated: a round of a
macro costs the parts of its body, a call the length of what it reads and makes. The rest is bounded by the
expression's length. Parts that are constant are evaluated while compiling. Source: cel-go v0.29.2
`interpreter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gangsched.model.cel.library.functions import FUNCTIONS, Function
from gangsched.model.cel.macros import MACROS, bind
from gangsched.model.cel.scope import DEPTH_OF_VALUES, DRIVER, MAPS, SHAREABLE, Path, Reads, Scope, Step
from gangsched.model.cel.syntax import Entries, Invocation, Items, Literal, Member, Name, Part
from gangsched.model.cel.values import (
    ABSENT,
    NONE,
    Aborted,
    DeviceMap,
    Fault,
    Optional,
    Run,
    TypeValue,
    Uint,
    Value,
    a_type,
    check_key,
    compare,
    contains,
    decided,
    equal,
    find,
    has_key,
    is_type_name,
    key_of,
    placed,
    probe,
    truth,
)

# Python compares them as CEL does.
_PLAIN = frozenset({str, int})
# Constants that cel-go keeps in a table for `in`, and the functions whose results are constants to it.
_LOOKED_UP = frozenset({bool, int, Uint, float, str, type(None)})
_CONVERSIONS = frozenset(
    ("bool", "bytes", "double", "dyn", "duration", "int", "string", "timestamp", "type", "uint")
)
# Constants are evaluated within this many steps altogether, so that compiling is quick.
_CONSTANT_STEPS = 10_000


class Compiled(NamedTuple):
    """What is called, how many variables it has, and what it reads."""

    step: Step
    n_slots: int
    reads: Reads


def compile_tree(tree: Part, expression: str) -> Compiled:
    """Compiles a tree. Raises: SelectorError."""
    compiler = _Compiler(expression)
    step = compiler.visit(tree)
    return Compiled(step, compiler.n_slots, compiler.reads)


class _Compiler(Scope):
    def __init__(self, expression: str) -> None:
        super().__init__(expression)
        self._constants: dict[Step, Value] = {}
        self._constant_run = Run({})
        self._constant_run.left = _CONSTANT_STEPS

    def visit(self, part: Part) -> Step:
        if isinstance(part, Literal):
            return self._constant(part.value)
        self.weight += 1
        path = self.path(part)
        if path is not None:
            return self._device_part(path, part.position)
        match part:
            case Name():
                return self._name(part)
            case Member():
                return self._member(part)
            case Items():
                return self._items(part)
            case Entries():
                return self._entries(part)
            case Invocation():
                return self._invocation(part)
        raise AssertionError(part)

    def _constant(self, value: Value) -> Step:
        def constant(run: Run) -> Value:
            return value

        self._constants[constant] = value
        return constant

    def _folded(self, step: Step, parts: Iterable[Step]) -> Step:
        """Evaluates what has constant parts only. What fails, or takes long, waits until it is reached."""
        if not all(part in self._constants for part in parts):
            return step
        try:
            return self._constant(step(self._constant_run))
        except (Fault, Aborted):
            return step

    def _device_part(self, path: Path, position: int) -> Step:
        self.note(path)
        keys, is_optional = path
        if len(keys) == DEPTH_OF_VALUES and not is_optional:
            kind, domain, name = keys

            def value(run: Run) -> Value:
                try:
                    return run.device[kind][domain][name]
                except KeyError:
                    raise Fault(f"no such key: {name}", position) from None

            return value

        def part(run: Run) -> Value:
            found: Value = run.device
            for key in keys:
                found = find(found, key)
            if is_optional:
                return NONE if found is ABSENT else Optional(found)
            if found is ABSENT:
                raise Fault(f"no such key: {keys[-1]}", position)
            return found

        return part

    def _is_there(self, path: Path) -> Step:
        """Whether the device has a value; whatever the domain, there is a map for it."""
        keys = path.keys
        if len(keys) < DEPTH_OF_VALUES:
            return self._constant(len(keys) != 1 or keys[0] in (DRIVER, SHAREABLE, *MAPS))
        self.note(path)
        kind, domain, name = keys
        return lambda run: domain in run.device[kind] and name in run.device[kind][domain]

    def _name(self, name: Name) -> Step:
        variable = self.variable(name)
        if variable is None:
            if not is_type_name(name.text):
                raise self.error(f"there is no {name.text}", name)
            return self._constant(TypeValue(name.text))
        slot = variable.slot
        if not variable.is_lazy:
            return lambda run: run.slots[slot]

        def lazy(run: Run) -> Value:
            value = run.slots[slot]
            if type(value) is Fault:
                # Not the same exception again: it would gather all places that it was raised at.
                raise Fault(value.reason, value.position)
            return value

        return lazy

    def _member(self, member: Member) -> Step:
        name = _qualified(member)
        if name is not None and is_type_name(name) and not self.has_variable(name.partition(".")[0]):
            return self._constant(TypeValue(name))
        holder, key = self.visit(member.holder), self.visit(member.key)
        is_optional, position = member.is_optional, member.position

        def found_in(run: Run) -> Value:
            held = holder(run)
            wraps = is_optional
            if type(held) is Optional:
                if held.value is ABSENT:
                    return NONE
                held, wraps = held.value, True
            at = key(run)
            try:
                found = probe(held, at)
            except Fault as fault:
                raise placed(fault, position) from None
            if wraps:
                return NONE if found is ABSENT else Optional(found)
            if found is ABSENT:
                raise Fault(f"{'no such index' if type(held) is list else 'no such key'}: {at}", position)
            return found

        return self._folded(found_in, (holder, key))

    def _items(self, written: Items) -> Step:
        steps = [self.visit(item) for item in written.items]
        optional, position = written.optional, written.position
        if not optional:
            return self._folded(lambda run: [step(run) for step in steps], steps)

        def items(run: Run) -> list[Value]:
            made = (_unwrapped(step(run), at in optional, position) for at, step in enumerate(steps))
            return [value for value in made if value is not ABSENT]

        return items

    def _entries(self, written: Entries) -> Step:
        keys, values = (
            [self.visit(key) for key in written.keys],
            [self.visit(value) for value in written.values],
        )
        optional, position = written.optional, written.position

        def entries(run: Run) -> dict[Value, Value]:
            made: dict[Value, Value] = {}
            for at, (key_step, value_step) in enumerate(zip(keys, values, strict=True)):
                try:
                    key = key_of(key_step(run))
                except Fault as fault:
                    raise placed(fault, position) from None
                made[key] = _unwrapped(value_step(run), at in optional, position)
                if made[key] is ABSENT:
                    del made[key]
            return made

        return self._folded(entries, (*keys, *values))

    def _invocation(self, call: Invocation) -> Step:
        n_arguments = len(call.arguments)
        if call.receiver is None:
            operator = _OPERATORS.get(call.function)
            if operator is not None:
                return operator(self, call)
            return self._function(call, call.function.removeprefix("."), call.arguments)
        prefix = _qualified(call.receiver)
        if (prefix, call.function, n_arguments) == ("cel", "bind", 3):
            return bind(self, call)
        macro = MACROS.get((call.function, n_arguments))
        if macro is not None:
            return macro(self, call)
        name = f"{prefix}.{call.function}"
        if prefix is not None and name in FUNCTIONS:
            return self._function(call, name, call.arguments)
        if call.function in ("or", "orValue") and n_arguments == 1:
            return self._or_else(call, call.receiver)
        return self._function(call, call.function, (call.receiver, *call.arguments))

    def _function(self, call: Invocation, name: str, arguments: tuple[Part, ...]) -> Step:
        function = FUNCTIONS.get(name)
        if function is None:
            raise self.error(f"there is no function {name}", call)
        steps = [self.visit(argument) for argument in arguments]
        return self._folded(_calling(function, steps, call.position), steps)

    def _or_else(self, call: Invocation, receiver: Part) -> Step:
        first, second, position = self.visit(receiver), self.visit(call.arguments[0]), call.position
        takes_value = call.function == "orValue"

        def or_else(run: Run) -> Value:
            found = first(run)
            if type(found) is not Optional:
                raise Fault(f"{call.function} takes an optional, not {a_type(found)}", position)
            if found.value is ABSENT:
                return second(run)
            return found.value if takes_value else found

        return or_else

    def _has(self, call: Invocation) -> Step:
        asked = call.arguments[0] if len(call.arguments) == 1 else None
        if not isinstance(asked, Member) or not asked.is_name or asked.is_optional:
            raise self.error("has() takes the member of something, as in has(a.b)", call)
        path = self.path(asked)
        if path is not None:
            return self._is_there(path)
        holder, key, position = self.visit(asked.holder), self.visit(asked.key), asked.position

        def has(run: Run) -> bool:
            held = holder(run)
            try:
                return probe(held.value if type(held) is Optional else held, key(run)) is not ABSENT
            except Fault as fault:
                raise placed(fault, position) from None

        return has

    def _logic(self, call: Invocation) -> Step:
        steps, position = [self.visit(argument) for argument in call.arguments], call.position
        decides = call.function == "||"
        return lambda run: decided(steps, run, position, by=decides)

    def _condition(self, call: Invocation) -> Step:
        condition, position = self.visit(call.arguments[0]), call.position
        before = self.weight
        first = self.visit(call.arguments[1])
        heavier, self.weight = self.weight, before
        second = self.visit(call.arguments[2])
        self.weight = max(self.weight, heavier)
        return lambda run: first(run) if truth(condition(run), position) else second(run)

    def _equality(self, call: Invocation) -> Step:
        left, right = (self.visit(argument) for argument in call.arguments)
        position, wants = call.position, call.function == "=="

        def equality(run: Run) -> bool:
            one, other = left(run), right(run)
            if type(one) is type(other) and type(one) in _PLAIN:
                return bool(one == other) is wants
            try:
                return equal(one, other, run) is wants
            except Fault as fault:
                # What cannot be compared is an error of ==, and not equal for !=: so cel-go has it.
                if not wants:
                    return True
                raise placed(fault, position) from None

        return equality

    def _comparison(self, call: Invocation) -> Step:
        left, right = (self.visit(argument) for argument in call.arguments)
        position = call.position
        holds = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (1, 0)}[call.function]

        def comparison(run: Run) -> bool:
            one, other = left(run), right(run)
            try:
                return compare(one, other) in holds
            except Fault as fault:
                raise placed(fault, position) from None

        return comparison

    def _in(self, call: Invocation) -> Step:
        value, holder = call.arguments
        path = self.path(holder)
        if path is not None and len(path.keys) == DEPTH_OF_VALUES - 1 and type(_value(value)) is str:
            return self._is_there(Path((*path.keys, _value(value))))
        sought, values, position = self.visit(value), self.visit(holder), call.position
        constants: list[Value] = []
        if isinstance(holder, Items) and all(map(_is_constant, holder.items)):
            constants = self._constants.get(values, constants)
            if not holder.items:
                # cel-go does not evaluate what an empty list is asked about.
                return self._constant(False)
        looks_up = bool(constants) and _LOOKED_UP.issuperset(map(type, constants))
        texts = frozenset(one for one in constants if looks_up and type(one) is str)

        def within(run: Run) -> bool:
            one, held = sought(run), values(run)
            if type(one) is str and one in texts:
                return True
            try:
                if looks_up:
                    check_key(one)
                if type(held) is list:
                    return contains(held, one, run)
                if type(held) is dict or type(held) is DeviceMap:
                    return has_key(held, one)
            except Fault as fault:
                raise placed(fault, position) from None
            raise Fault(f"{a_type(held)} is neither a list nor a map", position)

        return within


def _qualified(part: Part) -> str | None:
    """Returns names with dots between them as one name."""
    if isinstance(part, Name):
        return part.text
    if isinstance(part, Member) and part.is_name and not part.is_optional and isinstance(part.key, Literal):
        prefix = _qualified(part.holder)
        return None if prefix is None else f"{prefix}.{part.key.value}"
    return None


def _value(part: Part) -> Value:
    """Returns a literal's value, ABSENT for anything else."""
    return part.value if isinstance(part, Literal) else ABSENT


def _is_constant(part: Part) -> bool:
    """Whether cel-go takes it for a constant: a literal, or the conversion of one."""
    if isinstance(part, Invocation) and part.receiver is None and part.function in _CONVERSIONS:
        return all(map(_is_constant, part.arguments))
    return isinstance(part, Literal)


def _unwrapped(value: Value, is_optional: bool, position: int) -> Value:
    """Returns an item or entry; of an optional one the value, ABSENT if it has none."""
    if not is_optional:
        return value
    if type(value) is not Optional:
        raise Fault(f"an optional is needed here, not {a_type(value)}", position)
    return value.value


def _calling(function: Function, steps: list[Step], position: int) -> Step:
    overload = function.overload

    def call(run: Run) -> Value:
        values = [step(run) for step in steps]
        try:
            return overload(tuple(map(type, values)))(run, *values)
        except Fault as fault:
            raise placed(fault, position) from None

    return call


_OPERATORS: dict[str, Callable[[_Compiler, Invocation], Step]] = {
    "has": _Compiler._has,
    "?:": _Compiler._condition,
    "in": _Compiler._in,
    **dict.fromkeys(("&&", "||"), _Compiler._logic),
    **dict.fromkeys(("==", "!="), _Compiler._equality),
    **dict.fromkeys(("<", "<=", ">", ">="), _Compiler._comparison),
}

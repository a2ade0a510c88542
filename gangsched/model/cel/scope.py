"""What a name means while an expression is compiled: variables of macros, types, and parts of the device.

A Scope also notes what of the device is read, and how much a round of a macro costs. compiler.py fills in how
parts of an expression are compiled, macros.py uses that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from gangsched.model.cel.syntax import Literal, Member, Name, Part
from gangsched.model.cel.values import Run, SelectorError, Value

Step = Callable[[Run], Value]
"""A compiled part of an expression."""
DEVICE, DRIVER, SHAREABLE = "device", "driver", "allowMultipleAllocations"
ATTRIBUTES, CAPACITY = "attributes", "capacity"
MAPS = (ATTRIBUTES, CAPACITY)
# Domain and name: what leads to a value in one of the maps.
DEPTH_OF_VALUES = 3


class Reads(msgspec.Struct, frozen=True):
    """What an expression reads of a device: its answer is the same for devices that are equal in that.

    Names are (domain, name). None: any of them may be read, as where an expression goes through all of them.
    """

    attributes: frozenset[tuple[str, str]] | None = frozenset()
    capacities: frozenset[tuple[str, str]] | None = frozenset()
    driver: bool = False
    shareable: bool = False


class Path(NamedTuple):
    """A part of the device by its keys, as ("attributes", domain, name); is_optional: as an optional."""

    keys: tuple[str, ...]
    is_optional: bool = False


class Variable(NamedTuple):
    """A variable in a slot of the Run. is_lazy: it may hold a Fault. path: it is that part of the device."""

    slot: int = -1
    is_lazy: bool = False
    path: Path | None = None


class Scope:
    """The names and notes of one expression."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._variables: Mapping[str, Variable] = {}
        self._read: dict[str, set[tuple[str, str]] | None] = {ATTRIBUTES: set(), CAPACITY: set()}
        self._fields: set[str] = set()
        # Parts so far; a macro's rounds cost those of its body.
        self.weight = 0
        self.n_slots = 0

    def visit(self, part: Part) -> Step:
        """Compiles a part of the expression. Raises: SelectorError."""
        raise NotImplementedError

    @property
    def reads(self) -> Reads:
        """What has been noted."""
        attributes, capacities = self._read[ATTRIBUTES], self._read[CAPACITY]
        return Reads(
            attributes=None if attributes is None else frozenset(attributes),
            capacities=None if capacities is None else frozenset(capacities),
            driver=DRIVER in self._fields,
            shareable=SHAREABLE in self._fields,
        )

    def error(self, reason: str, part: Part) -> SelectorError:
        """Returns the error of a part that does not compile."""
        return SelectorError(reason, expression=self._expression, position=part.position)

    def variable(self, name: Name) -> Variable | None:
        """Returns the variable of that name, if a macro around it has one."""
        return None if name.is_absolute else self._variables.get(name.text)

    def has_variable(self, name: str) -> bool:
        """Whether a macro around it has a variable of that name."""
        return name in self._variables

    def slot(self, *, is_lazy: bool = False) -> Variable:
        """Returns a new variable."""
        self.n_slots += 1
        return Variable(self.n_slots - 1, is_lazy)

    def visit_with(self, variables: Mapping[str, Variable], parts: Iterable[Part]) -> tuple[Step, ...]:
        """Compiles parts that know these variables too. Raises: SelectorError."""
        outer = self._variables
        self._variables = {**outer, **variables}
        steps = tuple(self.visit(part) for part in parts)
        self._variables = outer
        return steps

    def path(self, part: Part) -> Path | None:
        """Returns the part of the device that an expression names, None if it is anything else."""
        if isinstance(part, Name):
            variable = self.variable(part)
            if variable is None:
                return Path(()) if part.text == DEVICE else None
            return variable.path
        if not (isinstance(part, Member) and isinstance(part.key, Literal) and type(part.key.value) is str):
            return None
        holder = self.path(part.holder)
        if (
            holder is None
            or len(holder.keys) == DEPTH_OF_VALUES
            or (holder.keys and holder.keys[0] not in MAPS)
        ):
            return None
        return Path((*holder.keys, part.key.value), holder.is_optional or part.is_optional)

    def note(self, path: Path) -> None:
        """Notes that a part of the device is read: a value, or all that it may hold."""
        keys = path.keys
        for kind in MAPS:
            if keys[:1] in ((), (kind,)):
                known = self._read[kind]
                if len(keys) < DEPTH_OF_VALUES:
                    self._read[kind] = None
                elif known is not None:
                    known.add((keys[1], keys[2]))
        self._fields.update(keys[:1] or (DRIVER, SHAREABLE))

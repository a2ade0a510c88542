"""State: writes all that a core remembers as bytes, and restores it into a newly built core.

Lists of API objects lack it: backoffs, queue positions, attempts, messages sent. So the core's own objects
are written. Parts that a core has from the start (its rooms, the functions in its tables) are found at the
same place in a new core; what rooms remember is written by value, and functions stay as they are there. So no
room may be known to a function alone. That requires a new core of the same version and configuration.

The format is pickle's, but the reader only makes values: it knows the classes of the core and of its values,
arrays, times and containers, and rejects every other name, so a stranger's journal cannot run code. Called by
the recorder and by replaying.
"""

from __future__ import annotations

import io
import pickle
import types
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import partial
from typing import Any, BinaryIO, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from gangsched.core.cache.nodes.table import Notes
from gangsched.core.framework.observer import Observer
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.core.turns.steps import Defect
from gangsched.errors import GangschedError, ParseError
from gangsched.journal.nesting import Nesting, weighed
from gangsched.journal.unobserved import observer_like
from gangsched.model.cel.selector import DeviceSelector, SelectableDevice
from gangsched.model.cel.selector import compile as compile_selector

Step = tuple[str, Any]
_OURS = ("gangsched.core.", "gangsched.model.", "gangsched.plugins.", "gangsched.config.")
_OF_USERS = "gangsched_plugin_"
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, partial)
_VALUES = (type, Enum, msgspec.Struct, tuple, dict, list, set, frozenset, np.ndarray, WeakKeyDictionary)
_CONTAINERS = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "list"): list,
    ("builtins", "dict"): dict,
    ("builtins", "int"): int,
    ("builtins", "float"): float,
    ("builtins", "bytearray"): bytearray,
    ("collections", "deque"): deque,
    ("collections", "Counter"): Counter,
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "defaultdict"): defaultdict,
    ("datetime", "datetime"): datetime,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
}


class NotWritable(GangschedError):
    """The core, or a plugin, has state that cannot be written here."""


# -- parts from the start ----------------------------------------------------------------------------------


def _attributes(one: Any) -> dict[str, Any]:
    found = dict(getattr(one, "__dict__", {}))
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__weakref__", "__dict__") and hasattr(one, name):
                found[name] = getattr(one, name)
    return found


def _is_part(one: Any) -> bool:
    """Whether it is a room of the core, a plugin, or a part that they have from the start."""
    return type(one).__module__.startswith(("gangsched.", _OF_USERS)) and not isinstance(
        one, (*_VALUES, *_CODE)
    )


def _steps(one: Any) -> Iterator[Step]:
    """Yields the steps from an object to what it holds."""
    if isinstance(one, dict):
        yield from (("key", key) for key in one)
    elif isinstance(one, list | tuple):
        yield from (("at", at) for at in range(len(one)))
    elif isinstance(one, msgspec.Struct):
        yield from (("attribute", name) for name in one.__struct_fields__)
    elif _is_part(one):
        yield from (("attribute", name) for name in sorted(_attributes(one)))


def _follow(one: Any, step: Step) -> Any:
    """Raises: LookupError, AttributeError, ValueError (the object lacks it)."""
    how, what = step
    if how in ("key", "at"):
        return one[what]
    return getattr(one, what)


def _named(step: Step) -> str:
    how, what = step
    return f"{how} {what.__qualname__ if isinstance(what, type) else what!r}"


class Given(NamedTuple):
    """What a core gets from outside."""

    observer: Observer | None
    pick: Callable[[int], int]
    guard: Callable[[Defect], None]


BuildCore = Callable[[Given], Scheduler]
States = dict[str, dict[str, Any]]
WriteStates = Callable[[BinaryIO, dict[int, str], States], None]


def _pairs(new: Scheduler, live: Scheduler, given: Given) -> dict[str, tuple[Any, Any]]:
    """Returns by place the parts that both cores have there from the start. given: passed to `new`."""
    outside = {id(one) for one in given if one is not None}
    found: dict[str, tuple[Any, Any]] = {}
    seen: set[int] = set()
    todo: list[tuple[str, Any, Any]] = [("", new, live)]
    while todo:
        later: list[tuple[str, Any, Any]] = []
        for place, ours, theirs in todo:
            if id(ours) in seen or not (id(ours) in outside or type(ours) is type(theirs)):
                continue
            seen.add(id(ours))
            if id(ours) in outside:
                found[place] = (ours, theirs)
                continue
            if _is_part(ours) or isinstance(ours, _CODE):
                found[place] = (ours, theirs)
            for step in _steps(ours):
                try:
                    later.append((f"{place}/{_named(step)}", _follow(ours, step), _follow(theirs, step)))
                except (LookupError, AttributeError, ValueError):
                    continue
        todo = later
    return found


def _held_by(code: Any) -> Iterator[Any]:
    """Yields what a function keeps, beside what it is."""
    if isinstance(code, types.MethodType):
        yield code.__self__
    elif isinstance(code, partial):
        yield from (code.func, *code.args, *code.keywords.values())
    elif isinstance(code, types.FunctionType):
        yield from (cell.cell_contents for cell in code.__closure__ or ())


# -- writing ---------------------------------------------------------------------------------------------


def _nothing(_: Defect) -> None:
    """Takes the place of the function that reports faults."""


def write_state(live: Scheduler, build: BuildCore, write: WriteStates | None = None) -> bytes:
    """Writes the core's state. build: makes a core of the same configuration. write: replaces the writer of
    the parts' states by place; also gets the places of all parts from the start. Raises: NotWritable.
    """
    # New objects: the core may also have these functions in other places.
    given = Given(observer_like(live.shared.observer), partial(first_of), partial(_nothing))
    new = build(given)
    pairs = _pairs(new, live, given)
    # A reader has no live core to compare with: it must find the same places.
    unknown = pairs.keys() - _pairs(new, new, given).keys()
    if unknown:
        raise NotWritable(f"what is at {min(unknown)} is at another place in a new core")
    places: dict[int, str] = {}
    for place, (_, theirs) in pairs.items():
        if places.setdefault(id(theirs), place) != place:
            raise NotWritable(f"what is at {place} is at {places[id(theirs)]} too")
    for place, (ours, theirs) in pairs.items():
        for held in () if any(ours is one for one in given) else _held_by(theirs):
            if _is_part(held) and id(held) not in places:
                raise NotWritable(f"what is at {place} keeps a {type(held).__name__} to itself")
    states = {
        place: _attributes(theirs)
        for place, (ours, theirs) in pairs.items()
        if _is_part(ours) and f"{type(ours).__module__}.".startswith((*_OURS, _OF_USERS))
    }
    out = io.BytesIO()
    try:
        (write or _written)(out, places, states)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError, ValueError) as error:
        raise NotWritable(f"{type(error).__name__}: {error}"[:500]) from None
    return out.getvalue()


def _written(out: BinaryIO, places: dict[int, str], states: States) -> None:
    _Writer(out, places).dump(states)


class Forms:
    """How each object is written: half of a pickler."""

    _places: dict[int, str]

    def persistent_id(self, one: Any) -> str | tuple[str, str] | None:
        place = self._places.get(id(one))
        if place is None and isinstance(one, types.FunctionType) and one.__module__ != __name__:
            if not f"{one.__module__}.".startswith(_OURS) or "<" in one.__qualname__:
                raise NotWritable(f"the function {one.__module__}.{one.__qualname__}")
            return one.__module__, one.__qualname__
        return place

    def reducer_override(self, one: Any) -> Any:
        if isinstance(one, _CODE):
            if _MAKERS.get(getattr(one, "__name__", "")) is one:
                return NotImplemented
            raise NotWritable(f"the function {getattr(one, '__qualname__', one)}")
        if isinstance(one, np.ndarray):
            if one.dtype.hasobject:
                raise NotWritable("an array of objects")
            return _array, (one.dtype.str, one.shape, np.ascontiguousarray(one).tobytes())
        if isinstance(one, array):
            return _numbers, (one.typecode, one.tobytes())
        if isinstance(one, np.generic):
            return _number, (one.dtype.str, one.tobytes())
        if isinstance(one, np.dtype):
            return _dtype, (one.str,)
        if isinstance(one, types.MappingProxyType):
            return _read_only, (dict(one),)
        if isinstance(one, WeakKeyDictionary):
            return _weak_keys, (list(one.items()),)
        if isinstance(one, msgspec.Raw):
            return _raw, (bytes(one).decode(),)
        if isinstance(one, DeviceSelector):
            return _selector, (one.expression,)
        if isinstance(one, (SelectableDevice, Notes)):
            return _made_again, ()
        if isinstance(one, msgspec.Struct):
            return _struct, (type(one), [getattr(one, name) for name in one.__struct_fields__])
        return NotImplemented


class _Writer(Forms, pickle.Pickler):
    def __init__(self, out: BinaryIO, places: dict[int, str]) -> None:
        super().__init__(out, protocol=5)
        self._places = places


# -- reading ---------------------------------------------------------------------------------------------


def read_state(body: bytes, new: Scheduler, given: Given) -> None:
    """Restores a written state into a newly built core. given: what the core was built with.

    Raises: ParseError.
    """
    places = {place: ours for place, (ours, _) in _pairs(new, new, given).items()}
    try:
        for place, attributes in _Reader(io.BytesIO(body), places).load().items():
            part = places[place]
            for name in _attributes(part):
                if name not in attributes:
                    delattr(part, name)
            for name, value in attributes.items():
                object.__setattr__(part, name, value)
    except ParseError:
        raise
    except Exception as error:  # malformed bytes may cause any error in a reader of values
        raise ParseError(f"is no state of a core: {type(error).__name__}: {error}"[:500]) from None


class _Reader(pickle._Unpickler):
    """Knows values and classes of the core, rejects every other name, and calls only their constructors.

    Uses the slower reader in Python, since only there each step can be checked.
    """

    def __init__(self, body: BinaryIO, places: dict[str, Any]) -> None:
        super().__init__(body)
        self._places = places
        self.nesting = Nesting()

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 2:
            found = self._own(*pid)
            if isinstance(found, types.FunctionType):
                return found
        elif pid in self._places:
            return self._places[pid]
        raise ParseError(f"a core of this version and configuration has nothing at {str(pid)[:200]}")

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in _MAKERS:
            return _MAKERS[name]
        if (module, name) in _CONTAINERS:
            return _CONTAINERS[module, name]
        found = self._own(module, name)
        if not isinstance(found, type):
            raise ParseError(f"names {module[:80]}.{name[:80]}, which is no value")
        return found

    def _own(self, module: str, name: str) -> Any:
        """Raises: ParseError."""
        if not f"{module}.".startswith(_OURS):
            raise ParseError(f"names {module[:80]}.{name[:80]}, which no state of a core has")
        found = super().find_class(module, name)
        if getattr(found, "__module__", "") != module:
            raise ParseError(f"names {module}.{name[:80]}, which is of another module")
        return found

    def _make(self) -> None:
        """REDUCE: rejects calls of anything but constructors of values."""
        make = self.stack[-2]  # type: ignore[attr-defined]
        is_value = isinstance(make, type) and issubclass(make, Enum | BaseException)
        if not (is_value or make in _MAKERS.values() or make in _CONTAINERS.values()):
            raise ParseError("calls what is not to be called")
        given = self.stack[-1]  # type: ignore[attr-defined]
        self.load_reduce()  # type: ignore[attr-defined]
        if make is _struct:
            self.nesting.weigh(self.stack[-1], given[1])  # type: ignore[attr-defined]

    def _new(self) -> None:
        """NEWOBJ: makes named tuples."""
        given = self.stack[-1]  # type: ignore[attr-defined]
        self.load_newobj()  # type: ignore[attr-defined]
        self.nesting.weigh(self.stack[-1], given)  # type: ignore[attr-defined]

    def _call(self) -> None:
        """INST and OBJ: rejected; the writer never uses them, and they call whatever they name."""
        raise ParseError("calls what is not to be called")

    def _build(self) -> None:
        """BUILD: sets attributes; rejected for a class or function, as these are shared."""
        if isinstance(self.stack[-2], type | types.FunctionType):  # type: ignore[attr-defined]
            raise ParseError("changes what is no value")
        self.load_build()  # type: ignore[attr-defined]

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,
        pickle.REDUCE[0]: _make,
        pickle.NEWOBJ[0]: _new,
        **weighed(pickle._Unpickler),
        pickle.INST[0]: _call,
        pickle.OBJ[0]: _call,
        pickle.BUILD[0]: _build,
    }


def _array(dtype: str, shape: tuple[int, ...], body: bytes) -> Any:
    return np.frombuffer(body, dtype=np.dtype(dtype)).reshape(shape).copy()


def _numbers(typecode: str, body: bytes) -> Any:
    return array(typecode, body)


def _number(dtype: str, body: bytes) -> Any:
    return np.frombuffer(body, dtype=np.dtype(dtype))[0]


def _dtype(name: str) -> Any:
    return np.dtype(name)


def _read_only(values: dict[Any, Any]) -> Any:
    return types.MappingProxyType(values)


def _weak_keys(items: list[tuple[Any, Any]]) -> Any:
    return WeakKeyDictionary(items)


def _raw(text: str) -> Any:
    return msgspec.Raw(text.encode())


def _made_again() -> None:
    """In the place of what a device, or a table, makes again when it needs it."""


def _selector(expression: str) -> Any:
    return compile_selector(expression)


def _struct(kind: Any, values: list[Any]) -> Any:
    if not issubclass(kind, msgspec.Struct):
        raise ParseError(f"{kind.__name__} is no value")
    return kind(**dict(zip(kind.__struct_fields__, values, strict=True)))


_MAKERS = {
    make.__name__: make
    for make in (
        *(_array, _numbers, _number, _dtype, _read_only, _weak_keys),
        *(_made_again, _raw, _selector, _struct),
    )
}

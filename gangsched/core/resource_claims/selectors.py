"""Selectors: whether a selector of devices is true of a device, evaluated once for all that are equal to it.

An expression reads a few attributes: 40,000 devices with a UUID each are one device to a selector on their
model.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from gangsched.core.resource_claims.devices import ListedDevice
from gangsched.model.cel.values import SelectorError
from gangsched.model.resource_claims.objects import Attribute, DeviceCapacity

if TYPE_CHECKING:
    from gangsched.model.cel.scope import Reads
    from gangsched.model.cel.selector import DeviceSelector

Verdict = bool | SelectorError
# Compiled expressions, and answers of each, that are kept.
_MAX_EXPRESSIONS = 1024
_MAX_ANSWERS = 65_536


_Name = tuple[str, str, str]
"""A domain, a name in it, and both as one."""


class _Compiled:
    """An expression, and its answers by what it reads of a device. attributes, capacities: None: all there
    are."""

    __slots__ = ("answers", "attributes", "capacities", "error", "expression", "failing", "selector")

    def __init__(self, expression: str, failing: set[str]) -> None:
        self.expression = expression
        self.failing = failing
        self.answers: dict[Hashable, Verdict] = {}
        self.selector: DeviceSelector | None = None
        self.error: SelectorError | None = None
        self.attributes: tuple[_Name, ...] | None = ()
        self.capacities: tuple[_Name, ...] | None = ()
        # Loaded by the first selector: it takes 30 ms of every start, and most clusters have none.
        from gangsched.model.cel import selector as cel

        try:
            self.selector = cel.compile(expression)
        except SelectorError as error:
            self.error = error
        else:
            self.attributes = _names(self.selector.reads.attributes)
            self.capacities = _names(self.selector.reads.capacities)

    def verdict(self, device: ListedDevice) -> Verdict:
        if self.selector is None:
            assert self.error is not None
            return self.error
        key = device.id if device.is_odd else self._projected(device, self.selector.reads)
        found = self.answers.get(key)
        if found is None:
            if len(self.answers) >= _MAX_ANSWERS:
                self.answers.clear()
            found = self.answers[key] = _evaluated(self.selector, device)
            if isinstance(found, SelectorError):
                self.failing.add(self.expression)
        return found

    def _projected(self, device: ListedDevice, reads: Reads) -> Hashable:
        """Returns a value that is equal for devices of which the selector says the same."""
        found: list[Hashable] = []
        driver = device.id[0]
        _add_values(found, device.attributes, driver, self.attributes)
        if self.capacities is None or self.capacities:
            _add_values(found, device.capacity, driver, self.capacities)
        if reads.driver:
            found.append(driver)
        if reads.shareable:
            found.append(device.shareable)
        return tuple(found)


class Selectors:
    """What selectors say of devices. Nothing of it can change: a device of a new slice is another one."""

    def __init__(self) -> None:
        self._compiled: dict[str, _Compiled] = {}
        self.failing: set[str] = set()
        """Expressions that failed on a device that they were asked about."""

    def verdict(self, expression: str, device: ListedDevice) -> Verdict:
        """Whether it is true of the device, or why that cannot be known."""
        return self._of(expression).verdict(device)

    def reads(self, expression: str) -> Reads | None:
        """Returns what it reads of a device; None: it does not compile."""
        selector = self._of(expression).selector
        return None if selector is None else selector.reads

    def problem(self, expression: str) -> SelectorError | None:
        """Returns why the expression does not compile."""
        return self._of(expression).error

    def _of(self, expression: str) -> _Compiled:
        found = self._compiled.get(expression)
        if found is None:
            if len(self._compiled) >= _MAX_EXPRESSIONS:
                self._compiled.clear()
                self.failing.clear()
            found = self._compiled[expression] = _Compiled(expression, self.failing)
        return found


def _evaluated(selector: DeviceSelector, device: ListedDevice) -> Verdict:
    try:
        return selector.matches(device.selectable)
    except SelectorError as error:
        return error


def _names(names: frozenset[tuple[str, str]] | None) -> tuple[_Name, ...] | None:
    return None if names is None else tuple((one, name, f"{one}/{name}") for one, name in sorted(names))


def _add_values(
    found: list[Hashable],
    known: Mapping[str, Attribute | DeviceCapacity],
    driver: str,
    names: tuple[_Name, ...] | None,
) -> None:
    if names is None:
        found.append((driver, *((name, _value(one)) for name, one in sorted(known.items()))))
        return
    for domain, name, qualified in names:
        # Within the driver's own domain a name may be written with it or without.
        value = known.get(qualified)
        if domain == driver and (short := known.get(name)) is not None:
            found.append(_value(short) if value is None else (_value(value), _value(short)))
        else:
            found.append(None if value is None else _value(value))


def _value(one: Attribute | DeviceCapacity) -> Hashable:
    return one if isinstance(one, Attribute) else one.value

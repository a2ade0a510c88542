"""Selectors and the devices that they are evaluated on: `compile(expression).matches(device)`.

A device is converted once, whichever selectors look at it then. Source: k8s.io/dynamic-resource-allocation
v0.37.1 `cel/compile.go`.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.model.cel.compiler import Compiled, compile_tree
from gangsched.model.cel.library import formats, network, text, times
from gangsched.model.cel.library.amounts import read_quantity, read_semver
from gangsched.model.cel.scope import ATTRIBUTES, CAPACITY, DRIVER, SHAREABLE
from gangsched.model.cel.syntax import MAX_DEPTH, parse
from gangsched.model.cel.values import (
    ABSENT,
    Aborted,
    DeviceMap,
    Fault,
    Run,
    SelectorError,
    Value,
    a_type,
)
from gangsched.model.resource_claims.objects import Attribute

# Those that are imported for the functions that they register.
LIBRARIES = (formats, network, text, times)
_EMPTY = DeviceMap({}, ABSENT)


class SelectableDevice:
    """A device as selectors see it. `variables`: the map that an expression calls `device`."""

    __slots__ = ("variables",)

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Attribute],
        capacity: Mapping[str, str],
        *,
        shareable: bool = False,
    ) -> None:
        """Converts what a slice says; a name without a domain is in the driver's. Raises: SelectorError."""
        self.variables: dict[str, Value] = {
            DRIVER: driver,
            SHAREABLE: shareable,
            ATTRIBUTES: _by_domain(driver, {name: _value(name, one) for name, one in attributes.items()}),
            CAPACITY: _by_domain(driver, {name: _quantity(name, one) for name, one in capacity.items()}),
        }


def _by_domain(driver: str, values: Mapping[str, Value]) -> DeviceMap:
    domains: dict[str, DeviceMap] = {}
    for qualified, value in values.items():
        domain, slash, name = qualified.partition("/")
        if not slash:
            domain, name = driver, qualified
        domains.setdefault(domain, DeviceMap({}, ABSENT))[name] = value
    return DeviceMap(domains, _EMPTY)


def _value(name: str, attribute: Attribute) -> Value:
    lists = attribute.int_values, attribute.bool_values, attribute.string_values, attribute.version_values
    if lists != (None, None, None, None):
        raise SelectorError(
            f"attribute {name} is a list, which is alpha in Kubernetes 1.37 and not evaluated"
        )
    for value in (attribute.string_value, attribute.int_value, attribute.bool_value):
        if value is not None:
            return value
    if attribute.version_value is None:
        raise SelectorError(f"attribute {name} has no value of a known type")
    try:
        return read_semver(attribute.version_value)
    except Fault as fault:
        raise SelectorError(f"attribute {name}: {fault.reason}") from None


def _quantity(name: str, quantity: str) -> Value:
    try:
        return read_quantity(quantity)
    except Fault as fault:
        raise SelectorError(f"capacity {name}: {fault.reason}") from None


class DeviceSelector:
    """A compiled expression. `reads`: what its answer depends on."""

    __slots__ = ("_compiled", "expression", "reads")

    def __init__(self, expression: str, compiled: Compiled) -> None:
        self.expression = expression
        self.reads = compiled.reads
        self._compiled = compiled

    def matches(self, device: SelectableDevice) -> bool:
        """Whether the device is selected. Raises: SelectorError."""
        run = Run(device.variables, self._compiled.n_slots)
        try:
            found = self._compiled.step(run)
        except Fault as fault:
            raise SelectorError(fault.reason, expression=self.expression, position=fault.position) from None
        except Aborted as end:
            raise SelectorError(str(end)) from None
        except RecursionError:
            raise SelectorError("the evaluation is nested too deep") from None
        if found is True or found is False:
            return bool(found)
        raise SelectorError(f"the expression is {a_type(found)}, neither true nor false")


def compile(expression: str) -> DeviceSelector:
    """Compiles a selector that an API server has stored. Raises: SelectorError."""
    try:
        return DeviceSelector(expression, compile_tree(parse(expression), expression))
    except RecursionError:
        raise SelectorError(f"the expression is nested too deep; at most {MAX_DEPTH} levels") from None

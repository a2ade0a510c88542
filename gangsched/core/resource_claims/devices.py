"""ListedDevice: a device of a slice as the allocator needs it; Pool: those of one pool that a node reaches.

Made once per slice by core.resource_claims.pools. Amounts are in billionths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gangsched.model.cel.selector import SelectableDevice
from gangsched.model.objects import NodeSelector
from gangsched.model.resource_claims.amounts import billionths
from gangsched.model.resource_claims.objects import (
    Attribute,
    DeviceCapacity,
    DeviceId,
    PoolId,
    ResourceSlice,
    SliceDevice,
    SliceSpec,
)
from gangsched.model.selectors import matches_node, unusable

CounterName = tuple[str, str]
"""A counter set, and a counter in it."""
Value = tuple[str, object]
"""An attribute's type and value; values of different types are never equal."""


class NodeReach(NamedTuple):
    """Where devices can be used: on one node, on those of a selector, or everywhere; else nowhere.

    problem: why the selector is unusable, so that it is known to reach no node.
    """

    node_name: str = ""
    everywhere: bool = False
    selector: NodeSelector | None = None
    problem: str = ""

    def holds(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """Whether it includes the node."""
        if self.node_name:
            return self.node_name == node_name
        if self.everywhere or self.selector is None or self.problem:
            return self.everywhere
        return matches_node(self.selector, node_name, labels)


class ListedDevice:
    """One device. own_reach: its own, where its slice leaves that to each device. counters: how much it
    consumes of its pool's."""

    __slots__ = (
        *("_selectable", "attributes", "binding_conditions", "binding_failure_conditions", "binds_to_node"),
        *(
            "capacity",
            "counter_sets",
            "counters",
            "id",
            "is_odd",
            "own_reach",
            "reach",
            "shareable",
            "taints",
        ),
    )

    def __init__(self, listed: SliceDevice, one_slice: ResourceSlice) -> None:
        """Raises: ParseError (an amount cannot be read)."""
        spec = one_slice.spec
        self.id = DeviceId(spec.driver, spec.pool.name, listed.name)
        self.attributes: Mapping[str, Attribute] = listed.attributes
        self.capacity: Mapping[str, DeviceCapacity] = listed.capacity
        self.shareable = listed.allow_multiple_allocations
        self.taints = tuple(listed.taints or ())
        self.binds_to_node = listed.binds_to_node
        self.binding_conditions = listed.binding_conditions
        self.binding_failure_conditions = listed.binding_failure_conditions
        counters: dict[CounterName, int] = {}
        for used in listed.consumes_counters or ():
            for name, counter in used.counters.items():
                key = used.counter_set, name
                counters[key] = counters.get(key, 0) + billionths(counter.value)
        self.counters = tuple(counters.items())
        self.counter_sets = tuple(used.counter_set for used in listed.consumes_counters or ())
        # Selectors fail on all of a device for one attribute that they cannot read.
        self.is_odd = any(_plain(one) is A_LIST for one in self.attributes.values())
        self.own_reach = reach(listed) if spec.per_device_node_selection else None
        self.reach = self.own_reach or reach(spec)
        self._selectable: SelectableDevice | None = None

    @property
    def selectable(self) -> SelectableDevice:
        """The device as selectors see it. Raises: SelectorError."""
        if self._selectable is None:
            self._selectable = SelectableDevice(
                self.id.driver,
                self.attributes,
                {name: str(one.value) for name, one in self.capacity.items()},
                shareable=self.shareable,
            )
        return self._selectable

    def value(self, name: str) -> Value | None:
        """Returns the attribute of that full name; None: it has none. A list has a type and no value.

        A name of the driver's own domain is found without the domain too.
        """
        found = self.attributes.get(name)
        if found is None:
            domain, _, short = name.partition("/")
            found = self.attributes.get(short) if domain == self.id.driver and short else None
        return None if found is None else _plain(found)


A_LIST: Value = ("", None)


def _plain(attribute: Attribute) -> Value:
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    if attribute.version_value is not None:
        return "version", attribute.version_value
    return A_LIST


class Pool:
    """The devices of one pool that one node reaches, in the order in which they are tried.

    problem: why none of them may be given out, "" if they may. counters: how much the pool has of each.
    consumers: the devices of the whole pool that consume counters, of other nodes too; one that two slices
    list is there twice.
    """

    __slots__ = (
        *("consumers", "counters", "devices", "id", "is_by_device", "is_incomplete", "problem"),
        *("shapes", "waits"),
    )

    def __init__(
        self,
        pool_id: PoolId,
        devices: tuple[ListedDevice, ...] = (),
        *,
        counters: Mapping[CounterName, int] | None = None,
        consumers: tuple[ListedDevice, ...] = (),
        problem: str = "",
        is_incomplete: bool = False,
    ) -> None:
        self.id = pool_id
        self.devices = devices
        self.counters: Mapping[CounterName, int] = counters or {}
        self.consumers = consumers
        self.problem = problem
        self.is_incomplete = is_incomplete
        self.is_by_device = any(one.own_reach is not None for one in devices)
        """Whether nodes that reach the pool may reach different devices of it."""
        self.shapes: dict[tuple[str, ...], tuple[int, int]] = {}
        """What core.resource_claims.copies keeps of it."""
        self.waits = any(one.binding_conditions is not None for one in devices)
        """Whether a device of it may need something to happen after it is allocated: such pools come last."""


def reach(listed: SliceDevice | SliceSpec) -> NodeReach:
    """Returns where a device can be used, or those of a slice that does not leave it to each of them."""
    selector = listed.node_selector
    wrong = (unusable(one) for one in (selector.node_selector_terms or () if selector is not None else ()))
    return NodeReach(
        listed.node_name or "", listed.all_nodes, selector, next((one for one in wrong if one), "")
    )

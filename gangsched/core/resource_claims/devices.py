"""ListedDevice: a device of a slice as the allocator needs it; Pool: those of one pool that a node reaches;
PoolBook: which pools each node reaches, from the ResourceSlices that drivers publish.

Of a pool, the newest generation among the slices that reach the node counts. If these are not the whole pool,
its other slices are looked at too: one of a newer generation hides the pool, and a missing one makes it
incomplete. Amounts are in billionths. Source: k8s.io/dynamic-resource-allocation v0.37.1
`structured/internal/incubating/pools_incubating.go`, GatherPools.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gangsched.errors import ParseError
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

if TYPE_CHECKING:
    from gangsched.model.cel.selector import SelectableDevice

CounterName = tuple[str, str]
"""A counter set, and a counter in it."""
Value = tuple[str, object]
"""An attribute's type and value; values of different types are never equal."""
Labels = Mapping[str, str]
_Key = TypeVar("_Key")
# Of a pool of which each node reaches other slices, this many such sets are kept.
_MAX_KEPT = 256


class NodeReach(NamedTuple):
    """Where devices can be used: on one node, on those of a selector, or everywhere; else nowhere.

    problem: why the selector is unusable, so that it is known to reach no node.
    """

    node_name: str = ""
    everywhere: bool = False
    selector: NodeSelector | None = None
    problem: str = ""

    @property
    def is_of_choice(self) -> bool:
        """Whether its selector has several terms, of which an allocation can repeat one."""
        return self.selector is not None and len(self.selector.node_selector_terms or ()) > 1

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
            from gangsched.model.cel.selector import SelectableDevice  # as in core.resource_claims.selectors

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
        *("consumers", "counters", "devices", "id", "is_by_device", "is_incomplete", "is_told_apart"),
        *("_pairs", "problem", "shapes", "waits"),
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
        """What core.resource_claims.search.copies keeps of it."""
        self.is_told_apart: bool | None = None
        """What core.resource_claims.search.better keeps of it."""
        self.waits = any(one.binding_conditions is not None for one in devices)
        """Whether a device of it may need something to happen after it is allocated: such pools come last."""
        self._pairs: tuple[tuple[ListedDevice, Pool], ...] | None = None

    @property
    def pairs(self) -> tuple[tuple[ListedDevice, Pool], ...]:
        """The devices, each with the pool; none where there is a problem. Made once for all nodes that reach
        the pool."""
        if self._pairs is None:
            self._pairs = () if self.problem else tuple((one, self) for one in self.devices)
        return self._pairs


def reach(listed: SliceDevice | SliceSpec) -> NodeReach:
    """Returns where a device can be used, or those of a slice that does not leave it to each of them."""
    selector = listed.node_selector
    wrong = (unusable(one) for one in (selector.node_selector_terms or () if selector is not None else ()))
    return NodeReach(
        listed.node_name or "", listed.all_nodes, selector, next((one for one in wrong if one), "")
    )


class _Slice:
    """A slice with what follows from it alone."""

    __slots__ = ("devices", "is_left_out", "problem", "raw", "reach")

    def __init__(self, raw: ResourceSlice) -> None:
        self.raw = raw
        self.problem = ""
        self.devices: tuple[ListedDevice, ...] = ()
        # Whether devices fit together is alpha in Kubernetes 1.37, which leaves such slices out, and so takes
        # their pool for incomplete. The same is done with what takes a part of its node: it is not counted.
        self.is_left_out = any(
            one.takes_of_its_node or any(used.compatibility_groups for used in one.consumes_counters or ())
            for one in raw.spec.devices
        )
        self.reach = reach(raw.spec)
        try:
            self.devices = tuple(ListedDevice(one, raw) for one in raw.spec.devices)
        except ParseError as error:
            self.problem = error.message
        if raw.unreadable:
            self.problem = f"it cannot be read: {raw.unreadable}"
        if self.reach.problem:
            self.problem = f"its node selector: {self.reach.problem}"

    @property
    def has_counters(self) -> bool:
        return bool(self.raw.spec.shared_counters)

    def reaches(self, node_name: str, labels: Labels) -> bool:
        """Whether it reaches the node; if that cannot be known, it does, so that its pool is not used."""
        where = self.reach
        if where.node_name or where.everywhere or where.selector is not None:
            return bool(where.problem) or where.holds(node_name, labels)
        each = self.raw.spec.per_device_node_selection
        return each and any(one.reach.holds(node_name, labels) for one in self.devices)


class _Gathered(NamedTuple):
    """A pool's slices that reach a node, all of one generation."""

    generation: int
    slices: list[_Slice]


class PoolBook:
    """All slices, and for each node the pools that it reaches; what is asked twice is worked out once."""

    def __init__(self) -> None:
        self._slices: dict[str, _Slice] = {}
        self._of_pool: dict[PoolId, dict[str, _Slice]] = {}
        self._of_node: dict[str, dict[str, _Slice]] = {}
        self._shared: dict[str, _Slice] = {}
        self._built: dict[PoolId, dict[tuple[str, ...], Pool]] = {}
        self._at: dict[str, tuple[Pool, ...]] = {}
        self._n_listed: dict[PoolId, int] = {}
        """By pool, if it was counted; below 0: it has counters."""
        self._n_shared_changes = 0
        self._n_changes_at: dict[str, int] = {}

    def put(self, one: ResourceSlice) -> None:
        """Adds a slice, or replaces the one of that name."""
        name = one.metadata.name
        self.remove(name)
        known = self._slices[name] = _Slice(one)
        self._of_pool.setdefault(one.pool_id, {})[name] = known
        if one.spec.node_name:
            self._of_node.setdefault(one.spec.node_name, {})[name] = known
        else:
            self._shared[name] = known
        self._changed(known)

    def remove(self, name: str) -> None:
        """Removes the slice of that name, if there is one."""
        known = self._slices.pop(name, None)
        if known is None:
            return
        spec = known.raw.spec
        _drop(self._of_pool, known.raw.pool_id, name)
        if spec.node_name:
            _drop(self._of_node, spec.node_name, name)
        else:
            del self._shared[name]
        self._changed(known)

    @property
    def has_shared(self) -> bool:
        """Whether there are slices that more than one node may reach."""
        return bool(self._shared)

    def revision_at(self, node_name: str) -> tuple[int, int]:
        """Changes with the slices that the node may reach, and with others of their pools."""
        return self._n_shared_changes, self._n_changes_at.get(node_name, 0)

    def pool_of(self, name: str) -> PoolId | None:
        """Returns the pool of the slice of that name; None: there is no such slice."""
        known = self._slices.get(name)
        return None if known is None else known.raw.pool_id

    def nodes_of(self, pool_id: PoolId) -> dict[str, None]:
        """Returns the names of the nodes that may reach the pool, "" if any node may."""
        return {one.raw.spec.node_name or "": None for one in self._of_pool.get(pool_id, {}).values()}

    def at(self, node_name: str, labels: Labels) -> tuple[Pool, ...]:
        """Returns the pools that the node reaches, in the order in which they are tried: by driver and name,
        those whose devices have binding conditions last.

        Where slices are for one node each, the answer is kept.
        """
        own = self._of_node.get(node_name)
        if not self._shared:
            if own is None:
                return ()
            kept = self._at.get(node_name)
            if kept is None:
                kept = self._at[node_name] = self._gather(own.values())
            return kept
        there = (*(own or {}).values(), *self._shared.values())
        return self._gather(one for one in there if one.reaches(node_name, labels))

    def own_at(self, node_name: str) -> tuple[Pool, ...]:
        """Returns the pools, or parts of pools, that only this node reaches."""
        if not self._shared:
            return self.at(node_name, {})
        return self._gather(self._of_node.get(node_name, {}).values())

    def shared(self) -> tuple[Pool, ...]:
        """Returns the pools, or parts of pools, that more than one node may reach, whichever these are."""
        return self._gather(self._shared.values())

    def n_listed(self) -> Iterator[tuple[PoolId, int]]:
        """Yields how many devices each pool lists, in its newest generation; pools whose devices consume
        counters are left out, since which of them can be given out depends on the others."""
        for pool_id, known in self._of_pool.items():
            n = self._n_listed.get(pool_id)
            if n is None:
                n = self._n_listed[pool_id] = _n_listed(known.values())
            if n >= 0:
                yield pool_id, n

    def _gather(self, slices: Iterable[_Slice]) -> tuple[Pool, ...]:
        found: dict[PoolId, _Gathered] = {}
        for one in slices:
            if one.is_left_out:
                continue
            pool_id, generation = one.raw.pool_id, one.raw.spec.pool.generation
            known = found.get(pool_id)
            if known is None or generation > known.generation:
                found[pool_id] = _Gathered(generation, [one])
            elif generation == known.generation:
                known.slices.append(one)
        pools = [self._pool(pool_id, *gathered) for pool_id, gathered in sorted(found.items())]
        there = [one for one in pools if one is not None]
        return (*(one for one in there if not one.waits), *(one for one in there if one.waits))

    def _pool(self, pool_id: PoolId, generation: int, slices: list[_Slice]) -> Pool | None:
        n_all = slices[0].raw.spec.pool.resource_slice_count
        others: list[_Slice] = []
        if len(slices) != n_all:
            known = self._of_pool[pool_id].values()
            if any(one.raw.spec.pool.generation > generation for one in known):
                return None
            whole = [
                one for one in known if one.raw.spec.pool.generation == generation and not one.is_left_out
            ]
            if len(whole) != n_all:
                text = f"{len(whole)} of {n_all} slices of generation {generation} are there"
                return Pool(pool_id, problem=text, is_incomplete=True)
            here = {one.raw.metadata.name for one in slices}
            others = [one for one in whole if one.raw.metadata.name not in here]
        slices.sort(key=lambda one: one.raw.metadata.name)
        key = tuple(one.raw.metadata.name for one in slices)
        kept = self._built.setdefault(pool_id, {})
        built = kept.get(key)
        if built is None:
            if len(kept) >= _MAX_KEPT:
                kept.clear()
            built = kept[key] = _built(pool_id, slices, others)
        return built

    def _changed(self, one: _Slice) -> None:
        pool_id = one.raw.pool_id
        self._built.pop(pool_id, None)
        self._n_listed.pop(pool_id, None)
        # What a node reaches of a pool may depend on all slices of the pool.
        for name in {one.raw.spec.node_name or "": None, **self.nodes_of(pool_id)}:
            self._at.pop(name, None)
            if name:
                self._n_changes_at[name] = self._n_changes_at.get(name, 0) + 1
            else:
                self._n_shared_changes += 1


def _n_listed(known: Collection[_Slice]) -> int:
    newest = max(one.raw.spec.pool.generation for one in known)
    there = [one for one in known if one.raw.spec.pool.generation == newest]
    return -1 if any(one.has_counters for one in there) else sum(len(one.devices) for one in there)


def _drop(index: dict[_Key, dict[str, _Slice]], key: _Key, name: str) -> None:
    there = index[key]
    del there[name]
    if not there:
        del index[key]


def _built(pool_id: PoolId, here: Sequence[_Slice], others: Sequence[_Slice]) -> Pool:
    """Builds a pool from all its slices, those that reach the node first."""
    devices = tuple(device for one in here if not one.has_counters for device in one.devices)
    elsewhere = [device for one in others if not one.has_counters for device in one.devices]
    counters, sets, problem = _counters([*here, *others])
    names: set[str] = set()
    for device in devices:
        if device.id.name in names:
            return Pool(pool_id, problem=f"duplicate device name {device.id.name}")
        names.add(device.id.name)
    if problem:
        return Pool(pool_id, problem=problem)
    consumers = tuple(one for one in (*devices, *elsewhere) if one.counter_sets)
    for device in consumers:
        for set_name in device.counter_sets:
            if set_name not in sets:
                return Pool(pool_id, problem=f"counter set {set_name} not found")
        for (set_name, name), _ in device.counters:
            if (set_name, name) not in counters:
                return Pool(pool_id, problem=f"counter {name} not found in counter set {set_name}")
    return Pool(pool_id, devices, counters=counters, consumers=consumers)


def _counters(slices: Iterable[_Slice]) -> tuple[dict[CounterName, int], set[str], str]:
    """Returns what the pool has of each counter, the names of its counter sets, and what is wrong with its
    slices, "" if nothing is."""
    counters: dict[CounterName, int] = {}
    sets: set[str] = set()
    for one in slices:
        if one.problem:
            return {}, sets, f"slice {one.raw.metadata.name}: {one.problem}"
        for shared in one.raw.spec.shared_counters or ():
            if shared.name in sets:
                return {}, sets, f"duplicate counter set name {shared.name}"
            sets.add(shared.name)
            try:
                for name, counter in shared.counters.items():
                    counters[shared.name, name] = billionths(counter.value)
            except ParseError as error:
                return {}, sets, f"counter set {shared.name}: {error.message}"
    return counters, sets, ""

"""The map: for every node its rack and a code for each of its devices, and which rows changed.

Lives here: codes, one walk over changed rows. Not here: how often (feed.py), drawing (static/map.js). Groups
are numbered, so that a cell is a small number and a name is sent once. A pool of ResourceSlices that several
nodes reach is a row of its own, below 0. Text is made safe to print; the page shows it as text only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from gangsched.core.cache.devices.column import DeviceColumn
from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.explaining import claim_views
from gangsched.core.explaining.claim_views import DeviceState, device_states
from gangsched.core.resource_claims.devices import Pool
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, MemberState
from gangsched.model.pod_group import GroupKey
from gangsched.model.resource_claims.objects import PoolId
from gangsched.model.text.printable import clean

# A cell's code: one of these, or FIRST_GROUP + 2 x the group's number, + 1 while only reserved.
FREE, UNHEALTHY, FOREIGN, COUNTED, CLAIMED, TAINTED, BLOCKED, KEPT = range(8)
FIRST_GROUP = 8
# Once there are this many names, the whole map is rebuilt, which drops groups that are gone.
MAX_NAMES = 20_000
# Kubelets choose the names of nodes and resources.
MAX_RESOURCES = 16
MAX_CELLS = 256
# A resource without device IDs is drawn only if the node has at most this many: plugins for /dev/fuse report
# thousands.
MAX_COUNTED = 64
# Of pools that several nodes reach. They are read in turn: nothing notes what changes in one.
MAX_POOLS = 64
# Devices by claims read in one look; each takes up to 5 us, if a claim has it.
DEVICES_AT_ONCE = 1_000
_OF_STATE = {
    claim_views.FREE: FREE,
    claim_views.TAINTED: TAINTED,
    claim_views.BLOCKED: BLOCKED,
    claim_views.KEPT: KEPT,
    claim_views.FOREIGN: FOREIGN,
}


class NodeCells(msgspec.Struct, frozen=True, array_like=True):
    """One node, or a pool that several reach: driver/pool. cells: by resource or driver, a code for each
    device. is_open: whether it accepts new pods; of a pool, whether its devices are given out."""

    row: int
    name: str
    rack: str
    is_open: bool
    cells: dict[str, list[int]]


class Changes(msgspec.Struct):
    """What changed since the last look. is_whole: replaces everything before."""

    nodes: list[NodeCells]
    gone: list[int]
    groups: dict[int, str]
    is_whole: bool = False


class Cells:
    """The map as it was last read."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._mark = -1
        self._due: dict[int, None] = {}
        self._reserved: dict[int, None] = {}
        """Rows with a reserved device, read again each time: a bind changes nothing in its row."""
        self._numbers: dict[GroupKey, int] = {}
        self._new: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._pools: dict[PoolId, int] = {}
        """By pool that several nodes reach: its row."""
        self._n_pools = 0
        self._next_pool = 0
        self._n_devices = 0
        """By claims, read in this look."""
        self._columns: list[tuple[str, DeviceColumn]] = []
        self._counted: list[tuple[str, int]] = []
        self._last: tuple[Group | None, int] = None, 0
        self.nodes: dict[int, NodeCells] = {}
        self.is_filling = True
        """Not all rows have been read yet."""

    def whole(self) -> Changes:
        """Returns the map as last read, for a new viewer."""
        return Changes(list(self.nodes.values()), [], dict(self._names), is_whole=True)

    def changes(self, at_once: int) -> Changes:
        """Reads up to `at_once` rows that may have changed; the rest follow next time."""
        table = self._scheduler.shared.cache.nodes
        noted = table.rows_since(self._mark) if self._mark >= 0 else None
        is_whole = noted is None and len(self._numbers) > MAX_NAMES
        if is_whole:
            self._numbers.clear()
            self._names.clear()
            self.nodes.clear()
            self.is_filling = True
        self._due.update(dict.fromkeys(sorted(noted) if noted is not None else range(table.n_rows)))
        self._due.update(self._reserved)
        self._mark = table.journal_end if len(self._numbers) <= MAX_NAMES else -1
        self._read_columns(table)
        nodes, gone = [], []
        for row, now in (*self._shared_pools(), *self._rows(table, list(islice(self._due, at_once)))):
            before = self.nodes.get(row)
            if now is None:
                if before is not None:
                    del self.nodes[row]
                    gone.append(row)
            elif now != before:
                self.nodes[row] = now
                nodes.append(now)
        if not self._due:
            self.is_filling = False
        found, self._new = self._new, {}
        return Changes(nodes, gone, found, is_whole)

    def _rows(self, table: NodeTable, rows: Iterable[int]) -> Iterator[tuple[int, NodeCells | None]]:
        for row in rows:
            if self._n_devices > DEVICES_AT_ONCE:
                return
            del self._due[row]
            yield row, self._node(table, row)

    def _shared_pools(self) -> Iterator[tuple[int, NodeCells | None]]:
        """Reads pools that several nodes reach, in turn, as many as there is time for."""
        self._n_devices = 0
        there = self._scheduler.shared.cache.claims.pools.shared()[:MAX_POOLS]
        for pool_id in [one for one in self._pools if all(pool.id != one for pool in there)]:
            yield self._pools.pop(pool_id), None
        for _ in there:
            if self._n_devices > DEVICES_AT_ONCE // 2:
                return
            pool = there[self._next_pool % len(there)]
            self._next_pool += 1
            row = self._pools.get(pool.id)
            if row is None:
                self._n_pools += 1
                row = self._pools[pool.id] = -self._n_pools
            cells = dict(self._by_claims(row, [pool]))
            yield row, NodeCells(row, clean(str(pool.id)), "", not pool.problem, cells)

    def _node(self, table: NodeTable, row: int) -> NodeCells | None:
        self._reserved.pop(row, None)
        node = table.nodes[row] if row < len(table.nodes) else None
        if node is None or not table.live[row]:
            return None
        labels = node.metadata.labels or {}
        rack = clean(labels.get(self._scheduler.shared.settings.topology_key, ""))
        cells = {clean(resource): codes for resource, codes in self._cells(table, row)}
        cells |= self._by_claims(row, self._scheduler.shared.cache.claims.pools.own_at(node.metadata.name))
        return NodeCells(row, clean(node.metadata.name), rack, not table.unschedulable[row], cells)

    def _cells(self, table: NodeTable, row: int) -> Iterator[tuple[str, list[int]]]:
        listed: list[str] = []
        for resource, column in self._columns:
            devices = column.at.get(row)
            if devices is None or devices.inventory is None or len(listed) == MAX_RESOURCES:
                continue
            listed.append(resource)
            inventory, free = devices.inventory, devices.free
            codes = [FREE] * min(len(inventory.ids), MAX_CELLS)
            if free.bit_count() < len(inventory.ids):
                for i, device_id in enumerate(inventory.ids[:MAX_CELLS]):
                    if free >> i & 1:
                        continue
                    if not inventory.healthy >> i & 1:
                        codes[i] = UNHEALTHY
                    else:
                        codes[i] = (
                            self._holder(row, uids) if (uids := devices.holders(device_id)) else CLAIMED
                        )
            yield resource, codes
        counted = [(name, i) for name, i in self._counted if name not in listed]
        for name, i in counted[:MAX_RESOURCES]:
            n = int(table.allocatable[i, row])
            if 0 < n <= MAX_COUNTED:
                n_free = min(max(int(table.free[i, row]), 0), n)
                yield name, [COUNTED] * (n - n_free) + [FREE] * n_free

    def _by_claims(self, row: int, pools: Sequence[Pool]) -> Iterator[tuple[str, list[int]]]:
        """Yields by driver a code for each device of these pools."""
        cache, before = self._scheduler.shared.cache, self.nodes.get(row)
        # While a driver writes its slices the map stays: it would jump, and jump back.
        writing = {clean(pool.id.driver) for pool in pools if pool.is_incomplete}
        by_driver = {one: before.cells.get(one, []) if before is not None else [] for one in sorted(writing)}
        for pool in pools:
            driver = clean(pool.id.driver)
            if driver in writing:
                continue
            codes = by_driver.setdefault(driver, [])
            states = device_states(cache.claims, cache.pods, pool, MAX_CELLS - len(codes))
            codes += [self._code(row, state) for _, state in states]
            self._n_devices += len(codes)
        yield from islice(by_driver.items(), MAX_RESOURCES)

    def _code(self, row: int, state: DeviceState) -> int:
        code = _OF_STATE.get(state.kind)
        if code is not None or state.user is None or state.user.group is None:
            return FOREIGN if code is None else code
        is_reserved = state.kind == claim_views.RESERVED
        if is_reserved and row >= 0:
            self._reserved[row] = None
        return FIRST_GROUP + 2 * self._number(state.user.group.key) + is_reserved

    def _read_columns(self, table: NodeTable) -> None:
        """Reads the nodes' columns, before rows are read."""
        columns = self._scheduler.shared.cache.ledger.columns
        self._columns = [(resource, columns[resource]) for resource in sorted(columns)]
        names = table.table.names[: len(table.allocatable)]
        self._counted = [(name, i) for i, name in enumerate(names) if "/" in name]
        self._last = None, 0

    def _holder(self, row: int, uids: Iterable[str]) -> int:
        pods = self._scheduler.shared.cache.pods
        for uid in uids:
            info = pods.get(uid)
            if info is None or info.group is None:
                continue
            last, number = self._last
            if last is not info.group:  # a gang's devices are adjacent
                number = self._number(info.group.key)
                self._last = info.group, number
            if info.state is MemberState.ASSUMED:
                self._reserved[row] = None
                return FIRST_GROUP + 2 * number + 1
            return FIRST_GROUP + 2 * number
        return FOREIGN

    def _number(self, key: GroupKey) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._names[number] = self._new[number] = clean(str(key))
        return number

"""NodeTable: every node as a row of a few NumPy arrays. Written by the cache alone.

A node keeps its row while it exists; rows of deleted nodes are reused. Labels and taints are kept as codes,
so that a selector over all nodes is one array comparison; a label's column is built on the first query for
its key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from gangsched.core.cache.nodes.images import ImageTable
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.templates.pod_template import HostPort
from gangsched.model.objects import Node, Taint
from gangsched.model.resources import ResourceTable, readable_quantities
from gangsched.model.text.quantity import MAX_VALUE, saturated

CodeArray = npt.NDArray[np.int32]
MISSING = -1
_NOTHING: Mapping[str, int] = {}
# Past this many keys the columns are dropped and rebuilt on demand.
_MAX_LABELS = 256
# Sets of taints that no node has any more are forgotten when there are this many beside twice those in use.
_MAX_TAINT_CLASSES = 4096
# A reader that has missed more row changes than this must look at all rows.
_MAX_JOURNAL = 8192


class LabelColumn:
    """One label key over all nodes. Shape: codes int32[capacity], MISSING where there is none."""

    __slots__ = ("codes", "values")

    def __init__(self, capacity: int) -> None:
        self.codes: CodeArray = np.full(capacity, MISSING, dtype=np.int32)
        self.values: dict[str, int] = {}

    def put(self, row: int, value: str | None) -> None:
        self.codes[row] = MISSING if value is None else self.values.setdefault(value, len(self.values))


class Notes(dict[Hashable, dict[int, Any]]):
    """What readers have worked out by row from names and labels. No part of a recorded state, which may be
    read under other names: it is worked out again."""


class NodeTable:
    """Shapes: allocatable and free int64[n_resources, capacity]; live, unschedulable bool[capacity].

    padding int64[2, capacity]: the cpu and memory that scores count for pods that request none.
    beyond: by (column, row) the exact free amount, where `free` cannot hold it.
    """

    def __init__(self, table: ResourceTable, *, capacity: int = 64) -> None:
        self.table = table
        self.capacity = capacity
        self.n_rows = 0
        self.names: list[str] = []
        self.nodes: list[Node | None] = []
        self.row_of: dict[str, int] = {}
        self.allocatable: IntArray = np.zeros((len(table), capacity), dtype=np.int64)
        self.free: IntArray = np.zeros((len(table), capacity), dtype=np.int64)
        self.beyond: dict[tuple[int, int], int] = {}
        self.padding: IntArray = np.zeros((2, capacity), dtype=np.int64)
        self.n_padded = 0
        self.live: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.unschedulable: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.taint_class: CodeArray = np.zeros(capacity, dtype=np.int32)
        self.taint_classes: dict[tuple[Taint, ...], int] = {(): 0}
        self._most_taint_classes = _MAX_TAINT_CLASSES
        self.ports: dict[int, dict[HostPort, int]] = {}
        self.images = ImageTable()
        self.labels: dict[str, LabelColumn] = {}
        self._n_having: dict[str, int] = {}
        """Number of nodes with each label key. Selectors come from users, who may name keys by the thousand:
        keys that no node has share one column, and cost nothing."""
        self._nowhere = LabelColumn(capacity)
        self.offering: dict[str, int] = {}
        """Number of nodes that offer each resource name, counted or not."""
        self.by_class: dict[int, Mapping[str, int]] = {}
        """By row: what no plugin offers there and device classes serve, by how many devices at most. It
        counts as allocatable, so that whoever estimates room sees it; whether devices are free is asked of
        the claims."""
        self._by_class_masks: dict[str, BoolArray] = {}
        self._n_by_class: dict[str, int] = {}
        self.static_revision = 0
        self.noted: Notes | None = None
        self.noted_at = 0
        """What readers have worked out by row from names and labels, at that static_revision."""
        self.journal: list[int] = []
        self.journal_start = 0
        self._free_rows: list[int] = []

    @property
    def n_live(self) -> int:
        return len(self.row_of)

    @property
    def used(self) -> IntArray:
        """Used and reserved amounts, as a new array: int64[n_resources, capacity]."""
        used: IntArray = self.allocatable - self.free
        return used

    def fit_columns(self) -> None:
        """Grows the arrays to the known resource names."""
        missing = len(self.table) - self.allocatable.shape[0]
        if missing > 0:
            extra = np.zeros((missing + 4, self.capacity), dtype=np.int64)
            self.allocatable = np.concatenate([self.allocatable, extra])
            self.free = np.concatenate([self.free, extra])

    def row_for(self, name: str) -> int:
        """Returns the node's row, a new or reused one if need be; the caller grows its other per-row data."""
        row = self.row_of.get(name)
        if row is None:
            if self._free_rows:
                row = self._free_rows.pop()
                self.names[row] = name
            else:
                row = self.n_rows
                if row == self.capacity:
                    self._grow()
                self.n_rows += 1
                self.names.append(name)
                self.nodes.append(None)
            self.row_of[name] = row
        return row

    def offers(self, row: int, node: Node) -> bool:
        """Counts the names that the node offers now, before `put`; False: they are as they were, and so are
        their amounts."""
        before = self.nodes[row]
        if before is not None and before.status.allocatable == node.status.allocatable:
            return False
        self._count_offers(before, -1)
        self._count_offers(node, 1)
        return True

    def is_offered(self, name: str) -> bool:
        """Whether a node's plugin offers the resource, or a device class serves it somewhere."""
        return name in self.offering or name in self._n_by_class

    def serve(self, row: int, served: Mapping[str, int]) -> ClusterChange | None:
        """Takes in what device classes serve on the node, in place of what they did; returns what more that
        is. Names without a column are not counted."""
        before = self.by_class.pop(row, _NOTHING)
        if served:
            self.by_class[row] = served
        self._by_class_masks.clear()
        for names, sign in ((before, -1), (served, 1)):
            for name in names:
                n = self._n_by_class.get(name, 0) + sign
                if n:
                    self._n_by_class[name] = n
                else:
                    del self._n_by_class[name]
        grown = []
        for name in {**before, **served}:
            if name not in self.table:
                continue
            column = self.table.column(name)
            n = served[name] if name in served else self._offered(row, name)
            old = self.allocatable.item(column, row)
            if n != old:
                self._set_free(column, row, self.exact_free(column, row) + n - old)
                self.allocatable[column, row] = n
            if name not in before or n > old:
                grown.append(name)
        self.note(row)
        return ClusterChange(Change.NODE_ALLOCATABLE, row, frozenset(grown)) if grown else None

    def _offered(self, row: int, name: str) -> int:
        """Returns how much of the resource the node itself states; 0 for what cannot be read."""
        node = self.nodes[row]
        stated = ((node.status.allocatable if node is not None else None) or {}).get(name)
        return 0 if stated is None else readable_quantities({name: stated})[0].get(name, 0)

    def served_by_class(self, name: str) -> BoolArray:
        """bool[capacity]: where device classes serve the resource."""
        mask = self._by_class_masks.get(name)
        if mask is None or len(mask) != self.capacity:
            mask = np.zeros(self.capacity, dtype=np.bool_)
            for row, served in self.by_class.items() if name in self._n_by_class else ():
                mask[row] = name in served
            self._by_class_masks[name] = mask
        return mask

    def is_as_known(self, known: Node, node: Node) -> bool:
        """Whether the node, with its images, is as in its last version: only a heartbeat, say."""
        row = self.row_of.get(node.metadata.name)
        if row is None or not self.images.are(row, node.status.images):
            return False
        mine = replace(node.metadata, resource_version="", generation=0)
        return (
            replace(known.metadata, resource_version="", generation=0) == mine
            and known.spec == node.spec
            and replace(known.status, images=None) == replace(node.status, images=None)
        )

    def put(
        self, row: int, node: Node, amounts: Mapping[str, int], *, is_same: bool = False
    ) -> list[ClusterChange]:
        """Takes in a node's state; returns the changes that may help a pod or change its choices.

        amounts: what can be read of its allocatable resources; names without a column are not counted.
        is_same: as by is_as_known.
        """
        table = self.table
        before, is_new = self.nodes[row], not self.live[row]
        old: list[int] = self.allocatable[:, row].tolist()
        fresh = [0] * len(old)  # a few numbers, which a list compares faster than an array
        for name, amount in amounts.items():
            if name in table:
                fresh[table.column(name)] = amount
        if not is_same or fresh != old:
            self.note(row)
        grown = frozenset([self.table.names[i] for i, n in enumerate(fresh) if n > old[i]])
        for i, n in enumerate(fresh):
            if n != old[i]:
                self._set_free(i, row, self.exact_free(i, row) + n - old[i])
                self.allocatable[i, row] = n
        labels_changed = before is None or before.metadata.labels != node.metadata.labels
        # Like labels, they say which pods the node is for; no array of them is kept, as few pods need any.
        features_changed = before is None or before.status.declared_features != node.status.declared_features
        taints_changed = (
            before is None
            or before.spec.taints != node.spec.taints
            or before.spec.unschedulable != node.spec.unschedulable
        )
        self.images.put(row, node.status.images)
        if node.status.images:
            node = replace(node, status=replace(node.status, images=None))
        self.nodes[row] = node
        self.live[row] = True
        if labels_changed:
            self._count_labels(before, -1)
            self._count_labels(node, 1)
            for key, column in self.labels.items():
                column.put(row, (node.metadata.labels or {}).get(key))
        if taints_changed:
            taints = tuple(node.spec.taints or ())
            if len(self.taint_classes) >= self._most_taint_classes:
                self._recode_taints()
            self.taint_class[row] = self.taint_classes.setdefault(taints, len(self.taint_classes))
            self.unschedulable[row] = node.spec.unschedulable
        if is_new or labels_changed or taints_changed or features_changed:
            self.static_revision += 1
        if is_new:
            return [ClusterChange(Change.NODE_ADDED, row)]
        changes = []
        if grown:
            changes.append(ClusterChange(Change.NODE_ALLOCATABLE, row, grown))
        if labels_changed or features_changed:
            changes.append(ClusterChange(Change.NODE_LABELS, row))
        if taints_changed:
            changes.append(ClusterChange(Change.NODE_TAINTS, row))
        return changes

    def fill_column(self, column: int, name: str) -> list[int]:
        """Counts what nodes offer of a name that has got this column, used by no pod; returns their rows."""
        for place in [place for place in self.beyond if place[0] == column]:
            del self.beyond[place]
        self.allocatable[column] = self.free[column] = 0
        rows = []
        for row in self.row_of.values() if self.is_offered(name) else ():
            node, by_class = self.nodes[row], self.by_class.get(row, _NOTHING)
            offered = (node.status.allocatable if node is not None else None) or {}
            if name in offered or name in by_class:
                amount = by_class[name] if name in by_class else self._offered(row, name)
                self.allocatable[column, row] = self.free[column, row] = amount
                rows.append(row)
        self.note_all()  # what readers know of any row may be of the former name
        self.static_revision += 1
        return rows

    def remove(self, name: str) -> int | None:
        """Frees the node's row and drops the use counted on it; returns the row."""
        row = self.row_of.pop(name, None)
        if row is None:
            return None
        self.note(row)
        self._count_labels(self.nodes[row], -1)
        self._count_offers(self.nodes[row], -1)
        self.serve(row, _NOTHING)
        self.nodes[row] = None
        self.names[row] = ""
        self.live[row] = False
        self.unschedulable[row] = False
        self.taint_class[row] = 0
        self.allocatable[:, row] = 0
        self.free[:, row] = 0
        for place in [place for place in self.beyond if place[1] == row]:
            del self.beyond[place]
        self.padding[:, row] = 0
        self.images.put(row, None)
        self.ports.pop(row, None)
        for column in self.labels.values():
            column.put(row, None)
        self._free_rows.append(row)
        self.static_revision += 1
        return row

    def drop(self, name: str) -> None:
        """Does as remove, for a node that may have been written halfway."""
        row = self.row_of.pop(name)
        self.note(row)
        self.serve(row, _NOTHING)
        self.nodes[row], self.names[row] = None, ""
        self.live[row] = self.unschedulable[row] = False
        self.taint_class[row] = 0
        self.allocatable[:, row] = 0
        self.clear_used(row)
        self.labels.clear()
        self._n_having.clear()
        self.offering.clear()
        for node in self.nodes:
            self._count_labels(node, 1)
            self._count_offers(node, 1)
        self.images.forget(row)
        self._free_rows.append(row)
        self.static_revision += 1

    def use(self, row: int, columns: list[int], amounts: list[int], n_pods: int) -> None:
        """Adds the requests of `n_pods` equal pods; subtracts if negative."""
        self.note(row)
        free = self.free
        for column, amount in zip(columns, amounts, strict=True):
            left = free.item(column, row) - n_pods * amount
            if self.beyond or not -MAX_VALUE <= left <= MAX_VALUE:
                self._set_free(column, row, self.exact_free(column, row) - n_pods * amount)
            else:
                free[column, row] = left

    def has_any(self, row: int, resource: str) -> bool:
        """Whether the node's allocatable has any of the resource."""
        return resource in self.table and bool(self.allocatable[self.table.column(resource), row])

    def exact_free(self, column: int, row: int) -> int:
        """Returns the free amount: `free`, except for sums beyond its range."""
        exact = self.beyond.get((column, row))
        return self.free.item(column, row) if exact is None else exact

    def _set_free(self, column: int, row: int, exact: int) -> None:
        self.free[column, row] = shown = saturated(exact)
        if shown == exact:
            self.beyond.pop((column, row), None)
        else:
            self.beyond[column, row] = exact

    def clear_used(self, row: int) -> None:
        """Resets the node's use to zero, whatever was counted."""
        self.note(row)
        for place in [place for place in self.beyond if place[1] == row]:
            del self.beyond[place]
        self.free[:, row] = self.allocatable[:, row]
        self.padding[:, row] = 0
        self.ports.pop(row, None)

    def pad(self, row: int, padding: tuple[int, int], n_pods: int) -> None:
        """Adds the scores' padding for `n_pods` equal pods; use() has journaled the row."""
        self.n_padded += n_pods
        self.padding[0, row] += n_pods * padding[0]
        self.padding[1, row] += n_pods * padding[1]

    def use_ports(self, row: int, ports: tuple[HostPort, ...], sign: int) -> None:
        """Counts host ports taken on the node."""
        self.note(row)
        taken = self.ports.setdefault(row, {})
        for port in ports:
            count = taken.get(port, 0) + sign
            if count > 0:
                taken[port] = count
            else:
                taken.pop(port, None)
        if not taken:
            del self.ports[row]

    def label_column(self, key: str) -> LabelColumn:
        """Returns the codes of one label key, built on first use and kept current."""
        if key not in self._n_having:
            return self._nowhere
        column = self.labels.get(key)
        if column is None or len(column.values) > 4 * self.capacity:
            if len(self.labels) >= _MAX_LABELS:
                self.labels.clear()
            column = self.labels[key] = LabelColumn(self.capacity)
            for name, row in self.row_of.items():
                node = self.nodes[row]
                if node is not None and name:
                    column.put(row, (node.metadata.labels or {}).get(key))
        return column

    def _count_labels(self, node: Node | None, sign: int) -> None:
        _count(self._n_having, node.metadata.labels if node is not None else None, sign)

    def _count_offers(self, node: Node | None, sign: int) -> None:
        _count(self.offering, node.status.allocatable if node is not None else None, sign)

    def changed_since(self, mark: int) -> IntArray | None:
        """Returns rows that changed since journal_end was `mark`, ascending; None: too long ago to know."""
        rows = self.rows_since(mark)
        return None if rows is None else np.array(sorted(rows), dtype=np.int64)

    def rows_since(self, mark: int) -> set[int] | None:
        """As changed_since, as a set: for readers that look at few rows, one by one."""
        return None if mark < self.journal_start else set(self.journal[mark - self.journal_start :])

    @property
    def journal_end(self) -> int:
        """Grows with every change of any row."""
        return self.journal_start + len(self.journal)

    def note_all(self) -> None:
        """Journals that any row may have changed."""
        self.journal_start = self.journal_end + 1
        self.journal.clear()

    def note(self, row: int) -> None:
        """Journals a change of this row that affects a template's capacity or score."""
        self.journal.append(row)
        if len(self.journal) > _MAX_JOURNAL:
            del self.journal[: _MAX_JOURNAL // 2]
            self.journal_start += _MAX_JOURNAL // 2

    def _recode_taints(self) -> None:
        """Forgets taints that no node has now."""
        self.taint_classes = {(): 0}
        for row in self.row_of.values():
            node = self.nodes[row]
            taints = tuple((node.spec.taints if node else None) or ())
            self.taint_class[row] = self.taint_classes.setdefault(taints, len(self.taint_classes))
        self._most_taint_classes = 2 * len(self.taint_classes) + _MAX_TAINT_CLASSES
        self.static_revision += 1

    def _grow(self) -> None:
        more = self.capacity
        self.allocatable = np.concatenate([self.allocatable, np.zeros_like(self.allocatable)], axis=1)
        self.free = np.concatenate([self.free, np.zeros_like(self.free)], axis=1)
        self.padding = np.concatenate([self.padding, np.zeros_like(self.padding)], axis=1)
        self.live = np.concatenate([self.live, np.zeros(more, dtype=np.bool_)])
        self.unschedulable = np.concatenate([self.unschedulable, np.zeros(more, dtype=np.bool_)])
        self.taint_class = np.concatenate([self.taint_class, np.zeros(more, dtype=np.int32)])
        for column in (*self.labels.values(), self._nowhere):
            column.codes = np.concatenate([column.codes, np.full(more, MISSING, dtype=np.int32)])
        self.capacity += more


def _count(counts: dict[str, int], names: Iterable[str] | None, sign: int) -> None:
    for name in names or ():
        n = counts.get(name, 0) + sign
        if n:
            counts[name] = n
        else:
            del counts[name]

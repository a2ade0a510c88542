"""ClusterView: the cache's state, read-only, for plugins and the cycle.

Arrays over node rows, counts of pods and the objects that plugins watch. core.cache.trial's Trial is a copy
of it to place pods on, with the same queries. Made by core.cache.cache.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from gangsched.core.cache.device_ledger import DeviceLedger
from gangsched.core.cache.images import Image
from gangsched.core.cache.node_table import CodeArray, LabelColumn, NodeTable
from gangsched.core.cache.object_store import Name, ObjectStore
from gangsched.core.cache.pod_index import PodIndex
from gangsched.core.types.affinity_terms import Carried
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.group import PodInfo
from gangsched.core.types.pod_template import HostPort, PodTemplate
from gangsched.model.devices import DeviceInventory
from gangsched.model.objects import Node, Pod, Taint
from gangsched.model.resources import ResourceTable
from gangsched.model.selectors import PodTerm

Wishes = tuple[tuple[PodTemplate, tuple[int, ...]], ...]
"""(template, the devices of each of its pods as a mask) in the order in which they were placed."""

_ArrayT = TypeVar("_ArrayT", bound=np.ndarray[Any, Any])


class Following(Protocol):
    """A plugin's data about a Trial, updated as pods are placed on it (ClusterView.kept)."""

    def add(self, view: ClusterView, row: int, template: PodTemplate, count: int) -> None:
        """`count` pods of one template were placed on `row`; `view` shows them already."""
        ...


FollowingT = TypeVar("FollowingT", bound=Following)


def shown(array: _ArrayT) -> _ArrayT:
    """A read-only view: these are the cache's own arrays, and plugins are others' code."""
    array.setflags(write=False)  # faster than the attribute
    return array


class ClusterView:
    """Read-only view over all node rows. Rows without a node have live False and no room."""

    __slots__ = ("_by_node", "_index", "_ledger", "_nodes", "_objects")

    def __init__(
        self,
        nodes: NodeTable,
        ledger: DeviceLedger,
        by_node: Mapping[str, Mapping[str, PodInfo]],
        index: PodIndex,
        objects: ObjectStore,
    ) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._by_node = by_node
        self._index = index
        self._objects = objects

    @property
    def n_rows(self) -> int:
        return self._nodes.n_rows

    @property
    def n_nodes(self) -> int:
        """The number of nodes."""
        return self._nodes.n_live

    @property
    def table(self) -> ResourceTable:
        return self._nodes.table

    @property
    def live(self) -> BoolArray:
        return shown(self._nodes.live[: self._nodes.n_rows])

    @property
    def unschedulable(self) -> BoolArray:
        return shown(self._nodes.unschedulable[: self._nodes.n_rows])

    @property
    def taint_class(self) -> CodeArray:
        """int32[n_rows], an index into taint_classes."""
        return shown(self._nodes.taint_class[: self._nodes.n_rows])

    @property
    def taint_classes(self) -> Mapping[tuple[Taint, ...], int]:
        """Every distinct list of taints that a node has had, with its code."""
        return self._nodes.taint_classes

    @property
    def static_revision(self) -> int:
        """Changes whenever a node appears, goes, or changes labels, taints or spec.unschedulable."""
        return self._nodes.static_revision

    @property
    def journal_end(self) -> int:
        """Changes with every change of any node row of the cache."""
        return self._nodes.journal_end

    def changed_since(self, mark: int) -> IntArray | None:
        """Rows of the cache that changed since journal_end was `mark`; None: too long ago to know."""
        return self._nodes.changed_since(mark)

    def rows_since(self, mark: int) -> set[int] | None:
        """As changed_since, as a set: for followers that look at few rows, one by one."""
        return self._nodes.rows_since(mark)

    def base(self) -> ClusterView:
        """The cache's state, without a Trial's placements."""
        return ClusterView(self._nodes, self._ledger, self._by_node, self._index, self._objects)

    def name(self, row: int) -> str:
        return self._nodes.names[row]

    def node(self, row: int) -> Node | None:
        return self._nodes.nodes[row]

    def row_of(self, name: str) -> int | None:
        return self._nodes.row_of.get(name)

    def label(self, key: str) -> tuple[CodeArray, Mapping[str, int]]:
        """One label over all nodes: (int32[n_rows] codes, -1 where absent; value -> code)."""
        column: LabelColumn = self._nodes.label_column(key)
        return shown(column.codes[: self._nodes.n_rows]), column.values

    def allocatable(self, column: int) -> IntArray:
        """int64[n_rows] of one resource column."""
        return shown(self._nodes.allocatable[column, : self._nodes.n_rows])

    def free(self, column: int) -> IntArray:
        """int64[n_rows]: allocatable less used and reserved; below 0 where other schedulers overcommit."""
        return shown(self._nodes.free[column, : self._nodes.n_rows])

    def room_at(self, columns: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        """(allocatable, free) of some columns at some rows. Shapes: int64[len(columns), len(rows)]."""
        at = (columns[:, np.newaxis], rows)
        return self._nodes.allocatable[at], self._nodes.free[at]

    def free_at(self, columns: IntArray, rows: IntArray) -> IntArray:
        """The second part of room_at."""
        free: IntArray = self._nodes.free[columns[:, np.newaxis], rows]
        return free

    def room_on(self, row: int) -> tuple[IntArray, IntArray]:
        """allocatable and free of one node, int64[n_columns, 1] each."""
        return self._nodes.allocatable[:, row : row + 1], self._row_of_free(row)

    def _row_of_free(self, row: int) -> IntArray:
        """int64[n_columns, 1]: `free` of one node."""
        return self._nodes.free[:, row : row + 1]

    def free_on(self, columns: Sequence[int], row: int) -> list[int]:
        """free of some columns on one node."""
        free = self._nodes.free.item
        return [free(column, row) for column in columns]

    def padding_at(self, rows: IntArray) -> IntArray | None:
        """int64[2, len(rows)]: cpu and memory that scores count beyond requests; None: none anywhere."""
        return self._nodes.padding[:, rows] if self._nodes.n_padded else None

    def image(self, name: str) -> Image | None:
        """An image and its nodes, by a name that nodes report; None: on no node."""
        return self._nodes.images.get(name)

    def images_on(self, row: int) -> tuple[str, ...]:
        """The names of the images on a node."""
        return tuple(image.name for image in self._nodes.images.on(row))

    @property
    def image_revision(self) -> int:
        """Changes whenever a node's images change."""
        return self._nodes.images.revision

    @property
    def listed(self) -> Collection[str]:
        """The resources that some node has an inventory of."""
        return self._ledger.columns.keys()

    def device_free(self, resource: str) -> IntArray | None:
        """int64[n_rows]: free healthy devices, -1 on nodes without an inventory; None: no node has one."""
        column = self._ledger.columns.get(resource)
        return None if column is None else shown(column.free[: self._nodes.n_rows])

    def device_free_on(self, resource: str, row: int) -> int | None:
        """device_free of one node."""
        column = self._ledger.columns.get(resource)
        return None if column is None else column.free.item(row)

    @property
    def in_labels(self) -> bool:
        """Whether assigned IDs are written as labels: then label_room gives a label's capacity."""
        return self._ledger.in_labels

    def has_unhealthy(self, resource: str) -> bool:
        """Whether some node lists a device of it that is not healthy."""
        column = self._ledger.columns.get(resource)
        return column is not None and bool(column.unhealthy)

    def label_room(self, resource: str) -> IntArray | None:
        """int64[n_rows]: how many of a node's IDs one label holds, -1 on nodes without an inventory; None:
        labels are not used."""
        column = self._ledger.columns.get(resource)
        return None if column is None or column.room is None else shown(column.room[: self._nodes.n_rows])

    def device_mask(self, row: int, resource: str) -> int:
        """Bit mask of free healthy devices over the inventory's indices."""
        return self._ledger.free_mask(row, resource)

    def device_wishes(self, row: int, resource: str) -> tuple[int, Wishes]:
        """(devices of the pods placed on this view, as a mask; which pod has which)."""
        return 0, ()

    def note_given_up(self, row: int, resource: str) -> None:
        """A search for sets of devices there exhausted its budget; only a Trial records it."""

    def inventory(self, row: int, resource: str) -> DeviceInventory | None:
        return self._ledger.inventory(row, resource)

    def ports(self) -> Mapping[int, Mapping[HostPort, int]]:
        """row -> host ports taken there, with the number of pods; rows without any are absent."""
        return self._nodes.ports

    # -- pods and other objects ------------------------------------------------------------------------

    def pods_on(self, row: int) -> Iterable[PodInfo]:
        """The pods that hold something on the node, bound or reserved; a Trial's own are in `placed`."""
        return self._by_node.get(self._nodes.names[row], _NOBODY).values()

    @property
    def placed(self) -> Sequence[tuple[int, PodTemplate, int]]:
        """(row, template, count) placed by a Trial, in order; empty on the cache's own view."""
        return ()

    @property
    def moved(self) -> Sequence[tuple[int, PodTemplate, int]]:
        """As `placed`, and with negative counts the pods that it has removed."""
        return ()

    def kept(self, key: Hashable, make: Callable[[], FollowingT]) -> FollowingT:
        """The result of `make`; on a Trial it is kept, and updated with the pods placed since then.

        Made anew on a fork, and after pods were removed. The cache's own view keeps nothing.
        """
        return make()

    def matching(self, term: PodTerm) -> IntArray:
        """int64[n_rows]: how many pods on each node match the term; kept current, so it is cheap.

        Of a Trial's own pods, only labels that some selector has named before are compared.
        """
        return self._index.matching(term, self.n_rows)

    def carried_against(self, template: PodTemplate) -> Iterable[tuple[Carried, Mapping[int, int]]]:
        """Terms of pods on nodes that match pods of this template: row -> number of pods with the term."""
        said = self._index.said_of(template)
        if not said:
            return ()
        carried = self._index.carried()
        return [(wish, carried[wish]) for wish in said if wish in carried]

    def said_of(self, template: PodTemplate) -> Sequence[Carried]:
        """As carried_against, including pods without a node, such as siblings."""
        return self._index.said_of(template)

    def means(self, term: PodTerm, template: PodTemplate) -> bool:
        """Whether the term matches pods of this template."""
        return self._index.means_template(term, template)

    def means_pod(self, term: PodTerm, pod: Pod) -> bool:
        """Whether the term matches this pod as it is."""
        return self._index.means_pod(term, pod)

    def volume_users(self) -> Mapping[int, Iterable[PodTemplate]]:
        """row -> the pods on it that use storage, by their templates; rows without any are absent."""
        return {row: tuple(users.values()) for row, users in self._index.volumes.by_row.items()}

    def claim_users(self, claim: tuple[str, str]) -> int:
        """How many pods on nodes use a claim, by (namespace, name)."""
        return self._index.volumes.claims.get(claim, 0)

    def objects(self, kind: str) -> Mapping[Name, Any]:
        """(namespace, name) -> object, of a kind that an enabled plugin `watches`; empty for other kinds."""
        return self._objects.of(kind)

    def objects_in(self, kind: str, namespace: str) -> Mapping[str, Any]:
        """name -> object: the objects of `kind` in one namespace."""
        return self._objects.of_namespace(kind, namespace)

    def objects_revision(self, kind: str) -> int:
        """Changes whenever objects(kind) does."""
        return self._objects.revision(kind)

    @property
    def n_object_changes(self) -> int:
        """Changes whenever objects() of any kind does."""
        return self._objects.n_changes


_NOBODY: Mapping[str, PodInfo] = {}

"""ClusterView, what plugins and the cycle read, and Trial, its copy where Reserve acts.

A Trial copies a resource's column the first time it writes to it and never touches the cache; dropping it
is the undo. Sizes: one column of 5,000 nodes is 40 kB, a few microseconds to copy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from gangsched.core.arrays import BoolArray, IntArray
from gangsched.core.devices import DeviceLedger
from gangsched.core.group import NO_ROW, PodInfo
from gangsched.core.images import Image
from gangsched.core.nodes import CodeArray, LabelColumn, NodeTable
from gangsched.core.objects import Name, ObjectStore
from gangsched.core.pod_index import PodIndex
from gangsched.core.pod_terms import Carried
from gangsched.core.template import HostPort, PodTemplate
from gangsched.core.volume_users import claims_of
from gangsched.model.devices import DeviceInventory
from gangsched.model.objects import Node, Pod, Taint
from gangsched.model.resources import ResourceTable
from gangsched.model.selectors import PodTerm

Wishes = tuple[tuple[PodTemplate, tuple[int, ...]], ...]
"""(template, the devices of each of its pods as a mask) in the order in which they were placed."""

# Changes that are added up anew sooner than a column is copied.
_FEW = 8


_ArrayT = TypeVar("_ArrayT", bound=np.ndarray[Any, Any])


class Following(Protocol):
    """What is worked out about a Trial and kept right as pods are placed on it (ClusterView.kept)."""

    def add(self, view: ClusterView, row: int, template: PodTemplate, count: int) -> None:
        """`count` pods of one template have come to `row`; `view` shows them already."""
        ...


_FollowingT = TypeVar("_FollowingT", bound=Following)


def _shown(array: _ArrayT) -> _ArrayT:
    """A view that nobody writes to: these are the cache's own numbers, and plugins are other people's."""
    array.flags.writeable = False
    return array


class ClusterView:
    """Read-only view over all node rows. Rows that are no node have live False and no room."""

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
        """Rows that are nodes."""
        return self._nodes.n_live

    @property
    def table(self) -> ResourceTable:
        return self._nodes.table

    @property
    def live(self) -> BoolArray:
        return _shown(self._nodes.live[: self._nodes.n_rows])

    @property
    def unschedulable(self) -> BoolArray:
        return _shown(self._nodes.unschedulable[: self._nodes.n_rows])

    @property
    def taint_class(self) -> CodeArray:
        """int32[n_rows], an index into taint_classes."""
        return _shown(self._nodes.taint_class[: self._nodes.n_rows])

    @property
    def taint_classes(self) -> Mapping[tuple[Taint, ...], int]:
        """Every distinct list of taints that a node has had, with its code."""
        return self._nodes.taint_classes

    @property
    def static_revision(self) -> int:
        """Moves whenever a node appears, goes, or changes labels, taints or spec.unschedulable."""
        return self._nodes.static_revision

    @property
    def journal_end(self) -> int:
        """Moves with every change of any node row of the cache."""
        return self._nodes.journal_end

    def changed_since(self, mark: int) -> IntArray | None:
        """Rows of the cache that changed since journal_end was `mark`; None: too long ago to say."""
        return self._nodes.changed_since(mark)

    def base(self) -> ClusterView:
        """The cache as it is, without what a Trial has placed."""
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
        return _shown(column.codes[: self._nodes.n_rows]), column.values

    def allocatable(self, column: int) -> IntArray:
        """int64[n_rows] of one resource column."""
        return _shown(self._nodes.allocatable[column, : self._nodes.n_rows])

    def free(self, column: int) -> IntArray:
        """int64[n_rows]: allocatable less what pods use or are promised; below 0 where others overcommit."""
        return _shown(self._nodes.free[column, : self._nodes.n_rows])

    def room_at(self, columns: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        """(allocatable, free) of some columns at some rows. Shapes: int64[len(columns), len(rows)]."""
        at = (columns[:, np.newaxis], rows)
        return self._nodes.allocatable[at], self._nodes.free[at]

    def free_at(self, columns: IntArray, rows: IntArray) -> IntArray:
        """The second of room_at."""
        free: IntArray = self._nodes.free[columns[:, np.newaxis], rows]
        return free

    def free_on(self, column: int, row: int) -> int:
        """free of one node."""
        return int(self._nodes.free[column, row])

    def padding_at(self, rows: IntArray) -> IntArray | None:
        """int64[2, len(rows)]: cpu and memory to count in scores beside what pods use; None: nowhere any."""
        return self._nodes.padding[:, rows] if self._nodes.n_padded else None

    def image(self, name: str) -> Image | None:
        """An image and where it is, by a name as nodes report it; None: on no node."""
        return self._nodes.images.get(name)

    def images_on(self, row: int) -> tuple[str, ...]:
        """The names of the images that are on a node."""
        return tuple(image.name for image in self._nodes.images.on(row))

    @property
    def image_revision(self) -> int:
        """Moves whenever a node has other images than before."""
        return self._nodes.images.revision

    def lists(self, resource: str) -> bool:
        """Whether any node has an inventory of the resource."""
        return resource in self._ledger.columns

    def device_free(self, resource: str) -> IntArray | None:
        """int64[n_rows]: free healthy devices, -1 where the node has no inventory; None: nobody has one."""
        column = self._ledger.columns.get(resource)
        return None if column is None else _shown(column.free[: self._nodes.n_rows])

    def label_room(self, resource: str) -> IntArray | None:
        """int64[n_rows]: how many of a node's IDs one label holds, -1 where it has no inventory; None: no
        label has to hold them."""
        column = self._ledger.columns.get(resource)
        return None if column is None or column.room is None else _shown(column.room[: self._nodes.n_rows])

    def device_mask(self, row: int, resource: str) -> int:
        """Bit mask of free healthy devices over the inventory's indices."""
        return self._ledger.free_mask(row, resource)

    def device_wishes(self, row: int, resource: str) -> tuple[int, Wishes]:
        """(devices that pods placed on this view have, as a mask; who of them has which)."""
        return 0, ()

    def note_given_up(self, row: int, resource: str) -> None:
        """A search for sets of devices there ended at its budget; who asks this view need not know."""

    def inventory(self, row: int, resource: str) -> DeviceInventory | None:
        return self._ledger.inventory(row, resource)

    def ports(self) -> Mapping[int, Mapping[HostPort, int]]:
        """row -> host ports taken there and by how many pods; rows without any are absent."""
        return self._nodes.ports

    # -- pods and other objects ------------------------------------------------------------------------

    def pods_on(self, row: int) -> Iterable[PodInfo]:
        """The pods that hold something on the node, bound or promised; a Trial's own are in `placed`."""
        return self._by_node.get(self._nodes.names[row], _NOBODY).values()

    @property
    def placed(self) -> Sequence[tuple[int, PodTemplate, int]]:
        """(row, template, how many) that a Trial has placed, in order; nothing on the cache's own view."""
        return ()

    @property
    def moved(self) -> Sequence[tuple[int, PodTemplate, int]]:
        """As placed, and with negative numbers the pods that it has removed."""
        return ()

    def kept(self, key: Hashable, make: Callable[[], _FollowingT]) -> _FollowingT:
        """What `make` answers with; on a Trial the same again, told of the pods placed since then.

        Made anew on a fork, and after pods were taken away. The cache's own view keeps nothing.
        """
        return make()

    def matching(self, term: PodTerm) -> IntArray:
        """int64[n_rows]: how many of the pods on each node the term means; kept up, so that asking is cheap.

        Of the pods that a Trial has placed only labels are looked at that some selector named before.
        """
        return self._index.matching(term, self.n_rows)

    def carried_against(self, template: PodTemplate) -> Iterable[tuple[Carried, Mapping[int, int]]]:
        """What pods on nodes say that means pods of this template: row -> how many of them say it."""
        said = self._index.said_of(template)
        if not said:
            return ()
        carried = self._index.carried()
        return [(wish, carried[wish]) for wish in said if wish in carried]

    def said_of(self, template: PodTemplate) -> Sequence[Carried]:
        """As carried_against, but also what pods say that have no node yet: siblings, say."""
        return self._index.said_of(template)

    def means(self, term: PodTerm, template: PodTemplate) -> bool:
        """Whether the term means pods of this template."""
        return self._index.means_template(term, template)

    def means_pod(self, term: PodTerm, pod: Pod) -> bool:
        """Whether the term means this pod, as it is."""
        return self._index.means_pod(term, pod)

    def volume_users(self) -> Mapping[int, Iterable[PodTemplate]]:
        """row -> the pods on it that use storage, by their templates; rows without any are absent."""
        return {row: tuple(users.values()) for row, users in self._index.volumes.by_row.items()}

    def claim_users(self, claim: tuple[str, str]) -> int:
        """How many pods on nodes use a claim, by (namespace, name)."""
        return self._index.volumes.claims.get(claim, 0)

    def objects(self, kind: str) -> Mapping[Name, Any]:
        """(namespace, name) -> object, of a kind that an enabled plugin `watches`; others are empty."""
        return self._objects.of(kind)

    def objects_revision(self, kind: str) -> int:
        """Moves whenever objects(kind) says something else than before."""
        return self._objects.revision(kind)

    @property
    def n_object_changes(self) -> int:
        """Moves whenever objects() of any kind says something else than before."""
        return self._objects.n_changes


_NOBODY: Mapping[str, PodInfo] = {}


class Trial(ClusterView):
    """A copy to place pods on, thrown away or made real by the cache (assume).

    Placements are noted, and written into a copy of a column when somebody reads that column: a gang of
    one template, the usual case, never copies anything.
    """

    __slots__ = (
        "_against",
        "_counts",
        "_device_free",
        "_free",
        "_gone",
        "_kept",
        "_lifted",
        "_masks",
        "_placed",
        "_ports",
        "_taken",
        "_wishes",
        "given_up",
        "repacked",
        "touched",
    )

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view._nodes, view._ledger, view._by_node, view._index, view._objects)
        self.touched: dict[int, None] = {}
        self._placed: list[tuple[int, PodTemplate, int]] = []
        self._gone: dict[str, PodInfo] = {}
        self._lifted: dict[str, None] = {}
        self._counts: dict[PodTerm, tuple[int, int, IntArray]] = {}
        self._against: dict[int, tuple[int, int, dict[Carried, dict[int, int]] | None]] = {}
        self._taken: list[tuple[int, str, int]] = []
        self._free: dict[int, tuple[int, IntArray]] = {}
        self._device_free: dict[str, tuple[int, IntArray]] = {}
        self._masks: dict[tuple[int, str], int] = {}
        self._wishes: dict[tuple[int, str], tuple[int, Wishes]] = {}
        self.repacked: dict[tuple[int, str], None] = {}
        """(row, resource) where the devices of pods placed before were chosen anew (core.allotment)."""
        self.given_up: dict[tuple[int, str], None] = {}
        """(row, resource) where a search for sets of devices ended at its budget, in this trial or a fork."""
        self._ports: dict[int, dict[HostPort, int]] | None = None
        self._kept: dict[Hashable, tuple[int, Following]] = {}

    def fork(self) -> Trial:
        """A second trial that starts from this one; neither sees what the other does from now on."""
        other = Trial(self)
        other.touched = dict(self.touched)
        other._placed = list(self._placed)
        other._gone = dict(self._gone)
        other._lifted = dict(self._lifted)
        other._taken = list(self._taken)
        other._masks = dict(self._masks)
        # What has been added up is not added up again: a search forks a Trial with thousands of changes.
        other._free = {c: (n, own.copy()) for c, (n, own) in self._free.items() if n > _FEW}
        other._device_free = {r: (n, own.copy()) for r, (n, own) in self._device_free.items() if n > _FEW}
        other._wishes = dict(self._wishes)
        other.repacked = dict(self.repacked)
        other.given_up = self.given_up
        if self._ports is not None:
            other._ports = {row: dict(taken) for row, taken in self._ports.items()}
        return other

    def free(self, column: int) -> IntArray:
        if not self._placed:
            return super().free(column)
        done, mine = self._free.get(column, (0, None))
        if mine is None:
            mine = super().free(column).copy()
        for row, template, count in self._placed[done:]:
            for own, amount in zip(template.columns, template.amounts, strict=True):
                if own == column:
                    mine[row] -= amount * count
        self._free[column] = (len(self._placed), mine)
        return _shown(mine[:])

    def room_at(self, columns: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        if not self._placed:
            return super().room_at(columns, rows)
        return self._nodes.allocatable[columns[:, np.newaxis], rows], self.free_at(columns, rows)

    def free_at(self, columns: IntArray, rows: IntArray) -> IntArray:
        if not self._placed:
            return super().free_at(columns, rows)
        return np.stack([self.free(int(column))[rows] for column in columns])

    def free_on(self, column: int, row: int) -> int:
        return int(self.free(column)[row])

    def padding_at(self, rows: IntArray) -> IntArray | None:
        padding = super().padding_at(rows)
        for row, template, count in self._placed:
            if template.padding is not None:
                if padding is None:
                    padding = np.zeros((2, len(rows)), dtype=np.int64)
                padding[:, rows == row] += np.array(template.padding).reshape(2, 1) * count
        return padding

    def device_free(self, resource: str) -> IntArray | None:
        shared = super().device_free(resource)
        if shared is None or not self._taken:
            return shared
        done, mine = self._device_free.get(resource, (0, None))
        if mine is None:
            mine = shared.copy()
        for row, own, count in self._taken[done:]:
            if own == resource:
                mine[row] -= count
        self._device_free[resource] = (len(self._taken), mine)
        return _shown(mine[:])

    def device_mask(self, row: int, resource: str) -> int:
        found = self._masks.get((row, resource))
        return super().device_mask(row, resource) if found is None else found

    def ports(self) -> Mapping[int, Mapping[HostPort, int]]:
        return super().ports() if self._ports is None else self._ports

    def pods_on(self, row: int) -> Iterable[PodInfo]:
        return [info for info in super().pods_on(row) if info.uid not in self._gone]

    @property
    def lacks_pods(self) -> bool:
        """Whether pods were taken out: then it is a what-if, as preemption makes them."""
        return bool(self._gone)

    @property
    def placed(self) -> Sequence[tuple[int, PodTemplate, int]]:
        return [one for one in self._placed if one[2] > 0]

    @property
    def moved(self) -> Sequence[tuple[int, PodTemplate, int]]:
        return self._placed

    def kept(self, key: Hashable, make: Callable[[], _FollowingT]) -> _FollowingT:
        known = self._kept.get(key)
        since = self._placed[known[0] :] if known is not None else ()
        if known is None or any(count < 0 for _, _, count in since):
            mine = make()
        else:
            mine = cast("_FollowingT", known[1])
            for row, template, count in since:
                mine.add(self, row, template, count)
        self._kept[key] = (len(self._placed), mine)
        return mine

    def matching(self, term: PodTerm) -> IntArray:
        counts = super().matching(term)
        if not self._placed:
            return counts
        n_placed, n_gone, mine = self._counts.get(term, (0, 0, None))
        if mine is None:
            mine = counts.copy()
        for row, template, count in self._placed[n_placed:]:
            if count > 0 and self.means(term, template):
                mine[row] += count
        for info in islice(self._gone.values(), n_gone, None):
            mine[info.row] -= self.means_pod(term, info.pod)
        self._counts[term] = (len(self._placed), len(self._gone), mine)
        return mine

    def carried_against(self, template: PodTemplate) -> Iterable[tuple[Carried, Mapping[int, int]]]:
        if not self._index.said_of(template):
            return ()
        n_placed, n_gone, mine = self._against.get(template.serial, (0, 0, None))
        changed = [(info.row, info.template, -1) for info in islice(self._gone.values(), n_gone, None)]
        changed += [one for one in self._placed[n_placed:] if one[2] > 0]
        changed = [one for one in changed if one[1].wishes]
        if mine is None and changed:
            mine = {wish: dict(rows) for wish, rows in super().carried_against(template)}
        self._against[template.serial] = (len(self._placed), len(self._gone), mine)
        if mine is None:
            return super().carried_against(template)
        meant: dict[Carried, bool] = {}
        for row, one, count in changed:
            for wish in one.wishes:
                if wish not in meant:
                    meant[wish] = self.means(wish[1].term, template)
                if meant[wish]:
                    at = mine.setdefault(wish, {})
                    at[row] = at.get(row, 0) + count
                    if not at[row]:
                        del at[row]
        return list(mine.items())

    def volume_users(self) -> Mapping[int, Iterable[PodTemplate]]:
        users = {
            row: [template for uid, template in on_row.items() if uid not in self._gone]
            for row, on_row in self._index.volumes.by_row.items()
        }
        for row, template, count in self.placed:
            if template.volumes:
                users.setdefault(row, []).extend([template] * count)
        return users

    def claim_users(self, claim: tuple[str, str]) -> int:
        n = super().claim_users(claim)
        n += sum(count for _, template, count in self.placed if claim in claims_of(template))
        return n - sum(claim in claims_of(info.template) for info in self._gone.values())

    def place(self, row: int, template: PodTemplate, count: int = 1) -> None:
        """Takes room and ports for `count` pods of one template; devices are taken by take_devices."""
        self.touched[row] = None
        self._placed.append((row, template, count))
        if template.host_ports:
            if self._ports is None:
                self._ports = {r: dict(taken) for r, taken in super().ports().items()}
            at = self._ports.setdefault(row, {})
            for port in template.host_ports:
                at[port] = at.get(port, 0) + count

    def remove(self, *infos: PodInfo) -> None:
        """As if pods that are counted on nodes were gone: their room, ports and devices are free again.

        A device that another pod holds or has claimed stays taken. Removing a pod twice changes nothing.
        """
        gone = [info for info in infos if info.uid not in self._gone and info.row != NO_ROW]
        alike: dict[tuple[int, int], tuple[PodTemplate, int]] = {}
        for info in gone:
            self._gone[info.uid] = info
            at = (info.row, info.template.serial)
            alike[at] = (info.template, alike.get(at, _NONE_ALIKE)[1] + 1)
        for (row, _), (template, n) in alike.items():
            self.touched[row] = None
            self._placed.append((row, template, -n))
            if template.host_ports:
                self._free_ports(row, template, n)
        for info in gone:
            for resource, ids in info.ids.items():
                self._give_back(info.row, resource, ids)

    def _free_ports(self, row: int, template: PodTemplate, n: int) -> None:
        if self._ports is None:
            self._ports = {r: dict(taken) for r, taken in super().ports().items()}
        at = self._ports.get(row, {})
        for port in template.host_ports:
            at[port] = at.get(port, 0) - n
            if at[port] <= 0:
                del at[port]

    def lift(self, uid: str) -> None:
        """As if the pod had claimed no devices. Lifting twice changes nothing."""
        if uid not in self._lifted:
            self._lifted[uid] = None
            for row, resource, ids in self._ledger.claims(uid):
                self.touched[row] = None
                self._give_back(row, resource, ids)

    def _give_back(self, row: int, resource: str, ids: Iterable[str]) -> None:
        freed = self._ledger.freed_by(row, resource, ids, self._gone, self._lifted)
        if freed:
            self._masks[row, resource] = self.device_mask(row, resource) | freed
            self._taken.append((row, resource, -freed.bit_count()))

    def device_wishes(self, row: int, resource: str) -> tuple[int, Wishes]:
        return self._wishes.get((row, resource), _NO_WISHES)

    def note_given_up(self, row: int, resource: str) -> None:
        self.given_up[row, resource] = None

    def take_devices(self, row: int, resource: str, template: PodTemplate, masks: Sequence[int]) -> None:
        """Marks devices as taken by so many pods; the caller has checked that they are free."""
        at, mask = (row, resource), sum(masks)
        self._masks[at] = self.device_mask(row, resource) & ~mask
        self._taken.append((row, resource, mask.bit_count()))
        mine, wishes = self._wishes.get(at, _NO_WISHES)
        self._wishes[at] = (mine | mask, (*wishes, (template, tuple(masks))))

    def retake_devices(self, row: int, resource: str, wishes: Wishes) -> None:
        """As take_devices, where `wishes` are of all pods placed there now, those from before too."""
        at = (row, resource)
        mask = sum(one for _, masks in wishes for one in masks)
        before, _ = self._wishes[at]
        self._masks[at] = (self.device_mask(row, resource) | before) & ~mask
        self._taken.append((row, resource, mask.bit_count() - before.bit_count()))
        self._wishes[at] = (mask, wishes)
        self.repacked[at] = None


_NONE_ALIKE: tuple[None, int] = (None, 0)
_NO_WISHES: tuple[int, Wishes] = (0, ())

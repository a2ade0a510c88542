"""Cache: the scheduler's knowledge of the cluster, reservations included.

Applies the watch's events of nodes and pods, and keeps reservations (assume) until the API says bound
(confirm) or they are released (forget). An assumed pod never expires: no clock here. All resources and
devices are counted once, in one structure (promise 3 of the bind path), keyed by pod UID. Groups and their
states are not here (core.state); the cache only knows which pod holds what, where. Source of the states:
kube-scheduler `backend/cache/interface.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gangsched.core.cache.devices.ledger import DeviceLedger, Inventories
from gangsched.core.cache.nodes.resource_columns import ResourceColumns
from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.cache.nodes.usage_trackers import UsageTracker, UsageTrackers
from gangsched.core.cache.object_store import ObjectStore
from gangsched.core.cache.pods.index import PodIndex
from gangsched.core.cache.template_table import Signers, TemplateTable
from gangsched.core.cache.trial import ClusterView
from gangsched.core.resource_claims.book import KINDS as CLAIM_KINDS
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.extended import NONE as NONE_SERVED
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import NO_ROW, NOTHING, PodInfo
from gangsched.core.types.placement import Nominated, Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.errors import InvariantError
from gangsched.model.devices.annotations import ids_of
from gangsched.model.objects import Node, Pod
from gangsched.model.resource_claims.objects import CLAIMS
from gangsched.model.resources import ResourceTable, readable_quantities
from gangsched.model.stated.load import ReportedUsage
from gangsched.model.walltime import states_walltime


class Cache:
    """Nodes as arrays, pods by UID, and what each holds."""

    def __init__(
        self,
        *,
        node_capacity: int = 64,
        invalid_inventory: str = "nothing",
        signers: Signers | None = None,
        counted: frozenset[str] = frozenset(),
        in_labels: bool = False,
        by_plan: frozenset[str] = frozenset(),
    ) -> None:
        """signers: what plugins read of a pod's metadata, included in its template; None: nothing.

        counted: resources whose IDs are not assigned, whatever nodes list. in_labels, by_plan: DeviceLedger.
        """
        self.table = ResourceTable()
        self.nodes = NodeTable(self.table, capacity=node_capacity)
        changes: list[ClusterChange] = []
        self.ledger = DeviceLedger(self.nodes, changes, in_labels=in_labels, by_plan=by_plan)
        self._inventories = Inventories(self.ledger, invalid=invalid_inventory, counted=counted)
        self.usage_trackers = UsageTrackers(self.nodes)
        self.pods: dict[str, PodInfo] = {}
        self.by_node: dict[str, dict[str, PodInfo]] = {}
        self.objects = ObjectStore()
        self.index = PodIndex(self.pods, self.objects, changes)
        self.claims = ClaimBook(self.pods)
        self.view = ClusterView(self.nodes, self.ledger, self.by_node, self.index, self.objects, self.claims)
        self.priorities: dict[int, int] = {}
        """How many pods hold something on a node, by spec.priority."""
        self.nominated: dict[str, Nominated] = {}
        """By UID: other schedulers' nominated pods, and our own pods that wait for their victims to go."""
        self.clashes: list[tuple[str, str, str]] = []
        """(UID, node, device ID) of annotations that claim another live pod's device, to be reported."""
        self.bad_reports: list[tuple[Node, str]] = []
        """(node, what a tracker could not read in its report), to be reported."""
        self.template_table = TemplateTable(self.table, self.index, self.claims, signers)
        self.columns = ResourceColumns(self.nodes, self.pods, self.nominated, self.template_table)
        self._n_selected = 0

    # -- nodes ---------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> tuple[list[ClusterChange], str]:
        """Takes in a node's state; returns the changes and what is wrong with it ("" if nothing).

        A field that cannot be read counts as nothing there, whatever it was before; the others count.

        A node with another UID under a known name is a new node: the old one's inventory is void.
        """
        name = node.metadata.name
        row = self.nodes.row_of.get(name)
        known = self.nodes.nodes[row] if row is not None else None
        if known is not None and known.metadata.uid != node.metadata.uid:
            self.remove_node(name)
            known = None
        row = self.nodes.row_for(name)
        if self.nodes.capacity > self.ledger.capacity:
            self.ledger.grow(self.nodes.capacity)
        amounts, wrong = readable_quantities(node.status.allocatable)
        changes: list[ClusterChange] = []
        uncounted = ""
        is_same = known is not None and self.nodes.is_as_known(known, node)
        if self.nodes.offers(row, node):
            changes, uncounted = self.columns.offered(amounts)
        if self.nodes.by_class and (served := self.nodes.by_class.get(row)) is not None:
            amounts = {**served, **{one: n for one, n in amounts.items() if n or one not in served}}
        changes += self.nodes.put(row, node, amounts, is_same=is_same)
        problems = [f"status.allocatable: {one}" for one in (wrong, uncounted) if one]
        there = self.by_node.get(name, NOTHING).values()
        gained, invalid = self._inventories.put(row, node, known, there)
        if invalid:
            problems.append(invalid)
        if gained:
            changes.append(ClusterChange(Change.NODE_DEVICES, row, gained))
        changes += self._serve(row)
        if self.usage_trackers:
            is_news, wrong = self.usage_trackers.put_node(row, node, is_same=is_same)
            if is_news:
                changes.append(ClusterChange(Change.NODE_REPORT, row))
            if wrong:
                self.bad_reports.append((node, wrong))
        if known is None:
            for info in there:
                self._count(info, row)
            if self.usage_trackers:
                self.usage_trackers.enter(there, row)
        return changes, "; ".join(problems)

    def keep_usage_trackers(self, usage_trackers: Iterable[UsageTracker]) -> None:
        """Replaces the trackers, and fills the new ones with the present state."""
        self.usage_trackers.keep(usage_trackers)
        for name, row in self.nodes.row_of.items() if self.usage_trackers else ():
            node = self.nodes.nodes[row]
            if node is None:
                continue
            self.usage_trackers.put_node(row, node)
            self.usage_trackers.enter(self.by_node.get(name, {}).values(), row)

    def put_usage(self, usage: ReportedUsage) -> list[ClusterChange]:
        """Passes metrics-server's report about a node to the trackers that use it."""
        row = self.nodes.row_of.get(usage.node)
        if row is None or not self.usage_trackers:
            return []
        is_news, _ = self.usage_trackers.put_usage(row, usage)
        return [ClusterChange(Change.NODE_REPORT, row)] if is_news else []

    def remove_node(self, name: str) -> list[PodInfo]:
        """Removes a node; returns the pods that were counted on it (they no longer are)."""
        pods = list(self.by_node.get(name, {}).values())
        for info in pods:
            self._uncount(info)
        row = self.nodes.remove(name)
        self.claims.forget_node(name)
        if row is not None:
            self.ledger.forget_node(row)
            self.usage_trackers.remove_node(row)
        return pods

    # -- other objects ---------------------------------------------------------------------------------

    def put_object(self, kind: str, one: Any) -> bool:
        """Takes in an object of another kind; False when its content is unchanged, or older than the known
        one."""
        if not self.objects.put(kind, one):
            meta = one.metadata
            known = self.objects.objects(kind).get((meta.namespace, meta.name)) if kind == CLAIMS else None
            if known is not None:
                self.claims.renew(known)
            return False
        if kind in CLAIM_KINDS:
            self.claims.put(kind, one)
            self.note_claims()
        return True

    def remove_object(self, kind: str, namespace: str, name: str, uid: str) -> bool:
        """Removes it; False when it is not known, or another object has its name now."""
        if not self.objects.remove(kind, namespace, name, uid):
            return False
        if kind in CLAIM_KINDS:
            self.claims.remove(kind, namespace, name)
            self.note_claims()
        return True

    def note_claims(self) -> list[int]:
        """Notes the rows of nodes whose devices for claims have changed; returns them, NO_ROW for all."""
        touched, rows = self.claims.touched, []
        for name in touched:
            row = self.nodes.row_of.get(name, NO_ROW)
            if not name:
                self.nodes.note_all()
                rows.append(NO_ROW)
            elif row != NO_ROW:
                self.nodes.note(row)
                rows.append(row)
        touched.clear()
        extended = self.claims.extended
        if rows and (extended.is_in_use or self.nodes.by_class):
            for row in [*self.nodes.row_of.values()] if NO_ROW in rows else rows:
                self.index.changes += self._serve(row)
        return rows

    def _serve(self, row: int) -> list[ClusterChange]:
        """Finds anew which resources device classes serve on the node; returns what that may help."""
        extended, node = self.claims.extended, self.nodes.nodes[row]
        before = self.nodes.by_class.get(row, NONE_SERVED)
        if node is None or not (extended.is_in_use or before):
            return []
        # What the node lists may be all that it has of a resource, and cannot be read.
        served = NONE_SERVED if row in self.ledger.unread else extended.served(self.claims.offer(node))
        if served:
            offered = readable_quantities(node.status.allocatable)[0]
            served = {
                one: n
                for one, n in served.items()
                if not offered.get(one) and self.ledger.listed(row, one) is None
            }
        if served == before:
            return []
        name = node.metadata.name
        extended.on_node.pop(name, None)
        if served:
            extended.on_node[name] = served
        changes, _ = self.columns.offered(served)
        grown = self.nodes.serve(row, served)
        return changes if grown is None else [*changes, grown]

    # -- pods ----------------------------------------------------------------------------------------

    def join(self, info: PodInfo) -> None:
        """Adds a pod."""
        self.pods[info.uid] = info
        if info.pod.spec.resource_claims:
            self.claims.join(info.pod)
        self.index.selected.join(info)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Removes a pod; None if it is unknown. The caller releases what it holds."""
        info = self.pods.pop(uid, None)
        self.index.selected.unname(uid)
        if info is not None:
            self.index.selected.leave(info)
            if info.pod.spec.resource_claims:
                self.claims.leave(info.pod)
        return info

    def settle(self, now_s: float) -> None:
        """Gives unplaced pods templates that distinguish the labels that selectors look at now.

        After an exception a second call continues after the pod that raised it.
        """
        selected = self.index.selected
        selected.refill(now_s)
        stale = selected.stale
        if selected.n_added != self._n_selected:
            self._n_selected = selected.n_added
            stale.update((uid, one.info) for uid, one in self.nominated.items() if uid not in self.pods)
        while stale:
            self._tell_apart(stale.pop(next(iter(stale))))

    def _tell_apart(self, info: PodInfo) -> None:
        if not info.node_name and self.index.project(info.pod.metadata.labels) != info.template.labels:
            info.template = self.template_of(info.pod)

    def template_of(self, pod: Pod) -> PodTemplate:
        """Returns the pod's template; a new one gets columns for what it requests, by plugins and by device
        classes."""
        table, extended = self.template_table, self.claims.extended
        template = table.template(pod)
        if extended.asked:
            extended.asked = False
            extended.reconsider()
            self.claims.touched[""] = None
            self.note_claims()
        if (new := table.unresolved) is not None:
            table.unresolved = None
            self.columns.asked(new)
        return template

    def sign_by(self, signers: Signers | None) -> None:
        """Gives unplaced pods their templates by these signatures."""
        if not self.template_table.sign_by(signers):
            return
        for info in (*self.pods.values(), *(one.info for one in self.nominated.values())):
            if not info.node_name:
                info.template = self.template_of(info.pod)

    def renew(self, info: PodInfo, pod: Pod) -> None:
        """Takes in a new version of a pod that keeps its node and devices."""
        old, info.pod = info.pod, pod
        if info.group is not None:
            info.group.n_changes += 1
            info.group.has_conditions = info.group.has_conditions or bool(pod.status.conditions)
            info.group.states_walltime = info.group.states_walltime or states_walltime(pod.metadata)
        if (
            pod.spec.resource_claims
            and pod.status.resource_claim_statuses != old.status.resource_claim_statuses
        ):
            self.claims.join(pod)
            self.claims.stale[info.uid] = None
        if pod.status.extended_resource_claim_status != old.status.extended_resource_claim_status:
            self.claims.stale[info.uid] = None
        before, now = old.metadata, pod.metadata
        if before.labels == now.labels and before.deletion_timestamp == now.deletion_timestamp:
            return
        if info.uid in self.pods:
            self.index.selected.relabelled(info, before.labels, now.labels)
        if info.row != NO_ROW:
            self.nodes.note(info.row)
            if self.index.is_awake:
                self.index.relabel(info)
        elif not info.node_name:
            info.template = self.template_of(pod)

    def renew_bound(self, info: PodInfo, pod: Pod) -> None:
        """Takes in the version that shows the pod's bind, and changes no more that is looked at here."""
        info.pod = pod
        if info.group is not None:
            info.group.n_changes += 1
            info.group.has_conditions = info.group.has_conditions or bool(pod.status.conditions)

    def place(
        self, info: PodInfo, node_name: str, allocation: Mapping[str, Mapping[str, tuple[str, ...]]]
    ) -> None:
        """Records that, by the API, the pod is on this node with these devices."""
        before = info.row
        self._leave(info)
        info.allocation = allocation
        info.ids = ids_of(allocation)
        self._enter(info, node_name)
        if self.usage_trackers and info.row != before:  # confirmed where it was reserved: nothing moves
            if before != NO_ROW:
                self.usage_trackers.leave(info, before)
            if info.row != NO_ROW:
                self.usage_trackers.enter((info,), info.row)

    def assume(self, placements: Iterable[Placement]) -> None:
        """Reserves for many pods at once: equal pods on one node are counted in one addition.

        Raises: InvariantError when a pod is promised already or a device is not free.
        """
        runs: dict[tuple[int, int], list[PodInfo]] = {}
        at, template, name = NO_ROW, None, ""
        for placement in placements:
            info, row = placement.info, placement.row
            if info.node_name:
                raise InvariantError(f"{info.pod.key} is promised twice: {info.node_name} and row {row}")
            if row != at or info.template is not template:
                at, template, name = row, info.template, self.nodes.names[row]
                on_node = self.by_node.setdefault(name, {})
                alike = runs.setdefault((row, template.serial), [])
            info.allocation = allocation = placement.allocation
            if len(allocation) == 1:  # usually one container has devices; ids_of inlined, for every pod
                [info.ids] = allocation.values()
            else:
                info.ids = ids_of(allocation)
            info.row = row
            info.node_name = name
            on_node[info.uid] = info
            alike.append(info)
        for (row, _), infos in runs.items():
            template = infos[0].template
            found = [info.pod.spec.priority or 0 for info in infos]
            for priority in dict.fromkeys(found):  # a gang nearly always has only one
                self.priorities[priority] = self.priorities.get(priority, 0) + found.count(priority)
            if self.usage_trackers:
                self.usage_trackers.enter(infos, row)
            for resource in infos[0].ids:
                self.ledger.promise(row, resource, [(info.uid, info.ids[resource]) for info in infos])
            self.nodes.use(row, template.columns, template.amounts, len(infos))
            if template.padding is not None:
                self.nodes.pad(row, template.padding, len(infos))
            if template.host_ports:  # at most one such pod a node: its ports exclude a second
                self.nodes.use_ports(row, template.host_ports, 1)
            if template.volumes:
                for info in infos:
                    self.index.volumes.enter(info)
            if self.index.is_awake:
                for info in infos:
                    self.index.enter(info)

    def forget(self, info: PodInfo, *, was_kept: bool = False) -> ClusterChange | None:
        """Releases what the pod holds, reserved or bound; returns the room that this freed."""
        change = self._freed(info, was_kept=was_kept)
        if self.usage_trackers and info.row != NO_ROW:
            self.usage_trackers.leave(info, info.row)
        self._leave(info)
        info.allocation = {}
        info.ids = {}
        info.sent_queue = ""
        if self.index.selected.promised and self.index.selected.promised.pop(info.uid, None) is not None:
            info.template = self.template_of(info.pod)
        return change

    def edited(self, info: PodInfo) -> None:
        """Marks an edited pod with a reservation: once released, it is placed by its latest version."""
        self.index.selected.promised[info.uid] = info

    def nominate(self, pod: Pod, node_name: str) -> ClusterChange | None:
        """Records another scheduler's nomination for its pod ("": none now); returns the freed room."""
        known = self.nominated.pop(pod.metadata.uid, None)
        if node_name:
            priority = pod.spec.priority or 0
            info = PodInfo(pod, self.template_of(pod), pod.metadata.uid)
            self.nominated[pod.metadata.uid] = Nominated(info, node_name, priority)
        elif known is not None:
            self._forget_stranger(pod.metadata.uid)
        return None if known is None or known.node_name == node_name else self._room_of(known)

    def unnominate(self, uid: str) -> list[ClusterChange]:
        """Releases the room and devices kept for this pod; returns what this freed."""
        known = self.nominated.pop(uid, None)
        if known is None and uid not in self.ledger.claimants:
            return []
        freed, what = self.ledger.unclaim(uid), Change.NODE_DEVICES
        self._forget_stranger(uid)
        changes = [ClusterChange(what, row, frozenset({resource})) for row, resource in freed]
        room = None if known is None else self._room_of(known)
        return changes if room is None else [*changes, room]

    def _forget_stranger(self, uid: str) -> None:
        """Forgets the labels of a pod known only for a nomination that has ended."""
        if uid not in self.pods:
            self.index.selected.unname(uid)

    def room_of(self, kept: Nominated) -> list[ClusterChange]:
        """Returns what becomes free when this room is no longer kept."""
        room = self._room_of(kept)
        if room is None:
            return []
        devices = [ClusterChange(Change.NODE_DEVICES, room.row, frozenset(kept.ids))] if kept.ids else []
        return [room, *devices]

    def _room_of(self, known: Nominated) -> ClusterChange | None:
        row, template = self.nodes.row_of.get(known.node_name), known.template
        if row is None:
            return None
        return ClusterChange(Change.ROOM_FREED, row, frozenset(template.requests), bool(template.host_ports))

    def _enter(self, info: PodInfo, node_name: str) -> None:
        info.node_name = node_name
        priority = info.pod.spec.priority or 0
        self.priorities[priority] = self.priorities.get(priority, 0) + 1
        self.by_node.setdefault(node_name, {})[info.uid] = info
        row = self.nodes.row_of.get(node_name, NO_ROW)
        if row != NO_ROW:
            self._count(info, row)

    def _leave(self, info: PodInfo) -> None:
        if info.node_name:
            self._uncount(info)
            on_node = self.by_node[info.node_name]
            del on_node[info.uid]
            if not on_node:
                del self.by_node[info.node_name]
            info.node_name = ""
            priority = info.pod.spec.priority or 0
            self.priorities[priority] -= 1
            if not self.priorities[priority]:
                del self.priorities[priority]

    def _count(self, info: PodInfo, row: int) -> None:
        self.clashes += [(info.uid, info.node_name, one) for one in self.ledger.enter(row, info)]
        template = info.template
        self.nodes.use(row, template.columns, template.amounts, 1)
        if template.padding is not None:
            self.nodes.pad(row, template.padding, 1)
        if template.host_ports:
            self.nodes.use_ports(row, template.host_ports, 1)
        info.row = row
        if template.volumes:
            self.index.volumes.enter(info)
        if self.index.is_awake:
            self.index.enter(info)

    def _uncount(self, info: PodInfo) -> None:
        if info.row == NO_ROW:
            return
        template = info.template
        if template.volumes:
            self.index.volumes.leave(info)
        if self.index.is_awake:
            self.index.leave(info)
        self.nodes.use(info.row, template.columns, template.amounts, -1)
        if template.padding is not None:
            self.nodes.pad(info.row, template.padding, -1)
        if template.host_ports:
            self.nodes.use_ports(info.row, template.host_ports, -1)
        self.ledger.leave(info.row, info)
        info.row = NO_ROW

    def _freed(self, info: PodInfo, *, was_kept: bool) -> ClusterChange | None:
        if info.row == NO_ROW:
            return None
        template = info.template
        resources, has_ports = frozenset(template.requests), bool(template.host_ports)
        freed = Change.ROOM_FREED
        return ClusterChange(freed, info.row, resources, has_ports, pod=info.pod, was_kept=was_kept)

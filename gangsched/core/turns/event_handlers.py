"""What becomes of each event that comes by itself: the watch's about all objects but pods, and answers.

ClusterObjects passes on events of nodes, node load, PodGroups, controllers and all other kinds to the parts
that keep or check such an object; Answers passes on outcomes of effects and hooks, and people's orders, to
the parts that wait for them. Not here: pods (core.groups.members.membership) and BindSucceeded, which
core.scheduler passes on in runs. Called by core.scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangsched.core.cache.pods.index import NAMESPACES
from gangsched.core.cache.queues.kueue_admissions import ADMISSIONS
from gangsched.core.groups.attempts.permits import Permits
from gangsched.core.groups.members.leaving import evict_soon
from gangsched.core.state.pending_hooks import BIND, PERMIT, PRE_BIND, PRE_ENQUEUE
from gangsched.core.state.tables.groups import Cause
from gangsched.core.turns.parts import SchedulerParts
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import GroupState, PodInfo
from gangsched.core.why.released import RejectedBy, VictimNotEvicted
from gangsched.model import events as ev
from gangsched.model.objects import Node
from gangsched.model.owners import OWNER_KINDS, Owner, OwnerName
from gangsched.model.pod_group import CORE, DIALECTS, GroupKey
from gangsched.model.resource_claims.objects import CLAIMS, DEVICE_CLASSES
from gangsched.model.stated.load import ReportedUsage
from gangsched.model.text.printable import marked
from gangsched.model.workloads import PRIORITY_CLASSES, PodDisruptionBudget, selector_keys


class ClusterObjects:
    """Applies the watch's events of all objects but pods."""

    def __init__(self, scheduler: SchedulerParts) -> None:
        self._scheduler = scheduler
        self._shared = scheduler.shared
        self._reporter = scheduler.reporter
        self.handlers: dict[type, Callable[[Any], None]] = {
            ev.NodeAdded: lambda e: self._put_node(e.node),
            ev.NodeUpdated: lambda e: self._put_node(e.node),
            ev.NodeDeleted: lambda e: self._remove_node(e.node),
            ev.LoadReported: lambda e: self._put_usage(e.usage),
            ev.PodGroupAdded: self._put_group,
            ev.PodGroupUpdated: self._put_group,
            ev.PodGroupDeleted: scheduler.group_specs.remove_object,
            ev.OwnerPut: self._put_owner,
            ev.OwnerGone: self._remove_owner,
            ev.ObjectPut: self._put_object,
            ev.ObjectGone: self._remove_object,
            ev.ObjectRefused: self._refused,
        }

    def _put_node(self, node: Node) -> None:
        changes, problem = self._shared.cache.put_node(node)
        self._shared.changes += changes
        if problem:
            self._reporter.node_problem(node, problem)
        self._scheduler.audit.node_put(node)
        self._scheduler.health.node_put(node)
        self._scheduler.reservations.recheck(node)

    def _put_usage(self, usage: ReportedUsage) -> None:
        self._shared.changes += self._shared.cache.put_usage(usage)

    def _remove_node(self, node: Node) -> None:
        name = node.metadata.name
        row = self._shared.cache.nodes.row_of.get(name)
        known = self._shared.cache.nodes.nodes[row] if row is not None else None
        if known is not None and known.metadata.uid != node.metadata.uid:
            return  # the node has been replaced, and its replacement's event came first
        self._shared.cache.remove_node(name)
        self._scheduler.audit.node_gone(name)
        self._scheduler.health.node_gone(name)
        self._shared.changes.append(ClusterChange(Change.NODE_REMOVED))
        self._scheduler.reservations.recheck(node)

    def _put_group(self, event: ev.PodGroupAdded | ev.PodGroupUpdated) -> None:
        self._scheduler.group_specs.put_object(event)
        if event.dialect == CORE:
            meta = event.item.metadata
            self._scheduler.membership.sort_out(GroupKey(CORE, meta.namespace, meta.name))

    def _put_owner(self, event: ev.OwnerPut) -> None:
        self._scheduler.membership.regroup(self._scheduler.owners.put(event))
        self._admitted(event.owner.named, event.owner)

    def _remove_owner(self, event: ev.OwnerGone) -> None:
        self._scheduler.membership.regroup(self._scheduler.owners.remove(event))
        known = self._shared.cache.objects.workloads.get(event.named)
        if known is not None and known.uid == event.uid:
            self._admitted(event.named, None)

    def _admitted(self, named: OwnerName, owner: Owner | None) -> None:
        """Takes in what Kueue has admitted of a Workload; None: nothing any more."""
        workloads = self._shared.cache.objects.workloads
        if owner is not None and owner.admitted:
            workloads[named] = owner
        elif workloads.pop(named, None) is None:
            return
        book = self._shared.queue_book
        admissions = None if book is None else book.admissions
        if admissions is None:
            return
        if admissions.remove(named) if owner is None else admissions.put(owner):
            self._shared.changes.append(ClusterChange(Change.OBJECT, kind=ADMISSIONS))

    def _put_object(self, event: ev.ObjectPut) -> None:
        cache = self._shared.cache
        if event.kind == NAMESPACES:
            self._scheduler.membership.regroup(self._scheduler.owners.put_namespace(event.object.metadata))
        before = cache.objects.objects(event.kind).get(
            (event.object.metadata.namespace, event.object.metadata.name)
        )
        is_new = cache.put_object(event.kind, event.object)
        if event.kind == CLAIMS:
            self._scheduler.binder.claims.watched(event.object.metadata.uid, event.object)
        if is_new:
            self._evict_soon(before, event.object)
            if not isinstance(event.object, PodDisruptionBudget):  # no pod's placement depends on these
                meta = event.object.metadata
                cache.index.selected.name(
                    (event.kind, meta.namespace, meta.name), selector_keys(event.object)
                )
            self._object_changed(event.kind)

    def _remove_object(self, event: ev.ObjectGone) -> None:
        cache = self._shared.cache
        before = cache.objects.objects(event.kind).get((event.namespace, event.name))
        is_gone = cache.remove_object(event.kind, event.namespace, event.name, event.uid)
        if event.kind == CLAIMS:
            self._scheduler.binder.claims.watched(event.uid, None)
        if is_gone:
            self._evict_soon(before, None)
            cache.index.selected.unname((event.kind, event.namespace, event.name))
            self._object_changed(event.kind)

    def _evict_soon(self, before: Any, now: Any) -> None:
        """Repeats refused evictions if a disruption budget of the namespace may allow them now."""
        if not isinstance(before, PodDisruptionBudget):
            return
        if now is None or now.spec != before.spec or now.status.disruptions_allowed > 0:
            scheduler = self._scheduler
            for info in self._shared.evictions.forget_in(before.metadata.namespace):
                evict_soon(self._shared, scheduler.health, scheduler.audit, info)

    def _object_changed(self, kind: str) -> None:
        if kind == CLAIMS:  # whom that concerns is told pod by pod, and what is freed once a turn
            return
        self._shared.changes.append(ClusterChange(Change.OBJECT, kind=kind))
        if kind == PRIORITY_CLASSES:
            self._scheduler.group_specs.classes_changed()
        if kind == DEVICE_CLASSES:  # the message about a resource that no node offers may change
            for group in [
                one for one in self._shared.groups.values() if one.state is GroupState.UNSCHEDULABLE
            ]:
                first = group.first()
                if first is not None and (first.template.device_resources or first.template.missing):
                    self._shared.queue.activate(group, Cause.CURED)

    def _refused(self, event: ev.ObjectRefused) -> None:
        self._shared.count(f"objects_refused/{event.kind}")
        if event.kind == "PodGroup":
            for dialect in (one.name for one in DIALECTS if one.kinds):
                key = GroupKey(dialect, event.namespace, event.name)
                self._scheduler.group_specs.refuse_object(key, event.uid, f"PodGroup {key}: {event.message}")
        if event.kind in OWNER_KINDS:
            named = OwnerName(event.kind, event.namespace, event.name)
            self._scheduler.membership.regroup(self._scheduler.owners.refuse(named, event.message))
            self._admitted(named, None)
        if event.kind != "Pod" or event.scheduler_name in self._shared.profiles:
            self._reporter.refused(event.kind, event.namespace, event.name, event.uid, event.message)


class Answers:
    """Passes each answer to its handler."""

    def __init__(self, scheduler: SchedulerParts, permits: Permits) -> None:
        self._scheduler = scheduler
        self._permits = permits
        self._shared = scheduler.shared
        self._reporter = scheduler.reporter
        binder, audit = scheduler.binder, scheduler.audit
        self.handlers: dict[type, Callable[[Any], None]] = {
            ev.BindFailed: binder.failed,
            ev.BindUnknown: binder.unknown,
            ev.BindCancelled: binder.cancelled,
            ev.ClaimPatched: binder.claims.patched,
            ev.ClaimRefused: binder.claims.refused,
            ev.ClaimUnclear: binder.claims.unclear,
            ev.ClaimCancelled: binder.claims.cancelled,
            ev.ClaimGone: binder.claims.gone,
            ev.ClaimNoted: binder.claims.made.noted,
            ev.ClaimRead: binder.claims.read,
            ev.ClaimUnread: binder.report_unread_claim,
            ev.ClaimBumped: binder.claims.bumped,
            ev.PodRead: lambda e: self._seen(e, binder.read(e)),
            ev.PodUnread: binder.report_unread,
            ev.PodBumped: lambda e: self._seen(e, binder.fenced.bumped(e)),
            ev.PodPatched: audit.patched,
            ev.PodPatchFailed: audit.patch_failed,
            ev.EvictionSucceeded: lambda e: None,
            ev.EvictionFailed: self._eviction_failed,
            ev.HookAnswered: self._hook_answered,
            ev.GroupAllowed: self._allowed,
            ev.GroupRejected: self._group_rejected,
        }

    def _eviction_failed(self, event: ev.EvictionFailed) -> None:
        if event.uid not in self._shared.victims:
            if not self._scheduler.health.eviction_failed(event):
                self._scheduler.binder.outcome.eviction_failed(event)
            return
        group = self._scheduler.attempts.nominations.refused(event)
        if group is not None:
            why = VictimNotEvicted(event.code, event.message)
            self._scheduler.attempts.commits.give_back(group, why)

    def _seen(self, event: ev.PodRead | ev.PodBumped, info: PodInfo | None) -> None:
        if info is not None and event.pod is not None:
            self._scheduler.membership.put_pods((ev.PodUpdated(event.pod),))
            self._scheduler.membership.come_back(info)

    def _hook_answered(self, event: ev.HookAnswered) -> None:
        call = self._shared.hooks.take(event)
        if call is None:
            return
        if call.point == PERMIT:
            self._permits.answered(call, event)
        elif call.point == PRE_ENQUEUE:
            self._scheduler.membership.pre_enqueue_answered(call, event)
        elif call.point == PRE_BIND:
            self._scheduler.binder.pre_bind.answered(call, event)
        elif call.point == BIND:
            self._scheduler.binder.hook_answered(call, event)

    def _allowed(self, event: ev.GroupAllowed) -> None:
        group = self._shared.groups.get(event.group)
        if self._permits.allow(event) and group is not None:
            what = f"{event.plugin} need not be waited for" if event.plugin else "it need not wait"
            self._reporter.event(
                group, "Normal", "GangAllowed", "Permit", f"{what}, says {marked('user', [event.by])}"
            )

    def _group_rejected(self, event: ev.GroupRejected) -> None:
        group = self._shared.groups.get(event.group)
        if group is not None and group.state is GroupState.WAITING:
            self._scheduler.attempts.commits.give_back(group, RejectedBy(event.by, event.reason))

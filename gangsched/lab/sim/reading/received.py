"""Received: what one scheduler process has received and reserved, recorded independently of the scheduler.

A second, much simpler record of nodes, pods and binds in flight, fed with the process's own events and
effects; lab.sim.judges.places.binds checks each BindPod against it at the moment of the decision. A bind in
flight ends only by the API's answer: bound, refused, withdrawn, or read as not bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gangsched.core.framework.interface import Code
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import ASSUMED, PodInfo
from gangsched.lab.sim.reading.documents import Gang, Ids, gang_of, ids_in, ids_of, pod_asks
from gangsched.lab.sim.reading.store_index import counts_alike
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import CustomObject, Node, Pod, PodSpec

STARTED_IN_KEY = "gangsched.io/started-in-queue"
RANK_KEY = "gangsched.io/rank"
REPORT_KEY = "gangsched.io/remaining-bandwidth"


def are_alike(one: ef.BindPod, other: ef.BindPod) -> bool:
    """Whether both give the pod the same; only the queue that it starts in may differ, after a reload."""
    return one.node == other.node and one.labels == other.labels and _given(one) == _given(other)


def _given(bind: ef.BindPod) -> dict[str, str]:
    return {key: text for key, text in bind.annotations.items() if key != STARTED_IN_KEY}


class Claim(msgspec.Struct, frozen=True):
    """One pod's part of one node. ids: resource -> device IDs; rank: its number in its gang, as stated."""

    uid: str
    node: str
    requests: Mapping[str, int]
    ids: Ids
    rank: str | None = None


class _Claims:
    """Claims by UID, and by node and UID."""

    def __init__(self) -> None:
        self.by_uid: dict[str, Claim] = {}
        self.by_node: dict[str, dict[str, Claim]] = {}

    def put(self, claim: Claim) -> None:
        """Adds a claim, in place of the pod's earlier one."""
        self.end(claim.uid)
        self.by_uid[claim.uid] = claim
        self.by_node.setdefault(claim.node, {})[claim.uid] = claim

    def end(self, uid: str) -> None:
        claim = self.by_uid.pop(uid, None)
        if claim is not None:
            del self.by_node[claim.node][uid]


class Received:
    """Nodes and pods as delivered, and binds not yet answered."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.groups: dict[Gang, CustomObject] = {}
        """PodGroup objects, by the gang that they describe."""
        self.objects: dict[str, dict[tuple[str, str], Any]] = {}
        """Objects of other kinds, by kind, namespace and name."""
        self._held = _Claims()
        """What pods hold that are bound and have not ended."""
        self.promised = _Claims()
        self.unshown = _Claims()
        """What pods were read not to have after a bind whose answer was lost: if their reservations stay, the
        same bind is sent again. And what pods may still get that are bumped since they had such an answer."""
        self.sent: dict[str, Claim] = {}
        """By UID: what the last bind that was sent gives; its annotations may be edited afterwards."""
        self.n_settled: Counter[str] = Counter()
        """By UID of a pod: answers after which no bind sent before can land."""
        self.answered: set[str] = set()
        """UIDs of pods that the server has reported bound, whatever the watch has shown of them."""
        self.n_inputs = 0
        """A change counter of pods and answers."""
        self.constrained: set[str] = set()
        """UIDs of pods that say something about their node or their neighbours."""
        self.reports: set[str] = set()
        """Names of nodes that have ever reported what their links have left."""
        self.reads: set[str] = set()
        """UIDs of pods of which a read was requested that is not answered: the scheduler ignores others."""
        self.bind_hooks: dict[int, str] = {}
        """UIDs that Bind plugins were asked to bind, by ticket."""

    def apply(self, events: Iterable[ev.Event]) -> None:
        """Applies the events that the process is about to receive."""
        self.n_inputs += 1
        for event in events:
            apply = _APPLY.get(type(event))
            if apply is not None:
                apply(self, event)

    def _pod(self, event: ev.PodAdded | ev.PodUpdated) -> None:
        self._see(event.pod)

    def _pod_gone(self, event: ev.PodDeleted) -> None:
        uid = event.pod.metadata.uid
        self.pods.pop(uid, None)
        self.constrained.discard(uid)
        self._held.end(uid)
        self.promised.end(uid)
        self.unshown.end(uid)
        self.answered.discard(uid)
        self.reads.discard(uid)

    def _group(self, event: ev.PodGroupAdded | ev.PodGroupUpdated) -> None:
        self.groups[_named(event)] = event.item

    def _group_gone(self, event: ev.PodGroupDeleted) -> None:
        self.groups.pop(_named(event), None)

    def _object(self, event: ev.ObjectPut) -> None:
        meta = event.object.metadata
        self.objects.setdefault(event.kind, {})[(meta.namespace, meta.name)] = event.object

    def _object_gone(self, event: ev.ObjectGone) -> None:
        known = self.objects.get(event.kind, {})
        now = known.get((event.namespace, event.name))
        if now is not None and now.metadata.uid == event.uid:
            del known[(event.namespace, event.name)]

    def _node(self, event: ev.NodeAdded | ev.NodeUpdated) -> None:
        self.nodes[event.node.metadata.name] = event.node
        if REPORT_KEY in (event.node.metadata.annotations or ()):
            self.reports.add(event.node.metadata.name)

    def _node_gone(self, event: ev.NodeDeleted) -> None:
        known = self.nodes.get(event.node.metadata.name)
        if known is not None and known.metadata.uid == event.node.metadata.uid:
            del self.nodes[event.node.metadata.name]

    def _bound(self, event: ev.BindSucceeded) -> None:
        self.answered.add(event.uid)

    def _not_bound(self, event: ev.BindFailed | ev.BindCancelled) -> None:
        self.n_settled[event.uid] += 1
        self.promised.end(event.uid)
        self.unshown.end(event.uid)

    def _hook_answered(self, event: ev.HookAnswered) -> None:
        uid = self.bind_hooks.pop(event.ticket, "")
        if event.code in (Code.UNSCHEDULABLE.value, Code.SKIP.value):  # not by this one
            self.promised.end(uid)

    def _read(self, event: ev.PodRead | ev.PodBumped) -> None:
        if isinstance(event, ev.PodBumped):
            self.n_settled[event.uid] += 1
        elif event.uid not in self.reads:
            return
        else:
            self.reads.discard(event.uid)
        known = self.pods.get(event.uid)  # without one it is gone, and the answer is old
        if event.pod is not None and known is not None and not known.spec.node_name:
            self._see(event.pod)  # else the watch shows what comes after that
        if event.pod is None or not event.pod.spec.node_name:
            claim = self.promised.by_uid.get(event.uid)
            self.promised.end(event.uid)
            if isinstance(event, ev.PodBumped):
                self.unshown.end(event.uid)
            elif claim is not None and known is not None and event.pod is not None:
                self.unshown.put(claim)

    def _see(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        known = self.pods.get(uid)
        if known is None or _version(pod) > _version(known):
            self.pods[uid] = pod
            if known is None and _is_constrained(pod.spec):
                self.constrained.add(uid)
            if pod.spec.node_name:
                self.promised.end(uid)
                self.unshown.end(uid)
            if known is not None and counts_alike(known, pod):
                return  # and it holds what it held
            self._held.end(uid)
            if pod.spec.node_name and not pod.is_terminal:
                rank = (pod.metadata.annotations or {}).get(RANK_KEY)
                self._held.put(Claim(uid, pod.spec.node_name, pod_asks(pod.spec), ids_of(pod), rank))

    def note_sent(self, effect: ef.Effect, bind: ef.BindPod | None) -> None:
        """Notes what is on its way: a bind, a read, or a bump, until whose answer an earlier bind may land.

        bind: the bind in the effect, if there is one.
        """
        if bind is not None:
            self.promise(bind)
            if isinstance(effect, ef.RunHook):
                self.bind_hooks[effect.ticket] = bind.uid
        elif isinstance(effect, ef.GetPod):
            self.reads.add(effect.uid)
        elif isinstance(effect, ef.BumpPod) and effect.uid not in self.promised.by_uid:
            pod, claim = self.pods.get(effect.uid), self.sent.get(effect.uid)
            if pod is not None and claim is not None and not pod.spec.node_name:
                self.unshown.put(claim)

    def promise(self, bind: ef.BindPod) -> None:
        """Notes that a bind is on its way."""
        self.unshown.end(bind.uid)
        self.sent[bind.uid] = claim = self.claim_of_bind(bind)
        self.promised.put(claim)

    def is_held_unshown(self, info: PodInfo) -> bool:
        """Whether a pod that was read as not bound is placed all the same: its bind is about to be sent
        again, or a later answer has reported it bound."""
        pod = self.pods.get(info.uid)
        if pod is None or pod.spec.node_name or info.uid in self.promised.by_uid:
            return False
        return info.state is ASSUMED or info.uid in self.answered

    def claim_of_bind(self, bind: ef.BindPod) -> Claim:
        pod = self.pods[bind.uid]
        ids, rank = ids_in(bind.annotations, bind.labels), bind.annotations.get(RANK_KEY)
        return Claim(bind.uid, bind.node, pod_asks(pod.spec), ids, rank)

    def mates_of(self, pod: Pod) -> Iterator[tuple[Pod, str]]:
        """The other members of its gang that are bound or reserved on a node and stay there."""
        gang = gang_of(pod)
        for uid, other in self.pods.items():
            promised = self.promised.by_uid.get(uid)
            node = promised.node if promised is not None else other.spec.node_name
            stays = other.metadata.deletion_timestamp is None and not other.is_terminal
            if uid != pod.metadata.uid and node and stays and gang is not None and gang_of(other) == gang:
                yield other, node

    def places(self, reserved: Mapping[str, str]) -> dict[str, str]:
        """UID -> node of each pod that is there, or about to be. reserved: see `reserved_on`."""
        found = {}
        for uid, pod in self.pods.items():
            promised = self.promised.by_uid.get(uid)
            node = promised.node if promised is not None else ""
            name = pod.spec.node_name or reserved.get(uid) or node
            if name and not pod.is_terminal:
                found[uid] = name
        return found

    def claim_of(self, uid: str) -> Claim | None:
        """Returns what the pod has, or will have once its bind has landed."""
        return self.promised.by_uid.get(uid) or self._held.by_uid.get(uid)

    def claims_on(self, node: str) -> Iterator[Claim]:
        """All pods that hold something on the node: bound and alive, or reserved."""
        for claims in (self._held, self.promised):
            yield from claims.by_node.get(node, {}).values()


_APPLY: Mapping[type, Callable[[Received, Any], None]] = {
    ev.PodAdded: Received._pod,
    ev.PodUpdated: Received._pod,
    ev.PodDeleted: Received._pod_gone,
    ev.PodGroupAdded: Received._group,
    ev.PodGroupUpdated: Received._group,
    ev.PodGroupDeleted: Received._group_gone,
    ev.ObjectPut: Received._object,
    ev.ObjectGone: Received._object_gone,
    ev.BindSucceeded: Received._bound,
    ev.NodeAdded: Received._node,
    ev.NodeUpdated: Received._node,
    ev.NodeDeleted: Received._node_gone,
    ev.BindFailed: Received._not_bound,
    ev.BindCancelled: Received._not_bound,
    ev.HookAnswered: Received._hook_answered,
    ev.PodRead: Received._read,
    ev.PodBumped: Received._read,
}


def _named(event: ev.PodGroupAdded | ev.PodGroupUpdated | ev.PodGroupDeleted) -> Gang:
    return Gang(event.dialect, event.item.metadata.namespace, event.item.metadata.name)


def _version(pod: Pod) -> int:
    return int(pod.metadata.resource_version)


def reserved_on(scheduler: Scheduler) -> dict[str, str]:
    """UID -> node of each pod that is reserved and not known to be bound."""
    pods = scheduler.shared.cache.pods
    return {info.uid: info.node_name for info in pods.values() if info.state is ASSUMED}


def _is_constrained(spec: PodSpec) -> bool:
    stated = (
        *(spec.node_selector, spec.affinity, spec.topology_spread_constraints),
        spec.resource_claims,
    )
    return any(stated) or any(one.ports for one in spec.containers)

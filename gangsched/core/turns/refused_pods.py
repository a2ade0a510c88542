"""RefusedPods: pods that our own code failed on. They are in no group and keep the room they hold.

Until its next version comes, a refused pod's resources are counted as far as they can be read, by using as
little of the pod as possible (`_plain_pods`). Called by core.turns.containment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from gangsched.core.cache.recount import recount_group, take_out
from gangsched.core.groups.members.pod_versions import is_unseen, runs_on
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.binds import BindCause, move_bind
from gangsched.core.turns.parts import SchedulerParts
from gangsched.core.turns.steps import Faults
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import (
    ASSUMED,
    BOUND,
    NEVER_S,
    NO_ROW,
    ON_ITS_WAY,
    BindState,
    PodInfo,
)
from gangsched.model.devices.annotations import Allocation, parse_allocation
from gangsched.model.devices.labels import allocation_text
from gangsched.model.effects import GetPod
from gangsched.model.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from gangsched.model.resources import parse_quantities

_Amounts = Mapping[str, str | int | float]


class RefusedPods:
    """Takes pods out of everything, and asks the server about their binds in flight."""

    def __init__(self, scheduler: SchedulerParts, faults: Faults) -> None:
        self._scheduler = scheduler
        self._shared: SharedState = scheduler.shared
        self._faults = faults
        self._ask_s: dict[str, float] = {}
        """UID -> when to ask about the pod's bind, unless its answer comes first."""

    @property
    def is_asking(self) -> bool:
        """Whether there are binds still to ask about."""
        return bool(self._ask_s)

    def ask_later(self, uid: str) -> None:
        """Asks about the pod's bind after settle_s, unless its answer comes first."""
        self._ask_s[uid] = self._shared.now_s + self._shared.settings.settle_s

    def ask_about_binds(self) -> float:
        """Asks the server about binds that got no answer; returns when to look again."""
        shared = self._shared
        for uid, at_s in list(self._ask_s.items()):
            info, pod = shared.cache.pods.get(uid), shared.unanswered.get(uid)
            is_sent = info is not None and info.state is ASSUMED and info.bind is BindState.SENT
            if pod is None and not is_sent:
                del self._ask_s[uid]
            elif at_s <= shared.now_s:
                if info is not None and is_sent:
                    move_bind(info, BindCause.UNCLEAR)
                    pod = info.pod
                if pod is not None:
                    meta = pod.metadata
                    shared.emit(GetPod(uid, meta.namespace, meta.name, ""))
                self._ask_s[uid] = shared.now_s + shared.settings.settle_s
        return min(self._ask_s.values(), default=NEVER_S)

    def refuse(self, uid: str, pod: Pod, message: str) -> None:
        """Takes the pod out of its group; its resources count on its node, or where its bind may land."""
        info = self._shared.cache.pods.get(uid)
        is_asked = info is not None and (is_unseen(info) or uid in self._shared.unanswered)
        is_on_the_way = is_asked and not pod.spec.node_name
        is_known = info is not None and not is_asked and self._is_known(info, pod)
        node_name = pod.spec.node_name
        had = None if info is None or not (is_on_the_way or is_known) else info.allocation
        if info is not None and is_on_the_way:
            node_name = info.node_name
        self.drop(uid, pod)
        if node_name and not pod.is_terminal:
            counted = self._keep_room(pod, node_name, had)
            if info is not None and counted is not None:
                counted.began_s = info.began_s
                if is_known and counted.allocation is had:
                    counted.identity, counted.allocated = info.identity, info.allocated
            if is_on_the_way:
                self._shared.unanswered[uid] = pod
                self.ask_later(uid)
        if pod.spec.scheduler_name in self._shared.profiles:
            self._scheduler.reporter.refused_pod(pod, message)

    def _is_known(self, info: PodInfo, pod: Pod) -> bool:
        """Whether our record of what it runs with is better than this version's annotations."""
        is_ours = bool(info.identity)
        return runs_on(info, pod) and self._shared.decides and (is_ours or self._shared.is_reported(info))

    def _keep_room(self, pod: Pod, node_name: str, promised: Any) -> PodInfo | None:
        """Counts it like another scheduler's pod, with those of its properties that can be read."""
        shared = self._shared
        for plain, allocation in _plain_pods(pod, node_name, promised):
            uid = plain.metadata.uid
            try:
                info = PodInfo(plain, shared.cache.template_of(plain), uid)
                info.state = BOUND
                shared.cache.join(info)
                shared.cache.place(info, node_name, allocation)
                return info
            except Exception as error:
                self._faults.tell("counting a refused pod", pod.key, error)
                self.drop(uid, plain)
        return None

    def drop(self, uid: str, pod: Pod) -> None:
        """Removes every trace of the pod."""
        shared, scheduler = self._shared, self._scheduler
        shared.unanswered.pop(uid, None)
        info = shared.cache.remove_pod(uid) or self._left_of(uid, pod)
        group = info.group if info is not None else None
        if info is not None and info.state is ASSUMED and info.bind not in ON_ITS_WAY:
            held = [info]
            self._faults.step(lambda: shared.unreserve(held))
        if group is not None:
            group.members.pop(uid, None)
            recount_group(group)
            shared.mark_group(group)
        self._faults.step(lambda: scheduler.group_specs.forget_stranger(uid))
        self._faults.step(lambda: scheduler.audit.pod_gone(uid))
        shared.release_kept(uid)
        if info is not None:
            self._faults.step(partial(scheduler.membership.pre_enqueue.forget, info))
            row, info.group = info.row, None
            move_bind(info, BindCause.DROPPED)
            take_out(shared.cache, info, pod.spec.node_name)
            if row != NO_ROW:
                freed = frozenset(shared.cache.table.names)
                shared.changes.append(ClusterChange(Change.ROOM_FREED, row, freed))
        self._faults.step(lambda: shared.left_node(uid))

    def _left_of(self, uid: str, pod: Pod) -> PodInfo | None:
        """Finds a pod that the cache no longer lists but that is still a member or on its node."""
        for group in self._shared.groups.values():
            if uid in group.members:
                info = group.members[uid]
                info.group = group
                return info
        return self._shared.cache.by_node.get(pod.spec.node_name, {}).get(uid)


def _plain_pods(pod: Pod, node_name: str, promised: Allocation | None) -> Iterator[tuple[Pod, Allocation]]:
    """Yields the pod on that node with its requests, devices and host ports; then without ports; then without
    devices; then as one bare pod.

    promised: its assigned devices, if known from elsewhere than its own annotation; None: those that it
    states itself.
    """
    asked = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    containers = [_plain(one) for one in asked]
    allocation = _allocation(pod) if promised is None else promised
    if any(one.ports for one in asked):
        ported = [replace(plain, ports=one.ports) for plain, one in zip(containers, asked, strict=True)]
        yield _pod(pod, node_name, ported), allocation
    yield _pod(pod, node_name, containers), allocation
    yield _pod(pod, node_name, containers), {}
    yield _pod(pod, node_name, None), {}


def _pod(pod: Pod, node_name: str, containers: list[Container] | None) -> Pod:
    """containers: None: without containers, and without the pod's own requests."""
    meta, spec = pod.metadata, pod.spec
    is_bare = containers is None
    return Pod(
        ObjectMeta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        ),
        PodSpec(
            node_name=node_name,
            scheduler_name=spec.scheduler_name,
            priority=spec.priority,
            host_network=spec.host_network,
            containers=containers or [],
            resources=None if is_bare or spec.resources is None else _requests_of(spec.resources),
            overhead=None if is_bare else {**_readable(spec.overhead)},
        ),
    )


def _plain(container: Container) -> Container:
    asked = container.resources
    return Container(name=container.name, resources=None if asked is None else _requests_of(asked))


def _requests_of(asked: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(requests={**_readable(asked.limits), **_readable(asked.requests)})


def _readable(amounts: _Amounts | None) -> _Amounts:
    return {name: amount for name, amount in (amounts or {}).items() if _is_readable(name, amount)}


def _is_readable(name: str, amount: str | int | float) -> bool:
    try:
        parse_quantities({name: amount})
    except Exception:  # whatever makes this pod unreadable
        return False
    return True


def _allocation(pod: Pod) -> Allocation:
    try:
        text = allocation_text(pod.metadata.annotations, pod.metadata.labels)
        return {} if text is None else parse_allocation(text)
    except Exception:
        return {}

"""FailedDevices: whether pods are evicted for failed devices when, and only when, the policy calls for it.

Devices, health and policies are read from nodes and pods as received (lab.sim.reading.documents). From the
scheduler come only the states of groups, since one that is being bound or unwound is not evicted. Called by
lab.sim.judges.step_judges.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from gangsched.config.devices import DeviceSettings
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import GroupState
from gangsched.lab.sim.objects import at
from gangsched.lab.sim.reading.documents import (
    Ids,
    gang_of,
    healths_in,
    healthy_ids,
    lists_devices,
    start_of,
)
from gangsched.lab.sim.reading.received import Received
from gangsched.model import effects as ef
from gangsched.model.objects import Node, Pod

POLICY_KEY = "gangsched.io/on-device-failure"
_POLICIES = ("none", "evictMember", "evictGang")
_MESSAGES = "DeviceEviction"
_SLACK_S = 3.0
"""A turn comes a moment after its time, and a group that was moving is looked at once a second."""
_MOVING = (GroupState.BINDING, GroupState.UNWINDING)
_Device = tuple[str, str]
_Name = tuple[str, str, str]


class FailedDevices:
    """failed-devices: a pod is evicted once a device of it has been unhealthy for the grace period, with its
    gang where the policy is evictGang; none is evicted for that earlier, or where the policy is none."""

    def __init__(self, settings: DeviceSettings) -> None:
        self._settings = settings
        self._since_s: dict[str, dict[_Device, float]] = {}
        """By UID: since when each of its devices has been unhealthy."""
        self._listed: dict[str, set[_Device]] = {}
        self._told: dict[str, set[_Device]] = {}
        """By UID: those that its node's list, and its kubelet, said to be unhealthy when they last said."""
        self._moved_s: dict[str, float] = {}
        """By UID: when its group was last being bound or unwound, or nothing was decided yet."""
        self._acted_s: dict[_Name, float] = {}
        """By gang: when it was first evicted for that."""
        self._kept: set[str] = set()
        """UIDs of pods whose devices failed while nothing may be evicted: looked at again once a minute."""
        self._asked: set[str] = set()
        """UIDs of pods whose eviction this process has requested."""
        self._was_synced = False
        """Whether anything was decided before this step."""

    def check(
        self, scheduler: Scheduler, effects: Iterable[ef.Effect], received: Received, now_s: float
    ) -> Iterator[str]:
        """After every step."""
        self._note(scheduler, received, now_s)
        effects = [*effects]
        self._asked |= {effect.uid for effect in effects if isinstance(effect, ef.EvictPod)}
        for effect in effects:
            if isinstance(effect, ef.RecordEvent) and effect.reason == _MESSAGES and effect.kind == "Pod":
                yield from self._is_due(effect, received, now_s)
        for uid, since_s in self._since_s.items():
            pod = received.pods[uid]
            goes = uid in self._asked or pod.metadata.deletion_timestamp is not None
            if not scheduler.shared.settings.allow_eviction:
                self._kept.add(uid)
            goes = goes or uid in self._kept
            if goes or self._policy(pod, received) == "none":
                continue
            due_s = max(min(since_s.values()) + self._settings.failure_grace_s, self._moved_s.get(uid, 0.0))
            first_s, acted_s = min(since_s.values()), self._acted_s.get(_name(pod), _evicted_s(pod, received))
            is_again = acted_s < first_s < acted_s + self._settings.failure_again_s
            if not is_again and now_s > due_s + _SLACK_S:
                yield f"failed-devices: {pod.key} was due to be evicted for {sorted(since_s)} at {due_s:g}"

    def _note(self, scheduler: Scheduler, received: Received, now_s: float) -> None:
        """What has failed by now. A node or a list that is gone, or unreadable, changes nothing, and nothing
        does a health that kubelet does not know."""
        before, self._since_s = self._since_s, {}
        listed, self._listed = self._listed, {}
        told, self._told = self._told, {}
        if (
            not scheduler.is_synced
        ):  # a node that fails and is gone before the first decision is never looked at
            self._was_synced = False
            return
        infos = scheduler.shared.cache.pods
        for uid, pod in received.pods.items():
            claim = received.claim_of(uid) if pod.spec.node_name or uid in received.answered else None
            node = received.nodes.get(claim.node) if claim is not None else None
            is_ours = pod.spec.scheduler_name in scheduler.shared.profiles
            if claim is None or not is_ours or pod.is_terminal:
                continue
            found = None if node is None else _failed(claim.ids, node)
            self._listed[uid] = listed.get(uid, set()) if found is None else set(found)
            self._told[uid] = _told(claim.ids, pod, told.get(uid, set()))
            since_s = before.get(uid, {})
            known = {one: since_s.get(one, now_s) for one in sorted(self._listed[uid] | self._told[uid])}
            if known:
                self._since_s[uid] = known
                group = infos[uid].group if uid in infos else None
                if group is None or group.state in _MOVING or not self._was_synced:
                    self._moved_s[uid] = now_s
        self._was_synced = scheduler.is_synced

    def _is_due(self, event: ef.RecordEvent, received: Received, now_s: float) -> Iterator[str]:
        pod = received.pods.get(event.uid)
        since_s = self._since_s.get(event.uid)
        if pod is None:
            return
        self._acted_s.setdefault(_name(pod), now_s)  # what was refused is asked again
        policy = self._policy(pod, received)
        if policy == "none":
            yield f"failed-devices: {pod.key} is evicted for a device, and its policy is none"
        elif since_s is None or now_s < min(since_s.values()) + self._settings.failure_grace_s:
            yield f"failed-devices: {pod.key} is evicted for a device at {now_s:g}, unhealthy since {since_s}"
        elif policy == "evictGang":
            gang = gang_of(pod)
            for other in received.pods.values():
                runs = other.spec.node_name and not other.is_terminal
                stays = other.metadata.deletion_timestamp is None and other.metadata.uid not in self._asked
                if runs and stays and gang is not None and gang_of(other) == gang:
                    yield (
                        f"failed-devices: {pod.key} is evicted for a device, and {other.key} "
                        "of its gang stays"
                    )

    def _policy(self, pod: Pod, received: Received) -> str:
        """By the pod, its gang's object, or the configuration."""
        gang = gang_of(pod)
        item = received.groups.get(gang) if gang is not None else None
        for meta in (pod.metadata, item.metadata if item is not None else None):
            stated = (meta.annotations or {}).get(POLICY_KEY, "") if meta is not None else ""
            if stated in _POLICIES:
                return stated
        return self._settings.on_failure


def _failed(held: Ids, node: Node) -> list[_Device] | None:
    """Those of these devices that the node does not list as healthy; None: no list of it can be read."""
    healthy = healthy_ids(node) if lists_devices(node) else None
    if healthy is None:
        return None
    return [(name, one) for name, ids in held.items() for one in sorted(ids - healthy.get(name, frozenset()))]


def _told(held: Ids, pod: Pod, before: Collection[_Device]) -> set[_Device]:
    """Those of these devices that its kubelet says are not healthy, in the pod's status; of others than these
    it says nothing about the pod. before: what it said last."""
    found = set()
    for device, health in healths_in(pod):
        if device[1] in held.get(device[0], ()) and (
            health == "Unhealthy" or (health == "Unknown" and device in before)
        ):
            found.add(device)
    return found


def _evicted_s(pod: Pod, received: Received) -> float:
    """When its gang was last evicted for a device, by its members' Bindings."""
    gang = gang_of(pod)
    members = [pod] if gang is None else [one for one in received.pods.values() if gang_of(one) == gang]
    evicted = max(start_of(one).get("evicted", 0) for one in members)
    return evicted - at(0).timestamp() if evicted else -math.inf


def _name(pod: Pod) -> _Name:
    """Of its gang, whichever attempt it is."""
    gang = gang_of(pod)
    return ("", "", pod.key) if gang is None else (gang.dialect, gang.namespace, gang.name)

"""DeviceHealth: devices that fail under running pods. Reported at once, handled by policy, rate-limited.

    a device of a bound pod is unhealthy, by its node's list or     event, condition on the group's object
    by kubelet's word in the pod's status, is no longer listed,
    or, of a resource claim, has a taint NoExecute
    it is healthy again before the grace period is over             event; nothing else has happened
    the grace period is over: none | evictMember | evictGang        nothing | that pod | the gang is evicted
    another failure of the group, sooner than failure_again_s       waits until then
    the pod, or the gang's replacement, comes back                  gets its former place in the queue

Each device has its own grace period, which restarts whenever the device has been healthy, so a flapping
one keeps its pod. A group's own setting (annotation gangsched.io/on-device-failure on its object, or on
the pod) overrides the configuration's. The value at the end of the grace period counts, and later edits
do too. What says nothing, as a list that is gone or a health that kubelet does not know, changes nothing.
Evictions are repeated while the pod is there, ever more rarely (core.state.evictions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple, Protocol, get_args

import msgspec

from gangsched.config.devices import OnFailure
from gangsched.core.binding.binder import Binder
from gangsched.core.binding.reservation_checks import reservation_broken
from gangsched.core.state.line.requeue_order import name_of
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import NEVER_S, Group, GroupState, MemberState, PodInfo
from gangsched.core.why import Why
from gangsched.core.why.devices import DeviceFailed, EvictionsOff
from gangsched.core.why.evictions import EvictionRefused
from gangsched.model.devices.labels import inventory_text
from gangsched.model.devices.unwell import UNHEALTHY, has_unwell, told_by_kubelet
from gangsched.model.events import EvictionFailed
from gangsched.model.objects import Node
from gangsched.model.pod_group import ON_DEVICE_FAILURE_KEY

POLICIES: tuple[str, ...] = get_args(OnFailure)
ACTION = "DeviceHealth"
LIST, KUBELET, TAINT = "", "Unhealthy, says its kubelet", "taint "
"""Whose word it is that a device has failed, for people; a node's list is not named."""
_COUNTED = {LIST: "list", KUBELET: "kubelet"}
_MAX_NAMED = 8
_EVICT_AGAIN_S = 10.0
_LOOK_AGAIN_OFF_S = 60.0
_LOOK_AGAIN_S = 1.0
# The pod is gone, and the watch shows it.
_NOT_TOLD = (404,)
_A_DAY_S = 86_400.0
# Its binds must be answered first, or it is being evicted already.
_MOVING = (GroupState.BINDING, GroupState.UNWINDING)


_Device = tuple[str, str]
"""(its ID, its resource or claim), for people too."""
_Words = tuple[str, ...]


class _Failure(msgspec.Struct):
    """A pod with failed devices: since when each has been unhealthy, by whose words, and the policy when last
    looked at.

    is_acted_on: its eviction was requested; is_refused: the last request was. refused: the last reported
    reason for a refusal.
    """

    info: PodInfo
    since_s: dict[_Device, float]
    by: dict[_Device, _Words]
    policy: str
    is_acted_on: bool = False
    is_refused: bool = False
    refused: Why = ""

    @property
    def devices(self) -> str:
        texts = [
            f"{device_id} ({words}) of {of}"
            if (words := "; ".join(filter(None, self.by[device_id, of])))
            else f"{device_id} of {of}"
            for device_id, of in islice(self.since_s, _MAX_NAMED)
        ]
        n_more = len(self.since_s) - _MAX_NAMED
        return ", ".join(texts) + (f" and {n_more} more" if n_more > 0 else "")


class Failed(NamedTuple):
    """acts_s: when its policy has it evicted; NEVER_S: never, or it has been already."""

    failed: DeviceFailed
    policy: str
    acts_s: float


class Releases(Protocol):
    """What makes a waiting group release what it holds; core.groups.attempts.commits has the one
    implementation.
    """

    def give_back(self, group: Group, why: Why) -> None:
        """Releases the reservations of the group and its waiting siblings; they back off."""
        ...


class DeviceHealth:
    """Which running pods have failed devices, and the actions taken."""

    def __init__(
        self,
        shared: SharedState,
        reporter: Reporter,
        binder: Binder,
        commits: Releases,
    ) -> None:
        self._shared = shared
        self._reporter = reporter
        self._binder = binder
        self._commits = commits
        self._settings = shared.settings.devices
        self._listed: dict[str, str | None] = {}
        self._changed: dict[str, None] = {}
        self._acted_s = binder.records.device_evictions
        self.failing: dict[str, _Failure] = {}
        self._due: Deadlines[str] = Deadlines(shared.timers, DeadlineKind.FAILED_DEVICES)
        """By UID: when to act on a failure; NEVER_S: no action is due."""

    # -- events ----------------------------------------------------------------------------------------

    def node_put(self, node: Node) -> None:
        """Takes in a node's current state; its pods are checked if its device list changed."""
        name = node.metadata.name
        text = inventory_text(node.metadata.annotations, node.metadata.labels)
        if name not in self._listed or self._listed[name] != text:
            self._listed[name] = text
            self._changed[name] = None

    def node_gone(self, name: str) -> None:
        """Forgets the node; its pods are gone with it, or soon will be."""
        self._listed.pop(name, None)
        self._changed.pop(name, None)

    def pod_edited(self, info: PodInfo) -> None:
        """Takes in a new version of a running pod, which may change the policy, or what its kubelet says."""
        if (failure := self.failing.get(info.uid)) is not None:
            self._read_policy(failure)
            self._changed[info.node_name] = None
        self.pod_bound(info)

    def pod_bound(self, info: PodInfo) -> None:
        """Takes in a pod on its node, as first seen there too."""
        if has_unwell(info.pod):
            self._changed[info.node_name] = None

    def evict_soon(self, uid: str) -> None:
        """Repeats the pod's eviction now: what refused it has changed."""
        if (failure := self.failing.get(uid)) is not None and failure.is_acted_on:
            self._due.set(uid, self._shared.now_s)

    def of_group(self, group: Group) -> Iterator[Failed]:
        """Yields what has failed under the group's pods."""
        for uid, failure in self.failing.items():
            info = failure.info
            if info.group is group:
                failed = DeviceFailed(failure.devices, info.node_name, info.pod.key)
                yield Failed(failed, failure.policy, self._due.due_s(uid))

    # -- at the end of a turn --------------------------------------------------------------------------

    def check_pods(self) -> None:
        """Checks the pods of nodes whose devices, or what is said of them, have changed."""
        cache = self._shared.cache
        if cache.claims.reported:
            for name in cache.claims.reported:
                self._changed.update(dict.fromkeys([name] if name else cache.by_node))
            cache.claims.reported.clear()
        if not self._changed and not self.failing:
            return
        again: dict[str, None] = {}
        while self._changed:
            name, _ = self._changed.popitem()
            row = cache.nodes.row_of.get(name)
            # No list, or one that cannot be read, is no evidence of sickness.
            is_listed = self._listed.get(name) is not None and row not in cache.ledger.unread
            for info in list(cache.by_node.get(name, {}).values()):
                has_devices = is_listed if info.ids else info.pod.uses_claims
                has_devices = has_devices or has_unwell(info.pod) or info.uid in self.failing
                if not has_devices or info.group is None:
                    continue
                if info.state is MemberState.BOUND:
                    self._examine(info, is_listed=is_listed)
                elif reservation_broken(cache, info):
                    again[name] = None  # its bind may be in flight
        self._changed = again
        for uid, failure in list(self.failing.items()):
            if failure.info.state is not MemberState.BOUND:
                self._gone(uid)

    def read_policies(self, group: Group) -> None:
        """Reads the policies of the group's failing pods again: its object may have changed."""
        for failure in self.failing.values():
            if failure.info.group is group:
                self._read_policy(failure)

    def advance(self) -> None:
        """Acts on failures whose grace period is over."""
        for uid in self._due.due(self._shared.now_s):
            self._act(self.failing[uid])

    # -- one pod ---------------------------------------------------------------------------------------

    def _examine(self, info: PodInfo, *, is_listed: bool) -> None:
        known = self.failing.get(info.uid)
        failed = self._failed(info, known.by if known is not None else {}, is_listed=is_listed)
        if not failed:
            if known is not None and not _goes(known):
                self._recovered(known)
            return
        if known is not None:
            first_s = min(known.since_s.values())
            known.since_s = {device: known.since_s.get(device, self._shared.now_s) for device in failed}
            known.by = failed
            if min(known.since_s.values()) > first_s and not _goes(known):
                self._forget_refused(known)
                known.is_acted_on = known.is_refused = False
                self._set_due(known)
            return
        group = info.group
        assert group is not None
        policy, problem = self._policy(info)
        failure = _Failure(info, dict.fromkeys(failed, self._shared.now_s), failed, policy)
        self.failing[info.uid] = failure
        self._set_due(failure)
        self._shared.count("device_failures")
        for by in dict.fromkeys(_COUNTED.get(word, "taint") for words in failed.values() for word in words):
            self._shared.count(f"device_failures_{by}")
        failed_under = f"has failed under pod {info.pod.key}{problem}"
        message = f"device {failure.devices} on node {info.node_name} {failed_under}"
        self._tell(info, "Warning", "DeviceFailed", message)
        self._reporter.devices(group, healthy=False, reason="DeviceFailed", message=message)

    def _failed(
        self, info: PodInfo, before: Mapping[_Device, _Words], *, is_listed: bool
    ) -> dict[_Device, _Words]:
        """Returns the pod's devices that have failed, and by whose words. before: when last looked at."""
        cache = self._shared.cache
        failed: dict[_Device, _Words] = {}
        for resource, ids in info.ids.items():
            for one in ids:
                device = (one, resource)
                is_sick = LIST in before.get(device, ())
                if is_listed:
                    is_sick = bool(cache.ledger.promised_unusable(info.row, resource, (one,)))
                if is_sick:
                    failed[device] = (LIST,)
        failed |= self._tainted(info)
        claims = cache.claims.claims_of(info.pod) if info.pod.uses_claims else {}
        for told in told_by_kubelet(info.pod, info.ids, claims):
            device = (told.id, told.of)
            words = failed.get(device, ())
            is_sick = told.health == UNHEALTHY or KUBELET in before.get(device, ())
            if is_sick and KUBELET not in words:  # by another container's status too
                failed[device] = (*words, KUBELET)
        return failed

    def _tainted(self, info: PodInfo) -> Iterator[tuple[_Device, _Words]]:
        """Yields the devices of the pod's claims with a taint NoExecute that the claim does not tolerate, and
        that."""
        cache, book = self._shared.cache, self._shared.cache.claims
        node = cache.nodes.nodes[info.row] if info.pod.uses_claims else None
        if node is None:
            return
        listed = {device.id: device for device, _ in book.offer(node).devices}
        for claim in book.claims_of(info.pod).values():
            allocation = claim.status.allocation
            for one in allocation.devices.results if allocation is not None else ():
                device = None if one.admin_access else listed.get(one.id)
                for taint in book.cluster.taints(device) if device is not None else ():
                    tolerations = one.tolerations or ()
                    if taint.effect == "NoExecute" and not any(each.tolerates(taint) for each in tolerations):
                        yield (str(one.id), f"resource claim {claim.key}"), (f"{TAINT}{taint.key}",)
                        break

    def _forget_refused(self, failure: _Failure) -> None:
        """Forgets an eviction that was refused, as the devices that it was for are well."""
        if failure.is_refused and failure.info.group is not None:
            self._acted_s.pop(name_of(failure.info.group), None)

    def _read_policy(self, failure: _Failure) -> None:
        if (policy := self._policy(failure.info)[0]) != failure.policy:
            failure.policy = policy
            self._set_due(failure)

    def _set_due(self, failure: _Failure) -> None:
        """Sets when the first of its failed devices has been unhealthy for the grace period, unless policy is
        none."""
        acts_s = min(failure.since_s.values()) + self._settings.failure_grace_s
        self._due.set(failure.info.uid, NEVER_S if failure.policy == "none" else acts_s)

    def _policy(self, info: PodInfo) -> tuple[str, str]:
        """Returns (the action, what is wrong with the pod's own setting)."""
        asked = (info.pod.metadata.annotations or {}).get(ON_DEVICE_FAILURE_KEY, "")
        group = info.group
        own = group.definition.on_device_failure if group is not None and group.definition else ""
        policy = own or self._settings.on_failure
        if not asked:
            return policy, ""
        if asked not in POLICIES:
            known = ", ".join(POLICIES)
            return (
                policy,
                f"; {ON_DEVICE_FAILURE_KEY}: {asked[:80]!r} is not one of {known}, so {policy} applies",
            )
        return asked, ""

    def _recovered(self, failure: _Failure) -> None:
        info = failure.info
        self._forget_refused(failure)
        del self.failing[info.uid]
        self._due.drop(info.uid)
        message = f"device {failure.devices} on node {info.node_name} is well again under pod {info.pod.key}"
        self._tell(info, "Normal", "DeviceRecovered", message)
        self._close(info.group, "DeviceRecovered", message)

    def _gone(self, uid: str) -> None:
        failure = self.failing.pop(uid)
        self._due.drop(uid)
        message = f"pod {failure.info.pod.key}, which had failed devices, is gone"
        self._close(failure.info.group, "PodGone", message)

    def _close(self, group: Group | None, reason: str, message: str) -> None:
        if group is not None and not any(failure.info.group is group for failure in self.failing.values()):
            self._reporter.devices(group, healthy=True, reason=reason, message=message)

    # -- actions ---------------------------------------------------------------------------------------

    def _act(self, failure: _Failure) -> None:
        shared, info, group = self._shared, failure.info, failure.info.group
        self._due.set(info.uid, NEVER_S)
        if group is None:
            return
        if not shared.settings.allow_eviction:
            self._due.set(info.uid, shared.now_s + _LOOK_AGAIN_OFF_S)  # it may be on by then
            self._refuse(failure, EvictionsOff(info.pod.key))
            return
        if group.state in _MOVING:
            self._due.set(info.uid, shared.now_s + _LOOK_AGAIN_S)
            return
        takes_gang = failure.policy == "evictGang" and group.is_gang
        meta = info.pod.metadata
        if not takes_gang and meta.deletion_timestamp is not None:
            return  # it goes anyway
        if not failure.is_acted_on:
            acted_s = self._binder.records.evicted_s(group)
            again_s = acted_s + self._settings.failure_again_s
            # What had failed before the last eviction is the same incident: a node under several members.
            if min(failure.since_s.values()) > acted_s and shared.now_s < again_s:
                self._due.set(info.uid, again_s)
                return
            failure.is_acted_on = True
            for key in [key for key, at in self._acted_s.items() if at <= shared.now_s - _A_DAY_S]:
                del self._acted_s[key]
            self._acted_s[name_of(group)] = shared.now_s
            shared.count("device_evictions")
        failed = DeviceFailed(failure.devices, info.node_name, info.pod.key)
        if takes_gang:
            shared.requeue_order.keep(group, (), shared.now_s)
            self._tell(info, "Warning", "DeviceEviction", f"gang {group.key} is evicted: {failed}")
            if group.state is GroupState.WAITING:
                self._commits.give_back(group, failed)
            self._binder.outcome.evict_gang(group)
            return
        shared.requeue_order.keep(group, (info,), shared.now_s)
        failure.is_refused = False
        self._tell(info, "Warning", "DeviceEviction", f"pod {info.pod.key} is evicted: {failed}")
        shared.evictions.ask(info, shared.now_s, group.cause_id)
        self._due.set(info.uid, shared.evictions.again_s((info,), shared.now_s, _EVICT_AGAIN_S))

    def eviction_failed(self, event: EvictionFailed) -> bool:
        """Whether the refused eviction is of one pod with failed devices; reports each reason once."""
        failure = self.failing.get(event.uid)
        if failure is None or not failure.is_acted_on or failure.info.group is None:
            return False
        if failure.info.group.state is GroupState.UNWINDING:
            return False
        failure.is_refused = True
        if event.code not in _NOT_TOLD:
            self._refuse(failure, EvictionRefused(failure.info.pod.key, event.code, event.message))
        return True

    def _refuse(self, failure: _Failure, why: Why) -> None:
        if why != failure.refused:
            failure.refused = why
            self._tell(failure.info, "Warning", "DeviceFailed", str(why))

    def _tell(self, info: PodInfo, kind: str, reason: str, message: str) -> None:
        """Records the event on the pod, and on the group's object if there is one."""
        self._reporter.pod_event(info.pod, kind, reason, ACTION, message)
        group = info.group
        if group is not None and group.definition is not None and group.definition.uid:
            self._reporter.event(group, kind, reason, ACTION, message)


def _goes(failure: _Failure) -> bool:
    """Whether the pod is on its way out; one whose eviction was refused stays once its devices are well."""
    info = failure.info
    is_unwound = info.group is not None and info.group.state is GroupState.UNWINDING
    return failure.is_acted_on and (is_unwound or info.pod.metadata.deletion_timestamp is not None)

"""Binder: Plans in flight, from the first Binding to the whole gang bound, or unwound.

One BindPod per member carries node, devices, gang, rank and attempt. Every answer is one of succeeded,
failed, unknown, cancelled; unknown keeps the reservation until a consistent GET of that pod shows bound or
not bound (promise 2), and the retry is the same bind again, so that a late one lands identical. A gang bound
in part is a state of its own: completed first in line or unwound by policy, within `settle_s`. PreBind runs
before the first BindPod (core.binding.pre_bind); a profile's Bind plugins replace BindPod. Members that
kubelet could confuse are sent one after another (core.binding.staggered_bind).

With a fence (settings.fence) every bind carries the pod's version that was known at the decision. A bind of
unknown outcome is not given up before the pod has another version (BumpPod): then it cannot land any more,
and its room is free. One that was refused because the pod had changed is sent again at once with the version
that was read; to list it anew is to ask the fence first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from msgspec.structs import replace

from gangsched.core.binding.admission_conflicts import AdmissionConflicts
from gangsched.core.binding.pre_bind import PreBind
from gangsched.core.binding.reservation_checks import reservation_broken, reservation_taken
from gangsched.core.binding.staggered_bind import StaggeredBind
from gangsched.core.framework.interface import Code
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.state.pending_hooks import BIND, HookCall
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.transitions import Cause
from gangsched.core.types.group import (
    ASSUMED,
    BOUND,
    LEAVING,
    SENT,
    UNASKED,
    BindState,
    Group,
    GroupState,
    MemberState,
    PodInfo,
)
from gangsched.model.device_labels import allocation_labels, allocation_text
from gangsched.model.devices import ALLOCATED_KEY, allocation_annotations, is_device_key
from gangsched.model.effects import BindPod, BumpPod, CancelBinds, EvictPod, GetPod
from gangsched.model.events import (
    BindCancelled,
    BindFailed,
    BindSucceeded,
    BindUnknown,
    EvictionFailed,
    HookAnswered,
    PodBumped,
    PodRead,
    PodUnread,
)
from gangsched.model.pod_group import ATTEMPT_KEY, GANG_KEY, RANK_KEY

UNWIND = "unwind"
_FIRST_RETRY_S = 0.1
_LONGEST_RETRY_S = 5.0
# A retry costs a GET and a POST; after this many the pod's reservation is released and its group planned
# anew.
_MAX_TRIES = 8
# For refusals such as a webhook's; retried only in case that the answer was another server's.
_MAX_REFUSALS = 3
# Reported to users once it is more than a mishap.
_TRIES_TOLD = 4
# A pod that the server reported gone is looked for until the watch confirms it: answers have been wrong.
_LOOK_FIRST_S = 10.0
_LOOK_OFTEN_S = 60.0
_EVICT_AGAIN_S = 2.0
# A gang bound in part that waits for members is reported after this long.
_GATHER_TOLD_S = 5.0


class Binder:
    """Sends the binds of planned groups and handles every outcome."""

    def __init__(self, shared: SharedState, reporter: Reporter, conflicts: AdmissionConflicts) -> None:
        self._shared = shared
        self._reporter = reporter
        self._in_labels = shared.settings.devices.in_labels
        self._is_fenced = shared.settings.fence
        self.pre_bind = PreBind(shared, conflicts, prepared=self._prepared, stopped=self._give_back)
        self.staggered = StaggeredBind(shared, conflicts, send=self._send, broke=self.take_back)

    # -- out -------------------------------------------------------------------------------------------

    def start(self, unit: Sequence[Group]) -> None:
        """All members are reserved and permitted: from here only answers decide."""
        ready: list[tuple[Group, list[PodInfo]]] = []
        for group in unit:
            self._shared.queue.park(group, Cause.PERMITTED)
            group.failed_binds.clear()
            members = group.in_state(ASSUMED)
            self._assign_ranks(group, members)
            for info in members:
                info.attempt = group.attempts
                info.bind_tries = info.n_refused = 0
                info.unclear = ""
                info.in_doubt = False
            ready.append((group, members))
        try:
            if self.pre_bind.begin(ready):
                return
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            for group in unit:
                self._give_back(group, str(error))
            return
        for group, members in ready:
            self.staggered.begin(group, members)

    def _prepared(self, group: Group) -> None:
        self.staggered.begin(group, group.in_state(MemberState.ASSUMED))

    def _send(self, group: Group, members: Sequence[PodInfo]) -> None:
        key = str(group.key)
        binds = [plugin.name for plugin in self._shared.profile_of(group).binds]
        in_labels = self._in_labels and not binds
        effects = self._shared.effects
        for info in members:
            info.bind = SENT
            info.bind_tries += 1
            binding = self._binding(info, group, key)
            info.allocated = binding.annotations.get(ALLOCATED_KEY)
            if in_labels and info.ids:
                binding = _labelled(binding, info)
                info.allocated = allocation_text(binding.annotations, binding.labels)
            if binds:
                self._shared.hooks.ask(BIND, binds, group, info, binding.annotations)
            else:
                effects.append(binding)
        self._shared.count("binds_sent", len(members))

    def _binding(self, info: PodInfo, group: Group, key: str) -> BindPod:
        if self._is_fenced:
            info.sent_version = info.pod.metadata.resource_version
        return _binding(info, group, key, info.sent_version)

    def _give_back(self, group: Group, why: str) -> None:
        """No bind was sent, and none will be: releases the reservations; `settle` does the rest."""
        if group.state is GroupState.BINDING:
            self._shared.forget_all(group, why)
            group.failed_binds[""] = why
            self._shared.touch(group)

    def _assign_ranks(self, group: Group, members: list[PodInfo]) -> None:
        """The lowest free ranks, in the natural order of names ("w-2" before "w-10").

        A pod keeps its rank; a replacement gets its predecessor's, so that a gang of n has the ranks 0 to n -
        1, even when it was bound in part by a process that died.
        """
        unranked = [info for info in members if info.rank < 0]
        if not unranked:
            return
        unranked.sort(key=_natural_name)
        if len(unranked) == len(group.members):
            for rank, info in enumerate(unranked):
                info.rank = rank
            return
        taken = {info.rank for info in group.members.values() if info.state is not LEAVING}
        free = (rank for rank in count() if rank not in taken)
        for info in unranked:
            info.rank = next(free)

    # -- answers ---------------------------------------------------------------------------------------

    def succeeded(self, events: Iterable[BindSucceeded]) -> None:
        """Binds that landed, in the order of their answers; the effect on groups is counted once a gang."""
        shared = self._shared
        is_told = any(profile.post_binds for profile in shared.profiles.values())
        landed: dict[Group, list[PodInfo]] = {}
        for event in events:
            info = self._expected(event.uid, event.attempt, SENT)
            if info is None or info.group is None:
                continue
            info.bind = UNASKED
            landed.setdefault(info.group, []).append(info)
            if is_told:
                shared.hooks.post_bind(info, shared.profile_of(info.group))
        for group, infos in landed.items():
            group.move_all(infos, ASSUMED, BOUND)
            shared.count("pods_bound", len(infos))
            shared.touch(group)

    def failed(self, event: BindFailed) -> None:
        info = self._expected(event.uid, event.attempt, BindState.SENT)
        if info is not None:
            message = f"binding {info.pod.key} to {info.node_name}: {event.code} {event.message}"
            if event.code == 403:
                message += f"; {_cure(event.message)}"
            # If in doubt, a bump decides: its answer also shows whether the pod is gone.
            gone = event.code == 404 and not info.in_doubt
            self._lost(info, message, LEAVING if gone else MemberState.PENDING)

    def cancelled(self, event: BindCancelled) -> None:
        info = self._expected(event.uid, event.attempt, BindState.SENT)
        if info is not None:
            self._lost(info, f"binding {info.pod.key} was taken back", MemberState.PENDING)

    def unknown(self, event: BindUnknown) -> None:
        info = self._expected(event.uid, event.attempt, BindState.SENT)
        if info is not None and info.group is not None:
            self._shared.count("binds_unknown")
            info.unclear = event.message
            info.n_refused += event.refused
            if info.bind_tries == _TRIES_TOLD:
                self._reporter.unclear(info.group, f"binding {info.pod.key}: {event.message}")
            self._read(info, info.group)

    def unread(self, event: PodUnread) -> None:
        """The API server itself has not answered a read for a while: report that to the gang."""
        info = self._shared.cache.pods.get(event.uid)
        if info is not None and info.group is not None and info.bind is BindState.READING:
            self._reporter.unclear(info.group, f"reading {info.pod.key}: {event.message}")

    def _read(self, info: PodInfo, group: Group) -> None:
        """Asks the server whether the pod is bound: its answer decides."""
        info.bind = BindState.READING
        info.in_doubt = self._is_fenced
        self._ask(info, group)

    def _ask(self, info: PodInfo, group: Group) -> None:
        meta = info.pod.metadata
        self._shared.emit(GetPod(info.uid, meta.namespace, meta.name, group.cause_id))

    def hook_answered(self, call: HookCall, event: HookAnswered) -> None:
        """A Bind plugin has bound a member, left it to the next one, refused, or failed.

        Its success proves no more than silence: only the server's answer makes a pod bound or ends a
        reservation.
        """
        assert call.info is not None
        info = self._expected(call.info.uid, call.attempt, BindState.SENT)
        if info is None or info.group is None:
            return
        if event.code == Code.SKIP.value:
            self._bind_by_next(info, info.group, call.later)
        elif event.code in (Code.SUCCESS.value, Code.ERROR.value):
            self._read(info, info.group)
        else:
            error = PluginError(call.plugin, BIND, event.reason or event.code)
            self._lost(info, f"binding {info.pod.key} to {info.node_name}: {error}", MemberState.PENDING)

    def _bind_by_next(self, info: PodInfo, group: Group, plugins: Sequence[str]) -> None:
        key = str(group.key)
        broken = self._why_not_again(info, group)
        if broken:
            self._lost(info, broken, MemberState.PENDING)
        elif plugins:
            annotations = self._binding(info, group, key).annotations
            self._shared.hooks.ask(BIND, plugins, group, info, annotations)
        elif self._shared.profile_of(group).points.has_default_binder:
            self._shared.emit(self._binding(info, group, key))
        else:
            self._lost(info, f"no Bind plugin of the profile takes {info.pod.key}", MemberState.PENDING)

    def read(self, event: PodRead) -> PodInfo | None:
        """The GET's answer; a pod that is bound, or is there, is the caller's to apply as seen."""
        info, pod = self._shared.cache.pods.get(event.uid), event.pod
        if info is not None and info.state is LEAVING:
            info.said_gone = pod is None
            if pod is None:
                self._shared.look_for_at(self._shared.now_s + _LOOK_OFTEN_S, info)
            return info
        if info is None or info.state is not ASSUMED or info.bind is not BindState.READING:
            return None
        if pod is None:
            info.said_gone = True
            self._lost(info, f"{info.pod.key} is gone", LEAVING)
            return None
        if pod.spec.node_name:
            return info
        if pod.metadata.deletion_timestamp is not None or pod.is_terminal:
            self._lost(info, f"{info.pod.key} is being deleted", LEAVING)
        elif info.bind_tries >= _MAX_TRIES or info.n_refused >= _MAX_REFUSALS:
            tries = f"binding {info.pod.key} did not take effect after {info.bind_tries} tries"
            self._lost(info, f"{tries}: {info.unclear}" if info.unclear else tries, MemberState.PENDING)
        else:
            info.bind = BindState.SENT
            wait_s = min(_FIRST_RETRY_S * 2 ** (info.bind_tries - 1), _LONGEST_RETRY_S)
            if self._is_fenced and pod.metadata.resource_version != info.sent_version:
                wait_s, info.in_doubt = 0.0, False  # the pod has changed: binds sent before cannot land
            self._shared.retry_bind_at(self._shared.now_s + wait_s, info)
            return info
        return None

    def bumped(self, event: PodBumped) -> PodInfo | None:
        """Binds sent before cannot land any more, or one has landed; the caller applies the pod as seen."""
        info = self._shared.cache.pods.get(event.uid)
        if info is None or info.state is not ASSUMED or info.bind is not BindState.BUMPING:
            return None
        info.in_doubt = False
        pod = event.pod
        if pod is not None and pod.spec.node_name:
            return info
        is_leaving = pod is None or pod.metadata.deletion_timestamp is not None or pod.is_terminal
        self._free(info, MemberState.LEAVING if is_leaving else MemberState.PENDING)
        return info

    def send_again(self, uid: str, attempt: int) -> None:
        """A retry is due."""
        info = self._expected(uid, attempt, BindState.SENT)
        if info is None or info.group is None:
            return
        broken = self._why_not_again(info, info.group)
        if broken:
            self._lost(info, broken, MemberState.PENDING)
        else:
            self._send(info.group, (info,))

    def _why_not_again(self, info: PodInfo, group: Group) -> str:
        """Why a bind without effect is not sent again; "" if it is."""
        cache = self._shared.cache
        broken = reservation_broken(cache, info) or reservation_taken(cache, info)
        return broken or next(iter(group.failed_binds.values()), "")

    def look_for(self, uid: str) -> None:
        """Reads a pod that the server reported gone or leaving, if the watch has not confirmed it since."""
        info = self._shared.cache.pods.get(uid)
        if info is None or info.group is None or info.state is not LEAVING:
            return
        if info.pod.metadata.deletion_timestamp is None and not info.pod.is_terminal:
            self._ask(info, info.group)

    def _expected(self, uid: str, attempt: int, bind: BindState) -> PodInfo | None:
        """The member that an answer is about, unless it was answered, replaced or decided since."""
        info = self._shared.cache.pods.get(uid)
        if info is None or info.bind is not bind or info.attempt != attempt or info.group is None:
            return None
        return info if info.state is ASSUMED else None

    def _lost(self, info: PodInfo, why: str, state: MemberState) -> None:
        """A bind is given up: its room is freed once it cannot land; the rest of the gang is not sent."""
        group = info.group
        assert group is not None
        if info.in_doubt and state is MemberState.PENDING:
            info.bind = BindState.BUMPING
            meta = info.pod.metadata
            self._shared.count("binds_bumped")
            self._shared.emit(BumpPod(info.uid, meta.namespace, meta.name, group.cause_id))
        else:
            self._free(info, state)
        if not group.failed_binds:
            self._shared.emit(CancelBinds(group.cause_id))
        group.failed_binds[info.uid] = why
        self._shared.touch(group)

    def _free(self, info: PodInfo, state: MemberState) -> None:
        info.bind = BindState.NONE
        info.in_doubt = False
        self._shared.forget(info, state)
        if state is LEAVING:
            self._shared.look_for_at(self._shared.now_s + _LOOK_FIRST_S, info)
        if info.group is not None:
            self._shared.touch(info.group)

    # -- the group's outcome ---------------------------------------------------------------------------

    def take_back(self, group: Group, why: str) -> None:
        """A reservation of a binding group broke: unsent binds are not sent."""
        if not self.pre_bind.stop(group, why) and not group.failed_binds:
            group.failed_binds[""] = why
            self._shared.emit(CancelBinds(group.cause_id))
            self._shared.touch(group)

    def settle(self, group: Group) -> None:
        """Decides once no bind of the group is in flight."""
        self.pre_bind.look(group)
        if group.failed_binds:
            self.staggered.give_back(group)
        if group.n_assumed:
            return
        shared = self._shared
        why = next(iter(group.failed_binds.values()), "members left")
        if group.satisfied or group.is_whole_with(_failed_at_once(group)):
            group.satisfied = True
            group.recovering = False
            group.failure = 0
            shared.settle_by_s.pop(group.key, None)
            shared.count("groups_bound")
            shared.queue.park(group, Cause.ALL_BOUND)
            self._reporter.bound(group)
            if group.n_pending:
                shared.queue.activate(group, Cause.MORE_MEMBERS)
        elif group.n_bound == 0:
            shared.queue.back_off(group, Cause.BIND_FAILED, shared.now_s)
            said = f"gang {group.key} was not bound: {why}" if group.is_gang else why
            self._reporter.rejected(group, said)
        else:
            self._reporter.aborted(
                group, f"gang {group.key} is bound in part ({group.n_bound} of {group.start_count}): {why}"
            )
            self.half_bound(group)
        shared.stir_siblings(group)

    def half_bound(self, group: Group) -> None:
        """By policy: unwound at once, or first in line until half of settle_s is over and then unwound.

        Half, so that the evicted pods' grace period falls into the limit too.
        """
        shared = self._shared
        policy = (
            group.definition.on_partial_bind if group.definition else ""
        ) or shared.settings.on_partial_bind
        if policy == UNWIND:
            self.unwind(group)
            return
        shared.settle_by_s.setdefault(group.key, shared.now_s + shared.settings.settle_s / 2)
        self._complete(group)

    def _complete(self, group: Group) -> None:
        """First in line, at once; when that has failed before, after its backoff."""
        again, group.recovering = group.recovering, True
        if not group.n_pending:
            self._shared.queue.park(group, Cause.HALF_BOUND_ALONE, self._shared.now_s + _GATHER_TOLD_S)
        elif again:
            self._shared.queue.back_off(group, Cause.HALF_BOUND_AGAIN, self._shared.now_s)
        else:
            self._shared.queue.activate(group, Cause.HALF_BOUND)

    def unwind(self, group: Group) -> None:
        """Unwinds a half-bound gang: evicts its bound members, releases its reservations."""
        shared = self._shared
        shared.settle_by_s.pop(group.key, None)
        if not shared.settings.allow_eviction:
            self._complete_for_ever(group)
            return
        group.recovering = False
        shared.forget_all(group, "the gang is bound in part and unwound")
        shared.count("groups_unwound")
        group.attempts += 1
        group.cause_id = f"{group.key}#{group.attempts}"
        self._reporter.aborted(
            group,
            f"gang {group.key} was bound in part ({group.n_bound} of {group.start_count}) and could not be "
            f"completed{': ' + group.message if group.message else ''}; its bound members are evicted",
        )
        shared.queue.park(group, Cause.UNWINDS, shared.now_s + _EVICT_AGAIN_S)
        self.evict_bound(group)
        self.unwound(group)

    def _complete_for_ever(self, group: Group) -> None:
        """Eviction is off: bound members stay, and the rest is tried first in line, until the gang is whole.

        At the latest every settle_s, whether or not anything has changed that could help.
        """
        shared = self._shared
        self._reporter.aborted(
            group,
            f"gang {group.key} is bound in part ({group.n_bound} of {group.start_count}) and cannot be "
            "given back: allowEviction is off",
        )
        shared.settle_by_s[group.key] = shared.now_s + shared.settings.settle_s
        if group.state in (GroupState.ACTIVE, GroupState.UNSCHEDULABLE) and group.n_pending:
            group.recovering = True
            shared.queue.activate(group, Cause.HALF_BOUND)
        elif group.state is GroupState.BACKOFF:
            group.recovering = True
        else:
            group.recovering = False
            self._complete(group)

    def evict_gang(self, group: Group) -> None:
        """Evicts a gang that was whole; its successors start together when the last of it is gone."""
        shared = self._shared
        group.recovering = False
        shared.forget_all(group, "its gang is evicted")
        group.attempts += 1
        group.cause_id = f"{group.key}#{group.attempts}"
        shared.queue.park(group, Cause.EVICTED, shared.now_s + _EVICT_AGAIN_S)
        self.evict_bound(group)
        self.unwound(group)

    def evict_bound(self, group: Group) -> None:
        """Requests the eviction of every bound member that is not terminating yet."""
        for info in group.in_state(MemberState.BOUND):
            if info.pod.metadata.deletion_timestamp is None:
                meta = info.pod.metadata
                self._shared.emit(EvictPod(info.uid, meta.namespace, meta.name, group.cause_id))

    def eviction_failed(self, event: EvictionFailed) -> None:
        """A refusal by a budget (429) is retried later; a missing verb (403) is reported."""
        info = self._shared.cache.pods.get(event.uid)
        if info is not None and info.group is not None and event.code not in (404, 429):
            self._reporter.aborted(info.group, f"evicting {info.pod.key}: {event.code} {event.message}")

    def unwound(self, group: Group) -> None:
        """When the last bound member is gone the gang starts over with the remaining ones."""
        if group.counts[MemberState.BOUND]:
            return
        for info in group.in_state(MemberState.DONE):
            group.move(info, LEAVING)
        self._shared.queue.back_off(group, Cause.UNWOUND, self._shared.now_s)
        self._shared.stir_siblings(group)

    def evict_again(self, group: Group) -> None:
        """Repeats evictions without effect until they succeed."""
        self._shared.queue.set_deadline(group, self._shared.now_s + _EVICT_AGAIN_S)
        self.evict_bound(group)


def _failed_at_once(group: Group) -> list[PodInfo]:
    """Members started by this attempt that have already failed: their binds landed all the same."""
    return [info for info in group.in_state(MemberState.FAILED) if info.attempt == group.attempts]


def _binding(info: PodInfo, group: Group, key: str, version: str) -> BindPod:
    """The one write: the node, and the annotations written with it."""
    annotations = allocation_annotations(info.allocation, info.template.by_container)
    annotations[GANG_KEY] = key
    annotations[RANK_KEY] = str(info.rank)
    annotations[ATTEMPT_KEY] = str(info.attempt)
    meta = info.pod.metadata
    return BindPod(
        info.uid,
        meta.namespace,
        meta.name,
        info.node_name,
        annotations,
        key,
        info.attempt,
        group.cause_id,
        resource_version=version,
    )


def _cure(refusal: str) -> str:
    """The cure for a 403, with which both RBAC and admission answer."""
    if "cannot create resource" in refusal:
        return "the scheduler's role needs the verb create on pods/binding"
    if "'gangsched-reserved-keys" in refusal:
        return "run the scheduler as that service account: in the cluster, or with a kubeconfig of its token"
    return "not RBAC says this but an admission policy or webhook: let what the scheduler writes pass there"


def _labelled(binding: BindPod, info: PodInfo) -> BindPod:
    """The same with the devices as labels; plugins.devices has ensured that they fit.

    If the pod was created with the annotation, the annotation takes precedence, so overwrite it.
    """
    if ALLOCATED_KEY in (info.pod.metadata.annotations or {}):
        return binding
    annotations = {key: text for key, text in binding.annotations.items() if not is_device_key(key)}
    return replace(binding, annotations=annotations, labels=allocation_labels(info.allocation))


def _natural_name(info: PodInfo) -> tuple[int, str]:
    name = info.pod.metadata.name
    return len(name), name

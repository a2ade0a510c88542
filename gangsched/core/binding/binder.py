"""Binder: Plans in flight, and every answer to a bind.

One pipeline, from a permitted unit to its BindPod effects: PreBind calls plugins for all members,
StaggeredBind holds back members that kubelet could mix up, BindSender sends. Every answer is one of
succeeded, failed, unknown, cancelled. Unknown keeps the reservation until a consistent GET of that pod has
shown whether it is bound (promise 2); the retry is the same bind again, so that a late one lands identical.
A bind that is given up goes to core.binding.fenced_binds; core.binding.group_outcome decides about the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gangsched.core.binding.admission_conflicts import AdmissionConflicts
from gangsched.core.binding.bind_sender import BindSender, assign_ranks
from gangsched.core.binding.claim_writes import ClaimWrites
from gangsched.core.binding.fenced_binds import FencedBinds
from gangsched.core.binding.group_outcome import GroupOutcome
from gangsched.core.binding.pre_bind import PreBind
from gangsched.core.binding.reservation_checks import reservation_broken, reservation_taken
from gangsched.core.binding.staggered_bind import StaggeredBind
from gangsched.core.binding.start_records import StartRecords
from gangsched.core.cycle.ranks import walk
from gangsched.core.framework.interface import Code
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.state.pending_hooks import BIND, HookCall
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.binds import BindCause, move_bind, move_binds
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import (
    ASSUMED,
    BOUND,
    LEAVING,
    BindState,
    Group,
    MemberState,
    PodInfo,
)
from gangsched.core.types.states import SENT
from gangsched.core.why import Why
from gangsched.core.why.binds import BindRefused, BindTakenBack, BindWithoutEffect, NoBinder, PodGoes, PodGone
from gangsched.model.effects import GetPod
from gangsched.model.events import (
    BindCancelled,
    BindFailed,
    BindSucceeded,
    BindUnknown,
    ClaimUnread,
    HookAnswered,
    PodRead,
    PodUnread,
)
from gangsched.model.text.server_refusals import (
    says_keys_are_reserved,
    says_namespace_goes,
    says_right_is_missing,
)

_FIRST_RETRY_S = 0.1
_LONGEST_RETRY_S = 5.0
# A retry costs a GET and a POST; after this many the pod's reservation is released and its group planned
# again.
_MAX_TRIES = 8
# For refusals such as a webhook's; retried only in case the answer came from another server.
_MAX_REFUSALS = 3
# After this many unclear answers users get an event.
_TRIES_REPORTED = 4
# A pod that the server reported gone is looked for until the watch confirms it: answers have been wrong.
_READ_OFTEN_S = 60.0


class Binder:
    """Sends the binds of planned groups and handles every outcome."""

    def __init__(self, shared: SharedState, reporter: Reporter, conflicts: AdmissionConflicts) -> None:
        self._shared = shared
        self._reporter = reporter
        self.fenced = FencedBinds(shared)
        self.records = StartRecords(shared)
        self._sender = BindSender(shared)
        self.staggered = StaggeredBind(shared, conflicts, self._sender)
        self.claims = ClaimWrites(shared)
        self.pre_bind = PreBind(shared, conflicts, self.staggered, self._sender, self.claims)
        self.outcome = GroupOutcome(shared, reporter, self.pre_bind, self.staggered, self.records)

    # -- out -------------------------------------------------------------------------------------------

    def start(self, unit: Sequence[Group]) -> None:
        """Starts binding a reserved and permitted unit: from here only answers decide."""
        ready: list[tuple[Group, list[PodInfo]]] = []
        shared = self._shared
        for group in unit:
            self._shared.queue.park(group, Cause.PERMITTED)
            group.failed_binds.clear()
            members = group.in_state(ASSUMED)
            assign_ranks(group, members, shared.cache.view, shared.settings.topology_key)
            if len(members) > 1:
                self._measure(group, members)
            self.records.begin(group, members)
            attempt = group.attempts
            for info in members:
                if info.bind_tries:  # of an earlier attempt
                    info.bind_tries = info.n_refused = 0
                    info.unclear_answer = ""
                    info.bind_may_land = False
                info.attempt = attempt
            ready.append((group, members))
        try:
            if self.pre_bind.begin(ready):
                return
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            for group in unit:
                self._sender.give_back(group, str(error))
            return
        for group, members in ready:
            self._sender.send(group, self.staggered.may_leave(group, members))

    def _measure(self, group: Group, members: Sequence[PodInfo]) -> None:
        """Counts how near each other the ranks are of members that start together."""
        shared = self._shared
        way = walk(group, members, shared.cache.view, shared.settings.topology_key)
        group.rank_distance = way.total, way.least
        if way.least:
            shared.count("rank_distance", way.total)
            shared.count("rank_distance_least", way.least)

    def take_back(self, group: Group, why: Why) -> None:
        """Stops unsent binds of a binding group that has lost a reservation."""
        if not self.pre_bind.stop(group, why):
            self._sender.withdraw(group, why)

    # -- answers ---------------------------------------------------------------------------------------

    def succeeded(self, events: Iterable[BindSucceeded]) -> None:
        """Takes in binds that landed, in the order of their answers; updates each group once."""
        shared = self._shared
        is_told = any(profile.post_binds for profile in shared.profiles.values())
        landed: dict[Group, dict[PodInfo, None]] = {}
        pods, group, there = shared.cache.pods, None, dict[PodInfo, None]()
        for event in events:
            info = pods.get(event.uid)
            # _is_expected inlined: this runs for every pod
            if info is None or info.bind is not SENT or info.attempt != event.attempt:
                continue
            if info.state is not ASSUMED or info.group is None:
                continue
            if info.group is not group:
                group = info.group
                there = landed.setdefault(group, {})
            if is_told and info not in there:
                shared.hooks.post_bind(info, shared.profile_of(info.group))
            there[info] = None
        for group, infos in landed.items():
            move_binds(infos, BindCause.LANDED)
            group.move_all(infos, ASSUMED, BOUND)
            shared.count("pods_bound", len(infos))
            shared.mark_group(group)

    def failed(self, event: BindFailed) -> None:
        info = self._expected(event.uid, event.attempt, BindState.SENT)
        if info is not None:
            cure = _cure(event.message) if event.code == 403 else ""
            why = BindRefused(info.pod.key, info.node_name, event.code, event.message, cure)
            # If in doubt, a bump decides: its answer also shows whether the pod is gone.
            gone = event.code == 404 and not info.bind_may_land
            self.fenced.lost(info, why, LEAVING if gone else MemberState.PENDING)

    def cancelled(self, event: BindCancelled) -> None:
        info = self._expected(event.uid, event.attempt, BindState.SENT)
        if info is not None:
            self.fenced.lost(info, BindTakenBack(info.pod.key), MemberState.PENDING)

    def unknown(self, event: BindUnknown) -> None:
        info = self._expected(event.uid, event.attempt, BindState.SENT)
        if info is not None and info.group is not None:
            self._shared.count("binds_unknown")
            info.unclear_answer = event.message
            info.n_refused += event.refused
            if info.bind_tries == _TRIES_REPORTED:
                self._reporter.bind_unclear(info.group, f"binding {info.pod.key}: {event.message}")
            self._read(info, info.group)

    def report_unread(self, event: PodUnread) -> None:
        """Reports to the gang that the API server itself has not answered a read for a while."""
        info = self._shared.cache.pods.get(event.uid)
        if info is not None and info.group is not None and info.bind is BindState.READING:
            self._reporter.bind_unclear(info.group, f"reading {info.pod.key}: {event.message}")

    def report_unread_claim(self, event: ClaimUnread) -> None:
        """As report_unread, of a claim that members want."""
        for group, why in self.claims.unread(event):
            self._reporter.bind_unclear(group, why)

    def _read(self, info: PodInfo, group: Group) -> None:
        """Asks the server whether the pod is bound: its answer decides."""
        move_bind(info, BindCause.UNCLEAR)
        self.fenced.note_unknown(info)
        self._ask(info, group)

    def _ask(self, info: PodInfo, group: Group) -> None:
        meta = info.pod.metadata
        self._shared.emit(GetPod(info.uid, meta.namespace, meta.name, group.cause_id))

    def hook_answered(self, call: HookCall, event: HookAnswered) -> None:
        """Takes a Bind plugin's answer: it has bound a member, left it to the next one, refused, or failed.

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
            self.fenced.lost(
                info, f"binding {info.pod.key} to {info.node_name}: {error}", MemberState.PENDING
            )

    def _bind_by_next(self, info: PodInfo, group: Group, plugins: Sequence[str]) -> None:
        key = str(group.key)
        broken = self._why_not_again(info, group)
        if broken:
            self.fenced.lost(info, broken, MemberState.PENDING)
        elif plugins:
            annotations = self._sender.binding(info, group, key).annotations
            self._shared.hooks.ask(BIND, plugins, group, info, annotations)
        elif self._shared.profile_of(group).points.has_default_binder:
            self._shared.emit(self._sender.binding(info, group, key))
        else:
            self.fenced.lost(info, NoBinder(info.pod.key), MemberState.PENDING)

    def read(self, event: PodRead) -> PodInfo | None:
        """Takes a GET's answer; returns a pod for the caller to apply as seen, if it is bound or exists."""
        info, pod = self._shared.cache.pods.get(event.uid), event.pod
        if info is not None and info.state is LEAVING:
            info.reported_gone = pod is None
            if pod is None:
                self._shared.read_gone_at(self._shared.now_s + _READ_OFTEN_S, info)
            return info
        if info is None or info.state is not ASSUMED or info.bind is not BindState.READING:
            return None
        if pod is None:
            info.reported_gone = True
            self.fenced.lost(info, PodGone(info.pod.key), LEAVING)
            return None
        if pod.spec.node_name:
            return info
        if pod.metadata.deletion_timestamp is not None or pod.is_terminal:
            self.fenced.lost(info, PodGoes(info.pod.key), LEAVING)
        elif info.bind_tries >= _MAX_TRIES or info.n_refused >= _MAX_REFUSALS:
            tried = BindWithoutEffect(info.pod.key, info.bind_tries, info.unclear_answer)
            self.fenced.lost(info, tried, MemberState.PENDING)
        else:
            move_bind(info, BindCause.NOT_BOUND)
            wait_s = min(_FIRST_RETRY_S * 2 ** (info.bind_tries - 1), _LONGEST_RETRY_S)
            if self.fenced.is_overtaken(info, pod):
                wait_s, info.bind_may_land = 0.0, False  # the pod has changed: binds sent before cannot land
            self._shared.retry_bind_at(self._shared.now_s + wait_s, info)
            return info
        return None

    def send_again(self, uid: str, attempt: int) -> None:
        """Sends a bind again whose retry is due."""
        info = self._expected(uid, attempt, BindState.SENT)
        if info is None or info.group is None:
            return
        broken = self._why_not_again(info, info.group)
        if broken:
            self.fenced.lost(info, broken, MemberState.PENDING)
        else:
            self._sender.send(info.group, (info,))

    def _why_not_again(self, info: PodInfo, group: Group) -> Why:
        """Returns why a bind without effect is not sent again; "" if it is."""
        cache = self._shared.cache
        broken = reservation_broken(cache, info) or reservation_taken(cache, info)
        broken = broken or self.claims.problem((info,)) or self.claims.made.stated_otherwise(info)
        return broken or next(iter(group.failed_binds.values()), "")

    def read_gone(self, uid: str) -> None:
        """Reads a pod that the server reported gone or leaving, if the watch has not confirmed it since."""
        info = self._shared.cache.pods.get(uid)
        if info is None or info.group is None or info.state is not LEAVING:
            return
        if info.pod.metadata.deletion_timestamp is None and not info.pod.is_terminal:
            self._ask(info, info.group)

    def _expected(self, uid: str, attempt: int, bind: BindState) -> PodInfo | None:
        """Returns the member that an answer is about, unless it was answered, replaced or decided since."""
        info = self._shared.cache.pods.get(uid)
        return info if info is not None and _is_expected(info, attempt, bind) else None


def _is_expected(info: PodInfo, attempt: int, bind: BindState) -> bool:
    return info.bind is bind and info.attempt == attempt and info.state is ASSUMED and info.group is not None


def _cure(refusal: str) -> str:
    """Returns the cure for a 403, with which both RBAC and admission answer."""
    if says_right_is_missing(refusal, "create"):
        return "the scheduler's role needs the verb create on pods/binding"
    if says_keys_are_reserved(refusal):
        return "run the scheduler as that service account: in the cluster, or with a kubeconfig of its token"
    if says_namespace_goes(refusal):
        return "its namespace is being deleted"
    return "an admission policy or webhook refused it, not RBAC: allow the scheduler's writes there"

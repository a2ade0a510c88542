"""Membership: turns the watch's pods into members of groups, and into resources used on nodes.

Keyed by UID throughout; repeated or late events change nothing. Pods of other schedulers count for the
resources they use (bound or nominated) and are never written to. If one names a group of ours, the group is
rejected, because it could never start whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gangsched.core.binding.reservation_checks import is_resized
from gangsched.core.binding.start_records import all_landed, note_doubt, note_refusal
from gangsched.core.device_audit.claimed_devices import ClaimedDevices
from gangsched.core.device_audit.device_health import DeviceHealth
from gangsched.core.device_audit.drift import DriftAudit
from gangsched.core.groups.group_spec import GroupSpecs
from gangsched.core.groups.members.leaving import Leaving, evict_edited
from gangsched.core.groups.members.pod_similarity import PodsWithTwoGroups, SimilarPod, SimilarPods
from gangsched.core.groups.members.pod_versions import (
    allocated_in,
    is_edited,
    is_elsewhere,
    is_leaving_an_inferred_gang,
    is_newer,
    is_started_by_others,
    is_unseen,
    lacks_devices,
    may_change_template,
    placement_differs,
    read_start,
    runs_on,
    shows_its_bind,
)
from gangsched.core.groups.members.pre_enqueue import PreEnqueue
from gangsched.core.groups.owners import Owners
from gangsched.core.kept.nominations import ForeignNominations, room_taken
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.state.pending_hooks import HookCall
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.binds import BindCause, move_bind
from gangsched.core.state.tables.groups import Cause
from gangsched.core.state.tables.starts import StartCause, move_start
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import Group, GroupState, MemberState, PodInfo
from gangsched.core.types.states import (
    ASSUMED,
    AT_THE_GATE,
    BINDING,
    BOUND,
    DONE,
    ENDED,
    LEAVING,
    ON_ITS_WAY,
    PENDING,
)
from gangsched.model.devices.labels import allocation_of
from gangsched.model.events import HookAnswered, PodAdded, PodDeleted, PodUpdated
from gangsched.model.objects import Pod
from gangsched.model.pod_group import POD, GroupKey, identity_of, lone_key, needs_object, role_of, stated_by
from gangsched.model.resource_claims.objects import CLAIMS
from gangsched.model.stated.index import index_of


class Membership:
    """Applies pods to the scheduler's groups and its cache."""

    def __init__(
        self,
        shared: SharedState,
        reporter: Reporter,
        group_specs: GroupSpecs,
        owners: Owners,
        audit: DriftAudit,
        health: DeviceHealth,
        claimed: ClaimedDevices,
    ) -> None:
        self._shared = shared
        self._reporter = reporter
        self._audit = audit
        self._health = health
        self._claimed = claimed
        self._group_specs = group_specs
        self._owners = owners
        self._similar = SimilarPods(shared.cache, group_specs, owners)
        self._joined: Group | None = None
        """The group that the last pod of this run of events joined; it is marked for reconsideration."""
        self._two_groups = PodsWithTwoGroups()
        self.leaving = Leaving(shared)
        self.late_moves = LateMoves(shared)
        self.foreign_nominations = ForeignNominations(shared)
        self.pre_enqueue = PreEnqueue(shared, reporter)

    def put_pods(self, events: Iterable[PodAdded | PodUpdated]) -> None:
        """Applies current pods one by one; a version older than the known one is ignored."""
        known, profiles = self._shared.cache.pods, self._shared.profiles
        self._joined = None
        for event in events:
            pod = event.pod
            info = known.get(pod.metadata.uid)
            if info is not None and not is_newer(pod, info.pod):
                continue
            if pod.spec.scheduler_name not in profiles:
                self.put_stranger(pod, info)
            elif info is None:
                self._join(pod)
            else:
                self._update(info, pod)

    def sort_out(self, core_key: GroupKey) -> None:
        """Regroups pods that name a new core PodGroup and another group: if it is basic the other counts."""
        self._joined = None
        self._similar.forget_core()
        for uid in self._two_groups.beside(core_key):
            info = self._shared.cache.pods.get(uid)
            if info is not None and info.group is not None:
                self._regroup_late(info)

    def move_late(self) -> None:
        """Once a turn: puts pods into the groups that they name now, once it is known where they are."""
        if self.late_moves.uids:
            for info in self.late_moves.take_settled():
                self._regroup_late(info)

    def ask_pre_enqueue_again(self) -> None:
        """Once a turn: calls PreEnqueue again for pods that a change may have cured, and plugins at the
        edge."""
        claims = self._shared.cache.claims
        if claims.stale or claims.freed:
            self._follow_claims(claims)
        if self._shared.enqueue_waits.again:
            for uid in self.pre_enqueue.take_cured():
                self.ask_pre_enqueue(uid)
        self.pre_enqueue.call_plugins()

    def _follow_claims(self, claims: ClaimBook) -> None:
        """Gives pods the templates that their resource claims ask for now, and asks whether they may be
        scheduled; announces devices that are free again."""
        shared = self._shared
        shared.cache.note_claims()
        if claims.freed:
            claims.freed = False
            shared.changes.append(ClusterChange(Change.OBJECT, kind=CLAIMS))
        stale, claims.stale = claims.stale, {}
        for uid in stale:
            info = shared.cache.pods.get(uid)
            if info is None:
                continue
            if info.node_name:
                if info.state is ASSUMED:
                    shared.cache.edited(info)
                self._health.pod_bound(info)  # which device its kubelet means may be known only now
                if info.group is not None and uid in shared.claim_uses.of_pod:
                    shared.mark_group(info.group)  # its status may state its claim now
                continue
            before, info.template = info.template, shared.cache.template_of(info.pod)
            shared.enqueue_waits.again[uid] = None
            group = info.group
            if group is not None and info.template is not before and group.state is GroupState.UNSCHEDULABLE:
                shared.queue.activate(group, Cause.CURED)

    def pre_enqueue_answered(self, call: HookCall, event: HookAnswered) -> None:
        """Takes an answer from the edge about one pod."""
        if self.pre_enqueue.answered(call, event) and call.info is not None:
            self.ask_pre_enqueue(call.info.uid)

    def ask_pre_enqueue(self, uid: str) -> None:
        """Calls PreEnqueue again: it failed, or the plugin changed."""
        info = self._shared.cache.pods.get(uid)
        if info is not None and info.state in AT_THE_GATE:
            self._update_state(info)

    def come_back(self, info: PodInfo) -> None:
        """Restores a pod that had been reported gone, as a consistent read has found it."""
        if info.state is LEAVING:
            self._update_state(info)

    def _update_state(self, info: PodInfo) -> None:
        if info.group is not None and (target := self._state_of(info, info.pod)) is not info.state:
            info.group.move(info, target)
            self._shared.mark_group(info.group)

    def reconfigured(self) -> None:
        """Forgets findings about the last pod, which may not hold under new settings."""
        self._similar.forget()

    def regroup(self, groups: Iterable[Group]) -> None:
        """Regroups the pods of groups with changed statements or changed controllers' objects."""
        self._similar.forget()
        self._joined = None
        for group in groups:
            for info in list(group.members.values()):
                if info.pod.metadata.deletion_timestamp is None:
                    self._regroup_late(info)
            self._shared.mark_group(group)
        self._joined = None

    def _regroup_late(self, info: PodInfo) -> None:
        """Puts a member into the group that it names now, once the watch shows where it is."""
        if self.late_moves.must_wait(info):
            return
        key, problem, _ = self._similar.key_of(info.pod)
        is_other = info.group is None or key != info.group.key or problem not in ("", info.group.own_problem)
        if is_other or identity_of(info.pod) != info.identity:
            self.join_again(info.pod)

    def join_again(self, pod: Pod) -> None:
        """Puts the pod into the group that it names now. A running pod keeps what it has, whatever devices
        this version lists, and stays a victim for units that wait for it."""
        self._joined = None
        info = self._shared.cache.pods.get(pod.metadata.uid)
        if info is None or not (info.identity or pod is info.pod) or not runs_on(info, pod):
            self._remove(pod.metadata.uid)
            self._join(pod)
            return
        was_ours, group = bool(info.identity), info.group
        if group is not None:
            self._leave_group(info, group)
        self._enter_group(info, pod, self._similar.similar_pod(pod))
        if not was_ours:
            self._place(info, pod)
        elif pod is not info.pod:
            self._replace_pod(info, pod)
        elif group is None:
            self._audit.is_ours_again(info)
        elif self._shared.ends is not None:
            self._shared.end_edited(info)

    def drop(self, group: Group) -> None:
        """Drops a group whose last member is gone."""
        self._owners.forget(group)
        self._shared.drop_group(group)

    def let_go(self, info: PodInfo) -> None:
        """Drops a pod whose profile is removed. If it runs it keeps what it has, as another scheduler's."""
        if info.group is None or not runs_on(info, info.pod):
            self._remove(info.uid)
            return
        self._audit.pod_gone(info.uid)
        self._leave_group(info, info.group)

    def _leave_group(self, info: PodInfo, group: Group) -> None:
        is_answered = group.state is BINDING and not group.has_started
        if is_answered and group.definition is not None and all_landed(group):
            move_start(group, StartCause.WHOLE)  # though the turn in which it has started is not over
        group.remove(info)
        self.leaving.forget(info, group)
        self._shared.mark_group(group)
        self._two_groups.remove(info.pod)

    def remove_pod(self, event: PodDeleted) -> None:
        """Removes a pod that is gone for good."""
        self._claimed.pod_gone(event.pod)
        self._remove(event.pod.metadata.uid)

    def _remove(self, uid: str) -> None:
        shared = self._shared
        shared.unanswered.pop(uid, None)
        self._group_specs.forget_stranger(uid)
        self._audit.pod_gone(uid)
        self.foreign_nominations.forget(uid)
        shared.release_kept(uid)
        info = shared.cache.remove_pod(uid)
        if info is None:
            return
        self.pre_enqueue.forget(info)
        shared.claim_uses.unwant(uid)
        if info.pod.spec.resource_claims and shared.cache.claims.groups:
            shared.claim_uses.user_gone(info.pod, shared.now_s + shared.settings.settle_s)
        shared.release(info)
        shared.left_node(uid, info.pod)
        if info.group is not None:
            self._leave_group(info, info.group)

    def put_stranger(self, pod: Pod, info: PodInfo | None) -> None:
        """Applies a pod of another scheduler; info: what is already known about it."""
        shared, uid = self._shared, pod.metadata.uid
        self._group_specs.note_stranger(pod)
        holds = bool(pod.spec.node_name) and not pod.is_terminal
        self.foreign_nominations.put(pod)
        if not holds:
            if info is not None:
                self._remove(uid)
                self._group_specs.note_stranger(pod)
            return
        if info is None:
            info = PodInfo(pod, shared.cache.template_of(pod), uid)
            info.state = BOUND
            shared.cache.join(info)
            self._place(info, pod)
            room_taken(shared, (pod.spec.node_name,), scheduler=pod.spec.scheduler_name)
        else:
            self._replace_pod(info, pod)

    def _join(self, pod: Pod) -> None:
        shared, like = self._shared, self._similar.similar_pod(pod)
        info = PodInfo(pod, like.template, pod.metadata.uid)
        info.state = self._state_of(info, pod)
        shared.cache.join(info)
        if info.state is BOUND:
            self._place(info, pod)
        self._enter_group(info, pod, like)

    def _enter_group(self, info: PodInfo, pod: Pod, like: SimilarPod) -> None:
        """Adds the pod to the group that it names; creates the group for its first member."""
        shared, key = self._shared, like.key
        info.identity, info.stated, info.role = like.identity, like.stated, like.role
        is_going = pod.metadata.deletion_timestamp is not None
        if key.dialect == POD:
            key = lone_key(pod)
        elif is_going and is_leaving_an_inferred_gang(key, pod):
            key = lone_key(pod)
            info.stated, info.role = stated_by(key, pod), role_of(key, pod)
        if key.dialect != POD:
            info.index = index_of(pod.metadata, is_stated=like.states_index)
        group = self._joined
        if group is None or (group.key is not key and group.key != key):
            group = shared.groups.get(key)
            if group is None:
                group = shared.groups[key] = Group(key, pod.spec.scheduler_name, now_s=shared.now_s)
            self._joined = group
            shared.mark_group(group)
        if pod.spec.node_name:
            read_start(info, pod, group)
        group.add(info)
        if is_going:
            self.leaving.note(info)
        if info.state is DONE and shared.walltimes is not None:
            shared.walltimes.finished(group, info)
        if like.states_walltime:
            group.states_walltime = True
        if like.ignored and info.state in AT_THE_GATE:
            self._group_specs.own_keys.tell(group, pod, like.ignored)
        if key.dialect == POD:
            group.own_problem = like.problem
        if like.core_beside is not None:
            self._two_groups.add(like.core_beside, info.uid)

    def _update(self, info: PodInfo, pod: Pod) -> None:
        group = info.group
        if group is None and info.uid in self._shared.unanswered and not pod.spec.node_name:
            self._shared.unanswered[info.uid] = pod
            return
        if group is None:
            # It was another scheduler's when first seen; schedulerName is immutable, so this is a new pod.
            return self.join_again(pod)
        if info.state is BOUND and not pod.spec.node_name:
            # This version predates the bind, whose answer overtook the watch: it releases nothing.
            if is_edited(info.pod, pod):
                self.late_moves.note(info)
            self._shared.cache.renew(info, pod)
            return
        is_seen = info.state is BOUND and not info.pod.spec.node_name
        if is_seen and info.uid not in self.late_moves.uids and shows_its_bind(info.pod, pod):
            return self._bind_seen(info, pod)
        if identity_of(pod) != info.identity:
            if info.bind not in ON_ITS_WAY:
                return self.join_again(pod)
            self.late_moves.note(info)
        old = info.pod
        if pod.spec.node_name and info.state is not BOUND and is_started_by_others(info, pod):
            read_start(info, pod, group)
        target = self._state_of(info, pod)
        if target is info.state:
            self._replace_pod(info, pod)
        elif info.state is ASSUMED:
            self._update_assumed(info, pod, target)
        else:
            self._replace_pod(info, pod)
            if target is BOUND:
                self._place_found(info, pod)
            if info.state is BOUND:
                self._shared.forget(info, target)
            else:
                group.move(info, target)
            self._shared.mark_group(group)
        if pod.metadata.deletion_timestamp is not None:
            self.leaving.note(info)
        if old.status.phase != pod.status.phase:
            note_refusal(info, group, before=old)
            if needs_object(group.key):
                self._shared.mark_group(group)
                self._reporter.progressed(group)

    def _bind_seen(self, info: PodInfo, pod: Pod) -> None:
        """Applies the version that shows an answered bind and nothing else that is new: a short
        `_replace_pod`, as every pod comes this way."""
        group, old = info.group, info.pod
        assert group is not None
        self._shared.cache.renew_bound(info, pod)
        self._note_bound(info)
        if is_elsewhere(info, pod):
            self._place(info, pod)
        if is_resized(info, pod):
            self._recount_pod(info, pod)
        if len(pod.status.conditions or ()) > 1 and note_doubt(info, group, before=old):
            self._shared.mark_group(group)

    def _update_assumed(self, info: PodInfo, pod: Pod, target: MemberState) -> None:
        shared, group = self._shared, info.group
        assert group is not None
        before = info.pod
        shared.cache.renew(info, pod)
        if target in (PENDING, MemberState.GATED):
            if pod.spec != before.spec or is_edited(before, pod):
                shared.cache.edited(info)
                if info.bind in ON_ITS_WAY:
                    self.late_moves.note(info)
            return  # the reservation stands: only its bind's outcome, or its group, can end it
        if target is BOUND or target in ENDED:
            if not (by_us := info.bind in ON_ITS_WAY):
                self._place_found(info, pod)
            elif is_elsewhere(info, pod):
                self._place(info, pod)
            move_bind(info, BindCause.SEEN)
            if is_resized(info, pod):
                self._recount_pod(info, pod)
            self._note_bound(info)
            group.move(info, BOUND)
            if by_us and (profile := shared.profile_of(group)).post_binds:
                shared.hooks.post_bind(info, profile)
            if target in ENDED:
                shared.forget(info, target)
        elif info.bind not in ON_ITS_WAY:
            move_bind(info, BindCause.WITHDRAWN)
            shared.forget(info, LEAVING)
        else:
            return  # being deleted with a bind in flight: the bind's answer decides
        shared.mark_group(group)

    def _replace_pod(self, info: PodInfo, pod: Pod) -> None:
        """Applies a new version of a pod that keeps its node; recounts it if its requests changed."""
        old, shared = info.pod, self._shared
        shared.cache.renew(info, pod)
        evict_edited(shared, self._health, self._audit, info, old)
        if info.state is PENDING and info.group is not None and is_edited(old, pod):
            shared.member_edited(info.group)
            if info.group.active_token:
                shared.queue.activate(info.group, Cause.PLACE_CHANGED)
            self._group_specs.own_keys.edited(info.group, pod)
        if info.state is BOUND:
            self._health.pod_edited(info)
            if info.group is not None and pod.status.conditions and note_doubt(info, info.group, before=old):
                shared.mark_group(info.group)
        is_seen = bool(pod.spec.node_name) and not old.spec.node_name
        if info.state is BOUND and shared.ends is not None and is_edited(old, pod):
            shared.end_edited(info)
            if info.group is not None:
                self._group_specs.own_keys.edited(info.group, pod)
        if is_seen and info.state is BOUND:
            self._note_bound(info)
            if is_elsewhere(info, pod):
                self._place(info, pod)
        if may_change_template(info, old, pod):
            self._recount_pod(info, pod)
        if is_seen:
            return
        is_told = info.state is BOUND and placement_differs(info, old, pod)
        if is_told and not (old.spec.node_name and self._audit.pod_edited(info, pod)):
            self._place(info, pod)

    def _recount_pod(self, info: PodInfo, pod: Pod) -> None:
        """Counts the pod by this version, on the node where it is.

        A pod may be resized at any time, even while its bind is in flight: it was reserved with its former
        requests, and runs with its new ones.
        """
        shared = self._shared
        template = shared.cache.template_of(pod)
        if template is info.template:
            return
        node_name, allocation = info.node_name, info.allocation
        change = shared.cache.forget(info)
        info.template = template
        if node_name:
            shared.cache.place(info, node_name, allocation)
            if change is not None:
                shared.changes.append(change)
        if info.group is not None:
            shared.mark_group(info.group)
            if shared.claims is not None:
                shared.claims.edited(info.group)

    def _place_found(self, info: PodInfo, pod: Pod) -> None:
        """Places a pod that was bound without a bind from here in flight."""
        if self._shared.ends is not None:
            self._shared.ends.bound_by_others(info)
        self._place(info, pod)

    def _place(self, info: PodInfo, pod: Pod) -> None:
        self.pre_enqueue.forget(info)
        if lacks_devices(info, pod) and self._audit.pod_edited(info, pod):
            # A user removed the IDs, or the server dropped their labels: they still belong to this pod.
            self._note_bound(info)
            return
        allocation, problem = allocation_of(pod)
        if problem:
            self._reporter.pod_event(pod, "Warning", "DeviceMismatch", "Scheduling", problem)
        info.allocated = allocated_in(info, pod)
        self._shared.cache.place(info, pod.spec.node_name, allocation)
        self._note_bound(info)

    def _note_bound(self, info: PodInfo) -> None:
        self._audit.pod_bound(info)
        self._claimed.pod_bound(info)
        self._health.pod_bound(info)

    def _state_of(self, info: PodInfo, pod: Pod) -> MemberState:
        if pod.is_terminal:
            if not pod.spec.node_name:
                return LEAVING
            return MemberState.FAILED if pod.status.phase == "Failed" else MemberState.DONE
        if pod.spec.node_name:
            return BOUND
        if pod.metadata.deletion_timestamp is not None:
            return LEAVING
        # Also for a pod that was reported gone: a version that shows it alive is newer.
        return PENDING if self.pre_enqueue.lets_in(info, pod) else MemberState.GATED


class LateMoves:
    """Pods that are regrouped as soon as it is known whether they are bound.

    While its bind is in flight a pod stays in its group, since the reservation must outlive the answer. So
    does a pod that only the answer shows as bound, since no version of it names its node yet. If it, or what
    puts it into a group, was edited meanwhile, it moves afterwards: a pod whose bind has failed may get no
    later version that would show the edit.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.uids: dict[str, None] = {}
        """Those that were edited while it was not known where they are."""

    def note(self, info: PodInfo) -> None:
        """Notes a pod with a bind in flight, to decide about later."""
        self.uids[info.uid] = None

    def must_wait(self, info: PodInfo) -> bool:
        """Whether to decide later, as the pod does not show yet where it is, if anywhere; notes it then."""
        if is_unseen(info):
            self.note(info)
            return True
        return False

    def take_settled(self) -> Iterator[PodInfo]:
        """Takes out and yields the pods whose binds have failed, or that the watch shows as bound."""
        for uid in list(self.uids):
            info = self._shared.cache.pods.get(uid)
            if info is None or info.group is None:
                del self.uids[uid]
            elif not is_unseen(info):
                del self.uids[uid]
                yield info

"""LostMembers: gangs that have started and run with fewer members than they need, a role's least included.

    it has fewer than it needs      reported at once: event, its object's and members' condition, metric
    what is missing changes         reported again
    it has enough again             reported
    its time is over                by its gangsched.io/if-not-recovered:
        stay                        nothing: it has no such time
        move                        all of it is evicted once it would start again at once
        give-back, or not stated    all of it is evicted, and starts again as one

The time is its gangsched.io/recover-within, else the configuration's recoverWithinSeconds; with neither it
has none. It counts from the first loss, as the members' condition GangWhole has it, so that neither further
losses nor a restart renew it. Not here: what exactly is missing (core.types.lost_members), the places kept
for the members to come (core.state.holes).
"""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.core.binding.binder import Binder
from gangsched.core.binding.start_records import LOST_MEMBERS
from gangsched.core.framework.plan import FitError
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.groups.attempts.attempts import Attempts
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import Group, MemberState, PodInfo
from gangsched.core.types.lost_members import lacks, runs_enough, time_to_recover
from gangsched.core.why import Why
from gangsched.core.why.incomplete import CannotMove, MembersLost, NotRecovered
from gangsched.model.pod_group import MOVE, GroupKey

# A gang is looked at again while it is being bound, or while evictions are off; and whether it could move,
# which costs a search.
_AGAIN_S, _MOVE_AGAIN_S = 5.0, 30.0
_STARTING = (MemberState.BOUND, MemberState.PENDING)


class LostMembers:
    """Reports what gangs have lost, and ends their time."""

    def __init__(self, shared: SharedState, reporter: Reporter, binder: Binder, attempts: Attempts) -> None:
        self._shared = shared
        self._reporter = reporter
        self._binder = binder
        self._attempts = attempts
        self._n_copies = 0
        self.cannot_move: dict[GroupKey, CannotMove] = {}
        """Gangs past their time that would not start again at once, and why."""
        self._due: Deadlines[GroupKey] = Deadlines(shared.timers, DeadlineKind.LOST_MEMBERS)

    def report(self, group: Group) -> None:
        """Tells what has changed. Called for every group that was reconsidered and has started, or had."""
        lacking, shared = lacks(group), self._shared
        if shared.holes.kept or shared.holes.left_now:
            until_s = shared.now_s + shared.settings.successor_timeout_s
            shared.changes += shared.holes.settle(group, lacking.n_missing if lacking else 0, until_s)
        if not lacking:
            if group.lost:
                group.lost = None
                self.cannot_move.pop(group.key, None)
                self._due.drop(group.key)
                if runs_enough(group):
                    self._reporter.lost_members(group, None)
                    self._binder.records.write_whole(group)
            return
        within_s, then = time_to_recover(group, shared.settings)
        why = MembersLost(str(group.key), lacking, within_s, moves=then == MOVE)
        if group.lost == why:
            return
        since_s = self._binder.records.marked_since_s(group, LOST_MEMBERS)
        if not group.lost and within_s:
            self._due.set(group.key, since_s + within_s)
        group.lost = why
        self._reporter.lost_members(group, why)
        self._binder.records.mark(group, LOST_MEMBERS, str(why))

    def advance(self) -> None:
        """Evicts what is left of gangs that have not recovered in time."""
        shared = self._shared
        for key in self._due.take(shared.now_s):
            group, was_told = shared.groups.get(key), self.cannot_move.pop(key, None) is not None
            if group is None or (lacking := lacks(group)) is None:
                continue
            within_s, then = time_to_recover(group, shared.settings)
            if not within_s:
                continue
            if not shared.settings.allow_eviction or group.n_assumed:
                self._due.set(key, shared.now_s + _AGAIN_S)
                continue
            moves = then == MOVE
            if moves and (why_not := self._why_not_anew(group)):
                self._due.set(key, shared.now_s + _MOVE_AGAIN_S)
                stays = self.cannot_move[key] = CannotMove(str(key), why_not)
                if not was_told:  # explain tells later reasons
                    self._reporter.event(group, "Normal", "CannotMove", "Scheduling", str(stays))
                continue
            why = NotRecovered(str(key), lacking, moves=moves)
            self._reporter.event(group, "Warning", "NotRecovered", "Scheduling", str(why))
            self._binder.outcome.evict_gang(group)

    def _why_not_anew(self, group: Group) -> Why:
        """Why the whole gang would not start at once if it were evicted now; "": it would."""
        there = [info for info in group.members.values() if info.state in _STARTING]
        if any(info.template.claims != () for info in there):
            return "whether its resource claims would be allocated again is not looked into"
        members = self._of_new_start(group, there)
        if isinstance(members, str):
            return members
        copies = [self._as_pending(info) for info in members]
        try:
            answer = self._attempts.placer.anew(group, copies, self._attempts.kept)
        except PluginError as error:
            self._shared.hooks.blame(error, group)
            return str(error)
        return answer.why if isinstance(answer, FitError) else ""

    def _of_new_start(self, group: Group, there: list[PodInfo]) -> list[PodInfo] | str:
        """The members that exist, and for each one that the gang lacks another that stands for it, of the
        same role where roles have numbers; or why none can."""
        definition = group.definition
        assert definition is not None
        by_role, more = {info.role: info for info in there}, list[PodInfo]()
        for role, n_existing, least in group.missing_roles():
            if role not in by_role:
                return f"no member of role {role!r} is left to tell what the next one needs"
            more += [by_role[role]] * (least - n_existing)
        return there + more + there[:1] * (definition.min_count - group.n_existing - len(more))

    def _as_pending(self, info: PodInfo) -> PodInfo:
        pod = info.pod
        if pod.spec.node_name:
            pod = replace(pod, spec=replace(pod.spec, node_name=""))
        if pod.metadata.deletion_timestamp is not None:  # for its successor
            pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=None))
        self._n_copies += 1
        again = PodInfo(pod, self._shared.cache.template_of(pod), f"{info.uid}#{self._n_copies}")
        again.role, again.stated, again.index = info.role, info.stated, info.index
        return again

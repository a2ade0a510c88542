"""Nominations: reservations of a unit that waits for its victims to go, and how they end.

While the unit waits nothing is assumed. Its members are pending, their devices are claimed in the ledger,
their room is nominated (units of no higher priority leave it alone), `nominatedNodeName` shows it on the
pods, and the groups are in state Waiting with a deadline. When the last victim is gone the unit gets its
turn; core.groups.attempts.attempts then lifts the reservation and places the unit as usual. Called by
core.groups.attempts.attempts, core.groups.members.membership (through SharedState.left_node) and
core.scheduler; core.preemption.search chooses the victims.

Victims are evicted; if that violates a disruption budget they are deleted, as kube-scheduler does. A refused
eviction is repeated (core.state.evictions) and becomes a deletion at the third refusal, since the other
victims are terminating by then. Victims that are not gone by the deadline are not chosen again.

Another scheduler's nominations (ForeignNominations): kube-scheduler writes `nominatedNodeName` when it evicts
pods for a pod, and takes the room once they are gone. A scheduler that no longer exists never takes it, and
anybody who may write a pod's status can name a node. So room is kept for a nomination only for a time, longer
while pods on that node are on their way out. The same pod's nomination of another node starts over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.eviction_rule import EvictionRule
from gangsched.core.framework.plan import FitError, PostFilterResult
from gangsched.core.kept.eviction_rounds import EvictionRounds
from gangsched.core.preemption.victims import is_leaving
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.cluster_events import ClusterChange
from gangsched.core.types.group import NEVER_S, Group, MemberState, PodInfo, Preemption
from gangsched.core.types.placement import Nominated, Placement
from gangsched.core.types.victim_words import LOWER
from gangsched.core.why import Why
from gangsched.core.why.evictions import WaitsForClaims, WaitsForVictims, WouldTake
from gangsched.model.effects import NominateNode
from gangsched.model.events import EvictionFailed
from gangsched.model.objects import Pod
from gangsched.model.text.printable import clean_for, marked

_ASK_AGAIN_S = 2.0
_MAX_REFUSALS = 3
# 429: a budget does not allow it now; 500: several budgets cover the pod, which the eviction API rejects.
_BY_BUDGETS = (429, 500)
# Kubernetes' default grace period for pods.
_GRACE_S = 30
# Pods may state any grace period, and a unit that waits for a victim chooses no other one.
_MAX_GRACE_S = 86_400
_MAX_NAMED = 4


class Nominations:
    """Manages preemption's reservations."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter
        self.rounds = EvictionRounds(shared, reporter)
        self._n_made = 0
        self._lifted: dict[str, tuple[str, list[ClusterChange]]] = {}
        """Within a turn: UID -> the node that was kept for the pod, and the changes from freeing it."""

    # -- begin ---------------------------------------------------------------------------------------------

    def promise(
        self,
        unit: Sequence[Group],
        result: PostFilterResult,
        error: FitError,
        rule: EvictionRule | None = None,
        *,
        whose: str = LOWER,
    ) -> None:
        """Evicts the victims and lets the unit wait for them, or for any change that lets it fit without
        them. error: why it does not fit now; rule: the one that chose them; whose: the victims, in words."""
        shared = self._shared
        waits_for = {info.uid: info for info in result.victims if info.state is MemberState.BOUND}
        grace_s = max(_grace_s(info) for info in waits_for.values())
        own = [g.definition.schedule_timeout_s for g in unit if g.definition is not None]
        wait_s = min((s for s in own if s is not None), default=shared.settings.permit_wait_s)
        preemption = Preemption(tuple(unit), waits_for, result.violating, shared.now_s + grace_s + wait_s)
        preemption.whose = whose
        self._n_made += 1
        preemption.number = self._n_made
        if rule is not None and rule.keeps_at is not None:
            preemption.keeps_at, preemption.whose = rule.keeps_at, rule.whose
        for uid in waits_for:
            shared.victims.setdefault(uid, []).append(preemption)
        for group in unit:
            group.preemption = preemption
            group.rejected_by = error.rejected_by
        going = [info for info in waits_for.values() if not is_leaving(info)]
        shared.count("preemption_victims", len(going))
        if going and not preemption.is_overrun:
            self.rounds.began(unit[0])
            preemption.asked = tuple(info.uid for info in going)
        for info in going:
            self._tell_victim(info, preemption)
        self._ask(preemption)
        self.renew(preemption, result.plan.placements)
        if shared.observer is not None:
            shared.observer.preempted(unit, tuple(waits_for.values()))

    def renew(self, preemption: Preemption, placements: Iterable[Placement]) -> None:
        """Sets which member goes where once the room is free; called again when that changes."""
        shared = self._shared
        node_names = {}
        for placement in placements:
            info, row = placement.info, placement.row
            node_name = shared.cache.view.name(row)
            node_names[info.uid] = node_name
            if info.uid in self._lifted and self._lifted[info.uid][0] == node_name:
                del self._lifted[info.uid]
            assert info.group is not None
            priority = max(info.group.priority, preemption.keeps_at)
            shared.cache.nominated[info.uid] = Nominated(info, node_name, priority)
            for sets in placement.allocation.values():
                for resource, ids in sets.items():
                    shared.cache.ledger.claim(row, info.uid, resource, ids)
            self._write(info, node_name)
        preemption.node_names, preemption.nodes = node_names, frozenset(node_names.values())
        preemption.seen_at = shared.cache.view.journal_end
        self._free_lifted(preemption)
        for group in preemption.unit:
            self._park(group, preemption)
            self._reporter.preempting(group, self._why(preemption))

    def _park(self, group: Group, preemption: Preemption) -> None:
        self._shared.queue.park(group, Cause.PREEMPTS, self._again_s(preemption))

    def _again_s(self, preemption: Preemption) -> float:
        return min(preemption.deadline_s, self._shared.now_s + _ASK_AGAIN_S, preemption.looks_at_s)

    def _why(self, preemption: Preemption) -> Why:
        claims = () if preemption.waits_for else left_behind(self._shared, preemption.nodes)
        if claims:
            return WaitsForClaims(len(preemption.nodes), claims)
        pods = tuple(sorted(info.pod.key for info in preemption.waits_for.values()))
        return WaitsForVictims(len(preemption.nodes), pods, preemption.whose)

    def _tell_victim(self, info: PodInfo, preemption: Preemption) -> None:
        by = preemption.unit[0]
        who = marked("gang", [str(by.key)], lead="gang ") if by.is_gang else f"pod {by.key.uid}"
        why = f", from {preemption.whose}" if preemption.whose != LOWER else ""
        self._reporter.pod_event(
            info.pod,
            "Normal",
            "Preempted",
            "Preempting",
            f"Preempted by {who} on node {info.node_name}{why}",
            cause_id=by.cause_id,
        )

    # -- while it lasts ----------------------------------------------------------------------------------

    def _ask(self, preemption: Preemption) -> None:
        """Evicts every victim that is not terminating yet."""
        by = preemption.unit[0]
        message = f"{by.scheduler_name}: preempting to accommodate a higher priority pod"
        if preemption.whose != LOWER:
            whom = marked("gang" if by.is_gang else "pod", [str(by.key)])
            message = f"{by.scheduler_name}: evicted for {whom}, from {preemption.whose}"
        for uid, info in preemption.waits_for.items():
            if is_leaving(info):
                continue
            deletes = uid in preemption.violating or preemption.refused.get(uid, 0) >= _MAX_REFUSALS
            deletion = clean_for(info.pod.metadata.namespace, message) if deletes else None
            self._shared.evictions.ask(info, self._shared.now_s, by.cause_id, deletion=deletion)

    def again(self, group: Group) -> bool:
        """Repeats evictions when a waiting group's timer fires; returns False after the deadline."""
        preemption = group.preemption
        assert preemption is not None
        if preemption.unit[0].active_token:
            return True  # it is in line: its last victim has just gone, or a member has come
        if preemption.looks_at_s <= self._shared.now_s:
            preemption.looks_at_s = NEVER_S
            preemption.unit[0].n_early += 1
            self._shared.queue.activate(preemption.unit[0], Cause.LOOK_AGAIN)
            return True
        if self._may_spare(preemption):
            self._shared.queue.activate(preemption.unit[0], Cause.LOOK_AGAIN)
            return True
        if self._shared.now_s < preemption.deadline_s:
            if group is preemption.unit[0]:
                self._ask(preemption)
            self._park(group, preemption)
            return True
        self._shared.stuck.update(dict.fromkeys(preemption.waits_for))
        return False

    def _may_spare(self, preemption: Preemption) -> bool:
        """Whether victims that have not gone, and would be asked again, may not be needed any more: others
        go, and the cluster has changed since."""
        going = sum(is_leaving(info) for info in preemption.waits_for.values())
        at = self._shared.cache.view.journal_end
        return 0 < going < len(preemption.waits_for) and preemption.seen_at != at

    def refused(self, event: EvictionFailed) -> Group | None:
        """Counts a refused eviction of a victim; returns the group that must give up because of it."""
        found = self._shared.victims.get(event.uid)
        if not found or event.code in (404, 409):
            return None  # it is gone, or another pod has its name: the watch shows it
        for preemption in found:
            preemption.refused = {**preemption.refused, event.uid: preemption.refused.get(event.uid, 0) + 1}
        return None if event.code in _BY_BUDGETS else found[0].unit[0]

    def ahead_of(self, waited: Preemption, nominated: Iterable[Nominated]) -> list[Nominated]:
        """The nominations to which the unit leaves room on its nodes: all but later ones of no higher rank.

        A later one waits for other victims; until they are gone, it would take what was freed for the unit.
        """
        rank = max(waited.keeps_at, min(group.priority for group in waited.unit))
        return [one for one in nominated if not _came_later(one, waited, rank)]

    # -- end -----------------------------------------------------------------------------------------------

    def lift(self, unit: Sequence[Group]) -> Preemption | None:
        """Removes the unit's reservations for the turn that places it. Afterwards they are renewed, or
        dropped: only then are groups that wait for the room woken.

        Groups that joined the set later wait together with those that wait already, for all their victims.
        """
        waiting = list(dict.fromkeys(g.preemption for g in unit if g.preemption is not None))
        if not waiting:
            return None
        for preemption in waiting:
            self._part(preemption, unit)
            for member in preemption.unit:
                for info in member.members.values():
                    kept = self._shared.cache.nominated.get(info.uid)
                    freed = self._shared.cache.unnominate(info.uid)
                    if freed:
                        self._lifted[info.uid] = (kept.node_name if kept is not None else "", freed)
        return self._joined(waiting, unit)

    def _part(self, preemption: Preemption, unit: Sequence[Group]) -> None:
        """Separates groups that no longer start together with the unit: they wait by themselves, for the
        same victims, and keep their room."""
        left = tuple(group for group in preemption.unit if group not in unit)
        if not left:
            return
        preemption.unit = tuple(group for group in preemption.unit if group in unit)
        other = replace(preemption, unit=left, waits_for=dict(preemption.waits_for), asked=())
        for uid in other.waits_for:
            self._shared.victims[uid].append(other)
        for group in left:
            group.preemption = other
            self._shared.queue.set_deadline(group, self._again_s(other))

    def _joined(self, waiting: Sequence[Preemption], unit: Sequence[Group]) -> Preemption:
        """Merges the reservations of all these groups into the first one."""
        joined, *others = waiting
        victims = self._shared.victims
        for other in others:
            for uid in other.waits_for:
                found = [joined if one is other else one for one in victims[uid]]
                victims[uid] = list(dict.fromkeys(found))
            joined.waits_for = {**joined.waits_for, **other.waits_for}
            joined.violating |= other.violating
            joined.refused = {**other.refused, **joined.refused}
            joined.deadline_s = max(joined.deadline_s, other.deadline_s)
            joined.keeps_at = max(joined.keeps_at, other.keeps_at)
        groups = [group for preemption in waiting for group in preemption.unit]
        joined.unit = tuple(dict.fromkeys([*groups, *unit]))
        for group in joined.unit:
            group.preemption = joined
        return joined

    def spare(self, preemption: Preemption, needed: dict[str, PodInfo]) -> None:
        """Waits for these victims alone: the others are not asked to go any more."""
        for uid in [uid for uid in preemption.waits_for if uid not in needed]:
            self._leave(preemption, uid)
            del preemption.waits_for[uid]

    def _leave(self, preemption: Preemption, uid: str) -> None:
        victims = self._shared.victims
        left = [other for other in victims.get(uid, ()) if other is not preemption]
        if left:
            victims[uid] = left
        else:
            victims.pop(uid, None)

    def drop(self, group: Group, *, keep_written: bool = False) -> None:
        """Removes the unit's reservations; it no longer waits for victims."""
        preemption = group.preemption
        if preemption is None:
            return
        shared = self._shared
        if preemption.asked and all(self._stays(preemption, uid) for uid in preemption.asked):
            self.rounds.refused(preemption.unit[0])
        for uid in preemption.waits_for:
            self._leave(preemption, uid)
        for member in preemption.unit:
            member.preemption = None
            for info in member.members.values():
                shared.release_kept(info.uid)
                if not keep_written:
                    self.unwrite(info)
        self._free_lifted(preemption)

    def _stays(self, preemption: Preemption, uid: str) -> bool:
        """Whether a victim's eviction was refused, and it has not begun to go for another reason."""
        info = preemption.waits_for.get(uid)
        return info is not None and uid in preemption.refused and not is_leaving(info)

    def _free_lifted(self, preemption: Preemption) -> None:
        """Announces room as free that was lifted and is no longer kept for the unit."""
        for member in preemption.unit:
            for uid in member.members:
                _, freed = self._lifted.pop(uid, ("", ()))
                self._shared.changes += freed

    def unwrite(self, info: PodInfo) -> None:
        """Removes a nomination from the pod's status."""
        if info.nominated or (info.nominated is None and info.pod.status.nominated_node_name):
            self._write(info, "")

    def _write(self, info: PodInfo, node_name: str) -> None:
        written = info.pod.status.nominated_node_name if info.nominated is None else info.nominated
        if written != node_name:
            info.nominated = node_name
            meta = info.pod.metadata
            cause_id = info.group.cause_id if info.group is not None else ""
            self._shared.emit(NominateNode(info.uid, meta.namespace, meta.name, node_name, cause_id))


def room_taken(
    shared: SharedState, names: Collection[str], by: Sequence[Group] = (), *, scheduler: str = ""
) -> None:
    """Has units look again that wait for victims on these nodes: something there has changed, or is taken, by
    these groups or by a pod of another scheduler."""
    waiting = {id(one): one for group in shared.queue.waiting if (one := group.preemption) is not None}
    for preemption in waiting.values():
        first = preemption.unit[0]
        if first not in by and not preemption.nodes.isdisjoint(names):
            preemption.taken_by = scheduler or preemption.taken_by
            shared.queue.activate(first, Cause.LOOK_AGAIN)


def left_behind(shared: SharedState, names: Collection[str]) -> tuple[str, ...]:
    """Names the resource claims with devices of these nodes whose pods are gone, as victims leave them."""
    book = shared.cache.claims
    return tuple(
        sorted(
            claim.key
            for claim in book.left_behind()
            if any(name in names or not name for name in book.nodes_of(claim))
        )
    )


def would_take(result: PostFilterResult, view: RowQueries, whose: str) -> WouldTake:
    """Describes the victims that a unit would take if evictions were allowed."""
    nodes = sorted({view.name(placement.row) for placement in result.plan.placements})
    pods = sorted(info.pod.key for info in result.victims if info.state is MemberState.BOUND)
    return WouldTake(tuple(nodes), tuple(pods), whose)


def _came_later(one: Nominated, waited: Preemption, rank: int) -> bool:
    other = one.info.group.preemption if one.info.group is not None else None
    if other is None or other.number <= waited.number:
        return False
    return min(group.priority for group in other.unit) <= rank


def _grace_s(info: PodInfo) -> float:
    own = info.pod.spec.termination_grace_period_seconds
    return _GRACE_S if own is None else min(own, _MAX_GRACE_S)


KEEPS_S = 300.0
# The longest for which pods that are leaving prolong it: the longest grace period that preemption waits for.
MAX_KEEPS_S = 86_400.0
_AGAIN_S = 30.0


class ForeignNominations:
    """Keeps other schedulers' nominations, and ends those that are not used."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._since_s: dict[str, float] = {}
        self._until_s: Deadlines[str] = Deadlines(shared.timers, DeadlineKind.FOREIGN_NOMINATION)
        self._void: dict[str, str] = {}
        """UID -> the node that is no longer kept for the pod."""

    def put(self, pod: Pod) -> None:
        """Takes in the nomination of a pod of another scheduler, or that it has none."""
        shared, uid = self._shared, pod.metadata.uid
        is_placed = bool(pod.spec.node_name) or pod.is_terminal
        name = "" if is_placed else pod.status.nominated_node_name
        known = shared.cache.nominated.get(uid)
        if not name:
            self.forget(uid)
        elif self._void.get(uid) == name:
            return
        elif known is None or known.node_name != name:
            self._void.pop(uid, None)
            self._since_s[uid] = shared.now_s
            self._until_s.set(uid, shared.now_s + KEEPS_S)
        if (change := shared.cache.nominate(pod, name)) is not None:
            shared.changes.append(change)

    def forget(self, uid: str) -> None:
        """Forgets a pod that is gone, or has no nomination."""
        if self._since_s.pop(uid, None) is not None:
            self._until_s.drop(uid)
        if self._void:
            self._void.pop(uid, None)

    def advance(self) -> None:
        """Ends nominations that have been kept for long enough."""
        shared = self._shared
        for uid in self._until_s.take(shared.now_s):
            kept, since_s = shared.cache.nominated.get(uid), self._since_s[uid]
            if kept is None or kept.info.group is not None:
                self.forget(uid)
                continue
            there = shared.cache.by_node.get(kept.node_name, {}).values()
            if shared.now_s < since_s + MAX_KEEPS_S and any(is_leaving(info) for info in there):
                self._until_s.set(uid, shared.now_s + _AGAIN_S)
                continue
            shared.count("foreign_nominations_ended")
            shared.release_kept(uid)
            self.forget(uid)
            self._void[uid] = kept.node_name

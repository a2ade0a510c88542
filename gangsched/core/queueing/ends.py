"""Ends: when the pods on nodes are expected to end.

A pod that has outrun its group's walltime is late; its expected end is then put off by ever longer steps (as
predictions are corrected in Tsafrir, Etsion, Feitelson, TPDS 2007). A pod of unknown walltime is expected to
run about as long again as it has. No promise is based on such an end, but without it a bound could not be
kept if no walltimes are stated. Pods that are always replaced never end; deleted pods end with their grace
period. Pods begin when they are reserved here or, if bound by another process, when their kubelet admitted
them. Called by core.kept.claim_plans and core.groups.walltime_evictions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.types.clock import Clock
from gangsched.core.types.group import BOUND, Group, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.model.objects import Pod
from gangsched.model.pod_group import PodGroup

_LATE_S = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0)
_LEAST_AGE_S = 60.0
# Kubernetes' default grace period for pods, and the time that kubelet takes to report the end.
_LEAVES_IN_S = 40.0
# Gone pods are forgotten once their number exceeds that of existing pods by this.
_MAX_GONE = 1000
# Until this many pods have left, pods are assumed to run for half of their walltimes: users state a multiple
# of what they need (Mu'alem, Feitelson, TPDS 2001).
_LEAST_LEFT = 100
_UNKNOWN_RATIO = 0.5
# Beyond this many, the former ones count half.
_MOST_LEFT = 50_000
STATED = ("stated", "enforced")
# Statements are in whole seconds.
_SAME_S = 1.0


class End(msgspec.Struct, frozen=True, gc=False):
    """When a pod ends. at_s: on the core's clock, inf: never. is_stated: the end is stated by the pod or
    enforced by kubelet, and has not passed. over_s: the stated end if it has passed; else inf."""

    at_s: float
    is_stated: bool = False
    over_s: float = math.inf

    @property
    def is_over(self) -> bool:
        """Whether the stated end has passed."""
        return self.over_s < math.inf


class _Known(msgspec.Struct, gc=False):
    """A pod's end, and what it was computed from. stated_s: the walltime that its group states; None: none.
    n_changes: the group's, at that time."""

    pod: Pod
    definition: PodGroup | None
    n_changes: int
    stated_s: float | None
    end: End


# No claim waits for a pod that did not go when it was evicted.
_STUCK = End(math.inf)


class EndsNow:
    """When pods on nodes are expected to end, as of the present turn."""

    def __init__(self, ends: Ends, stuck: Collection[str], clock: Clock, wall_ahead_s: float | None) -> None:
        """stuck: UIDs of victims that had not gone by their deadline."""
        self._ends = ends
        self._stuck = stuck
        self._clock = clock
        self._wall_ahead_s = wall_ahead_s

    def end(self, info: PodInfo) -> End:
        """Returns the pod's end; infinity for one that is stuck."""
        if info.uid in self._stuck:
            return _STUCK
        return self._ends.end(info, self._clock.now_s, self._wall_ahead_s)


class Ends:
    """Remembers when pods began, and computes when they end."""

    def __init__(self, walltimes: Walltimes, pods: Mapping[str, PodInfo]) -> None:
        self._walltimes = walltimes
        self._pods = pods
        for info in pods.values():
            info.began_s = None  # from before `queueing` was off; what was reserved meanwhile is not known
        self._known: dict[str, _Known] = {}
        self._promised_s: dict[str, float] = {}
        self._reported: dict[str, Pod] = {}
        self._n_left = 0
        self._left_stated_s = self._left_ran_s = 0.0
        """Sums over pods that have left their nodes: of their walltimes, and of how long they ran."""
        self.extended: list[PodInfo] = []
        """Pods, not reported yet, whose longer walltime does not count as a promise rests on the shorter."""

    def fix_ends(self, ends_s: Mapping[str, float]) -> None:
        """Fixes these ends, by UID, because promises rest on them: a walltime that is later made longer, or
        removed, does not change them."""
        before, self._promised_s = self._promised_s, {}
        for uid, end_s in ends_s.items():
            self._promised_s[uid] = min(end_s, before.get(uid, math.inf))
        for uid in dict.fromkeys((*before, *self._promised_s)):
            if before.get(uid) != self._promised_s.get(uid):
                self._known.pop(uid, None)
        self._reported = {uid: pod for uid, pod in self._reported.items() if uid in self._promised_s}

    def configured(self) -> None:
        """Forgets ends that were not stated, as the default walltimes have changed."""
        self._known = {uid: one for uid, one in self._known.items() if one.stated_s is not None}

    def note_reserved(self, placements: Iterable[Placement], now_s: float) -> None:
        """Records that these pods are reserved now, maybe not for the first time."""
        for one in placements:
            one.info.began_s = now_s
        for one in placements if self._known else ():
            self._known.pop(one.info.uid, None)

    def bound_by_others(self, info: PodInfo) -> None:
        """Records that another process bound the pod: it began then, not when it was reserved here."""
        info.began_s = None
        self._known.pop(info.uid, None)

    def note_leaving(self, info: PodInfo, now_s: float) -> None:
        """Records that this pod is about to leave its node, if it was on one."""
        began_s = info.began_s
        if info.row < 0 or info.group is None or began_s is None:
            return
        walltime_s = self._walltimes.before(info.group).seconds
        if not 0.0 < walltime_s < math.inf:
            return
        if self._n_left >= _MOST_LEFT:
            self._n_left //= 2
            self._left_stated_s, self._left_ran_s = self._left_stated_s / 2, self._left_ran_s / 2
        self._n_left += 1
        self._left_stated_s += walltime_s
        self._left_ran_s += now_s - began_s

    @property
    def ratio(self) -> float:
        """How long pods run as a part of their walltimes, over pods that have left their nodes lately."""
        return self._left_ran_s / self._left_stated_s if self._n_left >= _LEAST_LEFT else _UNKNOWN_RATIO

    def end(self, info: PodInfo, now_s: float, wall_ahead_s: float | None) -> End:
        """When a pod on a node ends. wall_ahead_s: Unix time minus the core's clock; None: unknown."""
        if info.pod.metadata.deletion_timestamp is not None:
            return _leaving(info.pod.metadata.deletion_timestamp, now_s, wall_ahead_s)
        if (known := self._still_known(info, now_s)) is not None:
            return known.end
        end, is_put_off = self._end(info, now_s, self._begin_s(info, now_s, wall_ahead_s))
        group, before = info.group, self._known.get(info.uid)
        definition, n_changes = (None, 0) if group is None else (group.definition, group.n_changes)
        is_edited = before is None or before.pod is not info.pod or before.definition is not definition
        if is_put_off and is_edited and self._reported.get(info.uid) is not info.pod:
            self._reported[info.uid] = info.pod
            self.extended.append(info)
        self._known[info.uid] = _Known(info.pod, definition, n_changes, self._stated_s(info), end)
        if len(self._known) > 2 * len(self._pods) + _MAX_GONE:
            self._known = {uid: one for uid, one in self._known.items() if uid in self._pods}
        return end

    def _still_known(self, info: PodInfo, now_s: float) -> _Known | None:
        """The last result, if it still holds; the gang's other members may change the walltime, too."""
        known, group = self._known.get(info.uid), info.group
        if known is None or known.pod is not info.pod or not now_s < known.end.at_s:
            return None
        definition, n_changes = (None, 0) if group is None else (group.definition, group.n_changes)
        if known.definition is not definition:
            return None
        if known.n_changes != n_changes:
            if known.stated_s != self._stated_s(info):
                return None
            known.n_changes = n_changes
        return known

    def _stated_s(self, info: PodInfo) -> float | None:
        walltime = (
            self._walltimes.pod_walltime(info.pod)
            if info.group is None
            else self._walltimes.walltime(info.group)
        )
        return walltime.seconds if walltime.source in STATED else None

    def stated_end_s(self, group: Group, now_s: float, wall_ahead_s: float | None) -> float:
        """When the last of the group's bound pods ends, not counting deleted ones, by what is stated or was
        when a promise was made; it may have passed. inf: no end is stated."""
        walltime, found = self._walltimes.walltime(group), -math.inf
        is_stated = walltime.source in STATED
        for info in group.in_state(BOUND) if is_stated or self._promised_s else ():
            if info.pod.metadata.deletion_timestamp is None:
                end_s = self._promised_s.get(info.uid, math.inf)
                if is_stated:
                    end_s = min(end_s, self._begin_s(info, now_s, wall_ahead_s) + walltime.seconds)
                found = max(found, end_s)
        return found if found > -math.inf else math.inf

    def fixed_s(self, group: Group) -> float:
        """The last end of the group's bound pods that promises rest on, whatever is stated now; inf: no
        promise rests on at least one of them."""
        ends_s = (self._promised_s.get(info.uid, math.inf) for info in group.in_state(BOUND))
        return max(ends_s, default=math.inf)

    def runs_until_s(self, info: PodInfo, now_s: float, wall_ahead_s: float | None) -> float:
        """When a pod will have run, or had run, for its group's walltime; inf: unknown. Remembers nothing."""
        if info.group is None:
            return math.inf
        began_s = info.began_s
        if began_s is None:
            began_s = _began_s(info.pod, now_s, wall_ahead_s)
        return began_s + self._walltimes.walltime(info.group).seconds

    def _begin_s(self, info: PodInfo, now_s: float, wall_ahead_s: float | None) -> float:
        if info.began_s is None:
            info.began_s = _began_s(info.pod, now_s, wall_ahead_s)
        return info.began_s

    def expected(self, info: PodInfo, now_s: float, wall_ahead_s: float | None) -> End:
        """As `end`, but remembers nothing, so that asking changes no decision."""
        known, began_s = self._still_known(info, now_s), info.began_s
        if known is not None:
            return known.end
        if info.pod.metadata.deletion_timestamp is not None:
            return _leaving(info.pod.metadata.deletion_timestamp, now_s, wall_ahead_s)
        if began_s is None:
            began_s = _began_s(info.pod, now_s, wall_ahead_s)
        return self._end(info, now_s, began_s)[0]

    def _end(self, info: PodInfo, now_s: float, began_s: float) -> tuple[End, bool]:
        """(the pod's end, whether a promise rests on it that keeps it from being put off). Valid until it has
        passed, or the pod or its group changes."""
        group = info.group
        walltime = (
            self._walltimes.pod_walltime(info.pod) if group is None else self._walltimes.walltime(group)
        )
        at_s, is_stated = began_s + walltime.seconds, walltime.source in STATED
        promised_s = self._promised_s.get(info.uid, math.inf)
        is_put_off = at_s > promised_s + _SAME_S
        if is_put_off or (promised_s < math.inf and not is_stated):
            at_s, is_stated = promised_s, True
        if at_s < math.inf:
            if at_s > now_s:
                return End(at_s, is_stated), is_put_off
            late_s = _first_above(now_s - at_s)
            return End(at_s + late_s, over_s=at_s if is_stated else math.inf), is_put_off
        if walltime.field:
            return End(math.inf), False
        age_s = max(now_s - began_s, _LEAST_AGE_S)
        return End(began_s + 2.0 ** (math.floor(math.log2(age_s)) + 1)), False


def _leaving(gone_at: datetime, now_s: float, wall_ahead_s: float | None) -> End:
    """When a deleted pod is gone: kubelet kills it after its grace period, which may be hours. A pod that is
    still there long after that is late, as if it had outrun its walltime."""
    gone_s = now_s if wall_ahead_s is None else gone_at.timestamp() - wall_ahead_s
    if now_s < gone_s + _LEAVES_IN_S:
        return End(max(now_s + _LEAVES_IN_S, gone_s), is_stated=True)
    return End(gone_s + _first_above(now_s - gone_s), over_s=gone_s)


def _began_s(pod: Pod, now_s: float, wall_ahead_s: float | None) -> float:
    """When a pod found on its node began: by kubelet's clock, else when it was bound or created, else now.

    A pod that names its node when it is created is never bound. A pod that names no node yet begins now: it
    may have been reserved before ends were recorded.
    """
    began = pod.status.start_time or pod.bound_at or pod.metadata.creation_timestamp
    if began is None or wall_ahead_s is None or not pod.spec.node_name:
        return now_s
    return min(now_s, began.timestamp() - wall_ahead_s)


def _first_above(late_s: float) -> float:
    for step_s in _LATE_S:
        if step_s > late_s:
            return step_s
    return _LATE_S[-1] * 2.0 ** (math.floor(math.log2(late_s / _LATE_S[-1])) + 1)

"""EvictionRounds: how often pods were evicted for a group that has not started, and when others may be.

A unit that evicts and does not start, evicts again: its room was lost to pods of another scheduler (which
knows nothing of our nominations), a Permit plugin refuses it, its binds fail, its node is gone. None of
these may go on for ever at the cost of others. So the first rounds are free, and each further one must wait
twice as long as the one before. A round whose evictions were all refused costs nothing, and does not
count. After room was lost to another scheduler, pods are spared that their
controllers would recreate there, as long as other victims do.

The count is a condition of the group's first pending pod, so that a restart does not begin at none; unlike an
annotation, a tenant's usual rights do not include it. Called by core.groups.attempts.making_room and
core.groups.attempts.attempts.
"""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

import msgspec

from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import NEVER_S, PENDING, Group, PodInfo
from gangsched.core.why import Why
from gangsched.core.why.evictions import EvictionsPaused
from gangsched.model.effects import WritePodCondition
from gangsched.model.text.printable import several

CONDITION = "gangsched.io/Evictions"
_ASKED, _TAKEN = "VictimsAsked", "RoomTakenByOthers"
# Rounds without a pause: the second makes good for a node that was lost.
_FREE = 2
_FIRST_PAUSE_S, _MAX_PAUSE_S = 60.0, 3600.0
_MAX_ROUNDS = 1_000_000
_ROUNDS = re.compile(r"([0-9]{1,6}) rounds? of evictions")


class Rounds(msgspec.Struct):
    """n: rounds since the group last got a pod bound; last_s, before_s: when the last one was, and the one
    before, by the core's clock; by_others: whether room was lost to another scheduler; n_bound: the group's
    bound members since; on: UID of the pod that they are written on."""

    n: int = 0
    last_s: float = -NEVER_S
    before_s: float = -NEVER_S
    by_others: bool = False
    n_bound: int = 0
    on: str = ""

    def again_s(self, *, remade: bool) -> float:
        """When the next round may be; remade: of pods that would be recreated in the room, which may be one
        round less at once."""
        n_paused = self.n - (_FREE - remade)
        if n_paused < 0:
            return -NEVER_S
        return self.last_s + min(_FIRST_PAUSE_S * 2.0 ** min(n_paused, 30), _MAX_PAUSE_S)


class EvictionRounds:
    """Counts rounds of evictions, and says when there may be another."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter
        self._known: WeakKeyDictionary[Group, Rounds] = WeakKeyDictionary()

    def rounds(self, group: Group) -> Rounds:
        """The group's rounds, as known here or, after a restart, as written on its pods."""
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = self._read(group)
        if group.n_bound > known.n_bound:
            known.n, known.by_others = 0, False
        known.n_bound = group.n_bound
        return known

    def pause(self, group: Group, *, remade: bool = False) -> Why:
        """Why no pod may be evicted for the group now, and when one may; "" if one may. remade: asks about
        the pods that `spared` names."""
        known = self.rounds(group)
        left_s = known.again_s(remade=remade) - self._shared.now_s
        if left_s <= 0:
            return ""
        return EvictionsPaused(known.n, known.by_others, round(left_s))

    def began(self, group: Group) -> None:
        """Counts a round, and writes the count down."""
        known = self.rounds(group)
        known.n = min(known.n + 1, _MAX_ROUNDS)
        known.before_s, known.last_s = known.last_s, self._shared.now_s
        self._write(group, known)
        if known.n > 1:
            self._shared.count("eviction_rounds_again")

    def refused(self, group: Group) -> None:
        """Takes the last round back: each of its evictions was refused, so no pod went for it."""
        known = self.rounds(group)
        if known.n:
            known.n, known.last_s = known.n - 1, known.before_s
            self._write(group, known)

    def awaited(self, group: Group, first: Group) -> None:
        """Has a rejected group tried when pods may be evicted again for its unit, the one of `first`."""
        known = self.rounds(first)
        if known.n and known.on not in first.members:
            self._write(first, known)  # that pod is gone, and the next process must know them
        again_s = known.again_s(remade=known.by_others)
        if self._shared.now_s < again_s < group.deadline_s:
            self._shared.queue.set_deadline(group, max(again_s, group.backoff_until_s))

    def lost_to_others(self, group: Group, scheduler: str) -> None:
        """Records that room made for the group was taken by a pod of this scheduler."""
        known = self.rounds(group)
        self._shared.count("preemption_rooms_taken")
        if not known.by_others:
            known.by_others = True
            self._write(group, known)
        message = (
            f"room that was made by evictions was taken by a pod of scheduler {scheduler}, which does not "
            "know of it; pods that would be made anew there are evicted only if no others do"
        )
        self._reporter.event(group, "Warning", "RoomTaken", "Scheduling", message)

    def spared(self, group: Group) -> dict[str, None]:
        """UIDs of pods that are evicted for the group only if no others do."""
        if not self.rounds(group).by_others:
            return {}
        pods = self._shared.cache.pods.values()
        return {info.uid: None for info in pods if info.group is None and _is_remade(info)}

    def _write(self, group: Group, known: Rounds) -> None:
        first = min(group.in_state(PENDING), key=lambda info: info.pod.metadata.name, default=None)
        if first is None:
            return
        meta, known.on = first.pod.metadata, first.uid
        message = f"{several(known.n, 'round')} of evictions since a pod of it was bound"
        reason = _TAKEN if known.by_others else _ASKED
        self._shared.emit(
            WritePodCondition(
                meta.uid, meta.namespace, meta.name, CONDITION, "True", reason, message, group.cause_id
            )
        )

    def _read(self, group: Group) -> Rounds:
        """What an earlier process has written. An unknown clock counts the last round as now."""
        found = Rounds(n_bound=group.n_bound)
        for info in group.in_state(PENDING):
            for condition in info.pod.status.conditions or ():
                match = _ROUNDS.match(condition.message) if condition.type == CONDITION else None
                if match is None or int(match[1]) < found.n:
                    continue
                at, ahead_s = condition.last_transition_time, self._shared.wall_ahead_s
                now_s = self._shared.now_s
                at_s = now_s if at is None or ahead_s is None else min(at.timestamp() - ahead_s, now_s)
                found = Rounds(int(match[1]), at_s, at_s, condition.reason == _TAKEN, group.n_bound, info.uid)
        return found


def _is_remade(info: PodInfo) -> bool:
    """Whether a controller makes another pod when this one is gone."""
    return info.pod.metadata.controller is not None

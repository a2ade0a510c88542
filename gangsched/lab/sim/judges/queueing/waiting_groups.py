"""WaitingGroups: finds groups that wait although they fit on free room, whatever their state, and room that a
younger group takes from them.

What is free, and what pods ask for, is recounted from events (lab.sim.judges.queueing.filling); only plain
pods are judged. The scheduler's tables are read for the groups' states, their order, and when they were tried
last. Called by lab.sim.judges.step_judges. Not here: whether a hint of a plugin was right
(lab.sim.judges.queueing.unschedulable), claims and queues (lab.sim.judges.queueing.filling).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gangsched.core.scheduler import Scheduler
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import Group, GroupState
from gangsched.lab.sim.judges.gangs.starts import reserved_by
from gangsched.lab.sim.judges.queueing.filling import Room, free_room, needed_pods, places
from gangsched.lab.sim.judges.queueing.unschedulable import OURS
from gangsched.lab.sim.reading.received import Received
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupKey

_LISTENS = (GroupState.BACKOFF, GroupState.UNSCHEDULABLE, GroupState.ASKING)
_FOR_ROOM = (Cause.REJECTED, Cause.CURED_EARLY, Cause.PREEMPTS)
"""Why a group waits that has its turn as soon as room would do; after a failed bind, say, it does not."""
# After one early turn in vain the next is no later than this, in the storms' configurations.
_PAUSE_S = 1.0
_EVERY_S = 1.0
# The longest backoff of the storms' configurations, and a turn.
LONGEST_S = 12.0


class WaitingGroups:
    """free-room-used, overtaking: no group waits for long while it fits on free room, and none that is
    younger, and no more important, takes that room. Judged where nothing but room refuses a group
    (lab.sim.judges.step_judges)."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._fits_since_s: dict[GroupKey, float] = {}
        self._reserved: frozenset[str] = frozenset()
        self._promised: frozenset[str] = frozenset()
        self._wounded: frozenset[GroupKey] = frozenset()
        """Groups for which places of lost members were kept before the last step."""

    def check(
        self,
        scheduler: Scheduler,
        received: Received,
        now_s: float,
        keeps_out: Callable[[Sequence[Pod], Scheduler, Received], bool],
        excuses: Callable[[Group], bool],
    ) -> Iterator[str]:
        """free-room-used: between turns, at rest. A group that was tried counts as waiting from then on."""
        if now_s < self._next_s or not scheduler.is_synced:
            return
        self._next_s = now_s + _EVERY_S
        before, self._fits_since_s = self._fits_since_s, {}
        for group, needed in _waiting(scheduler, received):
            if not places(needed, _free_for(group, scheduler, received)) or excuses(group):
                continue
            since_s = max(before.get(group.key, now_s), group.tried_s)
            self._fits_since_s[group.key] = since_s
            if now_s - since_s > LONGEST_S and not keeps_out(needed, scheduler, received):
                yield (
                    f"free-room-used: {group.key}, {group.state.value}, fits on free room for"
                    f" {now_s - since_s:.1f} s: "
                    f"{group.message}"
                )

    def check_overtaking(
        self, scheduler: Scheduler, received: Received, now_s: float, excuses: Callable[[Group], bool]
    ) -> Iterator[str]:
        """overtaking: called after each step, where the order of the line decides alone."""
        before, self._reserved = self._reserved, reserved_by(scheduler)
        promised, self._promised = self._promised, frozenset(scheduler.shared.cache.nominated)
        wounded = self._wounded
        self._wounded = frozenset(key for key, _ in scheduler.shared.holes.by_group())
        fresh = self._reserved - before - promised
        if not fresh or not scheduler.is_synced:
            return
        takers = {
            info.group.key: info.group
            for uid in sorted(fresh)
            if (info := scheduler.shared.cache.pods.get(uid)) is not None and info.group is not None
        }
        if any(taker.is_completing or taker.start_together for taker in takers.values()):
            return
        if not wounded.isdisjoint(takers):
            return  # the place of a member that it had lost
        for group, needed in _waiting(scheduler, received):
            if group.active_token or group.tried_s >= now_s or group.start_together or excuses(group):
                continue
            if group.n_early > 1 or (group.n_early and now_s < group.tried_s + _PAUSE_S):
                continue  # early turns were in vain, so the next one waits
            if not group.moves or group.moves[-1][1] not in _FOR_ROOM:
                continue
            if not all(_is_ahead(group, taker) for taker in takers.values()):
                continue
            if places(needed, _free_for(group, scheduler, received, without=fresh)) and not places(
                needed, _free_for(group, scheduler, received)
            ):
                names = ", ".join(str(key) for key in takers)
                yield f"overtaking: {names} takes what {group.key} could use, which is {group.state.value}"


def _waiting(scheduler: Scheduler, received: Received) -> Iterator[tuple[Group, list[Pod]]]:
    """Yields groups that wait for room in some state, with the pods that must start together."""
    claims = scheduler.shared.claims
    standing = claims.all if claims is not None else []
    for group in list(scheduler.shared.groups.values()):
        waits = group.state in _LISTENS or (
            group.state is GroupState.WAITING and group.preemption is not None
        )
        if (
            not waits
            or group.is_completing
            or group.problem
            or any(group in claim.unit for claim in standing)
        ):
            continue
        if not OURS.issuperset(name for name, _ in group.rejected_by):
            continue  # a plugin of outside refused it, and may do so again
        if needed := needed_pods(group, received):
            yield group, needed


def _free_for(
    group: Group, scheduler: Scheduler, received: Received, *, without: frozenset[str] = frozenset()
) -> Room:
    claims = scheduler.shared.claims
    holding = claims.all if claims is not None else []
    own = scheduler.shared.cache.nominated.keys() & group.members
    return free_room(scheduler, received, holding, without={*without, *own})


def _is_ahead(group: Group, taker: Group) -> bool:
    if group.priority + group.raised != taker.priority + taker.raised:
        return group.priority + group.raised > taker.priority + taker.raised
    return group.first_complete_s < taker.first_complete_s

"""Restarts: a process does not evict, for being in part, a gang that the process before it knew to run.

Kept by lab.sim.runs.driver and lab.sim.runs.duel over a whole run. What a process holds for started when it
dies, or another one takes over, is asked of that process, since the question is whether the next one decides
as it would have; whether such a gang still runs is read from the store. Not here: gangs that stay in part
(lab.sim.judges.gangs.half_bound).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

from gangsched.core.binding.start_records import LOST_MEMBERS
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import GroupState, MemberState
from gangsched.lab.sim.reading.documents import Gang, start_of
from gangsched.lab.sim.world.api import SimApi
from gangsched.model import effects as ef
from gangsched.model.effects import GANG_WHOLE
from gangsched.model.objects import Pod

UNWINDING = GroupState.UNWINDING


class Restarts:
    """restarts: the evictions after a restart are those without it: no gang is unwound that an earlier
    process held for started, and of which one member at least has run, and was not asked to go, ever
    since."""

    others_write: ClassVar[bool] = False
    """Whether another process may have marked a gang as bound in part meanwhile: marks are not fenced. The
    leader corrects it as soon as it sees it, and may die before."""

    def __init__(self) -> None:
        self._started: dict[Gang, frozenset[str]] = {}
        """Gangs that the processes before held for started, and the UIDs of members that run since then."""
        self._known: dict[Gang, frozenset[str]] = {}
        """The UIDs of all their members then."""
        self._shown_by: dict[Gang, tuple[frozenset[str], int]] = {}
        """Of a gang whose being whole was not written down yet: the members whose Bindings alone show it,
        and how many of these must be there."""

    def died(self, scheduler: Scheduler, api: SimApi) -> None:
        """Takes over what the process knew. Called before it is forgotten, or another one decides."""
        if not scheduler.is_synced:
            return
        known: dict[Gang, frozenset[str]] = {}
        for group in scheduler.shared.groups.values():
            if (
                group.is_gang
                and group.has_started
                and group.n_holding
                and group.state is not GroupState.UNWINDING
            ):
                gang = Gang(group.key.dialect, group.key.namespace, group.key.name)
                is_marked = any(_is_marked_in_part(pod) for pod in api.index.members.get(gang, {}).values())
                if is_marked and self.others_write:
                    continue
                known[gang] = frozenset(group.members)
                self._shown_by.pop(gang, None)
                if is_marked:
                    last = (uid for uid, one in group.members.items() if one.attempt == group.attempts)
                    self._shown_by[gang] = frozenset(last), 1
                elif group.state is GroupState.BINDING:  # the minimum is bound, and other binds are in flight
                    bound = (one.uid for one in group.in_state(MemberState.BOUND))
                    self._shown_by[gang] = frozenset(bound), group.start_count
        self._started |= known
        self._known |= known
        self._known = {gang: self._known[gang] for gang in self._started}
        self.update(api)

    def update(self, api: SimApi) -> None:
        """Forgets gangs that no longer run, those of which a kubelet has refused a member meanwhile, those
        whose being whole only pods showed that are gone, and those with a member that looks as if it had been
        there at the start, by the server's clock: it was set back, or both came in one second. Called after
        every turn in which anything happened."""
        for gang, uids in list(self._started.items()):
            if api.index.n_refused.get(gang):
                del self._started[gang]
                continue
            members = api.index.members.get(gang, {})
            shown, n_shown = self._shown_by.get(gang, (frozenset(), 0))
            if len(shown & members.keys()) < n_shown:
                del self._started[gang]
                continue
            left = frozenset(uid for uid in uids if uid in members and _runs(members[uid]))
            records = [start_of(members[uid]) for uid in left]
            newest_s = max((one.get("newest", 0) for one in records), default=0)
            left_out = max((one.get("leftOut", 0) for one in records), default=0)
            old = [
                uid for uid, pod in members.items() if not pod.spec.node_name and _created_s(pod) <= newest_s
            ]
            if not left or len(old) > left_out or not self._known[gang].issuperset(old):
                del self._started[gang]
            elif left != uids:
                self._started[gang] = left

    def judge(self, scheduler: Scheduler, effects: Iterable[ef.Effect]) -> Iterator[str]:
        """After every step, before its effects are sent."""
        if not self._started or not any(isinstance(one, ef.EvictPod) for one in effects):
            return
        for group in scheduler.shared.groups.values():
            if group.state is not UNWINDING or group.moves[-1][1] is not Cause.UNWINDS:
                continue
            gang = Gang(group.key.dialect, group.key.namespace, group.key.name)
            if gang in self._started:
                yield f"restarts: {gang} is unwound, which ran when the process before died"


class Replica(Protocol):
    """One of two, each of which may believe that it leads."""

    scheduler: Scheduler
    api: SimApi


class Takeovers(Restarts):
    """restarts: the same where one replica takes over from another, which may live on."""

    others_write = True

    def __init__(self) -> None:
        super().__init__()
        self.leader: Replica | None = None
        """The replica that decides and has learnt what is bound; None: neither of them yet."""

    def by(self, replica: Replica | None) -> None:
        """From now on this one decides: the leader is asked what it knows."""
        if self.leader is not None and self.leader is not replica:
            self.died(self.leader.scheduler, self.leader.api)
        self.leader = replica

    def judge(self, scheduler: Scheduler, effects: Iterable[ef.Effect]) -> Iterator[str]:
        """After every step of a replica. One that was deposed, or is about to lead, is fenced off."""
        if self.leader is not None and self.leader.scheduler is scheduler:
            yield from super().judge(scheduler, effects)

    def dies(self, replica: Replica) -> None:
        """Its process ends."""
        if self.leader is replica:
            self.by(None)


def marks_are_true(scheduler: Scheduler) -> Iterator[str]:
    """restarts: at rest no member of a gang that has started is marked otherwise, by any process."""
    for group in scheduler.shared.groups.values():
        if not (group.is_gang and group.has_started) or group.state is UNWINDING:
            continue
        for info in group.in_state(MemberState.BOUND):
            for one in info.pod.status.conditions or ():
                if one.type == GANG_WHOLE and one.status == "False" and one.reason != LOST_MEMBERS:
                    yield f"restarts: {group.key} has started, and {info.pod.key} says {one.reason}"


def _is_marked_in_part(pod: Pod) -> bool:
    return any(one.type == GANG_WHOLE and one.status == "False" for one in pod.status.conditions or ())


def _runs(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not pod.is_terminal and pod.metadata.deletion_timestamp is None


def _created_s(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return math.inf if created is None else created.timestamp()

"""StaggeredBind: sends members that kubelet could confuse with others only after those are admitted.

Lives here: members that are held, reserved and unsent, while other members of their gang (or of one that
starts with it) are due on the same node, and how that ends. core.binding.admission_conflicts decides which
pods must not be due together. The gang is bound in part meanwhile, so a wave that kubelet does not admit is
waited for only half of `settle_s`; the other half is for the gang's policy. Called by core.binding.binder.

    held    no pod that it could be confused with is still due, and its            its bind is sent
            reservation holds
    held    a bind of its gang failed for good; a reservation broke; the wave      released; the gang
            before it was not admitted in time; none is bound, and the gang        settles by its policy
            has become too small to start, or one of its set has lost its place
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.binding.admission_conflicts import AdmissionConflicts
from gangsched.core.binding.bind_sender import BindSender
from gangsched.core.binding.reservation_checks import reservation_lost
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.binds import BindCause, move_bind
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import BindState, Group, MemberState, PodInfo
from gangsched.core.why import Why
from gangsched.core.why.binds import LeftUnbound, RestNotSent, SiblingNotBound
from gangsched.model.pod_group import GroupKey


class StaggeredBind:
    """Groups with held members."""

    def __init__(
        self,
        shared: SharedState,
        conflicts: AdmissionConflicts,
        sender: BindSender,
    ) -> None:
        self._shared = shared
        self._conflicts = conflicts
        self._sender = sender
        self._until_s: Deadlines[GroupKey] = Deadlines(shared.timers, DeadlineKind.HELD_MEMBERS)

    def may_leave(self, group: Group, members: Sequence[PodInfo]) -> Sequence[PodInfo]:
        """Returns the members whose binds may leave now; the others are held."""
        return self._let_go(group, members) if self._conflicts.resources else members

    def give_turns(self) -> None:
        """Checks whether held members may have their turn now, oldest groups first."""
        for key in list(self._until_s) if self._until_s else ():
            group = self._shared.groups.get(key)
            held = _held(group) if group is not None else []
            if group is None or not held:
                self._until_s.drop(key)
            elif why := self._why_not(group, held):
                self._sender.withdraw(group, why)
            else:
                going = self._let_go(group, held)
                if going:
                    self._sender.send(group, going)

    def _why_not(self, group: Group, held: Sequence[PodInfo]) -> Why:
        """Why its held members must not be bound any more, or ""."""
        for info in held:
            if lost := reservation_lost(self._shared.cache, info):
                return lost
        if len(held) == group.n_assumed and not group.n_holding:
            return self._is_void(group)
        return ""

    def _is_void(self, group: Group) -> Why:
        """Why a gang of which nothing was sent must not start any more, or ""."""
        if group.n_short > 0:
            return LeftUnbound()
        for one in self._shared.siblings(group).values():
            if not one.n_holding and not one.n_assumed:
                return SiblingNotBound(str(one.key))
        return ""

    def stop(self, group: Group, why: Why) -> bool:
        """Gives up the group's held members; False if there are none."""
        if group.key not in self._until_s or not _held(group):
            return False
        self._sender.withdraw(group, why)
        return True

    def give_back(self, group: Group) -> None:
        """Releases the group's held members, which will not be sent."""
        if self._until_s.drop(group.key):
            for info in _held(group):
                move_bind(info, BindCause.WITHDRAWN)
                self._shared.forget(info, MemberState.PENDING)

    def expire(self) -> None:
        """Gives up members that kubelet does not let through in time."""
        for key in self._until_s.due(self._shared.now_s):
            group = self._shared.groups.get(key)
            held = _held(group) if group is not None else []
            why = next((why for info in held if (why := self._conflicts.holds(info))), RestNotSent())
            if group is None or not self.stop(group, why):
                self._until_s.drop(key)

    def _let_go(self, group: Group, members: Sequence[PodInfo]) -> list[PodInfo]:
        """Marks as sent, and returns, the members that may be due together; the others are held."""
        going = []
        for info in members:
            if self._conflicts.holds(info):
                move_bind(info, BindCause.HOLDS)
            else:
                move_bind(info, BindCause.SENDS)
                going.append(info)
        if len(going) < len(members):
            self._until_s.set_if_absent(group.key, self._shared.now_s + self._shared.settings.settle_s / 2)
        return going


def _held(group: Group) -> list[PodInfo]:
    return [info for info in group.in_state(MemberState.ASSUMED) if info.bind is BindState.HELD]

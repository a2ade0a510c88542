"""PreBind: runs between the reservation of a whole gang and its first Bind.

Every member's PreBind plugins are called in order, the members side by side. Only when all have succeeded,
for all groups that start together, is the first Bind sent; otherwise everything is released, and nothing was
bound. Called by core.binding.binder, which decides what happens to the groups.

    prepared   every hook has answered Success or Skip, all resource claims are   binds are sent
               reserved (core.binding.claim_writes), the reservations still
               hold, and kubelet could confuse none of the pods with one that
               is due (core.binding.admission_conflicts)
    stopped    a hook gave another answer, or was late; a reservation broke; a    hooks are cancelled,
               needed member left; a resource claim cannot be had; the settle     reservations released
               limit of a gang bound in part;
               kubelet has not admitted the other pod in settle_s
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.binding.admission_conflicts import AdmissionConflicts
from gangsched.core.binding.bind_sender import BindSender
from gangsched.core.binding.claim_writes import ClaimWrites
from gangsched.core.binding.reservation_checks import reservation_lost
from gangsched.core.binding.staggered_bind import StaggeredBind
from gangsched.core.framework.interface import Code
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.state.pending_hooks import PRE_BIND, HookCall
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.binds import BindCause, move_binds
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import NEVER_S, BindState, Group, MemberState, PodInfo
from gangsched.core.types.needed import templates_of
from gangsched.core.why import Why
from gangsched.core.why.binds import PreBindFailed, TooFewPrepared, TurnMissed
from gangsched.model.events import HookAnswered
from gangsched.model.pod_group import GroupKey

_GOES_ON = (Code.SUCCESS.value, Code.SKIP.value)


class _Unit:
    """Groups prepared as one; `open` are the calls without an answer, by the pod's UID."""

    __slots__ = ("groups", "open")

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = tuple(groups)
        self.open: dict[str, HookCall] = {}


class PreBind:
    """Units whose PreBind hooks are running."""

    def __init__(
        self,
        shared: SharedState,
        conflicts: AdmissionConflicts,
        staggered: StaggeredBind,
        sender: BindSender,
        claims: ClaimWrites,
    ) -> None:
        self._shared = shared
        self._claims = claims
        self._conflicts = conflicts
        self._staggered = staggered
        self._sender = sender
        self._units: dict[GroupKey, _Unit] = {}
        self._until_s: Deadlines[_Unit] = Deadlines(shared.timers, DeadlineKind.PREPARED_UNIT)
        """When a unit that waits only for its turn is given up; NEVER_S: it does not wait."""

    def begin(self, unit: Sequence[tuple[Group, Sequence[PodInfo]]]) -> bool:
        """Starts the hooks of the groups' members; False: there are none, so bind the groups at once.

        Raises: PluginError (a PreBindPreFlight); then no hook was started.
        """
        asked = [one for group, members in unit for one in self._wanted(group, members)]
        groups = [group for group, _ in unit]
        claiming = self._claiming(unit) if self._shared.claim_uses.of_pod else []
        blocked: Why = "" if asked or claiming else self._conflicts.blocks(groups)
        if not asked and not claiming and not blocked:
            return False
        preparing = _Unit(groups)
        for group, members in unit:
            self._units[group.key] = preparing
            move_binds(members, BindCause.PREPARES)
        gives_up_s = self._shared.now_s + self._shared.settings.settle_s
        self._until_s.set(preparing, gives_up_s if blocked else NEVER_S)
        for info, plugins in asked:
            assert info.group is not None
            preparing.open[info.uid] = self._shared.hooks.ask(PRE_BIND, plugins, info.group, info)
        for info in claiming:
            assert info.group is not None
            self._shared.claim_uses.want(info, str(info.group.key), info.group.cause_id)
            self._shared.mark_group(info.group)
        return True

    def _claiming(self, unit: Sequence[tuple[Group, Sequence[PodInfo]]]) -> list[PodInfo]:
        """Returns the members with resource claims, which are written before the first Binding."""
        of_pod = self._shared.claim_uses.of_pod
        return [info for _, members in unit for info in members if info.uid in of_pod]

    def _wanted(self, group: Group, members: Sequence[PodInfo]) -> list[tuple[PodInfo, tuple[str, ...]]]:
        profile = self._shared.profile_of(group)
        if not profile.pre_binds:
            return []
        plugins = {}
        for serial, template in templates_of(members).items():
            wanted = profile.run_pre_bind_pre_flight(template)
            if wanted:
                plugins[serial] = wanted
        if not plugins:
            return []
        return [(info, plugins[info.template.serial]) for info in members if info.template.serial in plugins]

    def answered(self, call: HookCall, event: HookAnswered) -> None:
        """Takes a PreBind hook's answer."""
        info, unit = call.info, self._units.get(call.group.key)
        if info is None or unit is None or unit.open.get(info.uid) is not call:
            return
        del unit.open[info.uid]
        if not _is_preparing(info):
            self._go_on_or_stop(unit)
        elif event.code not in _GOES_ON:
            error = PluginError(call.plugin, PRE_BIND, event.reason or event.code)
            self._stop(unit, PreBindFailed(info.pod.key, str(error)))
        elif call.later:
            unit.open[info.uid] = self._shared.hooks.ask(PRE_BIND, call.later, call.group, info)
        else:
            self._go_on_or_stop(unit)

    def go_on_or_stop(self, group: Group) -> None:
        """Checks, as members came or left, whether the rest is still a whole gang and all of it is
        prepared."""
        unit = self._units.get(group.key)
        if unit is not None:
            self._go_on_or_stop(unit)

    def stop(self, group: Group, why: Why) -> bool:
        """Releases the group and the groups that start with it; False if it is not being prepared."""
        unit = self._units.get(group.key)
        if unit is None:
            return False
        self._stop(unit, why)
        return True

    def _go_on_or_stop(self, unit: _Unit) -> None:
        gone = [uid for uid, call in unit.open.items() if call.info is None or not _is_preparing(call.info)]
        self._shared.hooks.cancel([unit.open.pop(uid) for uid in gone])
        for group in unit.groups:
            n_here = group.n_assumed + group.n_bound
            if (
                not group.is_complete
                or not (group.has_started or n_here >= group.min_count)
                or group.short_roles()
            ):
                self._stop(unit, group.problem or TooFewPrepared(str(group.key), n_here, group.min_count))
                return
        if self._shared.claim_uses.of_pod:
            members = [info for group in unit.groups for info in _members(group)]
            if problem := self._claims.problem(members):
                self._stop(unit, problem)
                return
            if not self._claims.are_ready(members):
                return
        if unit.open:
            return
        cache = self._shared.cache
        for group in unit.groups:
            for info in _members(group):
                if lost := reservation_lost(cache, info):
                    self._stop(unit, lost)
                    return
        if self._conflicts.blocks(unit.groups):
            if self._until_s.due_s(unit) == NEVER_S:
                self._until_s.set(unit, self._shared.now_s + self._shared.settings.settle_s)
            return
        self._close(unit)
        for group in unit.groups:
            members = group.in_state(MemberState.ASSUMED)
            self._sender.send(group, self._staggered.may_leave(group, members))

    def give_turns(self) -> None:
        """Checks whether units that wait only for their turn may have it now, oldest first."""
        if self._conflicts.resources:
            for unit in [unit for unit in self._until_s if self._until_s.due_s(unit) < NEVER_S]:
                self._go_on_or_stop(unit)

    def expire(self) -> None:
        """Gives up units whose turn has not come in time."""
        for unit in self._until_s.due(self._shared.now_s):
            self._stop(unit, self._conflicts.blocks(unit.groups) or TurnMissed())

    def _stop(self, unit: _Unit, why: Why) -> None:
        self._shared.hooks.cancel(unit.open.values())
        self._close(unit)
        for group in unit.groups:
            self._sender.give_back(group, why)

    def _close(self, unit: _Unit) -> None:
        self._until_s.drop(unit)
        for group in unit.groups:
            self._units.pop(group.key, None)
            move_binds(_members(group), BindCause.PREPARED)


def _is_preparing(info: PodInfo) -> bool:
    return info.group is not None and info.state is MemberState.ASSUMED and info.bind is BindState.PREPARING


def _members(group: Group) -> list[PodInfo]:
    return [info for info in group.members.values() if _is_preparing(info)]

"""Units: which groups take one turn together, whether Admit lets them, and what their members ask the cycle
for.

A unit is a group with the groups that start together with it and can be tried now. Admit is asked for all of
them in the unit's turn, before any node is looked at (GroupAdmission): here is which members the plugins are
asked about, and which of them take part in the attempt; and which of equally good nodes a lone pod gets
(Ties). Called by core.groups.attempts.attempts in the unit's
turn, and by core.kept and core.groups.attempts.making_room, which plan for units. Not here: which groups form
a set (core.state.start_together), the plugins (plugins.fairness), what follows from a "no"
(core.groups.attempts.attempts).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from gangsched.core.binding.start_records import numbers_of
from gangsched.core.cycle.cycle import GANG
from gangsched.core.framework.plan import first_of
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Demand
from gangsched.core.framework.sampling import EarlyStop
from gangsched.core.framework.status import SUCCESS, Code, Status
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import BOUND, PENDING, Group, GroupState, PodInfo
from gangsched.core.types.needed import completes, needed_first, needed_members
from gangsched.core.why import Why
from gangsched.core.why.not_tried import ProfileGone
from gangsched.model.pod_group import GANG_KEY

_TRIABLE = (
    GroupState.ACTIVE,
    GroupState.ASKING,
    GroupState.BACKOFF,
    GroupState.UNSCHEDULABLE,
    GroupState.WAITING,
)


class Units:
    """Makes units, and their demands."""

    def __init__(self, shared: SharedState, admission: GroupAdmission, pick: Callable[[int], int]) -> None:
        """pick: which of n equally good nodes a lone pod gets, from 0."""
        self._shared = shared
        self.admission = admission
        self._pick = pick
        self._early_stops = {
            name: EarlyStop(percentage) for name, percentage in shared.settings.nodes_to_score.items()
        }

    def unit(self, group: Group) -> list[Group]:
        """The group, and the groups that start together with it and can be tried now."""
        others = self._shared.start_together.starting_with(group)
        return [group, *(one for one in others if one.state in _TRIABLE)]

    def is_admitted(self, unit: list[Group]) -> bool:
        """Whether Admit lets the unit start now; a plugin's failure counts as no."""
        try:
            return self.admission.ask(unit).is_success
        except PluginError as error:
            self._shared.hooks.blame(error, unit[0])
            return False

    def demands(self, unit: list[Group], *, observed: bool = False, preview: bool = False) -> list[Demand]:
        """What the unit's pending members ask for; groups without pending members are left out.

        observed: whether plugins' calls for these demands are traced and measured, as in the unit's own turn.
        preview: for who looks on between two turns: no random number is drawn, no search for nodes moves on
        from where the last one stopped, and Admit is not asked which of the members take part. Raises:
        PluginError.
        """
        demands = []
        for group in unit:
            members = group.in_state(PENDING)
            if not preview:
                members = self.admission.members(unit, group, members)
            if members:
                profile = self._shared.profile_of(group)
                n_needed = min(group.n_needed, len(members))
                asked = profile if observed else profile.quiet
                pick, early_stop = self._pick, None
                if preview:
                    pick = first_of
                elif self._early_stops:
                    early_stop = self._early_stops.get(group.scheduler_name)
                roles = group.short_roles()
                if roles:
                    members = needed_first(members, roles)
                demand = Demand(group, asked, members, n_needed, pick, early_stop, roles=roles)
                demand.packing_weight = self._shared.packing_weight(group)
                demands.append(demand)
        return demands


class GroupAdmission:
    """Asks Admit's plugins; without any it admits every group, at no cost."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    def ask(self, unit: Sequence[Group], gone: Collection[PodInfo] = ()) -> Status:
        """Whether the members that the unit needs may start; gone: pods that count as off their nodes.
        Raises: PluginError."""
        if self._shared.retiring and (why := self.retired(unit)):
            return Status.refused(Code.UNRESOLVABLE, why, plugin=GANG)
        if self._admits_all(unit):
            return SUCCESS
        return self._asked(unit, _needed(unit), gone)

    def retired(self, unit: Sequence[Group]) -> Why:
        """Which profile of the unit starts no gang any more, since the configuration has lost it; ""."""
        for group in unit:
            if group.scheduler_name in self._shared.retiring and not completes(group):
                return ProfileGone(group.scheduler_name)
        return ""

    def may_preempt(self, unit: Sequence[Group], refused: Status) -> bool:
        """Whether the unit, kept out by this answer, may be let in if others are evicted. Raises:
        PluginError."""
        profile, view = self._shared.profile_of(unit[0]), self._shared.queue_view
        if view is None or refused.code is not Code.UNSCHEDULABLE or not profile.post_filters:
            return False
        plugin = profile.admit_that_refused(((refused.plugin, None),))
        return profile.may_admit_without(plugin, unit[0], _needed(unit), view)

    def members(self, unit: Sequence[Group], group: Group, pending: list[PodInfo]) -> list[PodInfo]:
        """The group's pending members that take part in this attempt: all if all pending members of the unit
        may start together, else the ones that the group needs. Raises: PluginError."""
        if (
            self._admits_all(unit)
            or self._asked(unit, [info for one in unit for info in one.in_state(PENDING)]).is_success
        ):
            return pending
        needed = set(map(id, needed_members(group)))
        return [info for info in pending if id(info) in needed]

    def _admits_all(self, unit: Sequence[Group]) -> bool:
        return not self._shared.profile_of(unit[0]).admit_plugins or all(map(_was_admitted, unit))

    def _asked(
        self, unit: Sequence[Group], members: Sequence[PodInfo], gone: Collection[PodInfo] = ()
    ) -> Status:
        view = self._shared.queue_view
        if view is None or not members:
            return SUCCESS
        return self._shared.profile_of(unit[0]).run_admit(unit[0], members, view, gone)


def _needed(unit: Sequence[Group]) -> list[PodInfo]:
    return [info for group in unit for info in needed_members(group)]


def _was_admitted(group: Group) -> bool:
    """Whether the gang is bound in part, so that what it lacks was admitted when its first members were.

    By the Bindings of its members, and not by what the pods say now: pods that run may be edited into a gang
    with others that a limit keeps out, or into a larger one, and a pod may be created on its node.
    """
    if not group.is_completing or not all(_bound_as_member(info, group) for info in group.in_state(BOUND)):
        return False
    recorded = numbers_of(group)  # None: the watch shows none yet, or a former version has bound them
    return recorded is None or group.start_count <= recorded.min_count


def _bound_as_member(info: PodInfo, group: Group) -> bool:
    if not info.pod.spec.node_name:  # we have bound it, and the watch has not shown it yet
        return True
    gang = (info.pod.metadata.annotations or {}).get(GANG_KEY)
    return gang == str(group.key) and gang != info.pod.key  # a lone pod is bound under its own name


class Ties:
    """Which of several equally good nodes a lone pod gets, as the settings say: at random by `pick`, as in
    kube-scheduler, or in turn.

    In turn: a counter, increased at every tie of any profile, modulo the number of equally good nodes.
    Source: Kubernetes 1.11 `pkg/scheduler/core/generic_scheduler.go`, selectHost.
    """

    def __init__(self, shared: SharedState, pick: Callable[[int], int]) -> None:
        self._shared = shared
        self.pick = pick
        self._n_ties = 0

    def __call__(self, n: int) -> int:
        if self._shared.settings.ties == "random":
            return self.pick(n)
        at = self._n_ties % n
        self._n_ties += 1
        return at

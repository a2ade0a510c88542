"""What a gang that has started lacks by now: it lost members, and runs with fewer than it needs.

Pure; read by the core's reports and by what shows gangs to people. Not here: what is done about it
(core.groups.reconciler).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangsched.core.types.states import BOUND, DONE, GroupState
from gangsched.core.why.incomplete import MAX_ROLES, Short
from gangsched.model.pod_group import GIVE_BACK, STAY

if TYPE_CHECKING:
    from gangsched.config import Settings
    from gangsched.core.types.group import Group


def lacks(group: Group) -> Short | None:
    """Returns what is missing; None if the gang has not started, has enough, or has ended.

    Costs a look at each member only while a role may lack some.
    """
    definition = group.definition
    if definition is None or not group.has_started:
        return None
    is_short = group.n_bound < definition.min_count
    if not is_short and not definition.roles:
        return None
    if not group.is_gang or not group.n_holding or group.state is GroupState.UNWINDING:
        return None
    roles = _lacking(group, definition.roles) if definition.roles else []
    if not roles and not is_short:
        return None
    named = tuple(roles[:MAX_ROLES])
    return Short(group.n_bound, group.min_count, named, len(roles) - len(named))


def time_to_recover(group: Group, settings: Settings) -> tuple[float, str]:
    """Returns (how many seconds after the first loss the gang's time is over, 0: never; what is done)."""
    definition = group.definition
    then = (definition.if_not_recovered if definition is not None else "") or GIVE_BACK
    if then == STAY:
        return 0.0, then
    own_s = definition.recover_within_s if definition is not None else None
    return settings.recover_within_s if own_s is None else own_s, then


def runs_enough(group: Group) -> bool:
    """Whether a gang that has started runs with the members that it must keep, which may be fewer than it
    starts with."""
    if not group.has_started:
        return False
    is_running = group.n_holding > 0 and group.state is not GroupState.UNWINDING
    return group.is_whole or (is_running and not lacks(group))


def _lacking(group: Group, least: Mapping[str, int]) -> list[tuple[str, int, int]]:
    if group.n_bound == group.n_existing:  # all that exist have started, and these are counted by role
        return group.missing_roles()
    started = dict.fromkeys(least, 0)
    for info in group.members.values():
        if info.role in started and info.state in (BOUND, DONE):
            started[info.role] += 1
    return [(role, started[role], n) for role, n in least.items() if started[role] < n]

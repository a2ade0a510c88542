"""What a gang that has started lacks by now, in words: it lost members, and runs with fewer than it needs.

Pure; read by the core's reports and by what shows gangs to people. Not here: what is done about it
(core.groups.reconciler).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangsched.core.types.states import BOUND, DONE, GroupState
from gangsched.core.why.incomplete import roles_text

if TYPE_CHECKING:
    from gangsched.core.types.group import Group


def lacks(group: Group) -> str:
    """Returns what is missing, as "3 of 4 members run; role b: 1 of 2"; "" if the gang has not started, has
    enough, or has ended. Costs a look at each member only while a role may lack some."""
    definition = group.definition
    if definition is None or not group.has_started:
        return ""
    is_short = group.n_bound < definition.min_count
    if not is_short and not definition.roles:
        return ""
    if not group.is_gang or not group.n_holding or group.state is GroupState.UNWINDING:
        return ""
    roles = _lacking(group, definition.roles) if definition.roles else []
    if not roles and not is_short:
        return ""
    return f"{group.n_bound} of {group.min_count} members run" + roles_text(roles)


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

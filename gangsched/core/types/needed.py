"""The members that a gang's next attempt has to place, by roles, and what they request.

Not here: placing them role by role (core.cycle.roles). Imports only core.types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gangsched.core.types.group import PENDING, Group, PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate


def needed_members(group: Group) -> list[PodInfo]:
    """The pending members that its next attempt must at least place; none if enough are reserved.

    If it needs only some of them: those that request least, of each role; ties: arrival.
    """
    pending = group.in_state(PENDING)
    if not group.n_assumed and len(pending) <= group.n_needed:
        return pending
    n = group.n_short if group.n_assumed else group.n_needed
    if 0 < n < len(pending):
        pending = _least_first(pending)
    if roles := group.short_roles():
        pending = needed_first(pending, roles)
    return pending[: max(0, n)]


def _least_first(members: list[PodInfo]) -> list[PodInfo]:
    templates = templates_of(members)
    if len(templates) == 1:
        return members
    asked = {serial: sorted(one.requests.items()) for serial, one in templates.items()}
    return sorted(members, key=lambda info: asked[info.template.serial])


def completes(group: Group) -> bool:
    """Whether its next members complete what has started: the gang is bound in part, or has lost members.
    Members by which a whole gang grows do not."""
    return group.is_completing or (group.has_started and not group.is_whole)


def needed_first(members: Sequence[PodInfo], roles: Mapping[str, int]) -> list[PodInfo]:
    """The members that bring each role to its number, then the rest."""
    needed, rest = split(members, roles)
    return needed + rest


def split(members: Iterable[PodInfo], roles: Mapping[str, int]) -> tuple[list[PodInfo], list[PodInfo]]:
    """(members that bring each role to its number, the rest), both in the given order."""
    left = dict(roles)
    needed: list[PodInfo] = []
    rest: list[PodInfo] = []
    for info in members:
        if left.get(info.role, 0) > 0:
            left[info.role] -= 1
            needed.append(info)
        else:
            rest.append(info)
    return needed, rest


def requests_of(members: Iterable[PodInfo]) -> dict[str, int]:
    """The sum of the members' requests, by resource."""
    found: dict[str, int] = {}
    for info in members:
        for resource, amount in info.template.requests.items():
            found[resource] = found.get(resource, 0) + amount
    return found


def templates_of(infos: Iterable[PodInfo]) -> dict[int, PodTemplate]:
    """The members' templates by serial, in order of first occurrence."""
    found: dict[int, PodTemplate] = {}
    before: PodTemplate | None = None
    for info in infos:
        if info.template is not before:
            before = info.template
            found[before.serial] = before
    return found

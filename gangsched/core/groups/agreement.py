"""Whether a group's members agree on what they state about it, and which statement counts.

Called by core.groups.group_spec.
"""

from __future__ import annotations

from gangsched.core.types.group import Group, MemberState, PodInfo
from gangsched.model.pod_group import N_COMMON, one_speaks, stated_names


def speaks(stated: tuple[object, ...]) -> bool:
    """Whether a member states any number of the group, if one may speak for all."""
    return any(value is not None for value in stated[N_COMMON:])


def first_that_counts(group: Group) -> PodInfo | None:
    """The member whose statement counts: if they differ, the first that has not failed and is not leaving."""
    first = group.first()
    if len(group.stated) < 2:
        return first
    return next((info for info in group.members.values() if _counts(info)), first)


def _counts(info: PodInfo) -> bool:
    return info.state not in (MemberState.FAILED, MemberState.LEAVING)


def agree(group: Group) -> bool:
    """Whether the members that count agree. If one may speak for all, members without a statement agree."""
    stated = {info.stated for info in group.members.values() if _counts(info)}
    if not one_speaks(group.key):
        return len(stated) <= 1
    statements = {one for one in stated if speaks(one)}
    return len(statements) <= 1 and len({one[:N_COMMON] for one in stated}) <= 1


def disagreement(group: Group) -> str:
    """Returns on what the members disagree, with up to four of the values and a pod for each."""
    for i, name in enumerate(stated_names(group.key)):
        by_value: dict[object, str] = {}
        for info in group.members.values():
            if _counts(info):
                by_value.setdefault(info.stated[i], info.pod.metadata.name)
        if len(by_value) > 1:
            values = ", ".join(f"{value!r} ({pod})" for value, pod in list(by_value.items())[:4])
            return f"gang {group.key}: members disagree on {name}: {values}; give all of them the same"
    return f"gang {group.key}: members disagree on the group's numbers"

"""StartTogether: which groups form one set, because they name each other in `gangsched.io/groups`.

A set contains all groups connected by start_together, directly or through others, where both sides name each
other: a group that waits for one that waits for a third waits for the third, and they are placed as one. If
the ends of a chain were tried separately, one end could hold the room that the other's neighbour needs.

A set is computed once for all its groups and kept until some group's list changes or a group with a list is
gone. Each group is expanded at most once in between, and a group of a set that is too large is never expanded
again for another. Called by core.state.state, core.groups.group_spec and core.groups.attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.needed import needed_members
from gangsched.model.pod_group import GROUPS_KEY, MAX_START_TOGETHER, GroupKey

_ALONE: Mapping[str, Group] = MappingProxyType({})


class StartTogether:
    """The sets of the existing groups. refused: groups whose set was found too large when it was tried."""

    def __init__(self, groups: Mapping[GroupKey, Group]) -> None:
        self._groups = groups
        self._sets: dict[GroupKey, Mapping[str, Group] | None] = {}
        """None: the set is too large."""
        self._siblings: dict[GroupKey, Mapping[str, Group]] = {}
        self.refused: dict[GroupKey, None] = {}

    def siblings(self, group: Group) -> Mapping[str, Group]:
        """The other existing groups of its set, by "namespace/name"; empty if the set is too large."""
        if not group.start_together:
            return _ALONE
        found = self._siblings.get(group.key)
        if found is None:
            me = str(group.key)
            others = self._set_of(group) or _ALONE
            found = MappingProxyType({name: other for name, other in others.items() if name != me})
            self._siblings[group.key] = found
        return found

    def members_to_admit(self, group: Group) -> list[PodInfo]:
        """The members that the group's next attempt has to place, and those of the groups that start with
        it."""
        members = needed_members(group)
        if group.start_together and not group.satisfied:
            for _, other in sorted(self.siblings(group).items()):
                if other.is_complete and not other.satisfied and not other.recovering:
                    members = members + needed_members(other)
        return members

    def problem(self, group: Group) -> str:
        """Why the group cannot start because of its set; empty if it can."""
        if not group.start_together or self._set_of(group) is not None:
            return ""
        others = [name for name in group.start_together if name != str(group.key)][:3]
        return (
            f"gang {group.key} starts together with more than {MAX_START_TOGETHER - 1} other groups, "
            f"directly ({', '.join(others)}…) or through them, and {MAX_START_TOGETHER} in all may: "
            f"shorten the lists in {GROUPS_KEY}"
        )

    def changed(self, group: Group, before: tuple[str, ...]) -> list[Group]:
        """The group's list differs from `before`, or the group is gone: returns the groups this may cure."""
        self._sets.clear()
        self._siblings.clear()
        self.refused.pop(group.key, None)
        if not self.refused:
            return []
        named = (self._named(group, name) for name in before)
        return [one for one in named if one is not None and one.key in self.refused]

    def neighbours(self, group: Group) -> Iterator[Group]:
        """The groups that it names and that name it."""
        me = str(group.key)
        for name in group.start_together:
            other = self._named(group, name) if name != me else None
            if other is not None and me in other.start_together:
                yield other

    def _named(self, group: Group, name: str) -> Group | None:
        namespace, _, short = name.partition("/")
        return self._groups.get(GroupKey(group.key.dialect, namespace, short))

    def _set_of(self, group: Group) -> Mapping[str, Group] | None:
        if group.key not in self._sets:
            found, is_small = self._find(group)
            for one in found.values():
                self._sets[one.key] = found if is_small else None
        return self._sets[group.key]

    def _find(self, group: Group) -> tuple[dict[str, Group], bool]:
        """The whole set and True; or a part of one that is too large and False."""
        found, todo = {str(group.key): group}, [group]
        while todo:
            for other in self.neighbours(todo.pop()):
                name = str(other.key)
                if name in found:
                    continue
                found[name] = other
                todo.append(other)
                # A neighbour with a known result here can only be in a set that is too large: then this is
                # that set.
                if len(found) > MAX_START_TOGETHER or other.key in self._sets:
                    return found, False
        return found, True

"""StartTogether: which groups form one set, because they name each other in `gangsched.io/groups`.

A set contains all groups connected by start_together, directly or through others, where both sides name each
other. If A waits for B and B for C, then A waits for C too, and all three are placed as one. If the ends of a
chain were tried separately, one end could hold the room that the other's neighbour needs.

A list holds names only, and groups of different dialects (a core PodGroup and one of Coscheduling, two Jobs)
may share one. A name means the group of the lister's own dialect; if there is none, the only group of that
name that has a list. Each side has to mean the other. A set that has two groups of one name is refused.

A set is computed once for all its groups and kept until some group's list changes or a group with a list is
gone. In between each group is expanded at most once, and a group of a refused set is never expanded again for
another. Called by core.state.state, core.groups.attempts.attempts and core.units.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from gangsched.core.cycle.cycle import GANG
from gangsched.core.types.group import Group, GroupState, PodInfo
from gangsched.core.types.needed import needed_members
from gangsched.core.why import Why
from gangsched.core.why.not_tried import SameName, SetTooLarge
from gangsched.model.pod_group import GROUPS_KEY, MAX_START_TOGETHER, GroupKey

_BUSY = (GroupState.BINDING, GroupState.UNWINDING)
_ALONE: Mapping[str, Group] = MappingProxyType({})


class StartTogether:
    """The sets of the existing groups. refused: groups whose set was refused when it was tried."""

    def __init__(self, groups: Mapping[GroupKey, Group]) -> None:
        self._groups = groups
        self._listing: dict[str, list[GroupKey]] = {}
        """By "namespace/name": the groups that list others, in order of their keys."""
        self._sets: dict[GroupKey, Mapping[str, Group] | str] = {}
        """A text: the set is refused; the text is the name that two of its groups have, or "" if it is too
        large."""
        self._siblings: dict[GroupKey, Mapping[str, Group]] = {}
        self.refused: dict[GroupKey, None] = {}

    def siblings(self, group: Group) -> Mapping[str, Group]:
        """Returns the other existing groups of its set, by "namespace/name"; empty if the set is refused."""
        if not group.start_together:
            return _ALONE
        found = self._siblings.get(group.key)
        if found is None:
            together = self._set_of(group)
            others = _ALONE if isinstance(together, str) else together
            found = MappingProxyType({name: one for name, one in others.items() if one is not group})
            self._siblings[group.key] = found
        return found

    def members_to_admit(self, group: Group) -> list[PodInfo]:
        """Returns the members that the next attempt has to place, of the group and of the groups that start
        with it."""
        members = needed_members(group)
        for other in self.starting_with(group):
            members = members + needed_members(other)
        return members

    def starting_with(self, group: Group) -> list[Group]:
        """Returns the other groups to start in one attempt with it, by name: those of its set that are
        complete. Leaves out groups tied to it only through one that has started before."""
        if not group.start_together or group.starts_alone:
            return []
        siblings = self.siblings(group)
        if any(other.starts_alone for other in siblings.values()):
            siblings = self._yet_to_start(group)
        return [one for _, one in sorted(siblings.items()) if one.is_complete and not one.starts_alone]

    def _yet_to_start(self, group: Group) -> dict[str, Group]:
        """Returns the groups tied to it directly or through groups that have yet to start, by
        "namespace/name"."""
        found, todo = {str(group.key): group}, [group]
        while todo:
            for other in self.neighbours(todo.pop()):
                name = str(other.key)
                if name not in found and not other.starts_alone:
                    found[name] = other
                    todo.append(other)
        del found[str(group.key)]
        return found

    def problem(self, group: Group) -> Why:
        """Returns why the group cannot start because of its set; empty if it can."""
        refused = self._set_of(group) if group.start_together else None
        if not isinstance(refused, str):
            return ""
        if refused:
            dialects = tuple(key.dialect for key in self._listing[refused])
            return SameName(str(group.key), refused, dialects, GROUPS_KEY)
        others = [name for name in group.start_together if name != str(group.key)][:3]
        return SetTooLarge(str(group.key), tuple(others), MAX_START_TOGETHER, GROUPS_KEY)

    def busy(self, group: Group) -> Group | None:
        """Returns the first group of its set that is being bound or unwound, if any: meanwhile the set is not
        tried, and that group wakes it afterwards."""
        siblings = self.siblings(group).values()
        return next((one for one in siblings if _is_busy(one)), None)

    def unread(self, group: Group) -> str:
        """Returns the problem of a group that it names, in its own dialect, and whose list cannot be read."""
        for name in group.start_together:
            namespace, _, own = name.partition("/")
            other = self._groups.get(GroupKey(group.key.dialect, namespace, own))
            if other is not None and other.problem and not other.start_together:
                return str(other.problem)
        return ""

    def changed(self, group: Group, before: tuple[str, ...]) -> list[Group]:
        """Takes in that the list differs from `before`, or the group is gone; returns the groups this may
        cure."""
        self._sets.clear()
        self._siblings.clear()
        self.refused.pop(group.key, None)
        lists = bool(group.start_together) and self._groups.get(group.key) is group
        self._note(group.key, lists=lists)
        dialect = group.key.dialect
        # A group that no longer lists any leaves its name to another, which may start now.
        heir = None if lists else self._meant(str(group.key), dialect)
        cured = [] if heir is None else [heir]
        if lists and group.starts_alone:  # else its own attempt takes along the groups that wait for it
            cured += self.neighbours(group)
        cured += self._cut_off(group, before)
        if self.refused:
            named = (self._meant(name, dialect) for name in before)
            cured += [one for one in named if one is not None and one.key in self.refused]
            # A further group of a name may split a refused set: it is unknown which of them is meant.
            cured += [one for one in self._refused_with(str(group.key)) if one not in cured]
        return cured

    def _cut_off(self, group: Group, named: Iterable[str]) -> list[Group]:
        """Returns the groups at rest of the sets that these names have now and in which nothing is being
        bound: what they waited for may have been tied to them through `group` alone."""
        found: dict[GroupKey, Group] = {}
        for name in named:
            other = self._meant(name, group.key.dialect)
            if other is None or other is group or other.key in found:
                continue
            part = (other, *self.siblings(other).values())
            if not any(_is_busy(one) for one in part):
                found |= {one.key: one for one in part if one.state is GroupState.UNSCHEDULABLE}
        return [one for one in found.values() if (GANG, None) in one.rejected_by]

    def _refused_with(self, name: str) -> Iterator[Group]:
        """Yields the groups of refused sets that have this name or list it: each part of a parted set has
        one."""
        for key in self.refused:
            one = self._groups.get(key)
            if one is not None and (str(key) == name or name in one.start_together):
                yield one

    def _note(self, key: GroupKey, *, lists: bool) -> None:
        """Records whether the group lists others."""
        keys = self._listing.setdefault(str(key), [])
        at = bisect_left(keys, key)
        is_noted = at < len(keys) and keys[at] == key
        if lists and not is_noted:
            keys.insert(at, key)
        elif is_noted and not lists:
            del keys[at]
        if not keys:
            del self._listing[str(key)]

    def neighbours(self, group: Group) -> Iterator[Group]:
        """Yields the groups that it names and that name it."""
        me, dialect = str(group.key), group.key.dialect
        for name in group.start_together:
            other = self._meant(name, dialect) if name != me else None
            if other is None or me not in other.start_together:
                continue
            if self._meant(me, other.key.dialect) is group:
                yield other

    def _meant(self, name: str, dialect: str) -> Group | None:
        """Returns the group that a list in this dialect means by the name."""
        keys = self._listing.get(name)
        if keys is None:
            return None
        at = bisect_left(keys, GroupKey(dialect, "", ""))
        if at < len(keys) and keys[at].dialect == dialect:
            return self._groups.get(keys[at])
        return self._groups.get(keys[0]) if len(keys) == 1 else None

    def _set_of(self, group: Group) -> Mapping[str, Group] | str:
        if group.key not in self._sets:
            found, refused = self._find(group)
            for one in found.values():
                self._sets[one.key] = found if refused is None else refused
        return self._sets[group.key]

    def _find(self, group: Group) -> tuple[dict[str, Group], str | None]:
        """Returns the whole set and None, or part of a refused set and why it is refused (see _sets)."""
        found, todo = {str(group.key): group}, [group]
        while todo:
            for other in self.neighbours(todo.pop()):
                name = str(other.key)
                if name in found:
                    if found[name] is not other:
                        return found, name
                    continue
                found[name] = other
                todo.append(other)
                # A neighbour whose result is known can only be in a refused set: then this is that set.
                refused = "" if len(found) > MAX_START_TOGETHER else self._sets.get(other.key)
                if isinstance(refused, str):
                    return found, refused
        return found, None


def _is_busy(group: Group) -> bool:
    return group.state in _BUSY and not group.has_started

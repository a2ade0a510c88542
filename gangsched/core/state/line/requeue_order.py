"""RequeueOrder: pods that replace evicted ones take their place in the queue, ahead of newer work.

A gang is identified by its key, whichever of its controller's attempts it is; a lone pod by its controller,
as its successor has another name. Written by core.device_audit.device_health, read by core.groups.reconciler
when a group becomes complete for the first time, and dropped by core.binding.group_outcome.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangsched.core.types.group import NEVER_S, Group, PodInfo
from gangsched.model.owners import lineage
from gangsched.model.pod_group import POD

# A successor that comes later than this has lost its place.
_KEPT_S = 3600.0
_MAX_PLACES = 10_000


class RequeueOrder:
    """key -> (since when the group was complete, by when it must be back), oldest first."""

    def __init__(self) -> None:
        self._places: dict[str, list[tuple[float, float]]] = {}

    def keep(self, group: Group, members: Iterable[PodInfo], now_s: float) -> None:
        """Keeps the places of these evicted members."""
        if group.first_complete_s == NEVER_S:
            return
        kept = (group.first_complete_s, now_s + _KEPT_S)
        if group.key.dialect != POD:
            self._places[name_of(group)] = [kept]
        else:
            for info in members:
                if owner := _owner(info):
                    self._places.setdefault(owner, []).append(kept)
        while len(self._places) > _MAX_PLACES:
            del self._places[next(iter(self._places))]

    def drop(self, group: Group) -> None:
        """Drops the place of a gang that is whole again, so that the next gang of its name does not get
        it."""
        if self._places and group.key.dialect != POD:
            self._places.pop(name_of(group), None)

    def take(self, group: Group, now_s: float) -> float:
        """Returns the time since which a group that is complete now counts as complete; uses up its place."""
        if not self._places:
            return now_s
        first = group.first()
        key = name_of(group) if group.key.dialect != POD else (_owner(first) if first is not None else "")
        while kept := self._places.get(key):
            since_s, until_s = kept.pop(0)
            if not kept:
                del self._places[key]
            if until_s >= now_s:
                return since_s
        return now_s


def name_of(group: Group) -> str:
    """The identity shared by a gang and its replacement."""
    return lineage(group.key)


def _owner(info: PodInfo) -> str:
    owner = info.pod.metadata.controller
    return owner.uid if owner is not None else ""

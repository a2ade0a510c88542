"""Enough: whether what is free now adds up for a group, before a turn is spent on it.

Sums alone: a group for which they are too small cannot start, one for which they suffice may still not fit.
Asked about groups one after the other, in their order: what the first would take is not there for the next,
so that of thousands of equal groups only as many are tried as may fit. A group for which too little is left
is distinguished from one for which there never was enough. Room that is kept for units of at least the
group's priority counts as taken; what is kept for the group itself counts once its victims are gone. Called
by core.state.line.waking, about groups that wait for the end of a backoff or for victims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Protocol

import numpy as np

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.cycle.cycle import reserve_nominated
from gangsched.core.framework.interface import CycleState
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Profile
from gangsched.core.state.pending_hooks import PendingHooks
from gangsched.core.state.start_together import StartTogether
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.core.types.templates.pod_template import PodTemplate

# Sums over all nodes for one turn's changes: each costs about as much as a lone pod's turn. For further
# templates only what is free of each resource is summed up.
_MAX_SUMS = 16


class _Shared(Protocol):
    """What is read of core.state.state.SharedState."""

    hooks: PendingHooks
    start_together: StartTogether

    def profile_of(self, group: Group) -> Profile: ...


class Sums(Enum):
    """What the sums say of a group. LEFT_OUT: too little is left by those before it."""

    TOO_SMALL = "too_small"
    LEFT_OUT = "left_out"
    ENOUGH = "enough"


class Enough:
    """The sums of one moment. nominated: by UID, room that is kept."""

    def __init__(self, shared: _Shared, view: ClusterView, nominated: Mapping[str, Nominated]) -> None:
        self._shared = shared
        self._view = view
        self._nominated = nominated
        self._trials: dict[int, Trial] = {}
        self._sums: dict[tuple[str, int, int], int] = {}
        """By scheduler, template and priority: how many of these pods all nodes together take."""
        self._taken: dict[tuple[str, int], int] = {}
        self._totals: dict[tuple[int, int], int] = {}
        """By priority and column: what is free on all nodes together."""
        self._taken_of: dict[int, int] = {}
        """By column: what has been taken, by pods of any template."""
        self._counted: set[str] = set()
        """UIDs of the pods that have taken it: the groups of a set are asked about one after the other."""

    def sums(self, group: Group) -> Sums:
        """Says whether the free room adds up for the members that the group and the groups that start with it
        need; if it is enough, counts it as taken."""
        wanted: dict[tuple[str, int], list[PodInfo]] = {}
        members = self._shared.start_together.members_to_admit(group)
        for info in (one for one in members if one.uid not in self._counted):
            owner = info.group or group
            wanted.setdefault((owner.scheduler_name, info.template.serial), []).append(info)
        more: dict[tuple[str, int], int] = {}
        asked: dict[int, int] = {}
        is_enough = is_summed = True
        try:
            for kind, infos in wanted.items():
                trial = self.less_kept(group.priority)
                n = len(infos) - self._n_ready(infos, trial)
                if n > 0:
                    room = self._sum(kind, infos[0], group.priority, trial)
                    if room is not None and room < n:
                        return Sums.TOO_SMALL
                    is_enough &= room is None or room - self._taken.get(kind, 0) >= n
                    is_summed &= room is not None
                    more[kind] = n
                    template = infos[0].template
                    for column, amount in zip(template.columns, template.amounts, strict=True):
                        asked[column] = asked.get(column, 0) + n * amount
        except PluginError as error:
            self._shared.hooks.blame(error, group)
            return Sums.ENOUGH  # its turn meets the same problem and reports it
        for column, amount in asked.items() if self._taken_of or not is_summed else ():
            free = self._total(column, group.priority) if amount else 0
            if free < amount:
                return Sums.TOO_SMALL
            is_enough &= not amount or free - self._taken_of.get(column, 0) >= amount
        if not is_enough:
            return Sums.LEFT_OUT
        self._counted.update(info.uid for infos in wanted.values() for info in infos)
        for kind, n in more.items():
            self._taken[kind] = self._taken.get(kind, 0) + n
        for column, amount in asked.items():
            self._taken_of[column] = self._taken_of.get(column, 0) + amount
        return Sums.ENOUGH

    def _total(self, column: int, priority: int) -> int:
        """What is free of one resource."""
        key = (priority, column)
        if key not in self._totals:
            free = np.where(self._view.live, self.less_kept(priority).free(column), 0)
            self._totals[key] = int(np.maximum(free, 0).sum(dtype=np.float64))
        return self._totals[key]

    def less_kept(self, priority: int) -> Trial:
        """The cluster less what is kept for units of at least this priority."""
        known = self._trials.get(priority)
        if known is None:
            known = self._trials[priority] = Trial(self._view)
            reserve_nominated(known, [one for one in self._nominated.values() if one.priority >= priority])
        return known

    def _sum(self, kind: tuple[str, int], info: PodInfo, priority: int, trial: Trial) -> int | None:
        """None where too many have been summed up already."""
        key = (*kind, priority)
        known = self._sums.get(key)
        if known is None:
            if len(self._sums) >= _MAX_SUMS:
                return None
            assert info.group is not None
            profile, state = self._shared.profile_of(info.group).quiet, CycleState(info.group)
            known = 0
            if profile.run_pre_filter(state, info.template, trial).is_success:
                room = profile.filtering.static_capacity(state, info.template, trial)
                known = int(np.maximum(room, 0).sum())
            self._sums[key] = known
        return known

    def _n_ready(self, infos: Iterable[PodInfo], trial: Trial) -> int:
        """How many of these members, of one template, have what is kept for them free already."""
        kept: dict[str, int] = {}
        template: PodTemplate | None = None
        for info in infos:
            own = self._nominated.get(info.uid)
            if own is not None:
                kept[own.node_name] = kept.get(own.node_name, 0) + 1
                template = info.template
        if template is None:
            return 0
        n_ready = 0
        for name, n in kept.items():
            row = trial.row_of(name)
            if row is None:
                continue
            lacks = 0
            free = trial.free_on(template.columns, row)
            for amount, left in zip(template.amounts, free, strict=True):
                if left < 0 < amount:
                    lacks = max(lacks, -(left // amount))
            n_ready += max(0, n - lacks)
        return n_ready

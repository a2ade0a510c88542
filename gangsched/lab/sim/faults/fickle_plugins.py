"""Out-of-tree plugins that refuse, raise, make gangs wait or answer nonsense by their temper.

One for each extension point; lab.sim.world.hooks answers for those of Permit and PreBind that run at the
edge. In Filter, PreFilter and Score the answer to one question stays the same for a spell, as these may keep
no state. Called by the core, as any plugin is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    CycleState,
    FloatArray,
    IntArray,
    NodeSubset,
    Status,
)
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.lab.sim.faults.plugin_spells import Refusals, Salted, Temper
from gangsched.model.objects import Pod

_WAITS_S = (None, 1.0, 20.0)


class Moody:
    """A plugin's temper, and the groups that it has refused."""

    name = ""

    def __init__(self, temper: Temper, refusals: Refusals, salt: int = 0) -> None:
        """salt: its argument, which changes its answers."""
        self._temper = Salted(temper, salt) if salt else temper
        self.refusals = refusals

    def _fail(self) -> None:
        raise ValueError("of bad temper")

    def _answer(self, *moods: str) -> Status:
        """Returns an answer of a bad temper, or raises."""
        mood = self._temper.choose(*moods)
        if mood == "raises":
            self._fail()
        if mood == "waits":
            return Status.wait("in two minds", timeout_s=_WAITS_S[int(self._temper.number_of() * 3)])
        return Status.unresolvable("never") if mood == "for good" else Status.unschedulable("no")


class MoodyPreEnqueue(Moody):
    """A "no" would stay until the pod is edited, so it asks to wait instead, or raises."""

    name = "MoodyPreEnqueue"

    def pre_enqueue(self, pod: Pod) -> Status:
        if not self._temper.is_bad():
            self.refusals.kept_out.discard(pod.metadata.uid)
            return SUCCESS
        self.refusals.kept_out.add(pod.metadata.uid)
        return self._answer("waits", "raises")


class MoodyGate(Moody):
    """Keeps each pod out until its hook at the edge has answered (lab.sim.world.hooks)."""

    name = "MoodyGate"

    async def pre_enqueue(self, pod: Pod, view: Any, handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")


class MoodyRaise(Moody):
    name = "MoodyRaise"

    def pre_enqueue(self, pod: Pod) -> Status:
        if self._temper.is_bad_about(pod.metadata.uid):
            return Status.let_in(raise_by=int(self._temper.number_of(pod.metadata.uid) * 20) - 10)
        return SUCCESS


class MoodyAdmit(Moody):
    name = "MoodyAdmit"

    def admit(self, group: Group, members: Sequence[PodInfo], view: Any) -> Status:
        if not self._temper.is_bad():
            return SUCCESS
        self.refusals.refused(group)
        return self._answer("refuses", "for good", "raises")

    def admit_again(self, group: Group, members: Sequence[PodInfo], change: Any, view: Any) -> bool:
        if self._temper.is_bad():
            self._fail()
        return True


class MoodyPreFilter(Moody):
    """Refuses a group, or narrows it to some nodes; fails now and then when a sibling is added or a victim
    removed."""

    name = "MoodyPreFilter"

    def pre_filter(self, state: CycleState, template: Any, view: Any) -> Status | NodeSubset:
        key = None if state.group is None else state.group.key
        if not self._temper.is_bad_about(key):
            return SUCCESS
        self.refusals.refused(state.group)
        if self._temper.number_of("narrows", key) < 0.5:
            return NodeSubset(self._suits(view), "node(s) were not to its taste")
        if self._temper.number_of("raises", key) < 0.5:
            self._fail()
        return Status.unschedulable("no")

    def add_pod(self, state: CycleState, template: Any, other: Any, row: int, view: Any) -> None:
        self._follow(state, "add", view.name(row))

    def remove_pod(self, state: CycleState, template: Any, other: Any, row: int, view: Any) -> None:
        self._follow(state, "remove", view.name(row))

    def _follow(self, state: CycleState, *what: str) -> None:
        if self._temper.is_bad_about(*what) and self._temper.number_of("fails", *what) < 0.5:
            self.refusals.refused(state.group)
            self._fail()

    def _suits(self, view: Any) -> BoolArray:
        rows = range(view.n_rows)
        suits = [bool(view.live[row]) and self._temper.number_of(view.name(row)) < 0.5 for row in rows]
        return np.array(suits, dtype=bool)


class MoodyFilter(Moody):
    """Closes nodes."""

    name = "MoodyFilter"
    sees_pods = True
    cured_by = (
        Change.ROOM_FREED
        | Change.NODE_ADDED
        | Change.NODE_ALLOCATABLE
        | Change.NODE_TAINTS
        | Change.NODE_DEVICES
    )

    def cures(self, change: Any, template: Any, view: Any) -> bool:
        if self._temper.is_bad():
            self._fail()
        return True

    def filter(self, state: CycleState, template: Any, view: Any) -> BoolArray | None:
        mask = np.ones(view.n_rows, dtype=bool)
        for row in range(view.n_rows):
            if view.live[row] and self._temper.is_bad_about(view.name(row)):
                mask[row] = False
        if mask.all():
            return None
        self.refusals.refused(state.group)
        if self._temper.number_of("raises") < 0.2:
            self._fail()
        return mask

    def reasons(self, state: CycleState, template: Any, view: Any) -> Sequence[tuple[str, BoolArray]]:
        mask = self.filter(state, template, view)
        return () if mask is None else (("node(s) were closed", ~mask),)


class MoodyNodeFilter(Moody):
    """Filters one node at a time; its answers are not cached, as it has a PreFilter."""

    name = "MoodyNodeFilter"

    def pre_filter(self, state: CycleState, template: Any, view: Any) -> Status:
        state.data[self.name] = state.group
        return SUCCESS

    def filter_node(self, state: CycleState, pod: Pod, node_info: Any) -> Status:
        if not self._temper.is_bad_about(node_info.name):
            return SUCCESS
        self.refusals.refused(state.data[self.name])
        if self._temper.number_of("raises", node_info.name) < 0.2:
            self._fail()
        return Status.unschedulable("node(s) had had enough")


class MoodyCapacity(Moody):
    """Its answers would be cached: it raises, or returns None."""

    name = "MoodyCapacity"

    def capacity(self, state: CycleState, template: Any, view: Any, rows: Any = None) -> IntArray | None:
        if self._temper.is_bad_about(template.serial):
            self.refusals.refused(state.group)
            self._fail()
        return None

    def reasons(self, state: CycleState, template: Any, view: Any) -> Sequence[tuple[str, BoolArray]]:
        return ()


class MoodyPostFilter(Moody):
    name = "MoodyPostFilter"

    def post_filter(self, unit: Sequence[Any], trial: Any, error: Any, dry_run: Any) -> Status:
        if self._temper.is_bad():
            for demand in unit:
                self.refusals.refused(demand.group)
            return self._answer("refuses", "for good", "raises")
        return Status.unschedulable("has no room to make")


class MoodyScore(Moody):
    """Scores nodes by its temper; now and then with NaN, or not at all."""

    name = "MoodyScore"
    weight = 1.0

    def pre_score(self, state: CycleState, template: Any, view: Any, rows: IntArray) -> Status:
        return SKIP if self._temper.is_bad_about("skips", template.serial) else SUCCESS

    def score(self, state: CycleState, template: Any, view: Any, rows: IntArray) -> FloatArray | None:
        scores = np.array([100.0 * self._temper.number_of(view.name(int(row))) for row in rows])
        if self._temper.is_bad_about(template.serial):
            self.refusals.refused(state.group)
            if self._temper.number_of("raises", template.serial) < 0.5:
                self._fail()
            return scores * np.nan
        return scores


class MoodyReserve(Moody):
    """Keeps a book of reservations; now and then it raises after striking something out of it."""

    name = "MoodyReserve"

    def __init__(self, temper: Temper, refusals: Refusals, salt: int = 0) -> None:
        super().__init__(temper, refusals, salt)
        self.held: set[str] = set()

    def reserve(self, state: CycleState, group: Group, placements: Sequence[Placement]) -> Status:
        self.held |= {one.info.uid for one in placements}
        if not self._temper.is_bad():
            return SUCCESS
        self.refusals.refused_places(group, "Reserve")
        return self._answer("refuses", "for good", "raises")

    def unreserve(self, group: Group, infos: Sequence[PodInfo]) -> None:
        self.held -= {info.uid for info in infos}
        if self._temper.is_bad():
            self._fail()

    def inherit(self, before: MoodyReserve) -> None:
        self.held = before.held
        if self._temper.is_bad():
            self._fail()


class MoodyPermit(Moody):
    """Waits end with their timeout, or when it is asked again and agrees."""

    name = "MoodyPermit"

    def permit(self, group: Group, siblings: Mapping[str, Group]) -> Status:
        if not self._temper.is_bad():
            return SUCCESS
        self.refusals.refused(group)
        return self._answer("refuses", "raises", "waits")


class MoodyEdge(Moody):
    """Answers at the edge, by lab.sim.world.hooks."""

    name = "MoodyEdge"

    async def permit(self, group: Group, siblings: Mapping[str, Group], handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")

    async def pre_bind(self, pod: Pod, node_name: str, handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")


KINDS: tuple[type[Moody], ...] = (
    MoodyPreEnqueue,
    MoodyGate,
    MoodyRaise,
    MoodyAdmit,
    MoodyPreFilter,
    MoodyFilter,
    MoodyNodeFilter,
    MoodyCapacity,
    MoodyPostFilter,
    MoodyScore,
    MoodyReserve,
    MoodyPermit,
    MoodyEdge,
)
_OFTEN = (MoodyAdmit, MoodyReserve, MoodyPermit)
"""Groups with a claim meet these most."""


def some_kinds(seed: int) -> list[type[Moody]]:
    """Draws a few kinds: a plugin that refuses nearly everything hides what the others do."""
    rng = Random(f"{seed}-plugins")
    drawn = {*rng.sample(KINDS, rng.choice((1, 1, 2, 2, 3))), *rng.sample(_OFTEN, rng.choice((0, 1, 1, 2)))}
    return [kind for kind in KINDS if kind in drawn]

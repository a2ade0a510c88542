"""Out-of-tree plugins that refuse, raise, make gangs wait or answer nonsense, in spells.

Their names as plugins (`MoodyFilter`) are those of the storm; a seed draws spells by them. One for each
extension point; lab.sim.world.hooks answers for those of Permit and PreBind that run at the edge. In Filter,
PreFilter and Score the answer to one question stays the same for a spell, as these may keep no state. Called
by the core, as any plugin is.
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
from gangsched.lab.sim.faults.plugin_spells import Refusals, Salted, Spells
from gangsched.model.objects import Pod

_WAITS_S = (None, 1.0, 20.0)


class FicklePlugin:
    """A plugin's spells, and the groups that it has refused."""

    name = ""

    def __init__(self, spells: Spells, refusals: Refusals, salt: int = 0) -> None:
        """salt: its argument, which changes its answers."""
        self._spells = Salted(spells, salt) if salt else spells
        self.refusals = refusals

    def _fail(self) -> None:
        raise ValueError("of bad temper")

    def _answer(self, *answers: str) -> Status:
        """Returns one of the answers of a bad spell, or raises."""
        answer = self._spells.choose(*answers)
        if answer == "raises":
            self._fail()
        if answer == "waits":
            return Status.wait("in two minds", timeout_s=_WAITS_S[int(self._spells.number_for() * 3)])
        return Status.unresolvable("never") if answer == "for good" else Status.unschedulable("no")


class FicklePreEnqueue(FicklePlugin):
    """A "no" would stay until the pod is edited, so it asks to wait instead, or raises."""

    name = "MoodyPreEnqueue"

    def pre_enqueue(self, pod: Pod) -> Status:
        if not self._spells.refuses():
            self.refusals.kept_out.discard(pod.metadata.uid)
            return SUCCESS
        self.refusals.kept_out.add(pod.metadata.uid)
        return self._answer("waits", "raises")


class FickleGate(FicklePlugin):
    """Keeps each pod out until its hook at the edge has answered (lab.sim.world.hooks)."""

    name = "MoodyGate"

    async def pre_enqueue(self, pod: Pod, view: Any, handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")


class FickleRaise(FicklePlugin):
    name = "MoodyRaise"

    def pre_enqueue(self, pod: Pod) -> Status:
        if self._spells.refuses_about(pod.metadata.uid):
            return Status.let_in(raise_by=int(self._spells.number_for(pod.metadata.uid) * 20) - 10)
        return SUCCESS


class FickleAdmit(FicklePlugin):
    name = "MoodyAdmit"

    def admit(self, group: Group, members: Sequence[PodInfo], view: Any) -> Status:
        if not self._spells.refuses():
            return SUCCESS
        self.refusals.refused(group)
        return self._answer("refuses", "for good", "raises")

    def admit_again(self, group: Group, members: Sequence[PodInfo], change: Any, view: Any) -> bool:
        if self._spells.refuses():
            self._fail()
        return True


class FicklePreFilter(FicklePlugin):
    """Refuses a group, or narrows it to some nodes; fails now and then when a sibling is added or a victim
    removed."""

    name = "MoodyPreFilter"

    def pre_filter(self, state: CycleState, template: Any, view: Any) -> Status | NodeSubset:
        key = None if state.group is None else state.group.key
        if not self._spells.refuses_about(key):
            return SUCCESS
        self.refusals.refused(state.group)
        if self._spells.number_for("narrows", key) < 0.5:
            return NodeSubset(self._suits(view), "node(s) were not to its taste")
        if self._spells.number_for("raises", key) < 0.5:
            self._fail()
        return Status.unschedulable("no")

    def add_pod(self, state: CycleState, template: Any, other: Any, row: int, view: Any) -> None:
        self._follow(state, "add", view.name(row))

    def remove_pod(self, state: CycleState, template: Any, other: Any, row: int, view: Any) -> None:
        self._follow(state, "remove", view.name(row))

    def _follow(self, state: CycleState, *what: str) -> None:
        if self._spells.refuses_about(*what) and self._spells.number_for("fails", *what) < 0.5:
            self.refusals.refused(state.group)
            self._fail()

    def _suits(self, view: Any) -> BoolArray:
        rows = range(view.n_rows)
        suits = [bool(view.live[row]) and self._spells.number_for(view.name(row)) < 0.5 for row in rows]
        return np.array(suits, dtype=bool)


class FickleFilter(FicklePlugin):
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
        if self._spells.refuses():
            self._fail()
        return True

    def filter(self, state: CycleState, template: Any, view: Any) -> BoolArray | None:
        mask = np.ones(view.n_rows, dtype=bool)
        for row in range(view.n_rows):
            if view.live[row] and self._spells.refuses_about(view.name(row)):
                mask[row] = False
        if mask.all():
            return None
        self.refusals.refused(state.group)
        if self._spells.number_for("raises") < 0.2:
            self._fail()
        return mask

    def reasons(self, state: CycleState, template: Any, view: Any) -> Sequence[tuple[str, BoolArray]]:
        mask = self.filter(state, template, view)
        return () if mask is None else (("node(s) were closed", ~mask),)


class FickleNodeFilter(FicklePlugin):
    """Filters one node at a time; its answers are not cached, as it has a PreFilter."""

    name = "MoodyNodeFilter"

    def pre_filter(self, state: CycleState, template: Any, view: Any) -> Status:
        state.data[self.name] = state.group
        return SUCCESS

    def filter_node(self, state: CycleState, pod: Pod, node_info: Any) -> Status:
        if not self._spells.refuses_about(node_info.name):
            return SUCCESS
        self.refusals.refused(state.data[self.name])
        if self._spells.number_for("raises", node_info.name) < 0.2:
            self._fail()
        return Status.unschedulable("node(s) had had enough")


class FickleCapacity(FicklePlugin):
    """Its answers would be cached: it raises, or returns None."""

    name = "MoodyCapacity"

    def capacity(self, state: CycleState, template: Any, view: Any, rows: Any = None) -> IntArray | None:
        if self._spells.refuses_about(template.serial):
            self.refusals.refused(state.group)
            self._fail()
        return None

    def reasons(self, state: CycleState, template: Any, view: Any) -> Sequence[tuple[str, BoolArray]]:
        return ()


class FicklePostFilter(FicklePlugin):
    name = "MoodyPostFilter"

    def post_filter(self, unit: Sequence[Any], trial: Any, error: Any, dry_run: Any) -> Status:
        if self._spells.refuses():
            for demand in unit:
                self.refusals.refused(demand.group)
            return self._answer("refuses", "for good", "raises")
        return Status.unschedulable("has no room to make")


class FickleScore(FicklePlugin):
    """Scores nodes by its spells; now and then with NaN, or not at all."""

    name = "MoodyScore"
    weight = 1.0

    def pre_score(self, state: CycleState, template: Any, view: Any, rows: IntArray) -> Status:
        return SKIP if self._spells.refuses_about("skips", template.serial) else SUCCESS

    def score(self, state: CycleState, template: Any, view: Any, rows: IntArray) -> FloatArray | None:
        scores = np.array([100.0 * self._spells.number_for(view.name(int(row))) for row in rows])
        if self._spells.refuses_about(template.serial):
            self.refusals.refused(state.group)
            if self._spells.number_for("raises", template.serial) < 0.5:
                self._fail()
            return scores * np.nan
        return scores


class FickleReserve(FicklePlugin):
    """Keeps a record of reservations; now and then it raises after removing something from it."""

    name = "MoodyReserve"

    def __init__(self, spells: Spells, refusals: Refusals, salt: int = 0) -> None:
        super().__init__(spells, refusals, salt)
        self.held: set[str] = set()

    def reserve(self, state: CycleState, group: Group, placements: Sequence[Placement]) -> Status:
        self.held |= {one.info.uid for one in placements}
        if not self._spells.refuses():
            return SUCCESS
        self.refusals.refused_places(group, "Reserve")
        return self._answer("refuses", "for good", "raises")

    def unreserve(self, group: Group, infos: Sequence[PodInfo]) -> None:
        self.held -= {info.uid for info in infos}
        if self._spells.refuses():
            self._fail()

    def inherit(self, before: FickleReserve) -> None:
        self.held = before.held
        if self._spells.refuses():
            self._fail()


class FicklePermit(FicklePlugin):
    """Waits end with their timeout, or when it is asked again and agrees."""

    name = "MoodyPermit"

    def permit(self, group: Group, siblings: Mapping[str, Group]) -> Status:
        if not self._spells.refuses():
            return SUCCESS
        self.refusals.refused(group)
        return self._answer("refuses", "raises", "waits")


class FickleEdge(FicklePlugin):
    """Answers at the edge, by lab.sim.world.hooks."""

    name = "MoodyEdge"

    async def permit(self, group: Group, siblings: Mapping[str, Group], handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")

    async def pre_bind(self, pod: Pod, node_name: str, handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")


KINDS: tuple[type[FicklePlugin], ...] = (
    FicklePreEnqueue,
    FickleGate,
    FickleRaise,
    FickleAdmit,
    FicklePreFilter,
    FickleFilter,
    FickleNodeFilter,
    FickleCapacity,
    FicklePostFilter,
    FickleScore,
    FickleReserve,
    FicklePermit,
    FickleEdge,
)
_OFTEN = (FickleAdmit, FickleReserve, FicklePermit)
"""Groups with a claim meet these most."""


def some_kinds(seed: int) -> list[type[FicklePlugin]]:
    """Draws a few kinds: a plugin that refuses nearly everything hides what the others do."""
    rng = Random(f"{seed}-plugins")
    drawn = {*rng.sample(KINDS, rng.choice((1, 1, 2, 2, 3))), *rng.sample(_OFTEN, rng.choice((0, 1, 1, 2)))}
    return [kind for kind in KINDS if kind in drawn]

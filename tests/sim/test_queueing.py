"""Shadow mode in storms: the same is decided as without it, and a plain recount finds the same bypasses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.plan import Plan
from gangsched.core.framework.profile import Demand
from gangsched.core.framework.status import Code
from gangsched.core.queueing.bypasses import Bypasses
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, GroupState
from gangsched.core.types.needed import completes
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import STORMS, Storm
from gangsched.model.pod_group import GroupKey
from tests.support.inside import Inside

SHADOW = QueueingSettings(bound=2)
_IN_LINE = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF, GroupState.UNSCHEDULABLE)


class Recounted(Bypasses):
    """Counts again at each start, group by group and node by node, without classes, bits or order kept."""

    n_starts = 0
    n_found = 0

    def refused(self, demands: Sequence[Demand], code: Code, view: ClusterView, now_s: float) -> None:
        super().refused(demands, code, view, now_s)
        self.counts: dict[GroupKey, tuple[Group, int]] = getattr(self, "counts", {})
        for one in demands:
            known = self.counts.get(one.group.key)
            if one.group.key in self._records and (known is None or known[0] is not one.group):
                self.counts[one.group.key] = (one.group, 0)

    def charge(self, unit: Sequence[Group], plan: Plan, view: ClusterView, now_s: float) -> Group | None:
        self.n_starts += 1
        self.counts = getattr(self, "counts", {})
        full = super().charge(unit, plan, view, now_s)
        if full is not None:
            return full
        for by in unit:
            for key, (group, n) in list(self.counts.items()):
                if group not in unit and self._passes(by, group, plan):
                    self.counts[key] = (group, n + 1)
                    self.n_found += 1
        for key, (group, n) in list(self.counts.items()):
            passed = self.count(group)
            if passed is None:
                del self.counts[key]
            else:
                assert passed.n == n, f"{key} was passed {n} times and is counted {passed.n} times"
        return None

    def _passes(self, by: Group, group: Group, plan: Plan) -> bool:
        record = self._records.get(group.key)
        if record is None or record.group is not group or not record.can_fit or group.key in self._claimed:
            return False
        if group.state not in _IN_LINE or group.problem or group.is_completing or completes(by):
            return False
        is_behind = by.has_started or self._place_of(by) > self._place_of(group)
        if by.priority > group.priority or not is_behind:
            return False
        return any(
            self._rows.rows(serial) >> placed.row & 1 and columns.intersection(placed.info.template.columns)
            for placed in plan.placements
            if placed.info.group is by
            for serial, columns in record.needs.items()
        )


def counting(settings: Settings) -> Scheduler:
    """A scheduler that recounts."""
    scheduler = make_scheduler(settings)
    shared = scheduler.shared
    shared.queue.bypasses = Recounted(SHADOW, shared.groups, shared.queue.order)
    return scheduler


def run(storm: Storm, seed: int) -> Simulation:
    sim = Simulation(seed, storm.workload(seed), rates=storm.rates, settings=storm.settings, make=storm.make)
    sim.run_for(storm.storm_s)
    sim.settle()
    return sim


def decided(sim: Simulation) -> list[list[Any]]:
    """Returns all effects but the events of unreadable walltimes: only queueing reads walltimes."""
    turns = [json.loads(turn) for turn in sim.history]
    return [[one for one in turn if one[1].get("reason") != "WalltimeUnread"] for turn in turns]


@pytest.mark.parametrize("name", ["storm", "hostile", "preempting"])
def test_shadow_mode_decides_nothing_and_counts_as_a_plain_recount_does(name: str) -> None:
    storm = STORMS[name]
    shadow = replace(storm, settings=replace(storm.settings, queueing=SHADOW), make=counting)
    n_found = 0
    for seed in range(31_000, 31_005):
        without, counted = run(storm, seed), run(shadow, seed)
        assert decided(counted) == decided(without), f"{name}, seed {seed}: not the same was decided"
        bypasses = Inside(counted.scheduler).bypasses()
        assert isinstance(bypasses, Recounted)
        n_found += bypasses.n_found
    assert n_found, f"{name}: nobody was passed"


@pytest.mark.parametrize("name", ["storm", "preempting", "racks"])
def test_while_no_group_is_at_its_bound_all_is_decided_as_without_one(name: str) -> None:
    """I9. Where pods state walltimes, messages name ends, and the weather of a storm is another one."""
    storm = STORMS[name]
    never = QueueingSettings(1_000_000, mode="hard")
    for seed in range(32_000, 32_004):
        without = run(storm, seed)
        bounded = run(replace(storm, settings=replace(storm.settings, queueing=never)), seed)
        assert bounded.history == without.history, f"{name}, seed {seed}"
        assert Inside(bounded.scheduler).claims() is not None


def test_a_bound_that_is_reached_decides_otherwise() -> None:
    storm, early = STORMS["preempting"], QueueingSettings(1, mode="hard")
    seeds = range(32_000, 32_004)
    bounded = replace(storm, settings=replace(storm.settings, queueing=early))
    assert any(run(bounded, seed).history != run(storm, seed).history for seed in seeds)

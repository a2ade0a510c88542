"""Properties over seeds with plugins at every point after the decision, whose hooks refuse, fail and hang."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from gangsched.config import Settings
from gangsched.core.framework.interface import SUCCESS, CycleState, Status
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, GroupState, MemberState, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.runs.driver import Broken, Simulation
from gangsched.lab.sim.workloads.arrivals import random_workload
from gangsched.lab.sim.world.weather import CALM, STORM, Rates
from gangsched.model.objects import Pod
from tests.support.inside import Inside

N_SEEDS = int(os.environ.get("GANGSCHED_SEEDS", "60")) // 4


class Ledger:
    """Reserve that keeps a record of its own, refuses now and then, and raises in Unreserve now and then."""

    name = "Ledger"

    def __init__(self, seed: int) -> None:
        self.held: set[str] = set()
        self._rng = Random(f"{seed}-ledger")
        self.is_calm = False

    def reserve(self, state: CycleState, group: Group, placements: Sequence[Placement]) -> Status:
        self.held |= {placement.info.uid for placement in placements}
        if self.is_calm or self._rng.random() < 0.9:
            return SUCCESS
        if self._rng.random() < 0.5:
            raise RuntimeError("the ledger is closed")
        return Status.unschedulable("the ledger is full")

    def unreserve(self, group: Group, infos: Sequence[PodInfo]) -> None:
        self.held -= {info.uid for info in infos}
        if not self.is_calm and self._rng.random() < 0.2:
            raise RuntimeError("the ledger is closed")


class Edge:
    """Permit, PreBind, Bind and PostBind at the edge; gang.sim.hooks answers for them."""

    name = "Edge"

    async def permit(self, group: Group, siblings: Mapping[str, Group], handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")

    async def pre_bind(self, pod: Pod, node_name: str, handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str], handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")

    async def post_bind(self, pod: Pod, node_name: str, handle: Any) -> None:
        raise AssertionError("the core runs no hooks")


class Second(Edge):
    name = "Second"


def simulation(seed: int, rates: Rates) -> Simulation:
    """A storm in which every gang passes three plugins; the ledger records all that is held."""
    ledgers: list[Ledger] = []

    def make(settings: Settings) -> Scheduler:
        ledgers.append(Ledger(seed + len(ledgers)))
        return make_scheduler(settings, ledgers[-1], Edge(), Second())

    def balanced(sim: Simulation) -> Iterator[str]:
        """nothing-leaks: what plugins have reserved is what is reserved."""
        ledgers[-1].is_calm = sim.weather.rates is CALM
        pods = Inside(sim.scheduler).pod_infos()
        held = {info.uid for info in pods.values() if info.state is MemberState.ASSUMED}
        ran = (MemberState.BOUND, MemberState.DONE)
        booked = {
            uid
            for uid in ledgers[-1].held
            if uid in pods and pods[uid].state not in ran and not pods[uid].pod.spec.node_name
        }
        if held != booked:
            yield f"nothing-leaks: reserved {sorted(held)}, in the plugin's book {sorted(booked)}"

    def hooked(sim: Simulation) -> Iterator[str]:
        """nothing-leaks: hooks are awaited for groups that wait or bind, and for no others."""
        for call in sim.scheduler.shared.hooks.calls.values():
            state = call.group.state
            if call.point == "Permit" and state is not GroupState.WAITING:
                yield f"nothing-leaks: {call.plugin} is asked to permit {call.group!r}"
            if call.point == "PreBind" and state is not GroupState.BINDING:
                yield f"nothing-leaks: {call.plugin} is preparing {call.group!r}"

    sim = Simulation(seed, random_workload(seed), rates=rates, make=make)
    sim.watchers += [balanced, hooked]
    return sim


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_a_storm_of_hooks_breaks_no_promise_and_everything_finishes_after_it(seed: int) -> None:
    try:
        sim = simulation(seed, STORM)
        sim.run_for(40.0)
        sim.settle()
    except Broken as broken:
        pytest.fail(f"seed {seed}: {broken}", pytrace=False)
    # What is still asked is a Permit without an answer, of a gang that waits for it.
    left = sim.scheduler.shared.hooks.calls.values()
    assert {(call.point, call.group.state) for call in left} <= {("Permit", GroupState.WAITING)}


def test_hooks_are_part_of_one_seeds_history() -> None:
    one, two = simulation(7, STORM), simulation(7, STORM)
    for sim in (one, two):
        sim.run_for(40.0)
    assert any(b'"RunHook"' in turn for turn in one.history)
    assert one.history == two.history


@pytest.mark.parametrize("seed", range(N_SEEDS // 3))
def test_configurations_that_change_all_the_time_break_no_promise(seed: int) -> None:
    """Hooks and the ledger come and go, every second or so, in the middle of everything."""
    sim = simulation(4000 + seed, STORM)
    sim.watchers.clear()  # a ledger that comes later does not know what was reserved before
    rng = Random(f"{seed}-configurations")

    def change() -> None:
        scheduler = sim.scheduler
        if scheduler.is_synced and sim.weather.rates is not CALM:
            plugins = [one for one in (Ledger(seed), Edge(), Second()) if rng.random() < 0.7]
            profiles = Inside(make_scheduler(sim.settings, *plugins)).profiles()
            sim._step(lambda: scheduler.reconfigure(profiles, sim.settings, sim.timeline.now_s)[0])
        sim.timeline.after(rng.uniform(0.2, 2.0), change)

    sim.timeline.after(1.0, change)
    try:
        sim.run_for(40.0)
        sim.settle()
    except Broken as broken:
        pytest.fail(f"seed {seed}: {broken}", pytrace=False)

"""Two gangs can never wait for each other: the graph of waits, drawn after every turn.

An edge goes from a group that waits in Permit to every group that exists and is not yet there with it, and
from every group that could not be placed to the holders of room. If a waiting holder is reached again
from what a waiting holder waits for, two gangs wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from gangsched.core.types.group import Group, GroupState
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import ROUGH
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload, random_workload
from gangsched.lab.sim.world.weather import CALM
from gangsched.model.pod_group import GROUPS_KEY, TOTAL_MEMBERS_KEY, GroupKey
from tests.support.inside import Inside

N_SEEDS = int(os.environ.get("GANGSCHED_SEEDS", "60")) // 2


def waits_for(sim: Simulation, group: Group) -> Iterator[Group]:
    """The groups, existing and complete, that a waiting group waits for."""
    groups = {other.key: other for other in Inside(sim.scheduler).groups()}
    for name in group.start_together:
        namespace, _, short = name.partition("/")
        other = groups.get(GroupKey(group.key.dialect, namespace, short))
        if other is None or other is group or str(group.key) not in other.start_together:
            continue
        if not other.has_started and other.is_complete and other.state is not GroupState.BINDING:
            yield other


def deadlocks(sim: Simulation) -> Iterable[str]:
    """A group that holds room waits for a complete one that is rejected while others hold room in Permit."""
    holders = [g for g in Inside(sim.scheduler).groups() if g.state is GroupState.WAITING and g.n_assumed]
    for holder in holders:
        for other in waits_for(sim, holder):
            if other.state is GroupState.WAITING and other.n_assumed < other.n_existing - other.n_bound:
                if other.active_token == 0:
                    yield f"deadlock: {holder!r} holds and waits for {other!r}, which holds and is not whole"
            elif other.state in (GroupState.UNSCHEDULABLE, GroupState.BACKOFF):
                yield f"deadlock: {holder!r} holds and waits for {other!r}, which waits for room"


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_no_waiting_group_ever_waits_for_one_that_waits_for_room(seed: int) -> None:
    sim = Simulation(3000 + seed, random_workload(3000 + seed), rates=ROUGH if seed % 2 else CALM)
    sim.watchers.append(deadlocks)
    sim.run_for(40.0)
    sim.settle()


def together(name: str, others: list[str], *, at_s: float, pods: int = 2, gpus: int = 4) -> Arrival:
    own = {GROUPS_KEY: msgspec.json.encode(others).decode(), "sim/run-s": "5"}
    made = tuple(
        make_pod(f"{name}-{k}", group=name, min_members=pods, gpus=gpus, annotations=own) for k in range(pods)
    )
    return Arrival(at_s, made, gap_s=0.05)


@pytest.mark.parametrize("seed", range(10))
def test_two_sets_with_room_for_one_both_finish(seed: int) -> None:
    """a-b and c-d interleaved member by member; each set needs both nodes."""
    arrivals = (
        together("a", ["a", "b"], at_s=1.0),
        together("c", ["c", "d"], at_s=1.02),
        together("b", ["a", "b"], at_s=1.5 + seed % 3),
        together("d", ["c", "d"], at_s=1.4 + seed % 4),
    )
    sim = Simulation(seed, Workload((make_node("n0"), make_node("n1")), arrivals))
    sim.watchers.append(deadlocks)
    sim.run_for(60.0)
    assert all(pod.spec.node_name for pod in sim.api.pods.values()), sim.scheduler.statistics()["groups"]
    sim.settle()


@pytest.mark.parametrize("shape", ["chain", "ring"])
@pytest.mark.parametrize("seed", range(6))
def test_two_chains_with_room_for_one_both_finish(seed: int, shape: str) -> None:
    """a-b-c and x-y-z, the ends first: held apart, each end would keep the room of the other's middle."""
    arrivals = []
    for names in ("abc", "xyz"):
        for i, name in enumerate(names):
            near = set(names) if shape == "ring" else {names[j] for j in (i - 1, i, i + 1) if 0 <= j < 3}
            at_s = {0: 1.0, 2: 1.1, 1: 2.0 + seed * 0.01}[i]
            arrivals.append(together(name, sorted(near), at_s=at_s, pods=1, gpus=8))
    nodes = tuple(make_node(f"n{i}") for i in range(4))
    sim = Simulation(seed, Workload(nodes, tuple(arrivals)))
    sim.watchers.append(deadlocks)
    sim.run_for(40.0)
    assert all(pod.spec.node_name for pod in sim.api.pods.values()), sim.scheduler.statistics()["groups"]
    sim.settle()


def test_members_that_come_later_find_no_room_and_no_group_holds_any_for_them() -> None:
    """Two gangs that wait for members, on room for one and a half of them: both finish, one by one."""
    arrivals = []
    for name in ("p", "q"):
        own = {TOTAL_MEMBERS_KEY: "4", "sim/run-s": "5"}
        made = tuple(
            make_pod(f"{name}-{k}", group=name, min_members=2, gpus=4, annotations=own) for k in range(4)
        )
        arrivals.append(Arrival(1.0, made, gap_s=0.5))
    sim = Simulation(1, Workload((make_node("n0"), make_node("n1"), make_node("n2")), tuple(arrivals)))
    sim.watchers.append(deadlocks)
    sim.run_for(60.0)
    assert all(pod.spec.node_name for pod in sim.api.pods.values()), sim.scheduler.statistics()["groups"]

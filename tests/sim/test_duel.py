"""Two schedulers that both believe they lead, in every storm: nothing is given twice; without a rule it is.

GANGSCHED_SEEDS says how many seeds, as in test_properties.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gangsched.core.scheduler import Scheduler
from gangsched.kube.election.fence import Fence, Fenced, FenceRecord
from gangsched.kube.election.steps import Create, Update
from gangsched.lab.sim.runs.driver import Broken
from gangsched.lab.sim.runs.duel import Duel, Replica
from gangsched.lab.sim.workloads.arrivals import random_workload
from gangsched.lab.sim.world.fence import FenceObject, SimFence
from gangsched.lab.sim.world.streams import API_VERSIONS
from gangsched.lab.sim.world.weather import STORM
from gangsched.model.effects import BindPod, Effect
from gangsched.model.events import Event, KindMissing, KindSynced, NodeAdded, PodAdded, PodGroupAdded
from tests.sim.test_museum_fence import forgets
from tests.support.inside import Inside

N_SEEDS = int(os.environ.get("GANGSCHED_SEEDS", "60"))
MAX_SEEDS = 60
# Many binds are late; little else goes wrong, so that there are many.
LATE = replace(STORM, late=0.3, lost_before=0.0, lost_after=0.0, conflict=0.0, longest_timeout_s=15.0)


def problem_of(duel: Duel) -> str:
    try:
        duel.run_for(40.0)
    except Broken as broken:
        return broken.problem
    return ""


@pytest.mark.parametrize("seed", range(N_SEEDS // 2))
def test_two_schedulers_that_both_believe_to_lead_give_nothing_twice(seed: int) -> None:
    duel = Duel(seed, random_workload(seed), STORM)
    duel.run_for(40.0)
    duel.settle()
    if (follower := duel.replicas[1]).fence is None and not follower.inbox:
        assert known_to(follower.scheduler) == known_to(started_now(duel))


def started_now(duel: Duel) -> Scheduler:
    """A process that receives everything as it is now."""
    api, fresh = duel.api, duel.make(duel.settings)
    events: list[Event] = [NodeAdded(node) for node in api.nodes.values()]
    events += [PodGroupAdded(key[0], API_VERSIONS[key[0]], item) for key, item in api.groups.items()]
    events += [PodAdded(pod) for pod in api.pods.values()]
    events += [KindSynced(kind) if kind in api.streams else KindMissing(kind) for kind in fresh.kinds]
    fresh.handle(events, duel.timeline.now_s)
    return fresh


def known_to(scheduler: Scheduler) -> dict[str, object]:
    """What a standby has learnt of each pod: it goes on from that."""
    found: dict[str, object] = {}
    for uid, info in Inside(scheduler).pod_infos().items():
        start = (info.rank, info.attempt) if info.pod.spec.node_name else ()
        found[uid] = (info.state, info.node_name, info.ids if info.node_name else {}, start, info.role)
    return found


@pytest.mark.parametrize("seed", range(N_SEEDS // 10))
def test_two_that_list_pods_before_they_place_them_give_nothing_twice(seed: int) -> None:
    duel = Duel(seed, random_workload(seed), STORM, foresees=True)
    duel.run_for(40.0)
    duel.settle()


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """No replica is deposed: each writes as if it owned the object."""

    def written(there: FenceObject, step: Create[FenceRecord] | Update[FenceRecord]) -> bool:
        there.record, there.version = step.record, there.version + 1
        return True

    patch.setattr(FenceObject, "write", written)


def no_version(patch: pytest.MonkeyPatch) -> None:
    """A bind carries the UID alone."""
    release = Replica._released

    def without(replica: Replica, effects: list[Fenced]) -> None:
        release(replica, [replace(e, resource_version="") if isinstance(e, BindPod) else e for e in effects])

    patch.setattr(Replica, "_released", without)


def no_bump(patch: pytest.MonkeyPatch) -> None:
    """A new leader bumps no pod."""
    patch.setattr(SimFence, "_bump_inherited", SimFence._ready)


def no_check_after_a_conflict(patch: pytest.MonkeyPatch) -> None:
    """A refused bind is sent again with what was read, the fence unasked."""
    hold = SimFence.holds_back

    def held(fence: SimFence, effect: Effect, answer: Callable[[Event], None]) -> bool:
        if isinstance(effect, BindPod):
            first = (effect.uid, effect.attempt)
            seen: set[tuple[str, int]] = fence.__dict__.setdefault("seen", set())
            if first in seen:
                return False
            seen.add(first)
        return hold(fence, effect, answer)

    patch.setattr(SimFence, "holds_back", held)


def version_read_late(patch: pytest.MonkeyPatch) -> None:
    """A bind carries the version of when it is sent, not of before it was listed."""
    send = Replica._send

    def late(replica: Replica, effects: list[Fenced], process: int) -> None:
        known, now = Inside(replica.scheduler).pod_infos(), list[Fenced]()
        for one in effects:
            if isinstance(one, BindPod) and one.uid in known:
                one = replace(one, resource_version=known[one.uid].pod.metadata.resource_version)
            now.append(one)
        send(replica, now, process)

    patch.setattr(Replica, "_send", late)


def ahead_only(patch: pytest.MonkeyPatch) -> None:
    """The list has what waits and what is in line, and not what is on its way."""
    patch.setattr(Fence, "_unsettled", lambda fence: {})


# Each with a seed from which on it is soon found: the last two take a conflict or a pause at one moment.
ABLATIONS = (
    (no_fence, 0),
    (no_version, 0),
    (no_bump, 0),
    (forgets, 0),
    (no_check_after_a_conflict, 418),
    (version_read_late, 1460),
)


@pytest.mark.parametrize(("broken", "first"), ABLATIONS)
def test_without_the_rule_it_is_caught(broken: Callable[[pytest.MonkeyPatch], None], first: int) -> None:
    _is_caught(broken, first)


def test_a_list_of_those_in_line_without_what_is_on_its_way_is_caught() -> None:
    _is_caught(ahead_only, 0, foresees=True)


def _is_caught(broken: Callable[[pytest.MonkeyPatch], None], first: int, *, foresees: bool = False) -> None:
    for seed in range(first, first + MAX_SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            broken(patch)
            problem = problem_of(Duel(seed, random_workload(seed), LATE, foresees=foresees))
        if problem:
            found_by = ("one-holder", "devices-as-bound", "whole-in-time")
            assert problem.split(" s: ")[1].startswith(found_by), problem
            duel = Duel(seed, random_workload(seed), LATE, foresees=foresees)
            assert not problem_of(duel), "broken with the rule too"
            return
    pytest.fail(f"not caught in {MAX_SEEDS} seeds")

"""The bug museum: mistakes that other schedulers made, put back one at a time. The checkers must see each.

Every exhibit has a seeded hunt (it must be caught within a bound of seeds) and the same hunt with the
unbroken scheduler, which must find nothing. The mistakes live here and nowhere else, but for those that
are not the core's to make, or whose cure is a rule with tests of its own:

    M1 assumed pods expire                               here
    M2 a reservation is dropped when a bind times out    here
    M3 a bind without a UID precondition                 here
    M4 the standby ignores its leader's updates          test_museum_faults, tests/core/test_audit.py
    M5 in flight and allocated are kept apart            test_museum_faults
    M6 the annotation is written before the bind         test_museum_faults
    M7 terminal pods are filtered out of the watch       here
    M8 a partly bound gang is ignored                    here
    M9 state keyed by name                               here
    M10 the first list comes from a lagging cache        test_museum_faults; tests/kube/test_watch_state.py
    M11 wall clock in leases and timeouts                test_museum_faults; leases: tests/kube/test_lease.py
    M12 Allocate goes to the first pending pod           test_admission_conflicts; of the node: tests/agent
    overflowing sums, depth, a believed 404, leaving     test_museum_faults
      for ever, an edit not read, a wrong parser
    chains of groups that cost their square              work counted: tests/core/test_start_together.py
    trees in managedFields                               tests/kube/test_watch_state.py
    a message for each of 5,000 pods                     tests/core/test_few_messages.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import BindState, Group, MemberState
from gangsched.core.types.states import STARTED
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import STRANGER, make_node, make_pod
from gangsched.lab.sim.runs.driver import Broken, Simulation
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload, random_workload
from gangsched.lab.sim.world.weather import STORM, Rates
from gangsched.model import events as ev
from gangsched.model.effects import Effect
from tests.support.breaking import searched
from tests.support.inside import Inside

MAX_SEEDS = 40
Make = Callable[[Settings], Scheduler]


class AssumedPodsExpire:
    """M1: 30 s after it was sent, a bind without an answer is taken for dead and its room given away."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._inner, self._since_s = scheduler, dict[str, float]()
        self._advance = scheduler.handle

    def handle(self, events: Sequence[ev.Event], now_s: float) -> list[Effect]:
        shared = self._inner.shared
        effects = self._advance(events, now_s)
        for info in list(shared.cache.pods.values()):
            if info.state is not MemberState.ASSUMED or info.bind is BindState.NONE:
                self._since_s.pop(info.uid, None)
            elif now_s - self._since_s.setdefault(info.uid, now_s) > 30.0:
                self._inner.binder.fenced.lost(info, "expired", MemberState.PENDING)
        return [*effects, *self._advance([], now_s)]


def m1_assumed_pods_expire(settings: Settings) -> Scheduler:
    scheduler = make_scheduler(settings)
    scheduler.handle = AssumedPodsExpire(scheduler).handle  # type: ignore[method-assign]
    return scheduler


def m2_unknown_means_no(settings: Settings) -> Scheduler:
    """M2: a bind that timed out is a failed bind: the reservation is dropped, and the server is not asked."""
    scheduler = make_scheduler(settings)

    def dropped(event: ev.BindUnknown) -> None:
        scheduler.binder.failed(ev.BindFailed(event.uid, event.attempt, 504, "Timeout", event.message))

    scheduler._on_event[ev.BindUnknown] = dropped
    return scheduler


def m7_terminal_pods_are_not_watched(settings: Settings) -> Scheduler:
    """M7: a watch with a field selector shows a pod that has ended as deleted."""
    scheduler = make_scheduler(settings)
    handle = scheduler.handle

    def filtered(events: Sequence[ev.Event], now_s: float) -> list[Effect]:
        seen: list[ev.Event] = []
        for event in events:
            if isinstance(event, ev.PodAdded | ev.PodUpdated) and event.pod.is_terminal:
                event = ev.PodDeleted(event.pod)
            seen.append(event)
        return handle(seen, now_s)

    scheduler.handle = filtered  # type: ignore[method-assign]
    return scheduler


def m8_half_bound_is_no_state(settings: Settings) -> Scheduler:
    """M8: a partly bound gang is taken for a started one, and what did not fit waits like any pod."""
    scheduler = make_scheduler(settings)

    def ignored(group: Group) -> None:
        group.start = STARTED
        scheduler.shared.mark_group(group)

    scheduler.reconciler.recover = ignored  # type: ignore[method-assign]
    scheduler.binder.outcome.half_bound = ignored  # type: ignore[method-assign]
    return scheduler


def m9_keyed_by_name(settings: Settings) -> Scheduler:
    """M9: a pod deleted and recreated is one update to a watch keyed by name, and inherits what was known."""
    scheduler = make_scheduler(settings)
    handle, put = scheduler.handle, scheduler.membership.put_pods

    def by_name(events: Iterator[ev.PodAdded | ev.PodUpdated]) -> None:
        for event in events:
            same = (info for info in Inside(scheduler).pod_infos().values() if info.pod.key == event.pod.key)
            known = next(same, None)
            if known is None or known.uid == event.pod.metadata.uid:
                put((event,))
            else:
                known.pod = event.pod

    def merged(events: Sequence[ev.Event], now_s: float) -> list[Effect]:
        left: list[ev.Event] = []
        for i, event in enumerate(events):
            later = (e.pod.key for e in events[i:] if isinstance(e, ev.PodAdded))
            if not isinstance(event, ev.PodDeleted) or event.pod.key not in later:
                left.append(event)
        return handle(left, now_s)

    scheduler._on_run[ev.PodAdded] = by_name
    scheduler._on_run[ev.PodUpdated] = by_name
    scheduler.handle = merged  # type: ignore[method-assign]
    return scheduler


def caught(seed: int, make: Make, *, checks_bind_uid: bool = True, rates: Rates = STORM) -> str:
    """What the checkers say of one seed; nothing when all is well."""
    sim = Simulation(seed, random_workload(seed), rates=rates, make=make)
    sim.api.checks_bind_uid = checks_bind_uid
    try:
        sim.run_for(40.0)
        sim.weather.clear()
        sim.run_for(rates.longest_timeout_s)
        sim.settle()
    except Broken as broken:
        return broken.problem
    return ""


# A server that stalls for a minute, as etcd does when its disk is full: what M1 takes for dead comes late.
STALLING = msgspec.structs.replace(STORM, late=0.15, longest_timeout_s=60.0, mischief_per_s=0.4)
# The mistake, whether the server checks the UID, and the judges of which one must find it.
EXHIBITS: dict[str, tuple[Make, bool, tuple[str, ...]]] = {
    "M1 assumed pods expire": (m1_assumed_pods_expire, True, ("one-holder", "room", "devices-as-bound")),
    "M2 reservation dropped when a bind times out": (
        m2_unknown_means_no,
        True,
        ("one-holder", "room", "devices-as-bound"),
    ),
    "M3 bind without a UID precondition": (make_scheduler, False, ("whole-in-time",)),
    "M7 terminal pods filtered out": (
        m7_terminal_pods_are_not_watched,
        True,
        ("nothing-forgotten", "pages-true"),
    ),
    "M9 state keyed by name": (m9_keyed_by_name, True, ("nothing-forgotten", "pages-true")),
}


@pytest.mark.parametrize("exhibit", EXHIBITS)
def test_the_mistake_is_caught(exhibit: str) -> None:
    make, checks_bind_uid, judges = EXHIBITS[exhibit]
    rates = STALLING if exhibit.startswith("M1") else STORM
    for seed in searched(exhibit, MAX_SEEDS):
        problem = caught(seed, make, checks_bind_uid=checks_bind_uid, rates=rates)
        if problem and problem.split(" s: ")[1].startswith(judges):
            mended = caught(seed, make_scheduler, rates=rates)
            assert not mended, f"broken without the mistake too: {mended}"
            return
    pytest.fail(f"{exhibit}: not caught in {MAX_SEEDS} seeds")


def killed_half_way(make: Make, n_sent: int) -> str:
    """Killed after n binds of a gang of 4; another scheduler takes all the rest before the restart."""
    nodes = tuple(make_node(f"n{i}") for i in range(4))
    pods = tuple(make_pod(f"a-{k}", group="a", min_members=4, gpus=8) for k in range(4))
    sim = Simulation(n_sent, Workload(nodes, (Arrival(1.0, pods),)), make=make)
    sim.run_for(1.0)
    sim.die_after(n_sent)
    while not sim.n_crashes:
        sim.run_for(0.001)
    taken = {pod.spec.node_name for pod in sim.api.pods.values()}
    for name in sorted(set(sim.api.nodes) - taken):
        stranger = make_pod(f"stranger-{name}", gpus=8, scheduler=STRANGER)
        sim.api.create_pod(stranger)
        sim.api.bind_as_stranger(stranger, name)
    sim.calm_since_s = sim.timeline.now_s
    try:
        sim.run_for(sim.settings.settle_s + 30.0)
    except Broken as broken:
        return broken.problem
    return ""


def test_m8_a_partly_bound_gang_that_is_ignored_is_caught() -> None:
    problems = [killed_half_way(m8_half_bound_is_no_state, n) for n in range(1, 5)]
    assert any("whole-in-time: gang d/a has been half bound" in problem for problem in problems), problems
    assert [killed_half_way(make_scheduler, n) for n in range(1, 5)] == [""] * 4


def test_a_bind_that_outlives_its_process_is_harmless() -> None:
    """The server gets to a dead process's Binding after its successor has listed the pod as unbound."""
    for seed in range(MAX_SEEDS):
        sim = Simulation(seed, random_workload(seed), rates=STALLING, settings=Settings(fence=True))
        try:
            sim.run_for(40.0)
        except Broken as broken:
            pytest.fail(broken.problem, pytrace=False)

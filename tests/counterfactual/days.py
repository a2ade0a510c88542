"""Days recorded by the simulator: its core writes a journal, as the recorder does, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from gangsched.config import SchedulerConfig, Settings, default_config, parse_config
from gangsched.config.effective import effective_yaml
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.journal.recorder import Picks, versions
from gangsched.journal.records import FORMAT, End, Start, Turn, digest, encoded_events, framed
from gangsched.journal.segments import Stream, name_of
from gangsched.lab.sim.objects import at, make_node, make_pod
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY
from gangsched.model.effects import Effect
from gangsched.model.events import Event
from gangsched.model.objects import Node
from gangsched.plugins import IN_TREE, build_profiles

EPOCH_S = at(0.0).timestamp()


class _RecordingCore(Scheduler):
    """The core, which writes down what it is told."""

    records: list[bytes]
    picks: Picks

    def handle(self, events: Sequence[Event], now_s: float) -> list[Effect]:
        body = encoded_events(events)
        effects = super().handle(events, now_s)
        turn = Turn("handle", now_s, digest(effects), msgspec.Raw(body), None, self.picks.take())
        self.records.append(framed(turn))
        return effects

    def advance(self, now_s: float) -> list[Effect]:
        effects = super().advance(now_s)
        self.records.append(framed(Turn("advance", now_s, digest(effects), picks=self.picks.take())))
        return effects

    def schedule(self, group: Group, now_s: float) -> list[Effect]:
        effects = super().schedule(group, now_s)
        turn = Turn("schedule", now_s, digest(effects), group=group.key, picks=self.picks.take())
        self.records.append(framed(turn))
        return effects


def record(
    directory: Path,
    nodes: Sequence[Node],
    arrivals: Sequence[Arrival],
    *,
    for_s: float,
    config: SchedulerConfig | None = None,
    crash_s: float = 0.0,
    also: Callable[[Simulation], None] = lambda simulation: None,
) -> None:
    """The journal of a calm day, a file a process in `directory`. crash_s: when the first one is killed.

    also: what else is to happen.
    """
    used = config or default_config(IN_TREE)
    processes: list[list[bytes]] = []
    simulations: list[Simulation] = []

    def make(settings: Settings) -> Scheduler:
        picks = Picks(Random(1).randrange)
        core = _RecordingCore(build_profiles(used), settings, pick=picks, wall_ahead_s=EPOCH_S)
        now_s = simulations[0].timeline.now_s if simulations else 0.0
        start = Start(FORMAT, EPOCH_S + now_s, now_s, True, effective_yaml(used), {}, versions())
        processes.append([framed(start)])
        core.records, core.picks = processes[-1], picks
        return core

    workload = Workload(tuple(nodes), tuple(arrivals))
    simulations.append(Simulation(1, workload, settings=used.settings, make=make))
    also(simulations[0])
    if crash_s:
        simulations[0].run_for(crash_s)
        simulations[0].crash()
    simulations[0].run_for(for_s - crash_s)
    processes[-1].append(framed(End(for_s, "the scheduler stopped")))
    directory.mkdir(exist_ok=True)
    for number, records in enumerate(processes):
        stream = Stream()
        path = directory / name_of(f"day{number}", 1)
        path.write_bytes(stream.take(records) + stream.end())


def gang(at_s: float, name: str, *, pods: int, gpus: int, run_s: float = 0.0, **more: Any) -> Arrival:
    """Pods of gangs that come at once; run_s 0: they run for ever."""
    own = {RUN_KEY: f"{run_s:g}"} if run_s else {}
    if more.pop("controlled", False):
        own[CONTROLLED_KEY] = "true"
    members = tuple(
        make_pod(f"{name}-{k}", group=name, min_members=pods, gpus=gpus, annotations=own, **more)
        for k in range(pods)
    )
    return Arrival(at_s, members)


def cluster(n: int, gpus: int = 8) -> list[Node]:
    return [make_node(f"n{i}", gpus=gpus, rack=f"r{i // 4}") for i in range(n)]


def configured(text: str) -> SchedulerConfig:
    return parse_config(text, source="a test", plugins=IN_TREE)


def preempted() -> list[Arrival]:
    """On two nodes: at 100 s `low` is evicted for `high`, and made again; `late` waits for both."""
    return [
        gang(10.0, "low", pods=2, gpus=8, run_s=300.0, controlled=True),
        gang(100.0, "high", pods=2, gpus=8, run_s=200.0, priority=10),
        gang(150.0, "late", pods=2, gpus=8, run_s=20.0, priority=-1),
    ]

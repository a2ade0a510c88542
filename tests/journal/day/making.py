"""Schedulers on the day's cluster, each recorded from its start: what `make day` keeps.

The loop is app.py's in virtual time: a batch of events, due deadlines, a few groups. Nothing is checked here;
the storms of gangsched.lab.sim do that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import msgspec
import zstandard

from gangsched.config import SchedulerConfig, parse_config
from gangsched.core.groups.attempts.extenders import ExtenderVerdicts
from gangsched.core.scheduler import Scheduler
from gangsched.extenders.asking import verdicts_of
from gangsched.journal.counted import Counted
from gangsched.journal.recorder import Recorder
from gangsched.journal.records import HEAD, Reconfigured, Start, Turn, framed, read_record
from gangsched.lab.sim.objects import at
from gangsched.lab.sim.world.weather import Rates
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.plugins import IN_TREE, build_profiles
from tests.journal.day.cluster import RATES, DayCluster, nodes_of
from tests.journal.day.shapes import LICENCE, day_of_gangs, line_of_gangs

SEED = 20
N_GANGS = 2000
DAY_S = 86_400.0
_EPOCH_S = at(0.0).timestamp()
_PER_TURN = 4
# Many events in one turn, at times of few digits: a fifth of the calls, and of the bytes.
_TURN_S = 0.25
# The level of zstd is nothing to whoever reads it.
_LEVEL = 19

MORNING = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
profiles:
- schedulerName: gangsched
  plugins:
    score: {{disabled: [{{name: NodeResourcesBalancedAllocation}}, {{name: ImageLocality}}]}}
  pluginConfig:
  - name: PodTopologySpread
    args: {{defaultingType: List}}
extenders:
- urlPrefix: http://licences.example.com
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 1
  nodeCacheCapable: true
  managedResources: [{{name: {LICENCE}, ignoredByScheduler: true}}]
"""
AFTERNOON = f"""{MORNING}
---
apiVersion: gangsched.io/v1
kind: GangschedConfiguration
packing: {{weight: 50}}
permitWaitSeconds: 30
"""
QUEUES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: gangsched
---
apiVersion: gangsched.io/v1
kind: GangschedConfiguration
queueing: {bound: {groups: 6, mode: hard}, defaultWalltime: 1h}
fairness: {halfLife: 1h, compare: [nvidia.com/gpu]}
queues:
- name: research
  share: 2
  guaranteed: {nvidia.com/gpu: 32}
  queues:
  - {name: nlp, guaranteed: {nvidia.com/gpu: 16}, limit: {nvidia.com/gpu: 48}, namespaces: [nlp]}
  - {name: cv, order: shortest, namespaces: [cv]}
- name: rest
  namespaces: ["*"]
"""


class _Kept:
    """Takes a process's records, as lines, compressed at once.

    Without digests and frames, whose bytes are a third of a journal's: what is decided is compared otherwise
    here, and a file of the repository is whole.
    """

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._stream = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
        self._parts: list[bytes] = []

    def put(self, record: bytes) -> str:
        kept = read_record(record[HEAD.size :])
        if isinstance(kept, Start):  # of the day, and of no machine
            at_s = _EPOCH_S + self._now_s
            kept = msgspec.structs.replace(kept, wall_s=at_s, now_s=self._now_s, versions={})
        elif isinstance(kept, Turn | Reconfigured):
            kept = msgspec.structs.replace(kept, effects="")
        self._parts.append(self._stream.compress(framed(kept)[HEAD.size :]))
        return ""

    @property
    def wants_segment(self) -> bool:
        return False

    def begin_segment(self, number: int, write: Callable[[], list[bytes]]) -> None:
        raise AssertionError("none is wanted")

    def skip(self) -> None:
        raise AssertionError("a record of the day cannot be written down")

    def lose(self, why: str) -> None:
        raise AssertionError(why)

    @property
    def counted(self) -> Counted:
        return Counted(0, 0, 0, 0, 0, goes_on=True)

    def body(self) -> bytes:
        return b"".join((*self._parts, self._stream.flush()))


class _Process:
    """One scheduler, recorded."""

    def __init__(self, text: str, pick: Callable[[int], int], now_s: float, *, leads: bool) -> None:
        config = parse_config(text, source="the day", plugins=IN_TREE)
        self._extenders = verdicts_of(config.extenders) if config.extenders else None
        self.kept = _Kept(now_s)
        self.recorder = Recorder(self.kept, pick)
        self.scheduler = Scheduler(
            build_profiles(config, extenders=self._extenders),
            config.settings,
            leading=leads,
            pick=self.recorder.picks,
            extenders=self._extenders,
            guard=_raise,
            wall_ahead_s=_EPOCH_S,
        )
        self.recorder.begin(self.scheduler, config, partial(_core_like, self._extenders), leading=leads)

    def reconfigure(self, text: str, now_s: float) -> list[ef.Effect]:
        config = parse_config(text, source="the day", plugins=IN_TREE)
        profiles = build_profiles(config, extenders=self._extenders)
        effects, _ = self.recorder.reconfigure(profiles, config, now_s)
        return effects


def _core_like(extenders: ExtenderVerdicts | None, config: SchedulerConfig) -> Any:
    raise AssertionError("a state is written at a segment's end, and there is none")


def _raise(defect: Any) -> None:
    raise AssertionError(f"a fault of the core: {defect}")


class _Run:
    """Processes in one cluster, one after the other."""

    def __init__(self, cluster: Callable[[Callable[[ev.Event], None]], DayCluster], seed: int) -> None:
        self._inbox: list[ev.Event] = []
        self._cluster = cluster(self._inbox.append)
        self._timeline = self._cluster.timeline
        self._rng = Random(f"{seed}-making")

    def play(self, text: str, until_s: float, *, reloads: dict[float, str], leads: bool = True) -> bytes:
        """A process from now on, which is killed then. Returns its journal."""
        self._inbox.clear()
        process = _Process(text, self._rng.randrange, self._timeline.now_s, leads=leads)
        scheduler, decider = process.scheduler, process.recorder
        self._inbox += self._cluster.missing(scheduler.kinds)
        self._cluster.connect()
        if not leads:
            self._timeline.after(5.0, lambda: self._inbox.append(ev.LeadershipGained()))
        for at_s, other in reloads.items():
            self._timeline.at(at_s, partial(self._reload, process, other))
        while (soonest := self._soonest(scheduler)) <= until_s:
            self._timeline.advance_to(soonest)
            now_s = self._timeline.now_s
            if self._inbox:
                batch = list(self._inbox)
                self._inbox.clear()
                self._send(decider.handle(batch, now_s))
                scheduler.newly_watched()
            deadline_s = scheduler.next_deadline_s()
            if deadline_s is not None and deadline_s <= now_s:
                self._send(decider.advance(now_s))
            for _ in range(_PER_TURN):
                group = decider.pop()
                if group is None:
                    break
                self._send(decider.schedule(group, now_s))
        self._timeline.advance_to(until_s)
        decider.end("the day is over", until_s)
        return process.kept.body()

    def _reload(self, process: _Process, text: str) -> None:
        self._send(process.reconfigure(text, self._timeline.now_s))

    def _soonest(self, scheduler: Scheduler) -> float:
        """When the next turn is."""
        times = [self._timeline.next_s()]
        deadline_s = scheduler.next_deadline_s()
        if deadline_s is not None:
            times.append(deadline_s)
        if self._inbox or scheduler.n_active:
            times.append(self._timeline.now_s + _TURN_S)
        soonest = max(min(times), self._timeline.now_s)
        return math.ceil(soonest / _TURN_S) * _TURN_S if math.isfinite(soonest) else soonest

    def _send(self, effects: list[ef.Effect]) -> None:
        for effect in effects:
            self._cluster.carry_out(effect)


def journals(n_gangs: int = N_GANGS, *, day_s: float = DAY_S) -> Iterator[tuple[str, bytes]]:
    """Name and body of each process's journal: two schedulers of the day, the second of which takes over, and
    one with queues."""
    coming = day_of_gangs(SEED, n_gangs, over_s=day_s)
    run = _Run(partial(DayCluster, SEED, nodes_of(6, 8), coming, RATES), SEED)
    yield "1-day", run.play(MORNING, day_s * 0.6, reloads={day_s * 0.3: AFTERNOON})
    yield "2-day", run.play(AFTERNOON, day_s, reloads={}, leads=False)
    line = line_of_gangs(SEED, max(n_gangs // 20, 4), over_s=day_s / 12)
    queues = _Run(partial(DayCluster, SEED, nodes_of(2, 4), line, Rates()), SEED)
    yield "3-queues", queues.play(QUEUES, day_s / 12, reloads={})

"""A day under a configuration: the real core in virtual time on the model's cluster.

The core is driven as by process.app: events, deadlines, then groups until none can be tried. Deciding takes
no time here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

import msgspec
import numpy as np
from msgspec.structs import replace

from gangsched.config import SchedulerConfig, Settings
from gangsched.core.cache.cache import Cache
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.core.turns.steps import Defect
from gangsched.errors import GangschedError
from gangsched.lab.counterfactual.cluster import Cluster, Course
from gangsched.lab.counterfactual.day import Day
from gangsched.lab.sim.world.store import KINDS
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.web.board.history import device_use

N_SAMPLES = 480
# A core with this many turns at one moment is in an endless loop.
_MAX_TURNS = 100_000


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """used: the share of devices in use, or of cpu if nodes have no devices; split: the share of free devices
    on nodes where others are in use; None: none are free, or there are none.
    """

    at_s: float
    used: float
    split: float | None


class Plan(msgspec.Struct, frozen=True):
    """A configuration from a time on. build: makes new profiles for each run, as plugins have state."""

    from_s: float
    config: SchedulerConfig
    build: Callable[[], Mapping[str, Profile]]


class Outcome(msgspec.Struct):
    """The day's outcome. courses: by UID; missing: kinds that a plugin reads and the journal lacks. defects:
    bugs of our own that the core has contained.
    """

    courses: dict[str, Course]
    samples: list[Sample]
    n_evicted: int
    n_delayed: int
    missing: list[str]
    defects: list[str]


def run(day: Day, plans: Sequence[Plan]) -> Outcome:
    """Runs the day to its end. Raises: GangschedError (the core never comes to rest)."""
    return _Model(day, plans).run()


def as_recorded(day: Day, plan: Plan) -> list[Sample]:
    """Returns how full the cluster was in the recording, with every pod bound as recorded."""
    return _Model(day, [plan], decides=False).run().samples


class _Model:
    def __init__(self, day: Day, plans: Sequence[Plan], *, decides: bool = True) -> None:
        first = plans[0]
        self._day = day
        self._inbox: list[ev.Event] = []
        profiles = first.build()
        self._cluster = Cluster(day, tuple(profiles) if decides else (), self._inbox.append)
        self._timeline = self._cluster.timeline
        self._defects: list[Defect] = []
        self._core = Scheduler(
            profiles,
            settings_of(first.config),
            leading=decides,
            pick=Random("ties").randrange,
            guard=self._defects.append,
            wall_ahead_s=day.began_wall_s,
        )
        self._cluster.group_of = self._group_of
        self._missing: dict[str, None] = {}
        self._samples: list[Sample] = []
        self._later = list(plans[1:])
        other = (other.event for other in day.others if other.at_s > 0.0)
        self._comes_later = {one.kind for one in other if isinstance(one, ev.KindSynced | ev.KindMissing)}

    def run(self) -> Outcome:
        """Runs the whole day."""
        day, timeline = self._day, self._timeline
        for plan in self._later:
            timeline.at(plan.from_s, partial(self._reconfigure, plan))
        self._cluster.begin()
        self._kinds(self._core.kinds)
        for k in range(N_SAMPLES):
            self._run_until(day.length_s * (k + 0.5) / N_SAMPLES)
            self._samples.append(sampled(self._core.shared.cache, timeline.now_s))
        self._run_until(day.length_s)
        for uid, course in self._cluster.courses.items():
            course.group = course.group or self._group_of(uid)
        return Outcome(
            self._cluster.courses,
            self._samples,
            self._cluster.n_evicted,
            self._cluster.n_delayed,
            sorted(self._missing),
            [one.problem for one in self._defects],
        )

    def _group_of(self, uid: str) -> str:
        info = self._core.shared.cache.pods.get(uid)
        return "" if info is None or info.group is None else str(info.group.key)

    def _kinds(self, kinds: Sequence[str]) -> None:
        """Answers as the journal does for kinds that the store does not watch."""
        for kind in kinds:
            if kind in KINDS or kind in self._comes_later:
                continue
            is_served = self._day.kinds.get(kind)
            if is_served is None:
                self._missing[kind] = None
            self._inbox.append(ev.KindSynced(kind) if is_served else ev.KindMissing(kind))

    def _reconfigure(self, plan: Plan) -> None:
        now_s = self._timeline.now_s
        effects, more = self._core.reconfigure(plan.build(), settings_of(plan.config), now_s)
        self._carry_out(effects)
        self._kinds(more)

    def _run_until(self, until_s: float) -> None:
        timeline = self._timeline
        n_turns, last_s = 0, -1.0
        while True:
            soonest_s = timeline.next_s()
            deadline_s = self._core.next_deadline_s()
            if deadline_s is not None:
                soonest_s = min(soonest_s, deadline_s)
            if self._inbox or self._core.n_active:
                soonest_s = timeline.now_s
            if soonest_s > until_s:
                break
            timeline.advance_to(max(soonest_s, timeline.now_s))
            n_turns = n_turns + 1 if timeline.now_s == last_s else 0
            last_s = timeline.now_s
            if n_turns > _MAX_TURNS:
                raise GangschedError(f"the core does not rest at {last_s:.3f} s")
            self._turn()
        timeline.advance_to(until_s)

    def _turn(self) -> None:
        core, now_s = self._core, self._timeline.now_s
        if self._inbox:
            batch = list(self._inbox)
            self._inbox.clear()
            self._carry_out(core.handle(batch, now_s))
            self._kinds(core.newly_watched())
        deadline_s = core.next_deadline_s()
        if deadline_s is not None and deadline_s <= now_s:
            self._carry_out(core.advance(now_s))
        while (effects := core.schedule_next(now_s)) is not None:
            self._carry_out(effects)

    def _carry_out(self, effects: Sequence[ef.Effect]) -> None:
        for effect in effects:
            self._cluster.carry_out(effect)


def settings_of(config: SchedulerConfig) -> Settings:
    """Returns settings without the fence, which protects binds from other processes and decides nothing."""
    return replace(config.settings, fence=False)


def sampled(cache: Cache, now_s: float) -> Sample:
    """Samples the cluster's current state."""
    used, split = device_use(cache)
    if used is None:
        nodes = cache.nodes
        has = int(nodes.allocatable[0].sum())
        used = 1.0 - int(np.maximum(nodes.free[0], 0).sum()) / has if has else 0.0
    return Sample(now_s, used, split)

"""ReloadSimulation: a storm in which the configuration changes while everything else goes wrong too.

A seed draws a workload of other storms, and every few seconds another configuration: profiles come and go,
queues come, go and have other names, claims, evictions and unwinding are switched on and off. When the storm
is over, a last one is in effect, which allows evictions. Not here: which parts of a file need a restart
(extension.reload); these stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.config import SchedulerConfig, Settings, parse_config
from gangsched.config.documents import KUBE_API_VERSION, KUBE_KIND, OUR_API_VERSION, OUR_KIND
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.sim import teams
from gangsched.sim.capped import capped_workload
from gangsched.sim.driver import Simulation
from gangsched.sim.given_back import lending_workload
from gangsched.sim.limits import limited_workload, overtime_workload
from gangsched.sim.making import scheduler_of
from gangsched.sim.objects import OURS
from gangsched.sim.step_judges import StepJudges
from gangsched.sim.workloads import Workload, preempting_workload, random_workload

OTHER = "batch"
"""The profile that comes and goes."""
_LEAVES_S = 0.05
_BETWEEN_S = (1.0, 12.0)
_OTHER_SHARE = 0.15
_WORKLOADS = (
    partial(limited_workload, n_arrivals=24),
    overtime_workload,
    teams.teams_workload,
    partial(lending_workload, over_s=45.0),
    partial(capped_workload, over_s=45.0),
    partial(preempting_workload, stubborn=False),
    random_workload,
)
_TREES = {
    "": "",
    "teams": """
queues:
- {name: a, share: 2, guaranteed: {nvidia.com/gpu: 4}, namespaces: [d]}
- {name: b, guaranteed: {nvidia.com/gpu: 2}, order: shortest, namespaces: ["d*"]}
- {name: c, namespaces: ["*"]}
""",
    "teams, sorted otherwise": """
queues:
- {name: a, guaranteed: {nvidia.com/gpu: 4}, order: shortest, namespaces: [d]}
- {name: b, share: 3, guaranteed: {nvidia.com/gpu: 2}, namespaces: ["d*"]}
- {name: c, order: shortest, namespaces: ["*"]}
""",
    "limited": """
queues:
- name: ab
  limit: {nvidia.com/gpu: 6}
  queues:
  - {name: a, limit: {nvidia.com/gpu: 4}, namespaces: [d]}
  - {name: b, order: shortest, namespaces: ["d*"]}
- {name: c, namespaces: ["*"]}
""",
    "other names": """
queues:
- name: all
  guaranteed: {nvidia.com/gpu: 3}
  limit: {nvidia.com/gpu: 9}
  queues:
  - {name: x, guaranteed: {nvidia.com/gpu: 3}, namespaces: [d]}
  - {name: c, share: 2, order: shortest, namespaces: ["*"], defaultWalltime: 20s}
""",
}
_UNJUDGED = ("other names",)
_NEEDS_WALLTIMES = (", order: shortest", ", defaultWalltime: 20s")
_FAIRNESS = "fairness: {halfLife: 20s, compare: [nvidia.com/gpu]}\n"
_PROFILES = (
    f"[{{schedulerName: {OURS}}}]",
    f"[{{schedulerName: {OURS}}}, {{schedulerName: {OTHER}}}]",
    f'[{{schedulerName: {OURS}, plugins: {{score: {{disabled: [{{name: "*"}}]}}}}}}]',
)


class Drawn(msgspec.Struct, frozen=True):
    """A configuration of a storm. tree: a key of the trees; has_claims: queueing is on."""

    profiles: int
    tree: str
    bound: int | None
    mode: str
    on_overrun: str
    has_claims: bool
    allow_eviction: bool
    on_partial_bind: str
    permit_wait_s: float

    def applied(self, settings: Settings) -> tuple[SchedulerConfig, Settings]:
        """The file, and `settings` with what it says."""
        config = _config(self.profiles, self.tree, self._queueing)
        own = config.settings
        changed: dict[str, Any] = {
            "queueing": own.queueing,
            "queues": own.queues,
            "allow_eviction": self.allow_eviction,
            "on_partial_bind": self.on_partial_bind,
            "permit_wait_s": self.permit_wait_s,
        }
        return config, replace(settings, **changed)

    @property
    def _queueing(self) -> str:
        if not self.has_claims:
            return ""
        bound = "auto" if self.bound is None else self.bound
        overrun = "" if self.mode == "shadow" else f", onOverrun: {self.on_overrun}"
        return f"queueing: {{bound: {{groups: {bound}, mode: {self.mode}}}{overrun}}}\n"


def draw(rng: Random, *, is_last: bool = False) -> Drawn:
    """is_last: with this one all comes to rest."""
    return Drawn(
        profiles=rng.randrange(len(_PROFILES)),
        tree=rng.choice(tuple(_TREES)),
        bound=rng.choice((1, 2, 3, None)),
        mode=rng.choice(("hard", "hard", "hard", "budget", "shadow")),
        on_overrun=rng.choice(("none", "yield", "evict")),
        has_claims=rng.random() < 0.8,
        allow_eviction=is_last or rng.random() < 0.7,
        on_partial_bind=rng.choice(("complete", "unwind")),
        permit_wait_s=rng.choice((3.0, 15.0)),
    )


@cache
def _config(profiles: int, tree: str, queueing: str) -> SchedulerConfig:
    """Read once: a run of seeds draws thousands of them."""
    fairness, queues = _FAIRNESS if tree else "", _TREES[tree]
    if not queueing:
        for field in _NEEDS_WALLTIMES:
            queues = queues.replace(field, "")
    text = (
        f"apiVersion: {KUBE_API_VERSION}\nkind: {KUBE_KIND}\nprofiles: {_PROFILES[profiles]}\n"
        f"---\napiVersion: {OUR_API_VERSION}\nkind: {OUR_KIND}\n{queueing}{fairness}{queues}"
    )
    return parse_config(text, source="a storm", plugins=IN_TREE)


def reloads_workload(seed: int) -> Workload:
    """One of those of other storms, in which some groups are of the profile that comes and goes."""
    workload, rng = _WORKLOADS[seed % len(_WORKLOADS)](seed), Random(f"{seed}-profiles")
    arrivals = []
    for one in workload.arrivals:
        if rng.random() < _OTHER_SHARE and all(pod.spec.scheduler_name == OURS for pod in one.pods):
            pods = (replace(pod, spec=replace(pod.spec, scheduler_name=OTHER)) for pod in one.pods)
            one = replace(one, pods=tuple(pods))
        arrivals.append(one)
    return replace(workload, arrivals=tuple(arrivals))


class ReloadSimulation(Simulation):
    """A simulation in which the configuration changes."""

    def __init__(self, seed: int, workload: Workload, *, settings: Settings, **named: Any) -> None:
        self._draws = Random(f"{seed}-reloads")
        self._fixed = settings
        self._drawn = draw(self._draws)
        self._config, first = self._drawn.applied(settings)
        self._untold: Scheduler | None = None
        """Who lists all pods again, and has not heard them yet."""
        self.n_reloads = 0
        super().__init__(seed, workload, settings=first, **{**named, "make": self._make_now})

    def _make_now(self, settings: Settings) -> Scheduler:
        return scheduler_of(self._config, settings)

    def _begin(self, workload: Workload) -> None:
        self.timeline.after(self._draws.uniform(*_BETWEEN_S), self._next)
        super()._begin(workload)

    def _next(self) -> None:
        if not self.calm_since_s:
            self._take(draw(self._draws))
            self.timeline.after(self._draws.uniform(*_BETWEEN_S), self._next)

    def _take(self, drawn: Drawn) -> None:
        """Takes it over, and once more when no gang of a profile that goes is on its way."""
        config, settings = drawn.applied(self._fixed)
        profiles = build_profiles(config)
        if self.scheduler.shared.profiles.keys() != profiles.keys():  # some pods were nobody's until now
            self._untold = self.scheduler
            self.timeline.after(self._draws.uniform(0.0, 1.0), partial(self._tell_pods_anew, self.scheduler))
        self._drawn, self._config, self.settings = drawn, config, settings
        self.n_reloads += 1
        self.judges.take(settings, knows_queues=drawn.tree not in _UNJUDGED)
        self._note(f"reloads {drawn}")
        self._step(partial(self._reconfigured, profiles))
        self._leave(drawn, profiles)

    @property
    def _is_quiet(self) -> bool:
        is_taken = self._untold is not self.scheduler and not self.scheduler.is_retiring
        return is_taken and super()._is_quiet

    def _tell_pods_anew(self, scheduler: Scheduler) -> None:
        """A list is one batch, behind what was heard before."""
        self._untold = None
        if scheduler is self.scheduler:
            self.told.hear(self.inbox)
            batch = [*self.inbox, *map(ev.PodUpdated, self.told.pods.values())]
            self.inbox = []
            self._note("told anew", batch)
            self._step(partial(scheduler.handle, batch, self.timeline.now_s))

    def _new_judges(self) -> StepJudges:
        judges = StepJudges(self.settings, follows=True, knows_queues=self._drawn.tree not in _UNJUDGED)
        judges.excuses = lambda group: group.scheduler_name in self.scheduler.shared.retiring
        return judges

    def _leave(self, drawn: Drawn, profiles: Mapping[str, Profile]) -> None:
        if drawn is not self._drawn or not self.scheduler.is_retiring:
            return
        if self.scheduler.unfinished(profiles):
            self.timeline.after(_LEAVES_S, partial(self._leave, drawn, profiles))
        else:
            self._note("a profile is gone")
            self._step(partial(self._reconfigured, profiles))

    def _reconfigured(self, profiles: Mapping[str, Profile]) -> list[ef.Effect]:
        effects, more = self.scheduler.reconfigure(profiles, self.settings, self.timeline.now_s)
        self.inbox += [ev.KindMissing(kind) for kind in more if kind not in self.api.streams]
        return effects

    def _send(self, effect: ef.Effect) -> None:
        if isinstance(effect, ef.EvictPod | ef.DeletePod) and not self.settings.allow_eviction:
            self._judge([f"41: {effect.name} is evicted, which the configuration does not allow"])
        super()._send(effect)

    def settle(self) -> None:
        """As in other storms, with a configuration that allows it."""
        self._take(draw(self._draws, is_last=True))
        super().settle()

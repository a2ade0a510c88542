"""What the storm of reloads draws for a seed: a workload of other storms, and beside what else it runs."""

from __future__ import annotations

from functools import partial
from random import Random

from msgspec.structs import replace

from gangsched.sim import teams
from gangsched.sim.capped import capped_workload
from gangsched.sim.configurations import OTHER
from gangsched.sim.given_back import lending_workload
from gangsched.sim.limits import limited_workload, overtime_workload
from gangsched.sim.objects import OURS
from gangsched.sim.workloads import Workload, preempting_workload, random_workload

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


def reloads_workload(seed: int) -> Workload:
    """One of those of other storms, in which some groups are of the profile that comes and goes."""
    return with_others(_WORKLOADS[seed % len(_WORKLOADS)](seed), seed)


def with_others(workload: Workload, seed: int) -> Workload:
    """The same, in which some groups are of the profile that comes and goes."""
    rng, arrivals = Random(f"{seed}-profiles"), []
    for one in workload.arrivals:
        if rng.random() < _OTHER_SHARE and all(pod.spec.scheduler_name == OURS for pod in one.pods):
            pods = (replace(pod, spec=replace(pod.spec, scheduler_name=OTHER)) for pod in one.pods)
            one = replace(one, pods=tuple(pods))
        arrivals.append(one)
    return replace(workload, arrivals=tuple(arrivals))

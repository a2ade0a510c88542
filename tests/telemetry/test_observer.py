"""What the core tells an Observer, and that nobody can see from its decisions that somebody listens."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gangsched.config import Settings, default_config
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import make_node
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import ROUGH
from gangsched.lab.sim.workloads.arrivals import random_workload
from gangsched.plugins import IN_TREE, build_profiles
from tests.support.scenario import Cluster, gang, with_annotations
from tests.telemetry.recorder import Recorder


class Broken:
    """A plugin with a bug."""

    name = "Broken"

    def capacity(self, *_: Any) -> Any:
        raise ZeroDivisionError("oops")

    def reasons(self, *_: Any) -> Any:
        return ()


def observed(recorder: Recorder, settings: Settings) -> Scheduler:
    profiles = build_profiles(default_config(IN_TREE))
    return Scheduler(profiles, settings, node_capacity=4, observer=recorder)


@pytest.mark.parametrize("seed", range(5))
def test_an_observed_scheduler_decides_the_same(seed: int) -> None:
    histories = []
    for make in (make_scheduler, lambda settings: observed(Recorder(), settings)):
        sim = Simulation(seed, random_workload(seed), rates=ROUGH, make=make)
        sim.run_for(30.0)
        histories.append(sim.history)
    assert histories[0] == histories[1]
    assert histories[0]


def test_a_gang_that_waits_and_gives_back_has_a_span_for_each_step() -> None:
    recorder = Recorder()
    c = Cluster(make=partial(observed, recorder))
    c.node(make_node("n0", gpus=8))
    total = {"gangsched.io/total-members": "3"}
    c.submit(with_annotations(gang("a", pods=2, gpus=2), total)).run()
    c.wait(62.0)
    lines = recorder.lines
    assert lines[0] == "d/a: gathering -> gathering"
    began = lines.index("attempt d/a")
    assert lines[began - 1] == "d/a: gathering -> active"
    assert lines[began + 1 : began + 5] == ["PreFilter", "Filter", "Reserve", "Permit"]
    assert lines[began + 5 : began + 7] == [
        "d/a: active -> waiting",
        "d/a told: 2 of 3 members are here",
    ]
    gave_back = next(i for i, line in enumerate(lines) if "gave back" in line)
    assert lines[gave_back].startswith("d/a gave back 2: WaitOnPermit timed out")
    assert lines[gave_back + 1] == "d/a: waiting -> backoff"
    assert "attempt d/a" in lines[gave_back:], "and tries again"


def test_a_plugin_that_raises_leaves_no_point_open() -> None:
    recorder = Recorder()
    c = Cluster(make=partial(observed, recorder))
    c.node(make_node("n0", gpus=8))
    profile = c.profiles()["gangsched"]
    profile.filtering.capacities = (*profile.filtering.capacities, Broken())
    c.submit(gang("a", pods=1)).run()
    assert recorder.open_points == []
    assert "d/a: active -> unschedulable" in recorder.lines
    assert any("plugin Broken failed in Filter" in line for line in recorder.lines)

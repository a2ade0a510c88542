"""The arrays of running pods, followed by what changes, beside the pods themselves."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.queueing.running_pods import RunningPods
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.walltime import WALLTIME_KEY
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def asked(c: Cluster, names: list[str]) -> list[tuple[int, float, tuple[int, ...]]]:
    shared = c.scheduler.shared
    assert shared.ends is not None
    found = []
    for info in c.infos_on_nodes():
        end_s = shared.ends.end(info, shared.now_s, shared.wall_ahead_s).at_s
        found.append((info.row, end_s, tuple(info.template.requests.get(name, 0) for name in names)))
    return sorted(found)


def followed(c: Cluster, pods: RunningPods, names: list[str]) -> list[tuple[int, float, tuple[int, ...]]]:
    shared = c.scheduler.shared
    pods.read_changed(shared.now_s, shared.wall_ahead_s)
    used = np.flatnonzero(pods.rows >= 0).tolist()
    assert all(math.isinf(one) for one in pods.ends_s[pods.rows < 0].tolist())
    amounts = pods.amounts(names).each()
    return sorted((int(pods.rows[k]), float(pods.ends_s[k]), tuple(amounts[:, k].tolist())) for k in used)


def test_what_has_changed_is_read_a_few_nodes_a_turn() -> None:
    c = cluster(nodes=200, gpus=1, settings=Settings(queueing=QueueingSettings()))
    shared = c.scheduler.shared
    assert shared.ends is not None
    pods = RunningPods(shared.cache, shared.ends, shared.stuck)
    c.submit(gang("g", pods=200, gpus=1)).run()
    n_read = []
    for _ in range(20):
        pods.follow(shared.now_s, shared.wall_ahead_s)
        n_read.append(int((pods.rows >= 0).sum()))
    assert n_read[0] == 16, "no turn reads all"
    assert n_read[-1] == 192, "what is left is left to the next plan"
    assert followed(c, pods, ["nvidia.com/gpu"]) == asked(c, ["nvidia.com/gpu"])


@pytest.mark.parametrize("seed", range(6))
def test_they_are_the_same_as_asking_each_pod(seed: int) -> None:
    rng = Random(seed)
    c = cluster(nodes=3, gpus=8, settings=Settings(queueing=QueueingSettings()))
    shared = c.scheduler.shared
    assert shared.ends is not None
    pods = RunningPods(shared.cache, shared.ends, shared.stuck)
    names: list[str] = []
    for step in range(60):
        what = rng.random()
        if what < 0.5:
            name = f"p{step}"
            pod = make_pod(name, gpus=1, cpu=rng.choice(("100m", "200m")))
            walltime = {WALLTIME_KEY: f"{rng.randint(20, 400)}s"} if rng.random() < 0.7 else {}
            c.submit(with_annotations([pod], walltime)).run()
            names.append(name)
        elif what < 0.8 and names:
            c.delete(names.pop(rng.randrange(len(names)))).run()
        elif what < 0.85:
            c.node(make_node(f"more-{step}", gpus=8)).run()
        else:
            c.wait(rng.uniform(1.0, 100.0))
        resources = sorted({name for info in c.infos_on_nodes() for name in info.template.names})
        assert followed(c, pods, resources) == asked(c, resources), f"seed {seed}, step {step}"

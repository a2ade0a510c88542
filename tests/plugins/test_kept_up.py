"""Verdicts that are kept up as a Trial is placed on, against the same asked of a copy that knows nothing."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.interface import BoolArray, CycleState
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.plugins.neighbours.inter_pod_affinity import InterPodAffinity
from gangsched.plugins.neighbours.pod_topology_spread import PodTopologySpread
from tests.core.test_pods_and_objects import labelled
from tests.plugins.build import Cluster, node

HOST, ZONE, RACK = "kubernetes.io/hostname", "zone", "rack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _cluster(rng: Random) -> Cluster:
    nodes = []
    for i in range(rng.randint(2, 9)):
        labels = {HOST: f"n{i}", ZONE: rng.choice("abc"), RACK: rng.choice("wxyz")}
        nodes.append(node(f"n{i}", labels={k: v for k, v in labels.items() if rng.random() < 0.9}))
    return Cluster(*nodes)


def _spec(rng: Random) -> dict[str, Any]:
    def selector() -> dict[str, Any]:
        return {"matchLabels": {"app": rng.choice("pqr")}}

    def terms(n: int) -> dict[str, Any]:
        keys = [rng.choice((HOST, ZONE, RACK)) for _ in range(n)]
        return {REQUIRED: [{"topologyKey": key, "labelSelector": selector()} for key in keys]}

    spread = [
        {
            "maxSkew": rng.randint(1, 2),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector(),
            **({"minDomains": rng.randint(1, 5)} if rng.random() < 0.3 else {}),
        }
        for key in rng.sample((HOST, ZONE, RACK), rng.choice((0, 1, 1, 2)))
    ]
    affinity = {
        "podAffinity": terms(rng.choice((0, 0, 1, 2))),
        "podAntiAffinity": terms(rng.choice((0, 1, 2))),
    }
    selected = {"nodeSelector": {ZONE: rng.choice("ab")}} if rng.random() < 0.2 else {}
    return {"affinity": affinity, "topologySpreadConstraints": spread or None, **selected}


def _verdicts(plugins: list[Any], templates: list[PodTemplate], trial: Trial) -> list[BoolArray | None]:
    asked = [(plugin, template) for plugin in plugins for template in templates]
    return [plugin.filter(CycleState(), template, trial) for plugin, template in asked]


def _same(found: list[BoolArray | None], right: list[BoolArray | None]) -> bool:
    everywhere = np.bool_(True)
    return all(
        bool(np.all((everywhere if one is None else one) == (everywhere if other is None else other)))
        for one, other in zip(found, right, strict=True)
    )


@pytest.mark.parametrize("block", range(10))
def test_what_is_kept_up_equals_what_a_first_look_finds(block: int) -> None:
    changed = 0
    for seed in range(block * 30, block * 30 + 30):
        rng = Random(f"kept-up-{seed}")
        c = _cluster(rng)
        plugins = [InterPodAffinity(), PodTopologySpread()]
        pods = [labelled(f"t{k}", app=rng.choice("pqr"), spec=_spec(rng)) for k in range(3)]
        templates = [c.template(pod) for pod in pods]
        running = [
            c.run(
                labelled(f"old-{k}", app=rng.choice("pqr"), spec=_spec(rng)),
                f"n{rng.randrange(c.view.n_rows)}",
            )
            for k in range(rng.randint(0, 4))
        ]
        trial = Trial(c.view)
        before = _verdicts(plugins, templates, trial)
        for step in range(12):
            if rng.random() < 0.1 and running:
                trial.remove(running.pop())
            elif rng.random() < 0.1:
                trial = trial.fork()
            else:
                trial.place(rng.randrange(c.view.n_rows), rng.choice(templates), rng.choice((1, 1, 1, 2)))
            if rng.random() < 0.8:  # else several are heard of at once
                found = _verdicts(plugins, templates, trial)
                assert _same(found, _verdicts(plugins, templates, trial.fork())), f"seed {seed}, step {step}"
                changed += not _same(found, before)
                before = [None if one is None else one.copy() for one in found]
    assert changed > 60, "nothing that was placed made a difference"

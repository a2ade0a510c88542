"""RemainingBandwidth on a node that a gang fills: its scores are told for some members ahead."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from gangsched.core.cache.trial import Trial
from gangsched.plugins.resources.remaining_bandwidth import Args, RemainingBandwidth
from tests.plugins.bandwidths import asking, node, report
from tests.plugins.build import Cluster

_DIRECTIONS = ("egress", "ingress", "both", "total")
_N_AHEAD = 5


@pytest.mark.parametrize("promise", [True, False])
@pytest.mark.parametrize("strategy", ["ClosestToExpected", "LargestSurplus"])
def test_scores_of_a_node_as_it_fills_are_those_of_the_filled_node(strategy: str, promise: bool) -> None:
    """On links in any use, with promises and departures, for requests of every direction."""
    n_different = 0
    for seed in range(150):
        rng = Random(seed)
        plugin = RemainingBandwidth(Args(strategy=strategy, promise=promise))  # type: ignore[arg-type]
        c = Cluster()
        c.cache.keep_usage_trackers([plugin.usage_tracker])
        for name in ("a", "b"):
            c.put(node(name, report(1500, rng.randrange(0, 1600, 7), rng.randrange(0, 1600, 7))))

        def request(name: str, rng: Random = rng) -> dict[str, object]:
            required = rng.randrange(0, 300)
            annotations = {"gangsched.io/rbw-direction": rng.choice(_DIRECTIONS)}
            return {
                "name": name,
                "required": f"{required}MB/s",
                "expected": f"{required + rng.randrange(200)}MB/s",
                "annotations": annotations,
            }

        there = [c.run(asking(**request(f"old{i}")), on="a") for i in range(rng.randrange(4))]  # type: ignore[arg-type]
        trial = Trial(c.view)
        if there and rng.random() < 0.5:
            trial.remove(there[0])
        sibling, template = (c.template(asking(**request(name))) for name in ("sibling", "p"))  # type: ignore[arg-type]
        (row,) = c.rows(["a"])
        if rng.random() < 0.5:
            trial.place(int(row), sibling)
        told = plugin.score_filled_at(c.state, template, trial, int(row), _N_AHEAD)
        assert told is not None
        for n in range(_N_AHEAD):
            now = plugin.score(c.state, template, trial, np.array([row]))
            assert now is not None
            assert told[n] == now[0], f"seed {seed}, with {n} more"
            trial.place(int(row), template)
        n_different += told[0] != told[-1]
    assert n_different > 50 if promise else n_different == 0


def test_a_pod_that_asks_for_none_has_no_opinion_of_a_filled_node() -> None:
    plugin, c = RemainingBandwidth(), Cluster(node("a", report(1500, 0)))
    assert plugin.score_filled_at(c.state, c.template(asking("p")), c.view, 0, 3) is None

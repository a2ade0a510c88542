"""The bug museum's room of wishes: pods placed where their own words, or their neighbours', forbid it.

Each mistake must be caught within a bound of seeds of the storm of choosy pods, by pod-constraints, and the
unbroken scheduler must come through the seed that caught it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gangsched.plugins.neighbours import affinity_domains, inter_pod_affinity
from gangsched.plugins.neighbours.pod_topology_spread import PodTopologySpread
from gangsched.plugins.nodes.node_affinity import NodeAffinity
from gangsched.plugins.nodes.node_ports import NodePorts
from gangsched.plugins.nodes.taint_toleration import TaintToleration
from tests.support.breaking import assert_caught

MAX_SEEDS = 40
Patch = pytest.MonkeyPatch


def selectors_are_not_seen(patch: Patch) -> None:
    patch.setattr(NodeAffinity, "filter", lambda self, state, template, view: None)


def every_taint_is_tolerated(patch: Patch) -> None:
    patch.setattr(TaintToleration, "filter", lambda self, state, template, view: None)


def ports_are_not_seen(patch: Patch) -> None:
    patch.setattr(NodePorts, "capacity", lambda self, state, template, view, rows=None: None)


def evenness_does_not_matter(patch: Patch) -> None:
    patch.setattr(PodTopologySpread, "filter", lambda self, state, template, view: None)


def the_neighbours_have_no_say(patch: Patch) -> None:
    """Only the pod's own anti-affinity counts."""
    patch.setattr(affinity_domains, "not_against", lambda template, view: None)
    right = affinity_domains._apart_over
    patch.setattr(affinity_domains, "_apart_over", lambda one, other, view: right(one, one, view))


def anybody_is_the_first(patch: Patch) -> None:
    """A pod that matches its own terms goes anywhere, whoever of its kind is there."""
    patch.setattr(inter_pod_affinity, "near", lambda template, view: [])
    patch.setattr(affinity_domains, "near", lambda template, view: [])


EXHIBITS: dict[str, Callable[[Patch], None]] = {
    "selectors are not seen": selectors_are_not_seen,
    "every taint is tolerated": every_taint_is_tolerated,
    "ports are not seen": ports_are_not_seen,
    "evenness does not matter": evenness_does_not_matter,
    "the neighbours have no say": the_neighbours_have_no_say,
    "anybody is the first": anybody_is_the_first,
}


@pytest.mark.parametrize("exhibit", EXHIBITS)
def test_the_mistake_is_caught(exhibit: str) -> None:
    assert_caught(exhibit, EXHIBITS[exhibit], "choosy", "pod-constraints: ", n_seeds=MAX_SEEDS)

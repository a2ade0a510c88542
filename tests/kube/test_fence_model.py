"""The fence's protocol holds in every order of steps, and each of its rules is needed."""

from __future__ import annotations

import pytest

from tests.kube.fence_model import ABLATIONS, explore


def test_the_protocol_never_gives_a_device_to_two_pods() -> None:
    explored = explore()
    assert not explored.story, f"broken by: {', '.join(explored.story)}"
    assert explored.n_states == 209_898, "the model was changed: look again at what it explores"


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_without_one_of_its_rules_the_device_is_given_twice(ablation: str) -> None:
    explored = explore(ablation)
    assert explored.story, f"{ablation}: {ABLATIONS[ablation]}; {explored.n_states} states, none is broken"
    n_bound = sum(step.endswith("is bound") for step in explored.story)
    assert n_bound == 2

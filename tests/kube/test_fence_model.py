"""The fence's protocol holds in every order of steps, and each of its rules is needed."""

from __future__ import annotations

import pytest

from tests.kube.fence_model import ABLATIONS, NOBODY_LEADS, ONE_EXPECTS, State, explore


@pytest.mark.parametrize(
    ("first", "n_states"),
    [(NOBODY_LEADS, 452_232), (ONE_EXPECTS, 297_711)],
    ids=["nobody leads", "one expects"],
)
def test_the_protocol_never_gives_a_device_to_two_pods(first: State, n_states: int) -> None:
    explored = explore(first=first)
    assert not explored.story, f"broken by: {', '.join(explored.story)}"
    assert explored.n_states == n_states, "the model was changed: look again at what it explores"


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_without_one_of_its_rules_the_device_is_given_twice(ablation: str) -> None:
    first = ONE_EXPECTS if ablation in ("expected for ever", "ahead only") else NOBODY_LEADS
    explored = explore(ablation, first)
    assert explored.story, f"{ablation}: {ABLATIONS[ablation]}; {explored.n_states} states, none is broken"
    n_bound = sum(step.endswith("is bound") for step in explored.story)
    assert n_bound == 2

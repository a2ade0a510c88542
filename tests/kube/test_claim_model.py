"""The protocol of claims on the fence holds in every order of steps, and each of its rules is needed."""

from __future__ import annotations

import os

import pytest

from tests.kube.claim_model import ABLATIONS, Scenario
from tests.kube.claim_search import explore

ONE = Scenario(gangs=(((0,),),), devices=(0,))
"""A gang of one pod, with its claim."""
RIVALS = Scenario(gangs=(((0,),), ((1,),)), devices=(0, 0))
"""Two of them, whose claims can have the same device only."""
GANG = Scenario(gangs=(((0,), (1,)),), devices=(0, 1))
"""A gang of two pods, each with a claim and a device of its own."""
GANG_AND_RIVAL = Scenario(gangs=(((0,), (1,)), ((2,),)), devices=(0, 1, 0), evicts=True)
"""And a gang of one pod, whose claim can have one of these devices only."""
SHARED = Scenario(gangs=(((0,), (0,)),), devices=(0,))
"""A gang of two pods that share a claim."""
SHARED_AND_RIVAL = Scenario(gangs=(((0,), (0,)), ((1,),)), devices=(0, 0), evicts=True)
"""And a gang of one pod, whose claim can have the same device only."""
GROUP = SHARED._replace(for_group=(0,))
"""The claim is reserved for their PodGroup."""
OWN_AND_SHARED = Scenario(gangs=(((0, 2), (1, 2)),), devices=(0, 1, 2))
"""A gang of two pods, each with a claim of its own beside the shared one."""
TWO_CLAIMS = Scenario(gangs=(((0, 1),),), devices=(0, 1))
"""A gang of one pod with two claims."""
APART = Scenario(gangs=(((0,),), ((0,),)), devices=(0,))
"""Two gangs of one pod that share a claim."""

SCENARIOS = {
    "one pod, deletions, another scheduler, four leaders": (
        ONE._replace(n_leaders=4, n_deleted=3, has_rival=True, deletes_claims=True),
        57_913,
    ),
    "one pod, whatever others do, three leaders": (
        ONE._replace(n_leaders=3, n_deleted=2, has_stranger=True, has_rival=True, deletes_claims=True),
        60_067,
    ),
    "two claims, three leaders": (TWO_CLAIMS._replace(n_leaders=3), 7_848),
    "rivals, three leaders": (RIVALS._replace(n_leaders=3), 26_609),
    "rivals, a pod is deleted, one leader": (RIVALS._replace(n_deleted=1, n_leaders=1), 38_688),
    "rivals, another scheduler": (RIVALS._replace(has_rival=True), 40_481),
    "gang, three leaders": (GANG._replace(n_leaders=3), 52_698),
    "gang, another scheduler, one leader": (
        GANG._replace(has_rival=True, evicts=True, n_leaders=1),
        66_577,
    ),
    "shared, a stranger, three leaders": (SHARED._replace(has_stranger=True, n_leaders=3), 17_319),
    "shared, a pod is deleted": (SHARED._replace(n_deleted=1, evicts=True), 108_769),
    "a group's claim, pods are deleted": (GROUP._replace(n_deleted=2, evicts=True), 60_919),
    "apart, a stranger, three leaders": (APART._replace(has_stranger=True, n_leaders=3), 26_841),
    "apart, a pod is deleted": (APART._replace(n_deleted=1), 57_423),
}
LONG_SCENARIOS = {  # with seconds of CPU
    "rivals, a pod is deleted": (RIVALS._replace(n_deleted=1), 111_045),  # 8
    "gang, a pod is deleted": (GANG._replace(n_deleted=1, evicts=True), 625_474),  # 40
    "gang, another scheduler": (GANG._replace(has_rival=True, evicts=True), 212_503),  # 13
    "own claims and a shared one, one leader": (OWN_AND_SHARED._replace(n_leaders=1), 181_931),  # 15
    "shared, a rival": (SHARED_AND_RIVAL, 241_696),  # 19
    "gang, a rival, one leader": (GANG_AND_RIVAL._replace(n_leaders=1), 1_374_396),  # 141
    "rivals, deletions, another scheduler": (  # 57
        RIVALS._replace(n_deleted=1, has_rival=True, deletes_claims=True),
        768_081,
    ),
    "shared, deletions, a stranger, three leaders": (  # 31
        SHARED._replace(n_deleted=1, has_stranger=True, deletes_claims=True, evicts=True, n_leaders=3),
        456_037,
    ),
}

BREAKS = {
    "no version on claims": (ONE, "B"),
    "no version on pods": (ONE, "B"),
    "no bump of claims": (ONE, "B"),
    "no bump of pods": (ONE, "B"),
    "no bump where the pod is gone": (ONE._replace(n_deleted=1), "B"),
    "list first": (ONE, "B"),
    "the swap empties the list": (ONE._replace(n_leaders=3), "B"),
    "unlists what is on its way": (ONE, "B"),
    "unlisted ones stay of use": (ONE, "B"),
    "no fence": (ONE, "B"),
    "reads of claims are of use": (ONE, "B"),
    "reads of pods are of use": (ONE, "B"),
    "no bump of claims given up": (ONE, "B"),
    "no bump of pods given up": (ONE, "B"),
    "plans by an old book": (RIVALS, "A"),
    "frees at once": (RIVALS, "A"),
    "removes in doubt": (ONE, "B"),
    "removes beside binds": (GANG, "D"),
    "removes what it has not read": (ONE, "B"),
    "binds unreserved": (ONE, "B"),
    "binds one by one": (GANG, "D"),
    "binds without a look": (ONE._replace(has_rival=True), "E"),
    "found is looked at": (ONE._replace(has_rival=True), "E"),
    "reserved by name": (ONE._replace(n_deleted=1), "B"),
    "removes everything": (APART, "B"),
    "removes what others of the group use": (GROUP, "B"),
    "replaces entries": (APART, "B"),
    "leaves the allocation": (ONE, "C"),
    "adopts nothing": (ONE, "C"),
    "completes nothing": (GANG, "C"),
    "no finalizer": (ONE._replace(deletes_claims=True), "B"),
}


@pytest.mark.parametrize(("scenario", "n_states"), SCENARIOS.values(), ids=SCENARIOS)
def test_the_protocol_holds(scenario: Scenario, n_states: int) -> None:
    explored = explore(scenario)
    assert not explored.fault, f"{explored.fault}, after: {', '.join(explored.story)}"
    assert explored.n_states == n_states, "the model was changed: look again at what it explores"


@pytest.mark.skipif(os.environ.get("LONG_MODELS") != "1", reason="takes minutes: LONG_MODELS=1 runs it")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("scenario", "n_states"), LONG_SCENARIOS.values(), ids=LONG_SCENARIOS)
def test_the_protocol_holds_in_large(scenario: Scenario, n_states: int) -> None:
    test_the_protocol_holds(scenario, n_states)


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_without_one_of_its_rules_it_is_broken(ablation: str) -> None:
    scenario, broken = BREAKS[ablation]
    explored = explore(scenario, ablation)
    assert explored.fault.startswith(f"{broken}:"), f"{explored}: {ABLATIONS[ablation]}"
    assert explored.story


def test_only_a_third_leader_needs_the_list_of_the_first() -> None:
    """The second bumps what it has read; where it ends before that, the third finds nothing to bump."""
    for scenario in (ONE, RIVALS, GANG, SHARED, APART):
        assert not explore(scenario, "the swap empties the list").fault

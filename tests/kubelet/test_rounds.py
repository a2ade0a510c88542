"""Ten thousand rounds of gangs of mixed sizes that land on one node in random order of admission.

What holds at the end of each: every planned set is whole and with one container, every pod has the sets
of one plan and what it asks of them as a whole, every annotation says what its containers have, no device
is with two pods, and nobody had to delete a pod by hand. Where kubelet died between two containers of one pod
and does not show its pods, nobody knows whose turn it is afterwards: sets are whole, if not of one plan.

The same rounds with the matching switched off (the hand-off `count`, where Allocate gives whatever kubelet
takes) must break that, and `test_without_the_matching_planned_sets_are_torn` keeps the checker honest: 170 of
200 rounds were torn when it was written ("seed 1000: default/gang-1-1 main: {gpu-14, gpu-11} was never
planned").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.kubelet.rounds import Round
from tests.kubelet.shapes import GPU, allocation_of, is_near, whole_of

N_ROUNDS = 10_000
N_PARTS = 4
N_FEWER = 200


def check(made: Round) -> None:
    """Raises: AssertionError."""
    for uid in made.had.keys() - made.unknown:
        pod = made.api.pods[uid]
        assert made.says_what_it_had(uid), f"{pod.key} had {made.had[uid]}, says {allocation_of(pod)}"
    planned = {ids for sets in made.scheduler.plans.values() for ids in sets}
    owner: dict[str, str] = {}
    for uid, pod in made.api.live():
        inits = {one.name for one in pod.spec.init_containers or ()}
        held = made.kubelet.devices.held.get(uid, {})
        for container, sets in allocation_of(pod).items():
            for resource, ids in sets.items():
                has = held[container][resource]
                if container not in inits:
                    assert has == frozenset(ids), f"{pod.key} {container}: has {has}, said {ids}"
                    assert has in planned, f"{pod.key} {container}: {has} was never planned"
                for device in (*has, *ids):
                    first = owner.setdefault(f"{resource} {device}", uid)
                    assert first == uid, f"{device} is with {first} and {uid}"
        if (made.n_cut and not made.shows_pods) or made.tell_numa:
            continue
        if is_near(pod):
            gpus = {one for sets in held.values() for one in sets.get(GPU, ())}
            numa = {made.inventory[GPU][one] for one in gpus}
            assert len(numa) == 1, f"{pod.key} asked for one NUMA node and has {sorted(gpus)}"
        whole = whole_of(held)
        assert whole in made.scheduler.wholes, f"{pod.key} has {sorted(whole)}, parts of several plans"


def play(seed: int, *, turns: int = 2000, **how: Any) -> Round:
    """Raises: AssertionError, naming the seed."""

    async def whole() -> Round:
        made = Round(seed, **how)
        await made.run(turns)
        check(made)
        return made

    try:
        return anyio.run(whole)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {how}: {error}") from error


@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", range(N_PARTS))
def test_planned_sets_stay_whole_and_annotations_end_true(
    part: int, record_property: Callable[[str, object], None]
) -> None:
    """By the API server's word in half of the rounds and by kubelet's in the others.

    In half of the former kubelet's list does not tell which pod it is admitting.
    """
    bound, near, cut, late, swaps = 0, 0, 0, 0, {True: 0, False: 0}
    for seed in range(part, N_ROUNDS, N_PARTS):
        shows_pods = seed // N_PARTS % 2 == 1
        ahead = not shows_pods and seed // N_PARTS % 8 > 3
        made = play(seed, shows_pods=shows_pods, lists_ahead=ahead, aligns=seed // N_PARTS % 4 > 1)
        assert not made.refusals, f"seed {seed}: {made.refusals}"
        assert made.n_replaced == 0, f"seed {seed}: {made.kubelet.failed}"
        bound += made.scheduler.n_bound
        near += made.scheduler.n_near
        late += made.scheduler.n_late
        cut += made.n_cut > 0 and not shows_pods
        swaps[shows_pods] += made.scheduler.n_swaps
    assert swaps[True] == 0, "kubelet shows which pod it admits, so nothing has to be exchanged"
    assert swaps[False] > 0
    assert late > 0, "pods that ended before the scheduler could write what they had"
    assert near > 100, "pods with constraints among others without"
    assert cut < N_ROUNDS // N_PARTS // 8, "rounds of which less is asked"
    record_property(
        "figure",
        f"device plugin, part {part + 1} of {N_PARTS}: {N_ROUNDS // N_PARTS} rounds, {bound} pods admitted"
        f" ({near} of them under constraints that others of their gang do not have),"
        f" none refused, no set torn; {swaps[False]} exchanges by the API server's word, 0 by kubelet's",
    )


@pytest.mark.parametrize("shows_pods", [False, True])
def test_it_is_the_same_where_ids_are_labels(shows_pods: bool) -> None:
    """They name containers in another order than the pod does, so a pod's own sets may be exchanged."""
    n_bound = 0
    for seed in range(N_FEWER):
        made = play(seed, in_labels=True, shows_pods=shows_pods)
        assert not made.refusals, f"seed {seed}: {made.refusals}"
        assert made.n_replaced == 0, f"seed {seed}: {made.kubelet.failed}"
        n_bound += made.scheduler.n_bound
    assert n_bound > N_FEWER


def test_without_the_matching_planned_sets_are_torn() -> None:
    torn = 0
    for seed in range(N_FEWER):
        try:
            play(seed, hand_off="count")
        except AssertionError as error:
            torn += "was never planned" in str(error)
    assert torn > N_FEWER // 2, torn


def test_without_the_spacing_of_a_gangs_own_members_some_get_what_they_cannot_use() -> None:
    """As if all members of a gang were interchangeable, whatever they ask of their devices."""
    found = 0
    for seed in range(2 * N_FEWER):
        try:
            play(seed, by_gang=True, lists_ahead=True)
        except AssertionError as error:
            found += "asked for one NUMA node" in str(error)
    assert found > 3, found


def test_a_topology_manager_that_is_told_numa_nodes_is_refused_and_never_given_a_torn_set() -> None:
    """It takes what it has aligned and asks nobody; those pods fail, and are made again by their owner."""
    refused = 0
    for seed in range(N_FEWER):
        made = play(seed, aligns=True, tell_numa=True, shows_pods=seed % 2 == 1, turns=300)
        assert len(made.kubelet.failed) == len({uid for uid in made.kubelet.failed if uid in made.api.pods})
        refused += len(made.refusals)
    assert refused > 0


def test_the_same_seed_is_the_same_round() -> None:
    one, other = play(7), play(7)
    assert one.kubelet.devices.held == other.kubelet.devices.held
    assert [pod.metadata.annotations for _, pod in one.api.live()] == [
        pod.metadata.annotations for _, pod in other.api.live()
    ]

"""Sets of devices under constraints: as many as brute force finds, and the best-linked of them."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from gangsched.model.devices.annotations import Device, inventory_annotation, parse_inventory
from gangsched.model.devices.constraints import ANY, DeviceConstraint
from gangsched.model.devices.links import DeviceTopology, link_weight
from gangsched.model.devices.sets import DeviceSets, Wish, pack_together, sets_of

GPU = "nvidia.com/gpu"
SAME_NUMA = DeviceConstraint(same_numa=True)
LINKED = DeviceConstraint(link_weight=link_weight("NV1"))


def topology(*devices: Device) -> DeviceTopology:
    return parse_inventory(inventory_annotation({GPU: devices}))[GPU].topology


def ring(n: int, *, numa: int = -1) -> DeviceTopology:
    """Each linked with its two neighbours."""
    return topology(
        *(
            Device(str(k), numa=numa, links={str((k + 1) % n): "NV4", str((k - 1) % n): "NV4"})
            for k in range(n)
        )
    )


def torus(side: int) -> DeviceTopology:
    """Each linked with four neighbours and across one corner; down with more links than to the right."""
    devices = []
    for k in range(side**2):
        row, column = divmod(k, side)
        links = {
            str((row + down) % side * side + (column + right) % side): kind
            for down, right, kind in ((1, 0, "NV2"), (0, 1, "NV1"), (1, 1, "NV2"))
        }
        devices.append(Device(str(k), links=links))
    return topology(*devices)


def drawn(rng: Random, n: int) -> DeviceTopology:
    devices = []
    for k in range(n):
        links = {str(j): rng.choice(("NV4", "NV2", "PIX", "SYS")) for j in range(k) if rng.random() < 0.6}
        model = rng.choice(("NVIDIA A100", "NVIDIA H100 80GB HBM3"))
        devices.append(
            Device(
                str(k),
                numa=rng.choice((-1, 0, 0, 1, 1)),
                model=model,
                memory_mib=rng.choice((40960, 81559)),
                links=links,
            )
        )
    return topology(*devices)


def constraint(rng: Random) -> DeviceConstraint:
    return DeviceConstraint(
        same_numa=rng.random() < 0.4,
        link_weight=rng.choice((0, 0, link_weight("PIX"), link_weight("NV1"), link_weight("NV4"))),
        models=("H100",) if rng.random() < 0.2 else (),
        min_memory_mib=80000 if rng.random() < 0.2 else 0,
    )


# -- brute force, in other words -----------------------------------------------------------------------


def allowed(of: DeviceTopology, asked: DeviceConstraint, chosen: tuple[int, ...]) -> bool:
    """The constraint's sentence, read literally."""
    for i in chosen:
        if of.memory_mib[i] < asked.min_memory_mib:
            return False
        if asked.models and not any(word in of.models[i].split() for word in asked.models):
            return False
    for i, j in combinations(chosen, 2):
        if asked.same_numa and not (of.numa[i] == of.numa[j] != -1):
            return False
        if of.weight[i][j] < asked.link_weight:
            return False
    return True


def every(of: DeviceTopology, asked: DeviceConstraint, free: int, count: int) -> list[int]:
    indices = [i for i in range(len(of.numa)) if free >> i & 1]
    return [sum(1 << i for i in c) for c in combinations(indices, count) if allowed(of, asked, c)]


def fits(of: DeviceTopology, free: int, pods: list[tuple[DeviceConstraint, int]]) -> bool:
    """Whether each of the pods can have a set of its own, by trying everything."""
    if not pods:
        return True
    asked, count = pods[0]
    return any(fits(of, free & ~one, pods[1:]) for one in every(of, asked, free, count))


# -- counting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_as_many_sets_as_brute_force_finds(seed: int) -> None:
    rng = Random(f"most-{seed}")
    of, asked = drawn(rng, rng.randint(2, 8)), constraint(rng)
    free = rng.getrandbits(len(of.numa))
    for count in (1, 2, 3, 4):
        most = sets_of(of, asked).most(free, count)
        pods = [(asked, count)] * (most.n + 1)
        assert most.exact, f"seed {seed}"
        assert fits(of, free, pods[1:]), f"seed {seed}: {most.n} sets of {count} are too many"
        assert not fits(of, free, pods), f"seed {seed}: more than {most.n} sets of {count} fit"


@pytest.mark.parametrize("seed", range(60))
def test_equal_pods_get_as_many_good_sets_as_there_are(seed: int) -> None:
    rng = Random(f"choose-{seed}")
    of, asked = drawn(rng, rng.randint(2, 8)), constraint(rng)
    free, count = rng.getrandbits(len(of.numa)), rng.randint(1, 4)
    sets = sets_of(of, asked)
    n = sets.most(free, count).n
    chosen = sets.choose(free, count, n + 1)
    valid = every(of, asked, free, count)
    assert len(chosen) == n, f"seed {seed}"
    assert all(one in valid for one in chosen), f"seed {seed}"
    assert sum(one.bit_count() for one in chosen) == sum(chosen).bit_count(), f"seed {seed}: disjoint"


@pytest.mark.parametrize("seed", range(80))
def test_different_pods_fit_together_exactly_when_brute_force_finds_a_way(seed: int) -> None:
    rng = Random(f"together-{seed}")
    of = drawn(rng, rng.randint(3, 8))
    free = (1 << len(of.numa)) - 1
    kinds = [(constraint(rng) if rng.random() < 0.7 else ANY, rng.randint(1, 3)) for _ in range(3)]
    asked = [(*kind, rng.randint(1, 2)) for kind in kinds]
    wishes = [Wish(sets_of(of, c), count, n) for c, count, n in asked]
    taken, exact = pack_together(free, wishes)
    assert exact, f"seed {seed}"
    pods = [(c, count) for c, count, n in asked for _ in range(n)]
    assert (taken is not None) == fits(of, free, pods), f"seed {seed}"
    if taken is not None:
        together = [one for some in taken for one in some]
        assert sum(one.bit_count() for one in together) == sum(together).bit_count(), f"seed {seed}"
        for (c, count, n), some in zip(asked, taken, strict=True):
            assert len(some) == n
            assert all(one in every(of, c, free, count) for one in some), f"seed {seed}"


def test_a_ring_holds_pairs_that_greed_would_waste() -> None:
    """Taking 1-2 first leaves the ring of six 3-4 and 5-0: any pair does; of a path it does not."""
    of = ring(6)
    path = 0b011110  # 1-2-3-4: 2-3 first leaves nobody a pair
    sets = sets_of(of, LINKED)
    assert sets.most(0b111111, 2).n == 3
    assert sets.most(path, 2).n == 2
    assert sets.best(path, 2, leaving=1) == 0b000110
    assert sets.most(0b111111, 3).n == 0, "three in a ring are not linked with each other"


def test_of_many_devices_few_sets_are_tried_for_pods_that_compete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs more there. What was searched for once, for one node, is known for all nodes like it."""
    n_tried, real = 0, DeviceSets.sets

    def counted(self: DeviceSets, free: int, count: int) -> tuple[list[int], bool]:
        nonlocal n_tried
        n_tried += 1
        return real(self, free, count)

    monkeypatch.setattr(DeviceSets, "sets", counted)
    of = torus(6)
    near = DeviceConstraint(link_weight=link_weight("NV2"))
    wishes = [Wish(sets_of(of, LINKED), 3, 6), Wish(sets_of(of, near), 2, 9)]
    assert pack_together(2**36 - 1, wishes) == (None, False)
    n_first = n_tried
    assert 0 < n_first < 100
    assert pack_together(2**36 - 1, list(wishes)) == (None, False)
    assert n_tried == n_first


def test_a_search_that_ends_early_is_marked_inexact_and_has_a_result() -> None:
    """64 devices linked at random: nobody proves what the most is in this time."""
    rng = Random("large")
    devices = [
        Device(str(k), links={str(j): "NV4" for j in range(k) if rng.random() < 0.4}) for k in range(64)
    ]
    sets = sets_of(topology(*devices), LINKED)
    most = sets.most((1 << 64) - 1, 4)
    assert not most.exact
    assert 10 <= most.n <= 16
    chosen = sets.choose((1 << 64) - 1, 4, most.n)
    assert len(chosen) == most.n, "what was counted can be taken"


# -- choosing ------------------------------------------------------------------------------------------


def test_of_two_numa_nodes_the_one_that_is_broken_into_already() -> None:
    of = topology(*(Device(str(k), numa=k // 4) for k in range(8)))
    assert sets_of(of, SAME_NUMA).best(0b11110110, 2) == 0b00000110


def test_devices_of_unknown_numa_node_share_a_node_with_no_other() -> None:
    of = topology(*(Device(str(k)) for k in range(4)))
    assert sets_of(of, SAME_NUMA).most(0b1111, 2).n == 0
    assert sets_of(of, SAME_NUMA).most(0b1111, 1).n == 4


def test_the_best_linked_set_that_is_allowed() -> None:
    """0-1 are the nearest and of the wrong model."""
    of = topology(
        Device("0", model="A", links={"1": "NV18"}),
        Device("1", model="A", links={"0": "NV18"}),
        Device("2", model="B", links={"3": "NV2", "4": "NV4"}),
        Device("3", model="B", links={"2": "NV2"}),
        Device("4", model="B", links={"2": "NV4"}),
    )
    assert DeviceSets(of, DeviceConstraint(models=("B",))).best(0b11111, 2) == 0b10100


def test_nothing_is_chosen_where_too_few_are_left() -> None:
    assert sets_of(ring(4), LINKED).best(0b0101, 2) == 0
    assert sets_of(ring(4), LINKED).choose(0b1111, 2, 3) == [0b0011, 0b1100]

"""Inventories, the best set to take, and the annotations that carry an allocation."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.errors import ParseError
from gangsched.model.devices import links as device_topology
from gangsched.model.devices.annotations import (
    ALLOCATED_KEY,
    MAX_DEVICES,
    VISIBLE_KEY,
    Allocation,
    Device,
    DeviceInventory,
    allocation_annotations,
    device_demand,
    inventory_annotation,
    parse_allocation,
    parse_devices,
    parse_inventory,
    split_among_containers,
)
from gangsched.model.devices.constraints import DeviceConstraint
from gangsched.model.devices.links import MAX_LINKED, DeviceTopology, link_weight
from gangsched.model.devices.sets import DeviceSets
from gangsched.model.objects import PodSpec
from gangsched.model.resources import pod_requests

GPU = "nvidia.com/gpu"


def inventory(*devices: dict[str, Any]) -> DeviceInventory:
    return parse_inventory(json.dumps({GPU: list(devices)}))[GPU]


def device(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, **more}


def test_the_documented_example_is_read() -> None:
    found = parse_inventory(
        '{"nvidia.com/gpu":[{"id":"GPU-6f1c","health":"Healthy","numa":0,"model":"H100","memoryMiB":81559,'
        '"links":{"GPU-9a2e":"NV18"}},{"id":"GPU-9a2e","health":"Unhealthy","numa":1}]}'
    )[GPU]
    assert found.ids == ("GPU-6f1c", "GPU-9a2e")
    assert found.healthy == 0b01
    assert found.topology.weight == ((0, 118), (118, 0))
    assert found.topology.numa == (0, 1)
    assert found.ids_of(0b10) == ("GPU-9a2e",)


_text = st.text(max_size=20)
_devices = st.lists(
    st.builds(
        Device,
        id=st.text(min_size=1, max_size=63),
        health=st.sampled_from(["Healthy", "Unhealthy"]),
        numa=st.integers(-1, 7),
        model=_text,
        memory_mib=st.integers(0, 2**40),
        links=st.none() | st.dictionaries(_text, _text, min_size=1, max_size=3),
    ),
    max_size=4,
    unique_by=lambda device: device.id,
)


@given(st.dictionaries(st.sampled_from([GPU, "example.com/fpga", "rdma/hca"]), _devices))
def test_what_is_written_is_read_back_unchanged(listed: dict[str, list[Device]]) -> None:
    text = inventory_annotation(listed)
    assert parse_devices(text) == listed
    assert {resource: found.ids for resource, found in parse_inventory(text).items()} == {
        resource: tuple(device.id for device in devices) for resource, devices in listed.items()
    }


def test_health_is_always_written_and_unknown_properties_never() -> None:
    assert inventory_annotation({GPU: [Device("a")], "x/y": []}) == (
        '{"nvidia.com/gpu":[{"id":"a","health":"Healthy"}],"x/y":[]}'
    )


def test_an_empty_inventory_is_one() -> None:
    assert parse_inventory("{}") == {}
    assert inventory().ids == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a device inventory"),
        ("[]", "is not a device inventory"),
        ('{"a/b":[{}]}', "is not a device inventory"),
        ('{"a/b":[{"id":1}]}', "is not a device inventory"),
        ('{"a/b":[{"id":"x"},{"id":"x"}]}', "lists the ID 'x' twice"),
        ('{"a/b":[{"id":""}]}', "an ID has 1 to 63 characters"),
        (json.dumps({"a/b": [{"id": "x" * 64}]}), "an ID has 1 to 63 characters"),
        (json.dumps({"a/b": [{"id": str(i)} for i in range(4097)]}), "lists 4097 devices, at most 4096"),
        ("[" * 100_000, "is not a device inventory"),
        ('{"cpu":[{"id":"x"}]}', "'cpu' is not an extended resource"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_inventories(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_inventory(text)
    with pytest.raises(ParseError, match=message):
        parse_devices(text)


def test_links_are_ordered_from_nvlink_to_system() -> None:
    order = ["NV18", "NV4", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS"]
    weights = [link_weight(kind) for kind in order]
    assert weights == sorted(weights, reverse=True)
    assert len(set(weights)) == len(weights)
    assert link_weight("carrier pigeon") == link_weight("SYS")


def test_links_to_strangers_and_to_oneself_mean_nothing() -> None:
    found = inventory(device("a", links={"a": "NV18", "z": "NV18"}), device("b"))
    assert found.topology.weight == ((0, 0), (0, 0))


def test_equal_topologies_are_one_object() -> None:
    one = inventory(device("a", numa=0), device("b", numa=1))
    other = inventory(device("x", numa=0), device("y", numa=1))
    assert one.topology is other.topology


def test_linked_devices_are_taken_together_and_broken_pairs_first() -> None:
    pairs = inventory(
        device("a", links={"b": "NV12"}), device("b"), device("c", links={"d": "NV12"}), device("d")
    ).topology
    assert pairs.best_set(0b1111, 2) == 0b0011
    assert pairs.best_set(0b1111, 1) == 0b0001
    assert pairs.best_set(0b1110, 1) == 0b0010  # b has lost its partner: the pair c, d stays whole
    assert pairs.best_set(0b1110, 2) == 0b1100


def test_same_numa_node_is_preferred() -> None:
    split = inventory(*(device(f"d{i}", numa=i % 2) for i in range(4))).topology
    assert split.best_set(0b1111, 2) == 0b0101
    assert split.best_set(0b1110, 2) == 0b1010


def test_asking_for_more_than_is_free_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="3 devices asked for, 2 free"):
        inventory(device("a"), device("b")).topology.best_set(0b11, 3)


_WEIGHTS = st.lists(st.integers(0, 3), min_size=28, max_size=28)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(_WEIGHTS, st.integers(1, 255), st.integers(1, 8))
def test_no_set_is_better_linked_than_the_best_one(weights: list[int], free: int, count: int) -> None:
    of = dict(zip(combinations(range(8), 2), weights, strict=True))
    matrix = tuple(tuple(0 if i == j else of[min(i, j), max(i, j)] for j in range(8)) for i in range(8))
    topology = DeviceTopology(matrix, (-1,) * 8)
    if count > free.bit_count():
        return
    best = topology.best_set(free, count)
    assert best & ~free == 0
    assert best.bit_count() == count
    assert best == topology.best_set(free, count)

    def inside(chosen: tuple[int, ...]) -> int:
        return sum(of[pair] for pair in combinations(chosen, 2))

    indices = [i for i in range(8) if free >> i & 1]
    chosen = tuple(i for i in range(8) if best >> i & 1)
    assert inside(chosen) == max(inside(one) for one in combinations(indices, count))


def test_many_devices_are_chosen_greedily_and_in_time() -> None:
    n = 200
    ring = inventory(*(device(f"d{i}", numa=i // 100, links={f"d{(i + 1) % n}": "NV4"}) for i in range(n)))
    best = ring.topology.best_set((1 << n) - 1, 64)
    assert best.bit_count() == 64
    taken = [i for i in range(n) if best >> i & 1]
    assert len({i // 100 for i in taken}) == 1


def test_of_more_devices_than_can_be_linked_no_pair_is_weighed() -> None:
    """A node may list 4,096, and whoever writes its annotation must not hold the scheduler up by that."""
    listed = [device(f"g{i}", numa=i % 3, links={"g0": "NV18"}) for i in range(MAX_DEVICES)]
    big = inventory(*listed)
    assert big.topology.is_flat
    assert len({id(row) for row in big.topology.weight}) == 1, "one row stands for all"
    chosen = big.ids_of(big.topology.best_set(big.healthy, 8))
    assert {int(one[1:]) % 3 for one in chosen} == {0}, "of one NUMA node"
    across = big.ids_of(big.topology.best_set(big.healthy, 2_000))
    assert len({int(one[1:]) % 3 for one in across}) == 2
    linked = DeviceSets(big.topology, DeviceConstraint(link_weight=1))
    assert linked.most(big.healthy, 2).n == 0, "nothing is known of links"
    assert DeviceSets(big.topology, DeviceConstraint()).most(big.healthy, 2).n == MAX_DEVICES // 2


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=10), st.data())
def test_where_nothing_is_linked_the_best_sets_are_those_of_a_search_through_all(
    numa: list[int], data: st.DataObject
) -> None:
    topology = DeviceTopology(((0,) * len(numa),) * len(numa), tuple(numa))
    free = data.draw(st.integers(1, (1 << len(numa)) - 1))
    count = data.draw(st.integers(1, free.bit_count()))
    indices = [i for i in range(len(numa)) if free >> i & 1]
    expected = []
    while len(indices) >= count:
        best = min(combinations(indices, count), key=lambda one: (len({numa[i] for i in one}), one))
        expected.append(sum(1 << i for i in best))
        indices = [i for i in indices if i not in best]
    assert topology.best_sets(free, count, len(expected)) == tuple(expected)
    assert topology.best_set(free, count) == expected[0]


@pytest.mark.parametrize("n_nodes", [1, 3, MAX_DEVICES])
@pytest.mark.parametrize("count", [1, 2, MAX_DEVICES - 1, MAX_DEVICES])
def test_of_all_devices_that_a_node_may_list_any_number_is_chosen(count: int, n_nodes: int) -> None:
    """Each set was weighed by all pairs of what it leaves: that took hours, and nothing else ran."""
    big = inventory(*(device(f"g{i}", numa=i % n_nodes) for i in range(MAX_DEVICES)))
    n = MAX_DEVICES // count
    for sets in (
        big.topology.best_sets(big.healthy, count, n),
        DeviceSets(big.topology, DeviceConstraint()).choose(big.healthy, count, n),
    ):
        assert [one.bit_count() for one in sets] == [count] * n
        assert sum(sets).bit_count() == count * n, "no device is in two"


def test_forged_topologies_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_topology, "_topologies", {})
    for i in range(200):
        inventory(*(device(f"g{k}", model=f"{i}-{k}") for k in range(MAX_LINKED)))
    n_pairs = sum(len(wiring) ** 2 for wiring in device_topology._topologies)
    assert 0 < n_pairs <= 2**22 + MAX_LINKED**2


def test_annotations_carry_the_allocation_and_come_back_as_it_was() -> None:
    allocation: Allocation = {"trainer": {GPU: ("g0", "g1")}, "sidecar": {"example.com/nic": ("n0",)}}
    annotations = allocation_annotations(allocation)
    assert annotations[ALLOCATED_KEY] == (
        '{"trainer":{"nvidia.com/gpu":["g0","g1"]},"sidecar":{"example.com/nic":["n0"]}}'
    )
    assert annotations[VISIBLE_KEY] == "g0,g1"
    assert parse_allocation(annotations[ALLOCATED_KEY]) == allocation
    assert allocation_annotations({}) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"c":[]}', '{"c":{"r":"x"}}', '{"c":{"r":[1]}}', "{" * 9999])
def test_bad_allocations(text: str) -> None:
    with pytest.raises(ParseError, match="is not an allocation"):
        parse_allocation(text)


def spec(*main: int, init: tuple[tuple[int, bool], ...] = ()) -> PodSpec:
    """GPUs by container; init: (GPUs, is a sidecar)."""

    def container(name: str, count: int, sidecar: bool = False) -> dict[str, Any]:
        limits = {"limits": {GPU: str(count)}} if count else {}
        return {"name": name, "resources": limits, **({"restartPolicy": "Always"} if sidecar else {})}

    return msgspec.convert(
        {
            "containers": [container(f"m{i}", count) for i, count in enumerate(main)],
            "initContainers": [container(f"i{i}", count, side) for i, (count, side) in enumerate(init)],
        },
        PodSpec,
    )


def test_demand_lists_who_asks_in_the_pods_order() -> None:
    assert device_demand(spec(2, 0, 1, init=((4, False), (1, True))), GPU) == (
        ("i0", 4, False),
        ("i1", 1, True),
        ("m0", 2, True),
        ("m2", 1, True),
    )


def test_running_containers_share_nothing_and_init_containers_borrow() -> None:
    eight = inventory(*(device(f"g{i}", links={f"g{i ^ 1}": "NV18"}) for i in range(8)))
    demand = device_demand(spec(2, 4, init=((6, False),)), GPU)
    shares = split_among_containers(eight, 0b111111, demand)
    assert sorted(shares["m0"] + shares["m1"]) == [f"g{i}" for i in range(6)]
    assert set(shares["i0"]) == {f"g{i}" for i in range(6)}
    assert list(shares) == ["i0", "m0", "m1"]
    alone = split_among_containers(eight, 0b11, device_demand(spec(2), GPU))
    assert alone == {"m0": ("g0", "g1")}


def test_an_init_container_gets_no_device_of_a_sidecar_that_runs_beside_it() -> None:
    eight = inventory(*({"id": f"g{k}"} for k in range(8)))
    demand = (("side", 1, True), ("init", 4, False), ("late", 1, True), ("main", 2, True))
    shares = split_among_containers(eight, 0b11111, demand)
    assert not {*shares["side"]} & {*shares["init"]}
    assert {*shares["side"], *shares["init"]} == {*eight.ids[:5]}, "the whole set is in use at once"
    assert len({*shares["side"], *shares["late"], *shares["main"]}) == 4


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3), st.lists(st.tuples(st.integers(0, 6), st.booleans()))
)
def test_a_set_as_large_as_the_pods_request_is_always_enough(
    main: list[int], init: list[tuple[int, bool]]
) -> None:
    pod = spec(*main, init=tuple(init[:3]))
    wanted = pod_requests(pod).get(GPU, 0)
    demand = device_demand(pod, GPU)
    if not demand:
        return
    many = inventory(*(device(f"g{i}") for i in range(24)))
    shares = split_among_containers(many, (1 << wanted) - 1, demand)
    assert {name: len(ids) for name, ids in shares.items()} == {name: count for name, count, _ in demand}
    running = [one for name, _, runs in demand if runs for one in shares[name]]
    assert len(running) == len(set(running))
    assert {one for ids in shares.values() for one in ids} <= {f"g{i}" for i in range(wanted)}

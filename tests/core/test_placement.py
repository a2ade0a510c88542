"""Where members go: all or nothing, packed, with the right devices."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings, default_config
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import GPU, inventory, make_node, make_pod
from gangsched.model.devices.annotations import ALLOCATED_KEY, INVENTORY_KEY
from gangsched.model.objects import Container, ResourceRequirements
from gangsched.plugins import IN_TREE, build_profiles
from tests.support.scenario import Cluster, cluster, gang


def test_all_or_nothing() -> None:
    c = cluster(nodes=4).submit(gang("a", pods=5, gpus=8)).run()
    assert c.untouched("a")
    assert c.scheduler.statistics()["reservations"] == 0
    assert c.said("a-0").startswith("gang d/a: 4 of 5 fit; member a-4: 0/4 nodes are available: 4 Insuff")


def test_a_gang_takes_the_fewest_nodes_and_the_tightest() -> None:
    c = cluster(nodes=3).submit(make_pod("x", gpus=4)).run()
    taken = c.pod("x").spec.node_name
    c.submit(gang("a", pods=2, gpus=2)).run()
    assert {c.pod(f"a-{k}").spec.node_name for k in range(2)} == {taken}


def test_of_equally_few_nodes_those_in_one_rack() -> None:
    c = cluster(nodes=6, racks=3).submit(gang("a", pods=2, gpus=8)).run()
    racks = {(c.nodes[c.pod(f"a-{k}").spec.node_name].metadata.labels or {}).popitem()[1] for k in range(2)}
    assert len(racks) == 1


@pytest.mark.parametrize("seed", range(40))
def test_packing_is_the_best_there_is(seed: int) -> None:
    """Fewest nodes, then fewest racks, against every choice of nodes there is."""
    rng = Random(seed)
    room = [rng.randint(0, 8) for _ in range(5)]
    racks = [f"r{rng.randrange(3)}" for _ in room]
    per, n = rng.choice((1, 2)), rng.randint(1, 8)
    c = Cluster()
    for i, gpus in enumerate(room):
        c.node(make_node(f"n{i}", gpus=gpus, rack=racks[i]))
    c.submit(gang("a", pods=n, gpus=per)).run()
    fits = [r // per for r in room]
    best = None
    for size in range(1, len(room) + 1):
        choices = [
            set(s) for s in combinations_with_replacement(range(len(room)), size) if len(set(s)) == size
        ]
        enough = [s for s in choices if sum(fits[i] for i in s) >= n]
        if enough:
            best = (size, min(len({racks[i] for i in s}) for s in enough))
            break
    if best is None:
        assert c.untouched("a"), f"seed {seed}"
        return
    nodes = {c.pod(f"a-{k}").spec.node_name for k in range(n)}
    got = (len(nodes), len({racks[int(name[1:])] for name in nodes}))
    assert got[0] == best[0], f"seed {seed}: room {fits}, {n} pods"
    # Racks are chosen greedily: the best in all but rare mixtures, and never more nodes for it.
    assert got[1] <= best[1] + 1, f"seed {seed}: room {fits}, racks {racks}, {n} pods"


@pytest.mark.parametrize("seed", range(30))
def test_a_gang_of_two_shapes_is_placed_where_any_placement_exists(seed: int) -> None:
    rng = Random(seed)
    room = [rng.randint(1, 8) for _ in range(3)]
    sizes = [2] * rng.randint(1, 3) + [4] * rng.randint(1, 2)
    c = Cluster()
    for i, gpus in enumerate(room):
        c.node(make_node(f"n{i}", gpus=gpus))
    c.submit(
        [
            pod
            for k, gpus in enumerate(sizes)
            for pod in gang("a", pods=1, gpus=gpus, min_members=len(sizes), first=k)
        ]
    )
    c.run()
    assert c.placed("a") == _some_way(tuple(room), tuple(sorted(sizes, reverse=True))), f"seed {seed}"


def _some_way(room: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    if not sizes:
        return True
    return any(
        _some_way((*room[:i], room[i] - sizes[0], *room[i + 1 :]), sizes[1:])
        for i in range(len(room))
        if room[i] >= sizes[0]
    )


def test_linked_devices_of_one_numa_node_are_taken_together() -> None:
    c = cluster(nodes=1).submit(make_pod("one", gpus=1)).run().submit(make_pod("a", gpus=2)).run()
    first, second = sorted(int(i.rpartition("-")[2]) for i in c.ids("a"))
    assert first ^ 1 == second


def test_an_unhealthy_device_is_never_given() -> None:
    c = Cluster().node(make_node("n0", annotations={INVENTORY_KEY: inventory("n0", 8, unhealthy=(0, 3))}))
    c.submit(gang("a", pods=6)).run()
    assert set().union(*(c.ids(f"a-{k}") for k in range(6))) == {f"GPU-n0-{k}" for k in (1, 2, 4, 5, 6, 7)}
    c.submit(make_pod("b")).run()
    assert "healthy devices" in c.said("b")


def test_without_an_inventory_numbers_count() -> None:
    c = cluster(nodes=1, listed=False).submit(gang("a", pods=2, gpus=4)).run()
    assert c.placed("a")
    assert c.ids("a-0") == set()
    assert c.submit(make_pod("b")).run().untouched("b")


def _container(name: str, gpus: int, *, always: bool = False) -> Container:
    asked: dict[str, str | int | float] = {"cpu": 1}
    if gpus:
        asked[GPU] = gpus
    return Container(
        name=name, resources=ResourceRequirements(requests=asked), restart_policy="Always" if always else None
    )


def test_containers_share_the_pods_devices_and_init_containers_reuse_them() -> None:
    pod = make_pod("a")
    spec = replace(
        pod.spec,
        containers=[_container("x", 2), _container("y", 1), _container("z", 0)],
        init_containers=[_container("init", 3)],
    )
    c = cluster(nodes=1).submit(replace(pod, spec=spec)).run()
    held = msgspec.json.decode((c.pod("a").metadata.annotations or {})[ALLOCATED_KEY])
    assert set(held) == {"x", "y", "init"}
    x, y, init = (set(held[name][GPU]) for name in ("x", "y", "init"))
    assert len(c.ids("a")) == 3
    assert not x & y
    assert init == x | y


def test_a_sidecars_devices_are_not_given_to_an_init_container_that_runs_beside_it() -> None:
    pod = make_pod("a")
    spec = replace(
        pod.spec,
        containers=[_container("main", 1)],
        init_containers=[_container("sidecar", 2, always=True), _container("init", 4)],
    )
    c = cluster(nodes=1).submit(replace(pod, spec=spec)).run()
    held = msgspec.json.decode((c.pod("a").metadata.annotations or {})[ALLOCATED_KEY])
    assert not set(held["sidecar"][GPU]) & set(held["init"][GPU])
    assert not set(held["sidecar"][GPU]) & set(held["main"][GPU])


def test_devices_are_known_again_after_a_restart() -> None:
    c = cluster(nodes=1).submit(gang("a", pods=3, gpus=2)).run().restart()
    c.submit(make_pod("b", gpus=2)).run()
    assert not c.ids("b") & set().union(*(c.ids(f"a-{k}") for k in range(3)))


def test_an_inventory_that_comes_back_under_live_pods_gives_nothing_twice() -> None:
    c = cluster(nodes=1).submit(make_pod("a", gpus=4)).run()
    node = c.nodes["n0"]
    c.node(replace(node, metadata=replace(node.metadata, annotations={})))
    c.node(node).submit(make_pod("b", gpus=4)).run()
    assert not c.ids("a") & c.ids("b")


def test_a_node_that_loses_a_spoilt_inventory_counts_again_and_wakes() -> None:
    c = Cluster().node(make_node("n0", annotations={INVENTORY_KEY: "{"}))
    c.submit(gang("a", pods=1)).run()
    assert c.untouched("a")
    node = c.nodes["n0"]
    c.wait(20.0).node(replace(node, metadata=replace(node.metadata, annotations={}))).run()
    assert c.placed("a")


def test_lone_pods_use_equally_good_nodes_evenly_and_the_same_seed_gives_the_same_nodes() -> None:
    def nodes_of(pick: Callable[[int], int]) -> list[str]:
        profiles = build_profiles(default_config(IN_TREE))
        c = Cluster(make=lambda settings: Scheduler(profiles, settings, pick=pick))
        for i in range(4):
            c.node(make_node(f"n{i}", gpus=8))
        placed = []
        for k in range(200):
            c.submit(make_pod(f"x-{k}", gpus=1)).run()
            placed.append(c.pod(f"x-{k}").spec.node_name)
            c.delete(f"x-{k}")
        return placed

    even = nodes_of(Random(7).randrange)
    counts = [even.count(f"n{i}") for i in range(4)]
    assert min(counts) > 30, counts
    assert nodes_of(Random(7).randrange) == even
    assert nodes_of(Random(8).randrange) != even
    assert set(nodes_of(first_of)) == {"n0"}


def test_with_round_robin_ties_lone_pods_get_equally_good_nodes_in_turn() -> None:
    """As published: the count of ties so far modulo the number of equally good nodes."""
    profiles = build_profiles(default_config(IN_TREE))
    settings = Settings(ties="roundRobin")
    c = Cluster(settings, make=lambda own: Scheduler(profiles, own, pick=Random(7).randrange))
    for i in range(3):
        c.node(make_node(f"n{i}", gpus=8))
    placed = []
    for k in range(7):
        c.submit(make_pod(f"x-{k}", gpus=1)).run()
        placed.append(c.pod(f"x-{k}").spec.node_name)
        c.delete(f"x-{k}")
    assert placed == ["n0", "n1", "n2", "n0", "n1", "n2", "n0"]

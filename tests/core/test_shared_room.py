"""Members of several kinds that are together too many for the nodes: told at once, and truly."""

from __future__ import annotations

import random

import pytest

from gangsched.config import Settings
from gangsched.core.cycle import cycle
from gangsched.core.cycle.domains import topology
from gangsched.lab.sim.objects import make_pod
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUPS_KEY
from tests.core.rules import Neighbours
from tests.core.test_search import Case
from tests.core.topologies import ONE_RACK, RACK, apart, beside, node, racks, where, within
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def kinds(name: str, *amounts: tuple[int, int]) -> list[Pod]:
    """A gang of (members, devices of each), each kind with a cpu request of its own."""
    n = sum(members for members, _ in amounts)
    return [
        make_pod(f"{name}-{kind}-{i}", group=name, min_members=n, gpus=gpus, cpu=f"{100 + kind}m")
        for kind, (members, gpus) in enumerate(amounts)
        for i in range(members)
    ]


class Cycles:
    """Counts whole cycles, and in how many orders a group's kinds were placed in them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.n_run = self.n_orders = 0
        run, place = cycle._run, cycle._place_batches

        def counted(*args: object) -> object:
            self.n_run += 1
            return run(*args)  # type: ignore[arg-type]

        def placed(*args: object, **more: object) -> object:
            self.n_orders += 1
            return place(*args, **more)  # type: ignore[arg-type]

        patch.setattr(cycle, "_run", counted)
        patch.setattr(cycle, "_place_batches", placed)


def test_two_kinds_that_each_fit_in_a_rack_and_not_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of eight takes one of five devices, of either kind: thirty of them in racks of twenty nodes were
    tried in every rack and in every order."""
    cycles = Cycles(monkeypatch)
    c = racks(a=20, b=20, c=12)
    c.submit(within(ONE_RACK, kinds("g", (15, 5), (15, 5)))).run()
    assert c.untouched("g")
    assert c.said("g-0-0").startswith(
        f"gang d/g: no {RACK} has room for 30 members: a could take 20, b could take 20, c could take 12. "
        "In a: 20 of 30 fit; "
    )
    assert (cycles.n_run, cycles.n_orders) == (1, 1)
    for i in range(10):
        c.node(node(f"b2{i}", rack="b"))
    c.wait(11.0)
    assert c.placed("g")
    assert where(c, "g") == ["b"]


def test_kinds_of_which_no_two_may_share_a_node() -> None:
    c = racks(a=3, b=4).submit(apart(within(ONE_RACK, kinds("g", (2, 1), (3, 1))))).run()
    assert c.untouched("g")
    assert c.said("g-0-0").startswith(
        f"gang d/g: no {RACK} has room for 5 members: b could take 4, a could take 3."
    )
    c.node(node("b4", rack="b")).wait(11.0)
    assert c.placed("g", on=5)
    assert where(c, "g") == ["b"]


def test_one_that_runs_in_a_rack_already_counts_against_those_that_keep_away_from_it() -> None:
    c = racks(a=5)
    c.submit(apart([make_pod("one", gpus=1)])).run()
    c.submit(apart(within(ONE_RACK, kinds("g", (2, 1), (3, 1))))).run()
    assert c.untouched("g")
    assert c.said("g-0-0").startswith(f"gang d/g: no {RACK} has room for 5 members: a could take 4.")


def test_kinds_that_all_want_to_be_near_each_other_are_proved_too_many_for_any_rack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By affinity alone, without a topology of their group: a rack was filled and others searched, kind by
    kind."""
    cycles = Cycles(monkeypatch)
    c = racks(a=4, b=5, c=3).submit(beside(kinds("g", (2, 5), (2, 5), (2, 5)))).run()
    assert c.untouched("g")
    assert "No placement exists" in c.said("g-0-0")
    assert cycles.n_orders == 1
    c.node(node("b5", rack="b")).wait(11.0)
    assert c.placed("g", on=6)
    assert where(c, "g") == ["b"]


def test_kinds_that_want_to_be_near_another_group_are_not_too_many_before_that_is_placed() -> None:
    c = racks(a=2, b=3)
    both = {GROUPS_KEY: '["lead", "near"]'}
    lead = with_annotations(apart(gang("lead", pods=1, gpus=1)), both)
    near = within(ONE_RACK, with_annotations(beside(kinds("near", (1, 5), (1, 6))), both))
    for pod in near:
        (pod.metadata.labels or {})["app"] = "another"
    c.submit([*lead, *near]).run()
    assert c.placed("lead")
    assert c.placed("near", on=2)
    assert where(c, "lead") == where(c, "near")


def test_a_gang_that_the_whole_cluster_cannot_take_is_placed_in_one_order_and_proved_hopeless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cycles = Cycles(monkeypatch)
    c = cluster(nodes=8).submit(kinds("g", (3, 5), (3, 5), (3, 5))).run()
    assert c.untouched("g")
    assert "8 of 9 fit" in c.said("g-0-0")
    assert "No placement exists" in c.said("g-0-0")
    assert cycles.n_orders == 1


def test_how_many_fit_counts_no_member_that_was_not_tried() -> None:
    """Twelve that all differ, on two nodes that take one each: the third fails, nine were not tried."""
    c = cluster(nodes=2).submit(kinds("g", *[(1, 5)] * 12)).run()
    assert "2 of 12 fit" in c.said("g-0-0")


def test_racks_that_are_too_many_for_one_turn_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the first five racks looks large enough, and only the last one is."""
    monkeypatch.setattr(topology, "_MAX_ASKS", 1)
    c = Cluster(Settings(topology_key=RACK, search_placements=0))
    for rack in "abcde":
        for i, gpus in enumerate((8, 8, 3)):
            c.node(node(f"{rack}{i}", rack=rack, gpus=gpus))
    for i in range(3):
        c.node(node(f"z{i}", rack="z"))
    c.submit(within(ONE_RACK, kinds("g", (1, 5), (3, 4)))).run()
    assert c.untouched("g")
    assert "A placement may exist: only some of the many domains are tried at a time" in c.said("g-0-0")
    for i in range(6):
        c.node(node(f"other{i}", rack=f"other{i}")).run().wait(11.0)
    assert c.placed("g")
    assert where(c, "g") == ["z"]


@pytest.mark.parametrize("seed", range(60))
def test_the_message_about_mixed_kinds_is_true(seed: int) -> None:
    """Against brute force: a gang is found hopeless only where every order of placing it fails."""
    chance = random.Random(seed)
    nodes = [(chance.randint(1, 6), {"host": f"h{i}", "rack": f"r{i % 2}"}) for i in range(4)]
    case = Case(nodes, Neighbours() if seed % 3 else None)
    sizes = [chance.randint(1, 4) for _ in range(3)]
    rules = ["", "role=w;apart=host:w"] if seed % 3 else [""]
    case.gang(*[(chance.choice(sizes), chance.choice(rules)) for _ in range(chance.randint(3, 6))])
    case.check(case.run())

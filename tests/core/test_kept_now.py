"""What claims keep of the room that is free now: no more than their gang needs beside what becomes free."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.lab.sim.objects import RACK, make_node
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.test_claims import bounded
from tests.support.scenario import Cluster, gang, lone, with_annotations


def walled(pods: list[Any], walltime: str) -> list[Any]:
    return with_annotations(pods, {WALLTIME_KEY: walltime})


def on(pods: list[Any], node: str) -> list[Any]:
    """Pods that may go to this node only."""
    return [replace(pod, spec=replace(pod.spec, node_selector={RACK: node})) for pod in pods]


def named(n: int, *, bound: int | None = None) -> Cluster:
    """Nodes of 8 GPUs, each a rack of its name; with no number the first in line gets a claim."""
    c = bounded(nodes=0, bound=bound)
    for i in range(n):
        c.node(make_node(f"n{i}", gpus=8, rack=f"n{i}"))
    return c


def half_taken(*, gpus: int = 1) -> Cluster:
    """On each of two nodes 4 of 8 GPUs end after 600 s; a gang that needs 12 GPUs has a claim for then."""
    c = named(2)
    for node in ("n0", "n1"):
        c.submit(on(lone(f"holds-{node}", 4, "600s"), node)).run()
    c.submit(walled(gang("large", pods=12 // gpus, gpus=gpus), "1h")).run()
    c.submit(lone("asks", 4, "2h")).run()
    assert c.claim("large").start_s == 601.0
    return c


def test_what_ends_before_the_claim_starts_need_not_be_free_now() -> None:
    c = half_taken()
    assert c.pod("asks").spec.node_name, "12 of 16 GPUs are needed then, and 8 are not free now"
    c.submit(lone("one-too-many", 1, "2h")).run()
    assert not c.pod("one-too-many").spec.node_name
    c.wait(600.0)
    c.delete("holds-n0", "holds-n1").run()
    assert c.placed("large", on=2)


def test_what_ends_early_on_a_claimed_node_is_kept() -> None:
    c = half_taken()
    c.delete("holds-n0").run()
    c.submit(lone("one-too-many", 1, "2h")).run()
    assert not c.pod("one-too-many").spec.node_name
    c.submit(lone("fills", 1, "500s")).run()
    assert c.pod("fills").spec.node_name


def test_what_pods_without_a_stated_end_may_leave_is_not_given_away() -> None:
    """Else each such pod that starts would let the next one in, and the claim would never come."""
    c = named(2, bound=1)
    c.submit(on(gang("endless", pods=1, gpus=4), "n0")).run()
    c.submit(on(lone("ends", 8, "600s"), "n1")).run()
    c.submit(walled(gang("large", pods=12, gpus=1), "1h")).run()
    c.submit(lone("passes", 1, "2h")).run().delete("passes").run()
    c.submit(lone("asks", 4, "2h")).run()
    assert not c.claim("large").is_promise
    assert not c.pod("asks").spec.node_name
    c.submit(lone("fits-beside", 4, "500s")).run()
    assert c.pod("fits-beside").spec.node_name == "n0"


def test_members_that_need_more_than_one_device_count_whole() -> None:
    c = half_taken(gpus=4)
    assert c.pod("asks").spec.node_name
    c.submit(lone("one-too-many", 1, "2h")).run()
    assert not c.pod("one-too-many").spec.node_name


def test_a_claim_takes_nodes_that_become_free_before_nodes_that_are() -> None:
    c = named(3)
    c.submit(on(lone("holds-0", 8, "600s"), "n0")).run().submit(on(lone("holds-1", 8, "600s"), "n1")).run()
    c.submit(walled(gang("large", pods=2, gpus=8), "1h")).run()
    c.submit(lone("asks", 8, "2h")).run()
    assert sorted(c.claim("large").nodes) == ["n0", "n1"]
    assert c.pod("asks").spec.node_name == "n2"


def test_a_claim_leaves_free_room_once_others_that_run_end_in_time() -> None:
    c = named(4)
    for node, walltime in (("n0", "600s"), ("n1", "600s"), ("n3", "20h")):
        c.submit(on(lone(f"holds-{node}", 8, walltime), node)).run()
    c.submit(walled(gang("large", pods=3, gpus=8), "1h")).run()
    c.submit(lone("asks", 8, "2h")).run()
    assert sorted(c.claim("large").nodes) == ["n0", "n1", "n2"]
    assert not c.pod("asks").spec.node_name
    c.delete("asks", "holds-n3").run()
    c.submit(on(lone("fills", 8, "300s"), "n3")).run()
    assert c.pod("fills").spec.node_name == "n3"
    c.submit(on(lone("asks-again", 8, "2h"), "n2")).run()
    assert c.pod("asks-again").spec.node_name == "n2", "the claim moves to n3, which is free in time"
    assert sorted(c.claim("large").nodes) == ["n0", "n1", "n3"]
    assert c.claim("large").start_s == 601.0


def test_a_claim_that_comes_later_as_one_before_it_does_names_that_ones_cause() -> None:
    c = bounded(bound=1).submit(lone("holds", 8, "600s")).submit(lone("beside", 8, "2h")).run()
    for name, walltime in (("first", "1h"), ("second", "1h")):
        c.submit(walled(gang(name, pods=2, gpus=8), walltime)).run()
    c.delete("beside").run()
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    c.submit(lone("asks", 8, "2h")).run().submit(lone("fills", 8, "300s")).run()
    assert (c.claim("first").start_s, c.claim("second").start_s) == (601.0, 4201.0)
    c.wait(700.0)
    assert c.claim("first").because == "overrun"
    assert c.claim("second").start_s > 4201.0
    assert c.claim("second").because == "overrun"


@pytest.mark.parametrize("kept", ["n0", "n1", "n2", "n3"])
def test_a_gang_that_starts_before_its_claim_goes_where_it_makes_no_promised_start_late(kept: str) -> None:
    """`wide` came first, and has a claim on three nodes; `near` has one for two others, a bit later."""
    c, nodes = named(5, bound=1), ["n0", "n1", "n2", "n3", "n4"]
    for node in nodes:
        ends = "1100s" if node in (kept, "n4") else "1000s"
        c.submit(on(lone(f"holds-{node}", 7, ends), node)).run()
    one, other = gang("near", pods=2, gpus=8)
    for unit in (gang("wide", pods=3, gpus=8), [*on([one], kept), *on([other], "n4")]):
        c.submit(walled(unit, "1h")).run()
        for k in range(2):
            c.submit(on(lone(f"passes-{k}", 1, "10s"), kept)).run().delete(f"passes-{k}").run()
    assert c.claim("near").is_promise
    c.wait(100.0).delete(*(f"holds-{node}" for node in nodes[:4])).run()
    assert c.placed("wide", on=3)
    c.wait(1000.0).delete("holds-n4").run()
    assert c.pod("near-0").spec.node_name == kept

"""RemainingBandwidth: the published examples with their numbers, policies, reasons, and a gang's share."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.framework.interface import CycleState
from gangsched.errors import ConfigError
from gangsched.lab.sim.objects import at, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.pod_group import COSCHEDULING_LABEL
from gangsched.plugins.resources.remaining_bandwidth import Args, RemainingBandwidth
from tests.plugins.bandwidths import asking, beat, cluster, config, node, on, rbw, report
from tests.plugins.build import Cluster as Rows
from tests.support.scenario import Cluster, on_node

NEVER_STALE: dict[str, Any] = {"stalePolicy": "ignore"}


def place(where: Cluster, name: str, *args: str, **more: Any) -> str:
    where.submit(asking(name, *args, **more)).run()
    return on(where, name)


def names_in(where: Cluster) -> list[str]:
    return sorted(pod.metadata.name for pod in where.pods.values())


# -- the published examples ----------------------------------------------------------------------------


def test_closest_to_expected_is_best_as_published() -> None:
    """Nodes of 1500 MB/s with 600 and 1000 used; required 400, expected 500: 900 and 500 are left."""
    where = rbw(("roomy", 1500, 600), ("fitting", 1500, 1000))
    assert place(where, "p", "400MB/s", "500MB/s") == "fitting"


def test_largest_surplus_is_best_as_published() -> None:
    """Three nodes with 900, 500 and 700 left."""
    where = rbw(("a", 1500, 600), ("b", 1500, 1000), ("c", 1500, 800), strategy="LargestSurplus")
    assert place(where, "p", "400MB/s", "500MB/s") == "a"


def test_within_the_bound_no_node_has_more_left_than_is_published() -> None:
    """|left - 500| <= 500 - 400: 400 to 600 MB/s."""
    nodes = (("roomy", 1500, 600), ("edge", 1500, 900), ("fitting", 1500, 1000))
    where = rbw(*nodes, bound=True)
    assert [place(where, f"p{k}", "400MB/s", "500MB/s") for k in range(2)] == ["fitting", "edge"]
    where.submit(asking("p2", "400MB/s", "500MB/s")).run()
    assert where.untouched("p2")
    assert "1 node(s) had more than 600 MB/s of egress and ingress left, too much for" in where.said("p2")
    where.wait(2.0)
    beat(where, "roomy", 1500, 900)
    where.run()
    assert on(where, "p2") == "roomy", "600 are left now"
    assert on(rbw(*nodes).submit(asking("q", "700MB/s", "800MB/s")).run(), "q") == "roomy"


def test_a_pod_that_expects_what_it_requires_has_no_bound() -> None:
    assert place(rbw(("idle", 1500, 0), bound=True), "p", "400MB/s") == "idle"


def test_what_another_pod_takes_brings_a_node_within_the_bound() -> None:
    where = rbw(("n", 1500, 0), bound=True)
    where.submit(asking("p", "400MB/s", "500MB/s")).run()
    assert where.untouched("p")
    assert place(where, "q", "1000MB/s") == "n"
    where.wait(2.0)
    beat(where, "n", 1500, 0)
    where.run()
    assert on(where, "p") == "n", "the node's next report asks again: 500 are left beside the promise"


def test_a_gang_within_the_bound_fills_the_node_that_it_starts_on() -> None:
    """1,200 left are within 300 to 1,300, and hold four of 300."""
    where = rbw(("n", 1500, 300), bound=True)
    gang = [asking(f"g-{k}", "300MB/s", "800MB/s", group="g", min_members=4) for k in range(4)]
    where.submit(*gang).run()
    assert {on(where, f"g-{k}") for k in range(4)} == {"n"}


def test_the_bound_is_of_the_strategy_that_wants_what_is_expected() -> None:
    with pytest.raises(ConfigError, match="bound needs strategy ClosestToExpected: LargestSurplus wants"):
        rbw(("n", 1500, 0), strategy="LargestSurplus", bound=True)


def pooled(strategy: str, **more: Any) -> Cluster:
    """The published example: 900, 500 and 700 left; required 400, expected 500."""
    three = (("one", 1500, 600), ("two", 1500, 1000), ("three", 1500, 800))
    return rbw(*three, strategy=strategy, pool=True, **more)


PUBLISHED = ("400MB/s", "500MB/s")


def test_with_largest_surplus_the_pool_is_the_nodes_of_positive_surplus() -> None:
    """400, 0 and 200 more than expected: nodes one and three."""
    where = pooled("LargestSurplus")
    assert place(where, "first", *PUBLISHED) == "one"
    assert place(where, "second", *PUBLISHED) == "three", "the larger surplus of the pool"
    assert place(where, "third", *PUBLISHED) in ("one", "two"), "500 are left on both: the pool is empty"


def test_with_closest_to_expected_the_pool_is_what_lies_between_required_and_expected() -> None:
    """Node two; of the others the one nearest to expected. A node a little above it is not in the pool."""
    where = pooled("ClosestToExpected")
    where.node(node("four", report(1500, 995)))  # 505 left
    where.node(node("five", report(1500, 1080)))  # 420 left
    assert place(where, "first", *PUBLISHED) == "two"
    assert place(where, "second", *PUBLISHED) == "five", "four is nearer, and above what is expected"
    assert place(where, "third", *PUBLISHED) == "four", "the pool is used up"


def test_a_heartbeat_changes_the_membership_of_its_node_alone() -> None:
    where = pooled("ClosestToExpected")
    where.node(node("four", report(1500, 995)))
    where.node(node("five", report(1500, 1080)))
    place(where, "first", *PUBLISHED)
    where.wait(10.0)
    beat(where, "three", 1500, 990)  # 510 left: nearer than five, and not in the pool
    assert place(where, "second", *PUBLISHED) == "five", "another node's report leaves it in the pool"
    beat(where, "one", 1500, 1050)
    assert place(where, "third", *PUBLISHED) == "one", "its own report has brought it into the pool"


def test_another_class_has_a_pool_of_its_own() -> None:
    where = pooled("ClosestToExpected")
    where.node(node("four", report(1500, 995)))
    where.node(node("five", report(1500, 1080)))
    place(where, "first", *PUBLISHED)
    assert place(where, "other", "410MB/s", "500MB/s") == "four", "of another class: no pool yet"


@pytest.mark.parametrize("promise", [True, False])
def test_a_pool_of_largest_surplus_decides_as_no_pool_does(promise: bool) -> None:
    """The largest surplus is in the pool if any is positive; gangs, reports and ends of pods in between."""
    for seed in range(4):
        rng = Random(seed)
        drawn = [(f"n{i}", 2000.0, float(rng.randrange(0, 1500, 50))) for i in range(12)]
        both = [rbw(*drawn, strategy="LargestSurplus", pool=pool, promise=promise) for pool in (False, True)]
        for turn in range(30):
            name, used = f"n{rng.randrange(12)}", float(rng.randrange(0, 1500, 50))
            ends = f"p{rng.randrange(turn)}" if turn % 3 == 2 else ""
            for where in both:
                place(where, f"p{turn}", "100MB/s", "400MB/s")
                if ends in names_in(where):
                    where.delete(ends)
                where.wait(2.0)
                beat(where, name, 2000, used)
        placed = [{name: on(where, name) for name in names_in(where)} for where in both]
        assert placed[0] == placed[1], f"seed {seed}"


def test_the_pool_lives_on_a_thousand_nodes_that_report_every_20_s() -> None:
    """50 reports a second. Nodes just above what is expected tempt a pod whenever there is no pool."""
    rng = Random(7)
    fitting = [(f"fit{i}", 1500.0, 1090.0) for i in range(200)]  # 410 left, of 400 to 500
    above = [(f"above{i}", 1500.0, 995.0) for i in range(800)]  # 505 left
    where = rbw(*fitting, *above, pool=True)
    names = [(name, used) for name, _, used in (*fitting, *above)]
    rng.shuffle(names)
    n_hits = 0
    for i in range(20):
        for name, used in names[50 * i : 50 * i + 50]:
            beat(where, name, 1500, used)
        n_hits += place(where, f"p{i}", *PUBLISHED).startswith("fit")
        where.wait(1.0)
    assert n_hits == 19, "all but the first, which has no pool"


# -- in and out together, and the scale ----------------------------------------------------------------

TOTAL = {"gangsched.io/rbw-direction": "total"}


def test_total_sets_in_and_out_together_against_the_link() -> None:
    """1500 MB/s with 600 out and 500 in: 900 and 1000 are left of each direction, 400 of both together."""
    where = cluster(node("n1", report(1500, 600, 500)))
    assert place(where, "too-much", "401MB/s", annotations=TOTAL) == ""
    assert where.said("too-much") == (
        "0/1 nodes are available: 1 Insufficient remaining bandwidth for 401 MB/s of egress plus ingress"
        " (nearest: n1 400 left of 1500 total, 1100 measured, 0 promised)."
    )
    assert place(where, "fits", "400MB/s", annotations=TOTAL) == "n1"


def test_promises_of_all_directions_count_in_the_total() -> None:
    where = rbw(("n1", 1500, 0))
    place(where, "out", "300MB/s", annotations={"gangsched.io/rbw-direction": "egress"})
    place(where, "ways", "400MB/s")  # in each direction
    assert place(where, "too-much", "401MB/s", annotations=TOTAL) == ""
    assert place(where, "fits", "400MB/s", annotations=TOTAL) == "n1"
    assert place(where, "more", "401MB/s", annotations={"gangsched.io/rbw-direction": "egress"}) == ""
    assert place(where, "less", "400MB/s", annotations={"gangsched.io/rbw-direction": "egress"}) == "n1"


def test_members_of_a_gang_share_what_is_left_of_the_total() -> None:
    where = cluster(node("n1", report(1500, 300, 400)), node("n2", report(1500, 500, 500)))
    pods = [asking(f"p{i}", "400MB/s", group="g", min_members=3, annotations=TOTAL) for i in range(3)]
    where.submit(*pods).run()
    assert Counter(on(where, f"p{i}") for i in range(3)) == {"n1": 2, "n2": 1}


@pytest.mark.parametrize("strategy", ["ClosestToExpected", "LargestSurplus"])
def test_a_single_fast_link_takes_nothing_from_the_differences_among_the_others(strategy: str) -> None:
    """Two 10G nodes, 400 and 1200 MB/s left, with and without a node of 400G beside them."""
    plugin = RemainingBandwidth(Args(strategy=strategy))  # type: ignore[arg-type]
    nodes = Rows()
    nodes.cache.keep_usage_trackers([plugin.usage_tracker])
    nodes.put(node("near", report(1250, 850)))
    nodes.put(node("idle", report(1250, 50)))
    template, rows = nodes.template(asking("p", "100MB/s", "400MB/s")), nodes.rows(["near", "idle"])
    alone = plugin.score(CycleState(), template, nodes.view, rows)
    nodes.put(node("fast", report(50_000, 0)))
    beside = plugin.score(CycleState(), template, nodes.view, rows)
    assert alone is not None
    assert beside is not None
    assert beside.tolist() == alone.tolist()
    assert abs(float(beside[0] - beside[1])) > 30.0, "of 100"


# -- filter --------------------------------------------------------------------------------------------


def test_nodes_below_the_required_bandwidth_are_out() -> None:
    where = rbw(("n1", 1500, 1200), ("n2", 1500, 1101))
    where.submit(asking("p", "400MB/s")).run()
    assert on(where, "p") == ""
    assert where.said("p") == (
        "0/2 nodes are available: 2 Insufficient remaining bandwidth for 400 MB/s of egress and ingress"
        " (nearest: n2 399 left of 1500 total, 1101 measured, 0 promised;"
        " n1 300 left of 1500 total, 1200 measured, 0 promised)."
    )


def test_what_is_promised_is_part_of_the_reason() -> None:
    where = rbw(("n1", 1500, 1000))
    place(where, "first", "300MB/s")
    where.submit(asking("p", "400MB/s")).run()
    assert "(nearest: n1 200 left of 1500 total, 1000 measured, 300 promised)" in where.said("p")


def test_a_gang_gets_the_reason_with_what_its_own_members_would_take() -> None:
    where = rbw(("n1", 1500, 1000), ("n2", 1500, 900))
    members = [asking(f"g-{i}", "300MB/s", group="g", min_members=4) for i in range(4)]
    where.submit(members).run()
    assert where.untouched("g")
    (event,) = [e for e in where.all(ef.RecordEvent) if e.reason == "FailedScheduling"]
    assert (
        "gang d/g: 3 of 4 fit; member g-3: 0/2 nodes are available: 2 Insufficient remaining" in event.message
    )
    assert "n1 200 left of 1500 total, 1000 measured, 300 promised" in event.message
    assert "n2 0 left of 1500 total, 900 measured, 600 promised" in event.message


@pytest.mark.parametrize(("direction", "placed"), [("egress", "out"), ("ingress", "in"), ("both", "")])
def test_directions_are_looked_at_apart(direction: str, placed: str) -> None:
    where = cluster(node("out", report(1500, 100, 1400)), node("in", report(1500, 1400, 100)))
    asked = {"gangsched.io/rbw-direction": direction}
    where.submit(asking("p", "500MB/s", annotations=asked)).run()
    assert on(where, "p") == placed


def test_a_promise_in_one_direction_leaves_the_other() -> None:
    where = rbw(("n1", 1000, 0))
    for i in range(4):
        way = {"gangsched.io/rbw-direction": ("egress", "ingress")[i % 2]}
        assert place(where, f"p{i}", "500MB/s", annotations=way) == "n1"
    assert place(where, "more", "1MB/s", annotations={"gangsched.io/rbw-direction": "egress"}) == ""


def test_a_pod_that_asks_for_none_goes_anywhere_and_promises_nothing() -> None:
    where = rbw(("n1", 1500, 1500))
    assert place(where, "plain") == "n1"


@pytest.mark.parametrize(
    ("required", "expected", "reason"),
    [
        ("500MB/s", "400MB/s", "'400MB/s' is below gangsched.io/required-rbw, '500MB/s'"),
        ("plenty", "", "annotation gangsched.io/required-rbw: 'plenty' is not a bandwidth"),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(required: str, expected: str, reason: str) -> None:
    where = rbw(("n1", 1500, 0))
    where.submit(asking("p", required, expected)).run()
    assert on(where, "p") == ""
    assert reason in where.said("p")


# -- what nodes say ------------------------------------------------------------------------------------


def test_a_node_that_never_said_anything_has_nothing_to_promise() -> None:
    where = cluster(node("silent", None))
    where.submit(asking("p", "1MB/s")).run()
    assert "1 node(s) did not report their remaining bandwidth" in where.said("p")


def test_a_stale_node_is_full_by_policy_and_comes_back_with_its_next_heartbeat() -> None:
    where = rbw(("n1", 1500, 0), staleSeconds=30)
    where.wait(31.0)
    where.submit(asking("p", "1MB/s")).run()
    assert "1 node(s) did not report their remaining bandwidth for 30 s" in where.said("p")
    beat(where, "n1", 1500, 100)
    where.wait(2.0)
    assert on(where, "p") == "n1"


def test_a_stale_node_counts_by_its_last_word_where_that_is_the_policy() -> None:
    where = rbw(("n1", 1500, 0), staleSeconds=30, **NEVER_STALE)
    where.wait(3600.0)
    assert place(where, "p", "1MB/s") == "n1"


def test_other_changes_of_a_node_are_no_heartbeat() -> None:
    where = rbw(("n1", 1500, 0), staleSeconds=30)
    where.wait(20.0)
    where.node(where.nodes["n1"])
    where.wait(20.0)
    assert place(where, "p", "1MB/s") == ""


def test_an_annotation_that_cannot_be_read_is_reported_on_the_node_and_what_it_said_before_stands() -> None:
    where = rbw(("n1", 1500, 600))
    where.node(node("n1", '{"egressMBps": "much"}'))
    (event,) = [e for e in where.all(ef.RecordEvent) if e.kind == "Node"]
    assert event.reason == "InvalidNodeReport"
    assert "gangsched.io/remaining-bandwidth: Expected `float`, got `str`" in event.message
    assert place(where, "p", "900MB/s") == "n1"


def test_a_heartbeat_wakes_a_pod_only_if_it_may_help() -> None:
    where = rbw(("n1", 1500, 1400))
    where.submit(asking("p", "400MB/s")).run()
    attempts = where.group("p").attempts
    where.wait(20.0)
    beat(where, "n1", 1500, 1300)
    where.run()
    assert where.group("p").attempts == attempts, "200 left are still too few"
    beat(where, "n1", 1500, 1000)
    assert on(where.run(), "p") == "n1"


# -- promises ------------------------------------------------------------------------------------------


def burst(**args: Any) -> Counter[str]:
    """50 pods that need 100 MB/s each on 10 nodes of 1500 MB/s between two heartbeats: MB/s by node."""
    where = rbw(*((f"n{i}", 1500, 0) for i in range(10)), strategy="LargestSurplus", **args)
    where.submit([asking(f"p-{i}", "100MB/s") for i in range(50)]).run()
    placed = Counter(pod.spec.node_name for pod in where.pods.values())
    assert "" not in placed
    return Counter({name: 100 * n for name, n in placed.items()})


def test_a_burst_promises_no_node_more_than_it_has() -> None:
    promised = burst()
    assert max(promised.values()) <= 1500
    assert set(promised.values()) == {500}, "and it is spread, as the largest surplus is another each time"


def test_a_burst_by_the_published_method_alone_overcommits() -> None:
    """With the promise switched off: all go where the last measurement saw most."""
    promised = burst(promise=False)
    assert max(promised.values()) > 1500


def test_a_burst_to_the_closest_node_fills_it_and_goes_on() -> None:
    where = rbw(*((f"n{i}", 1500, 0) for i in range(4)))
    where.submit([asking(f"p-{i}", "100MB/s") for i in range(60)]).run()
    assert set(Counter(pod.spec.node_name for pod in where.pods.values()).values()) == {15}


def test_a_gang_counts_its_own_members_at_once() -> None:
    where = rbw(("n1", 1500, 0), ("n2", 1500, 0))
    where.submit([asking(f"g-{i}", "500MB/s", group="g", min_members=5) for i in range(5)]).run()
    assert Counter(pod.spec.node_name for pod in where.pods.values()) == {"n1": 3, "n2": 2}


SENDERS: dict[str, Any] = {
    "group": "g",
    "min_members": 2,
    "annotations": {"gangsched.io/rbw-direction": "egress"},
}


@pytest.mark.parametrize(
    ("links", "placed"),
    [
        # Both would find 400 on the roomy node, and neither its 500.
        ((("roomy", 600), ("fits1", 1000), ("fits2", 1000)), {"fits1": 1, "fits2": 1}),
        ((("fits", 980), ("roomy", 600)), {"fits": 1, "roomy": 1}),
        # Here one node has for both what they expect: few nodes first, then the closest.
        ((("fits1", 1000), ("idle", 100), ("both", 480), ("fits2", 1000)), {"both": 2}),
        # What both expect is nowhere: what they require is enough.
        ((("roomy", 600), ("busy", 1200)), {"roomy": 2}),
    ],
)
def test_a_gang_goes_where_each_member_has_what_it_expects_by_default(
    links: tuple[tuple[str, float], ...], placed: dict[str, int]
) -> None:
    """Two senders of config/samples/measured/bandwidth.yaml, under all of the default plugins."""
    where = cluster(*(node(name, report(1500, used)) for name, used in links), only=False)
    where.submit([asking(f"g-{i}", "400MB/s", "500MB/s", **SENDERS) for i in range(2)]).run()
    assert Counter(pod.spec.node_name for pod in where.pods.values()) == placed


def test_a_gang_that_expects_no_more_than_it_requires_is_packed_as_one_without_bandwidth() -> None:
    where = cluster(*(node(f"n{i}", report(1500, 600)) for i in range(3)), only=False)
    where.submit([asking(f"g-{i}", "400MB/s", **SENDERS) for i in range(2)]).run()
    assert Counter(pod.spec.node_name for pod in where.pods.values()) == {"n0": 2}


def test_the_promise_goes_over_to_the_measurement_as_it_catches_up() -> None:
    where = rbw(("n1", 1500, 500))
    place(where, "p", "400MB/s")
    for used in (500, 700, 900):  # its traffic comes up
        where.wait(10.0)
        beat(where, "n1", 1500, used)
        assert place(where, f"no-{used}", "601MB/s") == "", "1500 - 500 - 400 are left all the time"
        where.delete(f"no-{used}")
    where.wait(10.0)
    beat(where, "n1", 1500, 1200)  # 300 more than it was promised
    assert place(where, "no", "301MB/s") == ""
    assert place(where, "fits", "300MB/s") == "n1"


def test_a_promise_lasts_as_long_as_its_pod_also_when_it_sends_nothing() -> None:
    where = rbw(("n1", 1000, 0))
    place(where, "idle", "600MB/s")
    for _ in range(5):
        where.wait(10.0)
        beat(where, "n1", 1000, 0)
    where.submit(asking("p", "600MB/s")).run()
    assert on(where, "p") == ""
    where.delete("idle")
    where.wait(15.0)
    assert on(where, "p") == "n1"


def test_what_was_measured_of_a_pod_that_is_gone_counts_until_the_next_heartbeat() -> None:
    where = rbw(("n1", 1000, 0))
    place(where, "busy", "600MB/s")
    where.wait(10.0)
    beat(where, "n1", 1000, 600)
    where.delete("busy")
    where.submit(asking("p", "600MB/s")).run()
    assert on(where, "p") == ""
    where.wait(10.0)
    beat(where, "n1", 1000, 0)
    assert on(where.run(), "p") == "n1"


def test_a_finished_pod_gives_its_promise_back() -> None:
    where = rbw(("n1", 1000, 0))
    place(where, "job", "600MB/s")
    where.phase("job", "Succeeded")
    assert place(where, "p", "600MB/s") == "n1"


def test_a_bind_that_fails_gives_its_promise_back() -> None:
    where = rbw(("n1", 1000, 0))
    where.answer = lambda bind: "404"
    where.submit(asking("lost", "600MB/s")).run()
    where.answer = lambda bind: "ok"
    where.delete("lost")
    assert place(where, "p", "600MB/s") == "n1"


def started(where: Cluster, name: str) -> None:
    """kubelet has taken the pod in."""
    pod = where.pod(name)
    where.update(pod, status=replace(pod.status, phase="Running", start_time=at(where.now_s)))


def test_a_report_that_does_not_know_its_time_includes_no_pod() -> None:
    """Go writes 0001-01-01T00:00:00Z for a time that nobody has set."""
    where = rbw(("n1", 1000, 0))
    place(where, "p", "400MB/s")
    started(where, "p")
    text = report(1000, 400).replace("2026-", "0001-")
    where.node(node("n1", text))
    where.restart()
    assert place(where, "no", "201MB/s") == ""
    assert place(where, "fits", "200MB/s") == "n1"


def test_after_a_restart_what_ran_before_the_measurement_is_counted_once() -> None:
    """1000 - 400 are left, not 1000 - 400 - 400."""
    where = rbw(("n1", 1000, 0))
    place(where, "p", "400MB/s")
    started(where, "p")
    where.wait(30.0)
    beat(where, "n1", 1000, 400)
    where.restart()
    assert place(where, "no", "601MB/s") == ""
    assert place(where, "fits", "600MB/s") == "n1"


def test_after_a_restart_what_started_since_the_measurement_is_promised_beside_it() -> None:
    where = rbw(("n1", 1000, 400))
    place(where, "p", "400MB/s")
    where.wait(5.0)
    started(where, "p")
    where.restart()
    assert place(where, "no", "201MB/s") == ""
    assert place(where, "fits", "200MB/s") == "n1"


def test_a_node_recreated_starts_with_empty_books() -> None:
    where = rbw(("n1", 1000, 0))
    place(where, "p", "800MB/s")
    where.delete("p").drop_node("n1")
    where.node(node("n1", report(1000, 0), uid="another"))
    assert place(where, "q", "1000MB/s") == "n1"


def test_higher_priority_takes_a_promise_and_no_more_than_the_promise() -> None:
    """What is measured of a victim is there until it is measured gone: nobody is evicted for it."""
    where = rbw(("n1", 1000, 0))
    place(where, "low", "1000MB/s")
    where.submit(asking("high", "600MB/s", priority=10)).run()
    where.wait(20.0)
    assert on(where, "high") == "n1"
    assert "low" not in {pod.metadata.name for pod in where.pods.values()}
    measured = rbw(("n1", 1000, 0))
    place(measured, "low", "1000MB/s")
    measured.wait(5.0)
    beat(measured, "n1", 1000, 900)
    measured.submit(asking("high", "600MB/s", priority=10)).run()
    measured.wait(20.0)
    assert on(measured, "high") == ""
    assert on(measured, "low") == "n1"


def test_nobody_is_evicted_on_a_node_that_has_fallen_silent() -> None:
    where = rbw(("n1", 1000, 0))
    place(where, "low", "1000MB/s")
    where.wait(100.0)
    where.submit(asking("high", "600MB/s", priority=10)).run()
    where.wait(20.0)
    assert on(where, "low") == "n1"


@pytest.mark.parametrize("amounts", [("300MB/s", "300MB/s"), ("300MB/s", "290MB/s")], ids=["alike", "unlike"])
def test_what_takes_a_victims_place_counts_on_top_of_what_is_measured_of_the_victim(
    amounts: tuple[str, str],
) -> None:
    """500 of the four's 800 MB/s are measured: without them there is room for one of two, so all stay."""
    where = rbw(("n1", 1000, 0))
    for i in range(4):
        place(where, f"low-{i}", "200MB/s")
    where.wait(5.0)
    beat(where, "n1", 1000, 500)
    high = [
        asking(f"high-{i}", amount, group="high", min_members=2, priority=10)
        for i, amount in enumerate(amounts)
    ]
    where.submit(high).run()
    assert all(on(where, f"low-{i}") == "n1" for i in range(4))
    said = where.said("high-0")
    assert "gang d/high: 1 of 2 fit" in said
    assert "1 Insufficient remaining bandwidth" in said.partition("preemption: ")[2]


# -- a gang's own amount -------------------------------------------------------------------------------


def test_a_gang_may_ask_for_an_amount_for_all_of_it() -> None:
    """1200 MB/s for six members are 200 each: two nodes with 600 left take three each."""
    where = rbw(("n1", 1500, 900), ("n2", 1500, 900))
    whole = {"gangsched.io/rbw-scope": "group"}
    gang = [asking(f"g-{i}", "1200MB/s", group="g", min_members=6, annotations=whole) for i in range(6)]
    where.submit(gang).run()
    assert Counter(pod.spec.node_name for pod in where.pods.values()) == {"n1": 3, "n2": 3}
    assert place(where, "more", "1MB/s") == "", "all of it is promised"


def test_a_share_is_counted_anew_with_the_next_report_once_the_size_of_the_gang_is_known() -> None:
    """A pod that runs may be listed before the object of its gang: until then all is promised for it."""
    where = rbw(("n1", 1500, 0))
    whole, label = {"gangsched.io/rbw-scope": "group"}, {COSCHEDULING_LABEL: "g"}
    where.update(on_node(asking("g-0", "1200MB/s", annotations=whole, labels=label), "n1"))
    assert place(where, "early", "400MB/s") == ""
    where.object("coscheduling", make_pod_group("g", spec={"minMember": 6}))
    where.wait(20.0)
    beat(where, "n1", 1500, 0)
    where.run()
    assert on(where, "early") == "n1"
    assert place(where, "too-much", "901MB/s") == "", "1500 - 400 - 1200 / 6"
    where.delete("too-much")
    assert place(where, "fits", "900MB/s") == "n1"
    where.delete("fits", "early", "g-0")
    assert place(where, "all", "1500MB/s") == "n1"
    assert place(where, "more", "1MB/s") == "", "as much was given back as was promised last, and no more"


def test_gangs_of_different_sizes_with_the_same_annotations_are_not_taken_for_one_another() -> None:
    where = rbw(("n1", 1500, 900))
    whole = {"gangsched.io/rbw-scope": "group"}
    for name, size in (("a", 2), ("b", 4)):
        where.submit(
            [
                asking(f"{name}-{i}", "300MB/s", group=name, min_members=size, annotations=whole)
                for i in range(size)
            ]
        ).run()
    assert where.placed("a", on=1)
    assert where.placed("b", on=1)
    assert place(where, "more", "1MB/s") == ""


# -- with others, and the configuration ----------------------------------------------------------------


def test_its_score_counts_by_weight_beside_all_others() -> None:
    """NodeResourcesFit prefers the emptier node; RemainingBandwidth the one closer to what is expected."""
    where = rbw(("fitting", 1500, 1000), ("empty", 1500, 0), only=False)
    where.submit(asking("filler", cpu="32", annotations={}))
    assert place(where, "p", "400MB/s", "500MB/s") == "fitting"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"strategy": "Closest"}, "args.strategy"),
        ({"staleSeconds": 0}, "staleSeconds 0 is not within 0..86400"),
        ({"stalePolicy": "full?"}, "args.stalePolicy"),
        ({"pol": True}, "pol"),
    ],
)
def test_mistakes_in_its_args_are_reported_with_their_place(args: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(args)
    assert "profiles[0].pluginConfig[0].args" in str(caught.value)
    assert message in str(caught.value)

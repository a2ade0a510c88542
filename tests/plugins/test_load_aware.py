"""LoadAware: the published score, policies, predictions, and metrics-server where there is no agent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from gangsched.core.framework.interface import CycleState
from gangsched.errors import ConfigError
from gangsched.lab.sim.objects import at, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node
from gangsched.model.stated.load import (
    LOAD_KEY,
    NodeLoad,
    Performance,
    ReportedUsage,
    Utilisation,
    load_annotation,
)
from gangsched.plugins.resources.load_aware import Args, LoadAware
from gangsched.plugins.resources.load_book import LoadBook
from tests.plugins.bandwidths import cluster, config, on
from tests.plugins.build import Cluster as Rows
from tests.plugins.build import node as plain_node
from tests.support.scenario import Cluster

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
# S = 40 GHz + 64 GB + 10 Gbit/s + 4 Gbit/s = 118 in the units of mode paper.
SERVER = Performance(cores=16, mhz=2500, memory_bytes=64e9, network_mbps=1250, disk_mbps=500)
SMALL = Performance(cores=8, mhz=2500, memory_bytes=32e9, network_mbps=125, disk_mbps=250)


def said(utilisation: Utilisation, performance: Performance = SERVER, *, at_s: float = 0.0) -> str:
    return load_annotation(NodeLoad(utilisation, performance, EPOCH + timedelta(seconds=at_s)))


def busy(name: str, *shares: float, performance: Performance = SERVER) -> Node:
    """A node whose cpu, memory, network and disk are used so much."""
    return make_node(name, gpus=0, cpu=16, annotations={LOAD_KEY: said(Utilisation(*shares), performance)})


def aware(*nodes: Node, **args: Any) -> Cluster:
    return cluster(*nodes, name="LoadAware", **args)


def beat(where: Cluster, name: str, *shares: float) -> None:
    """The node's next heartbeat, now."""
    known = where.nodes[name]
    annotations = {LOAD_KEY: said(Utilisation(*shares), at_s=where.now_s)}
    where.node(replace(known, metadata=replace(known.metadata, annotations=annotations)))


def place(where: Cluster, name: str, *, cpu: str = "1", **more: Any) -> str:
    where.submit(make_pod(name, gpus=0, cpu=cpu, **more)).run()
    return on(where, name)


def scores(*nodes: tuple[str, str | None], **args: Any) -> list[float]:
    """What the plugin answers for nodes of (name, annotation)."""
    rows = Rows()
    plugin = LoadAware(Args(**args))
    rows.cache.keep_usage_trackers([plugin.usage_tracker])
    for name, text in nodes:
        made = plain_node(name)
        notes = {} if text is None else {LOAD_KEY: text}
        rows.put(replace(made, metadata=replace(made.metadata, annotations=notes)))
    found = plugin.score(CycleState(), rows.template(), rows.view, rows.rows(name for name, _ in nodes))
    assert found is not None
    return [float(score) for score in found]


# -- the published score -------------------------------------------------------------------------------


def test_mode_paper_is_the_published_formula_times_ten() -> None:
    """(1 - L/S) * 10 with L = 20 + 16 + 1 + 0 of S = 118; scores go to 100 here, published ones to 10."""
    (score,) = scores(("n", said(Utilisation(0.5, 0.25, 0.1, 0.0))), mode="paper")
    assert score == pytest.approx((1 - 37 / 118) * 10 * 10)


def test_in_mode_paper_the_unit_with_most_digits_counts_most() -> None:
    """64 GB of memory outweigh the 4 Gbit/s of the disk; normalized, each counts as much."""
    full_memory, full_disk = said(Utilisation(0, 1, 0, 0)), said(Utilisation(0, 0, 0, 1))
    memory, disk = scores(("m", full_memory), ("d", full_disk), mode="paper")
    assert memory < disk
    memory, disk = scores(("m", full_memory), ("d", full_disk))
    assert memory == disk == pytest.approx(75.0)


def test_mode_literal_sets_a_sum_of_shares_against_the_strength() -> None:
    """L = 0.5 + 0.25 + 0.1 + 0 of S = 118, as printed; a term that is left out counts in neither."""
    used = said(Utilisation(0.5, 0.25, 0.1, 0.0))
    assert scores(("n", used), mode="literal") == [pytest.approx((1 - 0.85 / 118) * 100)]
    assert scores(("n", used), mode="literal", terms=("cpu", "network")) == [
        pytest.approx((1 - 0.6 / 50) * 100)
    ]
    unknown = Performance(cores=16, mhz=2500, memory_bytes=64e9, network_mbps=1250)
    busy_disk = said(Utilisation(0.5, 0.25, 0.1, 0.9), unknown)
    assert scores(("n", busy_disk), mode="literal") == [pytest.approx((1 - 0.85 / 114) * 100)]


def test_normalized_terms_are_shares_of_the_clusters_largest() -> None:
    """SMALL has half the cpu and memory, a tenth of the network, half the disk: S = 1.6; its L is 0.05."""
    full_network = Utilisation(0, 0, 0.5, 0)
    large, small = scores(("large", said(full_network)), ("small", said(full_network, SMALL)))
    assert large == pytest.approx((1 - 0.5 / 4) * 100)
    assert small == pytest.approx((1 - 0.05 / 1.6) * 100)


def test_terms_can_be_left_out() -> None:
    quiet, loud = said(Utilisation(0.5, 0, 0, 0)), said(Utilisation(0.4, 0, 1, 0))
    with_it = scores(("quiet", quiet), ("loud", loud))
    without = scores(("quiet", quiet), ("loud", loud), terms=("cpu", "memory", "disk"))
    assert with_it[0] > with_it[1]
    assert without[0] < without[1]


def test_a_node_that_grows_changes_everybodys_score_at_the_next_turn() -> None:
    """Scores are kept per row; the cluster's largest is part of all of them."""
    where = aware(
        busy("a", 0.5, 0, 0, 0), busy("b", 0, 0.5, 0, 0), *(busy(f"n{i}", 1, 1, 1, 1) for i in range(20))
    )
    assert place(where, "p") == "a", "even: the first"
    huge = Performance(cores=16, mhz=2500, memory_bytes=64e12, network_mbps=1250, disk_mbps=500)
    where.node(busy("n0", 1, 1, 1, 1, performance=huge))
    where.delete("p")
    assert place(where, "q") == "b", "64 GB are next to nothing now"


def test_pods_go_where_more_is_left() -> None:
    where = aware(busy("a", 0.8, 0.2, 0.1, 0.0), busy("b", 0.3, 0.2, 0.1, 0.0))
    assert place(where, "p") == "b"


# -- what nodes say ------------------------------------------------------------------------------------


def test_a_stale_node_counts_as_fully_loaded_by_policy() -> None:
    where = aware(busy("idle", 0, 0, 0, 0), busy("used", 0.5, 0.5, 0.5, 0.5), staleSeconds=30)
    where.wait(20.0)
    beat(where, "used", 0.5, 0.5, 0.5, 0.51)
    where.wait(15.0)
    assert place(where, "p") == "used"
    beat(where, "idle", 0, 0, 0, 0)
    assert place(where, "q") == "idle"


def test_a_stale_node_counts_by_its_last_word_where_that_is_the_policy() -> None:
    where = aware(
        busy("idle", 0, 0, 0, 0), busy("used", 0.5, 0.5, 0.5, 0.5), staleSeconds=30, stalePolicy="ignore"
    )
    where.wait(20.0)
    beat(where, "used", 0.5, 0.5, 0.5, 0.51)
    where.wait(15.0)
    assert place(where, "p") == "idle"


def test_a_node_that_was_never_measured() -> None:
    used = said(Utilisation(0.9, 0.9, 0.9, 0.9))
    assert scores(("silent", None), ("used", used)) == [0.0, pytest.approx(10.0)]
    assert scores(("silent", None), ("used", used), stale_policy="ignore") == [50.0, pytest.approx(10.0)]


def test_the_first_measurement_changes_what_the_others_are_taken_for() -> None:
    """Twenty nodes, so that scores are kept; unknown ones count half, the one that is measured is full."""
    where = aware(*(make_node(f"n{i}", gpus=0, cpu=16) for i in range(20)), stalePolicy="ignore")
    assert place(where, "before") == "n0"
    where.node(busy("n0", 0.9, 0.9, 0.9, 0.9))
    assert place(where, "after") == "n1"


def test_without_any_measurement_it_has_nothing_to_say() -> None:
    where = aware(make_node("n", gpus=0))
    assert place(where, "p") == "n"


def test_an_annotation_that_cannot_be_read_is_reported_on_the_node_and_what_it_said_before_stands() -> None:
    where = aware(busy("a", 0.1, 0, 0, 0), busy("b", 0.5, 0, 0, 0))
    where.node(make_node("a", gpus=0, cpu=16, annotations={LOAD_KEY: '{"utilisation": {"cpu": 7}}'}))
    (event,) = [e for e in where.all(ef.RecordEvent) if e.kind == "Node"]
    assert event.reason == "InvalidNodeReport"
    assert "gangsched.io/load: " in event.message
    assert place(where, "p") == "a"


# -- predictions ---------------------------------------------------------------------------------------


def test_a_burst_does_not_all_go_to_the_node_that_was_idle_last() -> None:
    where = aware(*(busy(f"n{i}", 0.1, 0.1, 0.1, 0.1) for i in range(4)))
    where.submit([make_pod(f"p{i}", gpus=0, cpu="2") for i in range(16)]).run()
    assert sorted(pod.spec.node_name for pod in where.pods.values()) == sorted(["n0", "n1", "n2", "n3"] * 4)


def test_without_prediction_a_burst_goes_to_the_node_that_was_idle_last() -> None:
    where = aware(busy("n0", 0, 0, 0, 0), busy("n1", 0.1, 0, 0, 0), predict=False)
    where.submit([make_pod(f"p{i}", gpus=0, cpu="2") for i in range(6)]).run()
    assert {pod.spec.node_name for pod in where.pods.values()} == {"n0"}


def test_the_prediction_goes_over_to_the_measurement() -> None:
    """A pod of 8 cores on 16: predicted 0.5; when 0.5 are measured it counts once."""
    where = aware(busy("a", 0.0, 0, 0, 0), busy("b", 0.6, 0, 0, 0))
    assert place(where, "big", cpu="8") == "a"
    where.wait(10.0)
    beat(where, "a", 0.5, 0, 0, 0)
    assert place(where, "p", cpu="100m") == "a", "0.5 measured, not 0.5 and 0.5 predicted"


def test_a_pod_that_uses_less_than_it_asked_for_counts_by_what_it_uses_when_it_must_show() -> None:
    where = aware(busy("a", 0.0, 0, 0, 0), busy("b", 0.4, 0, 0, 0), settleSeconds=60)
    assert place(where, "lazy", cpu="8") == "a"
    where.wait(20.0)
    beat(where, "a", 0.05, 0, 0, 0)
    assert place(where, "early", cpu="100m") == "b", "it may yet begin"
    where.wait(50.0)
    beat(where, "a", 0.05, 0, 0.001, 0)
    beat(where, "b", 0.4, 0, 0, 0)
    assert place(where, "late", cpu="100m") == "a"


def test_a_pod_that_goes_takes_its_prediction_along() -> None:
    where = aware(busy("a", 0.0, 0, 0, 0), busy("b", 0.1, 0, 0, 0))
    assert place(where, "big", cpu="8") == "a"
    where.delete("big")
    assert place(where, "p") == "a"


def test_after_a_restart_what_runs_long_is_not_predicted_again() -> None:
    where = aware(busy("a", 0.0, 0, 0, 0), busy("b", 0.6, 0, 0, 0))
    assert place(where, "big", cpu="8") == "a"
    pod = where.pod("big")
    where.update(pod, status=replace(pod.status, phase="Running", start_time=at(where.now_s)))
    where.wait(70.0)
    beat(where, "a", 0.5, 0, 0, 0)
    beat(where, "b", 0.6, 0, 0, 0)
    where.restart()
    assert place(where, "p", cpu="100m") == "a"


def test_bandwidth_that_a_pod_asks_for_is_predicted_too() -> None:
    where = aware(busy("a", 0, 0, 0, 0), busy("b", 0, 0, 0.2, 0))
    notes = {"gangsched.io/required-rbw": "1000MB/s"}
    for name in ("a", "b"):
        known = where.nodes[name]
        remaining = (
            '{"egressMBps":1250,"ingressMBps":1250,"totalMBps":1250,"observedAt":"2026-01-01T00:00:00Z"}'
        )
        annotations = {**(known.metadata.annotations or {}), "gangsched.io/remaining-bandwidth": remaining}
        where.node(replace(known, metadata=replace(known.metadata, annotations=annotations)))
    assert place(where, "stream", annotations=notes, cpu="100m") == "a"
    assert place(where, "p", cpu="100m") == "b"


# -- metrics-server ------------------------------------------------------------------------------------


def usage(node: str, cpu_milli: int, memory_bytes: int, at_s: float = 0.0) -> ev.LoadReported:
    when = EPOCH + timedelta(seconds=at_s)
    return ev.LoadReported(ReportedUsage(node, cpu_milli, memory_bytes, when))


def test_metrics_servers_word_counts_where_there_is_no_agent() -> None:
    where = aware(make_node("a", gpus=0, cpu=16), make_node("b", gpus=0, cpu=16))
    where.tell(usage("a", 12_000, 2**30), usage("b", 4_000, 2**30))
    assert place(where, "p") == "b"
    where.tell(usage("b", 15_000, 2**30, 15.0), usage("a", 1_000, 2**30, 15.0), usage("unknown", 1, 1))
    assert place(where, "q") == "a"


def test_a_report_that_does_not_know_its_time_keeps_no_pod_away() -> None:
    """Go writes 0001-01-01T00:00:00Z for a time that nobody has set."""
    where = aware(make_node("a", gpus=0, cpu=16))
    where.tell(ev.LoadReported(ReportedUsage("a", 1_000, 2**30, datetime(1, 1, 1, tzinfo=UTC))))
    assert place(where, "p") == "a"
    where.update(where.pod("p"), status=replace(where.pod("p").status, phase="Running", start_time=at(5.0)))
    where.restart()
    where.tell(ev.LoadReported(ReportedUsage("a", 1_000, 2**30, datetime(1, 1, 1, tzinfo=UTC))))
    assert place(where, "q") == "a"


def test_an_agents_word_counts_more_until_it_is_stale() -> None:
    where = aware(busy("a", 0.9, 0.9, 0.9, 0.9), busy("b", 0.5, 0.5, 0.5, 0.5), staleSeconds=30)
    where.tell(usage("a", 0, 0), usage("b", 16_000, 2**39))
    assert place(where, "p") == "b"
    where.wait(40.0)
    where.tell(usage("a", 0, 0, 40.0), usage("b", 16_000, 2**39, 40.0))
    assert place(where, "q") == "a"


def test_an_agents_word_that_cannot_be_read_does_not_silence_metrics_server() -> None:
    where = aware(make_node("a", gpus=0, cpu=16, annotations={LOAD_KEY: "busy"}), busy("b", 0.5, 0.5, 0, 0))
    where.tell(usage("a", 15_500, 55 * 2**30))
    assert place(where, "p-0") == "b"
    where.tell(usage("a", 1_000, 2**30, at_s=15.0))
    assert place(where, "p-1") == "a", "nor is one answer all that is heard"


def test_once_the_agent_is_silent_each_answer_of_metrics_server_counts() -> None:
    where = aware(busy("a", 0.9, 0.9, 0, 0), make_node("b", gpus=0, cpu=16), staleSeconds=30)
    where.wait(40.0)
    for at_s, cpu_milli, taken in ((40.0, 15_500, "b"), (55.0, 1_000, "a")):
        where.tell(usage("a", cpu_milli, 2**30, at_s), usage("b", 8_000, 2**30, at_s))
        assert place(where, f"p-{cpu_milli}") == taken


def test_an_answer_that_metrics_server_repeats_is_no_new_measurement() -> None:
    where = aware(make_node("a", gpus=0, cpu=16), make_node("b", gpus=0, cpu=16), staleSeconds=30)
    where.tell(usage("a", 0, 0), usage("b", 8_000, 0))
    where.wait(25.0)
    where.tell(usage("a", 0, 0), usage("b", 8_000, 0, 25.0))
    where.wait(10.0)
    assert place(where, "p") == "b", "a has said nothing new for 35 s"


# -- nodes that go ---------------------------------------------------------------------------------------


def test_what_is_known_of_nodes_that_come_and_go_is_as_if_it_had_been_heard_just_now() -> None:
    """Rows are reused, and annotations come and go: each time a book that hears of all for the first time
    must say the same."""
    rng = Random(2)
    now: dict[str, Node] = {}
    told, plugin = Rows(), LoadAware(Args())
    told.cache.keep_usage_trackers([plugin.usage_tracker])
    for step in range(120):
        name, what = f"n{rng.randrange(6)}", rng.choice(("measured", "measured", "silent", "gone"))
        if what == "gone" and name in now:
            told.cache.remove_node(name)
            del now[name]
        elif what != "gone":
            shares = Utilisation(*(rng.random() for _ in range(4)))
            notes = (
                {LOAD_KEY: said(shares, rng.choice((SERVER, SMALL)), at_s=step)} if what == "measured" else {}
            )
            made = plain_node(name)
            now[name] = replace(made, metadata=replace(made.metadata, annotations=notes))
            told.put(now[name])
        fresh, other = Rows(), LoadAware(Args())
        fresh.cache.keep_usage_trackers([other.usage_tracker])
        for one in now.values():
            fresh.put(one)
        names = sorted(now)
        assert known(plugin, told, names) == known(other, fresh, names), step


def known(plugin: LoadAware, c: Rows, names: list[str]) -> list[Any]:
    """All that the book says of these nodes, and their scores."""
    book, rows = plugin.usage_tracker, c.rows(names)
    scores = plugin.score(CycleState(), c.template(), c.view, rows)
    per_row = (book.terms(rows).T, book.expected_utilisation(rows).T, book.unknown(rows), book.stale(rows))
    spread = book.evenness()[1].spread
    shown = None if scores is None else scores.round(9).tolist()
    return [one.tolist() for one in per_row] + [book.largest.tolist(), book.n_known, round(spread, 9), shown]


def test_a_node_that_takes_the_row_of_another_has_nothing_of_its_pods() -> None:
    where = aware(busy("a", 0, 0, 0, 0), busy("b", 0.6, 0.6, 0.6, 0.6))
    for k in range(3):
        assert place(where, f"p{k}", cpu="4") == "a"
    where.drop_node("a")
    where.node(busy("c", 0, 0, 0, 0))
    trackers = where.profiles()["gangsched"].usage_trackers
    book = next(one for one in trackers if isinstance(one, LoadBook))
    row = where.node_table().row_of["c"]
    assert book.expected_utilisation(np.array([row])).tolist() == [[0.0]] * 4
    where.delete("p0", "p1", "p2").wait(600.0)
    beat(where, "c", 0.5, 0.5, 0.5, 0.5)
    place(where, "p3", cpu="1600m")
    assert book.expected_utilisation(np.array([row])).round(2).tolist()[0] == [0.6]


# -- evenness and configuration ------------------------------------------------------------------------


def test_h_of_the_cluster_is_what_its_book_says() -> None:
    where = aware(busy("a", 0.2, 0.2, 0.2, 0.2), busy("b", 0.6, 0.6, 0.6, 0.6))
    (profile,) = where.profiles().values()
    book = next(one for one in profile.usage_trackers if hasattr(one, "evenness"))
    rows, found = book.evenness()
    assert list(rows) == [0, 1]
    assert found.h == pytest.approx((0.5, 1.5))
    assert found.spread == pytest.approx(float(np.std([0.5, 1.5])))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"mode": "published"}, "args.mode"),
        ({"staleSeconds": -1}, "staleSeconds -1 is not greater than 0"),
        ({"terms": []}, "terms: each of cpu, memory, network, disk at most once"),
        ({"terms": ["cpu", "gpu"]}, "args.terms[1]"),
        ({"metricsServerSeconds": 0.1}, "metricsServerSeconds 0.1 is neither 0 nor within 1.."),
    ],
)
def test_mistakes_in_its_args_are_reported_with_their_place(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(args, name="LoadAware")
    assert "profiles[0].pluginConfig[0].args" in str(caught.value)
    assert message in str(caught.value)

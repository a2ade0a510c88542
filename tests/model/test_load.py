"""Load annotations, metrics-server's answers, and the published sums and H."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pytest

from gangsched.errors import ParseError
from gangsched.model.stated.evenness import (
    evenness,
    load_and_strength,
    paper_score,
    scaled,
    terms_of,
)
from gangsched.model.stated.load import (
    NodeLoad,
    Performance,
    ReportedUsage,
    Utilisation,
    load_annotation,
    parse_load,
    parse_node_metrics,
)

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
SERVER = Performance(cores=16, mhz=2500, memory_bytes=64e9, network_mbps=1250, disk_mbps=500)


def test_the_annotation_reads_back_what_was_written() -> None:
    there = NodeLoad(Utilisation(0.25, 0.5, 0.125, 0.0), SERVER, NOW)
    text = load_annotation(there)
    assert json.loads(text) == {
        "utilisation": {"cpu": 0.25, "memory": 0.5, "network": 0.125, "disk": 0.0},
        "performance": {
            "cores": 16,
            "MHz": 2500,
            "memoryBytes": 64_000_000_000,
            "networkMBps": 1250,
            "diskMBps": 500,
        },
        "observedAt": "2026-05-04T12:00:00.000Z",
    }
    assert parse_load(text) == there


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"utilisation": {"cpu": 1.5}}, "utilisation.cpu: 1.5 is not within 0..1"),
        ({"utilisation": {"disk": -0.1}}, "utilisation.disk: -0.1 is not within 0..1"),
        ({"utilisation": {"cpu": "busy"}}, "Expected `float`, got `str`"),
        ({"performance": {"MHz": -1}}, "performance.MHz: -1 is not within 0.."),
        ({"performance": {"cores": 1e9}}, "performance.cores: 1e+09 is not within 0.."),
        ({"observedAt": "2026-05-04T12:00:00"}, "observedAt: has no time zone"),
        ({"observedAt": None}, "Expected `datetime`"),
    ],
)
def test_mistakes_are_reported_with_their_place(change: dict[str, object], message: str) -> None:
    document = {"utilisation": {}, "performance": {}, "observedAt": "2026-05-04T12:00:00Z", **change}
    with pytest.raises(ParseError) as caught:
        parse_load(json.dumps(document))
    assert str(caught.value).startswith(f"gangsched.io/load: {message}")


def reported(*nodes: object) -> bytes:
    return json.dumps({"kind": "NodeMetricsList", "items": nodes}).encode()


def node_metrics(name: str, **usage: str) -> dict[str, object]:
    return {
        "metadata": {"name": name},
        "timestamp": "2026-05-04T12:00:00Z",
        "window": "20s",
        "usage": {"cpu": "1500m", "memory": "2Gi"} | usage,
    }


def test_what_metrics_server_answers() -> None:
    good = ReportedUsage("n1", 1500, 2 * 2**30, NOW)
    assert parse_node_metrics(reported(node_metrics("n1"))) == ([good], [])
    with pytest.raises(ParseError, match=r"metrics.k8s.io: "):
        parse_node_metrics(b"<html>")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (node_metrics("n2") | {"usage": {"cpu": "1"}}, "metrics.k8s.io: n2: memory: has no such usage"),
        (node_metrics("n2", cpu="a lot"), "metrics.k8s.io: n2: "),
        (node_metrics("n2") | {"timestamp": "now"}, "metrics.k8s.io: n2: "),
        (
            node_metrics("n2") | {"timestamp": "2026-05-04T12:00:00"},
            "metrics.k8s.io: n2: timestamp: has no time zone; Z is UTC",
        ),
        (node_metrics("n2") | {"usage": [[["x"]]]}, "metrics.k8s.io: n2: "),
        ({"metadata": {"name": 7}}, "metrics.k8s.io: items[1]: "),
        (None, "metrics.k8s.io: items[1]: "),
    ],
)
def test_a_node_that_cannot_be_read_costs_itself_alone(bad: object, message: str) -> None:
    found, unread = parse_node_metrics(reported(node_metrics("n1"), bad, node_metrics("n3")))
    assert [one.node for one in found] == ["n1", "n3"]
    assert [str(one)[: len(message)] for one in unread] == [message]


def test_a_name_that_is_no_text_costs_its_node_alone() -> None:
    body = reported(node_metrics("n1"), node_metrics("n2")).replace(b"n2", b"\xff\xfe")
    found, unread = parse_node_metrics(body)
    assert [one.node for one in found] == ["n1"]
    assert str(unread[0]).startswith("metrics.k8s.io: items[1]: ")


def test_the_published_sums_in_the_units_stated() -> None:
    assert terms_of(SERVER) == (40.0, 64.0, 10.0, 4.0)
    terms = np.array([terms_of(SERVER)]).T
    used = np.array([[0.5], [0.25], [0.1], [0.0]])
    load, strength = load_and_strength(used, terms, mode="paper", largest=terms[:, 0])
    assert strength[0] == 118.0
    assert load[0] == pytest.approx(20 + 16 + 1)
    assert paper_score(load, strength)[0] == pytest.approx((1 - 37 / 118) * 10)


def test_scores_at_the_ends() -> None:
    nothing, all_of_it, unknown = (0.0, 10.0), (10.0, 10.0), (0.0, 0.0)
    load, strength = np.array([nothing, all_of_it, unknown]).T
    assert list(paper_score(load, strength)) == [10.0, 0.0, 0.0]


def test_scaled_terms_cannot_swamp_each_other() -> None:
    terms = np.array([[40.0, 20.0], [64_000.0, 32_000.0], [0.0, 0.0], [4.0, 1.0]])
    assert scaled(terms, terms.max(axis=1)).tolist() == [[1.0, 0.5], [1.0, 0.5], [0.0, 0.0], [1.0, 0.25]]


def test_h_is_one_where_load_follows_performance() -> None:
    even = evenness(np.array([10.0, 20.0, 30.0]), np.array([100.0, 200.0, 300.0]))
    assert even.h == pytest.approx((1.0, 1.0, 1.0))
    assert even.spread == pytest.approx(0.0)


def test_h_of_the_same_load_on_unequal_nodes() -> None:
    # L(avg) = 20, S(avg) = 200: H = (20/20) / (S/200).
    found = evenness(np.array([20.0, 20.0, 20.0]), np.array([100.0, 200.0, 300.0]))
    assert found.h == pytest.approx((2.0, 1.0, 2 / 3))
    assert found.spread == pytest.approx(float(np.std([2.0, 1.0, 2 / 3])))
    assert found.range == pytest.approx(2.0 - 2 / 3)


def test_an_idle_cluster_is_even_and_no_cluster_has_no_spread() -> None:
    assert evenness(np.zeros(3), np.ones(3)).h == (1.0, 1.0, 1.0)
    assert evenness(np.zeros(0), np.zeros(0)).spread == 0.0

"""H, its spread and the links' books as metrics, read from the scheduler's own books."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.model.stated.load import Utilisation
from gangsched.web.metrics.loads import Loads, read_loads
from gangsched.web.metrics.page import load_families
from tests.plugins.bandwidths import asking, cluster, node, report
from tests.plugins.test_load_aware import said
from tests.support.scenario import Cluster


def measured() -> Cluster:
    where = cluster(name="LoadAware")
    for name, share in (("a", 0.2), ("b", 0.6)):
        made = node(name, report(1500, 600), cpu=16)
        notes = {**(made.metadata.annotations or {}), "gangsched.io/load": said(Utilisation(*[share] * 4))}
        where.node(replace(made, metadata=replace(made.metadata, annotations=notes)))
    return where


def test_the_books_are_read() -> None:
    where = measured()
    where.submit(asking("p", "100MB/s", annotations={"gangsched.io/rbw-direction": "egress"})).run()
    loads = read_loads(where.scheduler)
    assert [(name, round(h, 6)) for name, h in loads.h] == [("a", 0.5), ("b", 1.5)]
    assert loads.spread == pytest.approx(0.5)
    (placed_on,) = {pod.spec.node_name for pod in where.pods.values()}
    assert (placed_on, "egress", "promised", 100_000_000) in loads.bandwidth
    assert (placed_on, "ingress", "promised", 0) in loads.bandwidth
    assert ("b", "egress", "used", 600_000_000) in loads.bandwidth
    assert ("b", "egress", "total", 1_500_000_000) in loads.bandwidth


def test_a_profile_without_the_plugins_has_no_figures() -> None:
    where = cluster(name="NodeResourcesFit")
    assert read_loads(where.scheduler).spread is None


def test_they_are_families_with_these_names_and_labels() -> None:
    families = load_families(Loads([("a", 0.5)], 0.25, [("a", "egress", "total", 10)]))
    told = {sample.name: (sample.labels, sample.value) for family in families for sample in family.samples}
    assert told == {
        "gangsched_load_h": ({"node": "a"}, 0.5),
        "gangsched_load_h_spread": ({}, 0.25),
        "gangsched_bandwidth_bytes_per_second": (
            {"node": "a", "direction": "egress", "what": "total"},
            10.0,
        ),
    }

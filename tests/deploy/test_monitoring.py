"""deploy/monitoring: every query is PromQL, and asks for metrics and labels that /metrics really has.

Queries are parsed by the parser that other projects use for PromQL (promql-parser). Not here: Grafana and
Prometheus themselves, which would draw and judge them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser
import pytest
import yaml

from gangsched.lab.controlplane.processes import ControlPlane
from tests.deploy.conftest import DEPLOY
from tests.deploy.generate_chart import kustomize, objects
from tests.docs.metrics_table import described_metrics
from tests.docs.pages import DOCS, anchors

HERE = DEPLOY / "monitoring"
RUNBOOKS = DOCS / "runbooks.md"
# What Prometheus itself adds to each sample, and the process's own metrics.
OF_THE_SCRAPE = {"job", "instance", "le"}
OTHERS: dict[str, tuple[str, ...]] = {
    "up": (),
    "process_cpu_seconds_total": (),
    "process_resident_memory_bytes": (),
}
_ENDINGS = ("_bucket", "_sum", "_count")
_OF_GRAFANA = {"$__rate_interval": "5m", "$__range": "3h", "$job": "gangsched"}


class Query(NamedTuple):
    where: str
    text: str

    @property
    def parsed(self) -> promql_parser.Expr:
        text = self.text
        for name, value in _OF_GRAFANA.items():
            text = text.replace(name, value)
        return promql_parser.parse(text)


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "dashboard.json").read_text(encoding="utf-8"))
    return found


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((HERE / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def queries() -> Iterator[Query]:
    for rule in alerts():
        yield Query(rule["alert"], rule["expr"])
    board = dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield Query(f"panel {panel['title']!r}", target["expr"])
    for annotation in board["annotations"]["list"]:
        yield Query(f"annotation {annotation['name']!r}", annotation["expr"])


def selected(query: Query) -> list[tuple[str, set[str]]]:
    """Each metric that it reads, with the labels that it compares."""
    found: list[tuple[str, set[str]]] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append((node.name or "", {matcher.name for matcher in node.matchers.matchers}))

    promql_parser.walk(query.parsed, visit)
    return found


def grouped(query: Query) -> set[str]:
    """The labels that it sums by."""
    return {
        label.strip()
        for labels in re.findall(r"\bby \(([^)]*)\)", query.text)
        for label in labels.split(",")
        if label.strip()
    }


def base(name: str, known: dict[str, tuple[str, ...]]) -> str:
    """A histogram's name for one of its series."""
    for ending in _ENDINGS:
        if name not in known and name.endswith(ending):
            return name.removesuffix(ending)
    return name


def problems(query: Query, known: dict[str, tuple[str, ...]]) -> list[str]:
    found: list[str] = []
    labels: set[str] = set(OF_THE_SCRAPE)
    for name, compared in selected(query):
        of_metric = known.get(base(name, known))
        if of_metric is None:
            found.append(f"{query.where}: there is no metric {name}")
            continue
        labels |= set(of_metric)
        wrong = compared - set(of_metric) - OF_THE_SCRAPE
        found += [f"{query.where}: {name} has no label {label}" for label in sorted(wrong)]
    found += [f"{query.where}: sums by {one}, which nothing in it has" for one in grouped(query) - labels]
    return found


def known_metrics() -> dict[str, tuple[str, ...]]:
    return OTHERS | {name: one.labels for name, one in described_metrics().items()}


@pytest.mark.parametrize("query", list(queries()), ids=lambda query: query.where)
def test_it_asks_for_what_there_is(query: Query) -> None:
    assert not problems(query, known_metrics())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sum(gangsched_pending_pods)", "there is no metric gangsched_pending_pods"),
        ('max(gangsched_device_free{zone="a"})', "gangsched_device_free has no label zone"),
        ("sum by (zone) (gangsched_reservations)", "sums by zone, which nothing in it has"),
    ],
)
def test_a_query_that_selects_nothing_is_found(text: str, says: str) -> None:
    assert problems(Query("this", text), known_metrics()) == [f"this: {says}"]


def test_no_promise_goes_unwatched() -> None:
    """What must be 0, and what stands still, each has an alert."""
    read = {name for rule in alerts() for name, _ in selected(Query(rule["alert"], rule["expr"]))}
    assert read >= {
        "gangsched_partial_gangs",
        "gangsched_device_drift",
        "gangsched_invariant_violations_total",
        "gangsched_oldest_waiting_seconds",
        "gangsched_watch_age_seconds",
        "leader_election_master_status",
        "gangsched_config_is_right",
        "gangsched_journal_goes_on",
        "gangsched_journal_dropped_records_total",
    }


def test_each_alert_has_its_runbook() -> None:
    told = {rule["annotations"]["runbook"] for rule in alerts()}
    assert told == {f"docs/runbooks.md#{rule['alert'].lower()}" for rule in alerts()}
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [rule["alert"] for rule in alerts()]
    assert {one.partition("#")[2] for one in told} <= anchors(RUNBOOKS)
    assert {rule["labels"]["severity"] for rule in alerts()} == {"critical", "warning"}


def test_the_panels_lie_side_by_side() -> None:
    taken: dict[tuple[int, int], str] = {}
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@pytest.mark.real
def test_what_kustomize_makes_of_it(control_plane: ControlPlane) -> None:
    by_kind = {one["kind"]: one for one in objects(kustomize(HERE))}
    assert set(by_kind) == {"ServiceMonitor", "PrometheusRule", "ConfigMap"}
    board = by_kind["ConfigMap"]
    assert board["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert json.loads(board["data"]["gangsched.json"]) == dashboard()
    [service] = [one for one in objects(kustomize(DEPLOY)) if one["kind"] == "Service"]
    monitor = by_kind["ServiceMonitor"]["spec"]
    assert monitor["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"].get("labels", {}).items()
    assert [one["port"] for one in monitor["endpoints"]] == [one["name"] for one in service["spec"]["ports"]]

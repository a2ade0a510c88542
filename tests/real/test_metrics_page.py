"""/metrics of a scheduler that runs: what dashboards and alerts ask for, and exemplars leading to traces."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from gangsched.lab.controlplane.daemon import free_ports
from tests.deploy.test_monitoring import OTHERS, base, known_metrics, queries, selected
from tests.real.cluster import Cluster
from tests.real.process import Scheduler, service_account, write_config

pytestmark = pytest.mark.real
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def scraped(port: int, token: str, accept: str) -> tuple[str, str]:
    """The format, and the page."""
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}", "Accept": accept}
    )
    with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_the_page_has_what_is_drawn_and_watched(cluster: Cluster, tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    journal = {"directory": str(tmp_path / "journal")}  # its metrics are there while it is written
    config = write_config(tmp_path / "config.yaml", tracing={"file": str(traces)}, record=journal)
    [port] = free_ports(1)
    account = service_account(cluster.plane, tmp_path / "account.yaml")
    scheduler = Scheduler(config, account, tmp_path / "scheduler.log", port=port)
    cluster.schedulers.append(scheduler)
    cluster.nodes(2, gpus=8)
    cluster.gang("a", pods=2, gpus=4)
    cluster.whole("a")
    cluster.eventually(lambda: "serving" in scheduler.said, "the pages are there")
    content_type, page = scraped(port, cluster.plane.token, "application/openmetrics-text;version=1.0.0")
    assert content_type == OPENMETRICS
    families = {one.name: one for one in parse_openmetrics(page)}  # type: ignore[no-untyped-call]
    names = {f"{name}_total" if one.type == "counter" else name for name, one in families.items()}
    asked = {base(name, known_metrics()) for query in queries() for name, _ in selected(query)}
    assert asked - names == {"up"}, "Prometheus makes that one itself"
    assert set(OTHERS) - names == {"up"}
    traced = {
        sample.exemplar.labels["trace_id"]
        for sample in families["scheduler_pod_scheduling_sli_duration_seconds"].samples
        if sample.exemplar is not None
    }
    [trace_id] = traced
    scheduler.stop_cleanly()
    assert trace_id in traces.read_text(encoding="utf-8"), "the dot leads to the gang's trace"


def test_an_older_collector_gets_the_older_format(cluster: Cluster, tmp_path: Path) -> None:
    [port] = free_ports(1)
    account = service_account(cluster.plane, tmp_path / "account.yaml")
    scheduler = Scheduler(write_config(tmp_path / "c.yaml"), account, tmp_path / "scheduler.log", port=port)
    cluster.schedulers.append(scheduler)
    cluster.eventually(lambda: "serving" in scheduler.said, "the pages are there")
    content_type, page = scraped(port, cluster.plane.token, "text/plain;version=0.0.4")
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE scheduler_pending_pods gauge" in page

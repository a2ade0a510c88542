"""`gangsched load` and LoadAware on an embedded API server: agents' annotations, and metrics-server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import anyio
import msgspec
import pytest

from gangsched.command.cli import main
from gangsched.config import parse_config
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.kube.metrics_server import PATH
from gangsched.lab.apiserver.app import EmbeddedCluster, write_kubeconfig
from gangsched.lab.sim.objects import make_node
from gangsched.load.report import make_report
from gangsched.model.objects import Node
from gangsched.model.stated.load import LOAD_KEY, Utilisation
from gangsched.plugins import IN_TREE
from gangsched.plugins.resources.load_aware import Args
from gangsched.process.app import SchedulerApp
from tests.plugins.bandwidths import config, report
from tests.plugins.test_load_aware import SMALL, said

NOW = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)


def nodes() -> list[Node]:
    busy = {
        LOAD_KEY: said(Utilisation(0.6, 0.6, 0.6, 0.6)),
        "gangsched.io/remaining-bandwidth": report(1500, 600),
    }
    idle = {LOAD_KEY: said(Utilisation(0.2, 0.2, 0.2, 0.2), SMALL)}
    return [
        make_node("n10", gpus=0, annotations=idle),
        make_node("n2", gpus=0, annotations=busy),
        make_node("silent", gpus=0),
        make_node("wrong", gpus=0, annotations={LOAD_KEY: "{}"}),
    ]


def test_figures_of_a_cluster() -> None:
    made = make_report(nodes(), {}, mode="paper", now=NOW)
    assert [one.name for one in made.nodes] == ["n2", "n10", "wrong", "silent"]
    n2, n10, wrong, silent = made.nodes
    assert (n2.source, n2.age_seconds) == ("agent", 30.0)
    assert (n2.load, n2.strength) == pytest.approx((0.6 * 118, 118.0))
    literal = make_report(nodes(), {}, mode="literal", now=NOW).nodes[0]
    assert (literal.load, literal.strength) == pytest.approx((4 * 0.6, 118.0))
    assert n2.score == pytest.approx(4.0)
    # L(avg) = (70.8 + 0.2*55) / 2, S(avg) = (118 + 55) / 2: H is 0.6 and 0.2 over the cluster's share.
    share = (0.6 * 118 + 0.2 * 55) / (118 + 55)
    assert (n2.h, n10.h) == pytest.approx((0.6 / share, 0.2 / share))
    assert made.range == pytest.approx(0.4 / share)
    assert made.spread == pytest.approx(0.2 / share)
    assert silent.h is None
    assert wrong.h is None
    assert wrong.problem.startswith("gangsched.io/load: Object missing required field")


# -- a cluster that is served --------------------------------------------------------------------------


class Metrics:
    """What the aggregated metrics-server would answer; None: there is none."""

    def __init__(self) -> None:
        self.usage: dict[str, tuple[str, str]] | None = {}
        self.n_asked = 0
        # Listed after the others, whatever it is.
        self.more_nodes: list[Any] = []

    def body(self) -> bytes:
        when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        items = [
            {
                "metadata": {"name": name},
                "timestamp": when,
                "window": "15s",
                "usage": {"cpu": cpu, "memory": memory},
            }
            for name, (cpu, memory) in (self.usage or {}).items()
        ]
        return json.dumps({"kind": "NodeMetricsList", "metadata": {}, "items": items}).encode()


@contextmanager
def aggregated(upstream: str, metrics: Metrics) -> Iterator[str]:
    """In front of an API server, as its aggregation layer: metrics.k8s.io is another server's."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith(PATH):
                metrics.n_asked += 1
                self._answer(404, b"{}") if metrics.usage is None else self._answer(200, metrics.body())
                return
            with urlopen(upstream + self.path) as answer:
                body = answer.read()
                if metrics.more_nodes and self.path.startswith("/api/v1/nodes"):
                    page = json.loads(body)
                    body = json.dumps({**page, "items": page["items"] + metrics.more_nodes}).encode()
                self._answer(answer.status, body)

        def _answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing of it belongs into a test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def create(client: ApiClient, node: str, annotations: dict[str, str]) -> None:
    body = {"metadata": {"name": node, "annotations": annotations}}
    await client.post("/api/v1/nodes", json.dumps(body).encode())
    room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    status = {"status": {"allocatable": room, "capacity": room}}
    await client.patch(f"/api/v1/nodes/{node}/status", json.dumps(status).encode())


def leading_to(url: str, directory: Path) -> str:
    """A kubeconfig's path."""
    return str(write_kubeconfig(directory / f"{url.rpartition(':')[2]}.kubeconfig", url))


async def client_of(url: str, directory: Path) -> ApiClient:
    return ApiClient(await load_credentials(kubeconfig=leading_to(url, directory)))


async def run_load(url: str, directory: Path, *args: str) -> int:
    """In a thread: the command has a loop of its own, and the server is on this one."""
    return await anyio.to_thread.run_sync(main, ["load", "--kubeconfig", leading_to(url, directory), *args])


async def test_the_table_and_json_of_a_served_cluster(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with EmbeddedCluster() as served:
        client = await client_of(served.url, tmp_path)
        for node in nodes():
            await create(client, node.metadata.name, node.metadata.annotations or {})
        client.close()
        assert await run_load(served.url, tmp_path) == 0
        table = capsys.readouterr().out
        assert await run_load(served.url, tmp_path, "-o", "json", "--mode", "paper") == 0
        document = json.loads(capsys.readouterr().out)
    assert "n2" in table
    assert "900/900 of 1500" in table
    assert "H over 2 nodes (normalized): spread" in table
    words = " ".join(table.split())
    assert "L and S: its utilised and its whole share of the largest node" in words
    assert "SCORE: (1 - L/S) x 10; H: L/S against the cluster's average" in words
    assert "wrong: gangsched.io/load: Object missing required field" in table
    assert document["mode"] == "paper"
    first = document["nodes"][0]
    assert (first["name"], first["strength"]) == ("n2", pytest.approx(118.0))
    assert first["utilisation"] == {"cpu": 0.6, "memory": 0.6, "network": 0.6, "disk": 0.6}
    assert first["remainingBandwidth"] == {
        "egressMBps": 900.0,
        "ingressMBps": 900.0,
        "totalMBps": 1500.0,
        "observedAt": "2026-01-01T00:00:00Z",
    }
    assert document["spread"] > 0


async def test_terms_without_data_are_named_and_not_shown_as_zero(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    no_disk = msgspec.structs.replace(SMALL, disk_mbps=0)
    metrics = Metrics()
    metrics.usage = {"bare": ("8", "16Gi")}
    async with EmbeddedCluster() as served:
        client = await client_of(served.url, tmp_path)
        for i in range(7):
            await create(client, f"n{i}", {LOAD_KEY: said(Utilisation(0.6, 0.6, 0.6, 0.0), no_disk)})
        await create(client, "bare", {})
        client.close()
        with aggregated(served.url, metrics) as url:
            assert await run_load(url, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    (first,) = [line for line in lines if line.startswith("n0 ")]
    assert first.split()[1:5] == ["60%", "60%", "60%", "?"]
    told = " ".join(lines)
    assert "No data for disk, which counts as 0 there: n0, n1, n2, n3, n4 and 2 more; the agent's log" in told
    assert "No data for network, disk, which counts as 0 there: bare; metrics-server reports cpu" in told


async def test_nodes_without_an_agent_are_shown_by_metrics_server(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    metrics = Metrics()
    metrics.usage = {"bare": ("8", "16Gi")}
    async with EmbeddedCluster() as served:
        client = await client_of(served.url, tmp_path)
        await create(client, "bare", {})
        client.close()
        with aggregated(served.url, metrics) as url:
            assert await run_load(url, tmp_path, "-o", "json") == 0
            (node,) = json.loads(capsys.readouterr().out)["nodes"]
            metrics.usage = None
            assert await run_load(url, tmp_path) == 1
    assert node["source"] == "metrics-server"
    assert node["withoutData"] == ["network", "disk"]
    assert node["utilisation"] == {"cpu": 0.5, "memory": 0.25, "network": 0.0, "disk": 0.0}
    assert "No node is measured" in capsys.readouterr().out


async def test_a_node_that_cannot_be_read_is_reported_and_costs_only_its_own_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    metrics = Metrics()
    metrics.more_nodes = [{"metadata": {"name": "odd", "uid": "u"}, "spec": {"unschedulable": "maybe"}}]
    async with EmbeddedCluster() as served:
        with aggregated(served.url, metrics) as url:
            assert await run_load(url, tmp_path) == 1
            assert capsys.readouterr().out == "There is no node to show.\n"
            client = await client_of(served.url, tmp_path)
            await create(client, "good", {LOAD_KEY: said(Utilisation(0.5, 0.5, 0.5, 0.5), SMALL)})
            client.close()
            assert await run_load(url, tmp_path) == 0
            out, err = capsys.readouterr()
    assert "good" in out
    assert "gangsched: node odd is not shown: Expected `bool`, got `str`" in err


async def test_a_server_that_cannot_be_reached_is_an_error_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert await run_load("http://127.0.0.1:9", tmp_path) == 1
    assert capsys.readouterr().err.startswith("gangsched: ")


async def test_load_aware_places_by_metrics_servers_report(tmp_path: Path) -> None:
    """The scheduler as it is assembled: it asks metrics.k8s.io itself, and a pod goes where less is used."""
    metrics = Metrics()
    metrics.usage = {"a": ("15", "60Gi"), "b": ("1", "2Gi")}
    read = config({"metricsServerSeconds": 1}, name="LoadAware")
    async with EmbeddedCluster() as served:
        with aggregated(served.url, metrics) as front:
            client = await client_of(served.url, tmp_path)
            for name in ("a", "b"):
                await create(client, name, {})
            app = SchedulerApp(
                read, await load_credentials(kubeconfig=leading_to(served.url, tmp_path)), seed=1
            )
            poller = app._metrics_server
            assert poller is not None, "the plugin's args want it asked"
            poller._client = await client_of(front, tmp_path)
            async with anyio.create_task_group() as running:
                running.start_soon(lambda: app.run(on_signals=False))
                with anyio.fail_after(30):
                    while metrics.n_asked < 2:
                        await anyio.sleep(0.02)
                    spec = {
                        "schedulerName": "gangsched",
                        "containers": [{"name": "main", "image": "busybox"}],
                    }
                    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": spec}
                    await client.post("/api/v1/namespaces/default/pods", json.dumps(pod).encode())
                    node = ""
                    while not node:
                        await anyio.sleep(0.02)
                        found = json.loads(await client.get("/api/v1/namespaces/default/pods/p"))
                        node = found["spec"].get("nodeName", "")
                running.cancel_scope.cancel()
            client.close()
    assert node == "b"


def test_the_sample_profile_is_one() -> None:
    path = Path(__file__).parents[2] / "config" / "load-aware.yaml"
    read = parse_config(path.read_text(), source=str(path), plugins=IN_TREE)
    (profile,) = read.profiles
    assert {"LoadAware", "RemainingBandwidth"} <= set(profile.plugins["score"])
    assert "NodeResourcesFit" not in profile.plugins["score"]
    assert profile.weights["LoadAware"] == 5
    assert profile.args["LoadAware"] == Args()
    assert profile.args["RemainingBandwidth"].strategy == "ClosestToExpected"

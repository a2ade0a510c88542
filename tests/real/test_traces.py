"""Traces of gangs on a real kube-apiserver, read back from a real Jaeger by its query API."""

from __future__ import annotations

import socket
import threading
import urllib.request
from pathlib import Path

import pytest

from gangsched import __version__
from gangsched.command.cli import main
from gangsched.lab.controlplane.daemon import free_ports
from gangsched.lab.controlplane.jaeger import Jaeger
from gangsched.telemetry import names
from gangsched.telemetry.showing.reading import from_file
from tests.real.cluster import CORE_GROUPS, MERGE, Cluster, together
from tests.real.picture import annotation, ids_of, node_of
from tests.real.process import binding_gate
from tests.real.traced import Tree, events, links, tag, trace_of

pytestmark = pytest.mark.real

SUBMITTERS_TRACE = "0af7651916cd43dd8448eb211c80319c"
SUBMITTERS = f"00-{SUBMITTERS_TRACE}-b7ad6b7169203331-01"
TOTAL_3 = {"gangsched.io/total-members": "3"}


def without_gathering(tree: Tree) -> list[str]:
    """How many Gathering spans there are depends on how the watch cuts what it brings."""
    return [line for line in tree.lines() if line != "  Gathering"]


def test_a_gangs_trace_is_one_tree(cluster: Cluster, jaeger: Jaeger) -> None:
    cluster.nodes(2, gpus=8)
    cluster.schedule(tracing={"endpoint": jaeger.endpoint})
    cluster.gang("a", pods=2, gpus=8, annotations={names.SUBMITTERS_KEY: SUBMITTERS})
    cluster.whole("a")
    pods = cluster.members("a")
    assert len({annotation(pod, names.TRACEPARENT_KEY) for pod in pods}) == 1
    tree = trace_of(cluster, jaeger, pods[0])
    assert without_gathering(tree) == [
        "schedule gang Scheduled",
        "  Attempt Scheduled",
        "    Queue wait",
        "    Cycle Scheduled",
        *("      PreFilter", "      Filter", "      Score", "      Reserve", "      Permit"),
        "    Bind Scheduled",
    ]
    assert not tree.orphans()
    [root], [reserve], [bind] = tree.named(names.GANG), tree.named(names.RESERVE), tree.named(names.BIND)
    assert links(root) == {SUBMITTERS_TRACE}
    assert (tag(root, names.GROUP), tag(root, names.NAMESPACE)) == ("default/a", "default")
    assert set(tag(reserve, names.NODES)) == {node_of(pod) for pod in pods}
    assert set(tag(reserve, names.DEVICES)) == {one for pod in pods for one in ids_of(pod)}
    told = {event[names.POD_NAME]: event for event in events(bind)}
    for pod in pods:
        event = told[pod["metadata"]["name"]]
        assert event["event"] == "bound"
        assert event[names.POD_UID] == pod["metadata"]["uid"]
        assert event[names.NODE_NAME] == node_of(pod)
    [process] = tree.processes.values()
    assert process["serviceName"] == names.SERVICE
    about = {one["key"]: one["value"] for one in process["tags"]}
    assert about["service.version"] == __version__
    assert about["service.instance.id"]


def test_a_gang_that_timed_out_in_permit_and_came_back(
    cluster: Cluster, jaeger: Jaeger, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.nodes(1, gpus=8)
    cluster.schedule(permitWaitSeconds=2, tracing={"endpoint": jaeger.endpoint})
    cluster.gang("a", pods=2, gpus=2, min_count=2, annotations=TOTAL_3)
    cluster.held("a", says="WaitOnPermit timed out")
    cluster.gangs["a"] = 3
    cluster.gang("a", pods=3, gpus=2, min_count=2, members=[2], annotations=TOTAL_3)
    cluster.whole("a", pods=3)
    tree = trace_of(cluster, jaeger, cluster.members("a")[0])
    assert not tree.orphans()
    first, *_, last = tree.named(names.ATTEMPT)
    assert tag(first, names.VERDICT) == names.GIVEN_BACK
    assert tag(first, "error") is True
    assert tag(last, names.VERDICT) == names.SCHEDULED
    wait = tree.named(names.PERMIT_WAIT)[0]
    assert tag(wait, names.WAITS_FOR) == "2 of 3 members are here"
    assert "WaitOnPermit timed out" in tag(wait, names.REASON)
    assert int(wait["duration"]) > 1_900_000
    unreserve = tree.named(names.UNRESERVE)[0]
    assert tag(unreserve, names.MEMBERS) == 2
    assert "WaitOnPermit timed out" in tag(unreserve, names.REASON)

    assert main(["trace", "default/a", f"--jaeger={jaeger.query_url}", f"--trace-id={tree.trace_id}"]) == 0
    drawn = capsys.readouterr().out
    assert "Permit wait" in drawn
    assert "GivenBack" in drawn
    assert main(["trace", "default/aa", f"--jaeger={jaeger.query_url}"]) == 2
    assert "there are traces of default/a" in capsys.readouterr().err


def test_a_failed_gang_is_in_jaeger_at_ratio_0_and_one_bound_at_once_is_not(
    cluster: Cluster, jaeger: Jaeger
) -> None:
    cluster.nodes(1, gpus=8)
    tracing = {"endpoint": jaeger.endpoint, "samplingRatio": 0, "keep": {"failed": True}}
    scheduler = cluster.schedule(permitWaitSeconds=2, tracing=tracing)
    cluster.gang("good", pods=2, gpus=1)
    cluster.gang("a", pods=2, gpus=1, min_count=2, annotations=TOTAL_3)
    cluster.held("a", says="WaitOnPermit timed out")
    cluster.gangs["a"] = 3
    cluster.gang("a", pods=3, gpus=1, min_count=2, members=[2], annotations=TOTAL_3)
    cluster.whole("good")
    cluster.whole("a", pods=3)
    scheduler.stop_cleanly()  # everything is exported then
    tree = trace_of(cluster, jaeger, cluster.members("a")[0], in_ratio=False)
    assert not tree.orphans()
    [root] = tree.named(names.GANG)
    assert tag(root, names.KEPT) == "failed"
    assert tag(tree.named(names.ATTEMPT)[0], names.VERDICT) == names.GIVEN_BACK
    written = annotation(cluster.members("good")[0], names.TRACEPARENT_KEY)
    assert jaeger.trace(written.split("-")[1]) is None


def test_gangs_that_start_together_link_each_other(cluster: Cluster, jaeger: Jaeger) -> None:
    cluster.nodes(2, gpus=8)
    cluster.schedule(tracing={"endpoint": jaeger.endpoint})
    cluster.gang("a", pods=1, gpus=8, dialect="core", annotations=together("a", "b"))
    patch = {"metadata": {"annotations": {names.SUBMITTERS_KEY: SUBMITTERS}}}
    cluster.plane.request("PATCH", f"{CORE_GROUPS}/a", patch, content_type=MERGE)
    cluster.held("a", says="group default/b does not exist")
    cluster.gang("b", pods=1, gpus=8, dialect="core", annotations=together("a", "b"))
    cluster.whole("a", "b")
    [a], [b] = cluster.members("a"), cluster.members("b")
    of_a, of_b = trace_of(cluster, jaeger, a), trace_of(cluster, jaeger, b)
    assert not of_a.orphans()
    assert not of_b.orphans()
    assert links(of_b.named(names.ATTEMPT)[-1]) == {of_a.trace_id}
    assert links(of_a.named(names.GANG)[0]) == {SUBMITTERS_TRACE}, "from its PodGroup object"
    [wait] = of_a.named(names.PERMIT_WAIT)
    assert tag(wait, names.VERDICT) == names.ALLOWED


def test_nothing_is_lost_at_shutdown(cluster: Cluster, jaeger: Jaeger) -> None:
    cluster.nodes(8, gpus=8)
    path = cluster.directory / "traces.jsonl"
    scheduler = cluster.schedule(tracing={"endpoint": jaeger.endpoint, "file": str(path)})
    for k in range(8):
        cluster.gang(f"g{k}", pods=4, gpus=1)
    cluster.gang("waits", pods=1, gpus=64)
    cluster.held("waits", says="Insufficient")
    cluster.whole(*(f"g{k}" for k in range(8)))
    scheduler.stop_cleanly()  # at once: nothing has waited for the exporters
    trees = [trace_of(cluster, jaeger, cluster.members(f"g{k}")[0]) for k in range(8)]
    for k, tree in enumerate(trees):
        assert not tree.orphans()
        [trace] = from_file(path, f"default/g{k}")
        assert {span.span_id for span in trace.spans} == set(tree.spans), "both have the same"
        [bind] = tree.named(names.BIND)
        assert len(events(bind)) == 4
    [trace] = from_file(path, "default/waits")
    assert trace.root is not None
    assert trace.root.attributes[names.VERDICT] == names.STOPPED
    told = jaeger.trace(trace.trace_id)
    assert told is not None
    assert set(Tree(told).spans) == {span.span_id for span in trace.spans}
    assert "spans were not exported" not in scheduler.said


def test_a_trace_file_is_what_a_collector_takes(cluster: Cluster, jaeger: Jaeger) -> None:
    cluster.nodes(1, gpus=8)
    path = cluster.directory / "traces.jsonl"
    scheduler = cluster.schedule(tracing={"file": str(path)})
    cluster.gang("a", pods=2, gpus=4, annotations={names.SUBMITTERS_KEY: SUBMITTERS})
    cluster.whole("a")
    scheduler.stop_cleanly()
    for line in path.read_bytes().splitlines():
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{jaeger.endpoint}/v1/traces", line, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
    tree = trace_of(cluster, jaeger, cluster.members("a")[0])
    assert not tree.orphans()
    assert links(tree.named(names.GANG)[0]) == {SUBMITTERS_TRACE}
    assert len(events(tree.named(names.BIND)[0])) == 2


def test_a_gang_bound_in_part_by_a_process_that_died_goes_on_in_its_trace(
    cluster: Cluster, jaeger: Jaeger
) -> None:
    cluster.nodes(2, gpus=8)
    gate = binding_gate(cluster.plane, cluster.directory, lambda _, n_passed: n_passed < 1)
    with gate as (held, kubeconfig):
        first = cluster.schedule(kubeconfig=kubeconfig, tracing={"endpoint": jaeger.endpoint})
        cluster.gang("a", pods=2, gpus=8)
        cluster.picture.until(lambda: cluster.n_bound("a") == 1 and bool(held.held), "half of it is bound")
        first.kill()
    cluster.schedule(tracing={"endpoint": jaeger.endpoint})
    cluster.whole("a")
    pods = cluster.members("a")
    assert len({annotation(pod, names.TRACEPARENT_KEY) for pod in pods}) == 1
    tree = trace_of(cluster, jaeger, pods[0])
    assert not tree.orphans()
    [root] = tree.named(names.GANG)
    assert tag(root, names.CONTINUED) is True
    assert tag(tree.named(names.ATTEMPT)[-1], names.ATTEMPT_NUMBER) == 2


@pytest.fixture
def deaf() -> str:
    """The URL of a port where nobody listens."""
    [port] = free_ports(1)
    return f"http://127.0.0.1:{port}"


def test_a_collector_that_is_down_delays_no_other(cluster: Cluster, deaf: str) -> None:
    cluster.nodes(4, gpus=8)
    scheduler = cluster.schedule(tracing={"endpoint": deaf})
    for k in range(4):
        cluster.gang(f"g{k}", pods=8, gpus=1)
    cluster.whole(*(f"g{k}" for k in range(4)))
    scheduler.stop_cleanly()
    assert "spans were not exported" in scheduler.said
    assert deaf in scheduler.said


def test_a_collector_that_hangs_delays_no_other(cluster: Cluster) -> None:
    cluster.nodes(4, gpus=8)
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])  # and never answers
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        scheduler = cluster.schedule(tracing={"endpoint": f"http://127.0.0.1:{port}"})
        for k in range(4):
            cluster.gang(f"g{k}", pods=8, gpus=1)
        cluster.whole(*(f"g{k}" for k in range(4)))
        cluster.eventually(lambda: bool(taken), "the exporter has connected")
        scheduler.stop_cleanly()
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    for connection in taken:
        connection.close()
    assert "spans were not exported" in scheduler.said


def test_without_traces_a_binding_carries_none(cluster: Cluster) -> None:
    cluster.nodes(1, gpus=8)
    cluster.schedule()
    cluster.gang("a", pods=1, gpus=1, annotations={names.SUBMITTERS_KEY: "not a traceparent"})
    cluster.whole("a")
    [pod] = cluster.members("a")
    assert not annotation(pod, names.TRACEPARENT_KEY)


def test_a_bad_submitters_trace_is_reported_and_ignored(cluster: Cluster, tmp_path: Path) -> None:
    cluster.nodes(1, gpus=8)
    scheduler = cluster.schedule(tracing={"file": str(tmp_path / "t")})
    cluster.gang("a", pods=2, gpus=1, annotations={names.SUBMITTERS_KEY: "\x1b[31mnot a traceparent"})
    cluster.whole("a")
    assert scheduler.said.count("is not a W3C traceparent, ignored") == 1
    assert "\x1b" not in scheduler.said

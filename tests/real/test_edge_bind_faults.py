"""Rows 6-8 and 11 of the fault catalogue for binds: each has exactly one true answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.effects import GetPod
from gangsched.model.events import (
    BindFailed,
    BindSucceeded,
    BindUnknown,
    PodRead,
)
from tests.proxy import Proxy, Rule, http_answer
from tests.real.edge import (
    PODS,
    bind_of,
    delete_pod,
    edge_on,
    http,
    make_node,
    make_pod,
    node_of,
    raw,
)
from tests.support.tasks import until

# Fixtures, named so that pytest finds them here.
__all__ = ["http", "raw"]

pytestmark = pytest.mark.real


async def test_06_throttled_and_refused_binds_are_sent_again(
    http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    make_node(fresh_cluster, "n1")
    a, b = make_pod(fresh_cluster, "a"), make_pod(fresh_cluster, "b")
    http.rule(
        Rule(
            lambda line: line.endswith("/a/binding"),
            times=2,
            answer=http_answer("429 Too Many Requests", b"", "Retry-After: 0"),
        )
    )
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        assert await edge.does(bind_of(a), BindSucceeded)
        await http.stop_listening()
        http.cut()
        await anyio.sleep(0.2)  # written to a connection just lost, the bind would rightly be unknown
        edge.dispatcher.submit([bind_of(b)])
        await anyio.sleep(0.5)
        assert len(edge.heard(BindUnknown)) == 0
        await http.listen()
        await until(lambda: len(edge.heard(BindSucceeded)) == 2)
        assert node_of(fresh_cluster, "b") == ("n1", "0")
        await edge.agrees(fresh_cluster)


# Row 7


async def test_07_each_refusal_of_a_bind_has_its_answer(
    raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    make_node(fresh_cluster, "n1")
    bound = make_pod(fresh_cluster, "bound", nodeName="n1")
    gated = make_pod(fresh_cluster, "gated", schedulingGates=[{"name": "example.com/wait"}])
    gone = make_pod(fresh_cluster, "gone")
    delete_pod(fresh_cluster, "gone")
    bad = make_pod(fresh_cluster, "bad")
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        assert await edge.does(bind_of(bound), BindUnknown)
        assert await edge.does(bind_of(gated), BindUnknown)
        for uid in (bound["metadata"]["uid"], gated["metadata"]["uid"]):
            name = "bound" if uid == bound["metadata"]["uid"] else "gated"
            read = await edge.does(GetPod(uid, "default", name, "cause"), PodRead)
            assert read.pod.spec.node_name == ("n1" if name == "bound" else "")
        failed: BindFailed = await edge.does(bind_of(gone), BindFailed)
        assert failed.code == 404
        # The server says 500 to what is invalid, so this too has to be looked up.
        assert await edge.does(bind_of(bad, node=""), BindUnknown)
        read = await edge.does(GetPod(bad["metadata"]["uid"], "default", "bad", "cause"), PodRead)
        assert read.pod.spec.node_name == ""


async def test_07_without_the_right_to_bind_the_answer_names_the_verb(
    http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    pod = make_pod(fresh_cluster, "a")
    body = json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": 403,
            "reason": "Forbidden",
            "details": {"name": "a", "kind": "pods"},
            "message": 'cannot create resource "pods/binding"',
        }
    ).encode()
    http.rule(Rule(lambda line: line.endswith("/binding"), answer=http_answer("403 Forbidden", body)))
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        failed: BindFailed = await edge.does(bind_of(pod), BindFailed)
        assert (failed.code, failed.reason) == (403, "Forbidden")
        assert "pods/binding" in failed.message


# Row 8


@pytest.mark.parametrize(
    ("fault", "committed"),
    [
        ({"cut_after": True}, True),
        ({"cut_after": True, "forward_bytes": 30}, True),
        ({"stall": True}, True),
        ({"cut_before": True}, False),
    ],
)
async def test_08_a_bind_without_an_answer_is_decided_by_a_read(
    fault: dict[str, Any], committed: bool, http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    make_node(fresh_cluster, "n1")
    pod = make_pod(fresh_cluster, "a")
    http.rule(Rule(lambda line: line.endswith("/a/binding"), **fault))
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        assert await edge.does(bind_of(pod), BindUnknown)
        read: PodRead = await edge.does(GetPod(pod["metadata"]["uid"], "default", "a", "cause"), PodRead)
        assert read.pod is not None
        assert read.pod.spec.node_name == ("n1" if committed else "")
        assert len([line for line in http.requests if line.endswith("/a/binding")]) == 1
        assert not edge.heard(BindSucceeded)
        await edge.agrees(fresh_cluster)


@pytest.mark.parametrize(("fault", "n_bound"), [({"cut_after": True}, 39), ({"cut_before": True}, 38)])
async def test_08_what_was_sent_behind_a_lost_bind_is_decided_by_a_read_too(
    fault: dict[str, Any], n_bound: int, http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    make_node(fresh_cluster, "n1")
    pods = [make_pod(fresh_cluster, f"p{n}") for n in range(40)]  # more than twice the connections
    http.rule(Rule(lambda line: line.endswith("/p0/binding"), **fault))
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        edge.dispatcher.warm()
        # Then each connection is sent one, and one behind it.
        await until(lambda: len(edge.dispatcher.binds._idle) == 16)
        edge.dispatcher.submit([bind_of(pod) for pod in pods])
        await until(lambda: len(edge.heard(BindSucceeded)) + len(edge.heard(BindUnknown)) == 40)
        unknown = {event.uid for event in edge.heard(BindUnknown)}
        assert pods[0]["metadata"]["uid"] in unknown
        assert len(unknown) == 2
        for pod in pods:
            if pod["metadata"]["uid"] in unknown:
                name = pod["metadata"]["name"]
                read = await edge.does(GetPod(pod["metadata"]["uid"], "default", name, "cause"), PodRead)
                assert read.pod.spec.node_name == node_of(fresh_cluster, name)[0]
        await edge.agrees(fresh_cluster)
    assert sum(bool(node_of(fresh_cluster, f"p{n}")[0]) for n in range(40)) == n_bound
    sent = [line for line in http.requests if line.endswith("/binding")]
    assert len(sent) == len(set(sent)) == 39  # the one behind it was never taken in


async def test_08_the_read_is_tried_until_the_server_is_back(
    http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    pod = make_pod(fresh_cluster, "a")
    rule = http.rule(
        Rule(
            lambda line: line == f"GET {PODS}/a",
            times=2,
            answer=http_answer("503 Service Unavailable"),
        )
    )
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        read: PodRead = await edge.does(GetPod(pod["metadata"]["uid"], "default", "a", "cause"), PodRead)
        assert read.pod is not None
        assert len(rule.seen) == 2


# Row 11


async def test_11_answers_in_another_order_find_their_binds(
    http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    make_node(fresh_cluster, "n1")
    pods = [make_pod(fresh_cluster, f"p{n}") for n in range(8)]
    http.rule(Rule(lambda line: line.endswith("/p0/binding"), stall=True))
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        edge.dispatcher.submit([bind_of(pod) for pod in pods])
        await until(lambda: len(edge.heard(BindSucceeded)) == 7)
        for link in http.find("/p0/binding"):
            link.flowing.set()
        await until(lambda: len(edge.heard(BindSucceeded)) == 8)
        assert edge.heard(BindSucceeded)[-1].uid == pods[0]["metadata"]["uid"]

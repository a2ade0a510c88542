"""Rows 1-6, 13 and 14 of the fault catalogue for list and watch: the picture must be the store's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.effects import GetPod
from gangsched.model.events import (
    BindSucceeded,
    BindUnknown,
    Event,
    KindMissing,
    KindSynced,
    ObjectRefused,
    PodDeleted,
    PodRead,
)
from tests.conftest import DEFINITIONS
from tests.proxy import Proxy, Rule, http_answer
from tests.real.edge import (
    PODS,
    bind_of,
    delete_pod,
    edge_on,
    http,
    lists,
    make_node,
    make_pod,
    node_of,
    raw,
    watches,
)
from tests.support.tasks import until

# Fixtures, named so that pytest finds them here.
__all__ = ["http", "raw"]

pytestmark = pytest.mark.real


# Row 1


@pytest.mark.parametrize("how", ["cut", "refused_for_a_while"])
async def test_01_a_cut_watch_is_resumed(
    how: str, raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    make_pod(fresh_cluster, "a")
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        n_lists = edge.reflectors["pods"].n_lists
        if how == "refused_for_a_while":
            raw.refusing = True
        raw.cut()
        make_pod(fresh_cluster, "b")
        delete_pod(fresh_cluster, "a")
        await anyio.sleep(0.3)
        raw.refusing = False
        await edge.agrees(fresh_cluster)
        assert edge.reflectors["pods"].n_lists == n_lists  # resumed, not listed again


async def test_01_a_cut_in_mid_line_loses_nothing(
    http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        await until(lambda: http.find("/pods?watch=1"))
        for link in http.find("/pods?watch=1"):
            link.budget = 700  # in the middle of the first line, which is longer
        make_pod(fresh_cluster, "a")
        make_pod(fresh_cluster, "b")
        await edge.agrees(fresh_cluster)


async def test_01_a_silent_watch_is_found_dead_though_others_live(
    http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        await until(lambda: http.find("/pods?watch=1"))
        http.stall("/pods?watch=1")
        make_pod(fresh_cluster, "a")
        await edge.agrees(fresh_cluster)
        assert edge.reflectors["pods"].n_dead >= 1


async def test_01_connections_that_all_went_silent_are_replaced(
    raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        await until(lambda: edge.reflectors["pods"].n_watches)
        await anyio.sleep(0.3)
        raw.stall()
        make_pod(fresh_cluster, "a")
        await edge.agrees(fresh_cluster)
        assert edge.reflectors["pods"].n_dead >= 1


async def test_01_a_quiet_watch_is_left_alone(
    raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        n_watches = edge.reflectors["pods"].n_watches
        for n in range(6):  # other kinds change, so the collection's version rises
            make_node(fresh_cluster, f"n{n}")
            await anyio.sleep(0.5)
        assert edge.reflectors["pods"].n_dead == 0
        assert edge.reflectors["pods"].n_watches == max(n_watches, 1)


# Row 2

EXPIRED = json.dumps(
    {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
).encode()


async def test_02_410_on_the_watch(http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path) -> None:
    make_pod(fresh_cluster, "a")
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        rule = http.rule(Rule(watches(), answer=http_answer("410 Gone", EXPIRED)))
        http.cut("/pods?watch=1")
        delete_pod(fresh_cluster, "a")
        make_pod(fresh_cluster, "b")
        await edge.agrees(fresh_cluster)
        await until(lambda: rule.seen)
        await edge.agrees(fresh_cluster)


async def test_02_410_inside_the_stream(http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path) -> None:
    make_pod(fresh_cluster, "a")
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        await until(lambda: http.find("/pods?watch=1"))
        [link] = http.find("/pods?watch=1")
        link.flowing.clear()  # this one will never hear of it
        delete_pod(fresh_cluster, "a")
        make_pod(fresh_cluster, "a")
        link.inject(b'{"type":"ERROR","object":' + EXPIRED + b"}\n")
        await edge.agrees(fresh_cluster)
        assert edge.reflectors["pods"].n_lists >= 2
        assert len(edge.heard(PodDeleted)) == 1


async def test_02_410_on_a_continue_token(http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path) -> None:
    for n in range(8):
        make_pod(fresh_cluster, f"p{n}")
    rule = http.rule(
        Rule(lambda line: lists(line) and "continue=" in line, answer=http_answer("410 Gone", EXPIRED))
    )
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        await edge.agrees(fresh_cluster)
        assert rule.seen
        assert set(edge.n_added.values()) == {1}


# Row 3


async def test_03_pages_that_change_while_they_are_read(
    http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    for n in range(9):
        make_pod(fresh_cluster, f"p{n}")
    http.delay_s = 0.1
    async with anyio.create_task_group() as group:

        async def stir() -> None:
            await until(lambda: [line for line in http.requests if lists(line) and "continue=" in line])
            for name in ("p0", "p5", "p8"):
                await anyio.to_thread.run_sync(delete_pod, fresh_cluster, name)
            for name in ("p0", "a", "z"):
                await anyio.to_thread.run_sync(make_pod, fresh_cluster, name)

        group.start_soon(stir)
        async with edge_on(http, fresh_cluster, tmp_path) as edge:
            await until(lambda: len(edge.n_added) >= 12)
            await edge.agrees(fresh_cluster)


# Rows 4 and 5


async def test_04_doubled_and_replayed_lines(
    http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    old = make_pod(fresh_cluster, "a")
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        await until(lambda: http.find("/pods?watch=1"))
        [link] = http.find("/pods?watch=1")
        line = json.dumps({"type": "ADDED", "object": old}).encode() + b"\n"
        link.inject(line)
        link.inject(line)
        delete_pod(fresh_cluster, "a")
        await edge.agrees(fresh_cluster)
        link.inject(line)
        make_pod(fresh_cluster, "b")
        await edge.agrees(fresh_cluster)


async def test_05_deletion_missed_and_name_used_again(
    raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    make_node(fresh_cluster, "n1")
    old = make_pod(fresh_cluster, "a")
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:
        raw.refusing = True
        raw.cut()
        delete_pod(fresh_cluster, "a")
        new = make_pod(fresh_cluster, "a")
        edge.reflectors["pods"].state.gone()  # as if the server's history did not reach back
        raw.refusing = False
        await edge.agrees(fresh_cluster)
        assert [event.pod.metadata.uid for event in edge.heard(PodDeleted)] == [old["metadata"]["uid"]]
        # A bind meant for the old one must not take the new one.
        answer = await edge.does(bind_of(old), BindUnknown)
        assert answer.uid == old["metadata"]["uid"]
        read = await edge.does(GetPod(old["metadata"]["uid"], "default", "a", "cause"), PodRead)
        assert read.pod is None
        assert node_of(fresh_cluster, "a") == ("", "")
        assert await edge.does(bind_of(new), BindSucceeded)


# Row 6


@pytest.mark.parametrize(
    "answer",
    [
        http_answer("429 Too Many Requests", b"slow down", "Retry-After: 1"),
        http_answer("503 Service Unavailable"),
        http_answer("500 Internal Server Error"),
    ],
)
async def test_06_throttling_and_trouble_on_lists_and_watches(
    answer: bytes, http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    make_pod(fresh_cluster, "a")
    on_list = http.rule(Rule(lists, times=2, answer=answer))
    on_watch = http.rule(Rule(watches(), times=2, answer=answer))
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        make_pod(fresh_cluster, "b")
        await edge.agrees(fresh_cluster)
        assert len(on_list.seen) == 2
        assert len(on_watch.seen) == 2


# Rows 13 and 14

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.test.gangsched.io",
    },
    "spec": {
        "group": "test.gangsched.io",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


async def test_13_a_kind_that_appears_later_is_picked_up(
    raw: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    kind = "podgroups.test"
    async with edge_on(raw, fresh_cluster, tmp_path) as edge:

        def words() -> list[Event]:
            return [event for event in edge.heard(KindSynced) + edge.heard(KindMissing) if event.kind == kind]

        await until(words)
        assert words() == [KindMissing(kind)]
        fresh_cluster.request("POST", DEFINITIONS, CRD)
        await until(lambda: len(words()) == 2)
        fresh_cluster.request("DELETE", f"{DEFINITIONS}/podgroups.test.gangsched.io")
        await until(lambda: len(words()) == 3)
        await anyio.sleep(1)
        assert len(words()) == 3  # said once, not at every look


async def test_14_objects_that_do_not_parse_do_not_stop_the_stream(
    http: Proxy, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    async with edge_on(http, fresh_cluster, tmp_path) as edge:
        await until(lambda: http.find("/pods?watch=1"))
        [link] = http.find("/pods?watch=1")
        make_pod(fresh_cluster, "a")
        node = fresh_cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        bad = {
            "metadata": {
                "name": "bad",
                "namespace": "default",
                "uid": "u-bad",
                "resourceVersion": node["metadata"]["resourceVersion"],  # its place in the stream
            },
            "spec": {"schedulerName": "gangsched", "containers": "none", "surprise": 1},
        }
        await edge.agrees(fresh_cluster)
        link.inject(json.dumps({"type": "ADDED", "object": bad}).encode() + b"\n")
        await until(lambda: edge.heard(ObjectRefused))
        [refusal] = edge.heard(ObjectRefused)
        assert (refusal.uid, refusal.scheduler_name) == ("u-bad", "gangsched")
        assert "containers" in edge.pods.pop("u-bad").unreadable  # known in part, so that it is not placed
        make_pod(fresh_cluster, "b")
        big = make_pod(fresh_cluster, "big")["metadata"]["name"]
        fresh_cluster.request(
            "PATCH",
            f"{PODS}/{big}",
            {"metadata": {"annotations": {"x": "y" * 200_000}}},
            content_type="application/merge-patch+json",
        )
        await edge.agrees(fresh_cluster)

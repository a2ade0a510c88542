"""One field that cannot be read, in the same update as a cordon or a deletion: the others count.

Table-driven from the fields that are read, so that a new one is tested when it comes. From the bytes of the
watch to the decision.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest

from gangsched.kube.watch.decode import Kind, nodes, objects, pods
from gangsched.kube.watch.watch_state import WatchState
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node, Pod
from gangsched.model.resources import MAX_RESOURCES
from gangsched.model.workloads import PodDisruptionBudget
from tests.support.scenario import Cluster, cluster

GPU = "nvidia.com/gpu"
Path = tuple[str | int, ...]
# Without these it is not known which object it is; the API server writes them.
IDENTITY = {("metadata",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "resourceVersion")}
GARBAGE: tuple[Any, ...] = ([[["x"]]], {"a": {"b": [7]}}, "garbage", 7.5, True)
NODE = {
    "kind": "Node",
    "metadata": {"name": "n0", "uid": "uid-n0", "resourceVersion": "1", "labels": {"a": "b"}},
    "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110", GPU: "8"}},
}
POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "uid-p", "resourceVersion": "1"},
    "spec": {
        "schedulerName": "gangsched",
        "containers": [{"name": "main", "resources": {"requests": {GPU: "2"}}}],
    },
    "status": {"phase": "Pending"},
}
CORDON = {"unschedulable": True, "taints": [{"key": "down", "effect": "NoExecute"}]}
ON_N0 = {"nodeName": "n0"}


def paths(form: Any, before: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field that is read, with its type; of lists the first element."""
    for field in msgspec.structs.fields(form):
        path = (*before, field.encode_name)
        if "/" in field.encode_name:
            continue  # ours, set at the edge
        yield path, field.type
        forms = get_args(field.type) if get_origin(field.type) in (Union, UnionType) else (field.type,)
        for one in forms:
            is_list = get_origin(one) is list
            inner = get_args(one)[0] if is_list else one
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from paths(inner, (*path, 0) if is_list else path)


def unreadable(form: Any) -> list[tuple[Path, Any]]:
    """(path, a value that cannot be read there)."""
    found = []
    for path, kind in paths(form):
        for value in GARBAGE:
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError:
                found.append((path, value))
                break
    return [(path, value) for path, value in found if path not in IDENTITY]


def put(body: dict[str, Any], path: Path, value: Any) -> None:
    at: Any = body
    for here, below in pairwise(path):
        empty: Any = [{}] if below == 0 else {}
        at = at.setdefault(here, empty) if isinstance(at, dict) else at[here]
    at[path[-1]] = value


class Edge:
    """Watches nodes and pods, and passes what they show to a scheduler."""

    def __init__(self, *more: Kind) -> None:
        self.c: Cluster = cluster(nodes=0)
        self._watches = {kind.kind: WatchState(kind) for kind in (nodes(), pods(), *more)}
        self._version = 10
        for watch in self._watches.values():
            meta = {"metadata": {"resourceVersion": "1"}, "items": []}
            version = watch.api_version
            page = meta | {"kind": f"{watch.kind.kind}List", "apiVersion": version}
            self.c.tell(*watch.page(json.dumps(page).encode()))

    def show(self, change: str, body: dict[str, Any]) -> Edge:
        self._version += 1
        body = deepcopy(body)
        body["metadata"]["resourceVersion"] = str(self._version)
        line = json.dumps({"type": change, "object": body}).encode() + b"\n"
        events = self._watches[body["kind"]].lines(line)
        for event in events:
            if isinstance(event, ev.PodAdded | ev.PodUpdated):
                self.c.pods[event.pod.metadata.uid] = event.pod
        self.c.tell(*events)
        self.c.run()
        return self

    def wait(self) -> Edge:
        """Until every backoff is over."""
        self.c.wait(60)
        return self

    def takes_pods(self) -> bool:
        """Whether the node is there, not cordoned, and without taints."""
        table = self.c.node_table()
        row = table.row_of.get("n0")
        return row is not None and not (table.unschedulable[row] or table.taint_class[row])

    @property
    def free(self) -> int:
        """Free devices on the node."""
        table = self.c.node_table()
        return table.free.item(table.table.column(GPU), table.row_of["n0"])

    @property
    def bound(self) -> list[str]:
        return [bind.uid for bind in self.c.all(ef.BindPod)]


def with_(body: dict[str, Any], **parts: dict[str, Any]) -> dict[str, Any]:
    """A copy with these fields of spec, status or metadata."""
    made = deepcopy(body)
    for part, fields in parts.items():
        made[part] = made.get(part, {}) | deepcopy(fields)
    return made


@pytest.mark.parametrize(("path", "value"), unreadable(Node), ids=str)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_cordon_counts_whatever_else_of_the_node_cannot_be_read(
    path: Path, value: Any, *, is_known: bool
) -> None:
    edge = Edge()
    if is_known:
        edge.show("ADDED", NODE)
        assert edge.free == 8
    body = with_(NODE, spec=CORDON)
    put(body, path, value)
    edge.show("MODIFIED" if is_known else "ADDED", body)
    assert not edge.takes_pods()
    assert not edge.show("ADDED", POD).wait().bound
    edge.show("MODIFIED", NODE)
    assert edge.takes_pods()
    assert edge.wait().bound == ["uid-p"]
    assert not edge.show("DELETED", body).takes_pods()


@pytest.mark.parametrize(("path", "value"), unreadable(Node), ids=str)
def test_a_node_with_a_field_that_cannot_be_read_gets_no_pods(path: Path, value: Any) -> None:
    edge, body = Edge(), deepcopy(NODE)
    put(body, path, value)
    edge.show("ADDED", body).show("ADDED", POD).wait()
    assert bool(edge.bound) == (path[:2] == ("status", "images"))  # images only score


MEANINGLESS: list[tuple[Path, Any]] = [
    *[(("status", "allocatable", name), "lots") for name in ("cpu", "memory", "pods", GPU, "new/er")],
    (("status", "allocatable"), {f"r{i}/x": "1" for i in range(MAX_RESOURCES + 50)}),
    (("status", "allocatable"), {"cpu": "-1e999", "memory": "1e999"}),
    *[
        (("metadata", "annotations", key), "{")
        for key in ("gangsched.io/devices", "gangsched.io/device-report")
    ],
    (("metadata", "annotations"), {"gangsched.io/devices": json.dumps({f"r{i}/x": [] for i in range(99)})}),
    *[(("metadata", "annotations", f"gangsched.io/{key}"), "[[") for key in ("load", "bandwidth", "links")],
]


@pytest.mark.parametrize(("path", "value"), MEANINGLESS, ids=str)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_cordon_counts_whatever_else_of_the_node_has_no_meaning(
    path: Path, value: Any, *, is_known: bool
) -> None:
    edge = Edge()
    if is_known:
        edge.show("ADDED", NODE)
    body = with_(NODE, spec=CORDON)
    put(body, path, value)
    assert not edge.show("MODIFIED" if is_known else "ADDED", body).takes_pods()
    assert not edge.show("ADDED", POD).wait().bound
    assert edge.show("MODIFIED", NODE).takes_pods()
    assert edge.wait().bound == ["uid-p"]


@pytest.mark.parametrize(("path", "value"), unreadable(Pod), ids=str)
def test_a_running_pod_holds_what_it_held_until_it_is_gone(path: Path, value: Any) -> None:
    edge = Edge().show("ADDED", NODE).show("ADDED", with_(POD, spec=ON_N0, status={"phase": "Running"}))
    assert edge.free == 6
    body = with_(
        POD,
        spec=ON_N0,
        status={"phase": "Running"},
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"},
    )
    put(body, path, value)
    assert edge.show("MODIFIED", body).free == 6
    info = edge.c.pod_info("p")
    is_same = path == ("metadata", "deletionTimestamp")
    assert (info.pod.metadata.deletion_timestamp is None) == is_same
    assert edge.show("DELETED", body).free == 8


@pytest.mark.parametrize(("path", "value"), unreadable(Pod), ids=str)
def test_a_pod_that_has_ended_holds_nothing(path: Path, value: Any) -> None:
    edge = Edge().show("ADDED", NODE).show("ADDED", with_(POD, spec=ON_N0, status={"phase": "Running"}))
    body = with_(POD, spec=ON_N0, status={"phase": "Failed"})
    put(body, path, value)
    holds = path in (("status",), ("status", "phase"))  # it is not known that it has ended
    assert edge.show("MODIFIED", body).free == (6 if holds else 8)


@pytest.mark.parametrize(("path", "value"), unreadable(Pod), ids=str)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_pod_with_a_field_that_cannot_be_read_is_not_placed(
    path: Path, value: Any, *, is_known: bool
) -> None:
    edge, body = Edge(), deepcopy(POD)
    if is_known:
        edge.show("ADDED", body)
    put(body, path, value)
    edge.show("MODIFIED" if is_known else "ADDED", body).show("ADDED", NODE).wait()
    assert not edge.bound
    assert edge.show("MODIFIED", POD).wait().bound == ["uid-p"]


@pytest.mark.parametrize(("path", "value"), unreadable(PodDisruptionBudget), ids=str)
def test_a_budget_with_a_field_that_cannot_be_read_allows_no_eviction(path: Path, value: Any) -> None:
    kind = objects("poddisruptionbudgets.policy")
    body: dict[str, Any] = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "uid": "uid-b", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 3},
    }
    watch = WatchState(kind)
    watch.page(
        json.dumps(
            {
                "kind": "PodDisruptionBudgetList",
                "apiVersion": "policy/v1",
                "metadata": {"resourceVersion": "1"},
                "items": [body],
            }
        ).encode()
    )
    bad = deepcopy(body)
    bad["metadata"]["resourceVersion"] = "2"
    put(bad, path, value)
    events = watch.lines(json.dumps({"type": "MODIFIED", "object": bad}).encode() + b"\n")
    put_event, refusal = events
    assert isinstance(put_event, ev.ObjectPut)
    assert isinstance(refusal, ev.ObjectRefused)
    now = put_event.object
    assert isinstance(now, PodDisruptionBudget)
    assert now.status.disruptions_allowed == 0
    if path[0] == "spec":
        assert now.spec.selector is not None
        assert now.spec.selector.match_labels == {"app": "web"}

"""One extender for kube-scheduler and for us: it gets the same requests, and the pods go the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.lab.controlplane.processes import ControlPlane
from tests.extenders.server import ExtenderServer
from tests.real.process import Scheduler
from tests.support.processes import until

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
LICENCE = "example.com/licence"
PATIENCE_S = 60.0
AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
THEIRS, OURS = "default-scheduler", "gangsched"
Json = dict[str, Any]


@pytest.fixture
def server() -> Iterator[ExtenderServer]:
    with ExtenderServer() as running:
        yield running


class Pair:
    """kube-scheduler and ours on one API server, each with the extender under a path of its own."""

    def __init__(self, plane: ControlPlane, server: ExtenderServer, directory: Path, **fields: Any) -> None:
        self.plane = plane
        self.server = server
        self._directory = directory
        self._fields = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 3} | fields
        for i in range(4):
            plane.request("POST", "/api/v1/nodes", {"metadata": {"name": f"n{i}", "labels": {"i": str(i)}}})
            room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
            plane.request(
                "PATCH",
                f"/api/v1/nodes/n{i}/status",
                {"status": {"allocatable": room, "capacity": room}},
                content_type="application/merge-patch+json",
            )
        plane.start_kube_scheduler(config={"extenders": [self._extender(THEIRS)]})
        self.ours = self._start_ours()

    def _extender(self, name: str) -> Json:
        return {"urlPrefix": f"{self.server.url}/{name}"} | self._fields

    def _start_ours(self) -> Scheduler:
        path = self._directory / "ours.yaml"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": OURS}],
            "extenders": [self._extender(OURS)],
        }
        path.write_text(yaml.safe_dump(document))
        return Scheduler(path, self.plane.kubeconfig, self._directory / "ours.log")

    def decide(self, pod: Json, scheduler: str) -> tuple[str, list[tuple[str, Json]]]:
        """Where it goes, or why nowhere; and what the extender was asked."""
        before = len(self.server.asked)
        name = f"{pod['metadata']['name']}-{scheduler}"  # a late answer about one pod cannot meet the other
        self.plane.request("POST", PODS, scheduled_by(pod, scheduler) | {"metadata": {"name": name}})
        said = self.until(lambda: self._outcome(name), f"{scheduler} decides about {name}")
        asked = [
            (path.rpartition("/")[2], comparable(arguments))
            for path, arguments in self.server.asked[before:]
            if path.startswith(f"/{scheduler}/")
        ]
        self.plane.request("DELETE", f"{PODS}/{name}", AT_ONCE)
        return said, asked

    def _node(self, name: str) -> str:
        return str(self.plane.request("GET", f"{PODS}/{name}")["spec"].get("nodeName", ""))

    def _outcome(self, name: str) -> str:
        pod = self.plane.request("GET", f"{PODS}/{name}")
        if node := pod["spec"].get("nodeName"):
            return str(node)
        conditions = pod["status"].get("conditions", ())
        return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")

    def until(self, seen: Callable[[], Any], what: str) -> Any:
        return until(seen, what, timeout_s=PATIENCE_S, story=lambda: self.ours.said)


def comparable(arguments: Json) -> Json:
    """Without what differs between the two pods of a case, and the order of nodes, which turns there."""
    pod = arguments["Pod"]
    differ = ("name", "uid", "resourceVersion", "creationTimestamp")
    metadata = {k: v for k, v in pod["metadata"].items() if k not in differ}
    spec = {k: v for k, v in pod["spec"].items() if k != "schedulerName"}
    nodes = arguments["Nodes"]
    if nodes is not None:
        nodes = sorted((_node(node) for node in nodes["items"]), key=lambda node: node["metadata"]["name"])
    names = arguments["NodeNames"]
    return {
        "Pod": pod | {"metadata": metadata, "spec": spec},
        "Nodes": nodes,
        "NodeNames": None if names is None else sorted(names),
    }


def reasons(message: str) -> list[str]:
    """In any order; what only one of the two adds, or preemption has to say, comes after a full stop."""
    return sorted(message.partition(". ")[0].rstrip(".").split(", "))


def scheduled_by(pod: Json, scheduler: str) -> Json:
    return pod | {"spec": pod["spec"] | {"schedulerName": scheduler}}


def first_attempt(asked: list[tuple[str, Json]]) -> dict[str, Json]:
    """By verb; a refused pod is tried again until it is deleted."""
    found: dict[str, Json] = {}
    for verb, arguments in asked:
        found.setdefault(verb, arguments)
    return found


def _node(node: Json) -> Json:
    return node | {"metadata": {k: v for k, v in node["metadata"].items() if k != "resourceVersion"}}


@pytest.fixture
def pair(
    fresh_cluster: ControlPlane, server: ExtenderServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Pair]:
    made = Pair(fresh_cluster, server, tmp_path, **getattr(request, "param", {}))
    yield made
    made.ours.stop_cleanly()


def pod(name: str, cpu: str = "1", **more: str) -> Json:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}, "limits": {}}}
    if more:
        container["resources"] = {"requests": {"cpu": cpu, **more}, "limits": more}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


@pytest.mark.parametrize("pair", [{"nodeCacheCapable": True}, {}], indirect=True, ids=["names", "nodes"])
def test_the_same_requests_and_the_same_decision(pair: Pair) -> None:
    server = pair.server
    cases: list[tuple[Json, dict[str, str], dict[str, int]]] = [
        (pod("scored"), {}, {"n2": 10, "n3": 4}),
        (pod("filtered"), {"n0": "too old", "n2": "too old"}, {"n3": 1}),
        (pod("only"), {"n0": "no", "n1": "no", "n3": "no"}, {}),
        (pod("refused"), {"n0": "no licence", "n1": "no licence", "n2": "too hot", "n3": "too hot"}, {}),
        (pod("too-large", cpu="17"), {}, {}),
    ]
    for made, refuses, scores in cases:
        server.refuses, server.scores = refuses, scores
        theirs, asked_by_them = pair.decide(made, THEIRS)
        ours, asked_by_us = pair.decide(made, OURS)
        name = made["metadata"]["name"]
        assert first_attempt(asked_by_us) == first_attempt(asked_by_them), name
        if theirs.startswith("n"):
            assert ours == theirs, name
        else:
            assert reasons(ours) == reasons(theirs), name
            assert ("No node that suits it is large enough" in ours) is (name == "too-large"), ours


LICENCES = {
    "nodeCacheCapable": True,
    "managedResources": [{"name": LICENCE, "ignoredByScheduler": True}],
}


@pytest.mark.parametrize("pair", [LICENCES], indirect=True)
def test_a_resource_that_the_extender_counts_alone(pair: Pair) -> None:
    """No node has any of it; only pods that ask for it are the extender's business."""
    pair.server.refuses, pair.server.scores = {"n0": "no licence left"}, {"n1": 7}
    for made, goes in ((pod("licensed", **{LICENCE: "2"}), "n1"), (pod("plain"), "")):
        theirs, asked_by_them = pair.decide(made, THEIRS)
        ours, asked_by_us = pair.decide(made, OURS)
        assert asked_by_us == asked_by_them
        assert bool(asked_by_us) == bool(goes)
        if goes:
            assert ours == theirs == goes


BINDER = {"filterVerb": "", "prioritizeVerb": "", "weight": 0, "bindVerb": "bind"}


@pytest.mark.parametrize("pair", [BINDER], indirect=True)
def test_an_extender_that_binds(pair: Pair) -> None:
    def bind(arguments: Json) -> str:
        body = {
            "metadata": {"name": arguments["PodName"], "uid": arguments["PodUID"]},
            "target": {"kind": "Node", "name": arguments["Node"]},
        }
        pair.plane.request("POST", f"{PODS}/{arguments['PodName']}/binding", body)
        return ""

    pair.server.binds = bind
    for scheduler in (THEIRS, OURS):
        before = len(pair.server.asked)
        pair.plane.request("POST", PODS, scheduled_by(pod("bound"), scheduler))
        node = pair.until(lambda: pair._node("bound"), "it is bound")
        [(path, arguments)] = pair.server.asked[before:]
        uid = pair.plane.request("GET", f"{PODS}/bound")["metadata"]["uid"]
        assert path == f"/{scheduler}/bind"
        assert arguments == {
            "PodName": "bound",
            "PodNamespace": "default",
            "PodUID": uid,
            "Node": node,
        }
        pair.plane.request("DELETE", f"{PODS}/bound", AT_ONCE)
    pair.server.binds = lambda arguments: "not today"
    pair.plane.request("POST", PODS, scheduled_by(pod("waits"), OURS))
    pair.until(lambda: "not today" in pair._outcome("waits"), "the pod says why")
    pair.server.binds = bind
    pair.until(lambda: pair._node("waits"), "it is tried again by itself")


@pytest.mark.parametrize("pair", [{"nodeCacheCapable": True, "httpTimeout": "1s"}], indirect=True)
def test_an_extender_that_is_down_costs_its_pods_and_no_other(pair: Pair) -> None:
    pair.server.code = 500
    pair.plane.request("POST", PODS, scheduled_by(pod("waits"), OURS))
    pair.until(lambda: "answers filter with code 500" in pair._outcome("waits"), "the pod says why")
    assert f"extender {pair.server.url}/{OURS}" in pair._outcome("waits")
    pair.server.code = 200
    pair.until(lambda: pair._outcome("waits").startswith("n"), "it is tried again by itself")

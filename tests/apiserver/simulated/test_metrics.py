"""What `kubectl top` is told: what running containers request, of pods and nodes that answer."""

from __future__ import annotations

import msgspec

from gangsched.lab.apiserver.http.handlers import Handlers
from gangsched.lab.apiserver.http.requests import Request
from gangsched.lab.apiserver.http.responses import Answer
from gangsched.lab.apiserver.kinds import serve_metrics
from gangsched.lab.apiserver.strategy import Object
from tests.apiserver.simulated.scenario import World, pod

NODES, PODS = "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods"


def metered(nodes: int) -> World:
    world = World(nodes)
    serve_metrics(world.registry)
    return world


def read(world: World, path: str) -> Object:
    answer = Handlers(world.registry).handle(Request("GET", path))
    assert isinstance(answer, Answer)
    found: Object = msgspec.json.decode(answer.body)
    return found


def usages(world: World) -> tuple[dict[str, str], dict[str, str]]:
    """The CPUs that pods and nodes use, by name."""
    pods = {
        each["metadata"]["name"]: "+".join(one["usage"]["cpu"] for one in each["containers"])
        for each in read(world, PODS)["items"]
    }
    nodes = {each["metadata"]["name"]: each["usage"]["cpu"] for each in read(world, NODES)["items"]}
    return pods, nodes


def test_a_container_uses_what_it_requests_while_it_runs() -> None:
    world = (
        metered(nodes=2).submit(pod("a", cpu="1500m"), on="node-0").submit(pod("b", run_s=20), on="node-0")
    )
    world.submit(pod("waits"))
    assert usages(world) == ({}, {"node-0": "0m", "node-1": "0m"})
    world.run(5)
    assert usages(world) == ({"a": "1500m", "b": "1000m"}, {"node-0": "2500m", "node-1": "0m"})
    world.run(30)
    assert world.phase("b") == "Succeeded"
    assert usages(world) == ({"a": "1500m"}, {"node-0": "1500m", "node-1": "0m"})


def test_a_node_that_is_not_ready_says_nothing_nor_do_its_pods() -> None:
    world = metered(nodes=2).submit(pod("a"), on="node-0").submit(pod("b"), on="node-1").run(5)
    world.annotate("node-0", killed="true").run(60)
    assert world.phase("a") == "Running"
    assert usages(world) == ({"b": "1000m"}, {"node-1": "1000m"})


def test_one_pod_is_shown_as_a_metrics_server_shows_it() -> None:
    world = metered(nodes=1).submit(pod("a"), on="node-0").run(5)
    one = read(world, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/a")
    now = "2026-01-01T00:00:05Z"
    assert one == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "a", "namespace": "default", "creationTimestamp": now},
        "timestamp": now,
        "window": "15s",
        "containers": [{"name": "main", "usage": {"cpu": "1000m", "memory": "1048576Ki"}}],
    }


def test_a_status_that_names_nothing_is_of_no_container() -> None:
    world = metered(nodes=1).submit(pod("a"), on="node-0").run(5)

    def nameless(obj: Object) -> None:
        obj["status"]["containerStatuses"] = [{"state": {"running": {}}}]

    assert usages(world.change("pods", "a", nameless)) == ({}, {"node-0": "0m"})

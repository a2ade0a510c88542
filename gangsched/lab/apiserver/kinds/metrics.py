"""The data of `kubectl top`: the usage of pods and nodes, as a metrics-server serves it.

Lives here: metrics.k8s.io, computed on request. Nothing runs in a simulated pod, so nothing can be measured:
each running container counts as using exactly what it requests, and a node as using the sum of its
containers. Like a real metrics-server it has no figures for pods that do not run, nodes that are not ready,
and pods on those nodes. Source of the shape: k8s.io/metrics pkg/apis/metrics/v1beta1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gangsched.lab.apiserver.strategy import Context, Object, Strategy
from gangsched.model.text.quantity import to_int, to_milli

# metrics-server's default resolution.
_WINDOW = "15s"

Usage = tuple[int, int]
"""Thousandths of a CPU, bytes of memory."""


class PodMetricsStrategy(Strategy):
    def computed(self, context: Context) -> Iterator[Object]:
        for pod, containers in _running(context, context.namespace):
            shown = [{"name": name, "usage": _written(usage)} for name, usage in containers.items()]
            yield _metrics(pod, context) | {"containers": shown}


class NodeMetricsStrategy(Strategy):
    def computed(self, context: Context) -> Iterator[Object]:
        used: defaultdict[str, list[Usage]] = defaultdict(list)
        for pod, containers in _running(context, ""):
            used[pod["spec"]["nodeName"]] += containers.values()
        for node in _ready_nodes(context):
            of_containers = used[node["metadata"]["name"]]
            usage = (sum(cpu for cpu, _ in of_containers), sum(memory for _, memory in of_containers))
            yield _metrics(node, context) | {"usage": _written(usage)}


def _metrics(obj: Object, context: Context) -> Object:
    meta = obj["metadata"]
    own = {key: meta[key] for key in ("name", "namespace", "labels") if key in meta}
    now = context.timestamp()
    return {"metadata": own | {"creationTimestamp": now}, "timestamp": now, "window": _WINDOW}


def _written(usage: Usage) -> Object:
    return {"cpu": f"{usage[0]}m", "memory": f"{-(-usage[1] // 1024)}Ki"}


def _ready_nodes(context: Context) -> Iterator[Object]:
    for item in context.cluster.list(context.cluster.resource("nodes")):
        node = item.decode()
        conditions = (node.get("status") or {}).get("conditions") or ()
        if any((each.get("type"), each.get("status")) == ("Ready", "True") for each in conditions):
            yield node


def _running(context: Context, namespace: str) -> Iterator[tuple[Object, dict[str, Usage]]]:
    """Yields pods with running containers on ready nodes, with the usage of each of these containers."""
    ready = {node["metadata"]["name"] for node in _ready_nodes(context)}
    for item in context.cluster.list(context.cluster.resource("pods"), namespace):
        pod = item.decode()
        if pod["spec"].get("nodeName") not in ready:
            continue
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        running = {each.get("name") for each in statuses if "running" in each.get("state", ())}
        containers = {
            each["name"]: _requested(each) for each in pod["spec"]["containers"] if each["name"] in running
        }
        if containers:
            yield pod, containers


def _requested(container: Object) -> Usage:
    requests = (container.get("resources") or {}).get("requests") or {}
    return to_milli(requests.get("cpu", "0")), to_int(requests.get("memory", "0"))

"""Objects as large as an API server takes (1.4 MB), each with a list of one kind that is as long as it gets.

Whoever may create pods in one namespace may write them. `HEAVY` has one for each field whose length costs
work: `HEAVY["node affinity Gt and NotIn"]("h0", n_bytes)` is a pod's body. `BOUND` are those whose terms
concern other pods once they are on a node. Nothing here knows what the scheduler makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count

from tests.hostile.garbage import Json

MOST_BYTES = 1_400_000
Make = Callable[[str, int], Json]


def heavy_pod(name: str, *, namespace: str = "default", scheduler: str = "gangsched") -> Json:
    """A plain pod, for one of the functions here to fill."""
    resources = {"requests": {"cpu": "1m"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": {"app": "heavy"},
            "annotations": {},
        },
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "busybox", "resources": resources}],
        },
    }


def _filled(items: Iterator[Json | str], n_bytes: int, most: int = 10**9) -> list[Json | str]:
    """As many of them as fit."""
    found: list[Json | str] = []
    for item in items:
        n_bytes -= len(json.dumps(item, separators=(",", ":"))) + 1
        if n_bytes < 0 or len(found) >= most:
            break
        found.append(item)
    return found


def _mapped(pairs: Iterator[tuple[str, str]], n_bytes: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in pairs:
        n_bytes -= len(key) + len(value) + 6
        if n_bytes < 0:
            break
        found[key] = value
    return found


def _node_terms(terms: Callable[[], Iterator[Json]]) -> Make:
    def make(name: str, n_bytes: int) -> Json:
        body = heavy_pod(name)
        required = {"nodeSelectorTerms": _filled(terms(), n_bytes)}
        body["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
        return body

    return make


def _gt_and_not_in() -> Iterator[Json]:
    for i in count():
        yield {
            "matchExpressions": [
                {"key": "number", "operator": "Gt", "values": [str(10**9 + i)]},
                {"key": "number", "operator": "NotIn", "values": [f"n{i}"]},
            ]
        }


def _names() -> Iterator[Json]:
    for i in count():
        yield {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"no{i}"]}]}


def _one_term_of_many(name: str, n_bytes: int) -> Json:
    wishes = ({"key": "number", "operator": "NotIn", "values": [f"n{i}"]} for i in count())
    body = heavy_pod(name)
    required = {"nodeSelectorTerms": [{"matchExpressions": _filled(wishes, n_bytes)}]}
    body["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return body


def _many_values(name: str, n_bytes: int) -> Json:
    values = _filled((f"n{i}" for i in count()), n_bytes)
    wish = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": values}
    body = heavy_pod(name)
    required = {"nodeSelectorTerms": [{"matchExpressions": [wish]}]}
    body["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return body


def _preferred_nodes(name: str, n_bytes: int) -> Json:
    terms = ({"weight": 1, "preference": term} for term in _gt_and_not_in())
    body = heavy_pod(name)
    body["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _filled(terms, n_bytes)}
    }
    return body


def pod_terms(kind: str, term: Callable[[int], Json], most: int = 10**9) -> Make:
    """Required terms about other pods, as many as fit."""

    def make(name: str, n_bytes: int) -> Json:
        body = heavy_pod(name)
        terms = _filled((term(i) for i in count()), n_bytes, most)
        body["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return body

    return make


def _preferred_pods(name: str, n_bytes: int) -> Json:
    terms = ({"weight": 1 + i % 100, "podAffinityTerm": _not_in(i)} for i in count())
    body = heavy_pod(name)
    body["spec"]["affinity"] = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _filled(terms, n_bytes)}
    }
    return body


def _not_in(i: int) -> Json:
    wish = {"key": "app", "operator": "NotIn", "values": [f"v{i}"]}
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [wish]}}


def _of_a_team(i: int) -> Json:
    """About pods in the namespaces of others."""
    return {**_not_in(i), "namespaceSelector": {}}


def _own_key(i: int) -> Json:
    wish = {"key": f"k{i}", "operator": "DoesNotExist"}
    return {"topologyKey": f"t{i}", "labelSelector": {"matchExpressions": [wish]}}


def _by_namespace_selector(i: int) -> Json:
    wish = {"key": "team", "operator": "NotIn", "values": [f"v{i}"]}
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {},
        "namespaceSelector": {"matchExpressions": [wish]},
    }


def _in_ids(i: int) -> Json:
    wish = {"key": "id", "operator": "NotIn", "values": [f"p{i}"]}
    return {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchExpressions": [wish]}}


def _one_pod_term(name: str, n_bytes: int) -> Json:
    wishes = ({"key": "id", "operator": "NotIn", "values": [f"v{i}"]} for i in count())
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": _filled(wishes, n_bytes)},
    }
    return pod_terms("podAntiAffinity", lambda _: term, 1)(name, 10**9)


def _many_pod_values(name: str, n_bytes: int) -> Json:
    wish = {"key": "id", "operator": "NotIn", "values": _filled((f"v{i}" for i in count()), n_bytes)}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [wish]}}
    return pod_terms("podAntiAffinity", lambda _: term, 1)(name, 10**9)


def _many_namespaces(name: str, n_bytes: int) -> Json:
    names = _filled((f"n{i}" for i in count()), n_bytes)
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaces": names}
    return pod_terms("podAntiAffinity", lambda _: term, 1)(name, 10**9)


def _label_keys(name: str, n_bytes: int) -> Json:
    keys = _filled((f"k{i}" for i in count()), n_bytes)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "heavy"}},
        "matchLabelKeys": keys,
    }
    return pod_terms("podAntiAffinity", lambda _: term, 1)(name, 10**9)


def _spread(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["spec"]["topologySpreadConstraints"] = _filled(
        (
            {
                "maxSkew": 1 + i,
                "topologyKey": "kubernetes.io/hostname" if i % 2 else f"t{i}",
                "whenUnsatisfiable": "DoNotSchedule" if i % 3 else "ScheduleAnyway",
                "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            }
            for i in count()
        ),
        n_bytes,
    )
    return body


def _tolerations(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["spec"]["tolerations"] = _filled(({"key": f"t{i}", "operator": "Exists"} for i in count()), n_bytes)
    return body


def _node_labels(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["spec"]["nodeSelector"] = _mapped(((f"k{i}", "v") for i in count()), n_bytes)
    return body


def _labels(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["metadata"]["labels"] |= _mapped(((f"k{i}", "v") for i in count()), n_bytes)
    return body


def _containers(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["spec"]["containers"] = _filled(
        ({"name": f"c{i}", "image": "b", "resources": {"requests": {"cpu": "1m"}}} for i in count()),
        n_bytes,
    )
    return body


def _resource_names(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    amounts = _mapped(((f"e.io/r{i}", "1") for i in count()), n_bytes // 2)
    body["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return body


def _ports(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["spec"]["containers"][0]["ports"] = _filled(
        ({"containerPort": 1, "hostPort": 1 + i % 65535, "hostIP": f"::{i:x}"} for i in count()), n_bytes
    )
    return body


def _claims(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["spec"]["volumes"] = _filled(
        ({"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in count()), n_bytes
    )
    return body


def _disks(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["spec"]["volumes"] = _filled(
        ({"name": f"v{i}", "awsElasticBlockStore": {"volumeID": f"d{i}"}} for i in count()), n_bytes
    )
    return body


def _monitors(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    monitors = _filled((f"m{i}" for i in count()), n_bytes)
    body["spec"]["volumes"] = [{"name": "v", "rbd": {"image": "own", "monitors": monitors}}]
    return body


def _gates(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["spec"]["schedulingGates"] = _filled(({"name": f"e.io/g{i}"} for i in count()), n_bytes)
    return body


def _owners(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    owner = {"apiVersion": "batch/v1", "kind": "Job"}
    body["metadata"]["ownerReferences"] = _filled(
        ({**owner, "name": f"o{i}", "uid": f"u{i}"} for i in count()), n_bytes
    )
    return body


def _conditions(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    body["status"] = {"conditions": _filled(({"type": f"c{i}", "status": "True"} for i in count()), n_bytes)}
    return body


def _group_list(name: str, n_bytes: int) -> Json:
    body = heavy_pod(name)
    groups = _filled((f"default/g{i}" for i in count()), min(n_bytes, 250_000))
    body["metadata"]["labels"]["gangsched.io/pod-group"] = name
    body["metadata"]["annotations"] = {
        "gangsched.io/min-members": "1",
        "gangsched.io/groups": json.dumps(groups),
    }
    return body


HEAVY: Mapping[str, Make] = {
    "node affinity Gt and NotIn": _node_terms(_gt_and_not_in),
    "node affinity matchFields": _node_terms(_names),
    "node affinity of one long term": _one_term_of_many,
    "node affinity of many values": _many_values,
    "node affinity preferred": _preferred_nodes,
    "pod anti-affinity": pod_terms("podAntiAffinity", _not_in),
    "pod anti-affinity by ids": pod_terms("podAntiAffinity", _in_ids),
    "pod anti-affinity of own keys": pod_terms("podAntiAffinity", _own_key),
    "pod anti-affinity by namespaces": pod_terms("podAntiAffinity", _by_namespace_selector),
    "pod anti-affinity of one long term": _one_pod_term,
    "pod anti-affinity of many values": _many_pod_values,
    "pod anti-affinity of many namespaces": _many_namespaces,
    "pod anti-affinity of matchLabelKeys": _label_keys,
    "pod anti-affinity preferred": _preferred_pods,
    "pod affinity": pod_terms("podAffinity", _not_in),
    "spread": _spread,
    "tolerations": _tolerations,
    "node selector": _node_labels,
    "labels": _labels,
    "containers": _containers,
    "resource names": _resource_names,
    "host ports": _ports,
    "claims": _claims,
    "disks": _disks,
    "RBD monitors": _monitors,
    "scheduling gates": _gates,
    "owner references": _owners,
    "conditions": _conditions,
    "groups that start together": _group_list,
}
"""By what is long in it. The largest number of terms that still passes is in tests/core/test_turn_cost.py."""

BOUND: Mapping[str, Make] = {
    "anti-affinity against all namespaces": pod_terms("podAntiAffinity", _of_a_team, 2_000),
    "host ports": _ports,
    "disks": _disks,
    "RBD monitors": _monitors,
    "preferred anti-affinity": _preferred_pods,
}

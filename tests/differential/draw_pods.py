"""Random clusters whose pods say things of each other: affinity both ways, spread constraints, owners.

As in draw: each from a seed, and nothing here decides anything. What selects or owns pods is the same for
all seeds and there before kube-scheduler starts (background): its log does not tell when it hears of them.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.differential.draw import Given, Json

ZONE, HOST, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack"
NAMES = ("plain", "hard", "ignoring", "listed", "listed-hard", "unspread", "older")
SPACES = {"default": {}, "blue": {"team": "x"}, "green": {"team": "y", "env": "prod"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_IMAGE = {"containers": [{"name": "main", "image": "x"}]}


def background() -> list[tuple[str, Json]]:
    """(path to create it at, object)."""
    made: list[tuple[str, Json]] = [
        ("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        for name, labels in SPACES.items()
        if name != "default"
    ]

    def add(path: str, name: str, spec: Json, namespace: str = "default") -> None:
        root, _, resource = path.rpartition("/")
        made.append((f"{root}/namespaces/{namespace}/{resource}", {"metadata": {"name": name}, "spec": spec}))

    def service(name: str, selector: Json | None, namespace: str = "default") -> None:
        ports = [{"port": 80}]
        add(
            "/api/v1/services",
            name,
            {"ports": ports} | ({"selector": selector} if selector else {}),
            namespace,
        )

    service("web", {"app": "web"})
    service("web-front", {"app": "web", "tier": "front"})
    service("nobody", None)
    service("front", {"tier": "front"}, "blue")

    def template(labels: Json) -> Json:
        return {"metadata": {"labels": labels}, "spec": _IMAGE}

    add(
        "/api/v1/replicationcontrollers",
        "rc",
        {"replicas": 0, "selector": {"app": "db"}, "template": template({"app": "db"})},
    )
    add(
        "/apis/apps/v1/replicasets",
        "rs",
        {
            "replicas": 0,
            "selector": {
                "matchLabels": {"app": "cache"},
                "matchExpressions": [_requirement("tier", "Exists")],
            },
            "template": template({"app": "cache", "tier": "back"}),
        },
    )
    add(
        "/apis/apps/v1/statefulsets",
        "sts",
        {
            "replicas": 0,
            "serviceName": "nobody",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template({"app": "db"}),
        },
    )
    return made


OWNERS = (
    ("v1", "ReplicationController", "rc"),
    ("apps/v1", "ReplicaSet", "rs"),
    ("apps/v1", "StatefulSet", "sts"),
)


def _requirement(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def draw_pods(seed: int, n_pods: int) -> Given:
    """The cluster and the pods of one seed."""
    return _Draw(seed).given(n_pods)


class _Draw:
    def __init__(self, seed: int) -> None:
        self._rng = Random(f"pods {seed}")
        self._seed = seed

    def given(self, n_pods: int) -> Given:
        nodes = [self._node(f"w{self._seed}-n{i}") for i in range(self._rng.choice((3, 5, 8, 12, 16)))]
        settled = []
        for node in nodes:
            name = node["metadata"]["name"]
            for i in range(self._rng.choice((0, 0, 1, 1, 2, 3))):
                pod = self._pod(f"{name}-old-{i}", wishes=(0, 0, 1))
                pod["spec"] |= {"nodeName": name, "schedulerName": "somebody-else"}
                settled.append(pod)
        names = [pod["metadata"]["name"] for pod in settled]
        leaving = tuple(name for name in names if self._maybe(0.1))
        statuses = {name: {"phase": "Succeeded"} for name in names if self._maybe(0.05)}
        pods = [self._pod(f"w{self._seed}-p{i}", wishes=(0, 1, 1, 2)) for i in range(n_pods)]
        return Given(nodes, settled, pods, statuses, leaving)

    def _maybe(self, chance: float) -> bool:
        return self._rng.random() < chance

    def _node(self, name: str) -> Json:
        rng = self._rng
        labels: Json = {}
        for key, value, chance in (
            (HOST, name, 0.95),
            (ZONE, rng.choice("abc"), 0.85),
            (RACK, rng.choice("1234"), 0.8),
            ("disk", rng.choice(("ssd", "hdd")), 0.7),
        ):
            if self._maybe(chance):
                labels[key] = value
        taints = [
            {"key": "dedicated", "value": "batch", "effect": effect}
            for effect, chance in (("NoSchedule", 0.15), ("PreferNoSchedule", 0.1))
            if self._maybe(chance)
        ]
        has = {"cpu": rng.choice(("4", "8")), "memory": "16Gi", "pods": rng.choice(("4", "110"))}
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints},
            "status": {"allocatable": has, "capacity": has},
        }

    def _pod(self, name: str, *, wishes: tuple[int, ...]) -> Json:
        rng = self._rng
        labels = {}
        for key, values, chance in (("app", ("web", "db", "cache"), 0.85), ("tier", ("front", "back"), 0.7)):
            if self._maybe(chance):
                labels[key] = rng.choice(values)
        if self._maybe(0.4):
            labels["version"] = rng.choice("12")
        cpu = rng.choice(("100m", "500m", "1"))
        spec: Json = {
            "schedulerName": rng.choice(NAMES),
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
        }
        metadata: Json = {"name": name, "namespace": rng.choice(("default", *SPACES)), "labels": labels}
        if self._maybe(0.25):
            version, kind, owner = rng.choice(OWNERS)
            metadata["ownerReferences"] = [
                {"apiVersion": version, "kind": kind, "name": owner, "uid": "u", "controller": True}
            ]
        traits = (
            *(self._near, self._near, self._away, self._away, self._rather, self._rather, self._rather_not),
            *(self._spread, self._spread, self._spread),
        )
        for trait in rng.sample(traits, rng.choice(wishes)):
            trait(spec)
        if self._maybe(0.2):
            spec["nodeSelector"] = rng.choice(({"disk": "ssd"}, {ZONE: "a"}))
        if self._maybe(0.3):
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}]
        return {"metadata": metadata, "spec": spec}

    # -- wishes ------------------------------------------------------------------------------------------

    def _selector(self) -> Json:
        rng = self._rng
        kind = rng.random()
        if kind < 0.55:
            return {"matchLabels": {"app": rng.choice(("web", "db", "cache"))}}
        if kind < 0.7:
            return {"matchLabels": {"tier": rng.choice(("front", "back")), "app": rng.choice(("web", "db"))}}
        if kind < 0.77:
            return {}
        return {
            "matchExpressions": [
                rng.choice(
                    (
                        _requirement("app", "In", "web", "cache"),
                        _requirement("app", "NotIn", "db"),
                        _requirement("tier", "Exists"),
                        _requirement("version", "DoesNotExist"),
                        _requirement("version", "NotIn", "1"),
                    )
                )
            ]
        }

    def _term(self) -> Json:
        rng = self._rng
        term: Json = {"topologyKey": rng.choice((ZONE, HOST, RACK))}
        if self._maybe(0.95):
            term["labelSelector"] = self._selector()
        if self._maybe(0.2):
            term["namespaces"] = rng.sample(sorted(SPACES), rng.randint(1, 2))
        if self._maybe(0.25):
            term["namespaceSelector"] = rng.choice(
                (
                    {},
                    {"matchLabels": {"team": "x"}},
                    {"matchExpressions": [_requirement("env", "DoesNotExist")]},
                )
            )
        named = {one["key"] for one in term.get("labelSelector", {}).get("matchExpressions", ())}
        named |= set(term.get("labelSelector", {}).get("matchLabels", ()))
        if "labelSelector" in term and "version" not in named and self._maybe(0.2):
            term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
        return term

    def _rules(self, spec: Json, kind: str) -> Json:
        rules: Json = spec.setdefault("affinity", {}).setdefault(kind, {})
        return rules

    def _near(self, spec: Json) -> None:
        terms = [self._term() for _ in range(self._rng.choice((1, 1, 1, 2)))]
        self._rules(spec, "podAffinity")[REQUIRED] = terms

    def _away(self, spec: Json) -> None:
        terms = [self._term() for _ in range(self._rng.choice((1, 1, 2)))]
        self._rules(spec, "podAntiAffinity")[REQUIRED] = terms

    def _weighted(self) -> list[Json]:
        return [
            {"weight": self._rng.choice((1, 7, 50, 100)), "podAffinityTerm": self._term()}
            for _ in range(self._rng.choice((1, 2, 3)))
        ]

    def _rather(self, spec: Json) -> None:
        self._rules(spec, "podAffinity")[PREFERRED] = self._weighted()

    def _rather_not(self, spec: Json) -> None:
        self._rules(spec, "podAntiAffinity")[PREFERRED] = self._weighted()

    def _spread(self, spec: Json) -> None:
        rng = self._rng
        listed: list[Any] = spec.setdefault("topologySpreadConstraints", [])
        for _ in range(rng.choice((1, 1, 2))):
            one: Json = {
                "maxSkew": rng.choice((1, 1, 2, 3)),
                "topologyKey": rng.choice((ZONE, HOST, RACK)),
                "whenUnsatisfiable": rng.choice(("DoNotSchedule", "ScheduleAnyway")),
            }
            pair = (one["topologyKey"], one["whenUnsatisfiable"])
            if any((other["topologyKey"], other["whenUnsatisfiable"]) == pair for other in listed):
                continue
            if self._maybe(0.95):
                one["labelSelector"] = self._selector()
                if self._maybe(0.25) and "version" not in str(one["labelSelector"]):
                    one["matchLabelKeys"] = ["version"]
            if one["whenUnsatisfiable"] == "DoNotSchedule" and self._maybe(0.3):
                one["minDomains"] = rng.choice((2, 3, 5))
            for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
                if self._maybe(0.4):
                    one[policy] = rng.choice(("Honor", "Ignore"))
            listed.append(one)

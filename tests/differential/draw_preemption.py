"""Random full clusters, each with one pod that fits only where others go. Nothing here decides anything.

A case has nodes of its own, found by a label, so that many are decided in one cluster without knowing of one
another. What is random for kube-scheduler is avoided: no two pods of a case start at the same second.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from tests.differential.draw import Json
from tests.differential.profiles import GPU

CASE = "case"
PROFILE = "taking"
ZONE = "topology.kubernetes.io/zone"
CLASSES: Mapping[str, tuple[int, str]] = {
    "below": (-5, "PreemptLowerPriority"),
    "zero": (0, "PreemptLowerPriority"),
    "one": (1, "PreemptLowerPriority"),
    "two": (2, "PreemptLowerPriority"),
    "middle": (500, "PreemptLowerPriority"),
    "high": (1000, "PreemptLowerPriority"),
    "patient": (1000, "Never"),
}
"""Priority classes: value and preemptionPolicy."""


class Full(NamedTuple):
    """One case. started: names of settled pods -> when; budgets: PodDisruptionBudgets with their status."""

    nodes: list[Json]
    settled: list[Json]
    started: Mapping[str, str]
    leaving: list[str]
    budgets: list[Json]
    pod: Json


def draw_full(seed: int) -> Full:
    """The case of one seed."""
    return _Draw(seed).full()


def profile() -> Json:
    """All candidates are weighed: what is chosen is not left to where kube-scheduler begins to look."""
    args = {"minCandidateNodesPercentage": 100, "minCandidateNodesAbsolute": 100}
    return {
        "schedulerName": PROFILE,
        "pluginConfig": [{"name": "DefaultPreemption", "args": args}],
    }


class _Draw:
    def __init__(self, seed: int) -> None:
        self._rng = Random(f"full-{seed}")
        self._name = f"f{seed}"
        self._seed = seed
        self._seconds = self._rng.sample(range(3600), 400)
        n_nodes = self._rng.choice((1, 2, 2, 3, 3, 4, 7))
        self._has_gpus = self._rng.random() < 0.4
        self._zones = self._rng.choice(("a", "ab", "abc"))
        self._nodes = [self._node(f"{self._name}-n{i}") for i in range(n_nodes)]
        self._started: dict[str, str] = {}
        self._sorts = self._rng.choice(((0.0, 0.0), (0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.2, 0.2)))

    def full(self) -> Full:
        rng = self._rng
        settled: list[Json] = []
        for node in self._nodes:
            settled += self._fill(node)
        leaving = [pod["metadata"]["name"] for pod in settled if rng.random() < 0.1 * (self._seed % 8 == 0)]
        guarded = rng.sample(("db", "web", "batch"), rng.choice((0, 0, 0, 1, 1, 2)))
        budgets = [self._budget(app, settled) for app in guarded]
        return Full(self._nodes, settled, self._started, leaving, budgets, self._asking())

    def _node(self, name: str) -> Json:
        has = {"cpu": self._rng.choice(("4", "4", "8")), "memory": "8Gi", "pods": "20"}
        if self._has_gpus:
            has[GPU] = self._rng.choice(("4", "8"))
        labels = {"kubernetes.io/hostname": name, CASE: self._name, ZONE: self._rng.choice(self._zones)}
        return {
            "metadata": {"name": name, "labels": labels},
            "status": {
                "allocatable": has,
                "capacity": has,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def _fill(self, node: Json) -> list[Json]:
        """Pods until nothing that asks for a whole core fits beside them."""
        rng = self._rng
        name = node["metadata"]["name"]
        left_milli, left_gpus = (
            int(node["status"]["allocatable"]["cpu"]) * 1000,
            int(node["status"]["allocatable"].get(GPU, 0)),
        )
        made: list[Json] = []
        while left_milli >= 1000 and len(made) < 16:
            milli = min(rng.choice((250, 500, 1000, 1000, 1500, 2000)), left_milli)
            gpus = min(rng.choice((0, 0, 1, 2)), left_gpus)
            pod = self._settled(f"{name}-p{len(made)}", name, milli, gpus)
            left_milli -= milli
            left_gpus -= gpus
            made.append(pod)
        return made

    def _settled(self, name: str, node: str, milli: int, gpus: int) -> Json:
        rng = self._rng
        pod = self._pod(
            name, milli, gpus, rng.choice(("below", "zero", "zero", "one", "two", "middle", "high"))
        )
        pod["metadata"]["labels"]["app"] = rng.choice(("db", "web", "batch"))
        pod["spec"] |= {"nodeName": node, "schedulerName": "somebody-else"}
        by_port, by_affinity = self._sorts
        if rng.random() < by_port:
            pod["spec"]["containers"][0]["ports"] = [
                {"containerPort": 80, "hostPort": 8080 + rng.randrange(3)}
            ]
        if rng.random() < by_affinity / 4:
            pod["spec"]["affinity"] = self._apart({"app": "new"})
        if rng.random() < 0.95:
            second = self._seconds.pop()
            self._started[name] = f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
        return pod

    def _asking(self) -> Json:
        rng = self._rng
        gpus = rng.choice((0, 1, 2, 4)) if self._has_gpus else 0
        klass = rng.choice(("high", "high", "high", "high", "middle", "patient"))
        pod = self._pod(f"{self._name}-new", rng.choice((1000, 1500, 2000, 3000, 4000)), gpus, klass)
        pod["metadata"]["labels"]["app"] = "new"
        pod["spec"] |= {"schedulerName": PROFILE, "nodeSelector": {CASE: self._name}}
        by_port, by_affinity = self._sorts
        if by_port:
            pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        if by_affinity and rng.random() < 0.6:
            pod["spec"]["affinity"] = self._apart({"app": rng.choice(("db", "web"))})
        elif by_affinity:
            mine = {CASE: self._name, "app": rng.choice(("db", "web"))}
            pod["spec"]["topologySpreadConstraints"] = [
                {
                    "maxSkew": rng.choice((1, 2)),
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": mine},
                }
            ]
        return pod

    def _apart(self, labels: Json) -> Json:
        key = self._rng.choice(("kubernetes.io/hostname", "kubernetes.io/hostname", ZONE))
        term = {"topologyKey": key, "labelSelector": {"matchLabels": {CASE: self._name, **labels}}}
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def _pod(self, name: str, milli: int, gpus: int, klass: str) -> Json:
        resources: Json = {"requests": {"cpu": f"{milli}m", "memory": "64Mi"}}
        if gpus:
            resources["requests"][GPU] = str(gpus)
            resources["limits"] = {GPU: str(gpus)}
        return {
            "metadata": {"name": name, "labels": {CASE: self._name}},
            "spec": {
                "priorityClassName": klass,
                "containers": [{"name": "main", "image": "x", "resources": resources}],
            },
        }

    def _budget(self, app: str, settled: list[Json]) -> Json:
        rng = self._rng
        selector = {CASE: self._name, "app": app}
        status: Json = {
            "disruptionsAllowed": rng.choice((0, 0, 1, 2)),
            "currentHealthy": 2,
            "desiredHealthy": 1,
            "expectedPods": 2,
            "observedGeneration": 1,
        }
        if rng.random() < 0.3:
            told = rng.choice(settled)["metadata"]["name"]
            status["disruptedPods"] = {told: "2026-01-01T00:00:00Z"}
        return {
            "metadata": {"name": f"{self._name}-{app}"},
            "spec": {"selector": {"matchLabels": selector}, "maxUnavailable": 1},
            "status": status,
        }

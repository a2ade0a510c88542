"""Random clusters with devices, claims of many states, and pods that use them.

As in draw: each from a seed, and nothing here decides anything. Devices, classes and claims are those by
which our allocator is compared with Kubernetes' own (tests.resource_claims.cases); here pods come for them
one after the other, for claims of their own, claims that others use, and claims that are not ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.differential.draw import Devices, Given, Json
from tests.resource_claims.cases import ADMIN_NAMESPACE, Cluster

PROFILE = "plain"
SPACES = ("default", ADMIN_NAMESPACE)
_MOST_USERS = 256
# Drivers would have to say that these are met, which kube-scheduler looks at every 5 s.
_CONDITIONS = ("bindingConditions", "bindingFailureConditions")


def background() -> list[tuple[str, Json]]:
    """(path to create it at, object)."""
    labels = {"resource.kubernetes.io/admin-access": "true"}
    return [("/api/v1/namespaces", {"metadata": {"name": ADMIN_NAMESPACE, "labels": labels}})]


def draw_claims(seed: int) -> Given:
    """The cluster and the pods of one seed."""
    return _Draw(seed).given()


class _Draw:
    def __init__(self, seed: int) -> None:
        self._rng = Random(f"claims {seed}")
        self._seed = seed
        self._cluster = Cluster(self._rng)
        self._claims: list[Json] = []
        self._leaving: list[str] = []
        self._full: set[str] = set()
        self._own: dict[str, dict[str, Json]] = {}
        self._kept_out: list[str] = []

    def given(self) -> Given:
        case = self._cluster.case()
        for one in case["slices"]:
            for device in one["spec"].get("devices", ()):
                for name in _CONDITIONS:
                    device.pop(name, None)
        self._classes = [one["metadata"]["name"] for one in case["classes"]]
        for claim in case["allocated"]:
            self._claims.append(self._held(claim))
        first: Sequence[Json] = case["claims"]
        pods = [self._pod(i, () if i else first) for i in range(self._rng.choice((2, 3, 3, 4)))]
        devices = Devices(
            case["classes"],
            case["rules"],
            case["slices"],
            self._claims,
            frozenset(self._leaving),
            self._own,
            frozenset(self._kept_out),
        )
        return Given([self._node(one) for one in case["nodes"]], [], pods, devices=devices)

    def _maybe(self, chance: float) -> bool:
        return self._rng.random() < chance

    def _node(self, node: Json) -> Json:
        has = {"cpu": self._rng.choice(("1", "8", "8", "8")), "memory": "16Gi", "pods": "110"}
        return {
            "metadata": node["metadata"],
            "spec": {"unschedulable": self._maybe(0.04)},
            "status": {"allocatable": has, "capacity": has},
        }

    # -- claims ----------------------------------------------------------------------------------------

    def _named(self, claim: Json, name: str, namespace: str) -> Json:
        return claim | {"metadata": {"name": f"d{self._seed}-{name}", "namespace": namespace}}

    def _held(self, claim: Json) -> Json:
        """What is allocated: to some place, and for some pods."""
        rng = self._rng
        meta = claim["metadata"]
        status = claim["status"]
        # Without it kube-scheduler could not reserve the claim: it sets it, which the API server refuses.
        allocation = status["allocation"] | {"allocationTimestamp": "2026-01-01T00:00:00Z"}
        status = status | {"allocation": allocation}
        if self._maybe(0.5):
            allocation["nodeSelector"] = self._cluster.node_selector()
        n_users = rng.choice((0, 0, 1, 1, 2, _MOST_USERS)) if self._maybe(0.5) else 0
        if n_users == _MOST_USERS:
            self._full.add(f"d{self._seed}-{meta['name']}")
        if n_users:
            users = [{"resource": "pods", "name": f"user-{i}", "uid": f"user-{i}"} for i in range(n_users)]
            status["reservedFor"] = users
        return self._named(claim, meta["name"], meta["namespace"]) | {"status": status}

    def _there(self, namespace: str) -> list[str]:
        """Claims that a pod of the namespace can name."""
        metas = [one["metadata"] for one in self._claims]
        names = [meta["name"] for meta in metas if meta["namespace"] == namespace]
        return [name for name in names if name not in self._leaving]

    # -- pods ------------------------------------------------------------------------------------------

    def _pod(self, i: int, given: Sequence[Json]) -> Json:
        rng = self._rng
        pod_name = f"d{self._seed}-p{i}"
        n_new = rng.choice((0, 1, 1, 1, 2))
        n_new = n_new if self._there("default") else max(n_new, 1)
        drawn = list(given) or [self._cluster.claim(f"c{i}-{j}", self._classes) for j in range(n_new)]
        is_admin = any(one["metadata"]["namespace"] == ADMIN_NAMESPACE for one in drawn)
        space = ADMIN_NAMESPACE if is_admin else "default"
        there = self._there(space)
        names: dict[str, None] = {}
        entries: list[Json] = []
        for j, claim in enumerate(drawn):
            if self._maybe(0.35):
                own = self._named(claim, f"p{i}-own-{j}", space)
                self._own.setdefault(pod_name, {})[f"e{j}"] = own
                entries.append({"name": f"e{j}", "resourceClaimTemplateName": "not-read"})
            else:
                self._claims.append(self._named(claim, f"c{i}-{j}", space))
                names[self._claims[-1]["metadata"]["name"]] = None
        if there and (not drawn or self._maybe(0.25)):
            name = rng.choice(there)
            # With other claims beside it, kube-scheduler would write these, fail, and remember them wrongly.
            if not drawn or name not in self._full:
                names[name] = None
        entries += [{"name": f"n{j}", "resourceClaimName": one} for j, one in enumerate(names)]
        if pod_name not in self._own and self._maybe(0.08):
            entries.append(self._not_ready(i, space))
            self._kept_out.append(pod_name)
        rng.shuffle(entries)
        container: Json = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "400m"}}}
        spec: Json = {"schedulerName": PROFILE, "containers": [container], "resourceClaims": entries}
        if self._maybe(0.1):
            spec["nodeSelector"] = {"zone": rng.choice("abc")}
        return {"metadata": {"name": pod_name, "namespace": space}, "spec": spec}

    def _not_ready(self, i: int, space: str) -> Json:
        """An entry that keeps the pod out of the queue."""
        kind: Any = self._rng.choice(("gone", "leaving", "late"))
        if kind == "late":
            return {"name": "odd", "resourceClaimTemplateName": "not-there"}
        name = f"d{self._seed}-odd-{i}"
        if kind == "leaving":
            self._claims.append(self._named({"spec": {}}, f"odd-{i}", space))
            self._leaving.append(name)
        return {"name": "odd", "resourceClaimName": name}

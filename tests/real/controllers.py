"""A Cluster that a controller's stand-in makes pods on: its CRD, its object, its pods, as tests.controllers
writes them, and what became of them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from gangsched.errors import ApiError
from gangsched.model.owners import OWNER_KINDS
from tests.conftest import DEFINITIONS
from tests.controllers import Json, crd
from tests.real.cluster import MERGE, PODS, Cluster
from tests.real.picture import PATIENCE_S, node_of, reason_of


class Controllers:
    """The controllers of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._plane = cluster.plane
        self._made: list[str] = []

    def install(self, kind: str) -> None:
        """The kind is served when this returns."""
        one = OWNER_KINDS[kind]
        if one.group == "batch":
            return
        self._plane.request("POST", DEFINITIONS, crd(kind))
        self._cluster.eventually(lambda: self._is_served(kind), f"{kind} is served")

    def uninstall(self, kind: str) -> None:
        """No such kind is served when this returns."""
        one = OWNER_KINDS[kind]
        try:
            self._plane.request("DELETE", f"{DEFINITIONS}/{one.resource}.{one.group}")
        except ApiError as error:
            if error.code != 404:
                raise
        self._cluster.eventually(lambda: not self._is_served(kind), f"{kind} is not served")

    def _is_served(self, kind: str) -> bool:
        try:
            self._plane.request("GET", collection(kind))
        except ApiError as error:
            if error.code in (404, 429):
                return False
            raise
        return True

    def put(self, made: Json) -> None:
        """Creates an object, or replaces the one of an earlier test."""
        path, name = collection(made["kind"]), made["metadata"]["name"]
        try:
            self._plane.request("DELETE", f"{path}/{name}")
        except ApiError as error:
            if error.code != 404:
                raise
        self._plane.request("POST", path, made)

    def change(self, kind: str, name: str, patch: Json) -> None:
        self._plane.request("PATCH", f"{collection(kind)}/{name}", patch, content_type=MERGE)

    def create(self, pods: Iterable[Json]) -> None:
        for pod in pods:
            self._plane.request("POST", PODS, pod)
            self._made.append(pod["metadata"]["name"])

    def ungate(self, name: str, *, node: str = "") -> None:
        """Takes one pod's gates off, as Kueue does, with the host that it chose."""
        spec: Json = {"schedulingGates": None}
        if node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        self._plane.request("PATCH", f"{PODS}/{name}", {"spec": spec}, content_type=MERGE)

    def name_hosts(self, n: int) -> None:
        """Nodes have the label that kubelets give them."""
        for k in range(n):
            labels = {"metadata": {"labels": {"kubernetes.io/hostname": f"n{k}"}}}
            self._plane.request("PATCH", f"/api/v1/nodes/n{k}", labels, content_type=MERGE)

    def delete_all(self) -> None:
        """All pods that were made so far."""
        for name in self._made:
            self._plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        gone = [*self._made]
        self._made.clear()
        self._cluster.picture.until(lambda: not {*gone} & {*self._cluster.picture.pods}, "all are gone")

    def n_bound(self) -> int:
        pods = self._cluster.picture.pods
        return sum(bool(node_of(pods[name])) for name in self._made if name in pods)

    def bound(self, n: int) -> None:
        """Waits until so many of the pods are bound, and all of them when that is all."""
        self._cluster.picture.until(lambda: self.n_bound() >= n, f"{n} pods are bound")
        assert self.n_bound() == n

    def held(self, says: str, *, n_bound: int = 0, timeout_s: float = PATIENCE_S) -> None:
        """Waits until a pod says this; then no more than `n_bound` are bound, and stay so."""

        def said() -> bool:
            pods = self._cluster.picture.pods
            return any(says in reason_of(pods[name]) for name in self._made if name in pods)

        self._cluster.picture.until(said, f"a pod says {says!r}", timeout_s=timeout_s)
        time.sleep(0.5)  # nothing happens: there is no event to wait for
        assert self.n_bound() == n_bound


def collection(kind: str) -> str:
    """Where objects of an owner's kind are."""
    one = OWNER_KINDS[kind]
    return f"/apis/{one.group}/{one.versions[0]}/namespaces/default/{one.resource}"

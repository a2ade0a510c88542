"""The cluster around the wire: nodes, gangs that come and end, kubelets, a controller, and mischief.

Lives here: the writes of all actors but the scheduler to the API server's store, in process. Not here: the
wire (lab.sim.wire.network, lab.sim.wire.server), the checks (lab.sim.wire.judge). Every gang fits on the
empty cluster and every pod ends by itself, so once faults stop all of them must have run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from gangsched.lab.apiserver.storage.store import Change, Item
from gangsched.lab.sim.wire.server import ApiServer

GPU = "nvidia.com/gpu"
_NAMESPACE = "default"
_RUN_KEY = "sim/run-s"
_MOST_GPUS = 8


class Cluster:
    """The actors around the scheduler. Call `stop_mischief` before a run comes to rest."""

    def __init__(self, server: ApiServer, *, seed: str, n_gangs: int, over_s: float) -> None:
        self._server = server
        self._registry = server.registry
        self._loop = server.loop
        self._rng = rng = Random(f"{seed}-cluster")
        self._pods = self._registry.resource("pods")
        self._groups = self._registry.resource("podgroups.scheduling.k8s.io")
        self._ended: set[str] = set()
        self._collected: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._mischief_per_s = server.weather.rates.mischief_per_s
        self.more_mischief: list[Callable[[], None]] = []
        self._registry.store.subscribe(self._note_change, self._pods.storage_key)
        n_nodes = rng.randint(2, 4)
        for k in range(n_nodes):
            self._make_node(f"n{k}")
        at_s = 0.0
        for k in range(n_gangs):
            # Now and then several at once.
            at_s = at_s if rng.random() < 0.4 else over_s * k / n_gangs * rng.uniform(0.5, 1.5)
            self._loop.call_later(at_s, self._make_gang, f"g{k}", n_nodes)
        self._next_mischief()

    def stop_mischief(self) -> None:
        self._mischief_per_s = 0.0

    # -- what there is ---------------------------------------------------------------------------------

    def _make_node(self, name: str) -> None:
        devices = [{"id": f"GPU-{name}-{k}", "health": "Healthy", "numa": k // 4} for k in range(_MOST_GPUS)]
        meta = {"name": name, "annotations": {"gangsched.io/devices": json.dumps({GPU: devices})}}
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(_MOST_GPUS)}
        status = {"allocatable": amounts, "capacity": amounts}
        self._registry.create(self._registry.resource("nodes"), {"metadata": meta, "status": status})

    def _make_gang(self, name: str, n_nodes: int) -> None:
        rng = self._rng
        gpus = rng.choice((1, 2, 2, 4, 8))
        n = rng.randint(1, max(1, min(6, n_nodes * _MOST_GPUS // gpus)))
        self._sizes[name] = n
        kind = rng.choice(("label", "label", "core"))
        labels, annotations, spec = {}, {_RUN_KEY: f"{rng.uniform(1.0, 12.0):.2f}"}, {}
        if kind == "core":
            group = {"schedulingPolicy": {"gang": {"minCount": n}}}
            self._registry.create(
                self._groups, {"metadata": {"name": name}, "spec": group}, namespace=_NAMESPACE
            )
            spec["schedulingGroup"] = {"podGroupName": name}
        else:
            labels["gangsched.io/pod-group"] = name
            annotations["gangsched.io/min-members"] = str(n)
        # Letters of several bytes, as users write them, so that cuts can fall within one.
        annotations["example.com/note"] = rng.choice(("", "größer", "作業", '"\\ \u2028'))
        for k in range(n):
            pod = {
                "metadata": {"name": f"{name}-{k}", "labels": labels, "annotations": annotations},
                "spec": {
                    **spec,
                    "schedulerName": "gangsched",
                    "restartPolicy": "Never",
                    "containers": [_container(gpus)],
                },
            }
            self._loop.call_later(k * rng.choice((0.0, 0.001, 0.2)), self._create, pod)

    def _create(self, pod: dict[str, Any]) -> None:
        self._registry.create(self._pods, json.loads(json.dumps(pod)), namespace=_NAMESPACE)

    # -- kubelets and a controller ---------------------------------------------------------------------

    def _note_change(self, change: Change) -> None:
        """Called in the middle of a write: it acts later."""
        pod, before = change.item.decode(), change.before
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if change.type == "DELETED":
            if name.rpartition("-")[0] not in self._collected:
                self._loop.call_later(self._rng.uniform(0.05, 1.0), self._make_anew, pod)
            return
        was_bound = before is not None and bool(before.decode()["spec"].get("nodeName"))
        if pod["spec"].get("nodeName") and not was_bound:
            run_s = float(pod["metadata"]["annotations"][_RUN_KEY])
            start_s = self._rng.uniform(0.05, 0.4)
            self._loop.call_later(start_s, self._set_phase, name, uid, "Running")
            self._loop.call_later(start_s + run_s, self._set_phase, name, uid, "Succeeded")
        was_leaving = before is not None and "deletionTimestamp" in before.decode()["metadata"]
        if "deletionTimestamp" in pod["metadata"] and not was_leaving:
            self._loop.call_later(self._rng.uniform(0.1, 1.5), self._let_go, name, uid)

    def _set_phase(self, name: str, uid: str, phase: str) -> None:
        item = self._registry.find(self._pods, _NAMESPACE, name)
        if item is None or item.uid != uid or item.decode()["status"].get("phase") == "Succeeded":
            return

        def change(pod: dict[str, Any]) -> None:
            pod["status"]["phase"] = phase

        if phase == "Succeeded":
            self._ended.add(uid)
        self._registry.modify(self._pods, _NAMESPACE, name, change)
        if phase == "Succeeded":
            self._loop.call_later(self._rng.uniform(0.5, 5.0), self._collect, name.rpartition("-")[0])

    def _collect(self, gang: str) -> None:
        """Deletes a gang once all of it has ended."""
        pods = [pod for pod in self._registry.list(self._pods) if pod.name.rpartition("-")[0] == gang]
        if all(pod.uid in self._ended for pod in pods) and len(pods) == self._sizes[gang]:
            self._collected.add(gang)
            for pod in pods:
                self._let_go(pod.name, pod.uid)

    def _let_go(self, name: str, uid: str) -> None:
        item = self._registry.find(self._pods, _NAMESPACE, name)
        if item is not None and item.uid == uid:
            self._registry.delete(self._pods, _NAMESPACE, name, grace_s=0, uid=uid)

    def _make_anew(self, gone: dict[str, Any]) -> None:
        """Recreates a pod that is gone before its gang has ended, under its name, as controllers do."""
        meta, spec = gone["metadata"], gone["spec"]
        note = {
            key: value
            for key, value in meta["annotations"].items()
            if key.startswith(("sim/", "example.com/", "gangsched.io/min-members"))
        }
        labels = {k: v for k, v in meta.get("labels", {}).items() if k == "gangsched.io/pod-group"}
        kept = ("schedulerName", "restartPolicy", "containers", "schedulingGroup")
        fresh = {
            "metadata": {"name": meta["name"], "labels": labels, "annotations": note},
            "spec": {key: spec[key] for key in kept if key in spec},
        }
        if self._registry.find(self._pods, _NAMESPACE, meta["name"]) is None:
            self._create(fresh)

    # -- mischief --------------------------------------------------------------------------------------

    def _next_mischief(self) -> None:
        if self._mischief_per_s:
            self._loop.call_later(self._rng.expovariate(self._mischief_per_s), self._mischief)

    def _mischief(self) -> None:
        if not self._mischief_per_s:
            return
        often = [self._compact, self._touch, self._touch, self._delete, self._heartbeat]
        kinds = [*often, *often, *self.more_mischief]
        self._rng.choice(kinds)()
        self._next_mischief()

    def _compact(self) -> None:
        """Compacts the store: older watches and continued lists get a 410."""
        store = self._registry.store
        store.compact(max(1, store.revision - self._rng.randint(0, 20)))

    def _any_pod(self) -> Item | None:
        pods = self._registry.list(self._pods)
        return self._rng.choice(pods) if pods else None

    def _touch(self) -> None:
        """Writes a label: an event without effect."""
        item = self._any_pod()
        if item is not None:
            mark = str(self._rng.randint(0, 999))
            change = partial(_label, mark=mark)
            self._registry.modify(self._pods, item.namespace, item.name, change)

    def _delete(self) -> None:
        """Deletes a pod, as a user does; its controller recreates it."""
        item = self._any_pod()
        if item is not None:
            grace_s = self._rng.choice((0, 1, 30))
            self._registry.delete(self._pods, item.namespace, item.name, grace_s=grace_s, uid=item.uid)

    def _heartbeat(self) -> None:
        nodes = self._registry.resource("nodes")
        item = self._rng.choice(self._registry.list(nodes))
        self._registry.modify(nodes, "", item.name, partial(_label, mark=str(self._rng.randint(0, 999))))


def _label(obj: dict[str, Any], *, mark: str) -> None:
    obj["metadata"].setdefault("labels", {})["sim/touched"] = mark


def _container(gpus: int) -> dict[str, Any]:
    amounts = {GPU: str(gpus), "cpu": "1"}
    return {"name": "main", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}

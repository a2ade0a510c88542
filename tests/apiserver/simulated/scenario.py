"""A simulated cluster on a registry of its own, in virtual time: `world(nodes=4).submit(pod("a")).run(5)`.

Not here: HTTP and the scheduler. Pods are bound by hand; the kinds' own rules are in force as far as the
simulated cluster relies on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from gangsched.lab.apiserver.kinds.devices.slices import SliceStrategy
from gangsched.lab.apiserver.registry import Registry
from gangsched.lab.apiserver.simulated import Driver, SimulatedCluster, build_nodes
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Context, Object, Strategy
from gangsched.model.devices.annotations import ALLOCATED_KEY

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
GPU = "nvidia.com/gpu"
SLICES = "resource.k8s.io/resourceslices"


class _Pods(Strategy):
    """The two rules of pods that kubelets build on: they start Pending, and go slowly once they are bound."""

    has_generation = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        obj["status"] = {"phase": "Pending", "qosClass": "Burstable"}

    def grace_s(self, obj: Object, requested_s: int | None, context: Context) -> int | None:
        if not obj["spec"].get("nodeName") or obj["status"]["phase"] in ("Succeeded", "Failed"):
            return 0
        default: int = obj["spec"].get("terminationGracePeriodSeconds", 30)
        return default if requested_s is None else requested_s


class _Namespaces(Strategy):
    """They stay until they are empty."""

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def before_delete(self, obj: Object, context: Context) -> None:
        obj["status"]["phase"] = "Terminating"

    def is_gone(self, obj: Object) -> bool:
        return not obj["spec"].get("finalizers")

    def fields(self, obj: Object) -> dict[str, str]:
        return {"status.phase": obj["status"]["phase"]}


class World:
    """`now_s` is the simulated time, and the objects' too."""

    def __init__(
        self,
        nodes: int = 0,
        *,
        gpus: int = 8,
        racks: int = 1,
        cpu: int = 16,
        kubelets: bool = True,
        driver: Driver | None = None,
    ) -> None:
        self.now_s = 0.0
        self.registry = Registry(
            now=lambda: EPOCH + timedelta(seconds=self.now_s),
            rng=Random(1),
            strategies={"/pods": _Pods(), "/namespaces": _Namespaces(), SLICES: SliceStrategy()},
        )
        self.cluster = SimulatedCluster(self.registry, seed=1, kubelets=kubelets, driver=driver)
        self.cluster.start()
        for node in build_nodes(nodes, gpus=gpus, racks=racks, cpu=cpu, now=EPOCH):
            self.add_node(node)
        self.run(0)

    def run(self, seconds: float) -> World:
        """Let so much time pass, doing everything that is due on the way, in its order."""
        until_s = self.now_s + seconds
        while True:
            while self.cluster.step(self.now_s):
                pass
            next_s = self.cluster.next_deadline_s()
            if next_s is None or next_s > until_s:
                break
            self.now_s = max(self.now_s, next_s)
        self.now_s = until_s
        return self

    def add_node(self, node: Object) -> World:
        status = node["status"]
        self.create("nodes", node)
        self.change("nodes", node["metadata"]["name"], lambda obj: obj.update(status=status))
        return self

    def create(self, plural: str, obj: Object, namespace: str = "default") -> Item:
        resource = self.registry.resource(plural)
        return self.registry.create(resource, obj, namespace=namespace if resource.namespaced else "")

    def change(self, plural: str, name: str, change: Any, namespace: str = "default") -> World:
        resource = self.registry.resource(plural)
        self.registry.modify(resource, namespace if resource.namespaced else "", name, change)
        return self

    def submit(
        self, pod: Object, *, on: str = "", devices: Mapping[str, tuple[str, ...]] | None = None
    ) -> World:
        """Create a pod and, with `on`, bind it there in one write, devices by container included."""
        item = self.create("pods", pod, pod["metadata"].get("namespace") or "default")
        return self.bind(item.name, on, devices) if on else self

    def bind(self, name: str, on: str, devices: Mapping[str, tuple[str, ...]] | None = None) -> World:
        def change(obj: Object) -> None:
            obj["spec"]["nodeName"] = on
            if devices is not None:
                allocation = {container: {GPU: ids} for container, ids in devices.items()}
                notes = obj["metadata"].setdefault("annotations", {})
                notes[ALLOCATED_KEY] = msgspec.json.encode(allocation).decode()
            obj["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]

        return self.change("pods", name, change)

    def delete(self, plural: str, name: str, namespace: str = "default", **options: Any) -> World:
        resource = self.registry.resource(plural)
        self.registry.delete(resource, namespace if resource.namespaced else "", name, **options)
        return self

    def annotate(self, node: str, **notes: str | None) -> World:
        """Annotations of a node, by the last part of their key with underscores; None takes one off."""

        def change(obj: Object) -> None:
            held = obj["metadata"].setdefault("annotations", {})
            for key, value in notes.items():
                full = f"simulated.gangsched.io/{key.replace('_', '-')}"
                if value is None:
                    held.pop(full, None)
                else:
                    held[full] = value

        return self.change("nodes", node, change)

    def find(self, plural: str, name: str, namespace: str = "default") -> Object | None:
        resource = self.registry.resource(plural)
        item = self.registry.find(resource, namespace if resource.namespaced else "", name)
        return None if item is None else item.decode()

    def get(self, plural: str, name: str, namespace: str = "default") -> Object:
        found = self.find(plural, name, namespace)
        assert found is not None, f"{plural} {name} is not there"
        return found

    def all(self, plural: str, namespace: str = "") -> list[Object]:
        return [item.decode() for item in self.registry.list(self.registry.resource(plural), namespace)]

    def phase(self, name: str) -> str:
        """The pod's phase, or "gone"."""
        pod = self.find("pods", name)
        return "gone" if pod is None else str(pod["status"]["phase"])

    def waiting(self, name: str) -> str:
        """What its first container waits for."""
        states = self.get("pods", name)["status"].get("containerStatuses") or [{"state": {}}]
        return str(states[0]["state"].get("waiting", {}).get("reason", ""))

    def condition(self, plural: str, name: str, type_: str) -> Object:
        conditions = self.get(plural, name).get("status", {}).get("conditions") or ()
        return next((each for each in conditions if each["type"] == type_), {})

    def events(self, about: str, kind: str = "") -> list[str]:
        """The reasons of an object's events, in order."""
        return [
            each["reason"]
            for each in sorted(
                self.all("events"), key=lambda event: int(event["metadata"]["resourceVersion"])
            )
            if each["involvedObject"]["name"] == about and kind in ("", each["involvedObject"]["kind"])
        ]

    def event(self, about: str, reason: str) -> Object:
        found = [
            each
            for each in self.all("events")
            if each["involvedObject"]["name"] == about and each["reason"] == reason
        ]
        assert found, f"no event {reason} about {about}"
        return found[-1]

    def taints(self, node: str) -> set[tuple[str, str]]:
        return {(each["key"], each["effect"]) for each in self.get("nodes", node)["spec"].get("taints") or ()}


def pod(
    name: str,
    *,
    run_s: float | None = None,
    exit_code: int | None = None,
    cpu: str = "1",
    gpus: int = 0,
    restart: str = "Never",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod of one container `main`, which runs for ever unless told."""
    notes = {"simulated.gangsched.io/start-seconds": "1", "simulated.gangsched.io/stop-seconds": "1"}
    notes["simulated.gangsched.io/run-seconds"] = "forever" if run_s is None else str(run_s)
    if exit_code is not None:
        notes["simulated.gangsched.io/exit-code"] = str(exit_code)
    notes.update(annotations or {})
    asked: dict[str, str] = {"cpu": cpu, "memory": "1Gi"}
    if gpus:
        asked[GPU] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes},
        "spec": {
            "restartPolicy": restart,
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": asked}}],
            **spec,
        },
    }


def gpu(node: str, *numbers: int) -> tuple[str, ...]:
    return tuple(f"GPU-{node}-{number}" for number in numbers)

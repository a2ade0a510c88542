"""The real kube-scheduler's side: objects put to the API server, and decisions read from its log.

At verbosity 10 of one source file (schedule_one.go) kube-scheduler tells every score of every plugin for
every feasible node. Lives here: sending, waiting until it has seen what was sent, reading; not comparing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gangsched.lab.controlplane.processes import ControlPlane
from tests.contract.api import Api
from tests.differential import draw_claims, draw_volumes
from tests.differential.draw import OVERHEAD_CLASS, Devices, Given, Json
from tests.differential.draw_pods import SPACES, background
from tests.differential.kube_claims import ClaimStage, Seen
from tests.differential.profiles import document

NODES = "/api/v1/nodes"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
# What there is for all seeds: our name of the kind, and where it is.
BACKGROUND = {
    "namespaces": "/api/v1/namespaces",
    "services": "/api/v1/services",
    "replicationcontrollers": "/api/v1/replicationcontrollers",
    "replicasets.apps": "/apis/apps/v1/replicasets",
    "statefulsets.apps": "/apis/apps/v1/statefulsets",
    "persistentvolumeclaims": CLAIMS,
    "persistentvolumes": VOLUMES,
    **{
        f"{resource}.storage.k8s.io": f"/apis/storage.k8s.io/v1/{resource}"
        for resource in (
            "storageclasses",
            "csinodes",
            "csidrivers",
            "csistoragecapacities",
            "volumeattachments",
        )
    },
}
AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
DEADLINE_S = 60.0
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
_LINE = re.compile(r'^[IWEF]\d{4} [^\]]*\] "((?:[^"\\]|\\.)*)"(.*)$')
_FIELD = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|\S+)')
# Tolerations may compare (KEP-5471), which is not on by itself; without hints from one pod for the next
# (KEP-5598), as those would leave scores out of the log; and a pod that was refused waits out its backoff.
APISERVER_FLAGS = ("--feature-gates=TaintTolerationComparisonOperators=true",)
SCHEDULER_FLAGS = (
    "--feature-gates=TaintTolerationComparisonOperators=true,OpportunisticBatching=false,"
    "SchedulerPopFromBackoffQ=false",
    "--vmodule=schedule_one=10,eventhandlers=4,scheduling_queue=4,assume_cache=10,tracker=5,"
    "extendedresourcecache=5",
)


class Attempt:
    """kube-scheduler's first try of one pod: where it went, or why nowhere.

    scores: node -> plugin -> weighted score, for feasible nodes; empty where one was feasible and nothing was
    scored. totals: node -> sum. is_error: it could not decide. is_kept_out: it was
    not even tried.
    """

    def __init__(self, order: int, kept_out: str = "") -> None:
        self.order = order
        self.node = ""
        self.n_feasible = 0
        self.message = kept_out
        self.is_error = False
        self.is_kept_out = bool(kept_out)
        self.scores: dict[str, dict[str, int]] = {}
        self.totals: dict[str, int] = {}

    @property
    def is_over(self) -> bool:
        return bool(self.node or self.message)

    @property
    def feasible(self) -> set[str]:
        return set(self.totals) or ({self.node} if self.node else set())


class Log:
    """kube-scheduler's log, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.first: dict[str, Attempt] = {}
        self._now: dict[str, Attempt] = {}
        self.nodes: set[str] = set()
        self.kept_out: dict[str, str] = {}
        self.devices = Seen()
        self._bound: set[str] = set()
        self._pending: set[str] = set()

    @property
    def pods(self) -> set[str]:
        """Pods that it knows of; bound ones of others too."""
        return self._bound | self._pending

    def is_over(self, pod: str) -> bool:
        """Whether the pod has been tried."""
        return pod in self.first and self.first[pod].is_over

    def read(self) -> None:
        """Takes in the lines that are whole by now."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            raw = file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode().splitlines():
            match = _LINE.match(line)
            if match is not None:
                self._take(match[1], {name: _value(text) for name, text in _FIELD.findall(match[2])})

    def _take(self, said: str, fields: dict[str, str]) -> None:
        pod, node = fields.get("pod", "").rpartition("/")[2], fields.get("node", "")
        match said:
            case "Add event for node":
                self.nodes.add(node)
            case "Delete event for node":
                self.nodes.discard(node)
            case "Add event for scheduled pod":
                self._bound.add(pod)
            case "Delete event for scheduled pod":
                self._bound.discard(pod)
            case "Add event for unscheduled pod":
                self._pending.add(pod)
            case "Delete event for unscheduled pod":
                self._pending.discard(pod)
            case "Attempting to schedule pod":
                attempt = self._now[pod] = Attempt(len(self.first))
                self.first.setdefault(pod, attempt)
            case "Plugin scored node for pod":
                scores = self._now[pod].scores.setdefault(node, {})
                scores[fields["plugin"]] = int(fields["score"])
            case "Calculated node's final score for pod":
                self._now[pod].totals[node] = int(fields["score"])
            case "Successfully bound pod to node":
                self._now[pod].node = node
                self._now[pod].n_feasible = int(fields["feasibleNodes"])
            case (
                "Unable to schedule pod; no fit; waiting"
                | "Unable to schedule pod; no nodes are registered to the cluster; waiting"
            ):
                self._now[pod].message = fields.get("err", said)
            case "Error scheduling pod; retrying":
                self._now[pod].message = fields["err"]
                self._now[pod].is_error = True
            case "Status after running PreEnqueue plugin":
                self.kept_out[pod] = f"{fields['plugin']}: {fields['status']}"
            case _:
                self.devices.take(said, fields)


def _value(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def _pods(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata'].get('namespace', 'default')}/pods"


def _made(name: str, claim: Json) -> Json:
    spec = claim["spec"]
    owner = {key: claim["metadata"][key] for key in ("name", "namespace", "uid")}
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": spec["resources"]["requests"],
            "storageClassName": spec["storageClassName"],
            "csi": {
                "driver": draw_volumes.PROVISIONERS[spec["storageClassName"]],
                "volumeHandle": name,
            },
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **owner},
        },
    }


class Outcome:
    """What there was when it was decided, and how. Objects are as the API server answered."""

    def __init__(
        self, nodes: list[Json], settled: list[Json], pods: list[Json], objects: Mapping[str, list[Json]]
    ) -> None:
        self.objects = objects
        self.in_the_end: Mapping[str, list[Json]] = {}
        self.claims_before: dict[str, list[Json]] = {}
        """By pod, the resource claims as they were when it came; empty where there are no devices."""
        self.nodes = nodes
        self.settled = settled
        self.pods = pods
        self.attempts: dict[str, Attempt] = {}


class KubeScheduler:
    """A control plane of its own with a kube-scheduler that runs all profiles."""

    def __init__(self, plane: ControlPlane) -> None:
        self._api = Api("real", plane.base_url, plane.token, str(plane.ca_file))
        overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
        body = {"metadata": {"name": OVERHEAD_CLASS}, "handler": "heavy", "overhead": overhead}
        self._api.post(RUNTIME_CLASSES, body).ok(201)
        # What its log does not tell the arrival of is there before it starts.
        for path, made in (*background(), *draw_volumes.background(), *draw_claims.background()):
            self._create(path, made)
        for path, phase in draw_volumes.statuses():
            self._api.patch(f"{path}/status", {"status": {"phase": phase}}).ok(200)
        daemon = plane.start_kube_scheduler(config=document(), flags=SCHEDULER_FLAGS)
        self._log = Log(daemon.log)
        self._stage = ClaimStage(self._api, self._log.devices, self._until)

    def decide(self, given: Given) -> Outcome:
        """Everything is there before the first pod is created; the cluster is empty again afterwards."""
        try:
            objects = self._objects() if given.devices is None else self._stage.put(given.devices)
            nodes = [self._create(NODES, node) for node in given.nodes]
            paths = {}
            for pod in given.settled:
                self._create(_pods(pod), pod)
                paths[pod["metadata"]["name"]] = f"{_pods(pod)}/{pod['metadata']['name']}"
            for name in given.leaving:
                self._api.delete(paths[name], AT_ONCE | {"gracePeriodSeconds": 600}).ok(200)
            for name, status in given.statuses.items():
                self._api.patch(f"{paths[name]}/status", {"status": status}).ok(200)
            settled = self._api.get("/api/v1/pods").ok()["items"]
            here = {pod["metadata"]["name"] for pod in settled if pod["status"]["phase"] != "Succeeded"}
            self._until(lambda: self._log.pods == here and len(self._log.nodes) == len(nodes))
            if given.devices is not None:
                return self._one_by_one(given, given.devices, Outcome(nodes, settled, [], objects))
            pods = [self._create(_pods(pod), pod) for pod in given.pods]
            outcome = Outcome(nodes, settled, pods, objects)
            names = [pod["metadata"]["name"] for pod in pods]
            first = self._log.first
            binds = any("persistentVolumeClaim" in str(pod) for pod in given.pods)
            self._until(lambda: (binds and self._bind_volumes()) or all(map(self._log.is_over, names)))
            outcome.attempts = {name: first[name] for name in names}
            outcome.in_the_end = self._objects()
            return outcome
        finally:
            # Nodes first: pods that found no room must not be tried again when others go.
            self._api.delete(NODES).ok(200)
            self._until(lambda: not self._log.nodes)
            for name in SPACES if given.devices is None else draw_claims.SPACES:
                self._api.delete(f"/api/v1/namespaces/{name}/pods", AT_ONCE).ok(200)
            self._until(lambda: not self._log.pods)
            if given.devices is not None:
                self._stage.clear()

    def _one_by_one(self, given: Given, devices: Devices, outcome: Outcome) -> Outcome:
        """Each pod comes when the one before has been decided and its claims are written."""
        log = self._log
        for body in given.pods:
            name = body["metadata"]["name"]
            claims = self._stage.wait()
            pod = self._create(_pods(body), body)
            if name in devices.own:
                pod, claims = self._stage.make_own(pod, devices.own[name])
            outcome.claims_before[name] = claims
            outcome.pods.append(pod)
            if name in devices.kept_out:
                self._until(partial(log.kept_out.get, name))
                outcome.attempts[name] = Attempt(len(log.first), log.kept_out[name])
            else:
                self._until(partial(log.is_over, name))
                outcome.attempts[name] = log.first[name]
        return outcome

    def _objects(self) -> dict[str, list[Json]]:
        return {kind: self._api.get(path).ok()["items"] for kind, path in BACKGROUND.items()}

    def _bind_volumes(self) -> bool:
        """Does what kube-controller-manager and the drivers do for claims that a pod has come for."""
        owners = {
            one["spec"]["claimRef"]["name"]: one["metadata"]["name"]
            for one in self._api.get(VOLUMES).ok()["items"]
            if "claimRef" in one["spec"]
        }
        for claim in self._api.get(CLAIMS).ok()["items"]:
            meta, spec = claim["metadata"], claim["spec"]
            name = owners.get(meta["name"])
            if spec.get("volumeName") or not (name or SELECTED_NODE in meta.get("annotations", {})):
                continue
            if name is None:
                name = f"made-{meta['name']}"
                self._create(VOLUMES, _made(name, claim))
            bound = {"metadata": {"annotations": {BOUND: "yes"}}, "spec": {"volumeName": name}}
            path = f"/api/v1/namespaces/default/persistentvolumeclaims/{meta['name']}"
            self._api.patch(path, bound).ok(200)
            for place in (path, f"{VOLUMES}/{name}"):
                self._api.patch(f"{place}/status", {"status": {"phase": "Bound"}}).ok(200)
        return False

    def _create(self, path: str, body: Json) -> Json:
        made: Json = self._api.post(path, body).ok(201)
        return made

    def _until(self, done: Callable[[], Any]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            self._log.read()
            if done():
                return
            assert time.monotonic() < deadline_s, f"kube-scheduler did not get there in {DEADLINE_S:.0f} s"
            time.sleep(0.005)

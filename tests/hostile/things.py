"""Hostile nodes, PodGroups and objects of other kinds. Used by tests.hostile.objects, which draws pods."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.hostile.garbage import GPU, NODE_ANNOTATIONS, POD_ANNOTATIONS, TIMES, Garbage, Json


class Thing(NamedTuple):
    """One object. sort: what is odd about it."""

    sort: str
    kind: str
    body: Json

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


class HostileThings(Garbage):
    """What else there is beside pods."""

    def node(self, name: str) -> Thing:
        """A node nobody should rely on: it is tainted, so that only what tolerates all goes there."""
        rng = self.rng
        room = {one: self.quantity(one) for one in ("cpu", "memory", "pods", GPU)}
        room |= {
            f"example.com/r{rng.randrange(50)}": self.quantity("pods") for _ in range(rng.choice((0, 0, 20)))
        }
        body: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    "topology.kubernetes.io/rack": self.word(),
                    "number": self.word(),
                    "kubernetes.io/hostname": name,
                },
                "annotations": {
                    key: self.text() for key in rng.sample(NODE_ANNOTATIONS, rng.randrange(1, 5))
                },
            },
            "spec": {
                "unschedulable": rng.random() < 0.2,
                "taints": [
                    {"key": f"t{i}", "effect": "NoSchedule", "value": self.word()}
                    for i in range(rng.choice((0, 1, 1, 200)))
                ],
            },
            "status": {
                "allocatable": room,
                "capacity": room,
                "images": [
                    {
                        "names": [f"image{i}:latest", f"image{i}@sha256:{'0' * 64}"],
                        "sizeBytes": rng.choice((0, -1, 2**63 - 1, 10**9)),
                    }
                    for i in range(rng.choice((0, 5, 300)))
                ],
                "conditions": [
                    {
                        "type": "Ready",
                        "status": rng.choice(("True", "False", "Unknown")),
                        "lastHeartbeatTime": rng.choice(TIMES),
                        "lastTransitionTime": rng.choice(TIMES),
                    }
                ],
            },
        }
        if rng.random() < 0.3:
            self.deep_fields(body)
        return Thing("node", "Node", body)

    def of_an_agent(self, name: str) -> tuple[str, Json, Json]:
        """What is odd, metadata and status that whoever may patch a node writes onto one that is there."""
        rng = self.rng
        body = self.node(name).body
        meta, status = body["metadata"], body["status"]
        meta.pop("managedFields", None)
        if (which := rng.random()) < 0.2:
            lists = {f"e.io/r{i}": [{"id": "x"}] for i in range(8_000)}
            meta["annotations"] = {rng.choice(NODE_ANNOTATIONS): json.dumps(lists)[:240_000]}
            return "agent, long annotation", meta, status
        if which < 0.3:
            status["allocatable"] |= {f"e.io/r{i}": "1" for i in range(rng.choice((100, 18_000)))}
            return "agent, many resources", meta, status
        if which < 0.4:
            meta["labels"] |= {f"k{i}.e.io/{'x' * 60}": self.word() for i in range(rng.choice((500, 10_000)))}
            return "agent, many labels", meta, status
        meta["annotations"] |= dict.fromkeys(rng.sample(NODE_ANNOTATIONS, 2))
        return "agent, odd", meta, status

    def pod_group(self, name: str) -> Thing:
        """A PodGroup of one of the dialects that have one."""
        rng = self.rng
        annotations = {key: self.text() for key in rng.sample(POD_ANNOTATIONS, rng.randrange(4))}
        meta: Json = {
            "name": rng.choice((name, "a", "b")),
            "namespace": "default",
            "annotations": annotations,
        }
        number = rng.choice((0, -1, 1, 1, 2, 2, 50, 10**5, 10**5, 2**31 - 1, 2**63 - 1))
        if rng.random() < 0.5:
            policy: Json = rng.choice(
                ({"gang": {"minCount": number}}, {"gang": {"minCount": 2}}, {"basic": {}})
            )
            spec: Json = {"schedulingPolicy": policy}
            body: Json = {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": meta,
                "spec": spec,
            }
            return Thing("core PodGroup", "PodGroup.core", body)
        spec = {
            "minMember": number,
            "scheduleTimeoutSeconds": rng.choice((0, 1, 10, 10, 2**31 - 1)),
            "minResources": {one: self.quantity() for one in ("cpu", "memory", GPU)},
        }
        deep: Any = self.text()
        spec |= {"unknown": deep} if rng.random() < 0.3 else {}
        body = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": meta,
            "spec": spec,
        }
        if rng.random() < 0.3:
            self.deep_fields(body)
        return Thing("PodGroup of the CRD", "PodGroup.coscheduling", body)

    def other(self, name: str) -> Thing:
        """Of a kind that plugins read."""
        rng = self.rng
        meta: Json = {"name": name, "namespace": "default"}
        amount = {"storage": self.quantity()}
        claim: Json = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": amount},
            "storageClassName": rng.choice(("", "h-class")),
        }
        things: tuple[Thing, ...] = (
            Thing(
                "claim",
                "PersistentVolumeClaim",
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {**meta, "name": "h-claim"},
                    "spec": claim,
                },
            ),
            Thing(
                "volume",
                "PersistentVolume",
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": name},
                    "spec": {
                        "capacity": amount,
                        "accessModes": ["ReadWriteOnce"],
                        "hostPath": {"path": "/x"},
                    },
                },
            ),
            Thing(
                "disruption budget",
                "PodDisruptionBudget",
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": meta,
                    "spec": {
                        "selector": self.selector(),
                        "minAvailable": rng.choice((0, 2**31 - 1, "100%")),
                    },
                },
            ),
            Thing(
                "service",
                "Service",
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": meta,
                    "spec": {"selector": {f"key{i}": self.word() for i in range(40)}, "clusterIP": "None"},
                },
            ),
            Thing(
                "namespace",
                "Namespace",
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name, "labels": {f"key{i}": self.word() for i in range(60)}},
                },
            ),
        )
        thing = rng.choice(things)
        if rng.random() < 0.3:
            self.deep_fields(thing.body)
        return thing

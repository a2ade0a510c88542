"""Hostile objects: what somebody careless or hostile may write, drawn from one seed.

Every key that we read, with garbage, extremes, depth and control characters; quantities beyond all reason;
odd combinations; huge lists. As JSON, the way an API server is sent them: most of them it takes, the others
it refuses. `as_pod` and its like make the structs of them that a simulation tells the scheduler. Nothing
here knows what the scheduler makes of them.

    hostile = Hostile(Random(7))
    thing = hostile.draw("h0")              # Thing(sort="pod quantities", kind="Pod", body={…})
    pod = as_pod(hostile.pod("h1").body)    # None where no decoder takes it
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import msgspec

from gangsched.model.objects import CustomObject, Node, Pod
from gangsched.model.text.bounded import lenient_decoder
from tests.hostile.garbage import GPU, GROUP_LABELS, POD_ANNOTATIONS, STRANGER, TIMES, Json
from tests.hostile.things import HostileThings, Thing


class Hostile(HostileThings):
    """Draws them. nodes: names that pods say they are bound to; good ones are not among them."""

    def __init__(
        self, rng: Random, *, scheduler: str = "gangsched", nodes: tuple[str, ...] = ("nowhere",)
    ) -> None:
        super().__init__(rng)
        self._scheduler = scheduler
        self.nodes = nodes

    def draw(self, name: str) -> Thing:
        """Any of them, pods most of the time."""
        return self.rng.choices((self.pod, self.node, self.pod_group, self.other), (10, 2, 2, 1))[0](name)

    def pod(self, name: str) -> Thing:
        """A pod with something odd about it, or with several such things."""
        rng = self.rng
        oddities: tuple[Callable[[Json], None], ...] = (
            self._quantities,
            self._annotations,
            self._labels,
            self.deep_fields,
            self._affinities,
            self._spreading,
            self._many,
            self._volumes,
            self._placed,
            self._phases,
            self._gates,
        )
        body: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {}, "annotations": {}},
            "spec": {
                "schedulerName": rng.choices((self._scheduler, STRANGER, "nobody"), (8, 2, 1))[0],
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1m"}}}
                ],
            },
        }
        chosen = rng.sample(oddities, rng.choice((1, 1, 1, 2, 3)))
        for oddity in chosen:
            oddity(body)
        return Thing("pod " + chosen[0].__name__.strip("_").replace("_", " "), "Pod", body)

    def _quantities(self, body: Json) -> None:
        rng, spec = self.rng, body["spec"]
        names = ["cpu", "memory", "ephemeral-storage", GPU, "example.com/odd"]
        if rng.random() < 0.05:
            names.append("hugepages-2Mi")

        def resources() -> Json:
            asked = {one: self.quantity(one) for one in rng.sample(names, rng.randrange(1, 4))}
            same = {one: amount for one, amount in asked.items() if "/" in one or one.startswith("hugepages")}
            return {"requests": asked, "limits": same}

        def some(prefix: str, n: int, **more: Any) -> list[Json]:
            return [
                {"name": f"{prefix}{i}", "image": "busybox", "resources": resources(), **more}
                for i in range(n)
            ]

        spec["containers"] = some("c", rng.choice((1, 3, 3, 20)))
        if rng.random() < 0.5:
            one = resources()
            spec["containers"] = [{**container, "resources": one} for container in spec["containers"]]
        if rng.random() < 0.3:
            spec["initContainers"] = some("i", 2) + some("s", 2, restartPolicy="Always")
        if rng.random() < 0.05:
            spec["overhead"] = {"cpu": self.quantity(), "memory": self.quantity()}
        if rng.random() < 0.2:
            spec["resources"] = {"requests": {"cpu": self.quantity(), "memory": self.quantity()}}

    def _annotations(self, body: Json) -> None:
        rng = self.rng
        own = body["metadata"]["annotations"]
        for key in rng.sample(POD_ANNOTATIONS, rng.choice((1, 1, 3, len(POD_ANNOTATIONS)))):
            own[key] = self.text()
        if rng.random() < 0.5:
            body["metadata"]["labels"]["gangsched.io/pod-group"] = self.word()

    def _labels(self, body: Json) -> None:
        rng = self.rng
        own = body["metadata"]["labels"]
        for key in rng.sample(GROUP_LABELS, rng.choice((1, 2, 4, len(GROUP_LABELS)))):
            own[key] = self.word()
        if rng.random() < 0.3:
            body["spec"]["schedulingGroup"] = {"podGroupName": self.word()}
        if rng.random() < 0.3:
            own["main.nvidia.com.allocated-devices.gangsched.io/gpu"] = self.word()
        if rng.random() < 0.2:
            own |= {f"k{i}.example.com/{'x' * 60}": self.word() for i in range(500)}

    def _affinities(self, body: Json) -> None:
        rng = self.rng
        body["metadata"]["labels"] |= {f"key{rng.randrange(200)}": self.word() for _ in range(4)}

        def terms(n: int) -> list[Json]:
            return [
                {
                    "topologyKey": rng.choice(
                        ("kubernetes.io/hostname", "topology.kubernetes.io/rack", "no.such/key")
                    ),
                    "labelSelector": self.selector(),
                    **({"namespaceSelector": self.selector()} if rng.random() < 0.3 else {}),
                    **({"matchLabelKeys": [f"key{rng.randrange(9)}"]} if rng.random() < 0.2 else {}),
                }
                for _ in range(n)
            ]

        n = rng.choice((1, 3, 40))
        kinds = ("podAffinity", "podAntiAffinity")
        affinity: Json = {
            kind: {
                "requiredDuringSchedulingIgnoredDuringExecution": terms(rng.randrange(n + 1)),
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": rng.choice((1, 100)), "podAffinityTerm": term}
                    for term in terms(rng.randrange(n + 1))
                ],
            }
            for kind in kinds
        }
        numbers = rng.choice((["9" * 18], ["9" * 30], ["-1"], ["5"]))
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "number", "operator": rng.choice(("Gt", "Lt")), "values": numbers}
                        ]
                    }
                ]
            }
        }
        if rng.random() < 0.5:
            del affinity["nodeAffinity"]
        body["spec"]["affinity"] = affinity

    def _spreading(self, body: Json) -> None:
        rng = self.rng
        body["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": rng.choice((1, 2**31 - 1)),
                "topologyKey": f"spread/{i}" if i else "kubernetes.io/hostname",
                "whenUnsatisfiable": rng.choice(("DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": self.selector(),
            }
            for i in range(rng.choice((1, 2, 30)))
        ]

    def _many(self, body: Json) -> None:
        rng, spec = self.rng, body["spec"]
        which = rng.randrange(4)
        if which == 0:
            spec["containers"] = [
                {"name": f"c{i}", "image": f"image{i}"} for i in range(rng.choice((100, 1_000)))
            ]
        elif which == 1:
            spec["tolerations"] = [
                {
                    "key": f"t{i}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": rng.choice((-(2**62), 2**62, 0)),
                }
                for i in range(rng.choice((10, 2_000)))
            ]
        elif which == 2:
            spec["nodeSelector"] = {f"k{i}": self.word() for i in range(rng.choice((5, 500)))}
        else:
            ports = [
                {"containerPort": 1 + i, "hostPort": 1 + i, "hostIP": rng.choice(("", "0.0.0.0", "::"))}
                for i in range(500)
            ]
            spec["containers"][0]["ports"] = ports

    def _volumes(self, body: Json) -> None:
        rng, spec = self.rng, body["spec"]
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": self.quantity()}}}
        spec["volumes"] = [
            rng.choice(
                (
                    {"persistentVolumeClaim": {"claimName": rng.choice(("gone", "h-claim"))}},
                    {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
                    {"awsElasticBlockStore": {"volumeID": "x" * 500}},
                    {"image": {"reference": "a" * 300}},
                    {"iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
                )
            )
            | {"name": f"v{i}"}
            for i in range(rng.choice((1, 5, 200)))
        ]
        if rng.random() < 0.2:
            spec["resourceClaims"] = [{"name": "claim", "resourceClaimName": "gone"}]

    def _placed(self, body: Json) -> None:
        """Bound by whoever made it; taking devices by its own word."""
        rng, spec = self.rng, body["spec"]
        spec["nodeName"] = rng.choice((*self.nodes, "no-such-node"))
        if rng.random() < 0.5:
            self._quantities(body)
        body["metadata"]["annotations"]["gangsched.io/allocated-devices"] = (
            self.text()
            if rng.random() < 0.5
            else json.dumps({"main": {GPU: [f"GPU-{spec['nodeName']}-{i}" for i in range(3)]}})
        )

    def _phases(self, body: Json) -> None:
        """For a write of its status, which creating it ignores."""
        rng = self.rng
        body["status"] = {
            "phase": rng.choice(("Running", "Succeeded", "Failed", "Unknown")),
            "nominatedNodeName": rng.choice(("", "no-such-node", *self.nodes)),
            "startTime": rng.choice(TIMES),
            "conditions": [
                {
                    "type": rng.choice(("PodScheduled", "Ready", "example.com/odd")) if i == 0 else f"c{i}",
                    "status": rng.choice(("True", "False", "Unknown")),
                    "lastTransitionTime": rng.choice(TIMES),
                    "message": self.garbage().replace("\x00", ""),
                }
                for i in range(rng.choice((1, 300)))
            ],
        }

    def _gates(self, body: Json) -> None:
        rng, spec = self.rng, body["spec"]
        spec["schedulingGates"] = [{"name": f"example.com/g{i}"} for i in range(rng.choice((1, 100)))]
        spec["terminationGracePeriodSeconds"] = rng.choice((0, 2**62))


T = TypeVar("T")


def as_pod(body: Json) -> Pod | None:
    """As the watch would tell it; None where it could not be decoded."""
    return _decoded(Pod, body)


def as_node(body: Json) -> Node | None:
    """As as_pod."""
    return _decoded(Node, body)


def as_group(body: Json) -> CustomObject | None:
    """As as_pod, of either dialect."""
    return _decoded(CustomObject, body)


def _decoded(form: type[T], body: Json) -> T | None:
    try:
        return lenient_decoder(form)(as_json(body))
    except msgspec.MsgspecError:
        return None


def as_json(body: Json) -> bytes:
    """Written without recursion where it is deep: json.dumps and msgspec both recurse."""
    fields = (body.get("metadata") or {}).get("managedFields")
    if not fields:
        return json.dumps(body).encode()
    text = json.dumps(
        {**body, "metadata": {**body["metadata"], "managedFields": [{**fields[0], "fieldsV1": "@@"}]}}
    )
    return text.replace('"@@"', _tree(fields[0]["fieldsV1"])).encode()


def _tree(tree: Json) -> str:
    heads = []
    while tree:
        [(key, tree)] = tree.items()
        heads.append(f"{{{json.dumps(key)}:")
    return "".join(heads) + "{}" + "}" * len(heads)


__all__ = ["Hostile", "Json", "Thing", "as_group", "as_json", "as_node", "as_pod"]

"""Random clusters and pods, each from a seed. Nothing here decides anything or knows a scheduler's rules.

A pod has a few traits of many, not all at once: pods that fit nowhere teach little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from tests.differential.profiles import GPU, NAMES, NIC, TPU

Json = dict[str, Any]

N_IMAGES = 6
OVERHEAD_CLASS = "heavy"
PAGES = "hugepages-2Mi"
MIB = 2**20


ENDED: Json = {"phase": "Succeeded"}
NO_STATUSES: Mapping[str, Json] = {}


class Devices(NamedTuple):
    """What resource claims are about, and claims with their status.

    leaving: names of claims that are being deleted. own: claims made for a pod once it is there, by its name
    and the name of its entry. kept_out: pods that do not come into the queue.
    """

    classes: list[Json]
    rules: list[Json]
    slices: list[Json]
    claims: list[Json]
    leaving: frozenset[str]
    own: Mapping[str, Mapping[str, Json]]
    kept_out: frozenset[str]


class Given(NamedTuple):
    """What both schedulers are given: nodes, pods that are bound there already, and pods to decide on.

    statuses: what kubelets say of settled pods, by name; leaving: those of them that are being deleted.
    devices: if there are any, the pods come one after the other.
    """

    nodes: list[Json]
    settled: list[Json]
    pods: list[Json]
    statuses: Mapping[str, Json] = NO_STATUSES
    leaving: tuple[str, ...] = ()
    devices: Devices | None = None


def draw(seed: int, n_pods: int) -> Given:
    """The cluster and the pods of one seed."""
    return _Draw(seed).given(n_pods)


class _Draw:
    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._seed = seed
        self._sizes = [self._rng.choice((5, 30, 90, 400, 1200, 3000)) * MIB for _ in range(N_IMAGES)]
        n_nodes = self._rng.choice((1, 2, 4, 7, 10, 14, 20))
        self._nodes = [self._node(f"s{seed}-n{i}") for i in range(n_nodes)]

    def given(self, n_pods: int) -> Given:
        settled = [
            self._settled(f"{name}-old-{i}", name)
            for name in _names(self._nodes)
            for i in range(self._rng.choice((0, 0, 1, 2, 3)))
        ]
        pods = [self._pod(f"s{self._seed}-p{i}") for i in range(n_pods)]
        statuses = {name: ENDED for name in _names(settled) if self._maybe(0.08)}
        leaving = tuple(name for name in _names(settled) if self._maybe(0.08))
        return Given(self._nodes, settled, pods, statuses, leaving)

    def _maybe(self, chance: float) -> bool:
        return self._rng.random() < chance

    # -- nodes -----------------------------------------------------------------------------------------

    def _node(self, name: str) -> Json:
        rng = self._rng
        labels = {"kubernetes.io/hostname": name}
        for key, values in (("zone", "a b c"), ("disk", "ssd hdd"), ("rank", "1 5 12 0 x")):
            if self._maybe(0.75):
                labels[key] = rng.choice(values.split())
        taints = [
            {"key": key, "value": value, "effect": effect}
            for key, value, effect, chance in (
                ("dedicated", "batch", "NoSchedule", 0.12),
                ("drain", "", "NoExecute", 0.06),
                ("level", rng.choice("2579"), "NoSchedule", 0.1),
                ("spot", "true", "PreferNoSchedule", 0.3),
                ("old", "", "PreferNoSchedule", 0.2),
            )
            if self._maybe(chance)
        ]
        has: Json = {
            "cpu": rng.choice(("2", "4", "8", "3500m", "16")),
            "memory": rng.choice(("4Gi", "8Gi", "7680Mi", "16Gi", "5e9")),
            "pods": rng.choice(("3", "6", "110", "110")),
        }
        for key, amounts, chance in (
            ("ephemeral-storage", "20Gi 100Gi", 0.8),
            (GPU, "1 4 8", 0.6),
            (TPU, "2 4", 0.3),
            (NIC, "1 2", 0.3),
            (PAGES, "512Mi 1Gi", 0.4),
        ):
            if self._maybe(chance):
                has[key] = rng.choice(amounts.split())
        images = [
            {"names": [self._image(k), f"{self._image(k, tag='')}@sha256:{k:064x}"], "sizeBytes": size}
            for k, size in enumerate(self._sizes)
            if self._maybe(0.4)
        ]
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self._maybe(0.07)},
            "status": {
                "allocatable": has,
                "capacity": has,
                "images": images,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    def _image(self, k: int, *, tag: str = ":latest") -> str:
        return f"registry.example:5000/s{self._seed}/image-{k}{tag}"

    # -- pods ------------------------------------------------------------------------------------------

    def _settled(self, name: str, node: str) -> Json:
        pod = self._pod(name, most_traits=1, among=(self._ports, self._init, self._overhead, self._whole))
        pod["spec"] |= {"nodeName": node, "schedulerName": "somebody-else"}
        return pod

    def _pod(
        self, name: str, *, most_traits: int = 3, among: tuple[Callable[[Json], None], ...] | None = None
    ) -> Json:
        containers = [self._container(f"c{i}") for i in range(self._rng.choice((1, 1, 1, 2, 3)))]
        spec: Json = {"schedulerName": self._rng.choice(NAMES), "containers": containers}
        traits = among or (
            *(self._ports, self._init, self._overhead, self._whole, self._devices, self._pages),
            *(self._selector, self._required, self._required, self._named, self._preferred, self._preferred),
            *(self._tolerations, self._tolerations, self._image_volume, self._greedy),
        )
        for trait in self._rng.sample(traits, self._rng.randint(0, min(most_traits, len(traits)))):
            trait(spec)
        return {"metadata": {"name": name}, "spec": spec}

    def _container(self, name: str) -> Json:
        rng = self._rng
        requests: Json = {}
        if self._maybe(0.7):
            requests["cpu"] = rng.choice(("0", "50m", "250m", "500m", "1", "1500m"))
        if self._maybe(0.6):
            requests["memory"] = rng.choice(("0", "64Mi", "300Mi", "1Gi", "1500M", "104857600000m"))
        if self._maybe(0.12):
            requests["ephemeral-storage"] = rng.choice(("1Gi", "5Gi"))
        resources = {"limits": requests} if self._maybe(0.1) else {"requests": requests}
        k = rng.randrange(N_IMAGES)
        image = rng.choice((self._image(k), self._image(k, tag=""), self._image(k, tag=":other")))
        return {"name": name, "image": image, "resources": resources}

    def _ports(self, spec: Json) -> None:
        rng = self._rng
        port: Json = {"containerPort": 80}
        if self._maybe(0.25) and "initContainers" not in spec:
            spec["hostNetwork"] = True
        else:
            port["hostPort"] = rng.choice((8080, 8081))
            port["protocol"] = rng.choice(("TCP", "TCP", "UDP"))
            port["hostIP"] = rng.choice(("", "0.0.0.0", "127.0.0.1", "10.0.0.1"))
        spec["containers"][0]["ports"] = [port]

    def _init(self, spec: Json) -> None:
        spec.pop("resources", None)
        made = []
        for i in range(self._rng.randint(1, 3)):
            one = self._container(f"i{i}")
            if self._maybe(0.5):
                one["restartPolicy"] = "Always"
                if self._maybe(0.2) and not spec.get("hostNetwork"):
                    one["ports"] = [{"containerPort": 81, "hostPort": 8081}]
            made.append(one)
        spec["initContainers"] = made

    def _overhead(self, spec: Json) -> None:
        spec["runtimeClassName"] = OVERHEAD_CLASS

    def _whole(self, spec: Json) -> None:
        """Requests of the pod as a whole, at least what its containers add up to."""
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            container["resources"] = {"requests": {"cpu": "100m"}} if self._maybe(0.5) else {}
        whole = {"cpu": "700m", "memory": "900Mi"}
        if self._maybe(0.5):
            del whole[self._rng.choice(("cpu", "memory"))]
        spec["resources"] = {"requests": whole}

    def _devices(self, spec: Json) -> None:
        for name in self._rng.sample((GPU, GPU, TPU, NIC), self._rng.choice((1, 1, 2))):
            self._limit(spec, name, str(self._rng.choice((1, 1, 2, 3))))

    def _pages(self, spec: Json) -> None:
        self._limit(spec, PAGES, "64Mi")
        self._limit(spec, "memory", "128Mi")

    @staticmethod
    def _limit(spec: Json, name: str, amount: str) -> None:
        resources = spec["containers"][0]["resources"]
        for kind in ("requests", "limits"):
            resources.setdefault(kind, {})
            resources[kind][name] = amount
        for key, value in list(resources["limits"].items()):
            resources["requests"].setdefault(key, value)

    def _greedy(self, spec: Json) -> None:
        """More than most nodes have."""
        spec.pop("resources", None)
        spec["containers"][0]["resources"] = {
            "requests": {self._rng.choice(("cpu", "memory", "ephemeral-storage")): "15G"}
        }
        if self._maybe(0.5):
            spec["containers"][0]["resources"]["requests"] = {"cpu": "7", "example.com/nobody-has-it": "1"}
            spec["containers"][0]["resources"]["limits"] = {"example.com/nobody-has-it": "1"}

    def _image_volume(self, spec: Json) -> None:
        reference = self._image(self._rng.randrange(N_IMAGES))
        spec["volumes"] = [{"name": "model", "image": {"reference": reference}}]

    # -- which nodes -----------------------------------------------------------------------------------

    def _selector(self, spec: Json) -> None:
        key, values = self._rng.choice((("zone", "abc"), ("disk", ("ssd", "hdd")), ("rank", ("5",))))
        spec["nodeSelector"] = {key: self._rng.choice(values)}

    def _requirement(self) -> Json:
        rng = self._rng
        operator = rng.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": "rank", "operator": operator, "values": [rng.choice(("0", "5", "3", "11"))]}
        key, values = rng.choice((("zone", "abcd"), ("disk", ("ssd", "hdd", "tape")), ("rank", ("5", "x"))))
        requirement: Json = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            requirement["values"] = rng.sample(values, rng.randint(1, 2))
        return requirement

    def _term(self) -> Json:
        return {"matchExpressions": [self._requirement() for _ in range(self._rng.choice((1, 1, 2)))]}

    def _required(self, spec: Json) -> None:
        terms = [self._term() for _ in range(self._rng.randint(1, 3))]
        self._affinity(spec)["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}

    def _named(self, spec: Json) -> None:
        """By matchFields: one node, all but one, or one that is not there."""
        names = [*_names(self._nodes), "nobody"]
        terms = []
        for _ in range(self._rng.randint(1, 2)):
            field = {
                "key": "metadata.name",
                "operator": self._rng.choice(("In", "NotIn")),
                "values": [self._rng.choice(names)],
            }
            terms.append({"matchFields": [field]} | (self._term() if self._maybe(0.2) else {}))
        self._affinity(spec)["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}

    def _preferred(self, spec: Json) -> None:
        terms = [
            {"weight": self._rng.choice((1, 10, 33, 100)), "preference": self._term()}
            for _ in range(self._rng.randint(1, 4))
        ]
        self._affinity(spec)["preferredDuringSchedulingIgnoredDuringExecution"] = terms

    @staticmethod
    def _affinity(spec: Json) -> Json:
        affinity: Json = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        return affinity

    def _tolerations(self, spec: Json) -> None:
        some = (
            {"operator": "Exists"},
            {"key": "dedicated", "value": "batch"},
            {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"},
            {"key": "drain", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            {"key": "level", "operator": "Gt", "value": "4", "effect": "NoSchedule"},
            {"key": "level", "operator": "Lt", "value": "6"},
            {"key": "spot", "operator": "Equal", "value": "true"},
            {"key": "spot", "value": "false"},
            {"key": "old", "operator": "Exists", "effect": "PreferNoSchedule"},
            {"operator": "Exists", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        )
        spec["tolerations"] = self._rng.sample(some, self._rng.randint(1, 3))


def _names(objects: list[Json]) -> list[str]:
    return [one["metadata"]["name"] for one in objects]

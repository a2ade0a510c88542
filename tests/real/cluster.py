"""A cluster to submit gangs to, in few words: nodes, gangs in four dialects, the scheduler, what became of
them.

`cluster.nodes(4, gpus=8)`, `cluster.schedule()`, `cluster.gang("a", pods=4, gpus=8)`, `cluster.whole("a")`.
Everything happens on a real kube-apiserver; waiting is watching (picture.py). Leaving the fixture stops the
scheduler in order and checks the whole history.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.pod_group import GROUPS_KEY
from tests.real.picture import (
    GPU,
    OURS,
    PATIENCE_S,
    Json,
    Picture,
    check,
    condition_of,
    is_live,
    node_of,
    reason_of,
)
from tests.real.process import Scheduler, service_account, write_config
from tests.support.applying import apply
from tests.support.processes import until

# Of a larger gang the first ones by name have the full text.
N_SPEAKERS = 5

REPO = Path(__file__).parents[2]
RBAC = REPO / "deploy" / "rbac.yaml"
CRD = REPO / "deploy" / "crds" / "scheduling.x-k8s.io_podgroups.yaml"
PODS = "/api/v1/namespaces/default/pods"
RACK = "topology.kubernetes.io/rack"
CORE_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
COSCHEDULING_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
DIALECTS = ("ours", "core", "coscheduling", "lightweight")
MERGE = "application/merge-patch+json"


class Cluster:
    """A real API server, its nodes, and at most one gangsched at a time."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.picture = Picture(plane, alive=self._alive)
        self.schedulers: list[Scheduler] = []
        self.inventory: dict[str, set[str]] = {}
        self.ours = {OURS}
        """Names of profiles of ours."""
        self.gangs: dict[str, int] = {}
        """min_count by gang, of those that must not be half bound when the test ends."""

    # -- nodes ---------------------------------------------------------------------------------------

    def nodes(self, n: int, *, gpus: int = 8, racks: int = 1, cpu: str = "64", first: int = 0) -> None:
        """`n` nodes n0, n1, … with an inventory of healthy GPUs each."""
        for i in range(first, first + n):
            devices = [{"id": f"GPU-{i}-{k}", "health": "Healthy", "numa": k // 4} for k in range(gpus)]
            self.node(f"n{i}", devices, cpu=cpu, rack=f"r{i % racks}")

    def node(self, name: str, devices: list[Json] | str, *, cpu: str = "64", rack: str = "r0") -> None:
        """One node; `devices` as its agent would list them, or any text in the inventory's place."""
        text = devices if isinstance(devices, str) else json.dumps({GPU: devices})
        n_gpus = 8 if isinstance(devices, str) else len(devices)
        metadata = {"name": name, "labels": {RACK: rack}, "annotations": {"gangsched.io/devices": text}}
        self.plane.request("POST", "/api/v1/nodes", {"metadata": metadata})
        room = {"cpu": cpu, "memory": "512Gi", "pods": "110", GPU: str(n_gpus)}
        status = {"status": {"allocatable": room, "capacity": room}}
        self.plane.request("PATCH", f"/api/v1/nodes/{name}/status", status, content_type=MERGE)
        healthy = [] if isinstance(devices, str) else [d["id"] for d in devices if d["health"] == "Healthy"]
        self.inventory[name] = set(healthy)

    def annotate_node(self, name: str, text: str) -> None:
        """What the node's agent would write."""
        patch = {"metadata": {"annotations": {"gangsched.io/devices": text}}}
        self.plane.request("PATCH", f"/api/v1/nodes/{name}", patch, content_type=MERGE)

    # -- pods and gangs ------------------------------------------------------------------------------

    def gang(
        self,
        name: str,
        *,
        pods: int,
        gpus: int = 8,
        dialect: str = "ours",
        min_count: int | None = None,
        members: Sequence[int] | None = None,
        group_spec: Json | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """A gang of `pods` named <name>-0, <name>-1, …, its object first where the dialect has one.

        `members`: only these of them, with no object: the others come later.
        """
        n = pods if min_count is None else min_count
        self.gangs[name] = n
        if members is None:
            self.group_object(name, n, dialect, group_spec, annotations)
        labels, own = words(dialect, name, n)
        if dialect == "core":
            spec["schedulingGroup"] = {"podGroupName": name}
        for k in range(pods) if members is None else members:
            self.pod(
                f"{name}-{k}",
                gpus=gpus,
                labels=labels,
                annotations={**own, **(annotations or {})},
                **spec,
            )

    def group_object(
        self,
        name: str,
        min_count: int,
        dialect: str,
        spec: Json | None = None,
        annotations: dict[str, str] | None = None,
    ) -> None:
        """The PodGroup of a dialect that has one."""
        metadata = {"name": name, "annotations": annotations or {}}
        if dialect == "core":
            body: Json = {"schedulingPolicy": {"gang": {"minCount": min_count}}, **(spec or {})}
            self.plane.request("POST", CORE_GROUPS, {"metadata": metadata, "spec": body})
        elif dialect == "coscheduling":
            kind = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
            body = {"minMember": min_count, **(spec or {})}
            self.plane.request("POST", COSCHEDULING_GROUPS, {**kind, "metadata": metadata, "spec": body})

    def pod(
        self,
        name: str,
        *,
        gpus: int = 0,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        scheduler: str = OURS,
        cpu: str = "1",
        metadata: Json | None = None,
        **spec: Any,
    ) -> Json:
        """One pod. It goes at once when it is evicted: no kubelet here would end it."""
        resources: Json = {"requests": {"cpu": cpu}}
        if gpus:
            resources["limits"] = {GPU: str(gpus)}
        body = {
            "metadata": {
                "name": name,
                "labels": labels or {},
                "annotations": annotations or {},
                **(metadata or {}),
            },
            "spec": {
                "schedulerName": scheduler,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "busybox", "resources": resources}],
                **spec,
            },
        }
        made: Json = self.plane.request("POST", PODS, body)
        return made

    def bind_by_hand(self, name: str, node: str) -> None:
        """As another scheduler would."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        self.plane.request("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})

    def delete(self, *names: str) -> None:
        """Pods by name, or all of a gang; gone when this returns."""
        for name in names:
            for pod in [one for one in list(self.picture.pods) if is_member(one, name)]:
                try:
                    self.plane.request("DELETE", f"{PODS}/{pod}", {"gracePeriodSeconds": 0})
                except ApiError as error:
                    if error.code != 404:  # a gang that has waited may have it evicted meanwhile
                        raise
                self.picture.until(lambda p=pod: p not in self.picture.pods, f"{pod} is gone")  # type: ignore[misc]

    # -- the scheduler -------------------------------------------------------------------------------

    def schedule(self, *, kubeconfig: Path | None = None, **settings: Any) -> Scheduler:
        """Starts gangsched; `settings` are fields of GangschedConfiguration."""
        number = len(self.schedulers)
        config = write_config(self.directory / f"config-{number}.yaml", **settings)
        account = kubeconfig or service_account(self.plane, self.directory / f"account-{number}.yaml")
        scheduler = Scheduler(config, account, self.directory / f"scheduler-{number}.log")
        self.schedulers.append(scheduler)
        return scheduler

    def _alive(self) -> str:
        """What is wrong with a scheduler that should be running: it broke."""
        return next((s.said for s in self.schedulers if "Traceback" in s.said), "")

    # -- what became of it ---------------------------------------------------------------------------

    def members(self, name: str) -> list[Json]:
        """The gang's pods, or the lone pod, as the watch shows them."""
        pods = self.picture.pods
        return [pods[one] for one in sorted(pods) if is_member(one, name)]

    def n_bound(self, name: str) -> int:
        return sum(bool(node_of(pod)) for pod in self.members(name) if is_live(pod))

    def whole(self, *names: str, pods: int | None = None) -> None:
        """Waits until each gang is bound whole (`pods` of it), or the lone pod."""
        for name in names:
            n = pods or self.gangs.get(name, 1)
            self.picture.until(lambda name=name, n=n: self.n_bound(name) >= n, f"{name} is bound")  # type: ignore[misc]

    def held(self, name: str, *, says: str, members: int | None = None) -> None:
        """Waits until every member says this reason, or who does; then nothing of the gang may be bound."""
        n = members or self.gangs.get(name, 1)

        def said() -> bool:
            reasons = {pod["metadata"]["name"]: reason_of(pod) for pod in self.members(name)}
            speakers = sorted(reasons)[:N_SPEAKERS]
            return len(reasons) >= n and all(
                says in reason or (one not in speakers and "by name say why" in reason)
                for one, reason in reasons.items()
            )

        self.picture.until(said, f"{name} is held with {says!r}")
        for pod in self.members(name):
            condition = condition_of(pod)
            assert not node_of(pod), f"{pod['metadata']['name']} is bound"
            assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")

    def unchanged(self, name: str, *, for_s: float = 1.5) -> None:
        """Whatever else happens for a while, nobody writes to the gang's pods."""
        versions = [pod["metadata"]["resourceVersion"] for pod in self.members(name)]
        time.sleep(for_s)  # nothing happens: there is no event to wait for
        assert [pod["metadata"]["resourceVersion"] for pod in self.members(name)] == versions

    def events(self, reason: str, *names: str) -> list[Json]:
        """Events with this reason about objects with these names."""
        items = self.plane.request("GET", EVENTS)["items"]
        return [e for e in items if e["reason"] == reason and e["regarding"]["name"] in names]

    def event(self, reason: str, *names: str) -> Json:
        """Waits for the one event with this reason about one of these objects."""
        self.eventually(lambda: bool(self.events(reason, *names)), f"{reason} about {names}")
        [found] = self.events(reason, *names)
        return found

    def eventually(self, seen: Any, what: str, *, timeout_s: float = PATIENCE_S) -> None:
        """For what is not a pod: asks again until it is so."""
        until(seen, what, timeout_s=timeout_s, story=self._story, check=self._check_alive)

    def _check_alive(self) -> None:
        trouble = self.picture.trouble or self._alive()
        assert not trouble, trouble

    def _story(self) -> str:
        """For a test that fails: what was said to people, and the scheduler's log."""
        items = self.plane.request("GET", EVENTS)["items"]
        told = [f"{e['regarding']['name']} {e['reason']}: {e.get('note')}" for e in items]
        logs = [scheduler.said for scheduler in self.schedulers]
        return "\n".join(["", "events:", *told, "logs:", *logs])

    # -- the fixture ---------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Rights, CRD, no events of earlier tests, eyes open."""
        apply(self.plane, RBAC, CRD)
        self.eventually(self._serves_crd, "the CRD is served")
        self.plane.request("DELETE", EVENTS)
        self.picture.start()

    def _serves_crd(self) -> bool:
        try:
            self.plane.request("GET", COSCHEDULING_GROUPS)
        except ApiError as error:
            if error.code in (404, 429):  # 429: its storage is being set up
                return False
            raise
        return True

    def check(self) -> None:
        """Ends the scheduler in order; then what must hold for every history."""
        for scheduler in self.schedulers:
            if scheduler.running:
                scheduler.stop_cleanly()
            scheduler.never_broke()
        self.picture.stop()
        assert not self.picture.trouble, self.picture.trouble
        check(self.picture.sights, self.inventory, self.ours)
        for name, n in self.gangs.items():
            assert self.n_bound(name) == 0 or self.n_bound(name) >= n, f"{name}: {self.n_bound(name)} of {n}"

    def close(self) -> None:
        """Whatever happened, nothing stays running."""
        self.picture.stop()
        for scheduler in self.schedulers:
            scheduler.kill()


def is_member(pod: str, name: str) -> bool:
    """Whether the pod so named is the gang's, or the lone pod."""
    return name in (pod, pod.rpartition("-")[0])


def words(dialect: str, name: str, n: int) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations by which a pod names its gang."""
    if dialect == "coscheduling":
        return {"scheduling.x-k8s.io/pod-group": name}, {}
    if dialect == "lightweight":
        prefix = "pod-group.scheduling.sigs.k8s.io"
        return {f"{prefix}/name": name, f"{prefix}/min-available": str(n)}, {}
    if dialect == "ours":
        return {"gangsched.io/pod-group": name}, {"gangsched.io/min-members": str(n)}
    return {}, {}


def together(*names: str) -> dict[str, str]:
    """The annotation of gangs that start together."""
    return {GROUPS_KEY: json.dumps(names)}


C = TypeVar("C", bound=Cluster)


@contextmanager
def checking(made: C) -> Iterator[C]:
    """It has rights and CRD in place; what must always hold is checked when the test has passed."""
    try:
        made.set_up()
        yield made
        made.check()
    finally:
        made.close()


@contextmanager
def checked(plane: ControlPlane, directory: Path) -> Iterator[Cluster]:
    """A cluster of this control plane, as `checking` has it."""
    with checking(Cluster(plane, directory)) as made:
        yield made


def is_let_through(plane: ControlPlane, pod: Json) -> bool:
    """Whether admission would take it now: what it checks pods by, it reads from watches."""
    try:
        plane.request("POST", f"{PODS}?dryRun=All", pod)
    except ApiError as error:
        if error.code == 403:
            return False
        raise
    return True

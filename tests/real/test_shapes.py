"""Every shape of a gang on a real API server: whole, one node short, restarted, more important, elastic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane
from tests.conftest import DEFINITIONS
from tests.real.cluster import MERGE, PODS, REPO, Cluster, checking
from tests.real.picture import Json, node_of, reason_of
from tests.real.process import Scheduler
from tests.real.shapes import NAMED, OPERATORS, SHAPES, SIZE, Shape

pytestmark = pytest.mark.real

INFER_JOBS = REPO / "deploy" / "infer-jobs" / "rbac.yaml"
INFERRED = ["JobSet", "LeaderWorkerSet", "RayCluster", "Kueue", "Job"]
NO_ROOM = "Insufficient nvidia.com/gpu"


class ShapeCluster(Cluster):
    """A cluster for one gang, g, of a shape."""

    shape: Shape
    made: tuple[str, ...] = ()

    def install(self, shape: Shape) -> None:
        """Its kinds are served when this returns."""
        self.shape = shape
        for crd in shape.crds:
            self._create(DEFINITIONS, crd)
        for path, _ in shape.objects(SIZE):
            self.eventually(lambda path=path: self._serves(path), f"{path} is served")

    def schedule(self, **settings: Any) -> Scheduler:
        """With a profile of the name that the shape's controller writes."""
        also_named = [self.shape.scheduler] if self.shape.scheduler else []
        self.ours.update(also_named)
        return super().schedule(**settings, also_named=also_named)

    def create(
        self,
        *,
        least: int = SIZE,
        objects: bool = True,
        of: slice = slice(None),
        priority: str = "",
        pods_say_it: bool = True,
    ) -> None:
        """The gang's object, and these of its pods; `priority`: the name of a class, which both or it say."""
        important = {"priorityClassName": priority} if priority else {}
        for path, body in self.shape.objects(least) if objects else ():
            if self.shape.status and "scheduling.sigs.k8s.io" not in path:  # Koordinator's has no such field
                body["spec"] |= important
            self._delete(f"{path}/{body['metadata']['name']}")
            self._create(path, body)
        for pod in self.shape.pods(least)[of]:
            pod["spec"] |= important if pods_say_it else {}
            self._create(PODS, pod)
            self.made = (*self.made, pod["metadata"]["name"])

    def delete_pods(self) -> None:
        for name in self.made:
            self._delete(f"{PODS}/{name}")
        self.picture.until(lambda: not {*self.made} & {*self.picture.pods}, "all are gone")
        self.made = ()

    def run_pods(self) -> None:
        """What kubelets would write."""
        for pod in self.gang_pods():
            path = f"{PODS}/{pod['metadata']['name']}/status"
            self.plane.request("PATCH", path, {"status": {"phase": "Running"}}, content_type=MERGE)

    def gang_pods(self) -> list[Json]:
        return [self.picture.pods[name] for name in self.made if name in self.picture.pods]

    def n_on_nodes(self) -> int:
        return sum(bool(node_of(pod)) for pod in self.gang_pods())

    def bound(self, n: int) -> None:
        self.picture.until(lambda: self.n_on_nodes() == n, f"{n} of the gang are bound")

    def waits(self, says: str, *, n_bound: int = 0) -> None:
        """A pod says this, and so many are bound."""
        self.picture.until(
            lambda: any(says in reason_of(p) for p in self.gang_pods() if not node_of(p)), f"{says!r} is said"
        )
        assert self.n_on_nodes() == n_bound

    def status(self) -> Json:
        found: Json = self.plane.request("GET", self.shape.status).get("status") or {}
        return found

    def _create(self, path: str, body: Json) -> None:
        self.plane.request("POST", path, body)

    def _delete(self, path: str) -> None:
        try:
            self.plane.request("DELETE", path, {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.code != 404:
                raise

    def _serves(self, path: str) -> bool:
        try:
            self.plane.request("GET", path)
        except ApiError as error:
            if error.code in (404, 429):
                return False
            raise
        return True


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path, name: str) -> Iterator[ShapeCluster]:
    shape = SHAPES[name]
    with checking(ShapeCluster(fresh_cluster, tmp_path)) as made:
        fresh_cluster.kubectl("apply", "-f", str(INFER_JOBS))
        made.install(shape)
        yield made
    for path, body in shape.objects(SIZE):
        made._delete(f"{path}/{body['metadata']['name']}")


@pytest.mark.parametrize("name", NAMED)
def test_whole_one_node_short_and_restarted(cluster: ShapeCluster, name: str) -> None:
    cluster.nodes(SIZE - 1)
    cluster.schedule()
    cluster.create()
    cluster.waits(NO_ROOM)
    cluster.nodes(1, first=SIZE - 1)
    cluster.bound(SIZE)
    cluster.delete_pods()
    cluster.create(objects=False, of=slice(SIZE - 1))
    cluster.waits(f"waits for members: {SIZE - 1} of {SIZE} exist")
    cluster.create(objects=False, of=slice(SIZE - 1, SIZE))
    cluster.bound(SIZE)


@pytest.mark.parametrize("name", SHAPES)
def test_a_more_important_gang_takes_room_for_its_least_and_grows_when_there_is_more(
    cluster: ShapeCluster, name: str
) -> None:
    least = SIZE - 1
    cluster.plane.kubectl("apply", "-f", "-", input=URGENT)
    cluster.nodes(least)
    cluster.schedule(inferGangs=INFERRED)
    for k in range(least):
        cluster.pod(f"low-{k}", gpus=8)
    cluster.whole(*(f"low-{k}" for k in range(least)))
    cluster.create(least=least, priority="urgent-gang")
    cluster.bound(least)
    cluster.waits(NO_ROOM, n_bound=least)
    cluster.nodes(1, first=least)
    cluster.bound(SIZE)


@pytest.mark.parametrize("name", ["Volcano", "KAI"])
def test_a_gang_takes_room_by_the_class_that_its_object_alone_names(cluster: ShapeCluster, name: str) -> None:
    """Where the administrator lists the class: whoever may write a PodGroup may name any."""
    cluster.plane.kubectl("apply", "-f", "-", input=URGENT)
    cluster.nodes(SIZE)
    cluster.schedule(podGroupPriorityClasses=["urgent-gang"])
    for k in range(SIZE):
        cluster.pod(f"low-{k}", gpus=8)
    cluster.whole(*(f"low-{k}" for k in range(SIZE)))
    cluster.create(priority="urgent-gang", pods_say_it=False)
    cluster.bound(SIZE)


URGENT = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent-gang}
value: 1000
"""

UNSCHEDULABLE = {"type": "Unschedulable", "reason": "NotEnoughResources", "status": "True"}
NODE_POOL = {"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True", "transitionID": "1"}
INITIALLY = {"type": "PodGroupInitiallyScheduled"}
STATUSES: dict[str, tuple[Json, Json, Json]] = {
    "core PodGroup": (
        {"conditions": [{**INITIALLY, "status": "False", "reason": "Unschedulable"}]},
        {"conditions": [{**INITIALLY, "status": "True", "reason": "Scheduled"}]},
        {},
    ),
    "Coscheduling": (
        {"phase": "Pending", "scheduled": 0},
        {"phase": "Scheduled", "scheduled": SIZE, "running": 0},
        {"phase": "Running", "running": SIZE},
    ),
    "Koordinator's PodGroup": (
        {"phase": "Pending", "scheduled": 0},
        {"phase": "Scheduled", "scheduled": SIZE, "running": 0},
        {"phase": "Running", "running": SIZE},
    ),
    "Volcano": (
        {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
        {"phase": "Running", "running": 0, "conditions": [{"type": "Scheduled", "status": "True"}]},
        {"phase": "Running", "running": SIZE},
    ),
    **dict.fromkeys(
        OPERATORS,
        (
            {"phase": "Pending", "scheduled": 0},
            {"phase": "Scheduled", "scheduled": SIZE, "running": 0},
            {"phase": "Running", "running": SIZE},
        ),
    ),
    "KAI": (
        {"pending": SIZE, "schedulingConditions": [NODE_POOL]},
        {"schedulingConditions": []},
        {"running": SIZE, "pending": 0},
    ),
}
"""What its object says: without room, bound, with all pods running."""


@pytest.mark.parametrize("name", STATUSES)
def test_its_object_tells_where_the_gang_stands(cluster: ShapeCluster, name: str) -> None:
    no_room, is_bound, runs = STATUSES[name]
    cluster.nodes(SIZE - 1)
    cluster.schedule()
    cluster.create()
    cluster.eventually(lambda: says(cluster.status(), no_room), f"its object says {no_room}")
    cluster.nodes(1, first=SIZE - 1)
    cluster.eventually(lambda: says(cluster.status(), is_bound), f"its object says {is_bound}")
    cluster.run_pods()
    cluster.eventually(lambda: says(cluster.status(), runs), f"its object says {runs}")
    if name == "Coscheduling":  # the CRD is ours: phase, minMember, scheduled, running
        row = cluster.plane.kubectl("get", "podgroups.scheduling.x-k8s.io", "g", "--no-headers").split()
        assert row[1:5] == ["Running", *[str(SIZE)] * 3]
    for field in ("conditions", "schedulingConditions"):
        assert all(one["lastTransitionTime"].endswith("Z") for one in cluster.status().get(field, ()))


def says(status: Json, wanted: Json) -> bool:
    """Whether all of `wanted` is in it; a list has as many entries, each with all that is wanted of it."""
    for key, value in wanted.items():
        found = status.get(key)
        if isinstance(value, list):
            entries = found if isinstance(found, list) else []
            if len(entries) != len(value) or not all(map(says, entries, value)):
                return False
        elif found != value:
            return False
    return True

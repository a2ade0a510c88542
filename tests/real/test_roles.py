"""Gangs of other systems with roles, marks that are not honoured, and two names, on a real API server.

Pods and PodGroups are as each system's users and controllers write them; the CRDs have their names and
versions and no schema, KAI's a status of its own. Gangs without roles are in test_shapes.py.
"""

from __future__ import annotations

import json

import pytest

from gangsched.errors import ApiError
from gangsched.lab.sim.objects import OURS
from tests.real.cluster import CORE_GROUPS, MERGE, PODS, Cluster
from tests.real.picture import Json, node_of, reason_of
from tests.real.shapes import group_crd

pytestmark = pytest.mark.real

VOLCANO, KAI = ("scheduling.volcano.sh", "v1beta1"), ("scheduling.run.ai", "v2alpha2")
YUNIKORN = "yunikorn.apache.org/"


def install(cluster: Cluster, kind: tuple[str, str]) -> None:
    """The system's CRD is served when this returns."""
    definition = group_crd(*kind, has_status=kind == KAI)
    cluster.plane.kubectl("apply", "-f", "-", input=json.dumps(definition))
    cluster.eventually(lambda: _is_served(cluster, kind), f"{kind[0]} is served")


def _is_served(cluster: Cluster, kind: tuple[str, str]) -> bool:
    try:
        cluster.plane.request("GET", groups_of(kind))
    except ApiError as error:
        if error.code in (404, 429):
            return False
        raise
    return True


def groups_of(kind: tuple[str, str]) -> str:
    return f"/apis/{kind[0]}/{kind[1]}/namespaces/default/podgroups"


def group(cluster: Cluster, kind: tuple[str, str], **spec: object) -> None:
    body = {"apiVersion": "/".join(kind), "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
    cluster.plane.request("POST", groups_of(kind), body)


def of_volcano(cluster: Cluster, role: str, k: int) -> None:
    own = {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": role}
    cluster.pod(f"g-{role}-{k}", gpus=8, annotations=own)


def of_kai(cluster: Cluster, role: str, k: int) -> None:
    labels = {"kai.scheduler/subgroup-name": role, "kai.scheduler/queue": "q"}
    cluster.pod(f"g-{role}-{k}", gpus=8, labels=labels, annotations={"pod-group-name": "g"})


def of_yunikorn(cluster: Cluster, role: str, k: int) -> None:
    """The application's first pod has the task groups, the others name theirs."""
    own = {YUNIKORN + "task-group-name": role}
    if role == "head":
        groups = [{"name": "head", "minMember": 1}, {"name": "worker", "minMember": 2}]
        own[YUNIKORN + "task-groups"] = json.dumps(groups)
    cluster.pod(f"g-{role}-{k}", gpus=8, labels={"applicationId": "g"}, annotations=own)


def prepare(cluster: Cluster, system: str) -> None:
    if system == "volcano":
        install(cluster, VOLCANO)
        group(cluster, VOLCANO, minMember=3, minTaskMember={"head": 1, "worker": 2}, queue="default")
    elif system == "kai":
        install(cluster, KAI)
        roles = [{"name": "head", "minMember": 1}, {"name": "worker", "minMember": 2}]
        group(cluster, KAI, minMember=3, subGroups=roles, queue="q")


CREATE = {"volcano": of_volcano, "kai": of_kai, "yunikorn": of_yunikorn}


def members(cluster: Cluster) -> list[Json]:
    return [pod for name, pod in cluster.picture.pods.items() if name.startswith("g-")]


def n_bound(cluster: Cluster, role: str = "") -> int:
    return sum(bool(node_of(p)) for p in members(cluster) if p["metadata"]["name"].startswith(f"g-{role}"))


def waits(cluster: Cluster, says: str) -> None:
    cluster.picture.until(lambda: any(says in reason_of(p) for p in members(cluster)), f"{says!r} is said")
    assert not n_bound(cluster)


@pytest.mark.parametrize("system", CREATE)
def test_each_role_has_its_minimum_or_nobody_starts(cluster: Cluster, system: str) -> None:
    prepare(cluster, system)
    cluster.nodes(2, gpus=8)
    cluster.schedule()
    CREATE[system](cluster, "head", 0)
    for k in (0, 1):
        CREATE[system](cluster, "head" if system != "yunikorn" else "worker", k + 1)
    if system != "yunikorn":  # three of three exist, and none of them is a worker
        waits(cluster, "gang default/g waits for members: 3 of 3 exist; role worker: 0 of 2")
        for k in (0, 1):
            CREATE[system](cluster, "worker", k)
    waits(cluster, "of 2 fit; member g-")
    cluster.nodes(1, gpus=8, first=2)
    cluster.picture.until(lambda: n_bound(cluster) == 3, "three are bound")
    assert n_bound(cluster, "worker") == 2
    if system != "yunikorn":
        cluster.plane.request("DELETE", f"{groups_of(VOLCANO if system == 'volcano' else KAI)}/g")


def test_a_volcano_crd_that_comes_after_its_pods_is_picked_up(cluster: Cluster) -> None:
    cluster.plane.kubectl("delete", "crd", f"podgroups.{VOLCANO[0]}", "--ignore-not-found", "--wait=true")
    cluster.nodes(2, gpus=8)
    cluster.schedule()
    for k in (0, 1):
        cluster.pod(f"g-{k}", gpus=8, annotations={"scheduling.k8s.io/group-name": "g"})
    waits(cluster, "waits for its PodGroup object")
    install(cluster, VOLCANO)
    group(cluster, VOLCANO, minMember=2)
    cluster.picture.until(lambda: n_bound(cluster) == 2, "both are bound")
    cluster.plane.request("DELETE", f"{groups_of(VOLCANO)}/g")


@pytest.mark.parametrize("mode", ["refuse", "warn", "ignore"])
def test_a_mark_that_is_not_honoured(cluster: Cluster, mode: str) -> None:
    cluster.nodes(1, gpus=8)
    cluster.schedule(foreignMarkers="refuse", profiles=[{"schedulerName": OURS, "foreignMarkers": mode}])
    cluster.pod("g-0", annotations={"gang.scheduling.koordinator.sh/min-available": "2"})
    if mode == "refuse":
        waits(
            cluster,
            "asks for something that gangsched does not do: gang.scheduling.koordinator.sh/min-available: the"
            " pod names no group",
        )
        patch = {"metadata": {"annotations": {"gang.scheduling.koordinator.sh/min-available": None}}}
        cluster.plane.request("PATCH", f"{PODS}/g-0", patch, content_type=MERGE)
    cluster.picture.until(lambda: n_bound(cluster) == 1, "it is bound")
    if mode == "warn":
        assert "this is ignored" in cluster.event("ForeignMarker", "g-0")["note"]


@pytest.mark.parametrize("late", [False, True], ids=["PodGroup first", "pods first"])
def test_a_jobs_basic_pod_group_gives_way_to_the_name_that_its_user_wrote(
    cluster: Cluster, *, late: bool
) -> None:
    """As the Job controller of 1.37 makes them for a Job whose template has our label."""
    body = {"metadata": {"name": "g-x7f2k"}, "spec": {"schedulingPolicy": {"basic": {}}}}
    cluster.nodes(1, gpus=8)
    cluster.schedule()
    if not late:
        cluster.plane.request("POST", CORE_GROUPS, body)
    for k in (0, 1):
        cluster.pod(
            f"g-{k}",
            gpus=8,
            labels={"gangsched.io/pod-group": "g"},
            annotations={"gangsched.io/min-members": "2"},
            schedulingGroup={"podGroupName": "g-x7f2k"},
        )
    if late:
        waits(cluster, "waits for its PodGroup object")
        cluster.plane.request("POST", CORE_GROUPS, body)
    waits(cluster, "gang default/g: 1 of 2 fit")
    cluster.nodes(1, gpus=8, first=1)
    cluster.picture.until(lambda: n_bound(cluster) == 2, "both are bound")

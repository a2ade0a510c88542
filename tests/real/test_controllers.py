"""Pods as real controllers make them, on a real kube-apiserver: whole or not at all, without naming a group.

The controllers themselves are not here; a small stand-in does what they do when pods start or fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests import controllers as made
from tests.controllers import Json
from tests.real.cluster import REPO, Cluster
from tests.real.controllers import Controllers
from tests.real.picture import node_of
from tests.real.process import write_config

pytestmark = pytest.mark.real

INFER_JOBS = REPO / "deploy" / "infer-jobs" / "rbac.yaml"
EVERYTHING = ["JobSet", "LeaderWorkerSet", "RayCluster", "Kueue", "Job"]
ROLES = {"driver": (1, 1), "workers": (1, 3)}
GATE = "kueue.x-k8s.io/topology"


@pytest.fixture
def controllers(cluster: Cluster) -> Controllers:
    cluster.plane.kubectl("apply", "-f", str(INFER_JOBS))
    return Controllers(cluster)


class Kind(NamedTuple):
    """Four pods of a whole node each. kind: of the object, "": all is on the pods."""

    kind: str
    object: Callable[[], Json] | None
    pods: Callable[[int], list[Json]]


KINDS = {
    "JobSet": Kind(
        "JobSet",
        lambda: made.job_set("js", ROLES),
        lambda attempt: made.job_set_pods("js", ROLES, attempt=attempt),
    ),
    "LeaderWorkerSet": Kind(
        "LeaderWorkerSet",
        lambda: made.leader_worker_set("lws", size=4),
        lambda attempt: made.leader_worker_pods("lws", size=4, revision=f"r{attempt}"),
    ),
    "RayCluster": Kind(
        "RayCluster",
        lambda: made.ray_cluster("ray", workers=3),
        lambda attempt: made.ray_pods("ray", workers=3),
    ),
    "Kueue pod group": Kind("", None, lambda attempt: made.kueue_group_pods("group", 4)),
    "Kueue Workload": Kind(
        "Workload",
        lambda: made.workload("job-w", asked=6, admitted=4),
        lambda attempt: made.admitted_pods("w", "job-w", 4),
    ),
    "Job": Kind(
        "Job",
        lambda: made.job("job", parallelism=4),
        lambda attempt: made.job_pods("job", 4, uid=f"uid-{attempt}"),
    ),
}


def lines(log: str, *words: str) -> list[str]:
    return [line for line in log.splitlines() if all(word in line for word in words)]


@pytest.mark.parametrize("name", KINDS)
def test_whole_one_node_short_and_the_next_attempt(
    cluster: Cluster, controllers: Controllers, name: str
) -> None:
    kind = KINDS[name]
    cluster.nodes(3, gpus=8)
    if kind.object is not None:
        controllers.install(kind.kind)
        controllers.put(kind.object())
    cluster.schedule(inferGangs=EVERYTHING)
    controllers.create(kind.pods(0))
    controllers.held("Insufficient nvidia.com/gpu")
    cluster.nodes(1, gpus=8, first=3)
    controllers.bound(4)
    controllers.delete_all()
    *first, last = kind.pods(1)
    controllers.create(first)
    controllers.held("waits for members: 3 of 4 exist")
    controllers.create([last])
    controllers.bound(4)


def test_a_crd_that_comes_late_is_read_from_then_on(cluster: Cluster, controllers: Controllers) -> None:
    controllers.uninstall("JobSet")
    cluster.nodes(4, gpus=8)
    scheduler = cluster.schedule()
    controllers.create(made.job_set_pods("late", ROLES))
    controllers.held("the API server does not serve this kind or does not let the scheduler read it")
    cluster.pod("lone", gpus=0)
    cluster.whole("lone")
    controllers.install("JobSet")
    controllers.put(made.job_set("late", ROLES))
    controllers.bound(4)
    said = [
        line for line in scheduler.said.splitlines() if "API not offered" in line and "owners.JobSet" in line
    ]
    assert len(said) == 1


def test_a_missing_right_costs_a_line_and_nobody_else(cluster: Cluster, controllers: Controllers) -> None:
    controllers.install("RayCluster")
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched"
    role = cluster.plane.request("GET", path)
    role["rules"] = [rule for rule in role["rules"] if "rayclusters" not in rule["resources"]]
    cluster.plane.request("PUT", path, role)
    cluster.nodes(4, gpus=8)
    scheduler = cluster.schedule()
    cluster.gang("a", pods=2, gpus=8)
    cluster.whole("a")
    controllers.create(made.ray_pods("ray", workers=1))
    controllers.held("the API server does not serve this kind or does not let the scheduler read it")
    assert len(lines(scheduler.said, "not allowed to follow", "owners.RayCluster")) == 1


def test_an_object_that_makes_no_sense_costs_its_own_pods_alone(
    cluster: Cluster, controllers: Controllers
) -> None:
    controllers.install("JobSet")
    bad = made.job_set("bad", ROLES)
    bad["spec"]["replicatedJobs"][0]["replicas"] = "many"
    controllers.put(bad)
    controllers.put(made.job_set("good", ROLES))
    cluster.nodes(8, gpus=8)
    cluster.schedule()
    controllers.create(made.job_set_pods("bad", ROLES))
    controllers.held("JobSet default/bad: Expected `int")
    controllers.create(made.job_set_pods("good", ROLES))
    controllers.bound(4)
    controllers.put(made.job_set("bad", ROLES))
    controllers.bound(8)


def test_the_leader_first_and_when_it_runs_its_workers_as_a_gang(
    cluster: Cluster, controllers: Controllers
) -> None:
    controllers.install("LeaderWorkerSet")
    controllers.put(made.leader_worker_set("ready", size=4, policy="LeaderReady"))
    cluster.nodes(3, gpus=8)
    cluster.schedule()
    leader, *workers = made.leader_worker_pods("ready", size=4)
    controllers.create([leader])
    controllers.bound(1)
    controllers.create(workers)
    controllers.held("Insufficient nvidia.com/gpu", n_bound=1)
    cluster.nodes(1, gpus=8, first=3)
    controllers.bound(4)


def test_gates_come_off_one_by_one_and_the_last_one_starts_the_gang_where_kueue_chose(
    cluster: Cluster, controllers: Controllers
) -> None:
    controllers.install("Workload")
    controllers.put(made.workload("job-tas", asked=3, admitted=None))
    cluster.nodes(3, gpus=8)
    controllers.name_hosts(3)
    cluster.schedule()
    controllers.create(made.admitted_pods("tas", "job-tas", 3, gates=(GATE,)))
    admission = made.workload("job-tas", asked=3, admitted=3)["status"]
    controllers.change("Workload", "job-tas", {"status": admission})
    controllers.ungate("tas-0", node="n2")
    controllers.ungate("tas-1", node="n0")
    controllers.held("waits for members: 2 of 3 exist, 1 more are gated")
    controllers.ungate("tas-2", node="n1")
    controllers.bound(3)
    pods = cluster.picture.pods
    assert [node_of(pods[f"tas-{k}"]) for k in range(3)] == ["n2", "n0", "n1"]


def test_jobs_that_start_in_order_start_whole_each(cluster: Cluster, controllers: Controllers) -> None:
    controllers.install("JobSet")
    controllers.put(made.job_set("order", ROLES, startupPolicy={"startupPolicyOrder": "InOrder"}))
    cluster.nodes(3, gpus=8)
    cluster.schedule()
    driver, *workers = made.job_set_pods("order", ROLES)
    controllers.create([driver])
    controllers.bound(1)
    controllers.create(workers)
    controllers.held("Insufficient nvidia.com/gpu", n_bound=1)
    cluster.nodes(1, gpus=8, first=3)
    controllers.bound(4)
    told = cluster.event("NotOneGang", driver["metadata"]["name"])
    assert "each of its roles is a gang of its own: spec.startupPolicy is InOrder" in told["note"]


def test_a_gang_that_can_never_gather_gets_the_reason(cluster: Cluster, controllers: Controllers) -> None:
    controllers.install("MPIJob")
    controllers.put(made.mpi_job("mpi", policy="WaitForWorkersReady"))
    cluster.group_object("mpi", 3, "coscheduling")
    cluster.nodes(4, gpus=8)
    cluster.schedule()
    controllers.create(made.mpi_workers("mpi", 2))
    controllers.held("MPIJob default/mpi never has all its pods at once: spec.launcherCreationPolicy is")


def test_another_configuration_takes_effect_on_pods_that_wait(
    cluster: Cluster, controllers: Controllers
) -> None:
    """Jobs are followed from then on; and what is no longer inferred starts as it comes."""
    cluster.nodes(3, gpus=8)
    scheduler = cluster.schedule(inferGangs=["JobSet"])
    controllers.install("JobSet")
    controllers.put(made.job_set("reload", ROLES))
    controllers.put(made.job("reload", parallelism=4))
    controllers.create(made.job_set_pods("reload", ROLES))
    controllers.held("Insufficient nvidia.com/gpu")
    write_config(cluster.directory / "config-0.yaml", inferGangs=[])
    controllers.bound(3)
    controllers.delete_all()
    write_config(cluster.directory / "config-0.yaml", inferGangs=["Job"])
    taken = "another configuration is in effect"
    cluster.eventually(lambda: scheduler.said.count(taken) == 2, "Jobs are inferred")
    controllers.create(made.job_pods("reload", 4))
    controllers.held("Insufficient nvidia.com/gpu")


def test_a_namespaces_label_is_followed_while_it_runs(cluster: Cluster, controllers: Controllers) -> None:
    """Jobs are not followed by default: the label has them followed."""
    label = "gangsched.io/infer-gangs"
    cluster.nodes(3, gpus=8)
    cluster.schedule()
    controllers.put(made.job("labelled", parallelism=4))
    namespace = "/api/v1/namespaces/default"
    merge = "application/merge-patch+json"
    cluster.plane.request("PATCH", namespace, {"metadata": {"labels": {label: "Job"}}}, content_type=merge)
    try:
        controllers.create(made.job_pods("labelled", 4))
        controllers.held("Insufficient nvidia.com/gpu")
        cluster.nodes(1, gpus=8, first=3)
        controllers.bound(4)
    finally:
        cluster.plane.request("PATCH", namespace, {"metadata": {"labels": {label: None}}}, content_type=merge)

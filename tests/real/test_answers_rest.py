"""Why is it pending? Gangs that rest for another reason than room, or whose scheduler has a configuration of
its own, each made on a real API server; docs/why-pending.md has the answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import ControlPlane
from tests.extenders.server import ExtenderServer
from tests.real.answers import BACKS_OFF, NOBODY, AskedCluster, shown
from tests.real.cluster import MERGE, checking, is_let_through
from tests.real.jobs import JobCluster, job_control_plane
from tests.real.picture import GPU
from tests.real.process import binding_gate
from tests.real.test_preemption import priority_class
from tests.support.processes import until

pytestmark = pytest.mark.real

BUDGET_PLUGIN = '''
from gangsched.plugin import SUCCESS, Status


class Budget:
    """Keeps pods out of the queue until their team has a budget."""

    name = "Budget"
    cured_by = ()

    @classmethod
    def create(cls, args):
        return cls()

    def pre_enqueue(self, pod):
        if "team" in (pod.metadata.labels or {}):
            return SUCCESS
        return Status.unschedulable("no team label: its budget is not known")
'''


@pytest.fixture
def cluster(fresh_cluster: ControlPlane, tmp_path: Path) -> Iterator[AskedCluster]:
    with checking(AskedCluster(fresh_cluster, tmp_path)) as made:
        yield made


class AskedJobs(AskedCluster, JobCluster):
    """Kubernetes' own Job controller makes the pods."""


QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def test_a_quota_refuses_members(assets: Assets, tmp_path: Path) -> None:
    with job_control_plane(assets) as plane, checking(AskedJobs(plane, tmp_path)) as cluster:
        cluster.nodes(4)
        cluster.schedule()
        hard = {f"requests.{GPU}": "16"}
        plane.request("POST", QUOTAS, {"metadata": {"name": "gpus"}, "spec": {"hard": hard}})
        used = {"status": {"hard": hard, "used": {f"requests.{GPU}": "0"}}}  # as its controller would
        plane.request("PATCH", f"{QUOTAS}/gpus/status", used, content_type=MERGE)
        asks = {"limits": {GPU: "17"}, "requests": {GPU: "17"}}
        spec = {"containers": [{"name": "c", "image": "c", "resources": asks}]}
        large = {"metadata": {"name": "large"}, "spec": spec}
        until(lambda: not is_let_through(plane, large), "admission has seen the quota")
        annotations = {"gangsched.io/min-members": "4"}
        template = {"labels": {"gangsched.io/pod-group": "train"}, "annotations": annotations}
        cluster.job("train", pods=4, gpus=8, template=template)
        told = cluster.told(
            "train",
            "2 of 4 members exist, 2 are missing. Job train could not create more: ",
            "exceeded quota: gpus",
            "To do: Raise the ResourceQuota",
            condition="exceeded quota: gpus",
        )
        shown("A ResourceQuota refuses members", told)
        more = {"spec": {"hard": {f"requests.{GPU}": "32"}}}
        plane.request("PATCH", f"{QUOTAS}/gpus", more, content_type=MERGE)
        status = {"status": {"hard": more["spec"]["hard"]}}
        plane.request("PATCH", f"{QUOTAS}/gpus/status", status, content_type=MERGE)
        cluster.whole("train", pods=4)


def test_a_scheduling_gate_missing_members_and_a_missing_object(cluster: AskedCluster) -> None:
    cluster.nodes(1)
    cluster.schedule()
    cluster.gang("gated", pods=2, gpus=1, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    told = cluster.told(
        "gated",
        "2 pods of it wait for scheduling gates: kueue.x-k8s.io/admission.",
        "To do: ",
        condition="scheduling gates",
    )
    shown("A scheduling gate", told)
    cluster.gang("train", pods=2, min_count=3, gpus=1)
    told = cluster.told(
        "train",
        "2 of 3 members exist, 1 is missing.",
        "To do: No controller owns its pods",
        condition="gang default/train waits for members: 2 of 3 exist",
    )
    shown("Members are missing", told)
    cluster.gang("lost", pods=2, gpus=1, dialect="coscheduling", members=(0, 1))
    told = cluster.told(
        "lost",
        "Its pods name the PodGroup lost, and no such object exists in default.",
        "To do: Create it",
        condition="waits for its PodGroup object, which does not exist",
    )
    shown("Its PodGroup does not exist", told)
    labels = {"gangsched.io/pod-group": "odd"}
    for k, n in enumerate(("2", "3")):
        annotations = {"gangsched.io/min-members": n}
        cluster.pod(f"odd-{k}", gpus=1, labels=labels, annotations=annotations)
    told = cluster.told(
        "odd",
        "It cannot be scheduled as it is written",
        "'2' (odd-0), '3' (odd-1)",
        "To do: Let all members say the same",
        condition="members disagree",
    )
    shown("It contradicts itself", told)


def test_pre_enqueue_keeps_it_out(cluster: AskedCluster) -> None:
    cluster.nodes(1)
    plugin = cluster.directory / "budget.py"
    plugin.write_text(BUDGET_PLUGIN)
    enabled = {"plugins": {"multiPoint": {"enabled": [{"name": "Budget"}]}}}
    cluster.schedule(plugin=plugin, profile=enabled)
    cluster.gang("train", pods=2, gpus=1)
    told = cluster.told("train", "Budget", "no team label", "To do: ", condition="no team label")
    shown("PreEnqueue keeps it out", told)


def test_gpus_that_others_use(cluster: AskedCluster) -> None:
    """With `queueing` its start is estimated; that takes some seconds, and is waited for."""
    cluster.nodes(2)
    cluster.schedule(queueing={})
    cluster.gang("old", pods=1, gpus=6, annotations={"gangsched.io/walltime": "3h"})
    cluster.whole("old")
    began = datetime.now(UTC)
    cluster.runs("old-0", f"{began:%Y-%m-%dT%H:%M:%SZ}")
    cluster.gang("train", pods=2, gpus=8)
    due = began + timedelta(hours=3)
    ends = f"default/old holds 6 {GPU} until about {due:%Y-%m-%d %H:%M} UTC (by its walltime)."
    told = cluster.told(
        "train",
        "An estimate: it starts about ",
        f"1 of 2 members fit. Member train-1 needs 8 {GPU} on one node",
        ends,
        f"To do: Make room for 1 more of its members (each member needs 8 {GPU} on one node)",
        "default/old (6 bound)",
        condition=ends,
    )
    assert told.code == 3
    shown("GPUs that others use", told)


def test_the_victims_have_not_gone(cluster: AskedCluster) -> None:
    priority_class(cluster.plane, "high")
    cluster.nodes(1)
    cluster.schedule()
    cluster.gang("low", pods=1, gpus=8, terminationGracePeriodSeconds=600)
    cluster.whole("low")
    cluster.gang("train", pods=1, gpus=8, priorityClassName="high")
    told = cluster.told(
        "train",
        "Room is reserved for it, and it waits for 1 pod to go: default/low-0.",
        "To do: ",
        "Next: It waits for up to",
        condition="default/low-0",
    )
    shown("It waits for its victims", told)
    cluster.delete("low")
    cluster.whole("train")


def test_it_is_being_bound(cluster: AskedCluster) -> None:
    cluster.nodes(1)
    with binding_gate(cluster.plane, cluster.directory, lambda pod, n: False) as (_, kubeconfig):
        scheduler = cluster.schedule(kubeconfig=kubeconfig)
        cluster.gang("train", pods=2, gpus=1)
        told = cluster.told("train", "It is being bound: 0 of 2 are bound; of the others, ", "are sent")
        shown("It is being bound", told)
        scheduler.kill()


def test_bound_in_part_without_eviction(cluster: AskedCluster) -> None:
    """Its scheduler was killed between two binds, and somebody else took the room."""
    cluster.nodes(1)
    gate = binding_gate(cluster.plane, cluster.directory, lambda pod, n: pod == "train-0")
    with gate as (_, kubeconfig):
        scheduler = cluster.schedule(kubeconfig=kubeconfig)
        cluster.gang("train", pods=2, gpus=4)
        cluster.picture.until(lambda: cluster.n_bound("train") == 1, "one is bound")
        scheduler.kill()
    cluster.gangs.clear()  # it stays so
    cluster.pod("other", gpus=4, scheduler="default-scheduler")
    cluster.bind_by_hand("other", "n0")
    cluster.schedule(allowEviction=False)
    told = cluster.told(
        "train",
        "1 of 2 members run; the rest is placed first in line.",
        "default/other (4 bound)",
        "since allowEviction is false",
        "To do: ",
        condition="Insufficient nvidia.com/gpu",
    )
    shown("It is bound in part", told)


def test_an_extender_refuses(cluster: AskedCluster) -> None:
    cluster.nodes(2)
    with ExtenderServer() as server:
        server.refuses = {"n0": "no licence on n0", "n1": "no licence on n1"}
        extender = {"urlPrefix": f"{server.url}/licences", "filterVerb": "filter", "weight": 1}
        cluster.schedule(kube={"extenders": [extender]})
        cluster.gang("train", pods=2, gpus=1)
        told = cluster.told("train", "no licence on n", "To do: ", condition="no licence on n")
        shown("An extender refuses every node", told)


def test_an_extender_is_not_there(cluster: AskedCluster) -> None:
    cluster.nodes(2)
    extender = {"urlPrefix": "http://127.0.0.1:1/licences", "filterVerb": "filter", "weight": 1}
    cluster.schedule(kube={"extenders": [extender]})
    cluster.gang("train", pods=2, gpus=1)
    told = cluster.told("train", "127.0.0.1:1", BACKS_OFF, "To do: ", condition="127.0.0.1:1")
    shown("An extender does not answer", told)


def test_a_standby_decides_nothing(cluster: AskedCluster) -> None:
    cluster.nodes(1)
    lease = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases"
    holder = {
        "holderIdentity": "gangsched-7d9c8f6b5-x2k4q_0f1e2d3c4b5a6978",
        "leaseDurationSeconds": 600,
        "acquireTime": "2126-11-23T12:00:00.000000Z",
        "renewTime": "2126-11-23T12:00:00.000000Z",
    }
    cluster.plane.kubectl("delete", "lease", "gangsched", "-n", "gangsched-system", "--ignore-not-found")
    cluster.plane.request("POST", lease, {"metadata": {"name": "gangsched"}, "spec": holder})
    elect = {"leaderElect": True, "resourceNamespace": "gangsched-system"}
    cluster.schedule(kube={"leaderElection": elect})
    cluster.gang("train", pods=2, gpus=1)
    told = cluster.told(
        "train", "does not lead", "no scheduler has placed it", "pod/gangsched-7d9c8f6b5-x2k4q 10259"
    )
    shown("The scheduler that was asked does not lead", told)
    cluster.plane.kubectl("delete", "lease", "gangsched", "-n", "gangsched-system")


def test_no_scheduler_runs_and_nobody_serves_the_name(cluster: AskedCluster) -> None:
    cluster.nodes(2)
    assert cluster.server == NOBODY
    cluster.gang("train", pods=2, gpus=1)
    told = cluster.told(
        "train",
        "no scheduler has placed it",
        "No scheduler explains it",
        "connection refused",
        "gangsched doctor",
        "To do: ",
    )
    assert told.condition == ""
    shown("No scheduler runs", told)
    of_gang = "gangsched: note: default/train-0 is of the gang default/train default/train: "
    told = cluster.told("train-0", f"{of_gang}It would fit as things are now", "No scheduler explains it")
    assert told.code == 3
    shown("A member is asked about", told)
    cluster.gang("wrong", pods=2, gpus=1, scheduler="gangshed")
    told = cluster.told("wrong", "'gangshed'", "did you mean gangsched?", "correct spec.schedulerName")
    assert told.code == 1
    shown("No scheduler serves its schedulerName", told)
    cluster.schedule()
    cluster.whole("train")
    told = cluster.told("wrong", "'gangshed'", "did you mean gangsched?", "correct spec.schedulerName")
    told = cluster.told("train", "It has started: 2 of 2 members are bound.")
    assert told.code == 0
    told = cluster.told("train-0", f"{of_gang}It has started: 2 of 2 members are bound.")
    assert told.code == 0

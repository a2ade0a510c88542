"""Jobs as Kubernetes' own controller runs them, with the gates that give each Job a PodGroup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gangsched.model.pod_group import RANK_KEY
from tests.real.cluster import RACK, REPO
from tests.real.jobs import JobCluster
from tests.real.picture import GPU, Json, annotation, node_of, reason_of
from tests.real.test_shapes import URGENT

pytestmark = pytest.mark.real

README = REPO / "README.md"
INFER_JOBS = REPO / "deploy" / "infer-jobs" / "rbac.yaml"
INDEX = "batch.kubernetes.io/job-completion-index"
GANG: Json = {"schedulingPolicy": {"gang": {}}}


@pytest.fixture
def cluster(job_cluster: JobCluster) -> JobCluster:
    return job_cluster


def test_a_job_that_asks_for_a_gang_is_bound_whole_or_not_at_all(cluster: JobCluster) -> None:
    cluster.nodes(3, gpus=8)
    cluster.schedule()
    cluster.job("a", pods=2, scheduling=GANG)
    cluster.whole("a")
    assert cluster.group_of("a")["spec"]["schedulingPolicy"]["gang"]["minCount"] == 2

    cluster.job("b", pods=2, scheduling=GANG)
    cluster.held("b", says=f"Insufficient {GPU}")
    assert len({reason_of(pod) for pod in cluster.members("b")}) == 1, "one reason for the whole gang"
    cluster.delete_job("a")
    cluster.whole("b")


def test_a_job_that_asks_for_nothing_starts_pod_by_pod_beside_a_gang_that_waits(cluster: JobCluster) -> None:
    cluster.nodes(2, gpus=8)
    cluster.schedule()
    cluster.job("gang", pods=3, scheduling=GANG)
    cluster.held("gang", says=f"Insufficient {GPU}")
    cluster.job("plain", pods=3)
    cluster.whole("plain", pods=2)
    policy = cluster.group_of("plain")["spec"]["schedulingPolicy"]
    assert policy == {"basic": {}}, "there is a PodGroup all the same"
    cluster.picture.until(
        lambda: [GPU in reason_of(pod) for pod in cluster.members("plain") if not node_of(pod)] == [True],
        "the third says why it waits",
    )
    assert cluster.n_bound("gang") == 0


def test_a_member_that_fails_is_replaced_and_the_gang_is_whole_again(cluster: JobCluster) -> None:
    cluster.nodes(3, gpus=8)
    cluster.schedule()
    cluster.job("a", pods=3, scheduling=GANG)
    cluster.whole("a")
    failed = cluster.members("a")[1]
    cluster.ends(failed, "Failed")
    # The controller waits ten seconds before it replaces a failed pod.
    cluster.whole("a", pods=3)
    [successor] = [pod for pod in cluster.members("a") if is_index(pod, like=failed)]
    assert node_of(successor) == node_of(failed), "the only room that is left"


def test_a_gang_that_lost_all_its_pods_starts_whole_again(cluster: JobCluster) -> None:
    cluster.nodes(2, gpus=8)
    cluster.schedule()
    cluster.job("a", pods=2, scheduling=GANG)
    cluster.whole("a")
    before = {pod["metadata"]["uid"] for pod in cluster.members("a")}
    for pod in cluster.members("a"):
        cluster.ends(pod, "Failed")
    # Whoever is quicker takes a node, so that the restarted gang has room for one only.
    cluster.pod("quick", gpus=8)
    cluster.whole("quick")
    cluster.held("a", says=f"Insufficient {GPU}", members=2)
    cluster.delete("quick")
    cluster.whole("a")
    assert not before & {pod["metadata"]["uid"] for pod in cluster.members("a")}


@pytest.mark.parametrize("scheduling", [GANG, None], ids=["by its PodGroup", "inferred"])
def test_a_job_that_is_resumed_starts_whole_without_the_index_that_has_succeeded(
    cluster: JobCluster, scheduling: Json | None
) -> None:
    cluster.plane.kubectl("apply", "-f", str(INFER_JOBS))
    cluster.nodes(3, gpus=8)
    cluster.schedule(inferGangs=["Job"])
    cluster.job("a", pods=3, scheduling=scheduling)
    cluster.whole("a", pods=3)
    cluster.ends(cluster.members("a")[0], "Succeeded")
    cluster.suspend("a")
    cluster.gangs["a"] = 2
    for name in ("quick", "other"):
        cluster.pod(name, gpus=8)
        cluster.whole(name)
    cluster.resume("a")
    cluster.held("a", says=f"Insufficient {GPU}")
    cluster.delete("quick")
    cluster.whole("a")


def test_a_more_important_job_takes_room_for_its_least_and_grows_when_there_is_more(
    cluster: JobCluster,
) -> None:
    cluster.plane.kubectl("apply", "-f", "-", input=URGENT)
    cluster.nodes(2, gpus=8)
    cluster.schedule()
    for name in ("low-0", "low-1"):
        cluster.pod(name, gpus=8)
        cluster.whole(name)
    least = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    cluster.job("a", pods=3, scheduling=least, priority="urgent-gang")
    cluster.whole("a", pods=2)
    cluster.gangs["a"] = 2
    assert cluster.group_of("a")["spec"]["schedulingPolicy"]["gang"]["minCount"] == 2
    cluster.picture.until(
        lambda: [GPU in reason_of(pod) for pod in cluster.members("a") if not node_of(pod)] == [True],
        "the third says why it waits",
    )
    cluster.nodes(1, gpus=8, first=2)
    cluster.whole("a", pods=3)


def is_index(pod: Json, *, like: Json) -> bool:
    """Whether it runs the same completion index as another pod of its Job."""
    return annotation(pod, INDEX) == annotation(like, INDEX)


@pytest.mark.parametrize("nodes", [4, 3], ids=["fits", "one node short"])
def test_the_readmes_job_goes_by_its_label_beside_the_group_that_its_controller_makes(
    cluster: JobCluster, nodes: int
) -> None:
    [job] = [block for block in yaml_blocks(README) if block["kind"] == "Job"]
    cluster.nodes(nodes, gpus=8)
    cluster.schedule()
    cluster.submit(job)
    if nodes == 4:
        cluster.whole("train")
    else:
        cluster.held("train", says=f"Insufficient {GPU}")
    assert cluster.group_of("train")["spec"]["schedulingPolicy"] == {"basic": {}}
    gangs = {annotation(pod, "gangsched.io/gang") for pod in cluster.members("train")}
    assert gangs == ({"default/train"} if nodes == 4 else {""})


@pytest.mark.parametrize("nodes", [3, 2], ids=["fits", "one node short"])
def test_an_indexed_job_is_a_gang_where_the_configuration_infers_it(cluster: JobCluster, nodes: int) -> None:
    cluster.plane.kubectl("apply", "-f", str(INFER_JOBS))
    cluster.nodes(nodes, gpus=8)
    cluster.schedule(inferGangs=["Job"])
    cluster.job("a", pods=3)
    cluster.gangs["a"] = 3
    if nodes == 3:
        cluster.whole("a")
        cluster.ends(cluster.members("a")[0], "Failed")
        cluster.whole("a")
    else:
        cluster.held("a", says=f"Insufficient {GPU}")


def test_the_indexes_of_a_job_lie_along_the_racks(cluster: JobCluster) -> None:
    """Two racks of nodes whose names are in turns in them, one node of each in use."""
    cluster.nodes(14, gpus=8, racks=2)
    cluster.schedule(topologyKey=RACK)
    for node in ("n4", "n7"):
        cluster.pod(f"taker-{node}", gpus=8, scheduler="default-scheduler")
        cluster.bind_by_hand(f"taker-{node}", node)
    cluster.job("a", pods=12, scheduling=GANG)
    cluster.whole("a")
    by_index = sorted(cluster.members("a"), key=lambda pod: int(annotation(pod, INDEX)))
    assert [annotation(pod, RANK_KEY) for pod in by_index] == [str(k) for k in range(12)]
    names = [node_of(pod) for pod in by_index]
    assert names == ["n0", "n2", "n6", "n8", "n10", "n12", "n1", "n3", "n5", "n9", "n11", "n13"]
    lost = by_index[7]
    cluster.ends(lost, "Failed")
    cluster.whole("a", pods=12)
    [successor] = [pod for pod in cluster.members("a") if is_index(pod, like=lost)]
    assert annotation(successor, RANK_KEY) == "7"


def test_a_job_that_asks_for_one_rack_is_placed_in_one_or_not_at_all(cluster: JobCluster) -> None:
    cluster.nodes(4, gpus=8, racks=2)
    cluster.schedule()
    for node in ("n0", "n1"):
        cluster.pod(f"taker-{node}", gpus=8, scheduler="default-scheduler")
        cluster.bind_by_hand(f"taker-{node}", node)
    one_rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    cluster.job("a", pods=2, scheduling={**GANG, **one_rack})
    cluster.held("a", says=RACK)
    cluster.delete("taker-n0")
    cluster.whole("a")
    assert {node_of(pod) for pod in cluster.members("a")} == {"n0", "n2"}


def yaml_blocks(page: Path) -> list[Json]:
    """What a page shows as YAML."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def test_the_group_says_that_it_waits_and_that_it_was_scheduled(cluster: JobCluster) -> None:
    cluster.nodes(1, gpus=8)
    cluster.schedule()
    cluster.job("a", pods=2, scheduling=GANG)
    cluster.held("a", says=f"Insufficient {GPU}")

    def condition() -> Json:
        found = cluster.group_of("a").get("status", {}).get("conditions", [{}])
        return {key: found[0].get(key, "") for key in ("type", "status", "reason")}

    kind = "PodGroupInitiallyScheduled"
    waits = {"type": kind, "status": "False", "reason": "Unschedulable"}
    cluster.eventually(lambda: condition() == waits, "it says that it waits")
    assert [line.split()[3] for line in table(cluster)] == ["Unschedulable"]
    cluster.nodes(1, gpus=8, first=1)
    cluster.whole("a")
    scheduled = {"type": kind, "status": "True", "reason": "Scheduled"}
    cluster.eventually(lambda: condition() == scheduled, "it says that it was scheduled")
    assert [line.split()[3] for line in table(cluster)] == ["Scheduled"]


def table(cluster: JobCluster) -> list[str]:
    """What a person sees: `kubectl get podgroups`, without its head."""
    return cluster.plane.kubectl("get", "podgroups.scheduling.k8s.io", "--no-headers").splitlines()

"""A person with kubectl at an embedded cluster that lives: nodes, kubelets, controllers, and no scheduler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kubectl.run import Kubectl

REPO = Path(__file__).parents[2]


def pod(
    name: str, *, node: str = "node-1", sleep: int = 100000, gpus: int = 2, restart: str = "Always"
) -> str:
    """A pod that comes with its node, as there is no scheduler here."""
    return f"""
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  nodeName: {node}
  restartPolicy: {restart}
  containers:
  - name: main
    image: busybox
    command: [sleep, "{sleep}"]
    resources:
      requests: {{cpu: 1}}
      limits: {{nvidia.com/gpu: {gpus}}}
"""


def table(text: str) -> list[list[str]]:
    """The rows of what was printed, split at the columns' gaps."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line]


@pytest.fixture
def web(living: Kubectl) -> Kubectl:
    """A cluster in which the pod `web` runs on node-1."""
    living("apply", "-f", "-", stdin=pod("web"))
    living("wait", "pod/web", "--for=condition=Ready", "--timeout=30s")
    return living


def test_pods_and_nodes_side_by_side(web: Kubectl) -> None:
    pods = table(web("get", "pods", "-o", "wide"))
    assert pods[0] == [
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "AGE",
        "IP",
        "NODE",
        "NOMINATED NODE",
        "READINESS GATES",
    ]
    assert pods[1][:4] == ["web", "1/1", "Running", "0"]
    assert pods[1][6:] == ["node-1", "<none>", "<none>"]
    nodes = table(web("get", "nodes", "-o", "wide"))
    assert nodes[0] == [
        "NAME",
        "STATUS",
        "ROLES",
        "AGE",
        "VERSION",
        "INTERNAL-IP",
        "EXTERNAL-IP",
        "OS-IMAGE",
        "KERNEL-VERSION",
        "CONTAINER-RUNTIME",
    ]
    assert [row[:3] for row in nodes[1:]] == [[f"node-{i}", "Ready", "<none>"] for i in range(4)]
    both = web("get", "pods,nodes", "-o", "wide")
    assert "pod/web" in both
    assert "node/node-3" in both


def test_a_pod_is_described_with_its_events(web: Kubectl) -> None:
    said = web("describe", "pod", "web")
    for text in (
        r"Node: +node-1/",
        r"Status: +Running",
        r"Container ID: +simulated://",
        r"nvidia.com/gpu: +2",
        r"QoS Class: +Burstable",
        r"Normal +Started .*kubelet",
    ):
        assert re.search(text, said), text


def test_a_node_is_described_with_its_pods(web: Kubectl) -> None:
    said = web("describe", "node", "node-1")
    for text in (
        r"topology.kubernetes.io/rack=rack-",
        r"Ready +True .*KubeletReady",
        r"nvidia.com/gpu: +8",
        rf"{web.namespace} +web +1 \(1%\)",
        r"nvidia.com/gpu +\d+ +\d+",
    ):
        assert re.search(text, said), text


def test_a_pod_s_life_is_watched(living: Kubectl) -> None:
    living("apply", "-f", "-", stdin=pod("earlier"))
    with living.following("get", "pods", "--watch", "--no-headers") as lines:
        next(lines)  # of the earlier one: from here on it watches
        living("apply", "-f", "-", stdin=pod("short", sleep=20, restart="Never"))
        states: list[str] = []
        for line in lines:
            if line.startswith("short"):
                states.append(line.split()[2])
            if states[-1:] == ["Completed"]:
                break
    assert list(dict.fromkeys(states)) == ["Pending", "ContainerCreating", "Running", "Completed"]


def test_events_are_watched(living: Kubectl) -> None:
    living("apply", "-f", "-", stdin=pod("earlier"))
    with living.following("get", "events", "--watch", "--no-headers") as lines:
        next(lines)  # of the earlier pod: from here on it watches
        living("apply", "-f", "-", stdin=pod("web"))
        seen: list[list[str]] = []
        for line in lines:
            if "pod/web" in line:
                seen.append(line.split())
            if seen and seen[-1][2] == "Started":
                break
    assert [row[1:4] for row in seen] == [
        ["Normal", reason, "pod/web"] for reason in ("Pulled", "Created", "Started")
    ]
    assert "pod/web" in living("get", "events", "--field-selector=involvedObject.name=web")
    assert "Pod/web" in living("events", "--for=pod/web")


def test_waiting_for_a_state_and_for_the_end(web: Kubectl) -> None:
    assert (
        web("wait", "pod/web", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
        == "pod/web condition met\n"
    )
    assert (
        web("delete", "pod", "web", "--wait=false") == f'pod "web" deleted from {web.namespace} namespace\n'
    )
    web("wait", "pod/web", "--for=delete", "--timeout=30s")
    assert web.run(["get", "pod", "web"]).err == 'Error from server (NotFound): pods "web" not found\n'


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("logs web", "cannot read logs of"),
        ("exec web -- ls", "cannot run a command in"),
        ("attach web", "cannot attach to"),
        ("port-forward pod/web :80", "cannot forward a port to"),
        ("cp web:/etc/passwd HERE/passwd", "cannot run a command in"),
    ],
)
def test_nothing_runs_in_a_pod_and_that_is_reported(
    web: Kubectl, command: str, refused: str, tmp_path: Path
) -> None:
    said = web.run(command.replace("HERE", str(tmp_path)).split())
    assert said.code == 1
    why = "the nodes of this cluster are simulated, nothing runs in its pods"
    assert said.err.splitlines()[-1].endswith(f"{refused} pod {web.namespace}/web: {why}")
    assert not list(tmp_path.iterdir())


def test_the_usage_of_pods_and_nodes_is_what_running_containers_request(web: Kubectl) -> None:
    assert table(web("top", "pods")) == [["NAME", "CPU(cores)", "MEMORY(bytes)"], ["web", "1000m", "0Mi"]]
    assert table(web("top", "pod", "web", "--containers")) == [
        ["POD", "NAME", "CPU(cores)", "MEMORY(bytes)"],
        ["web", "main", "1000m", "0Mi"],
    ]
    assert web.run(["top", "pods", "-l", "app=other"]).err.startswith("No resources found")
    assert web.run(["top", "pod", "nobody"]).code == 1
    nodes = {row[0]: row[1:] for row in table(web("top", "nodes"))}
    assert nodes["NAME"] == ["CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]
    assert nodes["node-1"] == ["1000m", "1%", "0Mi", "0%"]
    assert nodes["node-0"][0] == "0m"


def test_metrics_can_be_read_and_not_written(web: Kubectl) -> None:
    [columns, row] = table(web("get", "pods.metrics.k8s.io"))
    assert (columns[0], row[0]) == ("NAME", "web")
    groups = table(web("api-resources", "--api-group=metrics.k8s.io", "-o", "wide", "--no-headers"))
    assert [[row[0], row[-1]] for row in groups] == [["nodes", "get,list"], ["pods", "get,list"]]
    assert "MethodNotAllowed" in web.run(["delete", "pods.metrics.k8s.io", "web"]).err
    assert "MethodNotAllowed" in web.run(["get", "pods.metrics.k8s.io", "--watch"]).err


def test_a_node_is_drained_and_comes_back(living: Kubectl) -> None:
    living("apply", "-f", "-", stdin=pod("web", node="node-2"))
    living("wait", "pod/web", "--for=condition=Ready", "--timeout=30s")
    said = living("drain", "node-2", "--force", "--timeout=30s")
    assert said.splitlines()[0] == "node/node-2 cordoned"
    assert f"evicting pod {living.namespace}/web" in said
    assert said.splitlines()[-1] == "node/node-2 drained"
    assert table(living("get", "node", "node-2"))[1][1] == "Ready,SchedulingDisabled"
    assert living("get", "pods") == ""
    assert living("uncordon", "node-2") == "node/node-2 uncordoned\n"
    assert table(living("get", "node", "node-2"))[1][1] == "Ready"


def test_a_taint_moves_pods_away(living: Kubectl) -> None:
    living("apply", "-f", "-", stdin=pod("web", node="node-3"))
    living("wait", "pod/web", "--for=condition=Ready", "--timeout=30s")
    living("taint", "node", "node-3", "broken=yes:NoExecute")
    living("wait", "pod/web", "--for=delete", "--timeout=30s")
    living("taint", "node", "node-3", "broken-")


def test_a_pod_that_does_not_fit_is_refused_by_its_node(living: Kubectl) -> None:
    living("apply", "-f", "-", stdin=pod("big").replace("cpu: 1", "cpu: 1000"))
    living("wait", "pod/big", "--for=jsonpath={.status.phase}=Failed", "--timeout=30s")
    assert table(living("get", "pods"))[1][2] == "OutOfcpu"


def test_a_job_makes_pods_and_goes_with_them(living: Kubectl) -> None:
    living("create", "job", "train", "--image=busybox", "--", "sleep", "1")
    [name] = table(living("wait", "pod", "-l", "job-name=train", "--for=create", "--timeout=30s"))[0]
    assert name.startswith("pod/train-")
    living("delete", "job", "train")
    living("wait", "pod", "-l", "job-name=train", "--for=delete", "--timeout=30s")
    assert living("get", "pods") == ""


def test_a_namespace_goes_with_all_that_is_in_it(living: Kubectl) -> None:
    name = f"{living.namespace}-more"
    living("create", "namespace", name)
    living("create", "configmap", "a", "-n", name)
    assert living("delete", "namespace", name, "--timeout=30s") == f'namespace "{name}" deleted\n'
    assert living.run(["get", "namespace", name]).code == 1


def test_resources_and_versions_are_listed(living: Kubectl) -> None:
    rows = table(living("api-resources", "--sort-by=name"))
    assert rows[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["pods", "po", "v1", "true", "Pod"] in rows
    assert ["podgroups", "scheduling.k8s.io/v1beta1", "true", "PodGroup"] in rows
    verbs = living("api-resources", "--api-group=coordination.k8s.io", "-o", "wide")
    assert "create,delete,deletecollection,get,list,patch,update,watch" in verbs
    versions = living("api-versions").split()
    assert {"v1", "batch/v1", "scheduling.k8s.io/v1", "scheduling.k8s.io/v1beta1"} <= set(versions)
    assert "Server Version: v1.37." in living("version")
    assert "system:admin" in living("auth", "whoami")
    assert living("auth", "can-i", "--list", "--no-headers").split()[0] == "*.*"


def test_fields_are_explained(living: Kubectl) -> None:
    said = living("explain", "pod.spec")
    assert re.search(r"KIND: +Pod\nVERSION: +v1\n\nFIELD: spec <PodSpec>", said)
    assert re.search(
        r"containers\t<\[\]Container> -required-\n +List of containers belonging to the pod", said
    )
    deeper = living("explain", "pods.spec.containers", "--recursive")
    assert re.search(r"  resources\t<ResourceRequirements>\n    claims\t<\[\]ResourceClaim>", deeper)
    assert "minCount\t<integer>" in living("explain", "podgroups.spec.schedulingPolicy.gang")


def test_what_is_applied_to_a_cluster_is_applied_here(living: Kubectl) -> None:
    living.namespace = ""
    created = living("apply", "-k", str(REPO / "deploy")).splitlines()
    assert "deployment.apps/gangsched created" in created
    assert all(line.endswith(" created") for line in created)
    again = living("apply", "-k", str(REPO / "deploy")).splitlines()
    assert [line.rpartition(" ")[0] for line in again] == [line.rpartition(" ")[0] for line in created]
    # The budget's selector is a map that is replaced whole: a real server says the same of it.
    changed = [line for line in again if not line.endswith(" unchanged")]
    assert changed == ["poddisruptionbudget.policy/gangsched configured"]
    living("apply", "--server-side", "--force-conflicts", "-k", str(REPO / "deploy"))
    assert living("get", "podgroups.scheduling.x-k8s.io", "-A") == ""
    assert "minMember\t<integer>" in living("explain", "podgroups.scheduling.x-k8s.io.spec")
    deleted = living("delete", "-k", str(REPO / "deploy"), "--ignore-not-found", "--wait=false").splitlines()
    assert deleted[0] == 'namespace "gangsched-system" deleted'


@pytest.mark.parametrize("sample", sorted(each.name for each in (REPO / "config" / "samples").glob("*.yaml")))
def test_samples_are_accepted(living: Kubectl, sample: str) -> None:
    living("apply", "-f", str(REPO / "deploy" / "crds"))
    said = living(
        "apply", "-f", str(REPO / "config" / "samples" / sample), "--dry-run=server", "--validate=strict"
    )
    assert all(line.endswith("created (server dry run)") for line in said.splitlines())

"""Plugins from outside on a real kube-apiserver: hooks that read, write, wait, fail and hang."""

from __future__ import annotations

import http.server
import json
import ssl
import textwrap
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.errors import ApiError
from gangsched.lab.controlplane.daemon import free_ports
from tests.conftest import DEFINITIONS
from tests.real.cluster import REPO, Cluster
from tests.real.picture import Json, condition_of, node_of, reason_of
from tests.real.process import Scheduler, service_account, write_config

pytestmark = pytest.mark.real

SAMPLES = REPO / "config" / "samples" / "plugins"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
KEY = "example.com/first-node"


def schedule(cluster: Cluster, plugin: Path, *names: str, port: int = 0, **settings: Any) -> Scheduler:
    """gangsched with the plugins `names` of a file in its profile."""
    number = len(cluster.schedulers)
    path = write_config(cluster.directory / f"plugged-{number}.yaml", **settings)
    documents = list(yaml.safe_load_all(path.read_text()))
    plugins = {"multiPoint": {"enabled": [{"name": name} for name in names]}}
    documents[0]["profiles"] = [{"schedulerName": "gangsched", "plugins": plugins}]
    path.write_text(yaml.safe_dump_all(documents))
    account = service_account(cluster.plane, cluster.directory / f"plugged-account-{number}.yaml")
    log = cluster.directory / f"plugged-{number}.log"
    scheduler = Scheduler(path, account, log, port=port, plugins=[plugin])
    cluster.schedulers.append(scheduler)
    return scheduler


def own_plugin(cluster: Cluster, source: str) -> Path:
    path = cluster.directory / "own.py"
    head = "import asyncio, pathlib\nfrom gangsched.plugin import SUCCESS, Status\n"
    path.write_text(head + textwrap.dedent(source))
    return path


@pytest.fixture
def owner(cluster: Cluster) -> Iterator[Json]:
    """The Job "train", which nothing runs: its pods are made by the test."""
    containers = [{"name": "main", "image": "busybox"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    body = {"metadata": {"name": "train"}, "spec": {"suspend": True, "template": template}}
    made: Json = cluster.plane.request("POST", JOBS, body)
    yield made
    cluster.plane.kubectl("delete", "job", "train", "--cascade=background")


def reference_to(owner: Json) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def pod_of(cluster: Cluster, owner: Json, name: str, *, gpus: int) -> None:
    made = cluster.pod(name, gpus=gpus, schedulingGates=[{"name": "example.com/owner"}])
    patch = {"metadata": {"ownerReferences": [reference_to(owner)]}, "spec": {"schedulingGates": []}}
    path = f"/api/v1/namespaces/default/pods/{made['metadata']['name']}"
    cluster.plane.request("PATCH", path, patch, content_type="application/merge-patch+json")


def test_a_jobs_later_pods_go_where_its_first_one_ran(cluster: Cluster, owner: Json) -> None:
    cluster.plane.kubectl("apply", "-f", str(SAMPLES / "sticky_node_rbac.yaml"))
    cluster.nodes(3)
    schedule(cluster, SAMPLES / "sticky_node.py", "StickyNode")
    pod_of(cluster, owner, "train-a", gpus=8)
    cluster.whole("train-a")
    [first] = cluster.members("train-a")

    def annotated() -> bool:
        meta = cluster.plane.request("GET", f"{JOBS}/train")["metadata"]
        return bool(meta.get("annotations", {}).get(KEY) == node_of(first))

    cluster.eventually(annotated, "the job is annotated with the node")
    pod_of(cluster, owner, "train-b", gpus=8)
    cluster.held("train-b", says=f"node(s) were not {node_of(first)}, where its owner first ran", members=1)
    cluster.delete("train-a")
    cluster.whole("train-b")
    [second] = cluster.members("train-b")
    assert node_of(second) == node_of(first)


KUBEVIRT = "/apis/kubevirt.io/v1/namespaces/default"


def kubevirt_crd(kind: str) -> Json:
    """One of KubeVirt's kinds, with a status that its controllers write apart."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kubevirt.io"},
        "spec": {
            "group": "kubevirt.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{**version, "schema": {"openAPIV3Schema": anything}}],
        },
    }


@pytest.fixture
def kubevirt(cluster: Cluster) -> None:
    """The kinds VirtualMachine and VirtualMachineInstance, served."""
    made = [kubevirt_crd(kind) for kind in ("VirtualMachine", "VirtualMachineInstance")]
    for definition in made:
        cluster.plane.request("POST", DEFINITIONS, definition)

    def are_served() -> bool:
        try:
            return all(
                cluster.plane.request("GET", f"{KUBEVIRT}/{one['spec']['names']['plural']}") for one in made
            )
        except ApiError:
            return False

    cluster.eventually(are_served, "the kinds are served")


def run_machine(cluster: Cluster, machine: Json, run: str) -> str:
    """What KubeVirt makes when a machine starts: an instance, and the pod that runs it."""
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": run, "ownerReferences": [reference_to(machine)]},
    }
    instance = cluster.plane.request("POST", f"{KUBEVIRT}/virtualmachineinstances", body)
    name = f"launcher-{run}"
    pod_of(cluster, instance, name, gpus=8)
    return name


def test_a_machine_starts_again_where_it_first_ran_through_two_owners(
    cluster: Cluster, kubevirt: None
) -> None:
    plane = cluster.plane
    plane.kubectl("apply", "-f", str(SAMPLES / "sticky_machine_rbac.yaml"))
    cluster.nodes(3)
    schedule(cluster, SAMPLES / "sticky_machine.py", "StickyMachine")
    body = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "desk"}}
    machine = plane.request("POST", f"{KUBEVIRT}/virtualmachines", body)
    first = run_machine(cluster, machine, "desk-1")
    cluster.whole(first)
    node = node_of(cluster.members(first)[0])

    def annotated() -> bool:
        meta = plane.request("GET", f"{KUBEVIRT}/virtualmachines/desk")["metadata"]
        return bool(meta.get("annotations", {}).get(KEY) == node)

    cluster.eventually(annotated, "the machine is annotated with the node")
    again = run_machine(cluster, machine, "desk-2")
    cluster.held(again, says=f"node(s) were not {node}, where its machine first ran", members=1)
    cluster.delete(first)
    cluster.whole(again)
    assert node_of(cluster.members(again)[0]) == node


APPROVAL = """
class Approval:
    name = "Approval"

    async def permit(self, group, siblings, handle):
        assert len(await handle.list("/api/v1/nodes")) == 4
        return Status.wait("nobody has approved it", timeout_s=600)
"""


def ask(port: int, path: str, token: str, method: str = "GET", body: str = "") -> tuple[int, str]:
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}{path}",
        method=method,
        data=body.encode() if body else None,
        headers={"Authorization": f"Bearer {token}"},
    )
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(request, context=tls, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_gang_waits_for_approval_until_somebody_who_may_gives_or_refuses_it(cluster: Cluster) -> None:
    kubectl = cluster.plane.kubectl
    for name in ("reader", "approver"):
        kubectl("create", "serviceaccount", name)
    rules = [
        {"nonResourceURLs": ["/permit"], "verbs": ["get"]},
        {"nonResourceURLs": ["/permit/default/*"], "verbs": ["post"]},
    ]
    for name, own in (("reader", rules[:1]), ("approver", rules)):
        meta = {"name": f"permit-{name}"}
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        cluster.plane.request("POST", f"{rbac}/clusterroles", {"metadata": meta, "rules": own})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **meta}
        binding = {"metadata": meta, "subjects": [subject], "roleRef": role}
        cluster.plane.request("POST", f"{rbac}/clusterrolebindings", binding)
    reader, approver = (kubectl("create", "token", name).strip() for name in ("reader", "approver"))
    cluster.nodes(4)
    [port] = free_ports(1)
    scheduler = schedule(cluster, own_plugin(cluster, APPROVAL), "Approval", port=port)
    cluster.gang("a", pods=2)
    cluster.gang("b", pods=2)
    cluster.held("a", says="waits: nobody has approved it")
    cluster.held("b", says="waits: nobody has approved it")
    cluster.eventually(lambda: "serving" in scheduler.said, "the pages are there")
    code, listed = ask(port, "/permit", reader)
    assert code == 200
    assert [one["group"] for one in json.loads(listed)["waiting"]] == ["default/a", "default/b"]
    assert ask(port, "/permit/default/a/allow", reader, "POST")[0] == 403
    assert ask(port, "/permit/default/a/allow", "nonsense", "POST")[0] == 401
    assert ask(port, "/permit/default/none/allow", approver, "POST")[0] == 404
    assert ask(port, "/permit/default/a/allow", approver, "POST") == (200, "default/a need not wait\n")
    cluster.whole("a")
    assert ask(port, "/permit/default/b/reject", approver, "POST", "over budget")[0] == 200
    cluster.eventually(
        lambda: any(
            "rejected by an operator: over budget" in str(event.get("note"))
            for event in cluster.events("GangAborted", "b-0")
        ),
        "the rejection is told",
    )
    assert cluster.n_bound("b") == 0


PREPARE = """
class Prepare:
    name = "Prepare"
    hook_timeout_s = 1.0
    seen = pathlib.Path(__file__).with_name("seen")

    async def pre_bind(self, pod, node_name, handle):
        name = pod.metadata.name
        with self.seen.open("a") as file:
            file.write(f"{name} ")
        if self.seen.read_text().split().count(name) == 1:
            if name == "a-1":
                raise RuntimeError("the volume is not there")
            if name == "b-1":
                await asyncio.sleep(3600)
        return SUCCESS
"""


def test_no_member_is_bound_before_all_are_prepared_and_a_failure_or_silence_costs_one_attempt(
    cluster: Cluster,
) -> None:
    cluster.nodes(4)
    scheduler = schedule(cluster, own_plugin(cluster, PREPARE), "Prepare")
    cluster.gang("a", pods=3, gpus=4)
    cluster.gang("b", pods=2, gpus=4)
    cluster.whole("a", "b")
    seen = (cluster.directory / "seen").read_text().split()
    assert {name: seen.count(name) for name in ("a-1", "b-1")} == {"a-1": 2, "b-1": 2}
    cluster.event("PluginFailed", "a-0")
    assert "a plugin failed" in scheduler.said
    assert "RuntimeError: the volume is not there" in scheduler.said
    assert "no answer in 1 s" in scheduler.said


def test_a_process_that_is_killed_while_it_prepares_a_gang_leaves_nothing_behind(cluster: Cluster) -> None:
    cluster.nodes(2)
    plugin = own_plugin(
        cluster,
        """
        class Prepare:
            name = "Prepare"
            seen = pathlib.Path(__file__).with_name("seen")

            async def pre_bind(self, pod, node_name, handle):
                first = not self.seen.exists()
                self.seen.touch()
                if first:
                    await asyncio.sleep(3600)
                return SUCCESS
        """,
    )
    first = schedule(cluster, plugin, "Prepare")
    cluster.gang("a", pods=2)
    cluster.eventually((cluster.directory / "seen").exists, "PreBind has begun")
    first.kill()
    assert cluster.n_bound("a") == 0
    schedule(cluster, plugin, "Prepare")
    cluster.whole("a")


def test_a_plugin_speaks_kubernetes_asyncio_with_the_schedulers_credentials(cluster: Cluster) -> None:
    cluster.nodes(1)
    plane = cluster.plane
    plane.kubectl("label", "namespace", "default", "example.com/frozen=true", "--overwrite")
    try:
        scheduler = schedule(cluster, SAMPLES / "frozen_namespaces.py", "FrozenNamespaces")
        cluster.gang("a", pods=2, gpus=1)
        cluster.held("a", says="namespace default is frozen (example.com/frozen)")
    finally:
        plane.kubectl("label", "namespace", "default", "example.com/frozen-")
    cluster.whole("a")
    scheduler.stop_cleanly()
    assert "Unclosed" not in scheduler.said


class _Budget(http.server.BaseHTTPRequestHandler):
    """A budget service: answers with its server's `answer`, and notes what it is asked."""

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(said["name"])  # type: ignore[attr-defined]
        body = json.dumps(self.server.answer).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Not to stderr."""


def kept_out(cluster: Cluster, *, says: str) -> None:
    """The one pod of the gang a says this, as a pod that waits for a gate."""

    def said() -> bool:
        return any(says in reason_of(pod) for pod in cluster.members("a"))

    cluster.picture.until(said, f"a is kept out with {says!r}")
    [pod] = cluster.members("a")
    assert not node_of(pod)
    assert condition_of(pod)["reason"] == "SchedulingGated"


def test_a_pod_stays_out_of_the_queue_until_a_service_allows_it(cluster: Cluster) -> None:
    cluster.nodes(1)
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Budget)
    service.asked, service.answer = [], {"allowed": False, "reason": "spent"}  # type: ignore[attr-defined]
    threading.Thread(target=service.serve_forever, daemon=True).start()
    try:
        text = (SAMPLES / "ask_budget.py").read_text()
        own = cluster.directory / "ask_budget.py"
        url = f"http://127.0.0.1:{service.server_port}/ask"
        own.write_text(text.replace("http://localhost:8080/ask", url).replace("= 30.0", "= 1.0"))
        scheduler = schedule(cluster, own, "AskBudget")
        cluster.gang("a", pods=1, gpus=1)
        kept_out(cluster, says="AskBudget: spent")
        service.answer = {"allowed": "perhaps"}  # type: ignore[attr-defined]
        kept_out(cluster, says="the service did not answer")
        service.answer = {"allowed": True}  # type: ignore[attr-defined]
        cluster.whole("a")
        scheduler.stop_cleanly()
        assert set(service.asked) == {"a-0"}  # type: ignore[attr-defined]
        assert "Unclosed" not in scheduler.said
    finally:
        service.shutdown()
        service.server_close()

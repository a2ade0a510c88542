"""The control plane that the other real tests stand on does what they take for granted."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane, KubectlFailed
from tests.support.bodies import pod
from tests.support.processes import until

pytestmark = pytest.mark.real

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n0"},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def node_of(control_plane: ControlPlane, name: str) -> str | None:
    found = control_plane.request("GET", f"/api/v1/namespaces/default/pods/{name}")
    node: str | None = found["spec"].get("nodeName")
    return node


def may_list_pods(control_plane: ControlPlane, kubeconfig_flag: str) -> bool:
    try:
        return control_plane.kubectl("get", "pods", kubeconfig_flag) == ""
    except KubectlFailed:
        return False


def test_server_says_its_version(control_plane: ControlPlane) -> None:
    assert control_plane.request("GET", "/version")["gitVersion"] == "v1.37.1"


def test_kubectl_creates_what_the_api_shows(fresh_cluster: ControlPlane) -> None:
    fresh_cluster.kubectl("create", "-f", "-", input=json.dumps(NODE))
    fresh_cluster.kubectl(
        "create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Pod"} | pod("p", cpu="1"))
    )
    assert fresh_cluster.kubectl("get", "nodes,pods", "-o", "name").split() == ["node/n0", "pod/p"]
    node = fresh_cluster.request("GET", "/api/v1/nodes/n0")
    assert node["status"]["allocatable"]["cpu"] == "4"
    assert "taints" not in node["spec"]


def test_nothing_is_left_over_from_the_test_before(fresh_cluster: ControlPlane) -> None:
    assert fresh_cluster.kubectl("get", "nodes,pods", "-A", "-o", "name") == ""


def test_kubectl_failure_carries_its_words(control_plane: ControlPlane) -> None:
    with pytest.raises(KubectlFailed, match=r'get pod nobody: .*"nobody" not found'):
        control_plane.kubectl("get", "pod", "nobody")


def test_core_pod_group_is_served(control_plane: ControlPlane) -> None:
    served = control_plane.request("GET", "/apis/scheduling.k8s.io/v1beta1")
    assert "podgroups" in {resource["name"] for resource in served["resources"]}


def test_one_write_binds_and_annotates(fresh_cluster: ControlPlane) -> None:
    fresh_cluster.request("POST", "/api/v1/nodes", NODE)
    fresh_cluster.request("POST", "/api/v1/namespaces/default/pods", pod("p", cpu="1"))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "annotations": {"example.test/devices": "0,1"}},
        "target": {"kind": "Node", "name": "n0"},
    }
    fresh_cluster.request("POST", "/api/v1/namespaces/default/pods/p/binding", binding)
    bound = fresh_cluster.request("GET", "/api/v1/namespaces/default/pods/p")
    assert bound["spec"]["nodeName"] == "n0"
    assert bound["metadata"]["annotations"] == {"example.test/devices": "0,1"}


@pytest.mark.parametrize("gang", [False, True])
def test_kube_scheduler_binds(fresh_cluster: ControlPlane, gang: bool) -> None:
    scheduler = fresh_cluster.start_kube_scheduler(gang=gang, config={"podMaxBackoffSeconds": 2})
    fresh_cluster.request("POST", "/api/v1/nodes", NODE)
    fresh_cluster.request("POST", "/api/v1/namespaces/default/pods", pod("p", cpu="1"))
    until(lambda: node_of(fresh_cluster, "p") == "n0", "p is bound to n0", story=scheduler.tail)


def test_killed_api_server_comes_back_with_its_data(fresh_cluster: ControlPlane) -> None:
    url = fresh_cluster.base_url
    fresh_cluster.request("POST", "/api/v1/namespaces/default/pods", pod("p", cpu="1"))
    fresh_cluster.kill_apiserver()
    with pytest.raises(ApiError, match="refused") as unheard:
        fresh_cluster.request("GET", "/version")
    assert unheard.value.code == 0
    fresh_cluster.start_apiserver()
    assert fresh_cluster.base_url == url
    assert node_of(fresh_cluster, "p") is None


def test_named_user_has_the_rights_that_rbac_gives(control_plane: ControlPlane) -> None:
    assets = control_plane.assets
    with ControlPlane(assets=assets, users={"bob": ["devs"]}, gang_api=False) as control_plane:
        bob = f"--kubeconfig={control_plane.kubeconfig_of('bob')}"
        with pytest.raises(KubectlFailed, match='User "bob" cannot list'):
            control_plane.kubectl("get", "pods", bob)
        # Not the role `view`: it is put together by the controller manager, which nobody runs here.
        control_plane.kubectl("create", "clusterrole", "reader", "--verb=list", "--resource=pods")
        control_plane.kubectl("create", "clusterrolebinding", "r", "--clusterrole=reader", "--group=devs")
        until(lambda: may_list_pods(control_plane, bob), "bob may list pods")
        data_dir = control_plane.data_dir
    assert not data_dir.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends the servers of a killed parent")
def test_servers_end_with_a_killed_parent(control_plane: ControlPlane) -> None:
    code = (
        "import threading, time\n"
        "from gangsched.lab.controlplane.processes import ControlPlane\n"
        "plane = ControlPlane()\n"
        # From a thread that ends: its servers must not end with it.
        "thread = threading.Thread(target=plane.start); thread.start(); thread.join(); time.sleep(0.5)\n"
        "print(plane.etcd.pid, plane.apiserver.pid, plane.data_dir, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    etcd, apiserver, data_dir = parent.stdout.readline().split()
    servers = [psutil.Process(int(pid)) for pid in (etcd, apiserver)]
    assert [server.name() for server in servers] == ["etcd", "kube-apiserver"]
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(servers, timeout=60)
    assert not alive
    subprocess.run(["rm", "-rf", data_dir], check=True)
    assert os.path.basename(data_dir).startswith("gangsched-controlplane-")

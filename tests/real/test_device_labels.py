"""Devices as labels on a real API server: agents and scheduler as processes, restarts, what is refused.

That a pod's node and its labels come in one event, and that no device has two owners at any time, is what
the watch of every test here is checked for at its end (picture.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.process import ACCOUNT, NAMESPACE, Site, kubeconfig_of
from tests.agent.process import DEPLOY as AGENT
from tests.real.cluster import EVENTS, Cluster
from tests.real.picture import LABEL, Json, annotation, ids_of, node_of

pytestmark = pytest.mark.real

KEY = f"main{LABEL}"
LISTED = "nvidia.com.devices.gangsched.io/gpu"
SICK = "nvidia.com.unhealthy-devices.gangsched.io/gpu"
UUIDS = [f"GPU-6f1c9a2e-b3d4-4c5f-8a1e-00000000000{k}" for k in range(4)]
IN_LABELS = {"allocationIn": "labels"}
FIELD = {"fieldRef": {"fieldPath": f"metadata.labels['{KEY}']"}}


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    """Agents with the rights of deploy/agent-labels."""
    plane = cluster.plane
    for rights in (AGENT / "rbac.yaml", AGENT.with_name("agent-labels") / "component" / "rbac.yaml"):
        plane.kubectl("apply", "-f", str(rights))
    token = plane.kubectl("create", "token", ACCOUNT, f"--namespace={NAMESPACE}").strip()
    made = Site(plane, tmp_path, kubeconfig_of(plane, token, tmp_path / "agent.kubeconfig"))
    try:
        yield made
    finally:
        made.close()


def start_agent(site: Site, node: str) -> None:
    config = site.directory / "agent.yaml"
    config.write_text("apiVersion: gangsched.io/v1\nkind: AgentConfiguration\ninventoryIn: labels\n")
    site.agent(node, f"--config={config}")


def listed(site: Site, node: str) -> tuple[str | None, str | None]:
    """What its two labels say."""
    labels = site.plane.request("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"]
    return labels.get(LISTED), labels.get(SICK)


def labels_of(cluster: Cluster, gang: str) -> list[str]:
    return sorted(pod["metadata"]["labels"][KEY] for pod in cluster.members(gang))


def test_agents_list_in_labels_and_pods_get_labels_over_restarts_of_both(
    cluster: Cluster, site: Site, tmp_path: Path
) -> None:
    ids = [f"g{k}" for k in range(8)]
    for name in ("n0", "n1"):
        site.node(name)
        site.devices(name, *ids)
        start_agent(site, name)
        cluster.inventory[name] = set(ids)
        site.until(lambda name=name: listed(site, name) == (".".join(ids), None), f"{name} lists them")  # type: ignore[misc]
        node = site.plane.request("GET", f"/api/v1/nodes/{name}")["metadata"]
        assert "gangsched.io/devices" not in node.get("annotations", {})
    first = cluster.schedule(devices=IN_LABELS)
    env = [{"name": "GPUS", "valueFrom": FIELD}]
    containers = [
        {"name": "main", "image": "busybox", "env": env, "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    ]
    cluster.gang("a", pods=2, containers=containers)
    cluster.whole("a")
    for pod in cluster.members("a"):
        assert not {key for key in pod["metadata"]["annotations"] if "devices" in key}
        assert pod["metadata"]["labels"][KEY].split(".") == ids_of(pod)
        assert annotation(pod, "gangsched.io/gang")
    held = {(node_of(pod), one) for pod in cluster.members("a") for one in ids_of(pod)}

    first.kill()
    site.agents[0].kill()
    cluster.schedule(devices=IN_LABELS)
    start_agent(site, "n0")
    cluster.gang("b", pods=4, gpus=2)
    cluster.whole("b")
    taken = {(node_of(pod), one) for pod in cluster.members("b") for one in ids_of(pod)}
    assert (len(held), len(taken), held & taken) == (8, 8, set())
    cluster.gang("c", pods=1, gpus=1)
    cluster.held("c-0", says="Insufficient")

    said = devices_command(site, tmp_path)
    rows = {(node["name"], row["id"]): row for node in said for row in node["devices"]}
    assert {at for at, row in rows.items() if row["holders"]} == held | taken


def devices_command(site: Site, tmp_path: Path) -> list[Json]:
    """`gangsched devices -o json`."""
    path = kubeconfig_of(site.plane, site.plane.token, tmp_path / "admin.kubeconfig")
    command = [sys.executable, "-m", "gangsched.command.cli", "devices", f"--kubeconfig={path}", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[Json] = json.loads(done.stdout)
    return found


def test_a_sick_device_is_kept_out_and_a_list_that_does_not_fit_is_reported(
    cluster: Cluster, site: Site
) -> None:
    site.node("n0")
    site.devices("n0", "g0", "g1")
    start_agent(site, "n0")
    cluster.inventory["n0"] = {"g0", "g1"}
    site.until(lambda: listed(site, "n0") == ("g0.g1", None), "n0 lists them")
    site.devices("n0", "g0", "g1", sick=("g0",))
    site.until(lambda: listed(site, "n0") == ("g0.g1", "g0"), "g0 is sick")
    cluster.schedule(devices=IN_LABELS)
    cluster.gang("a", pods=1, gpus=1)
    cluster.whole("a")
    assert labels_of(cluster, "a") == ["g1"]

    site.devices("n0", "g0", "g1", *UUIDS)
    site.until(lambda: listed(site, "n0") == ("g0.g1", None), "as it was, with the health of today")
    cluster.eventually(lambda: bool(told(cluster)), "an Event about the node")
    assert "6 IDs joined by '.' have 169 characters, a label at most 63" in told(cluster)[0]["note"]


def told(cluster: Cluster) -> list[Json]:
    events = cluster.plane.request("GET", EVENTS)["items"]
    return [one for one in events if one["reason"] == "DevicesNotListed" and one["regarding"]["name"] == "n0"]


def test_a_gang_whose_ids_fit_no_label_is_refused_before_anything_is_bound(cluster: Cluster) -> None:
    """The nodes' agents write annotations, in which any ID has room."""
    for name in ("n0", "n1"):
        cluster.node(name, [{"id": one, "health": "Healthy"} for one in UUIDS])
    cluster.schedule(devices=IN_LABELS)
    cluster.gang("a", pods=4, gpus=2)
    why = "2 node(s) where a label (63 characters) holds at most 1 IDs of nvidia.com/gpu, a container needs 2"
    cluster.held("a", says=why)
    cluster.gang("b", pods=4, gpus=1)
    cluster.whole("b")
    assert set(labels_of(cluster, "b")) <= set(UUIDS)

"""Simulated nodes: what they report, what ails them, and what the control plane makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.errors import ConfigError
from gangsched.lab.apiserver.simulated import (
    Kill,
    build_nodes,
    check_kills,
    make_unhealthy,
    parse_kill,
    parse_unhealthy,
)
from gangsched.lab.apiserver.simulated.timetable import Timetable
from gangsched.lab.apiserver.strategy import Object
from gangsched.model.devices.annotations import parse_inventory
from tests.apiserver.simulated.scenario import EPOCH, GPU, World, gpu, pod

NODE = "node-0"
UNREACHABLE = {
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
}


def devices(world: World) -> tuple[dict[str, bool], str, str]:
    """The node's GPUs with their health, its capacity and its allocatable."""
    node = world.get("nodes", NODE)
    inventory = parse_inventory(node["metadata"]["annotations"]["gangsched.io/devices"])[GPU]
    health = {device: bool(inventory.healthy >> i & 1) for i, device in enumerate(inventory.ids)}
    return health, node["status"]["capacity"][GPU], node["status"]["allocatable"][GPU]


def test_nodes_are_spread_over_the_racks_and_carry_their_devices() -> None:
    nodes = build_nodes(16, gpus=8, racks=4, now=EPOCH)
    names = [node["metadata"]["name"] for node in nodes]
    racks = [node["metadata"]["labels"]["topology.kubernetes.io/rack"] for node in nodes]
    assert names == [f"node-{i:02d}" for i in range(16)]
    assert racks == [f"rack-{i // 4}" for i in range(16)]
    inventory = parse_inventory(nodes[3]["metadata"]["annotations"]["gangsched.io/devices"])[GPU]
    assert inventory.ids == tuple(f"GPU-node-03-{k}" for k in range(8))
    assert inventory.topology.numa == (0, 0, 0, 0, 1, 1, 1, 1)
    addresses = {node["status"]["addresses"][0]["address"] for node in build_nodes(5000, now=EPOCH)}
    assert len(addresses) == 5000


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"n": -1}, "--nodes -1: expected 0 to 65536"),
        ({"n": 1, "gpus": -1}, "--gpus -1: expected 0 or more"),
        ({"n": 1, "racks": 0}, "--racks 0: expected 1 or more"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build_nodes(**asked)


def test_faults_named_on_the_command_line_are_checked() -> None:
    nodes = build_nodes(2, gpus=2, now=EPOCH)
    assert parse_kill("node-1@30") == Kill("node-1", 30)
    assert parse_unhealthy(["a=x,y", "a=z"]) == {"a": ("x", "y", "z")}
    with pytest.raises(ConfigError, match="expected NODE or NODE@SECONDS"):
        parse_kill("node-1@soon")
    with pytest.raises(ConfigError, match=r"expected NODE=ID\[,ID…\]"):
        parse_unhealthy(["node-1"])
    with pytest.raises(ConfigError, match="no such node; there are node-0 to node-1"):
        check_kills(nodes, [Kill("node-7")])
    with pytest.raises(ConfigError, match="no such device; node-0 has GPU-node-0-0, GPU-node-0-1"):
        make_unhealthy(nodes, {"node-0": ["GPU-1"]})


def test_a_node_reports_itself_ready_and_simulated() -> None:
    node = World(1).get("nodes", NODE)
    info = node["status"]["nodeInfo"]
    assert "Simulated" in info["osImage"]
    assert info["containerRuntimeVersion"].startswith("simulated://")
    assert {each["type"]: each["status"] for each in node["status"]["conditions"]} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }


def test_heartbeats_renew_the_lease_often_and_the_status_seldom() -> None:
    world = World(2)
    renewals: list[str] = []
    world.registry.store.subscribe(
        lambda change: renewals.append(change.item.name), "coordination.k8s.io/leases"
    )
    statuses: list[str] = []
    world.registry.store.subscribe(lambda change: statuses.append(change.item.name), "/nodes")
    world.run(1000)
    assert 198 <= len(renewals) <= 202
    assert 6 <= len(statuses) <= 8
    lease = world.get("leases.coordination.k8s.io", NODE, "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == NODE
    assert lease["spec"]["leaseDurationSeconds"] == 40
    assert world.condition("nodes", NODE, "Ready")["status"] == "True"


def test_a_node_made_by_hand_gets_a_kubelet_unless_it_says_no() -> None:
    world = World(0)
    for name, notes in (("mine", {}), ("theirs", {"simulated.gangsched.io/kubelet": "none"})):
        taints = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        world.create("nodes", {"metadata": {"name": name, "annotations": notes}, "spec": {"taints": taints}})
    world.run(1)
    assert world.condition("nodes", "mine", "Ready")["status"] == "True"
    assert world.taints("mine") == set()
    assert world.events("mine") == ["RegisteredNode", "NodeReady"]
    assert world.condition("nodes", "theirs", "Ready") == {}
    assert world.run(100).condition("nodes", "theirs", "Ready")["reason"] == "NodeStatusNeverUpdated"


def test_a_node_that_nobody_has_measured_has_the_usual_size_and_the_devices_it_lists() -> None:
    notes = {"gangsched.io/devices": '{"nvidia.com/gpu":[{"id":"A"},{"id":"B"}]}'}
    world = World(0)
    world.create("nodes", {"metadata": {"name": "mine", "annotations": notes}})
    world.run(0).submit(pod("a", gpus=2), on="mine").run(2)
    assert world.phase("a") == "Running"
    assert world.get("nodes", "mine")["status"]["allocatable"][GPU] == "2"


def test_a_killed_node_becomes_unreachable_and_its_pods_are_evicted() -> None:
    patient = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ]
    world = World(2).submit(pod("a", tolerations=patient), on=NODE).submit(pod("b"), on=NODE)
    world.submit(pod("elsewhere"), on="node-1").run(100).annotate(NODE, killed="true").run(35)
    assert world.condition("nodes", NODE, "Ready")["status"] == "True"

    world.run(30)
    ready = world.condition("nodes", NODE, "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert ready["message"] == "Kubelet stopped posting node status."
    assert world.taints(NODE) == UNREACHABLE
    assert "NodeNotReady" in world.events(NODE)
    assert world.condition("pods", "a", "Ready")["status"] == "False"
    # b tolerates nothing: it is deleted, and stays Terminating because nobody can confirm it.
    assert world.get("pods", "b")["metadata"]["deletionTimestamp"]
    assert world.condition("pods", "b", "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    assert "deletionTimestamp" not in world.get("pods", "a")["metadata"]

    assert "deletionTimestamp" in world.run(300).get("pods", "a")["metadata"]
    assert world.phase("elsewhere") == "Running"
    # Force deletion and the end of the node are the ways out, as in a real cluster.
    assert world.delete("pods", "b", grace_s=0).run(0).phase("b") == "gone"
    assert world.delete("nodes", NODE).run(39).phase("a") == "Running"
    assert world.run(2).phase("a") == "gone"


def test_a_node_that_comes_back_has_lost_what_ran() -> None:
    world = World(1).submit(pod("a"), on=NODE).submit(pod("b", restart="Always"), on=NODE).run(5)
    before = world.get("nodes", NODE)["status"]["nodeInfo"]["bootID"]
    world.annotate(NODE, killed="true").submit(pod("late"), on=NODE).run(20).annotate(NODE, killed=None).run(
        1.5
    )
    assert world.get("nodes", NODE)["status"]["nodeInfo"]["bootID"] != before
    assert "Rebooted" in world.events(NODE)
    ended = world.get("pods", "a")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (world.phase("a"), ended["exitCode"]) == ("Failed", 137)
    assert world.get("pods", "b")["status"]["containerStatuses"][0]["restartCount"] == 1
    assert world.phase("late") == "Running"
    assert world.run(300).taints(NODE) == set()


def test_an_unreachable_node_that_comes_back_is_ready_and_without_taints() -> None:
    world = World(1).run(10).annotate(NODE, killed="").run(100)
    assert world.taints(NODE) == UNREACHABLE
    world.annotate(NODE, killed="false").run(1)
    assert world.condition("nodes", NODE, "Ready")["status"] == "True"
    assert world.taints(NODE) == set()


def test_a_node_can_be_told_to_die_later() -> None:
    world = World(1)
    world.cluster.kill_later(Kill(NODE, 30))
    assert "simulated.gangsched.io/killed" not in world.run(29).get("nodes", NODE)["metadata"]["annotations"]
    assert world.run(100).condition("nodes", NODE, "Ready")["status"] == "Unknown"


def test_unhealthy_and_vanished_devices_are_reported_and_can_be_mended() -> None:
    world = (
        World(1, gpus=4)
        .annotate(NODE, unhealthy_devices="GPU-node-0-1", vanished_devices="GPU-node-0-3")
        .run(0)
    )
    healthy = {"GPU-node-0-0": True, "GPU-node-0-1": False, "GPU-node-0-2": True}
    assert devices(world) == (healthy, "3", "2")
    world.annotate(NODE, unhealthy_devices=None, vanished_devices=None).run(0)
    assert devices(world) == (dict.fromkeys(gpu(NODE, 0, 1, 2, 3), True), "4", "4")


def test_devices_unhealthy_from_the_start_can_be_mended_too() -> None:
    world = World(0)
    (node,) = build_nodes(1, gpus=2, now=EPOCH)
    make_unhealthy([node], {NODE: ["GPU-node-0-0"]})
    world.add_node(node).run(0)
    assert devices(world) == ({"GPU-node-0-0": False, "GPU-node-0-1": True}, "2", "1")
    world.annotate(NODE, unhealthy_devices=None).run(0)
    assert devices(world) == ({"GPU-node-0-0": True, "GPU-node-0-1": True}, "2", "2")


def test_a_fault_asked_of_a_device_that_is_not_there_is_reported() -> None:
    world = World(1).annotate(NODE, unhealthy_devices="GPU-9").run(0)
    assert "GPU-9, which this node does not have" in world.event(NODE, "UnknownDevice")["message"]


def test_cordon_taints_the_node_and_uncordon_takes_it_off() -> None:
    def cordon(node: Object) -> None:
        node["spec"]["unschedulable"] = True

    def uncordon(node: Object) -> None:
        del node["spec"]["unschedulable"]

    world = World(1).change("nodes", NODE, cordon).run(0)
    assert world.taints(NODE) == {("node.kubernetes.io/unschedulable", "NoSchedule")}
    assert world.change("nodes", NODE, uncordon).run(0).taints(NODE) == set()


def test_a_taint_of_a_user_evicts_and_stays() -> None:
    def taint(node: Object) -> None:
        node["spec"]["taints"] = [{"key": "mine", "effect": "NoExecute"}]

    world = World(1).submit(pod("a"), on=NODE).run(5).change("nodes", NODE, taint).run(3)
    assert world.phase("a") == "gone"
    assert world.taints(NODE) == {("mine", "NoExecute")}


def test_an_out_of_service_node_gives_up_its_terminating_pods() -> None:
    def taint(node: Object) -> None:
        node["spec"].setdefault("taints", []).append(
            {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        )

    world = World(1).submit(pod("a"), on=NODE).run(5).annotate(NODE, killed="true").run(100)
    assert world.phase("a") == "Running"
    assert world.change("nodes", NODE, taint).run(1).phase("a") == "gone"


def test_the_lease_goes_with_its_node() -> None:
    world = World(1).delete("nodes", NODE).run(1)
    assert world.all("leases.coordination.k8s.io", "kube-node-lease") == []


def test_what_is_set_again_or_cancelled_does_not_happen() -> None:
    done: list[str] = []
    timetable = Timetable()
    for when_s, key in ((1, "a"), (2, "b"), (3, "c")):
        timetable.at(when_s, key, lambda now_s, key=key: done.append(key))  # type: ignore[misc]
    timetable.at(4, "a", lambda now_s: done.append("a again"))
    timetable.cancel("b")
    while (action := timetable.pop_due(10)) is not None:
        action(10)
    assert (done, timetable.next_s(), len(timetable)) == (["c", "a again"], None, 0)


def test_a_node_that_lists_its_devices_in_labels_is_read_and_its_faults_are_written_there() -> None:
    key = "nvidia.com.devices.gangsched.io/gpu"

    def in_labels(node: Object) -> None:
        del node["metadata"]["annotations"]["gangsched.io/devices"]
        node["metadata"]["labels"][key] = "g0.g1"

    world = World(1).change("nodes", NODE, in_labels).run(2)
    told = {"labels": {"main.nvidia.com.allocated-devices.gangsched.io/gpu": "g1"}}
    held, again = pod("a", gpus=1), pod("b", gpus=1)
    held["metadata"] |= told
    again["metadata"] |= told
    world.submit(held, on=NODE).run(5)
    assert world.get("pods", "a")["status"]["phase"] == "Running"
    world.submit(again, on=NODE).run(5)
    assert "g1 is held by another live pod" in world.get("pods", "b")["status"]["message"]

    world.annotate(NODE, unhealthy_devices="g0").run(5)
    labels = world.get("nodes", NODE)["metadata"]["labels"]
    assert labels[key] == "g0.g1"
    assert labels["nvidia.com.unhealthy-devices.gangsched.io/gpu"] == "g0"

    world.annotate(NODE, unhealthy_devices=None).run(5)
    labels = world.get("nodes", NODE)["metadata"]["labels"]
    assert labels[key] == "g0.g1"
    assert "nvidia.com.unhealthy-devices.gangsched.io/gpu" not in labels

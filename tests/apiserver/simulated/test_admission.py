"""What a simulated kubelet refuses, in a real kubelet's words, and what it says about devices."""

from __future__ import annotations

import pytest

from gangsched.lab.apiserver.strategy import Object
from tests.apiserver.simulated.scenario import World, gpu, pod

NODE = "node-0"


def refused(world: World, name: str) -> tuple[str, str]:
    status = world.get("pods", name)["status"]
    assert status["phase"] == "Failed"
    assert world.event(name, status["reason"])["type"] == "Warning"
    return status["reason"], status["message"]


def test_what_does_not_fit_is_refused_in_the_order_of_arrival() -> None:
    world = World(1, cpu=16)
    for name, cpu in (("a", "10"), ("b", "6500m"), ("c", "6")):
        world.submit(pod(name, cpu=cpu), on=NODE)
    world.run(2)
    assert (world.phase("a"), world.phase("c")) == ("Running", "Running")
    assert refused(world, "b") == (
        "OutOfcpu",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 6500, used: 10000, "
        "capacity: 16000",
    )


def test_a_refusal_is_final() -> None:
    world = World(1, cpu=16).submit(pod("a", cpu="16"), on=NODE).submit(pod("b", cpu="1"), on=NODE).run(2)
    assert world.delete("pods", "a").run(100).phase("b") == "Failed"


def test_memory_and_the_number_of_pods_count_too() -> None:
    big = pod("a")
    big["spec"]["containers"][0]["resources"]["requests"]["memory"] = "2Ti"
    world = World(1).submit(big, on=NODE).run(2)
    assert refused(world, "a")[0] == "OutOfmemory"
    for i in range(111):
        world.submit(pod(f"p{i}", cpu="1m"), on=NODE)
    world.run(2)
    assert refused(world, "p110") == (
        "OutOfpods",
        "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110",
    )


def test_a_device_that_is_only_a_number_is_compared_with_allocatable() -> None:
    def forget_inventory(node: Object) -> None:
        del node["metadata"]["annotations"]["gangsched.io/devices"]

    world = World(1).change("nodes", NODE, forget_inventory).run(0).submit(pod("a", gpus=9), on=NODE).run(2)
    assert refused(world, "a") == (
        "OutOfnvidia.com/gpu",
        "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 9, used: 0, "
        "capacity: 8",
    )


def test_more_devices_than_are_free_is_an_unexpected_admission_error() -> None:
    world = World(1).submit(pod("a", gpus=6), on=NODE).submit(pod("b", gpus=3), on=NODE).run(2)
    assert refused(world, "b") == (
        "UnexpectedAdmissionError",
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"
        ". Requested: 3, Available: 2, which is unexpected",
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"rack": "9"}},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "rack", "operator": "Exists"}]},
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
                        ]
                    }
                }
            }
        },
    ],
)
def test_a_node_that_the_pod_did_not_ask_for_refuses_it(spec: Object) -> None:
    world = World(1).submit(pod("a", **spec), on=NODE).run(2)
    assert refused(world, "a") == (
        "NodeAffinity",
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    )


def test_a_no_execute_taint_refuses_pods_that_do_not_tolerate_it() -> None:
    def taint(node: Object) -> None:
        node["spec"]["taints"] = [{"key": "broken", "value": "yes", "effect": "NoExecute"}]

    tolerant = pod("b", tolerations=[{"key": "broken", "operator": "Exists"}])
    world = World(1).change("nodes", NODE, taint).run(0)
    world.submit(pod("a"), on=NODE).submit(tolerant, on=NODE).run(2)
    assert world.phase("b") == "Running"
    assert world.find("pods", "a") is None or refused(world, "a")[0] == "TaintToleration"


def test_two_pods_cannot_have_one_host_port() -> None:
    world = World(1)
    for name in ("a", "b"):
        spec = pod(name)
        spec["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        world.submit(spec, on=NODE)
    world.run(2)
    assert (world.phase("a"), refused(world, "b")[0]) == ("Running", "NodePorts")


def test_devices_are_those_that_the_scheduler_has_named() -> None:
    world = World(1)
    world.submit(pod("a", gpus=2), on=NODE, devices={"main": gpu(NODE, 6, 7)})
    world.submit(pod("b", gpus=2), on=NODE, devices={"main": gpu(NODE, 0, 1)}).run(2)
    assert (world.phase("a"), world.phase("b")) == ("Running", "Running")
    world.delete("pods", "a").run(2).submit(pod("c", gpus=2), on=NODE, devices={"main": gpu(NODE, 7, 6)}).run(
        2
    )
    assert world.phase("c") == "Running"
    assert world.condition("nodes", NODE, "DeviceAllocationConflict") == {}


@pytest.mark.parametrize(
    ("named", "says"),
    [
        (gpu(NODE, 1, 2), "nvidia.com/gpu GPU-node-0-1 is held by another live pod"),
        (("GPU-x", *gpu(NODE, 2)), "nvidia.com/gpu GPU-x is not on this node"),
        (gpu(NODE, 2), "names 1 device of nvidia.com/gpu, the container asks for 2"),
        (gpu(NODE, 2, 7), "nvidia.com/gpu GPU-node-0-7 is unhealthy"),
    ],
)
def test_a_device_handed_out_wrongly_is_refused_and_complained_about(
    named: tuple[str, ...], says: str
) -> None:
    world = World(1).annotate(NODE, unhealthy_devices="GPU-node-0-7").run(0)
    world.submit(pod("a", gpus=2), on=NODE, devices={"main": gpu(NODE, 0, 1)})
    world.submit(pod("b", gpus=2), on=NODE, devices={"main": named}).run(2)
    reason, message = refused(world, "b")
    assert (world.phase("a"), reason) == ("Running", "UnexpectedAdmissionError")
    assert says in message
    assert says in world.event("b", "DeviceMismatch")["message"]
    assert world.event(NODE, "DeviceMismatch")["message"].startswith("pod default/b: ")
    condition = world.condition("nodes", NODE, "DeviceAllocationConflict")
    assert condition["status"] == "True"
    assert says in condition["message"]

    # The complaint ends with the pod that it is about.
    world.delete("pods", "b").run(0)
    assert world.condition("nodes", NODE, "DeviceAllocationConflict")["status"] == "False"


def test_a_device_that_turns_bad_under_a_pod_is_complained_about_and_the_pod_runs_on() -> None:
    world = World(1).submit(pod("a", gpus=1), on=NODE, devices={"main": gpu(NODE, 3)}).run(2)
    world.annotate(NODE, unhealthy_devices="GPU-node-0-3").run(1)
    says = "nvidia.com/gpu GPU-node-0-3 is unhealthy, and held by a live pod"
    assert world.phase("a") == "Running"
    assert world.event("a", "DeviceUnhealthy")["message"] == says
    assert world.condition("nodes", NODE, "DeviceAllocationConflict")["status"] == "True"
    world.annotate(NODE, unhealthy_devices=None).run(1)
    assert world.condition("nodes", NODE, "DeviceAllocationConflict")["status"] == "False"
    assert world.event("a", "DeviceUnhealthy")["count"] == 1


def test_an_init_container_hands_its_devices_on() -> None:
    spec = pod("a", gpus=8)
    asked = {"requests": {"nvidia.com/gpu": "8"}}
    spec["spec"]["initContainers"] = [{"name": "warm", "image": "busybox", "resources": asked}]
    assert World(1).submit(spec, on=NODE).run(2).phase("a") == "Running"


def test_a_pod_bound_before_its_node_came_is_taken_when_it_comes() -> None:
    world = World(0).submit(pod("a"), on=NODE).run(20)
    assert world.phase("a") == "Pending"
    node = World(1).get("nodes", NODE)
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        node["metadata"].pop(key)
    assert world.add_node(node).run(2).phase("a") == "Running"
    assert world.run(100).phase("a") == "Running"

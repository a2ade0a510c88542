"""Claims of devices in the simulation: what the contract with the real controller does not say.

Not here: what both controllers do alike (tests/contract/test_device_controller.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.errors import ConfigError
from gangsched.lab.apiserver.app import Simulation
from gangsched.lab.apiserver.simulated import Driver
from gangsched.lab.apiserver.strategy import Object
from tests.apiserver.simulated.scenario import World, pod

CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
CLASSES = "deviceclasses.resource.k8s.io"
FAILED = "FailedPrepareDynamicResources"
NODE = "node-0"
SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
FROM_TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "t"}]


def with_template(nodes: int = 0, driver: Driver | None = None) -> World:
    world = World(nodes, driver=driver)
    world.create(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": SPEC}})
    return world


def claim_of(world: World, name: str = "a") -> Object:
    [status] = world.get("pods", name)["status"]["resourceClaimStatuses"]
    return world.get(CLAIMS, status["resourceClaimName"])


def allocate(world: World, claim: Object, *pods: str, node: str = NODE, device: str = "gpu-0") -> World:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": device}

    def change(obj: Object) -> None:
        users = [world.get("pods", name)["metadata"] for name in pods]
        status: Object = {"allocation": {"devices": {"results": [result]}}}
        status["reservedFor"] = [
            {"resource": "pods", "name": user["name"], "uid": user["uid"]} for user in users
        ]
        obj["status"] = status
        obj["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]

    return world.change(CLAIMS, claim["metadata"]["name"], change)


def test_a_deleted_claim_is_made_again_for_a_pod_that_may_run() -> None:
    world = with_template()
    world.submit(pod("a", resourceClaims=FROM_TEMPLATE)).run(0)
    first = claim_of(world)["metadata"]
    world.delete(CLAIMS, first["name"]).run(0)
    assert claim_of(world)["metadata"]["uid"] != first["uid"]
    assert len(world.all(CLAIMS)) == 1


def test_no_claim_is_made_again_for_a_pod_that_has_ended() -> None:
    world = with_template()
    world.submit(pod("a", resourceClaims=FROM_TEMPLATE)).run(0)
    allocate(world, claim_of(world), "a").run(0)

    def end(obj: Object) -> None:
        obj["status"]["phase"] = "Failed"

    world.change("pods", "a", end).run(100)
    assert world.all(CLAIMS) == []


def test_a_template_that_comes_late_is_waited_for_less_and_less_often() -> None:
    world = World().submit(pod("a", resourceClaims=FROM_TEMPLATE)).run(1000)
    told: Any = world.event("a", "FailedResourceClaimCreation")
    assert 10 <= told["count"] <= 16
    world.create(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": SPEC}})
    assert claim_of(world.run(0))["spec"] == SPEC


def test_a_namespace_with_claims_empties() -> None:
    world = World()
    world.create("namespaces", {"metadata": {"name": "team"}})
    world.create(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": SPEC}}, "team")
    world.create("pods", pod("a", resourceClaims=FROM_TEMPLATE), "team")
    [claim] = world.run(0).all(CLAIMS, "team")

    def protect(obj: Object) -> None:
        obj["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]

    world.change(CLAIMS, claim["metadata"]["name"], protect, "team")
    world.delete("namespaces", "team").run(60)
    assert world.find("namespaces", "team") is None
    assert world.all(CLAIMS) == []


def waiting(*, driver: Driver | None = None, nodes: int = 1) -> World:
    """Two pods, each bound to node-0 with a claim of its own that nobody has allocated."""
    world = with_template(nodes, driver)
    for name in ("a", "b"):
        world.submit(pod(name, resourceClaims=FROM_TEMPLATE)).run(0)
        world.bind(name, NODE)
    return world.run(2)


def said(world: World, name: str = "a") -> str:
    told: str = world.event(name, FAILED)["message"]
    return told.removeprefix("Failed to prepare dynamic resources: prepare dynamic resources: ")


def test_a_pod_starts_only_with_its_claim() -> None:
    world = waiting()
    claim = claim_of(world)["metadata"]
    uid = world.get("pods", "a")["metadata"]["uid"]
    assert (world.phase("a"), world.waiting("a")) == ("Pending", "ContainerCreating")
    assert (
        said(world) == f"pod a ({uid}) is not allowed to use ResourceClaim {claim['name']} ({claim['uid']})"
    )
    allocate(world, claim_of(world), "a").run(10)
    assert (world.phase("a"), world.phase("b")) == ("Running", "Pending")


def test_a_claim_that_is_allocated_before_the_binding_lets_the_pod_start_at_once() -> None:
    world = with_template(1)
    world.submit(pod("a", resourceClaims=FROM_TEMPLATE)).run(0)
    allocate(world, claim_of(world), "a").bind("a", NODE).run(1)
    assert world.phase("a") == "Running"
    assert FAILED not in world.events("a")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"name": "gpu", "resourceClaimTemplateName": "none"},
            'pod "default/a": ResourceClaim not created yet',
        ),
        (
            {"name": "gpu", "resourceClaimName": "none"},
            'fetch ResourceClaim none: resourceclaims.resource.k8s.io "none" not found',
        ),
    ],
)
def test_a_pod_without_its_claim_waits(entry: Object, words: str) -> None:
    world = World(1).submit(pod("a", resourceClaims=[entry]), on=NODE).run(2)
    assert said(world) == words
    assert world.phase("a") == "Pending"


def test_an_entry_that_needs_no_claim_is_passed_over() -> None:
    world = World(1).submit(pod("a", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]))

    def not_needed(obj: Object) -> None:
        obj["status"]["resourceClaimStatuses"] = [{"name": "gpu"}]

    world.change("pods", "a", not_needed).bind("a", NODE).run(1)
    assert world.phase("a") == "Running"


def test_a_device_in_two_claims_is_prepared_for_one() -> None:
    world = waiting(driver=Driver(2))
    first, second = (claim_of(world, name) for name in ("a", "b"))
    allocate(world, first, "a").run(10)
    allocate(world, second, "b").run(20)
    assert (world.phase("a"), world.phase("b")) == ("Running", "Pending")
    holder = f"default/{first['metadata']['name']}"
    wrong = f"device gpu.example.com/node-0/gpu-0 is prepared for ResourceClaim {holder}"
    name = second["metadata"]["name"]
    assert said(world, "b") == f"NodePrepareResources failed for ResourceClaim {name}: {wrong}"
    world.delete("pods", "a").run(200)
    assert world.phase("b") == "Running"


def test_a_device_of_another_node_is_a_conflict() -> None:
    world = with_template(2, Driver(1))
    world.submit(pod("a", resourceClaims=FROM_TEMPLATE)).run(0)
    allocate(world, claim_of(world), "a", node="node-1").bind("a", NODE).run(2)
    assert said(world).endswith("device gpu.example.com/node-1/gpu-0 is on node node-1, not on node-0")
    assert world.condition("nodes", NODE, "DeviceAllocationConflict")["status"] == "True"
    assert world.event("a", "DeviceMismatch")["type"] == "Warning"


def test_pods_share_what_a_claim_holds() -> None:
    world = World(1, driver=Driver(1))
    claim = world.create(CLAIMS, {"metadata": {"name": "shared"}, "spec": SPEC}).decode()
    for name in ("a", "b"):
        world.submit(pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}]))
    allocate(world.run(0), claim, "a", "b")
    world.bind("a", NODE).bind("b", NODE).run(1)
    assert [world.phase(name) for name in ("a", "b")] == ["Running", "Running"]
    world.delete("pods", "a").run(5)
    assert [each["name"] for each in world.get(CLAIMS, "shared")["status"]["reservedFor"]] == ["b"]
    world.delete("pods", "b").run(5)
    assert world.get(CLAIMS, "shared")["status"] == {}


def test_every_node_publishes_its_devices() -> None:
    world = World(2, driver=Driver(200, "dev.example.org"))
    assert [each["metadata"]["name"] for each in world.all(CLASSES)] == ["dev.example.org"]
    slices = [each["spec"] for each in world.all(SLICES)]
    assert sorted(each["nodeName"] for each in slices) == ["node-0"] * 2 + ["node-1"] * 2
    for node in ("node-0", "node-1"):
        parts = [each for each in slices if each["nodeName"] == node]
        assert all(each["pool"] == {"name": node, "generation": 1, "resourceSliceCount": 2} for each in parts)
        names = {device["name"] for part in parts for device in part["devices"]}
        assert names == {f"gpu-{k}" for k in range(200)}


def test_slices_come_back_and_go_with_their_node() -> None:
    world = World(2, driver=Driver(1))
    first = next(each for each in world.all(SLICES) if each["spec"]["nodeName"] == NODE)
    world.delete(SLICES, first["metadata"]["name"]).run(0)
    assert sorted(each["spec"]["nodeName"] for each in world.all(SLICES)) == ["node-0", "node-1"]
    world.delete("nodes", NODE).run(60)
    assert [each["spec"]["nodeName"] for each in world.all(SLICES)] == ["node-1"]


@pytest.mark.parametrize("driver", [Driver(-1), Driver(1025), Driver(1, "Bad_"), Driver(1, "d" * 64)])
def test_drivers_that_cannot_be(driver: Driver) -> None:
    with pytest.raises(ConfigError, match="--dra-d"):
        Simulation(driver=driver)

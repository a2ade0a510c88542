"""Claims of devices in the simulation: what the contract with the real controller does not say.

Not here: what both controllers do alike (tests/contract/test_device_controller.py).
"""

from __future__ import annotations

from typing import Any

from gangsched.lab.apiserver.strategy import Object
from tests.apiserver.simulated.scenario import World, pod

CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
FROM_TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "t"}]


def with_template(nodes: int = 0) -> World:
    world = World(nodes)
    world.create(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": SPEC}})
    return world


def claim_of(world: World, name: str = "a") -> Object:
    [status] = world.get("pods", name)["status"]["resourceClaimStatuses"]
    return world.get(CLAIMS, status["resourceClaimName"])


def allocate(world: World, claim: Object, *pods: str) -> World:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}

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

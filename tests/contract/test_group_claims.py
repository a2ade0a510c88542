"""Claims that the members of a PodGroup share: kube-controller-manager's controller, and the simulated one.

No pod is run here, and none is scheduled, as in test_device_controller.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import Api, Json
from tests.contract.objects import bind
from tests.contract.test_device_controller import POD_CLAIM, World
from tests.contract.test_devices import DEVICES, PROTECTION, allocation
from tests.contract.test_pod_groups import CORE_GROUP, core
from tests.support.bodies import pod
from tests.support.processes import until

pytestmark = pytest.mark.since(37)

TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "t"}
BY_NAME = {"name": "gpu", "resourceClaimName": "c"}


class GroupWorld(World):
    """With PodGroups, and pods that belong to them."""

    def group(self, *claims: Json, name: str = "g") -> Json:
        path = self.api.at("podgroups", group=CORE_GROUP)
        return self.api.post(path, core(name, resourceClaims=list(claims)), fieldValidation="Strict").ok(201)

    def member(self, name: str = "p", *, entry: Json = TEMPLATE, group: str = "g") -> Json:
        body = pod(name, resourceClaims=[entry], schedulingGroup={"podGroupName": group})
        return self.api.post(self.api.at("pods"), body).ok(201)

    def status(self, plural: str, name: str) -> list[Json]:
        """Which claims an object's status names, once there are some."""
        path = self.api.at(plural, name, **({"group": CORE_GROUP} if plural == "podgroups" else {}))

        def look() -> list[Json] | None:
            found = self.api.get(path).ok().get("status") or {}
            return found.get("resourceClaimStatuses")

        found = until(look, f"{name} has a claim", story=self.claims)
        assert found is not None
        return found

    def reserve(self, name: str, *consumers: Json) -> None:
        """Allocates it for these."""
        path = self.api.at("resourceclaims", name, group=DEVICES)
        self.api.patch(path, {"metadata": {"finalizers": [PROTECTION]}}).ok()
        status = {"allocation": allocation(), "reservedFor": list(consumers) or None}
        self.api.patch(f"{path}/status", {"status": status}).ok()

    def drop_group(self, name: str = "g") -> None:
        self.api.delete(self.api.at("podgroups", name, group=CORE_GROUP)).ok()


def consumer(group: Json) -> Json:
    meta = group["metadata"]
    return {
        "apiGroup": "scheduling.k8s.io",
        "resource": "podgroups",
        "name": meta["name"],
        "uid": meta["uid"],
    }


@pytest.fixture
def world(controlled: Api) -> GroupWorld:
    return GroupWorld(controlled)


def test_one_claim_is_made_for_the_group_and_named_by_its_members(world: GroupWorld) -> None:
    world.template(labels={"a": "b"})
    group = world.group(TEMPLATE)
    assert group["spec"]["resourceClaims"] == [TEMPLATE]
    [named] = world.status("podgroups", "g")
    assert named["name"] == "gpu"
    for name in ("p", "q"):
        world.member(name)
        assert world.status("pods", name) == [named]
    [found] = world.claims().values()
    metadata = found["metadata"]
    assert metadata["name"] == named["resourceClaimName"]
    assert metadata["name"].startswith("g-gpu-")
    assert metadata["annotations"] == {POD_CLAIM: "gpu"}
    assert metadata["labels"] == {"a": "b"}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "name": "g",
            "uid": group["metadata"]["uid"],
            "controller": True,
        }
    ]


def test_a_member_whose_entry_differs_gets_a_claim_of_its_own(world: GroupWorld) -> None:
    world.template()
    world.group(TEMPLATE)
    [named] = world.status("podgroups", "g")
    world.member("p", entry={**TEMPLATE, "name": "other"})
    [own] = world.status("pods", "p")
    assert own["resourceClaimName"] != named["resourceClaimName"]
    owners = world.claims()[own["resourceClaimName"]]["metadata"]["ownerReferences"]
    assert [one["kind"] for one in owners] == ["Pod"]


def test_a_group_waits_for_its_template(world: GroupWorld) -> None:
    world.group(TEMPLATE)
    world.settle()
    world.template()
    world.status("podgroups", "g")


def test_the_claim_stays_until_the_group_is_gone(world: GroupWorld) -> None:
    world.claim()
    group = world.group(BY_NAME)
    world.member("p", entry=BY_NAME)
    world.reserve("c", consumer(group))
    world.end("p")
    world.remove("pods", "p")
    world.settle()
    assert world.consumers() == ["g"]
    world.drop_group()
    world.until_free()


def test_a_generated_claim_is_deleted_with_its_group(world: GroupWorld) -> None:
    world.template()
    group = world.group(TEMPLATE)
    [named] = world.status("podgroups", "g")
    world.reserve(named["resourceClaimName"], consumer(group))
    world.drop_group()
    world.until_gone(named["resourceClaimName"])


def test_a_missing_reservation_of_a_bound_member_is_the_groups(world: GroupWorld) -> None:
    world.claim()
    group = world.group(BY_NAME)
    world.member("p", entry=BY_NAME)
    bind(world.api, "p")
    world.reserve("c")

    def entries() -> Any:
        return world.claims()["c"]["status"].get("reservedFor")

    assert until(entries, "the claim is reserved", story=world.claims) == [consumer(group)]

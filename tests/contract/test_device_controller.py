"""The controller of claims of devices: kube-controller-manager's, and the simulated one.

No pod is run here, and none is scheduled: the tests bind, allocate and end pods themselves.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import CORE, Api, Json
from tests.contract.objects import bind
from tests.contract.test_devices import DEVICES, PROTECTION, allocation, claim
from tests.support.bodies import pod
from tests.support.processes import until

pytestmark = pytest.mark.since(37)

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
OTHER = {"apiGroup": "example.com", "resource": "things", "name": "x", "uid": "uid-x"}


class World:
    """Pods and claims of one namespace."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def template(self, name: str = "t", **metadata: Any) -> None:
        spec = {"spec": claim()["spec"], **({"metadata": metadata} if metadata else {})}
        body = {"metadata": {"name": name}, "spec": spec}
        self.api.post(self.api.at("resourceclaimtemplates", group=DEVICES), body).ok(201)

    def pod(self, name: str = "p", *, template: str = "", claim: str = "", entry: str = "gpu") -> Json:
        source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
        return self.api.post(self.api.at("pods"), pod(name, resourceClaims=[{"name": entry, **source}])).ok(
            201
        )

    def claim(self, name: str = "c", **metadata: Any) -> Json:
        path = self.api.at("resourceclaims", group=DEVICES)
        return self.api.post(path, claim(name, **metadata)).ok(201)

    def claims(self) -> dict[str, Json]:
        items = self.api.get(self.api.at("resourceclaims", group=DEVICES)).ok()["items"]
        return {each["metadata"]["name"]: each for each in items}

    def made(self, name: str = "p") -> Json:
        """The claim that the pod's status names, once there is one."""

        def look() -> Json | None:
            found = self.api.get(self.api.at("pods", name)).ok()
            statuses = found["status"].get("resourceClaimStatuses") or ()
            return self.claims().get(statuses[0]["resourceClaimName"]) if statuses else None

        found = until(look, f"pod {name} has a claim", story=self.claims)
        assert found is not None
        return found

    def allocate(self, name: str, *pods: Json, protect: bool = True, others: tuple[Json, ...] = ()) -> None:
        """As a scheduler does: the finalizer first, then the status."""
        path = self.api.at("resourceclaims", name, group=DEVICES)
        if protect:
            self.api.patch(path, {"metadata": {"finalizers": [PROTECTION]}}).ok()
        consumers = [
            {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
            for each in pods
        ]
        status = {"allocation": allocation(), "reservedFor": [*consumers, *others] or None}
        self.api.patch(f"{path}/status", {"status": status}).ok()

    def end(self, name: str = "p") -> None:
        self.api.patch(self.api.at("pods", name, "status"), {"status": {"phase": "Succeeded"}}).ok()

    def until_free(self, name: str = "c") -> None:
        def is_free() -> bool:
            found = self.claims()[name]
            return not found["status"] and "finalizers" not in found["metadata"]

        until(is_free, f"claim {name} is free and unprotected", story=self.claims)

    def until_gone(self, name: str) -> None:
        until(lambda: name not in self.claims(), f"claim {name} is gone", story=self.claims)

    def consumers(self, name: str = "c") -> list[str]:
        return [each["name"] for each in self.claims()[name]["status"].get("reservedFor") or ()]

    def settle(self) -> None:
        """Waits until the controller has dealt with a pod that came after all that happened before."""
        self.template("last")
        self.pod("last", template="last")
        self.made("last")

    def remove(self, plural: str, name: str, **options: Any) -> None:
        group = CORE if plural == "pods" else DEVICES
        self.api.delete(self.api.at(plural, name, group=group), options or None).ok()


@pytest.fixture
def world(controlled: Api) -> World:
    return World(controlled)


def test_a_claim_is_made_from_a_template(world: World) -> None:
    world.template(labels={"a": "b"}, annotations={"c": "d"})
    made_for = world.pod(template="t")
    found = world.made()
    metadata = found["metadata"]
    assert metadata["name"].startswith("p-gpu-")
    assert len(metadata["name"]) == len("p-gpu-") + 5
    assert metadata["generateName"] == "p-gpu-"
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"c": "d", POD_CLAIM: "gpu"}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": made_for["metadata"]["uid"],
            "controller": True,
        }
    ]
    assert "finalizers" not in metadata
    assert found["status"] == {}
    assert found["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.example.com"


def test_long_names_are_both_cut(world: World) -> None:
    world.template()
    world.pod("p" * 60, template="t", entry="g" * 30)
    name = world.made("p" * 60)["metadata"]["name"]
    assert name[:-5] == "p" * 37 + "-" + "g" * 18


def test_a_pod_waits_for_its_template(world: World) -> None:
    world.pod(template="t")

    def events() -> list[Json]:
        found: list[Json] = world.api.get(world.api.at("events")).ok()["items"]
        return [each for each in found if each["reason"] == "FailedResourceClaimCreation"]

    first = until(events, "an event says so")[0]
    assert (first["type"], first["involvedObject"]["name"]) == ("Warning", "p")
    assert first["source"]["component"] == "resource_claim"
    assert first["message"] == (
        'PodResourceClaim gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
    )
    world.template()
    world.made()


def test_a_users_claim_is_left_alone(world: World) -> None:
    world.claim()
    user = world.pod(claim="c")
    world.settle()
    assert world.claims()["c"]["status"] == {}
    assert "resourceClaimStatuses" not in user["status"]


def test_a_pod_that_is_done_frees_its_generated_claim(world: World) -> None:
    world.template()
    user = world.pod(template="t")
    name = world.made()["metadata"]["name"]
    world.allocate(name, user)
    world.end()
    world.until_gone(name)
    assert world.api.get(world.api.at("pods", "p")).ok()["status"]["phase"] == "Succeeded"


def test_the_last_pod_frees_a_shared_claim(world: World) -> None:
    world.claim()
    world.allocate("c", world.pod("a", claim="c"), world.pod("b", claim="c"))
    world.end("a")
    until(lambda: world.consumers() == ["b"], "only b is left", story=world.claims)
    assert world.claims()["c"]["status"]["allocation"] == allocation()
    world.end("b")
    world.until_free()


def test_a_claim_is_freed_for_a_pod_that_never_ran(world: World) -> None:
    world.claim()
    world.allocate("c", world.pod(claim="c"))
    world.remove("pods", "p")
    world.until_free()


def test_a_bound_pod_keeps_its_claim_until_it_is_gone(world: World) -> None:
    world.claim()
    world.allocate("c", world.pod(claim="c"))
    bind(world.api, "p")
    world.remove("pods", "p", gracePeriodSeconds=30)
    world.settle()
    assert world.consumers() == ["p"]
    world.remove("pods", "p", gracePeriodSeconds=0)
    world.until_free()


def test_without_its_finalizer_an_allocation_stays(world: World) -> None:
    world.claim()
    world.allocate("c", world.pod(claim="c"), protect=False)
    world.end()
    until(lambda: not world.consumers(), "it is reserved for nobody", story=world.claims)
    world.settle()
    assert world.claims()["c"]["status"] == {"allocation": allocation()}


def test_an_allocation_that_nobody_reserved_stays(world: World) -> None:
    world.claim()
    world.pod(claim="c")
    world.allocate("c")
    world.settle()
    assert world.claims()["c"]["status"] == {"allocation": allocation()}
    assert world.claims()["c"]["metadata"]["finalizers"] == [PROTECTION]


def test_a_reservation_for_a_pod_that_is_never_bound_stays(world: World) -> None:
    world.claim()
    world.allocate("c", world.pod(claim="c"))
    world.settle()
    assert world.consumers() == ["p"]


def test_a_reservation_for_a_pod_of_another_uid_is_removed(world: World) -> None:
    world.claim()
    user = world.pod(claim="c")
    gone = {"metadata": {"name": "gone", "uid": "00000000-0000-4000-8000-000000000000"}}
    before = {"metadata": {"name": "p", "uid": "00000000-0000-4000-8000-000000000001"}}
    world.allocate("c", gone, before, user)
    until(lambda: world.consumers() == ["p"], "one is left", story=world.claims)
    [left] = world.claims()["c"]["status"]["reservedFor"]
    assert left["uid"] == user["metadata"]["uid"]


def test_consumers_that_are_no_pods_stay(world: World) -> None:
    world.claim()
    world.allocate("c", world.pod(claim="c"), others=(OTHER,))
    world.end()
    until(lambda: world.consumers() == ["x"], "the pod is taken off", story=world.claims)
    assert world.claims()["c"]["status"]["allocation"] == allocation()


def test_a_bound_pod_gets_the_reservation_that_is_missing(world: World) -> None:
    world.claim()
    world.pod(claim="c")
    world.allocate("c", others=(OTHER,))
    bind(world.api, "p")
    until(lambda: world.consumers() == ["x", "p"], "it is reserved", story=world.claims)


def test_a_bound_pod_gets_no_allocation(world: World) -> None:
    world.template()
    world.pod(template="t")
    bind(world.api, "p")
    name = world.made()["metadata"]["name"]
    world.settle()
    assert world.claims()[name]["status"] == {}
    world.allocate(name)
    until(lambda: world.consumers(name) == ["p"], "it is reserved", story=world.claims)


def test_a_full_claim_is_not_reserved(world: World) -> None:
    world.claim()
    world.pod(claim="c")
    full = tuple(OTHER | {"uid": f"uid-{number}"} for number in range(256))
    world.allocate("c", others=full)
    bind(world.api, "p")
    world.settle()
    assert len(world.consumers()) == 256
    assert "p" not in world.consumers()


@pytest.mark.parametrize("is_allocated", [False, True])
def test_a_claim_in_deletion_is_unprotected_once_nobody_has_reserved_it(
    world: World, is_allocated: bool
) -> None:
    world.claim(finalizers=[PROTECTION])
    if is_allocated:
        world.allocate("c")
    world.remove("resourceclaims", "c")
    world.until_gone("c")


def test_a_claim_in_deletion_waits_for_its_pod(world: World) -> None:
    world.claim()
    world.allocate("c", world.pod(claim="c"))
    world.remove("resourceclaims", "c")
    world.settle()
    assert world.consumers() == ["p"]
    world.end()
    world.until_gone("c")


def test_the_claim_of_a_deleted_pod_is_collected(world: World) -> None:
    world.template()
    user = world.pod(template="t")
    name = world.made()["metadata"]["name"]
    world.allocate(name, user)
    bind(world.api, "p")
    world.remove("pods", "p", gracePeriodSeconds=0)
    world.until_gone(name)


def test_claims_for_extended_resources_are_freed(world: World) -> None:
    limits = {"example.com/gpu": "1"}
    user = world.api.post(world.api.at("pods"), pod("p", limits=limits)).ok(201)
    world.claim("ext")
    world.allocate("ext", user)
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "gpu"}
    told = {"resourceClaimName": "ext", "requestMappings": [mapping]}
    world.api.patch(
        world.api.at("pods", "p", "status"), {"status": {"extendedResourceClaimStatus": told}}
    ).ok()
    world.end()
    world.until_free("ext")


def test_a_member_waits_for_its_pod_group(world: World) -> None:
    world.template()
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    body = pod("p", resourceClaims=[entry], schedulingGroup={"podGroupName": "g"})
    world.api.post(world.api.at("pods"), body).ok(201)
    world.settle()
    assert not [name for name in world.claims() if name.startswith("p-")]
    group = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    world.api.post(world.api.at("podgroups", group="/apis/scheduling.k8s.io/v1beta1"), group).ok(201)
    world.made()

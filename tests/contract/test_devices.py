"""Dynamic Resource Allocation: what schedulers, drivers and their users rely on (resource.k8s.io/v1).

Here are the rules of an allocation; what is refused field by field, in which words, is recorded
(tests/apiserver/kinds/cases: claims, classes, slices, podclaims).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.lab.apiserver.simulated.nodes.slices import Driver, build_slices, device_class
from tests.contract.api import JSON_PATCH, STRATEGIC, Answer, Api, Json
from tests.contract.objects import bind, unique
from tests.support.bodies import container, pod

pytestmark = pytest.mark.since(37)

DEVICES = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"
PROTECTION = "resource.kubernetes.io/delete-protection"
IMMUTABLE = "Invalid value: null: field is immutable"


def claim(name: str = "c", count: int = 1, **metadata: Any) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": count}}
    return {"metadata": {"name": name, **metadata}, "spec": {"devices": {"requests": [request]}}}


def allocation(*devices: str) -> Json:
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": device}
        for device in devices or ("gpu-0",)
    ]
    return {"devices": {"results": results}}


def consumer(number: int) -> Json:
    return {"resource": "pods", "name": f"p{number}", "uid": f"uid-{number}"}


def make(api: Api, **metadata: Any) -> Json:
    return api.post(api.at("resourceclaims", group=DEVICES), claim(**metadata)).ok(201)


def read(api: Api) -> Json:
    return api.get(api.at("resourceclaims", "c", group=DEVICES)).ok()


def say(api: Api, *, content_type: str = "", metadata: Json | None = None, **status: Any) -> Answer:
    """A patch of the claim's status."""
    body = {"status": status, **({"metadata": metadata} if metadata else {})}
    path = api.at("resourceclaims", "c", "status", group=DEVICES)
    return api.patch(path, body, content_type) if content_type else api.patch(path, body)


def refused(answer: Answer, problem: str) -> None:
    answer.no(422, "Invalid", f'ResourceClaim.resource.k8s.io "c" is invalid: {problem}')


def test_a_claim_begins_without_a_status(api: Api) -> None:
    sent = claim() | {"status": {"allocation": allocation(), "reservedFor": [consumer(1)]}}
    made = api.post(api.at("resourceclaims", group=DEVICES), sent).ok(201)
    assert made["status"] == {}
    assert made["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] == "ExactCount"
    assert "generation" not in made["metadata"]


def test_the_status_sets_no_finalizer(api: Api) -> None:
    make(api)
    metadata = {"finalizers": [PROTECTION], "labels": {"a": "b"}, "annotations": {"a": "b"}}
    said = say(api, metadata=metadata, allocation=allocation(), reservedFor=[consumer(1)]).ok()
    assert said["status"]["reservedFor"] == [consumer(1)]
    assert not {"finalizers", "labels", "annotations"} & set(said["metadata"])


def test_an_allocation_is_removed_but_never_changed(api: Api) -> None:
    make(api)
    say(api, allocation=allocation("gpu-0")).ok()
    for other in (allocation("gpu-1"), allocation("gpu-0", "gpu-1")):
        refused(
            say(api, allocation=other),
            "status.allocation: Invalid value: null: field cannot be modified once set",
        )
    assert say(api, allocation=allocation("gpu-0")).ok()["status"]["allocation"] == allocation("gpu-0")
    assert say(api, allocation=None).ok()["status"] == {}
    assert say(api, allocation=allocation("gpu-1")).ok()["status"]["allocation"] == allocation("gpu-1")


def test_a_reservation_needs_an_allocation(api: Api) -> None:
    make(api)
    problem = "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"
    refused(say(api, reservedFor=[consumer(1)]), problem)
    say(api, allocation=allocation(), reservedFor=[consumer(1)]).ok()
    refused(say(api, allocation=None), problem)
    assert say(api, allocation=None, reservedFor=None).ok()["status"] == {}


def test_a_claim_is_reserved_for_256_at_most(api: Api) -> None:
    make(api)
    say(api, allocation=allocation(), reservedFor=[consumer(each) for each in range(256)]).ok()
    refused(
        say(api, reservedFor=[consumer(each) for each in range(257)]),
        "status.reservedFor: Too many: 257: must have at most 256 items",
    )


def test_a_claim_has_32_devices_at_most(api: Api) -> None:
    make(api, count=40)
    refused(
        say(api, allocation=allocation(*(f"gpu-{each}" for each in range(33)))),
        "status.allocation.devices.results: Too many: 33: must have at most 32 items",
    )
    say(api, allocation=allocation(*(f"gpu-{each}" for each in range(32)))).ok()


def test_reservations_are_merged_by_uid(api: Api) -> None:
    make(api)
    say(api, allocation=allocation(), reservedFor=[consumer(1)]).ok()
    both = say(api, content_type=STRATEGIC, reservedFor=[consumer(2)]).ok()["status"]["reservedFor"]
    assert sorted(each["name"] for each in both) == ["p1", "p2"]
    without = [{"$patch": "delete", "uid": "uid-1"}]
    left = say(api, content_type=STRATEGIC, reservedFor=without).ok()["status"]["reservedFor"]
    assert left == [consumer(2)]
    path = api.at("resourceclaims", "c", "status", group=DEVICES)
    tested: list[Json] = [
        {"op": "test", "path": "/status/reservedFor/0/uid", "value": "uid-2"},
        {"op": "remove", "path": "/status/reservedFor/0"},
    ]
    assert "reservedFor" not in api.patch(path, tested, JSON_PATCH).ok()["status"]


def test_a_write_of_an_old_version_is_refused(api: Api) -> None:
    made = make(api)
    say(api, allocation=allocation()).ok()
    old = {"resourceVersion": made["metadata"]["resourceVersion"]}
    say(api, metadata=old, reservedFor=[consumer(1)]).no(
        409,
        "Conflict",
        'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "c": the object has been modified; '
        "please apply your changes to the latest version and try again",
    )
    path = api.at("resourceclaims", "c", "status", group=DEVICES)
    late = made | {"status": {"allocation": allocation("gpu-1")}}
    assert api.put(path, late).code == 409


def test_a_claim_in_deletion_waits_and_takes_no_new_consumers(api: Api) -> None:
    make(api, finalizers=[PROTECTION])
    say(api, allocation=allocation(), reservedFor=[consumer(1)]).ok()
    path = api.at("resourceclaims", "c", group=DEVICES)
    marked = api.delete(path).ok()
    assert marked["metadata"]["deletionTimestamp"]
    refused(
        say(api, reservedFor=[consumer(1), consumer(2)]),
        "status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or "
        "`deletionTimestamp` are set",
    )
    say(api, reservedFor=None).ok()
    say(api, allocation=None).ok()
    assert read(api)["metadata"]["finalizers"] == [PROTECTION]
    api.patch(path, {"metadata": {"finalizers": None}}).ok()
    api.get(path).no(404, "NotFound", 'resourceclaims.resource.k8s.io "c" not found')


def test_without_a_finalizer_an_allocated_claim_goes_at_once(api: Api) -> None:
    make(api)
    say(api, allocation=allocation(), reservedFor=[consumer(1)]).ok()
    path = api.at("resourceclaims", "c", group=DEVICES)
    assert api.delete(path).ok()["status"]["reservedFor"] == [consumer(1)]
    assert api.get(path).code == 404


def test_specs_do_not_change(api: Api) -> None:
    make(api)
    path = api.at("resourceclaims", "c", group=DEVICES)
    refused(api.patch(path, {"spec": {"devices": {"requests": []}}}), f"spec: {IMMUTABLE}")
    assert api.patch(path, {"metadata": {"finalizers": [PROTECTION]}}).ok()["spec"] == read(api)["spec"]
    templates = api.at("resourceclaimtemplates", group=DEVICES)
    api.post(templates, {"metadata": {"name": "t"}, "spec": {"spec": claim()["spec"]}}).ok(201)
    answer = api.patch(f"{templates}/t", {"spec": {"metadata": {"labels": {"a": "b"}}}})
    assert answer.code == 422
    assert answer.body["message"].endswith(": field is immutable")


def test_a_finalizer_can_be_patched_in_beside_any_compact_parameters(api: Api) -> None:
    """By a merge patch and by a JSON patch: others have the parameters written anew, see differences.py."""
    body = claim()
    parameters = {"z": 1.0, "a": "\u00e9", "list": [{"y": 1e3, "b": None}]}
    body["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    path = api.at("resourceclaims", group=DEVICES)
    api.post(path, json.dumps(body, separators=(",", ":")).encode()).ok(201)
    api.patch(f"{path}/c", {"metadata": {"finalizers": [PROTECTION]}}).ok()
    other: list[Json] = [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/other"}]
    patched = api.patch(f"{path}/c", other, JSON_PATCH).ok()
    assert patched["metadata"]["finalizers"] == [PROTECTION, "example.com/other"]
    assert patched["spec"]["devices"]["config"][0]["opaque"]["parameters"] == parameters


def test_devices_that_are_taken_back_have_no_state(api: Api) -> None:
    make(api)
    state = {"driver": DRIVER, "pool": "node-1", "device": "gpu-0", "conditions": None}
    say(api, allocation=allocation()).ok()
    assert say(api, devices=[state]).ok()["status"]["devices"] == [state]
    assert say(api, allocation=None).ok()["status"] == {}


@pytest.mark.parametrize("expression", ["", "device.driver ==", "device.driver == 'a' &&"])
def test_a_selector_must_be_an_expression(api: Api, expression: str) -> None:
    selectors = [{"cel": {"expression": expression}}]
    body = claim()
    body["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = selectors
    answer = api.post(api.at("resourceclaims", group=DEVICES), body)
    assert answer.code == 422
    assert ".exactly.selectors[0].cel.expression: Invalid value: " in answer.body["message"]
    assert ": compilation failed: " in answer.body["message"]
    name = unique("class")
    answer = api.post(
        f"{DEVICES}/deviceclasses", {"metadata": {"name": name}, "spec": {"selectors": selectors}}
    )
    assert answer.code == 422
    assert ": spec.selectors[0].cel.expression: Invalid value: " in answer.body["message"]


def test_claims_are_watched(api: Api) -> None:
    with api.watch(api.at("resourceclaims", group=DEVICES), resourceVersion="0") as watch:
        make(api)
        say(api, allocation=allocation()).ok()
        api.delete(api.at("resourceclaims", "c", group=DEVICES)).ok()
        assert watch.take(3) == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]


def test_slices_are_selected_by_driver_node_and_pool(api: Api) -> None:
    driver = f"{unique('driver')}.example.com"
    for node in ("n1", "n2"):
        spec = {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "capacity": {"memory": {"value": "81920Mi"}}}],
        }
        made = api.post(
            f"{DEVICES}/resourceslices", {"metadata": {"generateName": f"{node}-"}, "spec": spec}
        ).ok(201)
        assert made["spec"]["devices"][0]["capacity"] == {"memory": {"value": "80Gi"}}
        assert made["metadata"]["generation"] == 1
    for selector in (f"spec.driver={driver},spec.nodeName=n2", f"spec.driver={driver},spec.pool.name=n2"):
        [found] = api.get(f"{DEVICES}/resourceslices", fieldSelector=selector).ok()["items"]
        assert found["spec"]["nodeName"] == "n2"
        raised = {"spec": {"pool": {"generation": found["spec"]["pool"]["generation"] + 1}}}
        path = f"{DEVICES}/resourceslices/{found['metadata']['name']}"
        assert api.patch(path, raised).ok()["metadata"]["generation"] == found["metadata"]["generation"] + 1
    both = api.get(f"{DEVICES}/resourceslices", fieldSelector=f"spec.driver={driver}").ok()["items"]
    assert len(both) == 2


def test_the_slices_of_simulated_nodes_are_valid(api: Api) -> None:
    driver = Driver(130, f"{unique('driver')}.example.com")
    for each in build_slices("node-17", "00000000-0000-4000-8000-000000000000", driver):
        api.post(f"{DEVICES}/resourceslices", each, fieldValidation="Strict").ok(201)
    made = api.post(f"{DEVICES}/deviceclasses", device_class(driver.name), fieldValidation="Strict").ok(201)
    assert made["metadata"]["name"] == driver.name


def test_a_taint_gets_its_time_and_a_new_one_with_a_new_effect(api: Api) -> None:
    path = f"{DEVICES}/devicetaintrules"
    taint = {"key": "example.com/broken", "effect": "NoSchedule", "timeAdded": "2024-01-01T00:00:00Z"}
    name = unique("rule")
    api.post(path, {"metadata": {"name": name}, "spec": {"taint": taint}}).ok(201)
    same = api.patch(f"{path}/{name}", {"spec": {"taint": {"value": "yes"}}}).ok()
    assert same["spec"]["taint"]["timeAdded"] == taint["timeAdded"]
    changed = api.patch(f"{path}/{name}", {"spec": {"taint": {"effect": "NoExecute"}}}).ok()
    assert changed["spec"]["taint"]["timeAdded"] > "2026"
    assert changed["metadata"]["generation"] == 3


def test_a_pods_claims_are_kept(api: Api) -> None:
    wanted = [
        {"name": "gpu", "resourceClaimTemplateName": "t"},
        {"name": "shared", "resourceClaimName": "s"},
    ]
    used = {"claims": [{"name": "gpu"}, {"name": "shared", "request": "r"}]}
    body = pod("p", containers=[container(resources=used)], resourceClaims=wanted)
    api.post(api.at("pods"), body, fieldValidation="Strict").ok(201)
    status = {
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x7k2p"}],
        "extendedResourceClaimStatus": None,
    }
    api.patch(api.at("pods", "p", "status"), {"status": status}, STRATEGIC).ok()
    bind(api, "p")
    found = api.get(api.at("pods", "p")).ok()
    assert found["spec"]["resourceClaims"] == wanted
    assert found["spec"]["containers"][0]["resources"] == used
    assert found["status"]["resourceClaimStatuses"] == status["resourceClaimStatuses"]


def test_a_pod_tells_which_claim_serves_its_extended_resources(api: Api) -> None:
    body = pod("p", containers=[container(resources={"limits": {"example.com/gpu": "1"}})])
    api.post(api.at("pods"), body).ok(201)
    mapping = {
        "containerName": "main",
        "resourceName": "example.com/gpu",
        "requestName": "container-0-request-0",
    }
    told = {"resourceClaimName": "p-extended-resources-x", "requestMappings": [mapping]}
    path = api.at("pods", "p", "status")
    api.patch(path, {"status": {"extendedResourceClaimStatus": told}}).ok()
    assert api.get(api.at("pods", "p")).ok()["status"]["extendedResourceClaimStatus"] == told
    mapping["containerName"] = "other"
    answer = api.patch(path, {"status": {"extendedResourceClaimStatus": told}})
    assert answer.code == 422


def test_drivers_apply_the_state_of_their_devices(api: Api) -> None:
    make(api)
    say(api, allocation=allocation("gpu-0", "gpu-1"), reservedFor=[consumer(1)]).ok()
    path = api.at("resourceclaims", "c", "status", group=DEVICES)

    def apply(manager: str, *devices: str) -> Answer:
        states = [
            {"driver": DRIVER, "pool": "node-1", "device": device, "data": {"by": manager}}
            for device in devices
        ]
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
        return api.apply(path, head | {"status": {"devices": states}}, manager)

    apply("one", "gpu-0").ok()
    both = apply("two", "gpu-1").ok()["status"]
    assert [(each["device"], each["data"]["by"]) for each in both["devices"]] == [
        ("gpu-0", "one"),
        ("gpu-1", "two"),
    ]
    assert both["reservedFor"] == [consumer(1)]
    assert apply("two", "gpu-0").code == 409
    left = apply("one").ok()["status"]
    assert [each["device"] for each in left["devices"]] == ["gpu-1"]


def test_controllers_apply_the_names_of_claims_to_pods(api: Api) -> None:
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("a", "b")]
    api.post(api.at("pods"), pod("p", resourceClaims=entries)).ok(201)
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    for manager, name in (("one", "a"), ("two", "b")):
        statuses = [{"name": name, "resourceClaimName": f"p-{name}"}]
        api.apply(
            api.at("pods", "p", "status"), head | {"status": {"resourceClaimStatuses": statuses}}, manager
        ).ok()
    found = api.get(api.at("pods", "p")).ok()["status"]["resourceClaimStatuses"]
    assert found == [{"name": name, "resourceClaimName": f"p-{name}"} for name in ("a", "b")]

"""Pod groups: those of Kubernetes itself, and those that a definition brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.api import JSON, MERGE, STRATEGIC, TABLE, Api, Json
from tests.contract.objects import condition
from tests.support.bodies import pod

CORE_GROUP = "/apis/scheduling.k8s.io/v1beta1"
CUSTOM_GROUP = "/apis/scheduling.x-k8s.io/v1alpha1"
POLICY = "/apis/policy/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD_FILE = Path(__file__).parents[2] / "deploy" / "crds" / "scheduling.x-k8s.io_podgroups.yaml"


def core(name: str = "g", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec}}


def custom(name: str = "g", **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 2, **spec},
    }


@pytest.fixture
def served(api: Api) -> Api:
    """A server that has our definition of pod groups."""
    definition: Json = yaml.safe_load(CRD_FILE.read_text())
    answer = api.post(DEFINITIONS, definition, fieldValidation="Strict")
    assert answer.code in (201, 409), answer
    api.eventually(lambda: api.get(api.at("podgroups", group=CUSTOM_GROUP)))
    return api


@pytest.mark.since(37)
def test_a_core_pod_group(api: Api) -> None:
    made = api.post(api.at("podgroups", group=CORE_GROUP), core(), fieldValidation="Strict").ok(201)
    assert (made["kind"], made["apiVersion"]) == ("PodGroup", "scheduling.k8s.io/v1beta1")
    assert "generation" not in made["metadata"]
    assert made["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    unschedulable = condition(
        "PodGroupInitiallyScheduled",
        "False",
        reason="Unschedulable",
        message="no",
        lastTransitionTime="2026-01-02T03:04:05Z",
        observedGeneration=1,
    )
    patch = {"metadata": {"uid": made["metadata"]["uid"]}, "status": {"conditions": [unschedulable]}}
    path = api.at("podgroups", "g", "status", group=CORE_GROUP)
    changed = api.patch(path, patch, MERGE).ok()
    assert changed["status"]["conditions"] == [unschedulable]
    twice = api.patch(path, {"status": {"conditions": [{**unschedulable, "status": "True"}]}}, STRATEGIC).ok()
    assert [each["status"] for each in twice["status"]["conditions"]] == ["True"]


@pytest.mark.since(37)
def test_a_core_pod_group_that_is_wrong(api: Api) -> None:
    path = api.at("podgroups", group=CORE_GROUP)
    wrong: tuple[Json, ...] = (
        {"schedulingPolicy": {"gang": {"minCount": 0}}},
        {"schedulingPolicy": {}},
        {"schedulingPolicy": {"gang": {"minCount": 1}, "basic": {}}},
    )
    for spec in wrong:
        answer = api.post(path, {"metadata": {"name": "g"}, "spec": spec})
        assert (answer.code, answer.body["reason"]) == (422, "Invalid"), spec
        assert answer.body["message"].startswith('PodGroup.scheduling.k8s.io "g" is invalid: '), spec
    api.post(path, core()).ok(201)
    answer = api.patch(api.at("podgroups", "g", group=CORE_GROUP), {"spec": {"priority": 7}})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")


@pytest.mark.since(37)
def test_a_pod_names_its_core_group(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a", schedulingGroup={"podGroupName": "g"})).ok(201)
    assert made["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    answer = api.patch(api.at("pods", "a"), {"spec": {"schedulingGroup": {"podGroupName": "h"}}})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")


def test_a_custom_pod_group(served: Api) -> None:
    api = served
    made = api.post(api.at("podgroups", group=CUSTOM_GROUP), custom()).ok(201)
    assert (made["kind"], made["apiVersion"]) == ("PodGroup", "scheduling.x-k8s.io/v1alpha1")
    assert (made["metadata"]["generation"], made["spec"]) == (1, {"minMember": 2})
    path = api.at("podgroups", "g", group=CUSTOM_GROUP)
    changed = api.patch(f"{path}/status", {"status": {"phase": "Scheduling"}}).ok()
    assert (changed["status"], changed["metadata"]["generation"]) == ({"phase": "Scheduling"}, 1)
    assert "status" not in api.post(
        api.at("podgroups", group=CUSTOM_GROUP), {**custom("h"), "status": {"phase": "Failed"}}
    ).ok(201)
    changed = api.patch(path, {"spec": {"minMember": 3}, "status": {"phase": "Failed"}}).ok()
    assert (changed["metadata"]["generation"], changed["status"]["phase"]) == (2, "Scheduling")
    found = api.get(api.at("podgroups", group=CUSTOM_GROUP)).ok()
    assert (found["kind"], found["apiVersion"]) == ("PodGroupList", "scheduling.x-k8s.io/v1alpha1")
    # Unlike built-in kinds, each item says what it is.
    assert [each["kind"] for each in found["items"]] == ["PodGroup", "PodGroup"]


def test_a_custom_pod_group_that_is_wrong(served: Api) -> None:
    api = served
    path = api.at("podgroups", group=CUSTOM_GROUP)
    api.post(path, custom(minMember="two")).no(
        422,
        "Invalid",
        'PodGroup.scheduling.x-k8s.io "g" is invalid: spec.minMember: Invalid value: "string": spec.minMember in body must be of type integer: "string"',
    )
    warned = api.post(path, custom(minimum=1))
    assert warned.warnings == ['unknown field "spec.minimum"']
    assert warned.ok(201)["spec"] == {"minMember": 2}
    answer = api.post(path, custom("h", minimum=1), fieldValidation="Strict")
    answer.no(
        400,
        "BadRequest",
        'PodGroup in version "v1alpha1" cannot be handled as a PodGroup: strict decoding error: unknown field "spec.minimum"',
    )
    answer = api.post(path, {"metadata": {"name": "x"}, "spec": {"minMember": 1}})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    api.post(path, {**custom("x"), "kind": "Other"}).no(
        422,
        "Invalid",
        'Other.scheduling.x-k8s.io "x" is invalid: kind: Invalid value: "Other": must be PodGroup',
    )
    api.post(path, {**custom("x"), "apiVersion": "scheduling.x-k8s.io/v9"}).no(
        400,
        "BadRequest",
        "the API version in the data (scheduling.x-k8s.io/v9) does not match the expected API version (scheduling.x-k8s.io/v1alpha1)",
    )


def test_patches_of_a_custom_pod_group(served: Api) -> None:
    api = served
    api.post(api.at("podgroups", group=CUSTOM_GROUP), custom(minResources={"cpu": "1"})).ok(201)
    path = api.at("podgroups", "g", group=CUSTOM_GROUP)
    assert api.patch(path, {"spec": {"minResources": None}}, MERGE).ok()["spec"] == {"minMember": 2}
    answer = api.patch(path, {"spec": {}}, STRATEGIC)
    assert (answer.code, answer.body["reason"]) == (415, "UnsupportedMediaType")
    applied = api.apply(path, custom(minMember=2, scheduleTimeoutSeconds=9)).ok()
    assert applied["spec"]["scheduleTimeoutSeconds"] == 9


def test_a_custom_update_needs_a_version(served: Api) -> None:
    api = served
    made = api.post(api.at("podgroups", group=CUSTOM_GROUP), custom()).ok(201)
    path = api.at("podgroups", "g", group=CUSTOM_GROUP)
    api.put(path, custom(minMember=3)).no(
        422,
        "Invalid",
        'podgroups.scheduling.x-k8s.io "g" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update',
    )
    made["spec"]["minMember"] = 3
    assert api.put(path, made).ok()["metadata"]["generation"] == 2


@pytest.mark.since(37)
def test_a_status_is_written_over_a_version_that_is_named(served: Api) -> None:
    served.post(served.at("podgroups", group=CORE_GROUP), core()).ok(201)
    served.post(served.at("podgroups", group=CUSTOM_GROUP), custom()).ok(201)
    budget = {"metadata": {"name": "g"}, "spec": {"minAvailable": 1}}
    served.post(served.at("poddisruptionbudgets", group=POLICY), budget).ok(201)
    says = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    for plural, group in (
        ("podgroups", CORE_GROUP),
        ("podgroups", CUSTOM_GROUP),
        ("poddisruptionbudgets", POLICY),
    ):
        named = f'{plural}.{group.split("/")[2]} "g" is invalid: {says}'
        written = served.get(served.at(plural, "g", group=group)).ok()
        del written["metadata"]["resourceVersion"]
        for below in ("status", ""):
            path = served.at(plural, "g", below, group=group)
            served.put(path, written).no(422, "Invalid", named)
            served.patch(path, {"metadata": {"resourceVersion": None}}).no(422, "Invalid", named)
        # A patch that says nothing of it is for the version that it meets.
        served.patch(served.at(plural, "g", "status", group=group), {"status": {}}).ok()


def test_a_watch_of_custom_pod_groups(served: Api) -> None:
    api = served
    path = api.at("podgroups", group=CUSTOM_GROUP)
    start = api.get(path).ok()["metadata"]["resourceVersion"]
    api.post(path, custom()).ok(201)
    with api.watch(path, resourceVersion=start) as watch:
        type_, seen = watch.next()
        assert (type_, seen["kind"], seen["spec"]) == ("ADDED", "PodGroup", {"minMember": 2})
        api.patch(
            api.at("podgroups", "g", "status", group=CUSTOM_GROUP), {"status": {"phase": "Running"}}
        ).ok()
        assert watch.next()[1]["status"] == {"phase": "Running"}
        api.delete(api.at("podgroups", "g", group=CUSTOM_GROUP)).ok()
        assert watch.take(1) == [("DELETED", "g")]


@pytest.mark.since(37)
def test_whether_an_api_is_offered_can_be_asked(served: Api) -> None:
    """As the scheduler does before it watches, and as it does again where there is none."""
    api = served
    offered = api.get(CUSTOM_GROUP).ok()
    assert "podgroups" in [each["name"] for each in offered["resources"]]
    offered = api.get(CORE_GROUP).ok()
    assert "podgroups/status" in [each["name"] for each in offered["resources"]]
    assert api.get("/apis/scheduling.volcano.sh/v1beta1").code == 404
    assert api.get("/apis/scheduling.x-k8s.io/v9").code == 404
    assert api.get("/apis/scheduling.volcano.sh/v1beta1/podgroups").code == 404


def test_columns_of_a_definition(served: Api) -> None:
    api = served
    api.post(api.at("podgroups", group=CUSTOM_GROUP), custom()).ok(201)
    table = api.get(api.at("podgroups", group=CUSTOM_GROUP), accept=f"{TABLE},{JSON}").ok()
    definition: Json = yaml.safe_load(CRD_FILE.read_text())
    columns = definition["spec"]["versions"][0].get("additionalPrinterColumns") or [{"name": "Age"}]
    assert [each["name"] for each in table["columnDefinitions"]] == [
        "Name",
        *(each["name"] for each in columns),
    ]
    [row] = table["rows"]
    assert row["cells"][0] == "g"

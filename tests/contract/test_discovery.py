"""What is offered, and what is said at paths where nothing is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import CORE, Api, Json

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# The kinds that our client and the kubectl commands use, by the group and version they use them in.
USED = {
    "": [
        "bindings",
        "configmaps",
        "events",
        "namespaces",
        "nodes",
        "pods",
        "secrets",
        "serviceaccounts",
        "services",
    ],
    "apps/v1": ["deployments"],
    "batch/v1": ["jobs"],
    "events.k8s.io/v1": ["events"],
    "coordination.k8s.io/v1": ["leases"],
    "policy/v1": ["poddisruptionbudgets"],
    "scheduling.k8s.io/v1": ["priorityclasses"],
    "scheduling.k8s.io/v1beta1": ["podgroups"],
    "apiextensions.k8s.io/v1": ["customresourcedefinitions"],
    "rbac.authorization.k8s.io/v1": ["clusterrolebindings", "clusterroles", "rolebindings", "roles"],
    "authorization.k8s.io/v1": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
    "flowcontrol.apiserver.k8s.io/v1": ["flowschemas"],
}


# One of each: what the real server's documents say of the kinds that are used, in every field.
PODS: Json = {
    "name": "pods",
    "singularName": "pod",
    "namespaced": True,
    "kind": "Pod",
    "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    "shortNames": ["po"],
    "categories": ["all"],
    "storageVersionHash": "xPOwRZ+Yhw8=",
}
EVICTION: Json = {
    "name": "pods/eviction",
    "singularName": "",
    "namespaced": True,
    "group": "policy",
    "version": "v1",
    "kind": "Eviction",
    "verbs": ["create"],
}
EXEC: Json = {
    "name": "pods/exec",
    "singularName": "",
    "namespaced": True,
    "kind": "PodExecOptions",
    "verbs": ["create", "get"],
}


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=[pytest.mark.since(37)] if group == "scheduling.k8s.io/v1beta1" else [])
        for group in USED
    ],
)
def test_the_resources_of_a_group(api: Api, group: str) -> None:
    found = api.get(f"/apis/{group}" if group else CORE).ok()
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", group or "v1")
    by_name = {each["name"]: each for each in found["resources"]}
    for name in USED[group]:
        assert by_name[name]["kind"], name
    if not group:
        assert by_name["pods"] == PODS
        assert by_name["pods/eviction"] == EVICTION
        assert by_name["pods/exec"] == EXEC
        assert by_name["pods/attach"]["kind"] == "PodAttachOptions"
        assert by_name["pods/portforward"]["kind"] == "PodPortForwardOptions"
        assert by_name["nodes/status"]["verbs"] == ["get", "patch", "update"]


@pytest.mark.since(37)
def test_groups_and_versions(api: Api) -> None:
    assert api.get("/api").ok()["versions"] == ["v1"]
    found = api.get("/apis").ok()
    assert found["kind"] == "APIGroupList"
    groups = {each["name"]: [version["version"] for version in each["versions"]] for each in found["groups"]}
    assert groups["scheduling.k8s.io"] == ["v1", "v1beta1"]
    assert [name for name in groups if name in ("apps", "batch", "policy")] == ["apps", "batch", "policy"]
    one = api.get("/apis/scheduling.k8s.io").ok()
    assert one["preferredVersion"] == {"groupVersion": "scheduling.k8s.io/v1", "version": "v1"}


@pytest.mark.since(37)
def test_everything_in_two_documents(api: Api) -> None:
    answer = api.get("/api", accept=AGGREGATED)
    core = answer.ok()
    assert (core["kind"], core["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    assert answer.headers["content-type"] == AGGREGATED
    pods = next(each for each in core["items"][0]["versions"][0]["resources"] if each["resource"] == "pods")
    below = {each["subresource"]: each for each in pods.pop("subresources")}
    assert pods == {
        "resource": "pods",
        "responseKind": {"group": "", "version": "", "kind": "Pod"},
        "scope": "Namespaced",
        "singularResource": "pod",
        "verbs": PODS["verbs"],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert below["eviction"]["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert below["binding"]["verbs"] == ["create"]
    groups = api.get("/apis", accept=f"{AGGREGATED},application/json").ok()["items"]
    versions = {each["metadata"]["name"]: [v["version"] for v in each["versions"]] for each in groups}
    assert versions["scheduling.k8s.io"] == ["v1", "v1beta1"]
    # Whoever has it already is told so.
    tag = api.get("/apis", accept=AGGREGATED).headers["etag"]
    again = api.get("/apis", accept=AGGREGATED, known=tag)
    assert (again.code, again.body) == (304, "")


def test_an_older_client_falls_back(api: Api) -> None:
    beta = AGGREGATED.replace("v=v2", "v=v2beta1")
    found = api.get("/apis", accept=f"{beta},application/json").ok()
    assert found["kind"] == "APIGroupList"
    assert api.get("/apis", accept=beta).code == 406


@pytest.mark.since(37)
def test_the_version(api: Api) -> None:
    found = api.get("/version").ok()
    assert (found["major"], found["minor"]) == ("1", "37")
    assert found["gitVersion"].startswith("v1.37.")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_health(api: Api, path: str) -> None:
    answer = api.get(path)
    assert (answer.code, answer.body) == (200, "ok")


@pytest.mark.since(37)
def test_the_schema_s_index(api: Api) -> None:
    paths: dict[str, Any] = api.get("/openapi/v3").ok()["paths"]
    for group in USED:
        key = f"apis/{group}" if group else "api/v1"
        assert key in paths
        assert paths[key]["serverRelativeURL"].startswith(f"/openapi/v3/{key}")
    pods = api.get(paths["api/v1"]["serverRelativeURL"]).ok()
    assert pods["openapi"].startswith("3.")
    assert "spec" in pods["components"]["schemas"]["io.k8s.api.core.v1.Pod"]["properties"]
    patch = pods["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in [each["name"] for each in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "kind": "Pod", "version": "v1"}


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("/api/v1/nonsense", 404, "the server could not find the requested resource"),
        ("/apis/batch/v7", 404, "the server could not find the requested resource"),
        ("/apis/batch/v7/jobs", 404, "the server could not find the requested resource"),
        ("/api/v2", 404, "the server could not find the requested resource"),
        ("/api/v1/namespaces/default/pods/a/b", 404, "the server could not find the requested resource"),
    ],
)
def test_nothing_is_there(api: Api, path: str, code: int, message: str) -> None:
    api.get(path).no(code, "NotFound", message)


@pytest.mark.parametrize(
    "path", ["/apis/nonsense.example.com", "/apis/nonsense.example.com/v1/things", "/nonsense"]
)
def test_nothing_of_the_kind_is_there(api: Api, path: str) -> None:
    answer = api.get(path)
    assert (answer.code, answer.body) == (404, "404 page not found\n")


def test_methods_that_are_not_offered(api: Api) -> None:
    message = "the server does not allow this method on the requested resource"
    for answer in (
        api.post(f"{CORE}/nodes/a", {}),
        api.put(api.at("pods"), {}),
        api.delete(f"{CORE}/namespaces"),
        api.post(api.at("pods", "a", "status"), {}),
        api.delete(api.at("pods", "a", "binding")),
    ):
        answer.no(405, "MethodNotAllowed", message)


def test_formats_that_are_not_served_are_refused(api: Api) -> None:
    answer = api.get(api.at("pods"), accept="text/html")
    assert (answer.code, answer.body["reason"]) == (406, "NotAcceptable")
    assert api.get(api.at("pods"), accept="text/html,*/*").ok()["kind"] == "PodList"
    assert api.get(api.at("pods"), accept="application/json;as=Table;v=v9;g=meta.k8s.io").code == 406

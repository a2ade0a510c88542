"""The rules of writing that hold for every kind: names, identity, preconditions, finalizers, dry runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.api import CONFIG_MAPS, NODES, PODS, Api
from tests.support.bodies import pod
from tests.support.yaml_bombs import BOMBS

OTHER = "11111111-2222-3333-4444-555555555555"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
PATCHES = ("merge-patch", "json-patch", "strategic-merge-patch")
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def test_the_server_fills_in_what_is_its_business(api: Api) -> None:
    given = {
        "name": "a",
        "uid": OTHER,
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "unknown": 1,
    }
    meta = api.ask("POST", CONFIG_MAPS, {"metadata": given}).body["metadata"]
    assert meta["uid"] != OTHER
    assert meta["creationTimestamp"] == "2026-01-02T03:04:05Z"
    assert (meta["namespace"], meta["resourceVersion"]) == ("default", str(api.registry.store.revision))
    assert not {"deletionTimestamp", "unknown"} & meta.keys()


def test_a_name_can_be_generated(api: Api) -> None:
    names = {
        api.ask("POST", CONFIG_MAPS, {"metadata": {"generateName": "job-"}}).body["metadata"]["name"]
        for _ in range(20)
    }
    assert len(names) == 20
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


@pytest.mark.parametrize(
    ("metadata", "code", "message"),
    [
        ({}, 422, "metadata.name: Required value: name or generateName is required"),
        ({"name": "Upper"}, 422, 'metadata.name: Invalid value: "Upper": a lowercase RFC 1123 subdomain'),
        ({"name": "a", "labels": {"a b": "c"}}, 422, 'metadata.labels: Invalid value: "a b": name part must'),
        ({"name": "a" * 254}, 422, "must be no more than 253 characters"),
        ({"name": "a", "labels": {"a" * 64: "b"}}, 422, "name part must be no more than 63 bytes"),
        ({"name": "a", "labels": {"a" * 254 + "/b": "c"}}, 422, "prefix part must be no more than 253 bytes"),
        ({"name": "a", "labels": {"a": "b" * 64}}, 422, "must be no more than 63 bytes"),
        ({"name": "a", "labels": {"a": "-"}}, 422, 'metadata.labels: Invalid value: "-": a valid label must'),
        ({"name": "a", "annotations": {"/x": ""}}, 422, "prefix part must be non-empty"),
        (
            {"name": "a", "annotations": {"x": "y" * 2**18}},
            422,
            "Too long: may not be more than 262144 bytes",
        ),
        ({"name": "a", "finalizers": ["mine"]}, 422, "nor is it fully qualified"),
        ({"name": "a", "namespace": "other"}, 400, "does not match the namespace sent on the request"),
        (
            {"name": "a", "resourceVersion": "7"},
            500,
            "resourceVersion should not be set on objects to be created",
        ),
    ],
)
def test_metadata_that_cannot_be(api: Api, metadata: dict[str, Any], code: int, message: str) -> None:
    said = api.ask("POST", CONFIG_MAPS, {"metadata": metadata})
    assert said.code == code, said.body
    assert message in said.body["message"]


def test_a_namespace_must_be_there_and_stay(api: Api) -> None:
    said = api.ask("POST", "/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}})
    assert (said.code, said.body["message"]) == (404, 'namespaces "nowhere" not found')
    api.create("/api/v1/namespaces", "going")
    assert api.ask("DELETE", "/api/v1/namespaces/going").body["status"]["phase"] == "Terminating"
    said = api.ask("POST", "/api/v1/namespaces/going/configmaps", {"metadata": {"name": "a"}})
    assert (said.code, said.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")


def test_a_name_is_taken_once(api: Api) -> None:
    api.create(CONFIG_MAPS, "a")
    said = api.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    assert (said.code, said.body["reason"]) == (409, "AlreadyExists")
    assert said.body["message"] == 'configmaps "a" already exists'


def test_an_update_of_an_old_state_is_refused_with_the_reason(api: Api) -> None:
    old = api.create(CONFIG_MAPS, "a").body
    api.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
    said = api.ask("PUT", f"{CONFIG_MAPS}/a", old)
    assert (said.code, said.body["reason"]) == (409, "Conflict")
    assert said.body["message"].endswith("apply your changes to the latest version and try again")
    # Without a resourceVersion it is written over.
    del old["metadata"]["resourceVersion"]
    assert "data" not in api.ask("PUT", f"{CONFIG_MAPS}/a", old).body


def test_another_incarnation_is_not_updated(api: Api) -> None:
    body = api.create(CONFIG_MAPS, "a").body
    body["metadata"] |= {"uid": OTHER, "resourceVersion": ""}
    said = api.ask("PUT", f"{CONFIG_MAPS}/a", body)
    assert said.code == 409
    assert f"Precondition failed: UID in precondition: {OTHER}" in said.body["message"]


def test_a_body_must_be_what_its_path_says(api: Api) -> None:
    api.create(CONFIG_MAPS, "a")
    said = api.ask("PUT", f"{CONFIG_MAPS}/a", {"metadata": {"name": "b"}})
    assert said.body["message"] == "the name of the object (b) does not match the name on the URL (a)"
    said = api.ask("POST", CONFIG_MAPS, {"kind": "Secret", "metadata": {"name": "b"}})
    assert said.body["message"].startswith('Secret in version "v1" cannot be handled as a ConfigMap')
    said = api.ask("POST", CONFIG_MAPS, {"apiVersion": "v2", "metadata": {"name": "b"}})
    assert "does not match the expected API version (v1)" in said.body["message"]
    for broken in (b"{", b"[]", b"\x00", b"null"):
        said = api.ask("POST", CONFIG_MAPS, broken)
        assert (said.code, said.body["reason"]) == (400, "BadRequest")
    said = api.ask("POST", CONFIG_MAPS, b"<a/>", content_type="text/xml")
    assert (said.code, said.body["reason"]) == (415, "UnsupportedMediaType")


def test_yaml_is_as_good(api: Api) -> None:
    text = b"metadata: {name: a, annotations: {since: '2020-01-01'}}\ndata:\n  x: |\n    two\n    lines\n"
    said = api.ask("POST", CONFIG_MAPS, text, content_type="application/yaml")
    assert (said.code, said.body["data"]) == (201, {"x": "two\nlines\n"})


def test_unknown_fields_are_refused_warned_of_or_dropped(api: Api) -> None:
    def create(name: str, validation: str) -> Any:
        body = {"metadata": {"name": name}, "immutable": True, "colour": "blue"}
        return api.ask("POST", f"{CONFIG_MAPS}?fieldValidation={validation}", body)

    strict = create("a", "Strict")
    assert (strict.code, strict.body["reason"]) == (400, "BadRequest")
    assert strict.body["message"].endswith('strict decoding error: unknown field "colour"')
    warned = create("b", "Warn")
    assert warned.headers["Warning"] == '299 - "unknown field \\"colour\\""'
    assert "colour" not in warned.body
    assert "Warning" not in create("c", "Ignore").headers
    assert create("d", "Sometimes").code == 422


def test_a_dry_run_leaves_nothing(api: Api) -> None:
    revision = api.registry.store.revision
    said = api.ask("POST", f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "a"}})
    assert said.code == 201
    assert said.body["metadata"]["uid"]
    assert "resourceVersion" not in said.body["metadata"]
    made = api.create(CONFIG_MAPS, "b").body
    patched = api.ask(
        "PATCH",
        f"{CONFIG_MAPS}/b?dryRun=All",
        {"data": {"x": "y"}},
        content_type="application/merge-patch+json",
    )
    assert patched.body["data"] == {"x": "y"}
    assert api.ask("DELETE", f"{CONFIG_MAPS}/b?dryRun=All").code == 200
    assert api.get(f"{CONFIG_MAPS}/b").body == made
    assert api.registry.store.revision == revision + 1


def test_finalizers_hold_an_object_and_let_it_go(api: Api) -> None:
    api.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a", "finalizers": ["example.com/kept"]}})
    reader = api.watch(f"{CONFIG_MAPS}?watch=1")
    reader.read()
    marked = api.ask("DELETE", f"{CONFIG_MAPS}/a").body["metadata"]
    assert (marked["deletionTimestamp"], marked["deletionGracePeriodSeconds"]) == ("2026-01-02T03:04:05Z", 0)
    added = {"metadata": {"finalizers": ["example.com/kept", "example.com/new"]}}
    said = api.merge(f"{CONFIG_MAPS}/a", added)
    assert (said.code, said.body["details"]["causes"][0]["reason"]) == (422, "FieldValueForbidden")
    again = api.ask("DELETE", f"{CONFIG_MAPS}/a").body["metadata"]
    assert again["resourceVersion"] == marked["resourceVersion"]
    assert api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}}).code == 200
    assert api.get(f"{CONFIG_MAPS}/a").code == 404
    assert reader.told() == ["MODIFIED a", "DELETED a"]


def test_propagation_becomes_a_finalizer(api: Api) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        api.create(CONFIG_MAPS, finalizer.lower())
        said = api.ask("DELETE", f"{CONFIG_MAPS}/{finalizer.lower()}", {"propagationPolicy": policy})
        assert said.body["metadata"]["finalizers"] == [finalizer]
    api.create(CONFIG_MAPS, "b")
    gone = api.ask("DELETE", f"{CONFIG_MAPS}/b", {"propagationPolicy": "Background"}).body
    assert (gone["kind"], gone["status"], gone["details"]["kind"]) == ("Status", "Success", "configmaps")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"propagationPolicy": "Sideways"}, 422, "propagationPolicy: Unsupported value"),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "cannot be both set"),
        ({"preconditions": {"uid": OTHER}}, 409, f"the UID in the precondition ({OTHER}) does not match"),
        ({"preconditions": {"resourceVersion": "1"}}, 409, "the ResourceVersion in the precondition (1)"),
        ({"dryRun": ["Some"]}, 422, "dryRun: Unsupported value"),
        ({"kind": "Pod"}, 400, "cannot be handled as a DeleteOptions"),
    ],
)
def test_deletions_that_are_refused(api: Api, options: dict[str, Any], code: int, message: str) -> None:
    api.create(CONFIG_MAPS, "a")
    said = api.ask("DELETE", f"{CONFIG_MAPS}/a", options)
    assert said.code == code, said.body
    assert message in said.body["message"]
    assert api.get(f"{CONFIG_MAPS}/a").code == 200


def test_a_running_pod_is_given_its_grace_once(api: Api) -> None:
    api.ask("POST", PODS, pod("a", nodeName="n1"))
    first = api.ask("DELETE", f"{PODS}/a").body["metadata"]
    assert (first["deletionGracePeriodSeconds"], first["deletionTimestamp"]) == (30, "2026-01-02T03:04:35Z")
    api.tick(5)
    longer = api.ask("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 60}).body["metadata"]
    assert longer["resourceVersion"] == first["resourceVersion"]
    shorter = api.ask("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 10}).body["metadata"]
    assert (shorter["deletionGracePeriodSeconds"], shorter["deletionTimestamp"]) == (
        10,
        "2026-01-02T03:04:15Z",
    )
    # The kubelet's word that it is over.
    assert api.ask("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 0}).code == 200
    assert api.get(f"{PODS}/a").code == 404


def test_a_pod_that_nobody_runs_goes_at_once(api: Api) -> None:
    api.ask("POST", PODS, pod("a"))
    assert api.ask("DELETE", f"{PODS}/a").body["kind"] == "Pod"
    assert api.get(f"{PODS}/a").code == 404


def test_a_collection_is_deleted_by_its_selector(api: Api) -> None:
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
        api.create(CONFIG_MAPS, name, labels={"colour": colour})
    assert api.ask("DELETE", f"{CONFIG_MAPS}?labelSelector=colour%3Dred").names == ["a", "c"]
    assert api.get(CONFIG_MAPS).names == ["b"]


def test_the_generation_counts_changes_of_the_spec(api: Api) -> None:
    api.create(BUDGETS, "a", spec={"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}})
    path = f"{BUDGETS}/a"
    assert api.get(path).body["metadata"]["generation"] == 1
    assert api.merge(path, {"metadata": {"labels": {"x": "y"}}}).body["metadata"]["generation"] == 1
    assert api.merge(path, {"spec": {"minAvailable": 2}}).body["metadata"]["generation"] == 2
    assert api.merge(f"{path}/status", {"status": {"currentHealthy": 3}}).body["metadata"]["generation"] == 2


def test_a_status_is_written_below_the_object_and_only_there(api: Api) -> None:
    api.create(BUDGETS, "a", spec={"minAvailable": 1}, status={"currentHealthy": 9})
    path = f"{BUDGETS}/a"
    assert api.merge(path, {"status": {"currentHealthy": 9}}).body.get("status", {}).get(
        "currentHealthy"
    ) in (
        None,
        0,
    )
    changed = api.merge(f"{path}/status", {"spec": {"minAvailable": 5}, "status": {"currentHealthy": 3}}).body
    assert (changed["spec"]["minAvailable"], changed["status"]["currentHealthy"]) == (1, 3)
    assert api.get(f"{path}/status").body == changed


def test_a_lease_is_made_by_an_update_and_needs_its_version_then(api: Api) -> None:
    made = api.ask("PUT", f"{LEASES}/a", {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})
    assert made.code == 201
    said = api.ask("PUT", f"{LEASES}/a", {"metadata": {"name": "a"}, "spec": {"holderIdentity": "you"}})
    assert (said.code, said.body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/configmaps"),
        ("PATCH", CONFIG_MAPS),
        ("POST", f"{CONFIG_MAPS}/a"),
        ("DELETE", "/api/v1/namespaces"),
        ("GET", "/api/v1/bindings"),
        ("PUT", f"{PODS}/a/binding"),
    ],
)
def test_methods_that_a_path_does_not_have(api: Api, method: str, path: str) -> None:
    said = api.ask(method, path, {})
    assert (said.code, said.body["reason"]) == (405, "MethodNotAllowed")


def test_paths_at_which_there_is_no_resource(api: Api) -> None:
    from gangsched.lab.apiserver.http.requests import find_target

    for path in ("/api/v1/things", "/apis/batch/v2/jobs", "/api/v1/pods/a", "/api/v1/pods/a/b/c", "/api/v1"):
        assert find_target(api.registry.resources, path) is None
    for path in ("/api/v1/namespaces/x/nodes", f"{PODS}/a/proxy", f"{NODES}/a/b"):
        assert find_target(api.registry.resources, path) is None


def test_metadata_alone(api: Api) -> None:
    api.create(CONFIG_MAPS, "a", data={"x": "y"})
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    one = api.get(f"{CONFIG_MAPS}/a", accept=accept).body
    assert (one["kind"], "data" in one) == ("PartialObjectMetadata", False)
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    many = api.get(CONFIG_MAPS, accept=accept)
    assert (many.body["kind"], many.names) == ("PartialObjectMetadataList", ["a"])


@pytest.mark.parametrize("bomb", BOMBS)
def test_yaml_that_stands_for_more_than_it_is_is_refused(api: Api, bomb: str) -> None:
    text, said = BOMBS[bomb]
    body = f"kind: ConfigMap\napiVersion: v1\n{text}".encode()
    answer = api.ask("POST", CONFIG_MAPS, body, content_type="application/yaml")
    assert answer.code == 400
    assert said.replace("1000000", "200000") in answer.body["message"]


@pytest.mark.parametrize(
    "kind", ["json", "merge-patch+json", "json-patch+json", "strategic-merge-patch+json"]
)
def test_json_that_is_nested_without_end_is_refused(api: Api, kind: str) -> None:
    api.create(CONFIG_MAPS, "a")
    body = b'{"data":' + b"[" * 100_000
    method, path = ("POST", CONFIG_MAPS) if kind == "json" else ("PATCH", f"{CONFIG_MAPS}/a")
    assert api.ask(method, path, body, content_type=f"application/{kind}").code == 400

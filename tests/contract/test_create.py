"""Creating: names, metadata that the server sets, what it refuses, dry runs."""

from __future__ import annotations

import re

from tests.contract.api import CORE, YAML, Api
from tests.contract.objects import config_map, unique
from tests.support.bodies import pod


def test_the_server_sets_what_identifies_an_object(api: Api) -> None:
    sent = config_map(
        "a", uid="mine", selfLink="/mine", generation=7, creationTimestamp="2001-01-01T00:00:00Z"
    )
    made = api.post(api.at("configmaps"), sent).ok(201)
    meta = made["metadata"]
    assert (made["kind"], made["apiVersion"], made["data"]) == ("ConfigMap", "v1", {"a": "1"})
    assert (meta["name"], meta["namespace"]) == ("a", api.namespace)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert meta["creationTimestamp"] > "2020"
    assert int(meta["resourceVersion"]) > 0
    assert "selfLink" not in meta
    assert api.get(api.at("configmaps", "a")).ok() == made


def test_a_name_is_generated_where_only_its_beginning_is_given(api: Api) -> None:
    sent = {"metadata": {"generateName": "gang-"}}
    names = {api.post(api.at("configmaps"), sent).ok(201)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch("gang-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def test_a_name_can_be_used_once(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a")).ok(201)
    said = api.post(api.at("configmaps"), config_map("a")).no(
        409, "AlreadyExists", 'configmaps "a" already exists'
    )
    assert said["details"] == {"name": "a", "kind": "configmaps"}


def test_names_and_labels_have_rules(api: Api) -> None:
    said = api.post(api.at("configmaps"), config_map("A_b")).no(
        422,
        "Invalid",
        'ConfigMap "A_b" is invalid: metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain must '
        "consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    )
    assert said["details"]["causes"][0]["field"] == "metadata.name"
    api.post(api.at("configmaps"), {"data": {}}).no(
        422,
        "Invalid",
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
    )
    answer = api.post(api.at("configmaps"), config_map("a", labels={"a b": "c d"}))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert {cause["field"] for cause in answer.body["details"]["causes"]} == {"metadata.labels"}
    api.post(api.at("configmaps"), config_map("a", resourceVersion="5")).no(
        500, "", "resourceVersion should not be set on objects to be created"
    )


def test_the_namespace_of_the_path_is_the_object_s(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a", namespace="elsewhere")).no(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    )
    api.post(f"{CORE}/namespaces/nowhere/configmaps", config_map("a")).no(
        404, "NotFound", 'namespaces "nowhere" not found'
    )
    api.post(f"{CORE}/configmaps", config_map("a")).no(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a"), dryRun="All").ok(201)
    assert made["metadata"]["uid"]
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert "resourceVersion" not in made["metadata"]
    api.get(api.at("pods", "a")).no(404, "NotFound", 'pods "a" not found')
    api.post(api.at("pods"), pod("a"), dryRun="Some").no(
        422,
        "Invalid",
        'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"',
    )


def test_bodies_that_cannot_be_read(api: Api) -> None:
    answer = api.post(api.at("configmaps"), b"{not json")
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    answer = api.post(
        api.at("configmaps"), {**config_map("a", {"a": "MQ=="}), "kind": "Secret", "apiVersion": "v1"}
    )
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"] == (
        'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): '
        "unknown conversion"
    )
    answer = api.post(api.at("configmaps"), config_map("a"), content_type="text/plain")
    assert (answer.code, answer.body["reason"]) == (415, "UnsupportedMediaType")
    answer = api.post(api.at("configmaps"), {"metadata": {"name": "a"}, "data": [1]})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal array'
        in (answer.body["message"])
    )


def test_yaml_is_understood(api: Api) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  b: '1'\n"
    made = api.post(api.at("configmaps"), body, content_type=YAML).ok(201)
    assert made["data"] == {"b": "1"}
    shown = api.get(api.at("configmaps", "a"), accept=YAML)
    assert shown.headers["content-type"].startswith(YAML)
    assert '\ndata:\n  b: "1"\n' in "\n" + shown.body.replace("'", '"')


def test_unknown_fields_are_refused_warned_of_or_ignored(api: Api) -> None:
    body = {**pod("a"), "specc": 1}
    body["spec"]["containers"][0]["imagee"] = "b"
    problems = 'unknown field "spec.containers[0].imagee", unknown field "specc"'
    api.post(api.at("pods"), body, fieldValidation="Strict").no(
        400,
        "BadRequest",
        f'Pod in version "v1" cannot be handled as a Pod: strict decoding error: {problems}',
    )
    warned = api.post(api.at("pods"), body, fieldValidation="Warn", dryRun="All")
    assert warned.ok(201)["metadata"]["name"] == "a"
    assert warned.warnings == ['unknown field "spec.containers[0].imagee"', 'unknown field "specc"']
    assert api.post(api.at("pods"), body, dryRun="All").warnings == warned.warnings
    ignored = api.post(api.at("pods"), body, fieldValidation="Ignore")
    assert "specc" not in ignored.ok(201)
    assert ignored.warnings == []
    answer = api.post(api.at("pods"), body, fieldValidation="Never")
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["message"] == (
        'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Never": supported values: '
        '"", "Ignore", "Strict", "Warn"'
    )


def test_duplicate_fields_are_reported(api: Api) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"a":"1"},"data":{"b":"2"}}'
    answer = api.post(api.at("configmaps"), body, fieldValidation="Strict")
    answer.no(
        400,
        "BadRequest",
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: duplicate field "data"',
    )


def test_a_cluster_scoped_object_is_in_no_namespace(api: Api) -> None:
    name = unique("pc")
    group = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = api.post(group, {"metadata": {"name": name}, "value": 7}).ok(201)
    assert "namespace" not in made["metadata"]
    assert made["preemptionPolicy"] == "PreemptLowerPriority"
    assert api.get(f"{group}/{name}").ok()["value"] == 7
    api.get(f"{group}/nobody").no(404, "NotFound", 'priorityclasses.scheduling.k8s.io "nobody" not found')

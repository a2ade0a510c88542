"""The OpenAPI documents, as far as kubectl reads them."""

from __future__ import annotations

import json
from typing import Any

from gangsched.api_rules.schema.catalog import builtin
from gangsched.api_rules.schema.node import Schema
from gangsched.lab.apiserver.documents.openapi import OpenApi
from gangsched.lab.apiserver.resources import Resource, builtin_resources

THING = Resource("example.com", ("v1",), "things", "thing", "Thing", True, list_kind="ThingList", custom=True)
SPEC = {"type": "object", "properties": {"spec": {"type": "object", "description": "What is wanted."}}}


def documents(schema_spec: dict[str, Any] | None = None) -> OpenApi:
    resources = builtin_resources()
    schema = builtin().custom(schema_spec) if schema_spec else None

    def schema_of(resource: Resource, version: str) -> Schema | None:
        return schema if resource is THING else None

    if schema:
        resources.add(THING)
    return OpenApi(resources, schema_of)


def read(openapi: OpenApi, path: str) -> Any:
    document = openapi.answer(path)
    assert document is not None, path
    return json.loads(document.body)


def test_the_index_leads_to_a_document_for_each_version_served() -> None:
    openapi = documents()
    index = read(openapi, "/openapi/v3")["paths"]
    assert {"api/v1", "apis/batch/v1", "apis/scheduling.k8s.io/v1beta1"} <= index.keys()
    for path, entry in index.items():
        address, _, digest = entry["serverRelativeURL"].partition("?hash=")
        document = openapi.answer(address)
        assert address == f"/openapi/v3/{path}"
        assert document is not None
        assert document.etag == digest
    assert openapi.answer("/openapi/v3/apis/nobody.example.com/v1") is None
    assert openapi.answer("/openapi/v4") is None


def test_every_reference_leads_somewhere() -> None:
    openapi = documents(SPEC)
    for path in read(openapi, "/openapi/v3")["paths"]:
        document = read(openapi, f"/openapi/v3/{path}")
        known = document["components"]["schemas"]
        for ref in references(document):
            assert ref.removeprefix("#/components/schemas/") in known, (path, ref)


def references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [ref for each in value for ref in references(each)]
    if not isinstance(value, dict):
        return []
    here = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return here + [ref for each in value.values() for ref in references(each)]


def test_a_patch_says_its_formats_and_that_fields_are_validated() -> None:
    openapi = documents(SPEC)
    pod = read(openapi, "/openapi/v3/api/v1")["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    thing = read(openapi, "/openapi/v3/apis/example.com/v1")["paths"][
        "/apis/example.com/v1/namespaces/{namespace}/things/{name}"
    ]
    for operations, kind, strategic in ((pod, "Pod", True), (thing, "Thing", False)):
        patch = operations["patch"]
        assert patch["x-kubernetes-group-version-kind"]["kind"] == kind
        assert "fieldValidation" in [each["name"] for each in patch["parameters"]]
        formats = patch["requestBody"]["content"]
        assert ("application/strategic-merge-patch+json" in formats) is strategic
        assert "application/apply-patch+yaml" in formats


def test_fields_are_described_by_the_installed_models() -> None:
    schemas = read(documents(), "/openapi/v3/api/v1")["components"]["schemas"]
    fields = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert fields["activeDeadlineSeconds"]["description"].startswith("Optional duration in seconds")
    assert fields["nodeName"]["description"]
    # The models say nothing of fields that are objects of their own.
    assert "description" not in fields["affinity"]
    assert "description" not in fields["securityContext"]


def test_a_custom_kind_is_described_by_its_definition_and_its_change_changes_the_address() -> None:
    openapi = documents(SPEC)
    schemas = read(openapi, "/openapi/v3/apis/example.com/v1")["components"]["schemas"]
    thing = schemas["com.example.v1.Thing"]
    assert thing["properties"]["spec"]["description"] == "What is wanted."
    assert thing["properties"]["metadata"]["allOf"][0]["$ref"].endswith("meta.v1.ObjectMeta")
    assert thing["x-kubernetes-group-version-kind"] == [
        {"group": "example.com", "version": "v1", "kind": "Thing"}
    ]
    other = documents({"type": "object", "properties": {"spec": {"type": "string"}}})
    before, after = (each.answer("/openapi/v3/apis/example.com/v1") for each in (openapi, other))
    assert before is not None
    assert after is not None
    assert before.etag != after.etag

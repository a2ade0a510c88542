"""Discovery documents as they follow the table of resources, and what an Accept header comes to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.documents.discovery import AGGREGATED, Discovery, version_order
from gangsched.lab.apiserver.http.negotiation import JSON, YAML, Media, Shape, negotiate, of_discovery
from gangsched.lab.apiserver.resources import Resource, Subresource, builtin_resources

TABLE = Shape("meta.k8s.io", "v1", "Table")


def widgets(*versions: str) -> Resource:
    """As a definition brings them."""
    return Resource(
        group="example.com",
        versions=versions,
        plural="widgets",
        singular="widget",
        kind="Widget",
        namespaced=True,
        short_names=("wd",),
        subresources=(Subresource("status", "Widget", ("get", "patch", "update")),),
        custom=True,
    )


def read(discovery: Discovery, path: str, accept: str = "") -> Any:
    document = discovery.answer(path, accept)
    assert document is not None, path
    return json.loads(document.body)


def test_a_new_definition_is_seen_at_once_and_gone_at_once() -> None:
    resources = builtin_resources()
    discovery = Discovery(resources, "127.0.0.1:1")
    before = discovery.answer("/apis", AGGREGATED)
    assert discovery.answer("/apis/example.com") is None
    resources.add(widgets("v1"))
    assert read(discovery, "/apis/example.com")["versions"] == [
        {"groupVersion": "example.com/v1", "version": "v1"}
    ]
    after = discovery.answer("/apis", AGGREGATED)
    assert before is not None
    assert after is not None
    assert before.etag != after.etag
    resources.remove("example.com/widgets")
    assert discovery.answer("/apis/example.com") is None
    assert discovery.answer("/apis", AGGREGATED) == before


def test_a_custom_resource_names_its_group_where_a_built_in_one_does_not() -> None:
    resources = builtin_resources()
    resources.add(widgets("v1"))
    groups = read(Discovery(resources, ""), "/apis", AGGREGATED)["items"]
    assert groups[-1]["metadata"] == {"name": "example.com"}
    [widget] = groups[-1]["versions"][0]["resources"]
    kind = {"group": "example.com", "version": "v1", "kind": "Widget"}
    assert widget["responseKind"] == kind
    assert [each["responseKind"] for each in widget["subresources"]] == [kind]
    jobs = next(each for each in groups if each["metadata"]["name"] == "batch")["versions"][0]["resources"][0]
    assert jobs["responseKind"] == {"group": "", "version": "", "kind": "Job"}


def test_versions_are_ordered_by_how_stable_they_are() -> None:
    resources = builtin_resources()
    resources.add(widgets("v1alpha1", "v2", "v1beta2", "v1", "v10", "foo", "v1beta10"))
    versions = [each["version"] for each in read(Discovery(resources, ""), "/apis/example.com")["versions"]]
    assert versions == ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]
    assert sorted(versions, key=version_order) == versions


def test_there_is_nothing_or_not_in_this_version() -> None:
    discovery = Discovery(builtin_resources(), "")
    for path in ("/apis/nonsense", "/api/v1/pods", "/apis/batch/v1/jobs"):
        assert discovery.answer(path) is None, path
    with pytest.raises(StatusError, match="could not find the requested resource"):
        discovery.answer("/apis/batch/v7")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Media()),
        ("*/*", Media()),
        ("application/*", Media()),
        ("text/html, */*;q=0.1", Media()),
        ("application/yaml", Media(YAML)),
        ("application/json;q=0.5,application/yaml", Media(YAML)),
        ("application/vnd.kubernetes.protobuf,application/json", Media(JSON)),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Media(JSON, TABLE)),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Media(JSON)),
        ("application/json;stream=watch", Media(JSON)),
        ("nonsense,application/json", Media(JSON)),
    ],
)
def test_what_a_client_prefers(accept: str, expected: Media) -> None:
    assert negotiate(accept) == expected


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;as=Table;v=v9;g=meta.k8s.io", "application/json;sv=v2"]
)
def test_an_accept_header_that_cannot_be_met_is_refused(accept: str) -> None:
    with pytest.raises(StatusError) as refused:
        negotiate(accept)
    assert refused.value.code == 406


def test_discovery_has_its_own_shape() -> None:
    assert negotiate(AGGREGATED, of_discovery).shape == Shape(
        "apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"
    )
    with pytest.raises(StatusError):
        negotiate(AGGREGATED)

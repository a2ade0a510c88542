"""Lists: order, pages, resource versions, selectors."""

from __future__ import annotations

import pytest

from tests.contract.api import CORE, PARTIAL_LIST, Api, Json
from tests.contract.objects import binding, config_map
from tests.support.bodies import pod


def names(body: Json) -> list[str]:
    return [each["metadata"]["name"] for each in body["items"]]


def fill(api: Api, *wanted: str) -> None:
    for name in wanted:
        api.post(api.at("configmaps"), config_map(name, labels={"first": name[0]})).ok(201)


def test_a_list_is_ordered_by_name_and_has_a_version(api: Api) -> None:
    fill(api, "b", "a", "c")
    found = api.get(api.at("configmaps")).ok()
    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert names(found) == ["a", "b", "c"]
    assert int(found["metadata"]["resourceVersion"]) >= int(found["items"][-1]["metadata"]["resourceVersion"])
    # Items of a list do not repeat what the list says.
    assert "kind" not in found["items"][0]
    empty = api.get(api.at("secrets")).ok()
    assert empty["items"] == []


def test_a_namespace_that_is_not_there_has_an_empty_list(api: Api) -> None:
    assert api.get(f"{CORE}/namespaces/nowhere/pods").ok()["items"] == []


def test_pages_show_one_moment(api: Api) -> None:
    fill(api, "a", "b", "c", "d", "e")
    first = api.get(api.at("configmaps"), limit=2).ok()
    assert names(first) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    fill(api, "c2")
    api.delete(api.at("configmaps", "d")).ok()
    token = first["metadata"]["continue"]
    second = api.get(api.at("configmaps"), **{"limit": 2, "continue": token}).ok()
    assert names(second) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = api.get(api.at("configmaps"), **{"limit": 2, "continue": second["metadata"]["continue"]}).ok()
    assert names(last) == ["e"]
    assert "continue" not in last["metadata"]
    assert names(api.get(api.at("configmaps")).ok()) == ["a", "b", "c", "c2", "e"]


def test_pages_with_a_selector(api: Api) -> None:
    fill(api, "a1", "b1", "a2", "b2", "a3")
    first = api.get(api.at("configmaps"), limit=2, labelSelector="first=a").ok()
    assert names(first) == ["a1", "a2"]
    assert "remainingItemCount" not in first["metadata"]
    rest = api.get(
        api.at("configmaps"),
        **{"limit": 2, "labelSelector": "first=a", "continue": first["metadata"]["continue"]},
    ).ok()
    assert names(rest) == ["a3"]


def test_invalid_tokens_are_refused(api: Api) -> None:
    answer = api.get(api.at("configmaps"), **{"limit": 2, "continue": "nonsense"})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"].startswith("invalid continue token: continue key is not valid: ")
    fill(api, "a", "b", "c")
    token = api.get(api.at("configmaps"), limit=1).ok()["metadata"]["continue"]
    answer = api.get(api.at("configmaps"), **{"limit": 2, "continue": token, "resourceVersion": "1"})
    answer.no(400, "BadRequest", "specifying resource version is not allowed when using continue")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("color=red", ["a", "c"]),
        ("color==red,size=1", ["a"]),
        ("color!=red", ["b", "d"]),
        ("color in (red, blue)", ["a", "b", "c"]),
        ("color notin (red)", ["b", "d"]),
        ("color", ["a", "b", "c"]),
        ("!color", ["d"]),
        ("size>1", ["c"]),
        ("", ["a", "b", "c", "d"]),
    ],
)
def test_label_selectors(api: Api, selector: str, expected: list[str]) -> None:
    for name, labels in (
        ("a", {"color": "red", "size": "1"}),
        ("b", {"color": "blue"}),
        ("c", {"color": "red", "size": "2"}),
        ("d", {}),
    ):
        api.post(api.at("configmaps"), config_map(name, labels=labels)).ok(201)
    assert names(api.get(api.at("configmaps"), labelSelector=selector).ok()) == expected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (
            "a in b",
            "unable to parse requirement: found 'b' expected: '('",
        ),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        (
            "-a",
            'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  "
            "or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ],
)
def test_invalid_label_selectors_are_refused(api: Api, selector: str, message: str) -> None:
    api.get(api.at("configmaps"), labelSelector=selector).no(400, "BadRequest", message)


def test_field_selectors_of_pods(api: Api) -> None:
    for name in ("a", "b", "c"):
        api.post(api.at("pods"), pod(name, schedulerName="other" if name == "c" else "gangsched")).ok(201)
    api.post(api.at("pods", "a", "binding"), binding("a")).ok(201)
    api.patch(api.at("pods", "a", "status"), {"status": {"phase": "Running"}}).ok()
    for selector, expected in (
        ("spec.nodeName=", ["b", "c"]),
        ("spec.nodeName=some-node", ["a"]),
        ("status.phase!=Running", ["b", "c"]),
        ("spec.schedulerName=gangsched,status.phase=Pending", ["b"]),
        ("metadata.name=c", ["c"]),
        (f"metadata.namespace={api.namespace},metadata.name!=a", ["b", "c"]),
        ("spec.restartPolicy=Never", []),
    ):
        assert names(api.get(api.at("pods"), fieldSelector=selector).ok()) == expected, selector
    api.get(api.at("pods"), fieldSelector="spec.color=red").no(
        400, "BadRequest", "field label not supported: spec.color"
    )


def test_lists_at_a_version(api: Api) -> None:
    fill(api, "a")
    version = api.get(api.at("configmaps")).ok()["metadata"]["resourceVersion"]
    fill(api, "b")
    exact = api.get(api.at("configmaps"), resourceVersion=version, resourceVersionMatch="Exact").ok()
    assert names(exact) == ["a"]
    newer = api.get(api.at("configmaps"), resourceVersion=version, resourceVersionMatch="NotOlderThan").ok()
    assert names(newer) == ["a", "b"]
    assert "a" in names(api.get(api.at("configmaps"), resourceVersion="0").ok())


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            {"resourceVersionMatch": "Exact"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is '
            "forbidden unless resourceVersion is provided",
        ),
        (
            {"resourceVersionMatch": "Nearly", "resourceVersion": "1"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Unsupported value: "Nearly": supported '
            'values: "Exact", "NotOlderThan", ""',
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" '
            'is forbidden for resourceVersion "0"',
        ),
    ],
)
def test_options_that_do_not_go_together(api: Api, query: Json, message: str) -> None:
    api.get(api.at("configmaps"), **query).no(422, "Invalid", message)


def test_a_version_from_the_future(api: Api) -> None:
    answer = api.get(api.at("configmaps"), resourceVersion="999999999", resourceVersionMatch="NotOlderThan")
    assert (answer.code, answer.body["reason"]) == (504, "Timeout")
    assert answer.body["message"].startswith("Timeout: Too large resource version: 999999999, current: ")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    answer = api.get(api.at("configmaps"), resourceVersion="abc")
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("name", ["a", "absent"])
def test_an_object_at_a_version(api: Api, name: str) -> None:
    fill(api, "a")
    version = api.get(api.at("configmaps")).ok()["metadata"]["resourceVersion"]
    path = api.at("configmaps", name)
    # Not older than that: the present one.
    assert api.get(path, resourceVersion=version).code == (200 if name == "a" else 404)
    answer = api.get(path, resourceVersion="999999999")
    assert (answer.code, answer.body["reason"]) == (504, "Timeout")
    assert answer.body["message"].startswith("Timeout: Too large resource version: 999999999, current: ")
    says = 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    api.get(path, resourceVersion="abc").no(500, "", says)


def test_a_limit_below_zero_is_none(api: Api) -> None:
    before = api.get(api.at("configmaps")).ok()["metadata"]["resourceVersion"]
    fill(api, "a", "b")
    for query in ({"limit": -1}, {"limit": -1, "resourceVersion": before}):
        found = api.get(api.at("configmaps"), **query).ok()
        assert (names(found), "continue" in found["metadata"]) == (["a", "b"], False)


def test_metadata_alone(api: Api) -> None:
    fill(api, "a")
    found = api.get(api.at("configmaps"), accept=PARTIAL_LIST).ok()
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    [item] = found["items"]
    assert (item["kind"], item["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert item["metadata"]["labels"] == {"first": "a"}
    assert "data" not in item

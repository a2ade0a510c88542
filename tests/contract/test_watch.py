"""Watches: from where they begin, what they tell, bookmarks, initial events, their end."""

from __future__ import annotations

import pytest

from tests.contract.api import CORE, JSON, PARTIAL, TABLE, Api, Json
from tests.contract.objects import bind, binding, config_map
from tests.support.bodies import pod

END = {"k8s.io/initial-events-end": "true"}
INITIAL = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def version(api: Api, plural: str = "configmaps") -> str:
    return str(api.get(api.at(plural)).ok()["metadata"]["resourceVersion"])


def test_a_watch_tells_what_happens_after_a_version(api: Api) -> None:
    start = version(api)
    api.post(api.at("configmaps"), config_map("a")).ok(201)
    with api.watch(api.at("configmaps"), resourceVersion=start) as watch:
        api.patch(api.at("configmaps", "a"), {"data": {"a": "2"}}).ok()
        api.post(api.at("configmaps"), config_map("b")).ok(201)
        api.delete(api.at("configmaps", "a")).ok()
        told = [watch.next() for _ in range(4)]
    assert [(type_, obj["metadata"]["name"]) for type_, obj in told] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in told]
    assert versions == sorted(versions)
    assert len(set(versions)) == 4
    assert (told[1][1]["kind"], told[1][1]["data"]) == ("ConfigMap", {"a": "2"})
    # Its last state, at the deletion's version.
    assert told[3][1]["data"] == {"a": "2"}


def deletion_of(obj: Json) -> tuple[object, ...]:
    """Whether it is being deleted, its grace, its finalizers."""
    meta = obj["metadata"]
    return "deletionTimestamp" in meta, meta.get("deletionGracePeriodSeconds"), meta.get("finalizers")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_watch_shows_a_pod_terminating_before_it_is_gone(api: Api, dry_run: bool) -> None:
    made = api.post(api.at("pods"), pod("a")).ok(201)
    with api.watch(api.at("pods"), resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        if dry_run:
            assert deletion_of(api.delete(api.at("pods", "a"), dryRun="All").ok()) == (True, 0, None)
        said = api.delete(api.at("pods", "a")).ok()
        (first, leaving), (second, gone) = watch.next(), watch.next()
    assert (first, *deletion_of(leaving)) == ("MODIFIED", True, 0, None)
    assert (second, *deletion_of(gone)) == ("DELETED", True, 0, None)
    assert leaving["metadata"]["generation"] == gone["metadata"]["generation"] == 2
    assert int(leaving["metadata"]["resourceVersion"]) < int(gone["metadata"]["resourceVersion"])
    assert said == gone


def test_a_watch_shows_a_kubelets_last_change_before_the_pod_is_gone(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    bind(api, "a")
    marked = api.delete(api.at("pods", "a")).ok()
    with api.watch(api.at("pods"), resourceVersion=marked["metadata"]["resourceVersion"]) as watch:
        api.delete(api.at("pods", "a"), {"gracePeriodSeconds": 0}).ok()
        told = [watch.next() for _ in range(2)]
    assert [(type_, *deletion_of(obj)) for type_, obj in told] == [
        ("MODIFIED", True, 0, None),
        ("DELETED", True, 0, None),
    ]


def test_what_held_an_object_is_in_its_last_state(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a", finalizers=["example.com/hold"])).ok(201)
    marked = api.delete(api.at("configmaps", "a")).ok()
    with api.watch(api.at("configmaps"), resourceVersion=marked["metadata"]["resourceVersion"]) as watch:
        freed = api.patch(api.at("configmaps", "a"), {"metadata": {"finalizers": None}, "data": None}).ok()
        type_, last = watch.next()
    # The patch that lets it go is never stored.
    assert (type_, last["data"]) == ("DELETED", {"a": "1"})
    assert deletion_of(last) == (True, 0, ["example.com/hold"])
    assert (deletion_of(freed), "data" in freed) == ((True, 0, None), False)
    assert freed["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]


def test_an_update_that_changes_nothing_is_not_reported(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    with api.watch(api.at("configmaps"), resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        api.put(api.at("configmaps", "a"), made).ok()
        api.post(api.at("configmaps"), config_map("b")).ok(201)
        assert watch.take(1) == [("ADDED", "b")]


@pytest.mark.parametrize("start", ["", "0"])
def test_without_a_version_the_state_comes_first(api: Api, start: str) -> None:
    api.post(api.at("configmaps"), config_map("a")).ok(201)
    query = {"resourceVersion": start} if start else {}
    with api.watch(api.at("configmaps"), **query) as watch:
        assert watch.take(1) == [("ADDED", "a")]
        api.delete(api.at("configmaps", "a")).ok()
        assert watch.take(1) == [("DELETED", "a")]


def test_a_watch_list_ends_its_state_with_a_bookmark(api: Api) -> None:
    for name in ("b", "a"):
        api.post(api.at("configmaps"), config_map(name)).ok(201)
    start = int(version(api))  # a real server writes objects of its own meanwhile, which count too
    with api.watch(api.at("configmaps"), **INITIAL) as watch:
        assert watch.take(2) == [("ADDED", "a"), ("ADDED", "b")]
        type_, mark = watch.next()
        assert (type_, mark["kind"], mark["apiVersion"]) == ("BOOKMARK", "ConfigMap", "v1")
        assert mark["metadata"]["annotations"] == END
        assert int(mark["metadata"]["resourceVersion"]) >= start
        api.delete(api.at("configmaps", "a")).ok()
        assert watch.take(1) == [("DELETED", "a")]


def test_a_watch_list_after_a_version(api: Api) -> None:
    made = api.post(api.at("configmaps"), config_map("a")).ok(201)
    query = {**INITIAL, "resourceVersion": made["metadata"]["resourceVersion"]}
    with api.watch(api.at("configmaps"), **query) as watch:
        assert watch.take(1) == [("ADDED", "a")]
        assert watch.next()[1]["metadata"]["annotations"] == END


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            {"sendInitialEvents": "true"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan',
        ),
        (
            {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided',
        ),
    ],
)
def test_options_that_no_watch_has(api: Api, query: Json, message: str) -> None:
    with api.watch(api.at("configmaps"), **query) as watch:
        watch.refusal().no(422, "Invalid", message)


def test_a_watch_by_labels_tells_what_comes_into_view_and_what_leaves_it(api: Api) -> None:
    start = version(api)
    api.post(api.at("configmaps"), config_map("a")).ok(201)
    with api.watch(api.at("configmaps"), resourceVersion=start, labelSelector="color=red") as watch:
        for labels in ({"color": "red"}, {"color": "red", "b": "c"}, {"color": "blue", "b": None}):
            changed = api.patch(api.at("configmaps", "a"), {"metadata": {"labels": labels}}).ok()
        told = [watch.next() for _ in range(3)]
    assert [type_ for type_, _ in told] == ["ADDED", "MODIFIED", "DELETED"]
    left = told[2][1]["metadata"]
    assert left["labels"] == {"color": "red", "b": "c"}
    assert left["resourceVersion"] == changed["metadata"]["resourceVersion"]


def test_a_watch_by_fields_follows_binding(api: Api) -> None:
    start = version(api, "pods")
    selector = "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"
    with api.watch(api.at("pods"), resourceVersion=start, fieldSelector=selector) as watch:
        api.post(api.at("pods"), pod("a")).ok(201)
        api.post(api.at("pods", "a", "binding"), binding("a")).ok(201)
        assert watch.take(2) == [("ADDED", "a"), ("DELETED", "a")]


def test_one_object_is_watched_by_its_name(api: Api) -> None:
    start = version(api)
    with api.watch(api.at("configmaps"), resourceVersion=start, fieldSelector="metadata.name=b") as watch:
        for name in ("a", "b"):
            api.post(api.at("configmaps"), config_map(name)).ok(201)
        assert watch.take(1) == [("ADDED", "b")]


def test_a_watch_ends_at_its_timeout(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a")).ok(201)
    with api.watch(api.at("configmaps"), timeoutSeconds=1) as watch:
        assert [type_ for type_, _ in watch.rest()] == ["ADDED"]


def test_a_version_from_long_ago_is_gone(api: Api) -> None:
    """As after a compaction: the client has to list again."""
    api.forget()
    with api.watch(api.at("configmaps"), resourceVersion="1", timeoutSeconds=5) as watch:
        [(type_, status)] = watch.rest()
    assert (type_, status["kind"], status["status"]) == ("ERROR", "Status", "Failure")
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


def test_an_invalid_version_is_refused(api: Api) -> None:
    with api.watch(api.at("configmaps"), resourceVersion="abc") as watch:
        watch.refusal().no(
            500, "", 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
        )


def test_metadata_alone_can_be_watched(api: Api) -> None:
    api.post(api.at("configmaps"), config_map("a")).ok(201)
    with api.watch(api.at("configmaps"), accept=PARTIAL, **INITIAL) as watch:
        _, shown = watch.next()
        assert (shown["kind"], shown["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert "data" not in shown
        type_, mark = watch.next()
        assert (type_, mark["kind"]) == ("BOOKMARK", "PartialObjectMetadata")


def test_a_watch_of_tables_has_headers_once(api: Api) -> None:
    for name in ("a", "b"):
        api.post(api.at("configmaps"), config_map(name)).ok(201)
    with api.watch(api.at("configmaps"), accept=f"{TABLE},{JSON}", **INITIAL) as watch:
        first, second, mark = (watch.next() for _ in range(3))
    assert [row["cells"][:2] for row in first[1]["rows"]] == [["a", 1]]
    assert [column["name"] for column in first[1]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second[1]["columnDefinitions"] is None
    assert second[1]["rows"][0]["object"]["metadata"]["name"] == "b"
    assert mark[0] == "BOOKMARK"
    assert mark[1]["rows"][0]["object"]["metadata"]["annotations"] == END


def test_all_namespaces_are_watched_together(api: Api) -> None:
    start = version(api)
    with api.watch(f"{CORE}/configmaps", resourceVersion=start) as watch:
        api.post(api.at("configmaps"), config_map("a")).ok(201)
        type_, obj = watch.next()
    assert (type_, obj["metadata"]["namespace"]) == ("ADDED", api.namespace)

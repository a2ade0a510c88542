"""Watches: where they begin, what they are told, when they end."""

from __future__ import annotations

import pytest

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.http.requests import find_target
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.storage import watches
from gangsched.lab.apiserver.strategy import Strategy
from tests.apiserver.api import CONFIG_MAPS, PODS, Api
from tests.support.bodies import pod

WATCH = f"{CONFIG_MAPS}?watch=true"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def test_it_begins_with_what_there_is_or_after_a_revision(api: Api) -> None:
    version = api.create(CONFIG_MAPS, "a").version
    api.create(CONFIG_MAPS, "b")
    assert api.watch(WATCH).told() == ["ADDED a", "ADDED b"]
    assert api.watch(f"{WATCH}&resourceVersion=0").told() == ["ADDED a", "ADDED b"]
    assert api.watch(f"{WATCH}&resourceVersion={version}").told() == ["ADDED b"]


def test_it_hears_what_is_written_and_who_wakes_is_woken_once(api: Api) -> None:
    reader = api.watch(WATCH)
    api.create(CONFIG_MAPS, "a")
    api.merge(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}})
    api.ask("DELETE", f"{CONFIG_MAPS}/a")
    events = reader.read()
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))
    assert reader.n_wakes == 1


def test_a_write_that_changes_nothing_is_not_reported(api: Api) -> None:
    api.create(CONFIG_MAPS, "a")
    reader = api.watch(WATCH)
    reader.read()
    version = api.get(f"{CONFIG_MAPS}/a").version
    assert api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {}}}).version == version
    assert reader.read() == []


def test_other_namespaces_and_other_kinds_are_not_reported(api: Api) -> None:
    api.create("/api/v1/namespaces", "other")
    reader = api.watch(WATCH)
    api.create("/api/v1/namespaces/other/configmaps", "a")
    api.ask("POST", PODS, pod("a"))
    assert reader.read() == []


def test_what_begins_to_match_is_added_and_what_ceases_to_is_deleted(api: Api) -> None:
    reader = api.watch(f"{WATCH}&labelSelector=on%3Dyes")
    api.create(CONFIG_MAPS, "a", labels={"on": "no"}, data={"k": "1"})
    api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"on": "yes"}}})
    api.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "2"}})
    left = api.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"on": "no"}}, "data": {"k": "3"}})
    api.ask("DELETE", f"{CONFIG_MAPS}/a")
    events = reader.read()
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    # Shown as it was while it matched, at the revision at which it ceased to.
    last = events[-1][1]
    assert (last["data"], last["metadata"]["labels"]) == ({"k": "2"}, {"on": "yes"})
    assert int(last["metadata"]["resourceVersion"]) == left.version


def test_a_field_selector_follows_a_binding(api: Api) -> None:
    unbound = api.watch(f"{PODS}?watch=1&fieldSelector=spec.nodeName%3D")
    bound = api.watch(f"{PODS}?watch=1&fieldSelector=spec.nodeName%3Dn1")
    api.ask("POST", PODS, pod("a"))
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
    assert api.ask("POST", f"{PODS}/a/binding", binding).code == 201
    assert unbound.told() == ["ADDED a", "DELETED a"]
    assert bound.told() == ["ADDED a"]


def test_a_line_is_made_once_for_all_watches_that_get_it(api: Api) -> None:
    readers = [api.watch(WATCH) for _ in range(3)]
    api.create(CONFIG_MAPS, "a", labels={"on": "yes"})
    first, *others = [reader.watch.take() for reader in readers]
    assert all(lines[0] is first[0] for lines in others)


def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    api.create(CONFIG_MAPS, "a")
    options = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    reader = api.watch(f"{WATCH}&{options}")
    (_, added), (kind, bookmark) = reader.read()
    assert added["metadata"]["name"] == "a"
    assert kind == "BOOKMARK"
    assert bookmark["kind"] == "ConfigMap"
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["metadata"]["resourceVersion"] == str(api.registry.store.revision)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("sendInitialEvents=true", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ("resourceVersionMatch=NotOlderThan", "is forbidden for watch unless sendInitialEvents is provided"),
    ],
)
def test_options_that_cannot_be(api: Api, query: str, message: str) -> None:
    with pytest.raises(StatusError, match=message) as refused:
        api.watch(f"{WATCH}&{query}")
    assert refused.value.code == 422


def test_a_revision_that_is_forgotten_is_an_error_on_the_stream(api: Api) -> None:
    version = api.create(CONFIG_MAPS, "a").version
    api.create(CONFIG_MAPS, "b")
    api.registry.store.compact()
    reader = api.watch(f"{WATCH}&resourceVersion={version}")
    [(kind, status)] = reader.read()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {version} (")
    assert reader.watch.ended


def test_a_revision_of_an_earlier_run_is_an_error_and_no_silence(api: Api) -> None:
    """The server keeps nothing: whoever followed its predecessor has to list again."""
    version = int(api.create(CONFIG_MAPS, "a").version)
    [(kind, error)] = api.watch(f"{WATCH}&resourceVersion={version + 900}").read()
    assert (kind, error["code"], error["reason"]) == ("ERROR", 410, "Expired")
    assert error["message"].startswith(f"resource version {version + 900} is not of this run")
    assert api.watch(f"{WATCH}&resourceVersion={version}").read() == []


def test_a_reader_that_does_not_read_is_cut(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MAX_BACKLOG_BYTES", 2000)
    reader, fast = api.watch(WATCH), api.watch(WATCH)
    for k in range(20):
        api.create(CONFIG_MAPS, f"c{k}")
        assert fast.told() == [f"ADDED c{k}"]
    assert reader.watch.too_slow
    assert reader.watch.ended
    assert reader.read() == []
    assert not fast.watch.ended


def test_a_watch_ends_when_its_resource_is_served_no_longer(api: Api) -> None:
    things = Resource("example.com", ("v1",), "things", "thing", "Thing", True, custom=True)
    api.registry.serve(things, Strategy())
    api.registry.create(things, {"metadata": {"name": "a"}}, namespace="default")
    reader, other = api.watch("/apis/example.com/v1/things?watch=1"), api.watch(WATCH)
    api.registry.unserve(things.key)
    assert reader.told() == ["ADDED a", "DELETED a"]
    assert (reader.watch.ended, other.watch.ended) == (True, False)
    assert find_target(api.registry.resources, "/apis/example.com/v1/things") is None


def test_a_table_has_its_columns_once(api: Api) -> None:
    reader = api.watch(WATCH, accept=TABLE)
    api.create(CONFIG_MAPS, "a")
    api.create(CONFIG_MAPS, "b")
    first, second = (table for _, table in reader.read())
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["columnDefinitions"] is None
    assert second["rows"][0]["cells"][0] == "b"

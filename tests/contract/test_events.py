"""Events, in the group that schedulers write and in the one that people read."""

from __future__ import annotations

from tests.contract.api import Api, Json

NEW = "/apis/events.k8s.io/v1"
WHEN = "2026-01-02T03:04:05.000006Z"


def event(api: Api, name: str, **fields: object) -> Json:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": api.namespace},
        "eventTime": WHEN,
        "reportingController": "gangsched",
        "reportingInstance": "gangsched-0",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": api.namespace,
            "name": "a",
            "uid": "1-2",
        },
        "note": "0/4 nodes are available",
        "type": "Warning",
        **fields,
    }


def test_an_event_is_one_object_in_two_groups(api: Api) -> None:
    made = api.post(api.at("events", group=NEW), event(api, "a.1")).ok(201)
    assert (made["kind"], made["apiVersion"], made["note"]) == ("Event", NEW[6:], "0/4 nodes are available")
    assert made["eventTime"] == WHEN
    old = api.get(api.at("events", "a.1")).ok()
    assert (old["kind"], old["apiVersion"], old["message"]) == ("Event", "v1", "0/4 nodes are available")
    assert old["involvedObject"]["name"] == "a"
    assert (old["reportingComponent"], old["reportingInstance"]) == ("gangsched", "gangsched-0")
    assert old["metadata"]["uid"] == made["metadata"]["uid"]
    assert [each["message"] for each in api.get(api.at("events")).ok()["items"]] == [made["note"]]


def test_an_older_event_reads_in_the_newer_group(api: Api) -> None:
    sent = {
        "metadata": {"name": "a.1"},
        "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "a"},
        "reason": "Pulled",
        "message": "there",
        "type": "Normal",
        "count": 2,
        "source": {"component": "kubelet", "host": "n"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:05:05Z",
    }
    api.post(api.at("events"), sent).ok(201)
    new = api.get(api.at("events", "a.1", group=NEW)).ok()
    assert (new["note"], new["deprecatedCount"]) == ("there", 2)
    assert new["regarding"]["name"] == "a"
    assert new["deprecatedSource"] == {"component": "kubelet", "host": "n"}
    assert new["deprecatedFirstTimestamp"] == "2026-01-02T03:04:05Z"


def test_a_series_is_patched(api: Api) -> None:
    api.post(api.at("events", group=NEW), event(api, "a.1")).ok(201)
    series = {"series": {"count": 5, "lastObservedTime": "2026-01-02T04:00:00.000000Z"}}
    changed = api.patch(api.at("events", "a.1", group=NEW), series).ok()
    assert changed["series"] == series["series"]
    assert api.get(api.at("events", "a.1")).ok()["series"]["count"] == 5


def test_events_are_selected_by_what_they_are_about(api: Api) -> None:
    api.post(api.at("events", group=NEW), event(api, "a.1")).ok(201)
    api.post(api.at("events", group=NEW), event(api, "a.2", reason="Scheduled", type="Normal")).ok(201)
    for selector, expected in (
        ("involvedObject.name=a,involvedObject.uid=1-2", ["a.1", "a.2"]),
        ("involvedObject.kind=Node", []),
        ("reason=Scheduled", ["a.2"]),
        ("type!=Normal", ["a.1"]),
        ("reportingComponent=gangsched,reason=Scheduled", ["a.2"]),
    ):
        found = api.get(api.at("events"), fieldSelector=selector).ok()["items"]
        assert [each["metadata"]["name"] for each in found] == expected, selector


def test_events_that_are_refused(api: Api) -> None:
    path = api.at("events", group=NEW)
    answer = api.post(path, event(api, "a.1", note="x" * 1025))
    answer.no(
        422,
        "Invalid",
        'Event "a.1" is invalid: message: Invalid value: "": can have at most 1024 characters',
    )
    for field, message in (
        ("action", "action: Required value"),
        ("reason", "reason: Required value"),
        ("reportingInstance", "reportingInstance: Required value"),
    ):
        answer = api.post(path, event(api, "a.1", **{field: ""}))
        assert (answer.code, answer.body["reason"]) == (422, "Invalid"), field
        assert message in answer.body["message"]


def test_a_watch_of_events_speaks_the_group_it_was_asked_in(api: Api) -> None:
    start = api.get(api.at("events")).ok()["metadata"]["resourceVersion"]
    api.post(api.at("events", group=NEW), event(api, "a.1")).ok(201)
    with api.watch(api.at("events"), resourceVersion=start) as watch:
        assert watch.next()[1]["message"] == "0/4 nodes are available"
    with api.watch(api.at("events", group=NEW), resourceVersion=start) as watch:
        assert watch.next()[1]["note"] == "0/4 nodes are available"


def test_all_events_of_a_namespace_are_deleted(api: Api) -> None:
    api.post(api.at("events", group=NEW), event(api, "a.1")).ok(201)
    api.delete(api.at("events", group=NEW)).ok()
    assert api.get(api.at("events")).ok()["items"] == []

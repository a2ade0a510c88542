"""The reflector's table as scenarios: what a list, a stream and their faults lead to. No server, no clock."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from gangsched.errors import ApiError
from gangsched.kube.pages import MAX_EMPTY_PAGES, Pages
from gangsched.kube.watch.decode import all_kinds, objects, pods
from gangsched.kube.watch.watch_state import ListPage, WatchFrom, WatchState
from gangsched.model.events import (
    Event,
    KindSynced,
    ObjectGone,
    ObjectPut,
    ObjectRefused,
    PodAdded,
    PodDeleted,
    PodGroupAdded,
    PodGroupUpdated,
    PodUpdated,
)
from gangsched.model.objects import Pod


def pod(name: str, rv: int, *, uid: str = "", **spec: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(rv),
        "creationTimestamp": None,
    }
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def page(
    *items: dict[str, Any], rv: int, token: str = "", kind: str = "Pod", api_version: str = "v1"
) -> bytes:
    meta = {"resourceVersion": str(rv)} | ({"continue": token} if token else {})
    said = {"kind": f"{kind}List", "apiVersion": api_version, "metadata": meta, "items": items}
    return json.dumps(said).encode()


def line(change: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": change, "object": item}).encode() + b"\n"


def told(events: list[Event]) -> list[str]:
    """Events in short: `+a`, `~a`, `-a`, `!a`, `synced`."""
    signs = {PodAdded: "+", PodUpdated: "~", PodDeleted: "-"}
    words = []
    for event in events:
        if isinstance(event, PodAdded | PodUpdated | PodDeleted):
            words.append(signs[type(event)] + event.pod.metadata.name)
        elif isinstance(event, ObjectRefused):
            words.append("!" + event.name)
        elif isinstance(event, KindSynced):
            words.append("synced")
    return words


@pytest.fixture
def state() -> WatchState:
    return WatchState(pods())


@pytest.fixture
def watching(state: WatchState) -> WatchState:
    """Knows a and b, and watches from 10."""
    state.page(page(pod("a", 3), pod("b", 4), rv=10))
    return state


def known_pod(state: WatchState, name: str) -> Pod:
    found = state.known[f"ns/{name}"]
    assert isinstance(found, Pod)
    return found


def test_list_in_pages_then_watch(state: WatchState) -> None:
    assert state.next_request() == ListPage("")
    assert told(state.page(page(pod("a", 3), rv=10, token="t1"))) == ["+a"]
    assert state.next_request() == ListPage("t1")
    assert told(state.page(page(pod("b", 4), rv=10))) == ["+b", "synced"]
    assert state.next_request() == WatchFrom("10")


def test_synced_is_logged_once(watching: WatchState) -> None:
    watching.gone()
    assert told(watching.page(page(pod("a", 3), pod("b", 4), rv=20))) == []


def test_stream_of_changes_in_one_chunk(watching: WatchState) -> None:
    chunk = (
        line("ADDED", pod("c", 11))
        + line("MODIFIED", pod("a", 12, nodeName="n"))
        + line("DELETED", pod("b", 13))
    )
    assert told(watching.lines(chunk)) == ["+c", "~a", "-b"]
    assert watching.next_request() == WatchFrom("13")


def test_every_cut_of_the_bytes_gives_the_same(watching: WatchState) -> None:
    chunk = line("ADDED", pod("c", 11)) + line("MODIFIED", pod("a", 12)) + line("DELETED", pod("b", 13))
    for at in range(len(chunk) + 1):
        state = WatchState(pods())
        state.page(page(pod("a", 3), pod("b", 4), rv=10))
        assert told(state.lines(chunk[:at]) + state.lines(chunk[at:])) == ["+c", "~a", "-b"]


def test_cut_in_mid_line_drops_the_part_and_resumes_before_it(watching: WatchState) -> None:
    lost = line("ADDED", pod("d", 12))
    assert told(watching.lines(line("ADDED", pod("c", 11)) + lost[:40])) == ["+c"]
    watching.closed()
    assert watching.next_request() == WatchFrom("11")
    assert told(watching.lines(lost)) == ["+d"]


def test_repeated_and_older_lines_say_nothing(watching: WatchState) -> None:
    first = line("ADDED", pod("c", 11))
    assert told(watching.lines(first + first)) == ["+c"]
    assert told(watching.lines(line("DELETED", pod("c", 12)))) == ["-c"]
    # Replayed after a reconnect, it must not rise from the dead.
    assert told(watching.lines(first + line("MODIFIED", pod("a", 3)))) == []
    assert "ns/c" not in watching.known


def test_bookmarks_move_the_place_to_resume(watching: WatchState) -> None:
    bookmark = {
        "kind": "Pod",
        "metadata": {"resourceVersion": "50", "creationTimestamp": None},
        "spec": {"containers": None},
        "status": {},
    }
    assert watching.lines(line("BOOKMARK", bookmark)) == []
    assert watching.next_request() == WatchFrom("50")


def test_410_in_the_stream_tells_what_came_before_it_and_relists(watching: WatchState) -> None:
    gone = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Expired",
        "code": 410,
    }
    assert told(watching.lines(line("ADDED", pod("c", 11)) + line("ERROR", gone))) == ["+c"]
    assert watching.failure is not None
    assert watching.failure.code == 410
    watching.gone()
    assert watching.next_request() == ListPage("")
    # b was deleted and d came while nobody looked; a and c are as they were.
    assert told(watching.page(page(pod("a", 3), pod("c", 11), pod("d", 15), rv=20))) == ["+d", "-b"]


def test_expired_continue_token_starts_over_and_deletes_nothing_by_mistake(watching: WatchState) -> None:
    watching.gone()
    watching.page(page(pod("a", 3), rv=20, token="t1"))
    watching.gone()
    assert watching.next_request() == ListPage("")
    assert told(watching.page(page(pod("b", 4), rv=30, token="t2"))) == []
    assert told(watching.page(page(pod("a", 31), rv=30))) == ["~a"]


def test_a_repeated_list_is_emitted_when_it_is_whole(watching: WatchState) -> None:
    watching.gone()
    assert told(watching.page(page(pod("c", 15), rv=20, token="t1"))) == []
    assert watching.n_held == 1
    assert told(watching.page(page(pod("a", 16), rv=20))) == ["+c", "~a", "-b"]
    assert watching.n_held == 0


def test_after_a_first_list_that_expired_the_next_is_passed_on_once_it_is_whole(state: WatchState) -> None:
    """b has taken a's place in between: b must not be told while a still counts as there."""
    assert told(state.page(page(pod("a", 3), rv=10, token="t1"))) == ["+a"]
    state.gone()
    assert told(state.page(page(pod("b", 15), rv=20, token="t2"))) == []
    assert told(state.page(page(pod("c", 16), rv=20))) == ["+b", "+c", "-a", "synced"]


def test_what_was_held_back_is_not_lost_with_a_list_that_is_given_up(watching: WatchState) -> None:
    watching.gone()
    watching.page(page(pod("a", 3), pod("c", 15), rv=20, token="t1"))
    watching.gone()
    assert told(watching.page(page(pod("a", 3), rv=30))) == ["+c", "-b", "-c"]


def test_an_unreadable_page_loses_nothing_of_the_pages_before(watching: WatchState) -> None:
    watching.gone()
    watching.page(page(pod("c", 15), rv=20, token="t1"))
    with pytest.raises(ApiError):
        watching.page(b"<html>")
    assert told(watching.page(page(pod("a", 3), pod("b", 4), rv=20))) == ["+c"]


def test_a_list_that_never_ends_is_begun_again_and_loses_nothing(
    watching: WatchState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangsched.kube.watch.watch_state.Pages", partial(Pages, max_pages=3))
    watching.gone()
    for n in range(2):
        watching.page(page(pod(f"new-{n}", 11), rv=12, token=f"t{n}"))
    with pytest.raises(ApiError, match="the list of /api/v1/pods does not end: after 3 pages"):
        watching.page(page(pod("new-2", 11), rv=12, token="t2"))
    assert watching.next_request() == ListPage("")
    news = told(watching.page(page(*(pod(name, 12) for name in ("a", "b", "new-0")), rv=12)))
    assert news[:3] == ["+new-0", "+new-1", "+new-2"]
    assert {"-new-1", "-new-2"} <= set(news)
    assert isinstance(watching.next_request(), WatchFrom)


def test_empty_pages_without_end_are_no_list(state: WatchState) -> None:
    """They were asked for one after the other, as fast as the server answered, and nobody was told."""
    for n in range(MAX_EMPTY_PAGES - 1):
        state.page(page(rv=12, token=f"t{n}"))
    with pytest.raises(ApiError, match="pages in a row are empty, and each says that more follows"):
        state.page(page(rv=12, token="last"))
    assert state.next_request() == ListPage("")


def test_deleted_carries_the_last_known_state(watching: WatchState) -> None:
    watching.lines(line("MODIFIED", pod("b", 11, nodeName="n7")))
    watching.gone()
    events = watching.page(page(pod("a", 3), rv=20))
    assert isinstance(events[0], PodDeleted)
    assert events[0].pod.spec.node_name == "n7"


@pytest.mark.parametrize("by", ["list", "watch"])
def test_recreated_under_its_name_is_deleted_and_added(watching: WatchState, by: str) -> None:
    again = pod("a", 15, uid="another")
    if by == "list":
        watching.gone()
        events = watching.page(page(again, pod("b", 4), rv=20))
    else:
        events = watching.lines(line("ADDED", again))
    assert told(events) == ["-a", "+a"]
    assert isinstance(events[0], PodDeleted)
    assert events[0].pod.metadata.uid == "uid-a"


def test_late_deletion_of_the_old_pod_spares_the_new_one(watching: WatchState) -> None:
    watching.lines(line("ADDED", pod("a", 15, uid="another")))
    assert told(watching.lines(line("DELETED", pod("a", 16)))) == []
    assert watching.known["ns/a"].metadata.uid == "another"


def test_object_that_does_not_parse_is_refused_and_the_stream_goes_on(watching: WatchState) -> None:
    bad = pod("a", 11, nodeName=7, schedulerName="gangsched")
    events = watching.lines(line("MODIFIED", bad) + line("ADDED", pod("c", 12)))
    assert told(events) == ["~a", "!a", "+c"]
    refusal = events[1]
    assert isinstance(refusal, ObjectRefused)
    assert (refusal.uid, refusal.scheduler_name, refusal.node_name) == ("uid-a", "gangsched", "")
    assert "nodeName" in refusal.message
    known = known_pod(watching, "a")
    assert (known.metadata.resource_version, known.spec.scheduler_name) == ("11", "gangsched")
    assert known.unreadable == "spec.nodeName"
    assert told(watching.lines(line("DELETED", bad | {"metadata": pod("a", 13)["metadata"]}))) == ["-a"]


def test_bad_object_in_a_list_spoils_only_itself(state: WatchState) -> None:
    items = (pod("a", 3), pod("bad", 4, containers="none"), pod("c", 5))
    assert told(state.page(page(*items, rv=10))) == ["+a", "+bad", "!bad", "+c", "synced"]


def test_known_object_turning_bad_in_a_list_is_kept(watching: WatchState) -> None:
    watching.gone()
    assert told(watching.page(page(pod("a", 3), pod("b", 15, containers=1), rv=20))) == ["~b", "!b"]
    assert known_pod(watching, "b").unreadable == "spec.containers"


def test_unreadable_line_ends_the_watch_but_loses_nothing(watching: WatchState) -> None:
    assert told(watching.lines(line("ADDED", pod("c", 11)) + b"{nonsense\n")) == ["+c"]
    assert watching.failure is not None
    watching.closed()
    assert watching.next_request() == WatchFrom("11")


def test_million_bytes_of_annotation_pass(watching: WatchState) -> None:
    big = pod("c", 11)
    big["metadata"]["annotations"] = {"x": "y" * 1_000_000}
    data = line("ADDED", big)
    events: list[Event] = []
    for at in range(0, len(data), 65536):
        events += watching.lines(data[at : at + 65536])
    assert told(events) == ["+c"]


def test_other_api_version_of_a_group_tells_all_of_them_again() -> None:
    kind = next(kind for kind in all_kinds() if kind.name == "podgroups.core")
    state = WatchState(kind, version="v1alpha2")
    group = {"metadata": {"name": "g", "namespace": "ns", "uid": "u", "resourceVersion": "3"}, "spec": {}}
    first = page(group, rv=5, kind="PodGroup", api_version="scheduling.k8s.io/v1alpha2")
    assert isinstance(state.page(first)[0], PodGroupAdded)
    state.use_version("v1beta1")
    [event] = state.page(page(group, rv=6, kind="PodGroup", api_version="scheduling.k8s.io/v1beta1"))
    assert isinstance(event, PodGroupUpdated)
    assert event.api_version == "scheduling.k8s.io/v1beta1"


def test_objects_of_other_kinds_are_read_typed_where_we_know_them_and_plainly_elsewhere() -> None:
    meta = {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "3"}
    service = {"kind": "Service", "metadata": meta, "spec": {"selector": {"app": "web"}, "ports": []}}
    for name, api_version in (("services", "v1"), ("widgets.example.com", "example.com/v1")):
        state = WatchState(objects(name))
        put, synced = state.page(page(service, rv=5, kind="Service", api_version=api_version))
        assert isinstance(put, ObjectPut)
        assert (put.kind, synced) == (name, KindSynced(name))
        if name == "services":
            assert put.object.spec.selector == {"app": "web"}
        else:
            assert put.object == service
        gone = line("DELETED", {**service, "metadata": {**meta, "resourceVersion": "9"}})
        assert state.lines(gone) == [ObjectGone(name, "default", "web", "u")]


def test_a_kind_is_named_as_kubectl_names_it() -> None:
    assert objects("services").path("v1") == "/api/v1/services"
    assert objects("replicasets.apps").path("v1") == "/apis/apps/v1/replicasets"
    exact = objects("widgets.v1beta1.example.com")
    assert (exact.resource, exact.group, exact.versions) == ("widgets", "example.com", ("v1beta1",))
    assert objects("widgets.example.com").versions[0] == "v1"


STRANGE_LISTS = [
    b"<html>",
    b"",
    b"{}",
    b"[]",
    b'{"items":[]}',
    b'{"metadata":{},"items":[]}',
    b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}',
    b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"\xff"},"items":[]}',
    page(rv=30, kind="Node"),
    page(rv=30, api_version="metrics.k8s.io/v1beta1"),
    page(pod("c", 12), rv=30, kind="Node"),
    page(pod("c", 12, containers=1), rv=30, kind="Node"),
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":200}',
]


@pytest.mark.parametrize("strange", STRANGE_LISTS)
def test_a_list_of_something_else_does_not_tell_that_ours_are_gone(
    watching: WatchState, strange: bytes
) -> None:
    watching.gone()
    with pytest.raises(ApiError):
        watching.page(strange)
    assert watching.next_request() == ListPage("")
    assert told(watching.page(page(pod("a", 3), pod("b", 4), rv=20))) == []


STRANGE_LINES = [
    b"<html>\n",
    b"{}\n",
    b"\xff\n",
    b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n',
    line("DELETED", pod("a", 12) | {"kind": "Node"}),
    line("ADDED", {"metadata": {"name": "x", "namespace": "ns", "uid": "1", "resourceVersion": "12"}}),
    line("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": "999"}}),
]


@pytest.mark.parametrize("strange", STRANGE_LINES)
def test_a_watch_of_something_else_says_nothing_and_is_asked_again_from_the_same_place(
    watching: WatchState, strange: bytes
) -> None:
    assert watching.lines(strange) == []
    assert watching.failure is not None
    watching.closed()
    assert watching.next_request() == WatchFrom("10")
    assert told(watching.lines(line("ADDED", pod("c", 11)))) == ["+c"]


def test_a_plain_object_without_metadata_is_refused() -> None:
    state = WatchState(objects("widgets.example.com"))
    bad = page({"metadata": 1}, rv=5, kind="Widget", api_version="example.com/v1")
    [refusal, _] = state.page(bad)
    assert isinstance(refusal, ObjectRefused)


def with_deep_managed_fields(item: dict[str, Any], levels: int = 3_000) -> bytes:
    """As a line; the API server stores what a user applies under any manager's name."""
    text = json.dumps({"type": "ADDED", "object": item})
    fields = '{"f:a":' * levels + "{}" + "}" * levels
    return (
        text.replace('"creationTimestamp"', f'"managedFields":[{{"fieldsV1":{fields}}}],"creationTimestamp"')
        + "\n"
    ).encode()


@pytest.mark.parametrize("levels", [900, 3_000, 200_000])
def test_managed_fields_of_thousands_of_levels_cost_nobody_anything(
    watching: WatchState, levels: int
) -> None:
    chunk = (
        line("ADDED", pod("c", 11))
        + with_deep_managed_fields(pod("d", 12), levels)
        + line("ADDED", pod("e", 13))
    )
    assert told(watching.lines(chunk)) == ["+c", "+d", "+e"]
    assert watching.failure is None
    assert watching.next_request() == WatchFrom("13")
    listed = json.loads(with_deep_managed_fields(pod("d", 12), 900))["object"]
    watching.gone()
    assert told(watching.page(page(pod("a", 3), listed, rv=20))) == ["-b", "-c", "-e"]


def test_a_deep_object_that_does_not_parse_is_refused_alone(watching: WatchState) -> None:
    bad = with_deep_managed_fields(pod("d", 12, containers="none"))
    events = watching.lines(bad + line("ADDED", pod("e", 13)))
    assert told(events) == ["+d", "!d", "+e"]


def test_a_deeply_nested_bookmark_or_error_is_read_as_such(watching: WatchState) -> None:
    assert told(watching.lines(with_deep_managed_fields(pod("", 50)).replace(b"ADDED", b"BOOKMARK"))) == []
    assert watching.next_request() == WatchFrom("50")
    status = {"status": "Failure", "code": 410, "reason": "Expired", "metadata": {"creationTimestamp": None}}
    watching.lines(with_deep_managed_fields(status).replace(b"ADDED", b"ERROR"))
    assert watching.failure is not None
    assert watching.failure.code == 410


@pytest.mark.parametrize("levels", [100, 800, 5_000])
def test_what_a_custom_object_says_too_deep_is_left_out_of_it(levels: int) -> None:
    groups = WatchState(next(kind for kind in all_kinds() if kind.name == "podgroups.coscheduling"))
    item = {"kind": "PodGroup", "metadata": pod("g", 5)["metadata"], "spec": {"minMember": 3}}
    text = json.dumps({"type": "ADDED", "object": item}).replace(
        '"minMember"', '"x":' + '{"a":' * levels + "{}" + "}" * levels + ',"minMember"'
    )
    groups.page(page(rv=4, kind="PodGroup", api_version="scheduling.x-k8s.io/v1"))
    for version in (5, 6):  # also where two of them are compared
        (event,) = groups.lines(text.replace('"5"', f'"{version}"').encode() + b"\n")
        assert isinstance(event, PodGroupAdded | PodGroupUpdated)
        assert (event.item.spec or {})["minMember"] == 3
        assert event.item.spec == dict(event.item.spec or {})

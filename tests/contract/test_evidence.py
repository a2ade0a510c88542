"""What the edge takes for the API server's own word about an object (kube.evidence): both servers say it so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.kube import evidence
from gangsched.kube.status import api_error, is_success
from tests.contract.api import CORE, Answer, Api, Json
from tests.contract.objects import bind, binding
from tests.support.bodies import pod

OTHER_UID = "11111111-2222-3333-4444-555555555555"
LEASES = "/apis/coordination.k8s.io/v1"
EVENTS = "/apis/events.k8s.io/v1"


def error(answer: Answer) -> Any:
    """As the edge reads it."""
    body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
    return api_error(answer.code, None, body.encode())


def about(api: Api, name: str) -> evidence.Target:
    return evidence.pod(api.namespace, name)


def test_a_binding_is_answered_with_a_success_that_is_known(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    assert is_success(json.dumps(bind(api, "a")).encode())


def test_a_pod_that_is_not_there_is_named(api: Api) -> None:
    for answer in (
        api.get(api.at("pods", "a")),
        api.post(api.at("pods", "a", "binding"), binding("a")),
        api.delete(api.at("pods", "a")),
        api.patch(api.at("pods", "a", "status"), {"status": {"nominatedNodeName": "n"}}),
    ):
        assert evidence.is_gone(error(answer), about(api, "a"))
        assert not evidence.is_gone(error(answer), about(api, "b"))


def test_a_conflict_names_the_pod_and_is_no_refusal_for_good(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    bind(api, "a")
    for said in (binding("a", "another-node"), binding("a", uid=OTHER_UID)):
        answer = api.post(api.at("pods", "a", "binding"), said)
        assert answer.code == 409
        assert evidence.names(error(answer), about(api, "a"))
        assert not evidence.is_refusal(error(answer), about(api, "a"))


def test_a_binding_to_a_node_that_does_not_exist_is_done(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    bind(api, "a")
    assert api.get(api.at("pods", "a")).ok()["spec"]["nodeName"] == "some-node"


def test_another_uid_in_a_deletion_or_a_patch_is_refused_by_name(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    answer = api.delete(api.at("pods", "a"), {"preconditions": {"uid": OTHER_UID}})
    assert (answer.code, error(answer).reason) == (409, "Conflict")
    assert evidence.names(error(answer), about(api, "a"))
    answer = api.patch(api.at("pods", "a"), {"metadata": {"uid": OTHER_UID}})
    assert (answer.code, error(answer).reason) == (422, "Invalid")
    assert evidence.is_refusal(error(answer), about(api, "a"))


def test_what_the_request_itself_makes_wrong_names_nothing(api: Api) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    answer = api.post(api.at("pods", "a", "binding"), binding("b"))
    assert answer.code == 400
    assert evidence.names_nothing(error(answer))


def test_a_namespace_that_is_being_deleted_refuses_by_name(api: Api) -> None:
    api.post(api.at("pods"), pod("a", metadata={"finalizers": ["a.b/c"]})).ok(201)
    api.post(api.at("pods"), pod("w")).ok(201)
    api.delete(f"{CORE}/namespaces/{api.namespace}").ok()
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "w"}}
    for path, body in (("binding", binding("w")), ("eviction", eviction)):
        answer = api.post(api.at("pods", "w", path), body)
        assert (answer.code, error(answer).reason) == (403, "Forbidden")
        assert evidence.is_refusal(error(answer), about(api, "w"))
    api.patch(api.at("pods", "a"), {"metadata": {"finalizers": None}})


def test_a_lease_is_named(api: Api) -> None:
    target = evidence.Target("leases", "Lease", "l", api.namespace, "coordination.k8s.io")
    path = api.at("leases", "l", group=LEASES)
    assert evidence.is_gone(error(api.get(path)), target)
    lease: Json = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}
    api.post(api.at("leases", group=LEASES), lease).ok(201)
    exists = error(api.post(api.at("leases", group=LEASES), lease))
    assert (exists.code, exists.reason) == (409, "AlreadyExists")
    assert evidence.names(exists, target)
    stale = error(api.put(path, {**lease, "metadata": {"name": "l", "resourceVersion": "1"}}))
    assert (stale.code, stale.reason) == (409, "Conflict")
    assert evidence.names(stale, target)


def test_an_event_that_is_there_is_named(api: Api) -> None:
    event = {
        "metadata": {"name": "e.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "g",
        "reportingInstance": "g",
        "action": "a",
        "reason": "r",
        "regarding": {"kind": "Pod", "namespace": api.namespace, "name": "w"},
        "type": "Normal",
    }
    path = api.at("events", group=EVENTS)
    assert api.post(path, event).ok(201)["kind"] == "Event"
    again = error(api.post(path, event))
    assert again.reason == "AlreadyExists"
    assert evidence.names(again, evidence.Target("events", "Event", "e.1", api.namespace, "events.k8s.io"))


@pytest.mark.parametrize("path", ["/apis/no.such.group/v1", "/apis/no.such.group/v1/things?limit=5"])
def test_a_group_that_is_not_served_is_a_bare_404_and_only_the_list_of_groups_shows_that(
    api: Api, path: str
) -> None:
    answer = api.get(path)
    assert answer.code == 404
    subject = error(answer).subject
    assert subject is None or not any(subject)
    groups = api.get("/apis").ok()
    assert groups["kind"] == "APIGroupList"
    served = {version["groupVersion"] for group in groups["groups"] for version in group["versions"]}
    assert "apps/v1" in served
    assert "no.such.group/v1" not in served
    of_apps = api.get("/apis/apps/v1").ok()
    assert (of_apps["kind"], of_apps["groupVersion"]) == ("APIResourceList", "apps/v1")

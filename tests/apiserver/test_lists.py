"""Lists: pages at one revision, selectors, what resourceVersion asks for."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.apiserver.api import CONFIG_MAPS, PODS, Api, Said
from tests.support.bodies import pod


def fill(api: Api, n: int) -> None:
    for k in range(n):
        api.create(CONFIG_MAPS, f"c{k}", labels={"parity": "even" if k % 2 == 0 else "odd"})


def next_page(api: Api, said: Said, options: str) -> Said:
    return api.get(f"{CONFIG_MAPS}?{options}&continue={said.body['metadata']['continue']}")


def test_pages_show_one_revision_whatever_is_written_meanwhile(api: Api) -> None:
    fill(api, 5)
    first = api.get(f"{CONFIG_MAPS}?limit=2")
    assert (first.names, first.body["metadata"]["remainingItemCount"]) == (["c0", "c1"], 3)
    api.ask("DELETE", f"{CONFIG_MAPS}/c2")
    api.create(CONFIG_MAPS, "c1-new")
    api.merge(f"{CONFIG_MAPS}/c3", {"data": {"changed": "yes"}})
    second = next_page(api, first, "limit=2")
    third = next_page(api, second, "limit=2")
    assert second.names + third.names == ["c2", "c3", "c4"]
    assert "data" not in second.body["items"][1]
    assert {each.version for each in (first, second, third)} == {first.version}
    assert "continue" not in third.body["metadata"]


def test_a_token_older_than_the_history_offers_another(api: Api) -> None:
    fill(api, 4)
    first = api.get(f"{CONFIG_MAPS}?limit=2")
    api.create(CONFIG_MAPS, "c5")
    api.registry.store.compact()
    gone = next_page(api, first, "limit=2")
    assert (gone.code, gone.body["reason"]) == (410, "Expired")
    assert gone.body["message"].startswith("The provided continue parameter is too old")
    # From here on it is inconsistent, and says so: the new object shows.
    assert next_page(api, gone, "limit=9").names == ["c2", "c3", "c5"]


def test_a_selector_fills_its_pages_and_counts_nothing(api: Api) -> None:
    fill(api, 6)
    first = api.get(f"{CONFIG_MAPS}?limit=2&labelSelector=parity%3Deven")
    assert first.names == ["c0", "c2"]
    assert "remainingItemCount" not in first.body["metadata"]
    assert next_page(api, first, "limit=2&labelSelector=parity%3Deven").names == ["c4"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=c1", ["c1"]),
        ("metadata.name!=c1", ["c0", "c2"]),
        ("metadata.namespace=default,metadata.name=c2", ["c2"]),
        ("metadata.namespace=other", []),
    ],
)
def test_fields_that_every_kind_has(api: Api, selector: str, names: list[str]) -> None:
    fill(api, 3)
    assert api.get(f"{CONFIG_MAPS}?fieldSelector={quote(selector)}").names == names


def test_a_field_that_a_kind_has_not_is_refused(api: Api) -> None:
    said = api.get(f"{CONFIG_MAPS}?fieldSelector=spec.nodeName%3Da")
    assert (said.code, said.body["message"]) == (400, "field label not supported: spec.nodeName")
    assert api.get(f"{PODS}?fieldSelector=spec.nodeName%3Da").names == []


def test_exact_is_the_past_and_not_older_than_is_now(api: Api) -> None:
    then = api.create(CONFIG_MAPS, "a").version
    now = api.create(CONFIG_MAPS, "b").version
    exact = api.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert (exact.names, exact.version) == (["a"], then)
    later = api.get(f"{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")
    assert (later.names, later.version) == (["a", "b"], now)
    assert api.get(f"{CONFIG_MAPS}?resourceVersion={then}").names == ["a", "b"]
    # A limit with a resourceVersion and no match means Exact.
    assert api.get(f"{CONFIG_MAPS}?resourceVersion={then}&limit=1").names == ["a"]
    # At 0 the limit is not looked at, as in the real server's cache.
    assert api.get(f"{CONFIG_MAPS}?resourceVersion=0&limit=1").names == ["a", "b"]


def test_a_revision_that_is_yet_to_come(api: Api) -> None:
    said = api.get(f"{CONFIG_MAPS}?resourceVersion=1000")
    assert (said.code, said.body["reason"]) == (504, "Timeout")
    assert said.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("resourceVersionMatch=Exact", 422, "is forbidden unless resourceVersion is provided"),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, 'is forbidden for resourceVersion "0"'),
        ("resourceVersion=5&resourceVersionMatch=Sometimes", 422, "supported values:"),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        ("resourceVersion=abc", 400, "strconv.ParseUint"),
        ("limit=many", 400, "strconv.ParseInt"),
        ("continue=e30", 400, "continue key is not valid"),
        ("labelSelector=%3D%3D", 400, "identifier"),
    ],
)
def test_options_that_cannot_be(api: Api, query: str, code: int, message: str) -> None:
    said = api.get(f"{CONFIG_MAPS}?{query}")
    assert said.code == code
    assert message in said.body["message"]


def test_all_namespaces_and_one(api: Api) -> None:
    api.create("/api/v1/namespaces", "other")
    api.create(CONFIG_MAPS, "a")
    api.create("/api/v1/namespaces/other/configmaps", "b")
    assert api.get("/api/v1/configmaps").names == ["a", "b"]
    assert api.get("/api/v1/namespaces/other/configmaps").names == ["b"]
    assert api.get("/api/v1/namespaces/nowhere/configmaps").names == []


def test_items_of_a_list_do_not_repeat_their_kind(api: Api) -> None:
    api.ask("POST", PODS, pod("a"))
    listed = api.get(PODS).body
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in listed["items"][0]
    assert listed["items"][0]["metadata"]["name"] == "a"

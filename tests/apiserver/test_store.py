"""The store: order, history, what it looked like before."""

from __future__ import annotations

import pytest

from gangsched.lab.apiserver.storage.store import Change, Expired, Item, Store


def item(key: str, revision: int, text: str = "") -> Item:
    namespace, _, name = key.rpartition("/")
    return Item(namespace, name, f"uid-{name}", revision, text.encode() or b"{}", {}, {})


def put(store: Store, key: str, text: str = "") -> None:
    store.put("/pods", item(key, store.revision + 1, text))


def remove(store: Store, key: str) -> None:
    store.remove("/pods", item(key, store.revision + 1))


def at(store: Store, revision: int, **where: str) -> list[str]:
    return [f"{each.key}={each.raw.decode()}" for each in store.items_at("/pods", revision, **where)]


def test_objects_come_in_the_order_of_etcd_s_keys() -> None:
    store = Store()
    for key in ("b/x", "a/z", "a-b/x", "a/a"):
        put(store, key)
    assert [each.key for each in store.items("/pods")] == ["a-b/x", "a/a", "a/z", "b/x"]
    assert [each.key for each in store.items("/pods", "a")] == ["a/a", "a/z"]


def test_an_earlier_revision_is_seen_as_it_was() -> None:
    store = Store()
    put(store, "a/x", "one")
    put(store, "a/y", "one")
    then = store.revision
    put(store, "a/x", "two")
    remove(store, "a/y")
    put(store, "a/z", "new")
    assert at(store, then) == ["a/x=one", "a/y=one"]
    assert at(store, then, start="a/x\0") == ["a/y=one"]
    assert at(store, store.revision) == ["a/x=two", "a/z=new"]


def test_the_history_is_bounded_by_count_and_by_bytes() -> None:
    store = Store(max_changes=3)
    for _ in range(5):
        put(store, "a/x")
    assert store.compacted == store.revision - 3
    with pytest.raises(Expired, match=r"too old resource version: 2 \(3\)"):
        store.changes_since("/pods", 2)
    heavy = Store(max_history_bytes=250)
    for _ in range(5):
        put(heavy, "a/x", "x" * 100)
    # What is stored counts for nothing; what was replaced is kept while it fits: two of them.
    assert heavy.compacted == heavy.revision - 2


def test_compaction_forgets_and_what_is_there_stays() -> None:
    store = Store()
    put(store, "a/x")
    put(store, "a/y")
    store.compact()
    assert [each.key for each in store.items("/pods")] == ["a/x", "a/y"]
    assert store.changes_since("/pods", store.revision) == []
    with pytest.raises(Expired):
        store.items_at("/pods", store.revision - 1)


def test_subscribers_hear_of_their_collection_until_they_leave() -> None:
    store = Store()
    heard: list[Change] = []
    leave = store.subscribe(heard.append, "/pods")
    put(store, "a/x")
    store.put("/nodes", item("n", store.revision + 1))
    put(store, "a/x", "two")
    remove(store, "a/x")
    leave()
    put(store, "a/y")
    assert [(each.type, each.before is not None) for each in heard] == [
        ("ADDED", False),
        ("MODIFIED", True),
        ("DELETED", True),
    ]


def test_a_write_that_is_not_the_next_one_is_a_bug() -> None:
    store = Store()
    with pytest.raises(ValueError, match="does not follow"):
        store.put("/pods", item("a/x", store.revision + 2))

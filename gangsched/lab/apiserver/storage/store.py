"""The objects, in memory, as JSON bytes; one revision counter; a bounded history for lists and watches.

Lives here: keys in etcd's order, put and remove, the state at an earlier revision, compaction, subscriptions.
Not here: what may be written (lab.apiserver.registry), selectors and pages (lists.py), watches (watches.py).

An Item never changes: a write replaces it. So a reader may keep an item, a history entry costs one reference,
and each change is encoded once for all watchers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

# Limits of the history: a watcher or a continue token older than it gets 410. The bytes are those of objects
# kept only for the history.
MAX_CHANGES = 100_000
MAX_HISTORY_BYTES = 96 * 2**20

_decode = msgspec.json.Decoder().decode


class Item(msgspec.Struct, gc=False, eq=False, frozen=True):
    """One object as of `revision`; `fields`: those that field selectors may name besides name and namespace.

    `raw` opens with kind and apiVersion and has metadata next, with resourceVersion before labels and
    annotations.
    """

    namespace: str
    name: str
    uid: str
    revision: int
    raw: bytes
    labels: dict[str, str]
    fields: dict[str, str]

    @property
    def key(self) -> str:
        return key_of(self.namespace, self.name)

    def decode(self) -> dict[str, Any]:
        """Returns the object, new at each call: the caller may change it."""
        decoded: dict[str, Any] = _decode(self.raw)
        return decoded


class Change(msgspec.Struct, gc=False, eq=False):
    """One write; `item`: the object after it (if DELETED, its last state, at the deletion's revision).

    `lines` caches its lines in watches: the first watch encodes one for all.
    """

    type: ChangeType
    collection: str
    revision: int
    item: Item
    before: Item | None
    lines: dict[str, bytes] = msgspec.field(default_factory=dict)


Listener = Callable[[Change], None]


class Expired(Exception):
    """The history does not reach back to `revision`; `oldest` is the first revision that it has."""

    def __init__(self, revision: int, oldest: int) -> None:
        self.revision = revision
        self.oldest = oldest
        super().__init__(f"too old resource version: {revision} ({oldest})")


def key_of(namespace: str, name: str) -> str:
    """Returns a key that sorts as in etcd: by namespace and name, as one string."""
    return f"{namespace}/{name}" if namespace else name


class Collection:
    """The objects of one storage key, in order. Only the Store writes it."""

    __slots__ = ("items", "keys")

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.keys: list[str] = []

    def span(self, prefix: str, start: str = "") -> Iterator[str]:
        """Yields the keys that begin with `prefix`, from `start` on."""
        keys = self.keys
        at = bisect_left(keys, max(prefix, start))
        while at < len(keys) and keys[at].startswith(prefix):
            yield keys[at]
            at += 1


class Store:
    """All collections; `revision` is that of the last write."""

    def __init__(self, *, max_changes: int = MAX_CHANGES, max_history_bytes: int = MAX_HISTORY_BYTES) -> None:
        self.revision = 1
        # Changes after this revision are in the history.
        self.compacted = 0
        self._max_changes = max_changes
        self._max_bytes = max_history_bytes
        self._n_bytes = 0
        self._collections: dict[str, Collection] = {}
        self._history: deque[Change] = deque()
        self._listeners: dict[str, list[Listener]] = {}

    def get(self, collection: str, namespace: str, name: str) -> Item | None:
        held = self._collections.get(collection)
        return None if held is None else held.items.get(key_of(namespace, name))

    def items(self, collection: str, namespace: str = "") -> list[Item]:
        """Returns the current objects in order, of one namespace or of all."""
        held = self._collections.get(collection)
        if held is None:
            return []
        if not namespace:
            return [held.items[key] for key in held.keys]
        return [held.items[key] for key in held.span(f"{namespace}/")]

    def count(self, collection: str) -> int:
        held = self._collections.get(collection)
        return 0 if held is None else len(held.items)

    def collections(self) -> list[str]:
        """Returns the collections that have or had an object."""
        return list(self._collections)

    def put(self, collection: str, item: Item) -> Change:
        """Store an object whose `revision` is the next one (`self.revision + 1`)."""
        held = self._collections.get(collection)
        if held is None:
            held = self._collections[collection] = Collection()
        key = item.key
        before = held.items.get(key)
        if before is None:
            insort(held.keys, key)
        held.items[key] = item
        return self._done("ADDED" if before is None else "MODIFIED", collection, item, before)

    def remove(self, collection: str, last: Item) -> Change:
        """Remove an object; `last` is its last state with the next revision. Raises: KeyError."""
        held = self._collections[collection]
        key = last.key
        before = held.items.pop(key)
        del held.keys[bisect_left(held.keys, key)]
        return self._done("DELETED", collection, last, before)

    def _done(self, type_: ChangeType, collection: str, item: Item, before: Item | None) -> Change:
        if item.revision != self.revision + 1:
            raise ValueError(f"revision {item.revision} does not follow {self.revision}")
        self.revision = item.revision
        change = Change(type_, collection, item.revision, item, before)
        self._history.append(change)
        self._n_bytes += 0 if before is None else len(before.raw)
        while len(self._history) > self._max_changes or self._n_bytes > self._max_bytes:
            self._forget_oldest()
        for key in (collection, ""):
            for listener in tuple(self._listeners.get(key, ())):
                listener(change)
        return change

    def _forget_oldest(self) -> None:
        oldest = self._history.popleft()
        self._n_bytes -= 0 if oldest.before is None else len(oldest.before.raw)
        self.compacted = oldest.revision

    def compact(self, revision: int | None = None) -> None:
        """Forget the history up to `revision`, or all of it: older watches and continue tokens get a 410."""
        limit = self.revision if revision is None else min(revision, self.revision)
        while self._history and self._history[0].revision <= limit:
            self._forget_oldest()
        self.compacted = max(self.compacted, limit)

    def changes_since(self, collection: str, revision: int) -> list[Change]:
        """Returns the collection's changes after `revision`, oldest first. Raises: Expired."""
        if revision < self.compacted:
            raise Expired(revision, self.compacted)
        found: list[Change] = []
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            if change.collection == collection:
                found.append(change)
        found.reverse()
        return found

    def items_at(
        self, collection: str, revision: int, namespace: str = "", start: str = ""
    ) -> Iterator[Item]:
        """Yields the objects as of `revision`, in order, from the key `start` on. Raises: Expired.

        Later writes are undone in an overlay, so a list that is never continued costs no memory.
        """
        held = self._collections.get(collection) or Collection()
        overlay: dict[str, Item | None] = {}
        if revision != self.revision:
            for change in reversed(self.changes_since(collection, revision)):
                overlay[change.item.key] = change.before
        prefix = f"{namespace}/" if namespace else ""
        keys = held.span(prefix, start)
        if not overlay:
            return (held.items[key] for key in list(keys))
        known = dict.fromkeys(keys)
        extra = (key for key in overlay if key.startswith(prefix) and key >= start)
        merged = sorted({**known, **dict.fromkeys(extra)})
        found = (overlay[key] if key in overlay else held.items[key] for key in merged)
        return (item for item in found if item is not None)

    def n_listeners(self, collection: str = "") -> int:
        return len(self._listeners.get(collection, ()))

    def subscribe(self, listener: Listener, collection: str = "") -> Callable[[], None]:
        """Call `listener` with each change of the collection (of all of them by default); returns a function
        that ends this.

        It is called in the middle of a write: a listener notes the change and acts later.
        """
        listeners = self._listeners.setdefault(collection, [])
        listeners.append(listener)

        def leave() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return leave

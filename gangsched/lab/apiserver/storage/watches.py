"""Watches: the lines that a watcher gets for each change, and the limit of its backlog.

Lives here: the replay from a resourceVersion, initial events, bookmarks, the meaning of a change for a
watcher that sees only some objects, the backlog. Not here: sockets and time (lab.apiserver.http.watching
handles them). A line is encoded once and shared by all watchers that get the same. Source: k8s.io/apiserver
pkg/storage/cacher/{cacher,cache_watcher}.go.

| the object passed the selectors before | and passes now | the watcher gets |
|---|---|---|
| no | yes | ADDED |
| yes | yes | MODIFIED |
| yes | no | DELETED, as it was before, at the change's revision |
| yes | is gone | DELETED |
| no | no | nothing |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.status import expired
from gangsched.lab.apiserver.storage import codec
from gangsched.lab.apiserver.storage.lists import (
    ListOptions,
    check_reached,
    check_watch,
    page,
    parse_revision_of_one,
)
from gangsched.lab.apiserver.storage.store import Change, Expired, Item, Store

# A watcher with more unread bytes than this is cut off, as by the real server; its client reconnects.
MAX_BACKLOG_BYTES = 32 * 2**20
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Form(Protocol):
    """How objects are shown; forms of one `name` show the same, so their lines are made once.

    With `opens_differently` the first line of a watch differs from the rest (a table's columns).
    """

    name: str
    opens_differently: bool

    def item(self, item: Item, *, first: bool) -> bytes: ...

    def bookmark(self, metadata: dict[str, Any]) -> bytes: ...


def line(type_: str, shown: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + shown + b"}\n"


def error_line(error: StatusError) -> bytes:
    return line("ERROR", codec.encode(error.as_status()))


class Watch:
    """One watcher's lines; `wake` is called when the first line is waiting.

    Raises: StatusError (422, 504), at once, for invalid options.
    """

    def __init__(
        self,
        store: Store,
        resource: Resource,
        namespace: str,
        options: ListOptions,
        form: Form,
        wake: Callable[[], None],
    ) -> None:
        check_watch(options)
        self._store = store
        self._resource = resource
        self._namespace = namespace
        self._options = options
        self._wake = wake
        self._form = form
        self._lines: list[bytes] = []
        self._is_first = True
        self.n_bytes = 0
        # Set when the watch ends after the waiting lines.
        self.ended = False
        self.too_slow = False
        # The watcher knows the changes up to this revision.
        self._after = 0
        self._leave: Callable[[], None] | None = None
        self._begin()

    def take(self) -> list[bytes]:
        """Returns the lines that wait to be sent."""
        lines, self._lines, self.n_bytes = self._lines, [], 0
        return lines

    def close(self) -> None:
        """Stop listening to changes."""
        if self._leave is not None:
            self._leave()
        self.ended = True

    def end(self) -> None:
        """Ends the watch after the waiting lines, and wakes its reader."""
        self.close()
        self._wake()

    @property
    def key(self) -> str:
        """The key of the watched resource."""
        return self._resource.key

    def bookmark(self, *, initial_events_end: bool = False) -> None:
        """Send the history's revision. Nothing else may be waiting."""
        meta: dict[str, Any] = {"resourceVersion": str(self._store.revision)}
        if initial_events_end:
            meta["annotations"] = {INITIAL_EVENTS_END: "true"}
        self._send(line("BOOKMARK", self._form.bookmark(meta)))

    def fail(self, error: StatusError) -> None:
        """Send an ERROR and end."""
        self._send(error_line(error))
        self.close()

    def _begin(self) -> None:
        options = self._options
        initial = options.send_initial_events
        revision = parse_revision_of_one(options.resource_version)
        if initial:
            check_reached(self._store, revision)
        if initial or (initial is None and revision == 0):
            self._send_state()
            if initial and options.bookmarks:
                self.bookmark(initial_events_end=True)
        elif revision > self._store.revision:
            # The real server waits for that revision. Nothing is kept here, so it is of an earlier run.
            text = f"resource version {revision} is not of this run, which has come to {self._store.revision}"
            self._send(error_line(expired(text)))
            self.ended = True
            return
        elif revision:
            try:
                changes = self._store.changes_since(self._resource.storage_key, revision)
            except Expired as error:
                self._send(error_line(expired(str(error))))
                self.ended = True
                return
            for change in changes:
                self._heard(change)
            self._after = revision
        self._leave = self._store.subscribe(self._heard, self._resource.storage_key)

    def _send_state(self) -> None:
        options = msgspec.structs.replace(
            self._options, resource_version="", match="", limit=0, continue_="", send_initial_events=None
        )
        for item in page(self._store, self._resource.storage_key, self._namespace, options).items:
            self._send(line("ADDED", self._shown(item)))

    def _heard(self, change: Change) -> None:
        item = change.item
        if (self._namespace and item.namespace != self._namespace) or change.revision <= self._after:
            return
        options = self._options
        if options.selects_all:
            self._send(self._line(change.type, change, item))
            return
        passes = change.type != "DELETED" and options.selects(item)
        passed = change.before is not None and options.selects(change.before)
        if passes:
            self._send(self._line("MODIFIED" if passed else "ADDED", change, item))
        elif passed and change.before is not None:
            if change.type == "DELETED":
                self._send(self._line("DELETED", change, item))
            else:
                self._send(self._line("DELETED", change, codec.at_revision(change.before, change.revision)))

    def _line(self, type_: str, change: Change, item: Item) -> bytes:
        if self._is_first and self._form.opens_differently:
            return line(type_, self._shown(item))
        key = type_ + self._form.name
        known = change.lines.get(key)
        if known is None:
            known = change.lines[key] = line(type_, self._shown(item))
        return known

    def _shown(self, item: Item) -> bytes:
        shown = self._form.item(item, first=self._is_first)
        self._is_first = False
        return shown

    def _send(self, sent: bytes) -> None:
        if self.ended:
            return
        # The initial state and the replay are not bounded: the watch requested them.
        if self.n_bytes > MAX_BACKLOG_BYTES and self._leave is not None:
            self.too_slow = True
            self.close()
            self._lines.clear()
            self._wake()
            return
        self._lines.append(sent)
        self.n_bytes += len(sent)
        if len(self._lines) == 1:
            self._wake()

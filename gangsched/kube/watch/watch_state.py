"""Following one kind, as a pure state: the next request, and what an answer means. No clock, no socket.

| state | on | to | events |
|---|---|---|---|
| Listing, nothing known before | a page with a continue token | Listing, next page | Added |
| Relisting | a page with a continue token | Listing, next page | held back until the list is complete |
| Listing | the last page | Watching, from the list on | Deleted for what was not listed; KindSynced once |
| Listing | 410 (the continue token expired) | Listing from the start | |
| Watching | lines | Watching | Added, Updated, Deleted; ObjectRefused |
| Watching | a bookmark | Watching, from a later resourceVersion | |
| Watching | the end, or a cut: `closed()` | Watching from the last resourceVersion seen | |
| Watching | 410, as an answer or as an ERROR line: `gone()` | Listing from the start | |
| any | another API version of the same kind: `use_version()` | Listing from the start | Updated for all |

A list has no resourceVersion, which makes it a consistent read: resourceVersion=0 may be answered from a
lagging cache, and time must not go backwards (kubernetes 59848). Known objects are kept by name as decoded,
and shared with the core. So a missed deletion is found by difference, and its Deleted carries the last known
state; another UID under a known name is Deleted and then Added. Events of a relist are held back until it is
complete: half a list is a state that the cluster was never in (a device's next holder is present, the last
one not yet gone), and the rest may take long. If the first list expires halfway, the next is a relist.

An object that does not parse is Added or Updated all the same, with what can be read of it
(kube.watch.unparsed), and ObjectRefused follows. Within one watch resourceVersions only rise (they are
comparable as integers: KEP-5504), so a line that is not newer than the last one seen is a repetition and is
ignored. Driven by kube.watch.reflector.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.pages import Pages
from gangsched.kube.status import read_status
from gangsched.kube.watch.decode import (
    UNREADABLE,
    ApiObject,
    Kind,
    decode_raw_line,
    decode_raw_page,
)
from gangsched.kube.watch.envelopes import RawPage
from gangsched.kube.watch.unparsed import read_meta, refused
from gangsched.model.events import Event, KindSynced
from gangsched.model.objects import ObjectMeta

# An endless line would exhaust the memory; objects are at most 1.5 MiB in etcd, 3 MiB when escaped.
MAX_LINE_BYTES = 64 * 2**20


class ListPage(NamedTuple):
    """Ask for a page of the list; `token` is empty for the first."""

    token: str


class WatchFrom(NamedTuple):
    """Watch from here on."""

    resource_version: str


class WatchState:
    """The table above, for one kind; `known` maps `namespace/name` to the last decoded object."""

    def __init__(self, kind: Kind, *, version: str = "v1") -> None:
        self.kind = kind
        self.api_version = kind.api_version(version)
        self.known: dict[str, ApiObject] = {}
        self.resource_version = ""
        self.synced = False
        self.n_refused = 0
        self.failure: ApiError | None = None
        self._number = -1
        self._listing = True
        self._token = ""
        self._pages = self._new_pages()
        self._seen: set[str] = set()
        self._emit_all = False
        self._held: list[Event] = []
        self._had_objects = False
        self._is_proved = False
        self._carry: list[bytes] = []
        self._n_carried = 0

    @property
    def n_held(self) -> int:
        """Events held back: `known` contains them already, the core does not."""
        return len(self._held)

    def next_request(self) -> ListPage | WatchFrom:
        """The next request to the server."""
        return ListPage(self._token) if self._listing else WatchFrom(self.resource_version)

    def use_version(self, version: str) -> None:
        """Read the kind in this API version from now on; relists if it changes."""
        api_version = self.kind.api_version(version)
        if api_version != self.api_version:
            self.api_version = api_version
            self._emit_all = True
            self.gone()

    def gone(self) -> None:
        """The resourceVersion or the continue token is too old: relist from the start."""
        self.closed()
        self._listing = True
        self._token = ""
        self._seen = set()

    def emit_all(self) -> None:
        """List and emit everything again, unchanged objects too."""
        self._emit_all = True
        self.gone()

    def closed(self) -> None:
        """The stream ended: an unfinished line is dropped, the server will send it again."""
        self.failure = None
        self._is_proved = False
        self._carry.clear()
        self._n_carried = 0

    def missing(self) -> None:
        """The kind is not, or no longer, served: its return is reported as new."""
        self.synced = False
        self.gone()

    def page(self, body: bytes) -> list[Event]:
        """Take in a page of the list. Raises: ApiError if it is no list at all, or one that does not end."""
        events = self._held
        if not self._token:
            self._had_objects = bool(self.known)
            self._pages = self._new_pages()
        try:
            page = self.kind.decode_page(body)
            self.kind.check_list(page, self.api_version)
            meta, n_items = page.metadata, len(page.items)
            for item in page.items:
                self._listed(item, events)
        except msgspec.MsgspecError:
            raw_page = self._raw_page(body)
            self.kind.check_list(raw_page, self.api_version)
            meta, n_items = raw_page.metadata, len(raw_page.items or ())
            for raw in raw_page.items or ():
                self._listed_raw(raw, events)
        try:
            self._token = self._pages.after(meta.continue_, n_items=n_items, n_bytes=len(body))
        except ApiError:
            self.gone()  # its events so far are emitted with the next page
            raise
        if self._token and self._had_objects:
            return []
        if not self._token:
            self._list_is_whole(meta.resource_version, events)
        self._held = []
        return events

    def _new_pages(self) -> Pages:
        return Pages(self.kind.path(self.api_version.rpartition("/")[2]))

    def _raw_page(self, body: bytes) -> RawPage:
        try:
            return decode_raw_page(body)
        except msgspec.MsgspecError as error:
            raise ApiError(f"a list of {self.kind.name} is not readable: {error}") from None

    def _list_is_whole(self, resource_version: str, events: list[Event]) -> None:
        self._set_resource_version(resource_version)
        if len(self._seen) < len(self.known):
            for key in [key for key in self.known if key not in self._seen]:
                events.append(self.kind.deleted(self.known.pop(key), self.api_version))
        self._seen = set()
        self._listing = False
        self._emit_all = False
        if not self.synced:
            self.synced = True
            events.append(KindSynced(self.kind.name))

    def _listed(self, item: ApiObject, events: list[Event]) -> None:
        self._seen.add(self._present(item, events))

    def _listed_raw(self, raw: msgspec.Raw, events: list[Event]) -> None:
        try:
            item = self.kind.decode_object(raw)
        except msgspec.MsgspecError as error:
            meta = read_meta(raw)
            self._refuse(raw, meta, error, events)
            if meta is not None:
                self._seen.add(_key(meta))
        else:
            self._listed(item, events)

    def lines(self, chunk: bytes) -> list[Event]:
        """Take in bytes of a watch, cut anywhere.

        An ERROR line (410: then `gone()`) or an unreadable one ends the watch: it is left in `failure` and
        not raised, because the events before it are already in `known` and must be emitted.
        """
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._keep(chunk)
            return []
        whole = chunk[:end]
        if self._carry:
            whole = b"".join((*self._carry, whole))
            self._carry.clear()
            self._n_carried = 0
        if end < len(chunk):
            self._keep(chunk[end:])
        events: list[Event] = []
        if not self._is_proved:
            try:
                self.kind.check_line(whole[: whole.index(b"\n")])
            except ApiError as error:
                self.failure = error
                return events
            self._is_proved = True
        try:
            lines = self.kind.decode_lines(whole)
        except UNREADABLE:
            self._line_by_line(whole, events)
        else:
            for line in lines:
                self._changed(line.type, line.object, events)
        return events

    def _line_by_line(self, whole: bytes, events: list[Event]) -> None:
        """Takes in lines one by one, as one of them is no plain object; the rest still count."""
        for line in whole.split(b"\n"):
            if not line:
                continue
            try:
                decoded = self.kind.decode_line(line)
            except msgspec.MsgspecError as error:
                self._odd_line(line, error, events)
            else:
                self._changed(decoded.type, decoded.object, events)
            if self.failure is not None:
                break

    def _keep(self, part: bytes) -> None:
        self._carry.append(part)
        self._n_carried += len(part)
        if self._n_carried > MAX_LINE_BYTES:
            self.failure = ApiError(f"a line of the watch is longer than {MAX_LINE_BYTES} bytes")

    def _odd_line(self, line: bytes, error: msgspec.MsgspecError, events: list[Event]) -> None:
        """Takes in a line that is no plain object: a bookmark, an error, or an object that does not parse."""
        try:
            raw = decode_raw_line(line)
        except msgspec.MsgspecError:
            self.failure = ApiError(f"a line of the watch is not readable: {error}")
            return
        if raw.type == "ERROR":
            self.failure = read_status(raw.object)
            return
        meta = read_meta(raw.object)
        if raw.type == "BOOKMARK":
            if meta is not None:
                self._set_resource_version(meta.resource_version)
            return
        if meta is not None and not self._moves_to(meta.resource_version):
            return
        if raw.type == "DELETED":
            if meta is not None:
                self._absent(meta, None, events)
        else:
            self._refuse(raw.object, meta, error, events)

    def _changed(self, change: str, item: ApiObject, events: list[Event]) -> None:
        version = item.metadata.resource_version
        if change == "BOOKMARK":
            self._set_resource_version(version)
        elif self._moves_to(version):
            if change == "DELETED":
                self._absent(item.metadata, item, events)
            elif change in ("ADDED", "MODIFIED"):
                self._present(item, events)

    def _present(self, item: ApiObject, events: list[Event]) -> str:
        meta = item.metadata
        key = _key(meta)
        before = self.known.get(key)
        if before is None:
            events.append(self.kind.added(item, self.api_version))
        elif before.metadata.uid != meta.uid:
            events.append(self.kind.deleted(before, self.api_version))
            events.append(self.kind.added(item, self.api_version))
        elif before.metadata.resource_version != meta.resource_version or self._emit_all:
            events.append(self.kind.updated(item, self.api_version))
        else:
            return key  # unchanged: the core keeps the object that it already has
        self.known[key] = item
        return key

    def _absent(self, meta: ObjectMeta, item: ApiObject | None, events: list[Event]) -> None:
        before = self.known.get(_key(meta))
        if before is not None and meta.uid in (before.metadata.uid, ""):  # "": it cannot be read
            del self.known[_key(meta)]
            events.append(self.kind.deleted(item or before, self.api_version))

    def _refuse(
        self, raw: msgspec.Raw, meta: ObjectMeta | None, error: Exception, events: list[Event]
    ) -> None:
        """Emit what is wrong with it, after what can be read of it in place of its known state; a known
        object with another UID is gone."""
        self.n_refused += 1
        refusal = refused(self.kind.kind, raw, error)
        before = self.known.get(f"{refusal.namespace}/{refusal.name}")
        if before is not None and refusal.uid not in ("", before.metadata.uid):
            self._absent(before.metadata, None, events)
            before = None
        item = self.kind.read_in_part(raw, before) if refusal.name else None
        if item is not None and _key(item.metadata) == f"{refusal.namespace}/{refusal.name}":
            self._present(item, events)
        events.append(refusal)

    def _moves_to(self, resource_version: str) -> bool:
        """Take in a line's version; False: it is not newer than the last one."""
        number = int(resource_version) if resource_version.isdecimal() else -1
        if 0 <= number <= self._number:
            return False
        if resource_version:
            self.resource_version, self._number = resource_version, number
        return True

    def _set_resource_version(self, resource_version: str) -> None:
        """Set it, whether it is newer or not."""
        if resource_version:
            self._number = -1
            self._moves_to(resource_version)


def _key(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}"

"""Lists: selectors, pages at one revision, resourceVersion and resourceVersionMatch.

Lives here: options -> the items, their revision, the continue token. Not here: bytes of the response
(lab.apiserver.http.responses), parsing of the query (lab.apiserver.http.requests). Source: k8s.io/apiserver
pkg/storage/etcd3/store.go (GetList), pkg/storage/continue.go, k8s.io/apimachinery
pkg/apis/meta/internalversion/validation.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from gangsched.api_rules.selectors import LabelSelector
from gangsched.api_rules.status import (
    Cause,
    FieldProblem,
    StatusError,
    bad_request,
    forbidden_field,
    not_supported,
)
from gangsched.lab.apiserver.status import expired, invalid, timeout
from gangsched.lab.apiserver.storage.selectors import FieldSelector
from gangsched.lab.apiserver.storage.store import Expired, Item, Store

EXACT = "Exact"
NOT_OLDER = "NotOlderThan"

_TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)
_NO_TOKEN = "invalid continue token: continue key is not valid"


class ListOptions(msgspec.Struct):
    """metav1.ListOptions from a query; `timeout_s` and the last two are for watches."""

    labels: LabelSelector
    fields: FieldSelector
    limit: int = 0
    continue_: str = ""
    resource_version: str = ""
    match: str = ""
    timeout_s: int | None = None
    watch: bool = False
    bookmarks: bool = False
    send_initial_events: bool | None = None

    def selects(self, item: Item) -> bool:
        return self.labels.matches(item.labels) and (
            self.fields.everything or self.fields.matches(selectable(item))
        )

    @property
    def selects_all(self) -> bool:
        return self.labels.everything and self.fields.everything


class Page(NamedTuple):
    """One page of a list."""

    items: list[Item]
    revision: int
    continue_: str = ""
    n_remaining: int | None = None


class _Token(msgspec.Struct, rename={"api_version": "v", "revision": "rv"}):
    api_version: str
    revision: int
    start: str


def selectable(item: Item) -> dict[str, str]:
    """The fields that a field selector may name, with their values."""
    return {**item.fields, "metadata.name": item.name, "metadata.namespace": item.namespace}


def page(store: Store, collection: str, namespace: str, options: ListOptions) -> Page:
    """Raises: StatusError (400, 410, 422, 504)."""
    _check(options)
    start = ""
    if options.continue_:
        if options.resource_version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, start = _from_token(options.continue_, namespace)
        if revision < 0:
            revision = store.revision
    else:
        revision = _revision(store, options)
    # As the real server's watch cache: "0" means the current state, without a limit.
    limit = 0 if options.resource_version == "0" and not options.continue_ else max(options.limit, 0)
    try:
        candidates = store.items_at(collection, revision, namespace, start)
    except Expired:
        if not options.continue_:
            raise expired("The resourceVersion for the provided list is too old.") from None
        error = expired(_TOO_OLD_TOKEN)
        error.continue_ = _token(-1, start, namespace)
        raise error from None
    if not limit:
        return Page(_selected(candidates, options), revision)
    return _first(candidates, revision, namespace, limit, options)


def _first(
    candidates: Iterable[Item], revision: int, namespace: str, limit: int, options: ListOptions
) -> Page:
    items: list[Item] = []
    iterator = iter(candidates)
    for item in iterator:
        if options.selects(item):
            items.append(item)
            if len(items) == limit:
                break
    rest = list(iterator)
    if not rest:
        return Page(items, revision)
    # The key that follows the last one: the last key plus a zero byte.
    token = _token(revision, items[-1].key + "\0", namespace)
    return Page(items, revision, token, len(rest) if options.selects_all else None)


def _selected(candidates: Iterable[Item], options: ListOptions) -> list[Item]:
    if options.selects_all:
        return list(candidates)
    if options.fields.everything:
        matches = options.labels.matches
        return [item for item in candidates if matches(item.labels)]
    return [item for item in candidates if options.selects(item)]


def _revision(store: Store, options: ListOptions) -> int:
    asked = parse_revision(options.resource_version)
    check_reached(store, asked)
    # A limit with a resourceVersion and no match means Exact, from the time before there was a match.
    exact = options.match == EXACT or (not options.match and options.limit > 0)
    return asked if asked and exact else store.revision


def parse_revision(text: str) -> int:
    """A resourceVersion; 0 for none. Raises: StatusError."""
    if not text:
        return 0
    if text.isascii() and text.isdigit() and int(text) < 2**64:
        return int(text)
    raise bad_request(
        f'invalid resource version: resourceVersion: Invalid value: "{text}": '
        f'strconv.ParseUint: parsing "{text}": invalid syntax'
    )


def parse_revision_of_one(text: str) -> int:
    """Like parse_revision, for a GET or a watch, which get 500 where a list gets 400."""
    try:
        return parse_revision(text)
    except StatusError as error:
        raise StatusError(500, "", error.message.removeprefix("invalid resource version: ")) from None


def check_reached(store: Store, revision: int) -> None:
    """Rejects a revision that this server has not reached. Raises: StatusError (504)."""
    if revision > store.revision:
        raise timeout(
            f"Too large resource version: {revision}, current: {store.revision}",
            retry_after_s=1,
            causes=[Cause("ResourceVersionTooLarge", "Too large resource version")],
        )


def _check(options: ListOptions) -> None:
    found: list[FieldProblem] = []
    if options.match:
        field = "resourceVersionMatch"
        if not options.resource_version:
            found.append(forbidden_field(field, f"{field} is forbidden unless resourceVersion is provided"))
        if options.continue_:
            found.append(forbidden_field(field, f"{field} is forbidden when continue is provided"))
        if options.match not in (EXACT, NOT_OLDER):
            found.append(not_supported(field, options.match, [EXACT, NOT_OLDER, ""]))
        if options.match == EXACT and options.resource_version == "0":
            found.append(forbidden_field(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    if options.send_initial_events is not None:
        found.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    _refuse(found)


def check_watch(options: ListOptions) -> None:
    """Rejects options that a watch cannot have. Raises: StatusError (422)."""
    field = "resourceVersionMatch"
    found: list[FieldProblem] = []
    if options.send_initial_events is not None and options.match != NOT_OLDER:
        found.append(
            forbidden_field(field, f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}")
        )
    if options.match:
        if options.send_initial_events is None:
            found.append(
                forbidden_field(field, f"{field} is forbidden for watch unless sendInitialEvents is provided")
            )
        if options.match != NOT_OLDER:
            found.append(not_supported(field, options.match, [NOT_OLDER]))
        if options.continue_:
            found.append(forbidden_field(field, f"{field} is forbidden when continue is provided"))
    _refuse(found)


def _refuse(found: list[FieldProblem]) -> None:
    if found:
        raise invalid("ListOptions", "", found, group="meta.k8s.io")


def _token(revision: int, start: str, namespace: str) -> str:
    """As in k8s.io/apiserver: the key is relative to the listed prefix."""
    relative = start.removeprefix(f"{namespace}/") if namespace else start
    raw = msgspec.json.encode(_Token("meta.k8s.io/v1", revision, relative))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _from_token(text: str, namespace: str) -> tuple[int, str]:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"{_NO_TOKEN}: {error}") from None
    if token.api_version != "meta.k8s.io/v1":
        raise bad_request(
            f'{_NO_TOKEN}: server does not recognize this encoded version "{token.api_version}"'
        )
    if not token.start:
        raise bad_request(f"{_NO_TOKEN}: encoded start key is empty")
    return token.revision, f"{namespace}/{token.start}" if namespace else token.start

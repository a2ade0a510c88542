"""The wrappers of objects: a line of a watch, a page of a list.

Used by kube.watch.decode and kube.watch.pod_reader, which add the type inside, and by other code that lists.
"""

from __future__ import annotations

import re
from typing import Any, Generic, Protocol, TypeVar

import msgspec

ObjectT = TypeVar("ObjectT")
# kube-apiserver writes a list's metadata before its items; with other servers the page is decoded to find the
# token.
_CONTINUE = re.compile(rb'"continue":"([\w.=+/-]+)"')
_HEAD_BYTES = 4096


class ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class WatchEventOf(msgspec.Struct, Generic[ObjectT], gc=False):
    """An event of a watch: one line of its answer."""

    type: str
    object: ObjectT


class PageOf(msgspec.Struct, Generic[ObjectT], gc=False, rename="camel"):
    """A page of a list."""

    metadata: ListMeta
    items: list[ObjectT]
    kind: str = ""
    api_version: str = ""


class RawWatchEvent(msgspec.Struct, gc=False):
    """An event of a watch, its object not decoded."""

    type: str
    object: msgspec.Raw


class RawPage(msgspec.Struct, gc=False, rename="camel"):
    """A page of a list, its items not decoded."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None
    kind: str = ""
    api_version: str = ""


class _Kind(msgspec.Struct, gc=False):
    kind: str = ""


class KindWatchEvent(msgspec.Struct, gc=False):
    """An event of a watch, with only the kind of its object."""

    type: str
    object: _Kind


class Listed(Protocol):
    """What a list states about itself."""

    metadata: ListMeta
    kind: str
    api_version: str


class Page(Listed, Protocol):
    """A page of a list, decoded whole."""

    items: list[Any]


class WatchEvent(Protocol):
    """An event of a watch, decoded whole."""

    type: str
    object: Any


def continue_of(page: bytes) -> str:
    """The next page's token, read without decoding this one; "" if that is not possible."""
    found = _CONTINUE.search(page[:_HEAD_BYTES].split(b'"items"', 1)[0])
    return found[1].decode() if found else ""

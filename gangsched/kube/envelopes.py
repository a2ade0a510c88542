"""What objects come in: a line of a watch, a page of a list.

Used by kube.decode and kube.pod_reader, which say what is inside, and by whoever lists by itself.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec

ObjectT = TypeVar("ObjectT")


class ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class LineOf(msgspec.Struct, Generic[ObjectT], gc=False):
    """A line of a watch."""

    type: str
    object: ObjectT


class PageOf(msgspec.Struct, Generic[ObjectT], gc=False):
    """A page of a list."""

    metadata: ListMeta
    items: list[ObjectT]


class RawLine(msgspec.Struct, gc=False):
    """A line of a watch, its object not looked at."""

    type: str
    object: msgspec.Raw


class RawPage(msgspec.Struct, gc=False):
    """A page of a list, its items not looked at."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Page(Protocol):
    """A page of a list, decoded whole."""

    metadata: ListMeta
    items: list[Any]


class Line(Protocol):
    """A line of a watch, decoded whole."""

    type: str
    object: Any

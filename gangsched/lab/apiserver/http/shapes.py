"""Items in the form that a client requested: objects, tables for kubectl, metadata alone; conversion between
groups.

Lives here: the bytes of an item in an answer or a watch. Not here: a table's columns and cells (tables/).
Called by handlers.py, and by watches for each line.
"""

from __future__ import annotations

from typing import Any

from gangsched.lab.apiserver.http import responses
from gangsched.lab.apiserver.http.negotiation import Shape
from gangsched.lab.apiserver.http.requests import Request, Target
from gangsched.lab.apiserver.registry import Registry
from gangsched.lab.apiserver.storage import codec
from gangsched.lab.apiserver.storage.lists import Page
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.storage.watches import Form
from gangsched.lab.apiserver.tables.printer import Tables, check_include

_PARTIAL = "PartialObjectMetadata"


class Shapes:
    """Shows the registry's items; a `Shape` of None is the object as it is."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._tables = Tables(registry)

    def one(self, item: Item, target: Target, wanted: Shape | None, request: Request) -> bytes:
        return self.form(target, wanted, request).item(item, first=True)

    def many(self, page: Page, target: Target, wanted: Shape | None, request: Request) -> bytes:
        if wanted is not None and wanted.kind == "Table":
            table = self._table(target, wanted, request)
            return table.items(page.items, responses.list_metadata(page))
        if wanted is not None:
            return responses.partial_list(page, page.items, wanted)
        resource, version = target.resource, target.version
        if self._registry.strategy(resource).converts:
            form = self._plain(target)
            n_head = len(codec.head(resource, version))
            # As in_list leaves them: the items of a list do not repeat kind and apiVersion.
            shown = [b"{" + form.item(item, first=False)[n_head:] for item in page.items]
        else:
            shown = [codec.in_list(resource, version, item.raw) for item in page.items]
        return responses.list_body(resource, version, page, shown)

    def form(self, target: Target, wanted: Shape | None, request: Request) -> Form:
        if wanted is None:
            return self._plain(target)
        if wanted.kind == "Table":
            return self._table(target, wanted, request)
        return _Partial(wanted)

    def _plain(self, target: Target) -> Form:
        strategy = self._registry.strategy(target.resource)
        if strategy.converts:
            return _Converted(target, self._registry)
        return _Plain(target)

    def _table(self, target: Target, wanted: Shape, request: Request) -> _Table:
        include = check_include(request.first("includeObject"))
        return _Table(self._tables, self._registry, target, wanted, include, self._plain(target))


class _Plain:
    """The object in the requested version."""

    opens_differently = False

    def __init__(self, target: Target) -> None:
        self._resource, self._version = target.resource, target.version
        self.name = f"{target.resource.key}/{target.version}"

    def item(self, item: Item, *, first: bool) -> bytes:
        return codec.in_version(self._resource, self._version, item.raw)

    def bookmark(self, metadata: dict[str, Any]) -> bytes:
        return codec.head(self._resource, self._version) + codec.encode({"metadata": metadata})[1:]


class _Converted(_Plain):
    """The object as shown in a group that shows another group's objects."""

    def __init__(self, target: Target, registry: Registry) -> None:
        super().__init__(target)
        self._strategy = registry.strategy(target.resource)

    def item(self, item: Item, *, first: bool) -> bytes:
        obj = self._strategy.from_storage(item.decode(), self._version, self._resource)
        rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
        return codec.head(self._resource, self._version) + codec.encode(rest)[1:]


class _Partial:
    """The object's metadata alone."""

    opens_differently = False

    def __init__(self, wanted: Shape) -> None:
        self._wanted = wanted
        self.name = f"{_PARTIAL}/{wanted.version}"

    def item(self, item: Item, *, first: bool) -> bytes:
        return responses.partial(item.decode()["metadata"], self._wanted)

    def bookmark(self, metadata: dict[str, Any]) -> bytes:
        return responses.partial(metadata, self._wanted)


class _Table:
    """Rows for people; the first table of a watch has the columns' names."""

    opens_differently = True

    def __init__(
        self, tables: Tables, registry: Registry, target: Target, wanted: Shape, include: str, plain: Form
    ) -> None:
        self._printer = tables.printer(target.resource, target.version)
        self._now = registry.now
        self._version = wanted.version
        self._include = include
        self._plain = plain
        self.name = f"Table/{wanted.version}/{include}/{target.resource.key}/{target.version}"

    def item(self, item: Item, *, first: bool) -> bytes:
        return self.items([item], {"resourceVersion": str(item.revision)}, headers=first)

    def items(self, items: list[Item], metadata: dict[str, Any], *, headers: bool = True) -> bytes:
        return self._printer.table(
            items,
            metadata,
            self._now(),
            show=lambda item: self._plain.item(item, first=False),
            version=self._version,
            include=self._include,
            headers=headers,
        )

    def bookmark(self, metadata: dict[str, Any]) -> bytes:
        return self._printer.bookmark(metadata, self._now(), self._version)

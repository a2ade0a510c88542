"""Items in the form a client asked for: objects, tables for kubectl, metadata alone; conversion between
groups.

Lives here: which bytes stand for an item in an answer or a watch. Not here: a table's columns and cells
(tables). Called by handlers.py.
"""

from __future__ import annotations

from gangsched.apiserver import codec, responses
from gangsched.apiserver.lists import Page
from gangsched.apiserver.negotiation import MEDIA_TYPES, Shape
from gangsched.apiserver.registry import Registry
from gangsched.apiserver.requests import Request, Target
from gangsched.apiserver.status import not_acceptable
from gangsched.apiserver.store import Item
from gangsched.apiserver.watches import Show

# None: the object as it is.
Wanted = Shape | None
_PARTIAL = "PartialObjectMetadata"


class Shapes:
    """Shows the registry's items."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def one(self, item: Item, target: Target, wanted: Wanted, request: Request) -> bytes:
        return self.shower(target, wanted, request)[0](item, True)

    def many(self, page: Page, target: Target, wanted: Wanted, request: Request) -> bytes:
        resource, version = target.resource, target.version
        if wanted is not None and wanted.kind.startswith(_PARTIAL):
            return responses.partial_list(page, page.items, wanted)
        if wanted is not None:
            raise not_acceptable(MEDIA_TYPES)
        if self._registry.strategy(resource).converts:
            show = self.shower(target, wanted, request)[0]
            shown = [show(item, False) for item in page.items]
        else:
            shown = [codec.in_list(resource, version, item.raw) for item in page.items]
        return responses.list_body(resource, version, page, shown)

    def shower(self, target: Target, wanted: Wanted, request: Request) -> tuple[Show, str]:
        """How one item is shown, and a name for that which is equal for what is shown equally."""
        resource, version = target.resource, target.version
        if wanted is not None and wanted.kind.startswith(_PARTIAL):
            return (lambda item, first: responses.partial(item.raw, wanted)), f"partial/{wanted.version}"
        if wanted is not None:
            raise not_acceptable(MEDIA_TYPES)
        strategy = self._registry.strategy(resource)
        if not strategy.converts:
            return (
                lambda item, first: codec.in_version(resource, version, item.raw)
            ), f"{resource.key}/{version}"

        def converted(item: Item, first: bool) -> bytes:
            obj = strategy.from_storage(item.decode(), version, resource)
            obj = {"kind": resource.kind, "apiVersion": resource.api_version(version)} | {
                key: value for key, value in obj.items() if key not in ("kind", "apiVersion")
            }
            return codec.encode(obj)

        return converted, f"{resource.key}/{version}"

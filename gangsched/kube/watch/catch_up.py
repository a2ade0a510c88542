"""Checks that a new leader's watches have shown everything that its predecessor wrote.

Lives here: one consistent list, of the bound pods or of the claims, and comparing it with the watch. Not
here: following (kube.watch.reflector), and who leads (kube.election.lease). Called by kube.take_over between
gaining the lease and the first decision: a watch may be seconds behind, or dead but not yet detected, and a
device that looks free in it may be taken (a standby that decided on stale state allocated GPUs twice:
Koordinator 1289).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import Pages
from gangsched.kube.watch.decode import Kind
from gangsched.kube.watch.envelopes import ListMeta
from gangsched.kube.watch.watch_state import WatchState
from gangsched.model.text import bounded

PAGE_LIMIT = 2000
BOUND, UNBOUND = "spec.nodeName!=", "spec.nodeName="
"""Selectors of pods: those that hold something, and the rest."""


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class _Item(msgspec.Struct, gc=False):
    metadata: _Metadata


class _Page(msgspec.Struct, gc=False):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None
    kind: str = ""


_decode_page = bounded.lenient_decoder(_Page)
_decode_item = bounded.lenient_decoder(_Item)


async def ask_pages(
    client: ApiClient, kind: Kind, selector: str = "", version: str = "v1"
) -> AsyncIterator[_Page]:
    """Reads the objects of a kind that a field selector matches, page by page, consistently.

    Raises: ApiError.
    """
    token, path = "", kind.path(version)
    pages = Pages(path)
    while True:
        params = {"limit": str(PAGE_LIMIT)}
        if selector:
            params["fieldSelector"] = selector
        if token:
            params["continue"] = token
        try:
            body = await client.get(path, params)
            page = _decode_page(body)
        except msgspec.MsgspecError as error:
            raise ApiError(f"the list of {kind.name} is not readable: {error}") from None
        if page.kind != f"{kind.kind}List" or not page.metadata.resource_version:
            raise ApiError(
                f"not the API server's own answer: the list of {kind.name} came as {page.kind or '?'}"
            )
        token = pages.after(page.metadata.continue_, n_items=len(page.items or ()), n_bytes=len(body))
        del body  # megabytes
        yield page
        if not token:
            return


class CatchUp:
    """Compares a watch with one consistent list, which `ask` reads: of all its objects that a field selector
    matches."""

    def __init__(self, state: WatchState, selector: str = "") -> None:
        self._state = state
        self._selector = selector
        self._missing: dict[str, int] = {}
        self._version = -1

    async def ask(self, client: ApiClient) -> None:
        """Read what there is now. Raises: ApiError."""
        self._missing.clear()
        kind, version = self._state.kind, self._state.api_version.rpartition("/")[2]
        async for page in ask_pages(client, kind, self._selector, version):
            for raw in page.items or ():
                meta = _decode_item(raw).metadata
                self._missing[f"{meta.namespace}/{meta.name}"] = _number(meta.resource_version)
            self._version = _number(page.metadata.resource_version)

    def n_missing(self) -> int:
        """Counts what was listed and not shown in that version or later; 0: the watch has caught up."""
        if not self._missing:
            return 0
        if self._state.n_held:
            return len(self._missing)  # a relist is running: known objects are ahead of the emitted events
        # One that was deleted meanwhile, or that does not parse, is never shown: then only the watch's own
        # resourceVersion proves that the watch is past it.
        if _number(self._state.resource_version) >= self._version:
            self._missing.clear()
            return 0
        known = self._state.known
        for key in list(self._missing):
            item = known.get(key)
            if item is not None and _number(item.metadata.resource_version) >= self._missing[key]:
                del self._missing[key]
        return len(self._missing)


def _number(resource_version: str) -> int:
    """Resource versions compare as integers (KEP-5504)."""
    return int(resource_version) if resource_version.isdecimal() else -1

"""Lists of the API server, read page by page to their end. Called by commands, and by command.snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from gangsched.kube.client import ApiClient
from gangsched.kube.pages import Pages
from gangsched.kube.watch.decode import Kind
from gangsched.model.events import ObjectRefused

_REQUEST_S = 30.0


async def pages_of(
    client: ApiClient, kind: Kind, *, version: str = "v1", path: str = "", limit: int = 0
) -> AsyncIterator[tuple[list[Any], list[ObjectRefused]]]:
    """Yields each page's objects, and those that cannot be read. path: of the kind in one namespace; limit:
    objects per page, by default as when the kind is followed. Raises: ApiError."""
    path = path or kind.path(version)
    query = {**kind.selector, "limit": str(limit or kind.page_limit)}
    pages = Pages(path)
    while True:
        body = await client.get(path, query, timeout_s=_REQUEST_S)
        items, refused, meta = kind.read_page(body, version)
        yield items, refused
        query["continue"] = pages.after(meta.continue_, n_items=len(items) + len(refused), n_bytes=len(body))
        if not query["continue"]:
            return

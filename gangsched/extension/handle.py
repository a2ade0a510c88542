"""Handle: a hook's access to the outside: the API server, a logger, and the groups that wait in Permit.

Lives here: JSON in and out, requests counted and bounded. Not here: when a hook runs (runner), and the client
of kubernetes-asyncio (kubernetes_client). Objects are plain dicts and lists, as the API server sends them;
paths are the API server's own. The rights are those of the scheduler's service account; further rights must
be added to its role.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import structlog

from gangsched.core.types.group import Group
from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import Pages
from gangsched.kube.transport.http1 import MERGE_PATCH
from gangsched.model.events import Event, GroupAllowed, GroupRejected
from gangsched.model.text import bounded

if TYPE_CHECKING:
    from gangsched.extension.outside import Outside

_PAGE = "500"


_decode_json = bounded.decoder(object, max_bytes=bounded.MAX_ANSWER)


class Handle:
    """One plugin's handle."""

    def __init__(
        self,
        plugin: str,
        client: ApiClient,
        *,
        emit_nowait: Callable[[Event], None],
        waiting: Callable[[str], Group | None],
    ) -> None:
        self._plugin = plugin
        self._client = client
        self._emit = emit_nowait
        self._waiting = waiting
        self._kubernetes: Any = None
        self._outside: Outside | None = None
        self._connecting = anyio.Lock()
        self.log = structlog.get_logger(f"plugin.{plugin}")

    async def get(self, path: str) -> Any:
        """One object. Raises: ApiError (code 404: the API server itself says that there is none)."""
        return await _own(self._client.get(path))

    async def list(self, path: str, *, label_selector: str = "", field_selector: str = "") -> list[Any]:
        """All objects of a kind, page by page. Raises: ApiError."""
        params = {"limit": _PAGE}
        if label_selector:
            params["labelSelector"] = label_selector
        if field_selector:
            params["fieldSelector"] = field_selector
        found: list[Any] = []
        pages = Pages(path)
        while True:
            page, n_bytes = await _own_sized(self._client.get(path, params))
            if not page["kind"].endswith("List"):
                raise ApiError(f"not the API server's own answer: a list came as {page['kind']}")
            items, meta = page.get("items") or [], page.get("metadata") or {}
            token = (meta.get("continue") or "") if isinstance(meta, dict) else None
            if not isinstance(items, list) or not isinstance(token, str):
                raise ApiError(f"not the API server's own answer: {path} is not a list that can be read")
            found += items
            params["continue"] = pages.after(token, n_items=len(items), n_bytes=n_bytes)
            if not params["continue"]:
                return found

    async def post(self, path: str, body: Any) -> Any:
        """Creates an object, or calls a subresource. Raises: ApiError."""
        return await _own(self._client.post(path, msgspec.json.encode(body)))

    async def patch(self, path: str, body: Any, *, content_type: str = MERGE_PATCH) -> Any:
        """Changes an object, by a merge patch unless `content_type` differs. Raises: ApiError."""
        return await _own(self._client.patch(path, msgspec.json.encode(body), content_type=content_type))

    async def kubernetes(self) -> Any:
        """A kubernetes_asyncio.client.ApiClient with the scheduler's credentials; do not close it.

        The first call takes seconds, in a thread: that package is large. The client is kept, with fresh
        credentials.
        """
        from gangsched.extension import kubernetes_client

        async with self._connecting:
            if self._kubernetes is None or kubernetes_client.is_closed(self._kubernetes):
                self._kubernetes = await kubernetes_client.connect(self._client.credentials)
            return self._kubernetes

    async def ask(self, url: str, body: Any = None) -> Any:
        """Asks another HTTP service; returns its answer in JSON, at most 64 KiB. Raises: GangschedError."""
        from gangsched.extension.outside import Outside

        if self._outside is None:
            self._outside = Outside()
        return await self._outside.ask(url, body)

    async def close_outside(self) -> None:
        """Close the connections of `ask`."""
        if self._outside is not None:
            await self._outside.close()

    async def sleep(self, seconds: float) -> None:
        """Sleep between polls of something that must happen first."""
        await anyio.sleep(seconds)

    def close(self) -> None:
        """Close its connections; later requests of a hook open new ones, which end with the process."""
        self._client.close()

    async def close_kubernetes(self) -> None:
        """Close the client that `kubernetes` returned, if any."""
        given, self._kubernetes = self._kubernetes, None
        if given is not None:
            await given.close()

    def allow(self, group: str) -> bool:
        """Stops a group ("namespace/name") waiting for this plugin; False: no such group waits."""
        found = self._waiting(group)
        if found is not None:
            self._emit(GroupAllowed(found.key, self._plugin, f"plugin {self._plugin}"))
        return found is not None

    def reject(self, group: str, reason: str) -> bool:
        """Makes a group that waits in Permit release its reservations; False: no such group waits."""
        found = self._waiting(group)
        if found is not None:
            self._emit(GroupRejected(found.key, f"plugin {self._plugin}", reason))
        return found is not None


async def _own(request: Awaitable[bytes]) -> Any:
    """The object in an answer of the API server itself. Raises: ApiError, as `_own_sized`."""
    return (await _own_sized(request))[0]


async def _own_sized(request: Awaitable[bytes]) -> tuple[Any, int]:
    """The object in an answer of the API server itself, and the bytes of the answer.

    Raises: ApiError, with code 0 if something in front of the server may have answered: done or not.
    """
    try:
        body = await request
        found = _decode_json(body)
    except ApiError as error:
        if error.subject is None and 300 <= error.code < 500 and error.code != 429:
            raise ApiError(f"not the API server's own answer: {error}") from None
        raise
    except ValueError as error:
        raise ApiError(f"the answer cannot be read: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise ApiError("not the API server's own answer: a success without an object")
    return found, len(body)


__all__ = ["ApiError", "Handle"]

"""Lists, discovery and other plain requests to the API server: bytes out, bytes in, failures as ApiErrors.

Lives here: queries, the verbs, answers of many megabytes. Not here: how a request is sent
(kube.transport.pool), requests for each pod and gang (kube.transport.lane, kube.transport.stream), and
how to react to an error (the callers). aiohttp would do the same, but importing it costs 75 ms of CPU, and
reading the first lists as much again: a tenth of a scheduler's start.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.access.credentials import Credentials
from gangsched.kube.transport.connection import Connection
from gangsched.kube.transport.http1 import JSON, MERGE_PATCH
from gangsched.kube.transport.pool import REQUEST_TIMEOUT_S, RequestPool
from gangsched.model.text import bounded

# Pages of a list are megabytes, and more where objects are large (1.5 MiB is the most one may have).
MAX_LIST_BYTES = 2**30


class _ApiResource(msgspec.Struct, gc=False):
    name: str


class _ApiResourceList(msgspec.Struct, gc=False, rename="camel"):
    kind: str = ""
    group_version: str = ""
    resources: list[_ApiResource] = []


class _GroupVersion(msgspec.Struct, gc=False, rename="camel"):
    group_version: str = ""


class _ApiGroup(msgspec.Struct, gc=False):
    versions: list[_GroupVersion] = []


class _ApiGroupList(msgspec.Struct, gc=False):
    kind: str = ""
    groups: list[_ApiGroup] = []


_decode_resources = bounded.lenient_decoder(_ApiResourceList)
_decode_groups = bounded.lenient_decoder(_ApiGroupList)


class ApiClient:
    """Connections to the API server. Use as an async context manager, or call `close`."""

    def __init__(self, credentials: Credentials, *, max_body_bytes: int = MAX_LIST_BYTES) -> None:
        """`max_body_bytes`: a longer answer is an error."""
        self.credentials = credentials
        self._pool = RequestPool(credentials, max_body_bytes=max_body_bytes)

    def another(self, *, max_body_bytes: int = MAX_LIST_BYTES) -> ApiClient:
        """A client with the same credentials and its own connections; the caller closes it."""
        return ApiClient(self.credentials, max_body_bytes=max_body_bytes)

    def apart(self) -> ApiClient:
        """A client for another thread's event loop: it shares neither connections nor locks with this one."""
        return ApiClient(self.credentials.another())

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections now, and each busy one when its answer has arrived."""
        self._pool.close()

    def take_idle(self) -> Connection | None:
        """An open idle connection; from now on it belongs to the caller."""
        return self._pool.take_idle()

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> bytes:
        """GET; also reads each page of a list. Raises: ApiError."""
        return await self.request("GET", path, params=params, timeout_s=timeout_s)

    async def post(self, path: str, body: bytes, *, timeout_s: float = REQUEST_TIMEOUT_S) -> bytes:
        """POST of a JSON body. Raises: ApiError."""
        return await self.request("POST", path, body=body, timeout_s=timeout_s)

    async def patch(
        self, path: str, body: bytes, *, content_type: str = MERGE_PATCH, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> bytes:
        """PATCH; `content_type` names the kind of patch. Raises: ApiError."""
        return await self.request("PATCH", path, body=body, content_type=content_type, timeout_s=timeout_s)

    async def put(self, path: str, body: bytes, *, timeout_s: float = REQUEST_TIMEOUT_S) -> bytes:
        """PUT of a JSON body. Raises: ApiError."""
        return await self.request("PUT", path, body=body, timeout_s=timeout_s)

    async def delete(
        self, path: str, body: bytes | None = None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> bytes:
        """DELETE. Raises: ApiError."""
        return await self.request("DELETE", path, body=body, timeout_s=timeout_s)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """One request and its whole answer. Raises: ApiError, with code 0 when the outcome is unknown."""
        return await self._pool.request(
            method,
            f"{path}?{urlencode(params)}" if params else path,
            body=body or b"",
            content_type="" if body is None else content_type,
            timeout_s=timeout_s,
        )


async def offers(client: ApiClient, group: str, version: str, resource: str) -> bool:
    """Whether the server serves this resource now. Raises: ApiError, when its answer leaves that open.

    Only a document of the server counts as a no: the list of the version's resources, or the list of all
    groups. A plain "404 page not found" does not: kube-apiserver sends it for a version that it does not
    serve, but so may any proxy in front of it.
    """
    if not group and version != "v1":
        return False
    group_version = f"{group}/{version}" if group else version
    try:
        body = await client.get(f"/apis/{group_version}" if group else "/api/v1")
    except ApiError as error:
        if error.code != 404 or group_version in await _served(client):
            raise
        return False
    try:
        found = _decode_resources(body)
    except ValueError as error:
        raise ApiError(f"the resources of {group_version} are not readable: {error}") from None
    if (found.kind, found.group_version) != ("APIResourceList", group_version):
        what = found.kind or "?"
        raise ApiError(f"not the API server's own answer: the resources of {group_version} came as {what}")
    return any(one.name == resource for one in found.resources)


async def _served(client: ApiClient) -> set[str]:
    """Every group and version that the server serves. Raises: ApiError."""
    try:
        found = _decode_groups(await client.get("/apis"))
    except ValueError as error:
        raise ApiError(f"the list of API groups is not readable: {error}") from None
    if found.kind != "APIGroupList":
        raise ApiError(f"not the API server's own answer: the list of API groups came as {found.kind or '?'}")
    return {"v1", *(version.group_version for group in found.groups for version in group.versions)}

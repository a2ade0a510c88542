"""Requests to the API server over aiohttp: bytes out, bytes in, every failure an ApiError.

Lives here: one connection pool for lists and discovery, error mapping. Not here: what happens for each pod,
which goes over leaner connections (binds: kube.binding_lane, watches: kube.stream, status writes and events:
kube.pool), and what to do about an error (the callers).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import msgspec
from yarl import URL

from gangsched.errors import ApiError
from gangsched.kube.credentials import Credentials
from gangsched.kube.http1 import USER_AGENT
from gangsched.kube.pool import JSON, MERGE_PATCH
from gangsched.kube.status import api_error

# aiohttp reads the system's certificates when it is imported, for contexts that we never use (ours come from
# the kubeconfig): 40 ms, a twentieth of a scheduler's start.
_load_default_certs = ssl.SSLContext.load_default_certs
ssl.SSLContext.load_default_certs = lambda *_: None  # type: ignore[method-assign]
try:
    import aiohttp
finally:
    ssl.SSLContext.load_default_certs = _load_default_certs  # type: ignore[method-assign]

# Pages of a list are megabytes.
READ_BUFFER_BYTES = 4 * 2**20
CONNECT_TIMEOUT_S = 5.0
MAX_REFUSAL_BYTES = 65536
REQUEST_TIMEOUT_S = 30.0


class _ApiResource(msgspec.Struct, gc=False):
    name: str


class _ApiResourceList(msgspec.Struct, gc=False):
    resources: list[_ApiResource] = []


_decode_resources = msgspec.json.Decoder(_ApiResourceList).decode


class ApiClient:
    """One pool of connections to the API server. Use as an async context manager, or call `aclose`."""

    def __init__(self, credentials: Credentials, *, limit: int = 8, user_agent: str = USER_AGENT) -> None:
        self.credentials = credentials
        self._limit = limit
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    def pool(self, *, limit: int) -> ApiClient:
        """Another pool with the same credentials; the caller closes it."""
        return ApiClient(self.credentials, limit=limit, user_agent=self._user_agent)

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> bytes:
        """GET; also how a list is read, page by page. Raises: ApiError."""
        return await self.request("GET", path, params=params, timeout_s=timeout_s)

    async def post(self, path: str, body: bytes, *, timeout_s: float = REQUEST_TIMEOUT_S) -> bytes:
        """POST of a JSON body. Raises: ApiError."""
        return await self.request("POST", path, body=body, timeout_s=timeout_s)

    async def patch(
        self, path: str, body: bytes, *, content_type: str = MERGE_PATCH, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> bytes:
        """PATCH; `content_type` says which kind of patch. Raises: ApiError."""
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
        """One request and its whole answer. Raises: ApiError, with code 0 if nothing certain was heard."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        async with self._send(method, path, params, body, content_type, timeout) as response:
            try:
                return await response.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise _silence(error) from error

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        query = f"?{urlencode(params)}" if params else ""
        url = URL(f"{self.credentials.server}{path}{query}", encoded=True)
        for last in (False, True):
            headers = await self.credentials.headers()
            refused = headers.get("Authorization", "")
            if body is not None:
                headers["Content-Type"] = content_type
            response = await self._open(method, url, headers, body, timeout)
            try:
                if response.status == 401 and not last and await self.credentials.refresh(refused=refused):
                    continue  # refused before anything was done: safe to say again with new credentials
                if response.status >= 300:
                    raise await _refusal(response)
                yield response
                return
            finally:
                response.release()

    async def _open(
        self,
        method: str,
        url: URL,
        headers: dict[str, str],
        body: bytes | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        try:
            return await self._open_session().request(
                method,
                url,
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self.credentials.server_hostname,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _silence(error) from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._limit, ssl=self.credentials.ssl_context or False)
            self._session = aiohttp.ClientSession(
                connector=connector,
                trust_env=False,  # a proxy for the outside world is not the way to the API server
                read_bufsize=READ_BUFFER_BYTES,
                headers={"User-Agent": self._user_agent, "Accept": JSON},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
                skip_auto_headers=("Accept-Encoding",),  # gzip costs more than the bytes it saves
            )
        return self._session


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    body = b""
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_REFUSAL_BYTES:
                break
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass  # the status line alone says enough
    return api_error(response.status, response.headers.get("Retry-After"), body)


def _silence(error: BaseException) -> ApiError:
    return ApiError(str(error) or type(error).__name__)


async def offers(client: ApiClient, group: str, version: str, resource: str) -> bool:
    """Does the server have this resource now? Raises: ApiError, if it did not say."""
    try:
        body = await client.get(f"/apis/{group}/{version}")
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return any(found.name == resource for found in _decode_resources(body).resources)

"""kubernetes-asyncio's ApiClient with the scheduler's credentials, for plugins that prefer that API.

Lives here: loading that package, and keeping its client on the current token, certificates and proxy. Not
here: which plugin gets one (handle). Nothing of ours uses it, and a scheduler whose plugins do not request it
never loads it: its import is 1.4 s of CPU and 35 MiB, so it runs in a thread while the loop goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import cache
from typing import Any

import anyio

from gangsched.kube.access.credentials import Credentials
from gangsched.kube.access.loaders import import_client
from gangsched.kube.access.proxies import Tunnel

MAX_CONNECTIONS = 16
# How much of an answer aiohttp buffers before it stops reading; a watch's line may be as long as an object.
_READ_BYTES = 2**21
_UNAUTHORIZED = 401


async def connect(credentials: Credentials) -> Any:
    """A kubernetes_asyncio.client.ApiClient; the caller closes it."""
    package = await anyio.to_thread.run_sync(import_client)
    await credentials.headers()
    configuration = package.Configuration(host=credentials.server)

    async def renew(configuration: Any) -> None:
        await credentials.headers()
        configuration.api_key["BearerToken"] = credentials.authorization

    if credentials.authorization:
        configuration.api_key["BearerToken"] = credentials.authorization
        configuration.refresh_api_key_hook = renew
    client = package.ApiClient(configuration)
    # Its own REST client has neither our certificates nor our proxy.
    await client.rest_client.close()
    client.rest_client = _rest_type()(credentials)
    return client


def is_closed(client: Any) -> bool:
    """Whether it has been closed, as `async with` does."""
    return bool(client.rest_client.pool_manager.closed)


@cache
def _rest_type() -> Any:
    """The class, built on demand because its base class comes from the package."""
    import aiohttp

    package = import_client()

    base: Any = package.rest.RESTClientObject

    class Rest(base):  # type: ignore[misc]  # the package has no types
        """Sends over connections with the current certificates; repeats a request refused by 401 once."""

        def __init__(self, credentials: Credentials) -> None:
            # Skip super().__init__, which reads certificates from files, once.
            self._credentials = credentials
            self._busy: Counter[aiohttp.ClientSession] = Counter()
            self._closing: set[asyncio.Task[None]] = set()
            self.server_hostname = credentials.server_hostname
            self.proxy = self.proxy_headers = None
            if isinstance(credentials.network, Tunnel):
                proxy = credentials.network.proxy
                self.proxy = f"http://{proxy.host}:{proxy.port}"
                if proxy.authorization:
                    self.proxy_headers = {"Proxy-Authorization": proxy.authorization}
            self.pool_manager = self._session()
            credentials.follow(self)

        def _session(self) -> aiohttp.ClientSession:
            context = self._credentials.ssl_context
            connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=True if context is None else context)
            # Not trust_env: our credentials have read the environment, and a kubeconfig may override it.
            return aiohttp.ClientSession(connector=connector, trust_env=False, read_bufsize=_READ_BYTES)

        def certificates_changed(self) -> None:
            """Connections with old certificates end when answered; a watch has no answer, so it ends now."""
            if self.pool_manager.closed:
                return
            old, self.pool_manager = self.pool_manager, self._session()
            if not self._busy[old]:
                task = asyncio.get_running_loop().create_task(old.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

        async def request(self, method: str, url: str, *, headers: Any = None, **options: Any) -> Any:
            credentials = self._credentials
            await credentials.headers()
            version = credentials.version
            try:
                return await self._ask(method, url, headers, options)
            except package.ApiException as error:
                if error.status != _UNAUTHORIZED or not await credentials.refresh(refused=version):
                    raise
            if credentials.authorization:
                headers = {**(headers or {}), "authorization": credentials.authorization}
            return await self._ask(method, url, headers, options)

        async def _ask(self, method: str, url: str, headers: Any, options: dict[str, Any]) -> Any:
            session = self.pool_manager
            self._busy[session] += 1
            try:
                return await super().request(method, url, headers=headers, **options)
            finally:
                self._busy[session] -= 1
                if not self._busy[session]:
                    del self._busy[session]
                    if session is not self.pool_manager:
                        await session.close()

    return Rest

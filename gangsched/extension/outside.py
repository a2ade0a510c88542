"""Outside: a plugin's questions to HTTP services other than the API server: JSON in and out, bounded.

Lives here: the wire, for `Handle.ask`. Not here: when a hook runs, how many at once and for how long
(runner). A service may answer anything: at most MAX_ANSWER bytes are read, and JSON is held to the usual
depth. No redirect, no proxy, and none of the scheduler's credentials.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec

from gangsched.errors import GangschedError
from gangsched.model.text import bounded

MAX_ANSWER = 64 * 2**10
# For a hook without a deadline of its own; a hook's own deadline ends it before.
_LONGEST_S = 60.0
_MAX_CONNECTIONS = 32
_decode = bounded.decoder(object, max_bytes=MAX_ANSWER)


class ServiceError(GangschedError):
    """A service that a plugin asks could not be asked, or its answer cannot be used; the message names it."""


class Outside:
    """One plugin's connections."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, url: str, body: Any = None) -> Any:
        """POST `body`, or GET without one. Raises: ServiceError."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_LONGEST_S),
                connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS),
                trust_env=False,
                # A real one would keep whatever a service sets, and send it back each time.
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        method, data = ("GET", None) if body is None else ("POST", msgspec.json.encode(body))
        headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if data else {})
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    raise ServiceError(f"service {url} answers with code {answer.status}")
                text = await answer.content.read(MAX_ANSWER + 1)
                while len(text) <= MAX_ANSWER and (more := await answer.content.read(MAX_ANSWER + 1)):
                    text += more
        except TimeoutError:
            raise ServiceError(f"service {url} has not answered in {_LONGEST_S:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ServiceError(
                f"service {url} cannot be asked: {str(error)[:200] or type(error).__name__}"
            ) from None
        if len(text) > MAX_ANSWER:
            raise ServiceError(f"service {url} answers more than {MAX_ANSWER} bytes")
        try:
            return _decode(text)
        except (ValueError, msgspec.DecodeError) as error:
            raise ServiceError(
                f"service {url} answers with something that is not JSON: {str(error)[:200]}"
            ) from None

    async def close(self) -> None:
        """Close its connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

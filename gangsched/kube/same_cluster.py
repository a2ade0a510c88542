"""Whether the API server is still that of the same cluster: the UID of its namespace kube-system.

An address may come to lead to another cluster: a server that has lost its data, a recreated cluster, another
kubeconfig or load balancer. What is known of the first would be taken for the second's. An etcd that is
restored from a backup keeps the UID. Asking takes the right to list namespaces, which the scheduler has;
where the UID cannot be read, nothing follows. Called by gangsched.process.following, and by reflectors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import anyio
import msgspec
import structlog

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.model.text.bounded import lenient_decoder

_log = structlog.get_logger(__name__)
PATH = "/api/v1/namespaces"
QUERY = {"fieldSelector": "metadata.name=kube-system", "limit": "1"}
TIMEOUT_S = 5.0
# A watch of the first cluster's version may stay open on the second without a word.
PERIOD_S = 30.0


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Namespace(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _List(msgspec.Struct):
    items: list[_Namespace] = []


_decode = lenient_decoder(_List)


class SameCluster:
    """`replaced` is called once, when another cluster answers."""

    def __init__(self, replaced: Callable[[], None]) -> None:
        self._replaced = replaced
        self._uid = ""
        self.is_another = False

    async def check(self, client: ApiClient) -> None:
        """Asks once. Raises: ApiError, if the server cannot be reached."""
        try:
            found = _decode(await client.get(PATH, QUERY, timeout_s=TIMEOUT_S))
        except msgspec.MsgspecError:
            return
        except ApiError as error:
            if error.code:
                return
            raise
        uid = next((one.metadata.uid for one in found.items if one.metadata.name == "kube-system"), "")
        if not self._uid:
            self._uid = uid
        elif uid and uid != self._uid and not self.is_another:
            self.is_another = True
            _log.error(
                "another cluster answers where ours did, stopping: what is known here is of the first one",
                was=self._uid,
                now=uid,
            )
            self._replaced()

    async def run(self, client: ApiClient) -> None:
        """Asks now and then, until cancelled."""
        while True:
            with contextlib.suppress(ApiError):  # the watches meet the same, and report it
                await self.check(client)
            await anyio.sleep(PERIOD_S)

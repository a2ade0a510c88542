"""Putting a workload on the server and taking it away again; outside of what is measured.

Plain blocking calls around an event loop that stands still in between: while a round is measured, the
bench itself does nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.bench.rounds.workload import (
    NAMESPACE,
    PodRef,
    Shape,
    group_document,
    members,
    node_document,
    pod_document,
)
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.objects import CustomObject, ObjectMeta, Pod

GROUP_API = "scheduling.k8s.io/v1beta1"
N_CONNECTIONS = 24
GONE_S = 300.0
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GROUPS = f"/apis/{GROUP_API}/namespaces/{NAMESPACE}/podgroups"
_AT_ONCE = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
_NO_FINALIZERS = b'{"metadata":{"finalizers":null}}'

T = TypeVar("T")
R = TypeVar("R")
Advance = Callable[[], None]
"""Called once for each object made; how progress is shown."""


class Created(NamedTuple):
    """One creation request: when it was sent, when answered (monotonic), and the object's UID."""

    sent_ns: int
    answered_ns: int
    uid: str


class _Made(msgspec.Struct):
    metadata: ObjectMeta


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _PodList(msgspec.Struct):
    items: list[Pod]
    metadata: _ListMeta


class _GroupList(msgspec.Struct):
    items: list[CustomObject]


class Cluster:
    """The bench's own client; use as a context manager."""

    def __init__(self, cp: ControlPlane) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(_client(cp))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()
        self._runner.close()

    def create_nodes(self, shape: Shape, advance: Advance) -> None:
        """Creates all nodes, with their devices."""

        async def one(i: int) -> None:
            await self._post("/api/v1/nodes", node_document(i, shape.gpus))
            advance()

        self._runner.run(_each(one, range(shape.n_nodes)))

    def create_groups(
        self, prefix: str, gangs: Iterable[int], min_count: int, advance: Advance = lambda: None
    ) -> None:
        """Creates a PodGroup for each of these gangs."""

        async def one(gang: int) -> None:
            await self._post(GROUPS, group_document(prefix, gang, min_count, GROUP_API))
            advance()

        self._runner.run(_each(one, gangs))

    def create_pods(self, prefix: str, shape: Shape, scheduler_name: str, advance: Advance) -> dict[str, str]:
        """Creates all pods; returns their UIDs by name."""
        uids: dict[str, str] = {}

        async def one(ref: PodRef) -> None:
            document = pod_document(prefix, ref, scheduler_name)
            uids[document["metadata"]["name"]] = (await self._post(PODS, document)).uid
            advance()

        self._runner.run(_each(one, members(shape)))
        return uids

    def create_at_once(self, documents: Sequence[Mapping[str, Any]]) -> list[Created]:
        """Creates these pods, and sends all requests without waiting in between."""

        async def together() -> list[Created]:
            return await asyncio.gather(*(self._post(PODS, document) for document in documents))

        return self._runner.run(together())

    def pods(self) -> tuple[list[Pod], str]:
        """All pods and the resourceVersion of that list."""
        body = self._runner.run(self._client.get(PODS, timeout_s=60))
        found = msgspec.json.decode(body, type=_PodList)
        return found.items, found.metadata.resource_version

    def metrics(self) -> str:
        """The API server's own metrics."""
        return self._runner.run(self._client.get("/metrics", timeout_s=60)).decode()

    def clear(self) -> None:
        """Deletes all pods and pod groups and waits until they are gone. Raises: ApiError."""
        deadline_s = time.monotonic() + GONE_S
        while self.pods()[0]:
            self._runner.run(self._delete_pods())
            if time.monotonic() > deadline_s:
                raise ApiError(f"pods that were deleted are still there after {GONE_S:.0f} s")
        while groups := self._groups():
            self._runner.run(_each(self._delete_group, groups))
            if time.monotonic() > deadline_s:
                raise ApiError(f"pod groups that were deleted are still there after {GONE_S:.0f} s")

    async def _delete_pods(self) -> None:
        try:
            await self._client.request("DELETE", PODS, body=_AT_ONCE, timeout_s=120)
        except ApiError as error:
            if error.code not in (0, 504):  # it goes on where the server's own deadline cut it off
                raise

    def _groups(self) -> list[CustomObject]:
        body = self._runner.run(self._client.get(GROUPS, timeout_s=60))
        return msgspec.json.decode(body, type=_GroupList).items

    async def _delete_group(self, group: CustomObject) -> None:
        path = f"{GROUPS}/{group.metadata.name}"
        try:
            await self._client.delete(path, _AT_ONCE)
            # The server protects a group of live pods by a finalizer; the controller that takes it off
            # does not run here.
            await self._client.patch(path, _NO_FINALIZERS)
        except ApiError as error:
            if error.code != 404:
                raise

    async def _post(self, path: str, document: Mapping[str, Any]) -> Created:
        body = msgspec.json.encode(document)
        sent_ns = time.monotonic_ns()
        answer = await self._client.post(path, body)
        answered_ns = time.monotonic_ns()
        return Created(sent_ns, answered_ns, msgspec.json.decode(answer, type=_Made).metadata.uid)


async def _client(cp: ControlPlane) -> ApiClient:
    return ApiClient(await load_credentials(kubeconfig=str(cp.kubeconfig)))


async def _each(do: Callable[[T], Awaitable[R]], things: Iterable[T]) -> None:
    """Calls `do` for each thing, on all connections at once; the first error ends it."""
    waiting = iter(things)

    async def worker() -> None:
        for thing in waiting:
            await do(thing)

    async with asyncio.TaskGroup() as group:
        for _ in range(N_CONNECTIONS):
            group.create_task(worker())

"""Drives a Fence against the API server: one request at a time, over a connection of its own.

Lives here: requests, their deadlines, the Lease object as JSON. Not here: what an answer means
(kube.election.fence), who leads (kube.election.lease), bumps (kube.effects.bumps). Called by
kube.effects.dispatcher with effects to be fenced, and by kube.take_over when this process begins to lead.

The object is a Lease of its own beside the leader's. It is written by compare-and-swap like that one, in the
same namespace and under the same permission. Its list changes with each batch of gangs, without interfering
with renewals. Its holder is the fence's owner, its transitions are the epoch, and the list is in an
annotation. It is never renewed: its times mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import anyio
import msgspec
import structlog

from gangsched.config import LeaderElectionSettings
from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.election.fence import Fence, Fenced, FenceRecord, FenceState, Step
from gangsched.kube.election.fence_list import Line, list_text, read_list
from gangsched.kube.election.steps import Create, Get
from gangsched.kube.evidence import Target, is_gone
from gangsched.kube.reach import is_logged
from gangsched.kube.transport.backoff import Backoff

_log = structlog.get_logger(__name__)

LIST_KEY = "gangsched.io/binds-on-the-way"
# An unanswered write blocks every gang, so it is read back soon; a read is safe at any time.
TIMEOUT_S = 5.0
# How often a list that is full, or long enough, is checked again.
STEP_S = 0.02
# How long a clean stop waits for the last, shorter list. Without it the successor only has more to bump.
CLOSE_S = 2.0


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    name: str
    resource_version: str
    annotations: dict[str, str] | None = None


class _Lease(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode_any = msgspec.json.Decoder(dict[str, Any]).decode


def fence_name(settings: LeaderElectionSettings) -> str:
    """The object's name: derived from the leader's lease."""
    return f"{settings.resource_name}-fence"


class FenceKeeper:
    """Drives the fence's one object, and holds the effects that wait for it."""

    def __init__(
        self,
        client: ApiClient,
        settings: LeaderElectionSettings,
        *,
        identity: str,
        rng: Random,
        is_on_its_way: Callable[[str], bool],
        deposed: Callable[[str], None],
        line: Line = tuple,
    ) -> None:
        """`identity`: unique to this process. `deposed` gets the reason why nothing more may be sent."""
        self.fence = Fence(identity, is_on_its_way=is_on_its_way, line=line)
        self._client = client.another()
        self._name = fence_name(settings)
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{settings.resource_namespace}/leases"
        self._target = Target(
            "leases", "Lease", self._name, settings.resource_namespace, "coordination.k8s.io"
        )
        self._lease: dict[str, Any] = {}
        self._backoff = Backoff(rng, first_s=0.05, max_s=2.0)
        self._deposed = deposed
        self._has_begun = False
        self._wake = anyio.Event()
        self._taken = anyio.Event()
        self._closed = anyio.Event()
        self._logged = ""

    def submit(self, effect: Fenced) -> None:
        """Queue an effect; it is released once it is listed. Never blocks."""
        self.fence.submit(effect)
        self._wake.set()

    def expect(self) -> bool:
        """List the first queued pods if the fence is idle and does not list them yet.

        Returns whether the request will leave, in the loop's next round.
        """
        is_asked = self._has_begun and self.fence.expect()
        if is_asked:
            self._wake.set()
        return is_asked

    async def take(self) -> None:
        """Begins a new epoch; returns when it is ours. `run` must be running."""
        self._has_begun = True
        self._wake.set()
        await self._taken.wait()

    def bumped(self) -> None:
        """Allow binds to be listed: the inherited pods are bumped."""
        self.fence.bumped()
        self._wake.set()

    async def close(self) -> None:
        """Write the list once more, without settled binds, so that a successor bumps only the rest.

        Nothing more is released. Returns when that is done, or has taken too long. `run` must be running.
        """
        self.fence.close()
        with anyio.move_on_after(CLOSE_S):
            while self._is_owned and not self.fence.is_short:
                self._closed = anyio.Event()
                self._wake.set()
                await self._closed.wait()

    async def run(
        self,
        release: Callable[[Sequence[Fenced]], None],
        *,
        has_enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run until cancelled or deposed.

        `release` gets the effects that are listed and may be sent. `has_enough`: whether effects released
        earlier will outlast a write, so that the next batch may go on gathering.
        """
        fence = self.fence
        async with self._client:
            while fence.state is not FenceState.DEPOSED:
                released = fence.take_released()
                if released:
                    release(released)
                gathers = self._gathers(has_enough)
                step = fence.next() if self._has_begun and not gathers else None
                if step is None:
                    self._wake = anyio.Event()
                    with anyio.move_on_after(STEP_S if fence.n_waiting and self._is_owned else None):
                        await self._wake.wait()
                    continue
                await self._ask(step)
                self._closed.set()
                if fence.state is not FenceState.UNTAKEN:
                    self._taken.set()
        self._deposed("another process has taken over the fence, or it was deleted")

    def _gathers(self, has_enough: Callable[[], bool]) -> bool:
        """Whether the waiting effects should go on gathering."""
        fence = self.fence
        is_due = fence.is_writing or fence.is_short_ahead
        return self._is_owned and not is_due and has_enough()

    @property
    def _is_owned(self) -> bool:
        return self.fence.state is FenceState.OWNED

    async def _ask(self, step: Step) -> None:
        """One request; its answer goes to the fence."""
        fence = self.fence
        try:
            # Covers the whole call: renewing credentials has its own, longer patience.
            with anyio.fail_after(TIMEOUT_S):
                body = await self._send(step)
            self._lease = _decode_any(body)
            lease = msgspec.convert(self._lease, _Lease)
            if lease.metadata.name != self._name:
                raise ApiError(f"the answer is about {lease.metadata.name!r}, not about {self._name!r}")
            if not isinstance(step, Get) and _record(lease) != step.record:
                raise ApiError(f"the answer does not have what was written to {self._name!r}")
        except (ApiError, TimeoutError, msgspec.MsgspecError, RecursionError) as error:
            if isinstance(step, Get) and isinstance(error, ApiError) and is_gone(error, self._target):
                fence.absent()
                return
            fence.unanswered()
            await self._complain(step, error)
            return
        if isinstance(step, Get):
            fence.found(_record(lease), lease.metadata.resource_version)
        else:  # a successful read proves nothing about writes that are refused again and again
            self._backoff.reset()
            self._logged = ""
            fence.written(lease.metadata.resource_version)

    async def _send(self, step: Step) -> bytes:
        path = f"{self._collection}/{self._name}"
        if isinstance(step, Get):
            return await self._client.get(path, timeout_s=TIMEOUT_S)
        if isinstance(step, Create):
            body = _document({"metadata": {"name": self._name}}, step.record)
            return await self._client.post(self._collection, body, timeout_s=TIMEOUT_S)
        # Keep fields that other clients have set on the object.
        metadata = {**self._lease.get("metadata", {}), "resourceVersion": step.version}
        body = _document({**self._lease, "metadata": metadata}, step.record)
        return await self._client.put(path, body, timeout_s=TIMEOUT_S)

    async def _complain(self, step: Step, error: Exception) -> None:
        code = error.code if isinstance(error, ApiError) else 0
        if code == 0:
            self._client.close()  # the connection may be as dead as it looks
        if code == 409:
            return  # concurrent write: read who owns it
        text = str(error) or "no answer in time"
        if text != self._logged and not is_logged(error):
            self._logged = text
            _log.warning("the fence cannot be read or written", asked=type(step).__name__.lower(), err=text)
        await anyio.sleep(self._backoff.next_s(error.retry_after_s if isinstance(error, ApiError) else None))


def _record(lease: _Lease) -> FenceRecord:
    text = (lease.metadata.annotations or {}).get(LIST_KEY, "{}")
    return FenceRecord(lease.spec.lease_transitions or 0, lease.spec.holder_identity or "", read_list(text))


def _document(lease: dict[str, Any], record: FenceRecord) -> bytes:
    metadata = dict(lease["metadata"])
    # managedFields may be left out of an update: the server keeps its own.
    metadata.pop("managedFields", None)
    if record.listed is not None:
        text = list_text(record.listed.values())
        metadata["annotations"] = {**(metadata.get("annotations") or {}), LIST_KEY: text}
    spec = {
        **(lease.get("spec") or {}),
        "holderIdentity": record.holder,
        "leaseTransitions": record.epoch,
    }
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return msgspec.json.encode({**lease, **kind, "metadata": metadata, "spec": spec})

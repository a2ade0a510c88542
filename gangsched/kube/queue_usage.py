"""QueueUsage: keeps the queues' recent usage in an annotation of a Lease, from one process to the next.

A Lease needs no right beyond one more name in leader election's role; its renewTime is when it was written.
Lives here: the requests, and checks of an answer. Not here: when requests are made (gangsched.queue_memory),
using the answer (core.cache.queue_book).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec

from gangsched.config import LeaderElectionSettings
from gangsched.config.queues import MAX_QUEUES
from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.evidence import Target, is_gone
from gangsched.model import bounded

KEY = "gangsched.io/queue-usage"
# A thousand queues with long names need half of this.
_MAX_BYTES = 128 * 1024
_MAX_DEPTH = 2
TIMEOUT_S = 5.0


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    """at_s: Unix time; decayed: queue -> share of the cluster, 0 to 1."""

    at_s: float
    decayed: dict[str, float]


_decode = bounded.decoder(_Kept, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH)
_decode_any = bounded.lenient_decoder(dict[str, Any])


class QueueUsage:
    """The Lease `<name of the lease>-queues`, beside that of leader election."""

    def __init__(self, client: ApiClient, settings: LeaderElectionSettings) -> None:
        self._client = client
        self._name = f"{settings.resource_name}-queues"
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{settings.resource_namespace}/leases"
        self._target = Target(
            "leases", "Lease", self._name, settings.resource_namespace, "coordination.k8s.io"
        )

    async def read(self) -> tuple[dict[str, float], float] | None:
        """Reads (each queue's usage, its age in seconds); None: nothing is stored.

        Raises: ApiError; ValueError, if the stored value is implausible.
        """
        lease = await self._lease()
        kept = None if lease is None else (lease["metadata"].get("annotations") or {}).get(KEY)
        return None if kept is None else believed(kept, time.time())

    async def write(self, decayed: Mapping[str, float]) -> None:
        """Raises: ApiError."""
        lease = await self._lease()
        now = datetime.now(UTC)
        kept = _Kept(round(now.timestamp(), 1), {name: round(part, 6) for name, part in decayed.items()})
        metadata = {"name": self._name, **(lease or {}).get("metadata", {})}
        annotations = {**(metadata.get("annotations") or {}), KEY: msgspec.json.encode(kept).decode()}
        document = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            **(lease or {}),
            "metadata": {**metadata, "annotations": annotations},
            "spec": {"renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
        }
        body = msgspec.json.encode(document)
        with anyio.move_on_after(TIMEOUT_S):
            if lease is None:
                await self._client.post(self._collection, body, timeout_s=TIMEOUT_S)
            else:
                await self._client.put(f"{self._collection}/{self._name}", body, timeout_s=TIMEOUT_S)
            return
        raise ApiError(f"no answer within {TIMEOUT_S:g} s")

    async def _lease(self) -> dict[str, Any] | None:
        """Read the Lease; None: it does not exist. Raises: ApiError."""
        with anyio.move_on_after(TIMEOUT_S):
            try:
                path = f"{self._collection}/{self._name}"
                lease = _decode_any(await self._client.get(path, timeout_s=TIMEOUT_S))
                metadata = lease.get("metadata")
                if not isinstance(metadata, dict) or metadata.get("name") != self._name:
                    raise ApiError(f"the answer is not about {self._name!r}")
                if not isinstance(metadata.get("annotations"), dict | None):
                    raise ApiError("the answer's annotations are no object")
            except msgspec.MsgspecError as error:
                raise ApiError(f"the answer cannot be read: {error}") from None
            except ApiError as error:
                if is_gone(error, self._target):
                    return None
                raise
            return lease
        raise ApiError(f"no answer within {TIMEOUT_S:g} s")


def believed(text: object, now_s: float) -> tuple[dict[str, float], float]:
    """Parses the stored value as (usage by queue, age in seconds). `now_s`: Unix time.

    Checks everything: anybody with the right to write the Lease may have written it. Raises: ValueError.
    """
    if not isinstance(text, str):
        raise ValueError("it is not text")
    try:
        kept = _decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if len(kept.decayed) > MAX_QUEUES + 1:
        raise ValueError(f"it has {len(kept.decayed)} queues, at most {MAX_QUEUES + 1}")
    for name, part in kept.decayed.items():
        if not 0.0 <= part <= 1.0:
            raise ValueError(f"queue {name[:80]!r} has {part:g} of the cluster, not 0 to 1")
    if not 0.0 <= kept.at_s < 1e11:
        raise ValueError(f"{kept.at_s:g} is not a time")
    return kept.decayed, max(0.0, now_s - kept.at_s)

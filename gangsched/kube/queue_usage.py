"""QueueUsage: keeps the queues' recent usage in an annotation of a Lease, from one process to the next.

Lives here: what is stored, and checks of what is read. Not here: the requests (kube.election.lease_object),
when they are made (gangsched.process.queue_memory), using the answer (core.cache.queues.book).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from gangsched.config import LeaderElectionSettings
from gangsched.config.queues import MAX_QUEUES
from gangsched.kube.client import ApiClient
from gangsched.kube.election.lease_object import LeaseObject
from gangsched.model.text import bounded

KEY = "gangsched.io/queue-usage"
# A thousand queues with long names need half of this.
_MAX_BYTES = 128 * 1024
_MAX_DEPTH = 2


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    """at_s: Unix time; decayed: queue -> share of the cluster, 0 to 1."""

    at_s: float
    decayed: dict[str, float]


_decode = bounded.decoder(_Kept, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH)


class QueueUsage:
    """The Lease `<name of the lease>-queues`, beside that of leader election."""

    def __init__(self, client: ApiClient, settings: LeaderElectionSettings) -> None:
        self._lease = LeaseObject(client, settings.resource_namespace, f"{settings.resource_name}-queues")

    async def read(self) -> tuple[dict[str, float], float] | None:
        """Reads (each queue's usage, its age in seconds); None: nothing is stored.

        Raises: ApiError; ValueError, if the stored value is implausible.
        """
        lease = await self._lease.read()
        kept = None if lease is None else (lease["metadata"].get("annotations") or {}).get(KEY)
        return None if kept is None else believed(kept, time.time())

    async def write(self, decayed: Mapping[str, float]) -> None:
        """Raises: ApiError."""
        known, now = await self._lease.read(), datetime.fromtimestamp(time.time(), UTC)
        kept = _Kept(round(now.timestamp(), 1), {name: round(part, 6) for name, part in decayed.items()})
        await self._lease.write(known, now, annotations={KEY: msgspec.json.encode(kept).decode()})


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

"""LeaseObject: reads and writes one Lease as a whole, for what needs no election.

Beside leader election's Lease a fact needs no right beyond one more name in its role, and a Lease's renewTime
says when it was written. Not here: what is kept in it (kube.queue_usage, kube.election.other_scheduler), and
elections, which need deadlines and proofs (kube.election.elector).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.evidence import Target, is_gone
from gangsched.model.text import bounded

TIMEOUT_S = 5.0
_GROUP = "coordination.k8s.io"
_decode_any = bounded.lenient_decoder(dict[str, Any])


class LeaseObject:
    """The Lease of this name; raises ApiError, also where there is no answer in time."""

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._client = client
        self._name = name
        self._collection = f"/apis/{_GROUP}/v1/namespaces/{namespace}/leases"
        self._target = Target("leases", "Lease", name, namespace, _GROUP)

    async def read(self) -> dict[str, Any] | None:
        """Reads the Lease; None: it does not exist. Its metadata, spec and annotations are objects."""
        with anyio.move_on_after(TIMEOUT_S):
            try:
                path = f"{self._collection}/{self._name}"
                lease = _decode_any(await self._client.get(path, timeout_s=TIMEOUT_S))
            except msgspec.MsgspecError as error:
                raise ApiError(f"the answer cannot be read: {error}") from None
            except ApiError as error:
                if is_gone(error, self._target):
                    return None
                raise
            metadata = lease.get("metadata")
            if not isinstance(metadata, dict) or metadata.get("name") != self._name:
                raise ApiError(f"the answer is not about {self._name!r}")
            if not isinstance(metadata.get("annotations"), dict | None):
                raise ApiError("the answer's annotations are no object")
            if not isinstance(lease.get("spec"), dict | None):
                raise ApiError("the answer's spec is no object")
            return lease
        raise ApiError(f"no answer within {TIMEOUT_S:g} s")

    async def write(
        self,
        known: Mapping[str, Any] | None,
        at: datetime,
        *,
        holder: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Writes over exactly the version `known`, as read; None: creates it. Keeps other writers' metadata.

        at: the time that it states; holder: "" states none.
        """
        metadata = {"name": self._name, **(known or {}).get("metadata", {})}
        if annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        spec = {"renewTime": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        document = {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "Lease",
            **(known or {}),
            "metadata": metadata,
            "spec": {**spec, "holderIdentity": holder} if holder else spec,
        }
        body = msgspec.json.encode(document)
        with anyio.move_on_after(TIMEOUT_S):
            if known is None:
                await self._client.post(self._collection, body, timeout_s=TIMEOUT_S)
            else:
                await self._client.put(f"{self._collection}/{self._name}", body, timeout_s=TIMEOUT_S)
            return
        raise ApiError(f"no answer within {TIMEOUT_S:g} s")

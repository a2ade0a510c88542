"""What queues have held lately, from one process to the next: what is written is read, nonsense is not."""

from __future__ import annotations

from typing import Any, cast

import anyio
import msgspec
import pytest

from gangsched.config import LeaderElectionSettings
from gangsched.errors import ApiError, Subject
from gangsched.kube.client import ApiClient
from gangsched.kube.queue_usage import KEY, QueueUsage, believed


class OneObject:
    """An API server that keeps one Lease, as the fence's tests have it; none at first."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        if self.lease is None:
            subject = Subject("leases", "gangsched-queues", "coordination.k8s.io")
            raise ApiError("not found", code=404, reason="NotFound", subject=subject)
        return msgspec.json.encode(self.lease)

    async def post(self, path: str, body: bytes, *, timeout_s: float) -> bytes:
        assert self.lease is None
        self.lease = msgspec.json.decode(body)
        assert self.lease is not None
        self.lease["metadata"]["resourceVersion"] = "1"
        return body

    async def put(self, path: str, body: bytes, *, timeout_s: float) -> bytes:
        sent = msgspec.json.decode(body)
        assert self.lease is not None
        assert sent["metadata"]["resourceVersion"] == self.lease["metadata"]["resourceVersion"]
        self.lease = sent
        return body


def test_what_is_written_is_read_by_the_next() -> None:
    server = OneObject()
    usage = QueueUsage(cast(ApiClient, server), LeaderElectionSettings())

    async def run() -> None:
        assert await usage.read() is None
        await usage.write({"a": 0.25, "/other": 0.0})
        assert server.lease is not None
        server.lease["metadata"]["labels"] = {"own": "kept"}
        await usage.write({"a": 0.5, "/other": 0.0})
        assert server.lease["metadata"]["labels"] == {"own": "kept"}
        found = await usage.read()
        assert found is not None
        decayed, age_s = found
        assert decayed == {"a": 0.5, "/other": 0.0}
        assert 0.0 <= age_s < 60.0

    anyio.run(run)


def test_a_lease_without_annotations_keeps_nothing() -> None:
    server = OneObject()
    server.lease = {"metadata": {"name": "gangsched-queues", "resourceVersion": "1", "annotations": None}}
    usage = QueueUsage(cast(ApiClient, server), LeaderElectionSettings())

    async def run() -> None:
        assert await usage.read() is None
        await usage.write({"a": 0.25})
        assert await usage.read() is not None

    anyio.run(run)


def test_a_lease_whose_annotations_are_no_object_is_an_answer_that_cannot_be_read() -> None:
    server = OneObject()
    server.lease = {"metadata": {"name": "gangsched-queues", "annotations": ["own"]}}
    usage = QueueUsage(cast(ApiClient, server), LeaderElectionSettings())

    async def run() -> None:
        with pytest.raises(ApiError, match="annotations are no object"):
            await usage.read()
        with pytest.raises(ApiError, match="annotations are no object"):
            await usage.write({"a": 0.25})

    anyio.run(run)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (7, "it is not text"),
        ("{", "truncated"),
        ('{"at_s": 1, "decayed": {"a": 1.5}}', "queue 'a' has 1.5 of the cluster, not 0 to 1"),
        ('{"at_s": 1, "decayed": {"a": -0.1}}', "not 0 to 1"),
        ('{"at_s": 1e300, "decayed": {}}', "not a time"),
        ('{"at_s": 1, "decayed": {"a": "x"}}', "Expected `float`"),
        ('{"at_s": 1, "decayed": {}, "more": 1}', "more"),
        ('{"at_s": 1, "decayed": {"a": ' + "[" * 999 + "]" * 999 + "}}", "deep"),
        ('{"at_s": 1, "decayed": {"' + "a" * 200_000 + '": 1}}', "at most"),
        (
            msgspec.json.encode({"at_s": 1, "decayed": {f"q{k}": 0 for k in range(2000)}}).decode(),
            "2000 queues",
        ),
    ],
)
def test_what_cannot_be_believed_is_not(text: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        believed(text, 1000.0)


def test_a_clock_that_is_behind_makes_it_no_younger_than_now() -> None:
    assert believed('{"at_s": 2000, "decayed": {"a": 1}}', 1000.0) == ({"a": 1.0}, 0.0)
    assert KEY.startswith("gangsched.io/")

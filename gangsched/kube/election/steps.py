"""The next request of a state machine in this room: read its one object, or write a record into it.

Returned by kube.election.lease (records of who leads) and kube.election.fence (records of binds that may be
in flight); sent by their drivers, kube.election.elector and kube.election.fence_keeper.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

RecordT = TypeVar("RecordT")


class Get(NamedTuple):
    """Read it, consistently."""


class Create(NamedTuple, Generic[RecordT]):
    """POST this."""

    record: RecordT


class Update(NamedTuple, Generic[RecordT]):
    """PUT this over exactly this version."""

    record: RecordT
    version: str

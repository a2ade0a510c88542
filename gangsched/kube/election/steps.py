"""The next request of a state machine in this room: read its object, or write a record into it.

Returned by kube.election.lease (records of who leads) and kube.election.fence (records of binds that may be
in flight); sent by their drivers, kube.election.elector and kube.election.fence_keeper.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

RecordT = TypeVar("RecordT")
# A Lease counts its transitions in 31 bits; the API server refuses more.
_MOST_TRANSITIONS = 2**31 - 1


class Get(NamedTuple):
    """Read it, consistently."""


class Create(NamedTuple, Generic[RecordT]):
    """POST this."""

    record: RecordT


class Update(NamedTuple, Generic[RecordT]):
    """PUT this over exactly this version."""

    record: RecordT
    version: str


def one_more(transitions: int) -> int:
    """Returns the next number of transitions: 1 after the largest, so that nobody can lock out all leaders.

    It only has to differ: each write replaces one version, and its holder is one process.
    """
    return transitions + 1 if 0 <= transitions < _MOST_TRANSITIONS else 1

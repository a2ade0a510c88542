"""One connection of a lane and the calls on it: matches answers to calls.

Lives here: assigning answers, however they are cut and joined, to calls in the order of sending. Not here:
sending, and the outcome of a call (kube.transport.lane), bytes of HTTP (kube.transport.http1). Called by
kube.transport.lane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from gangsched.kube.transport.answered import AnsweredConnection
from gangsched.kube.transport.http1 import Answer, Frame, ProtocolError, whole_success
from gangsched.kube.transport.readers import Readers


class Item(Protocol):
    """An effect: about one object."""

    @property
    def uid(self) -> str:
        """The object's UID."""
        ...


ItemT = TypeVar("ItemT", bound=Item)


class Call(Generic[ItemT]):
    """An item on its way through a lane."""

    __slots__ = (
        *("deadline_s", "frame", "is_behind", "is_cancelled", "is_renewed"),
        *("item", "key", "n_done", "n_tries", "version"),
    )

    def __init__(self, item: ItemT, key: Hashable = None) -> None:
        self.item = item
        self.key = key
        self.is_behind = False  # sent while another call on its connection was unanswered
        self.is_cancelled = False
        self.is_renewed = False
        self.n_tries = 0
        self.n_done = 0  # requests done, for an item that takes several
        self.deadline_s = 0.0
        self.frame: Frame
        self.version: int  # version of the credentials that it was sent with


class LaneOf(Protocol[ItemT]):
    """The lane that a connection belongs to."""

    def answered(
        self,
        connection: LaneConnection[ItemT],
        call: Call[ItemT],
        status: int,
        body: bytes,
        retry_after: str | None = None,
    ) -> None:
        """One call of the connection was answered and taken off it."""

    def lost(self, connection: LaneConnection[ItemT], why: str) -> None:
        """The connection is closed, with or without calls on it."""


class LaneConnection(AnsweredConnection, Generic[ItemT]):
    """One connection of a lane; `calls` are in flight, in the order of their answers."""

    __slots__ = ("_lane", "calls", "is_leaving")

    def __init__(self, lane: LaneOf[ItemT], readers: Readers) -> None:
        super().__init__(readers=readers)
        self._lane = lane
        self.calls: deque[Call[ItemT]] = deque()
        self.is_leaving = False
        """Nothing more is sent on it; it is closed when the last of its calls is answered."""

    def received(self, data: bytes) -> None:
        """As for any connection, with a shortcut for a plain success that came in one piece."""
        lane, calls = self._lane, self.calls
        try:
            while data and self.is_open:
                if self._answer is None and calls and (found := whole_success(data)) is not None:
                    status, body, data = found
                    if data:
                        self._check(data)
                    lane.answered(self, calls.popleft(), status, body)
                else:
                    data = self._piece(data)
        except ProtocolError as error:
            self._makes_no_sense(error)

    def _new_answer(self) -> Answer:
        return Answer() if self.calls else super()._new_answer()

    def _may_follow(self) -> bool:
        return len(self.calls) > 1

    def answered(self, answer: Answer) -> None:
        self._lane.answered(self, self.calls.popleft(), answer.status, answer.body, answer.retry_after)

    def failed(self, why: str, *, is_cut: bool) -> None:
        self._lane.lost(self, why)

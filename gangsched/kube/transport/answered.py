"""A connection on which answers are read: where each ends, and what becomes of the connection.

The state of one exchange, for lanes, pools and streams alike: the part of the answer that has arrived,
whether it is complete, whether the connection is kept after it, or how it failed. Not here: deadlines, which
each sender implements in its cheapest way; the requests (the subclasses in kube.transport.lane_connection,
kube.transport.pool and kube.transport.stream); bytes of HTTP (kube.transport.http1).
"""

from __future__ import annotations

from gangsched.kube.transport.connection import Connection
from gangsched.kube.transport.http1 import Answer, ProtocolError
from gangsched.kube.transport.readers import Readers


class AnsweredConnection(Connection):
    """Subclasses override `answered` and `failed`, one of which follows each request.

    Before `failed` the connection is closed; what was sent on it may have arrived.
    """

    __slots__ = ("_answer",)

    def __init__(self, *, readers: Readers | None = None) -> None:
        super().__init__(readers=readers)
        self._answer: Answer | None = None
        """The answer that is being read."""

    def answered(self, answer: Answer) -> None:
        """The answer is complete; the connection is closed if the server does not keep it."""
        raise NotImplementedError

    def failed(self, why: str, *, is_cut: bool) -> None:
        """The answer makes no sense, or, with `is_cut`, the connection was lost before its end."""
        raise NotImplementedError

    def _new_answer(self) -> Answer:
        """Starts the next answer, when bytes arrive after one. Raises: ProtocolError, if none is due."""
        # For example Go's 408 on an idle connection: the server is closing it.
        raise ProtocolError("an answer to nothing")

    def _may_follow(self) -> bool:
        """Whether bytes after this answer may be the next one's."""
        return False

    def received(self, data: bytes) -> None:
        try:
            while data and self.is_open:
                data = self._piece(data)
        except ProtocolError as error:
            self._makes_no_sense(error)

    def lost(self, why: str) -> None:
        answer = self._answer
        try:
            is_whole = answer is not None and self.is_at_end and answer.end()
        except ProtocolError as error:
            self._makes_no_sense(error)
            return
        if answer is not None and is_whole:
            self._tell(answer)
        else:
            self.failed(f"connection lost: {why}", is_cut=True)

    def _piece(self, data: bytes) -> bytes:
        """Takes bytes in; returns those after the answer."""
        answer = self._answer
        if answer is None:
            answer = self._answer = self._new_answer()
        answer.feed(data)
        rest = answer.rest
        if rest:
            self._check(rest)
        if answer.whole:
            self._tell(answer)
        return rest

    def _check(self, rest: bytes) -> None:
        """Raises: ProtocolError, if `rest` belongs to no answer."""
        if not self._may_follow():
            raise ProtocolError("more bytes than one answer has")

    def _tell(self, answer: Answer) -> None:
        self._answer = None
        if not answer.keep_alive:
            self.close()
        self.answered(answer)

    def _makes_no_sense(self, error: ProtocolError) -> None:
        self.close()
        self.failed(f"the answer makes no sense: {error}", is_cut=False)

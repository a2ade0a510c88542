"""Clock: the time of the present turn, as data that the rooms share."""

from __future__ import annotations


class Clock:
    """now_s: a monotonic clock's seconds, as told to Scheduler.handle, advance and schedule."""

    __slots__ = ("now_s",)

    def __init__(self) -> None:
        self.now_s = 0.0

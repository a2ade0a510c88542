"""An asyncio loop in virtual time, which moves on when nothing is left to do.

Lives here: the loop, its selector, the clocks of the process while it runs. Not here: sockets
(lab.sim.wire.network). anyio and asyncio run on it unchanged: the loop is asyncio's own except for its
selector, which never waits.

Possible differences between runs are fixed: sockets are checked in the order of their registration, tasks
hash by their number (anyio keeps them in sets), and reading the clock takes a small constant time, as work
does; otherwise a turn of the scheduler that ends by the clock would never end.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any

START_S = 1000.0
_EPOCH_S = 1_767_225_600.0  # 2026-01-01
_LOOK_S = 5e-5


class Stuck(Exception):
    """Nothing is left to do, now or later, but a task still waits."""


class News:
    """Whether anything that a selector looks at may have become ready; asking all of them costs the most."""

    def __init__(self) -> None:
        self.has_come = True


def _number_of(file: Any) -> int:
    number: int = file if isinstance(file, int) else file.fileno()
    return number


class _Keys(dict[int, selectors.SelectorKey]):
    """Keys by number; `get` takes files too, which asyncio passes from Python 3.13 on."""

    def get(self, file: Any, default: Any = None) -> Any:
        return super().get(_number_of(file), default)


class MemorySelector(selectors.BaseSelector):
    """Polls its sockets; is itself ready when one of them is."""

    def __init__(self, number: int, news: News) -> None:
        self._number = number
        self._news = news
        self._keys = _Keys()

    def fileno(self) -> int:
        return self._number

    def readiness(self) -> int:
        return selectors.EVENT_READ if self.select() else 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = _number_of(fileobj)
        if number in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        key = self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        self._news.has_come = True
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(_number_of(fileobj))

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = _number_of(fileobj)
        key = self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        self._news.has_come = True
        return key

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[_number_of(fileobj)]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = []
        for key in self._keys.values():
            # The loop's own wake-up socket is registered by number; no thread ever uses it here.
            waitable: Any = key.fileobj
            if not isinstance(waitable, int) and (ready := waitable.readiness() & key.events):
                found.append((key, ready))
        return found

    def close(self) -> None:
        self._keys.clear()


class _LoopSelector(MemorySelector):
    """The loop's selector: instead of sleeping it moves time on."""

    def __init__(self) -> None:
        self.news = News()
        super().__init__(0, self.news)
        self.now_s = START_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select() if self._news.has_come else []
        self._news.has_come = bool(found)
        if not found and timeout != 0:
            if timeout is None:
                raise Stuck("nothing will ever happen again")
            self.now_s += timeout
        return found


class _Task(asyncio.Task[Any]):
    """A task with a hash that does not depend on its memory address."""

    n_made = 0

    def __init__(self, coro: Any, **rest: Any) -> None:
        _Task.n_made += 1
        self._number = _Task.n_made
        super().__init__(coro, **rest)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.SelectorEventLoop):
    """`wall_offset_s`: the error of the wall clock."""

    def __init__(self) -> None:
        self._clock = _LoopSelector()
        self.news = self._clock.news
        self._n_numbers = 1_000
        self._thread = get_ident()
        self.wall_offset_s = 0.0
        self.failures: list[str] = []
        super().__init__(self._clock)
        _Task.n_made = 0
        self.set_task_factory(_make_task)
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        return self._clock.now_s

    def look(self) -> float:
        """The clock for programs. Each reading takes a little time; readings by other threads of the process
        take none, as no history may depend on them."""
        if get_ident() == self._thread:
            self._clock.now_s += _LOOK_S
        return self._clock.now_s

    def wall(self) -> float:
        """Seconds since the epoch on this machine's clock."""
        return _EPOCH_S + self._clock.now_s + self.wall_offset_s

    def number(self) -> int:
        """Returns the number of the next socket."""
        self._n_numbers += 1
        return self._n_numbers

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {type(error).__name__}: {error}")


def _make_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **rest: Any
) -> asyncio.Task[Any]:
    return _Task(coro, loop=loop, **rest)


@contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """Yields a loop of its own, whose time the whole process uses until the end of the block.

    The clocks of the module `time` are replaced meanwhile, so that all code, also code written later, is in
    virtual time.
    """
    loop = VirtualLoop()
    replaced = {
        "monotonic": loop.look,
        "monotonic_ns": lambda: int(loop.look() * 1e9),
        "time": loop.wall,
        "time_ns": lambda: int(loop.wall() * 1e9),
        "clock_gettime": lambda _: loop.look(),
    }
    before = {name: getattr(time, name) for name in replaced}
    try:
        for name, clock in replaced.items():
            setattr(time, name, clock)
        yield loop
    finally:
        for name, clock in before.items():
            setattr(time, name, clock)
        loop.close()

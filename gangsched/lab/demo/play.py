"""Play: runs the story on a stage, and lets a show present it.

A step is over when its expectation has been seen; its deadline is in wall time, the pauses in between are for
people. It does not depend on the stage: tests play on a rehearsal without server or waiting. Called by
gangsched.lab.demo.command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio

from gangsched.core.explaining.reports import GroupView, NodeView
from gangsched.errors import GangschedError
from gangsched.lab.demo.scene import Change, Chronicle, Scene
from gangsched.lab.demo.story import Action, Step

# Twenty looks a second: people do not see anything shorter either.
TICK_S = 0.05
# How long the title stands before its action.
READ_S = 0.7


class StoryFailed(GangschedError):
    """A step's expectation was not seen in time, or an invariant was violated."""


class Stage(Protocol):
    """Where the story happens."""

    async def act(self, action: Action) -> str:
        """Does one thing as a user, or a node's agent, would; returns the answer to a question, else "".

        Raises: ApiError, ConfigError.
        """
        ...

    def look(self) -> tuple[Sequence[GroupView], Sequence[NodeView], float]:
        """Returns groups, nodes, and the scheduler's clock."""
        ...


class Show(Protocol):
    """Presents the story."""

    def begin(self, number: int, of: int, step: Step) -> None: ...

    def see(self, scene: Scene, news: Sequence[Change]) -> None:
        """Called at every look; `news` is mostly empty."""
        ...

    def happened(self, words: str) -> None:
        """Called when the step has happened."""
        ...


class Play:
    """One performance. `clock`: seconds; `sleep` passes time, and both may be virtual."""

    def __init__(
        self,
        stage: Stage,
        show: Show,
        *,
        speed: float = 1.0,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.chronicle = Chronicle()
        self._stage = stage
        self._show = show
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._began_s = clock()

    async def perform(self, story: Sequence[Step]) -> None:
        """Plays the story. Raises: StoryFailed, ApiError, ConfigError."""
        self.look()
        for number, step in enumerate(story, 1):
            self._show.begin(number, len(story), step)
            await self.pause(READ_S)
            for action in step.does:
                self.chronicle.answer = await self._stage.act(action)
            await self._until(number, step)
            self._show.happened(step.shows(self.chronicle))
            await self.pause(step.linger_s)
        if self.chronicle.broken:
            raise StoryFailed("a promise was seen broken: " + "; ".join(self.chronicle.broken))

    async def watch(self) -> None:
        """Goes on looking and showing until it is cancelled."""
        while True:
            await self._tick()

    async def pause(self, seconds: float) -> None:
        """Lets people look; the cluster goes on meanwhile."""
        end_s = self._clock() + seconds / self._speed
        while self._clock() < end_s:
            await self._tick()

    def look(self) -> None:
        """Takes in what is there now."""
        groups, nodes, now_s = self._stage.look()
        at_s = self._clock() - self._began_s
        news = self.chronicle.see(groups, nodes, at_s=at_s, now_s=now_s)
        self._show.see(self.chronicle.scene, news)

    async def _until(self, number: int, step: Step) -> None:
        deadline_s = self._clock() + step.within_s
        while missing := step.wants(self.chronicle):
            if self._clock() >= deadline_s:
                title = step.title.rstrip(".")
                raise StoryFailed(f"step {number}, “{title}”: not within {step.within_s:.0f} s: {missing}")
            await self._tick()

    async def _tick(self) -> None:
        await self._sleep(TICK_S)
        self.look()

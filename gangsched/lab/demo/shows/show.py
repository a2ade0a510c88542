"""Two ways to tell the story: a table that is drawn again and again, or a line for each thing that happens.

Which of the two a terminal gets is decided in gangsched.lab.demo.shows.terminal. Called by
gangsched.lab.demo.play.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, TextIO

from msgspec.structs import replace
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gangsched.lab.demo.scene import Change, Scene
from gangsched.lab.demo.shows.screen import Frame, Look, screen
from gangsched.lab.demo.story import Step

# People see no more; each costs a few milliseconds of the loop that the scheduler runs on.
_FRAMES_PER_S = 10


class Table:
    """The live table. Keeps the frame of each step that came true, for a picture."""

    def __init__(self, console: Console, look: Look) -> None:
        self.frames: list[Frame] = []
        self._console = console
        self._look = look
        self._frame = Frame(Scene(0.0, 0.0))
        self._drawn_s = -1.0
        self._live = Live(console=console, auto_refresh=False, transient=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, number: int, of: int, step: Step) -> None:
        heading = f"{number} of {of}"
        self._frame = Frame(self._frame.scene, heading, step.title, tuple(map(str, step.does)))
        self._draw()

    def see(self, scene: Scene, news: Sequence[Change]) -> None:
        self._frame = replace(self._frame, scene=scene)
        if news or scene.at_s - self._drawn_s >= 1 / _FRAMES_PER_S:
            self._draw()

    def happened(self, words: str) -> None:
        self._frame = replace(self._frame, shows=words)
        self.frames.append(self._frame)
        self._draw()

    def say(self, *lines: str) -> None:
        """Prints lines that stay, above the table while there is one."""
        for line in lines:
            # Not wrapped: what is there to be copied stays in one piece.
            self._console.print(Text(line), soft_wrap=True)

    def end(self, title: str, *commands: str) -> None:
        """Ends the story; the table goes on without it."""
        self._frame = Frame(self._frame.scene, title=title, commands=commands)
        self._draw()

    def _draw(self) -> None:
        self._drawn_s = self._frame.scene.at_s
        width, height = self._console.size
        self._live.update(screen(self._frame, self._look, width=width, height=height), refresh=True)


class Lines:
    """A line for each change, with the seconds since the start; for pipes, logs and dumb terminals."""

    def __init__(self, file: TextIO) -> None:
        self.frames: list[Frame] = []
        self._file = file
        self._frame = Frame(Scene(0.0, 0.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.flush()

    def begin(self, number: int, of: int, step: Step) -> None:
        heading = f"{number} of {of}"
        self._frame = Frame(self._frame.scene, heading, step.title, tuple(map(str, step.does)))
        self.say("")
        self._print(f"{heading}: {step.title}")
        for action in step.does:
            self._print(f"  $ {action}")

    def see(self, scene: Scene, news: Sequence[Change]) -> None:
        self._frame = replace(self._frame, scene=scene)
        for change in news:
            self._print(f"  {change.seen.short:<10} {change.seen.word:<14} {change.words}".rstrip())

    def happened(self, words: str) -> None:
        self._frame = replace(self._frame, shows=words)
        self.frames.append(self._frame)
        self._print(words)

    def say(self, *lines: str) -> None:
        """Prints lines without a stamp."""
        for line in lines:
            print(line, file=self._file, flush=True)

    def end(self, title: str, *commands: str) -> None:
        """Does nothing: changes are printed as before."""

    def _print(self, text: str) -> None:
        self.say(f"{self._frame.scene.at_s:6.1f}  {text}")

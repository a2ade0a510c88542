"""The terminal of top: its keys, its size and its signals; always restored at the end.

Lives here: modes of the terminal, escape sequences, which bytes are which keys. Not here: what is drawn
(screen), what keys do (command). Ctrl-Z restores the terminal until the process continues.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from gangsched.errors import ConfigError
from gangsched.web.top.screen import Line, ansi

# Switches to the alternate screen without cursor, and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J", "\x1b[0m\x1b[?25h\x1b[?1049l"
_HOME, _TO_END_OF_LINE, _TO_END = "\x1b[H", "\x1b[K", "\x1b[J"
_SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
}
_CHARACTERS = {"\x03": "quit", "\x04": "quit", "q": "quit", "Q": "quit", " ": "pause", "p": "pause"}
_CHARACTERS |= {"s": "sort", "r": "reverse", "k": "up", "j": "down", "g": "home", "G": "end"}
RESIZED, QUIT, ENDED = "resized", "quit", "ended"
_MAX_KEYS = 256


def keys_of(data: bytes) -> Iterator[str]:
    """Yields the keys pressed, without unknown ones."""
    at = 0
    while at < len(data):
        for sequence, name in _SEQUENCES.items():
            if data.startswith(sequence, at):
                yield name
                at += len(sequence)
                break
        else:
            if data[at : at + 1] == b"\x1b":
                at = _after_sequence(data, at)
                continue
            if (name := _CHARACTERS.get(chr(data[at]), "")) != "":
                yield name
            at += 1


def _after_sequence(data: bytes, at: int) -> int:
    """Returns where an unknown escape sequence ends, so that none of its letters is taken for a key."""
    at += 1
    if data[at : at + 1] not in (b"[", b"O"):
        return at
    at += 1
    while at < len(data) and not 0x40 <= data[at] <= 0x7E:
        at += 1
    return at + 1


class Terminal:
    """Draws, and returns keys. Made by `terminal`."""

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._before = termios.tcgetattr(self._input)
        self._pressed: deque[str] = deque(maxlen=_MAX_KEYS)
        self._news = asyncio.Event()
        self.has_colour = "NO_COLOR" not in os.environ

    def size(self) -> tuple[int, int]:
        """(columns, lines)."""
        try:
            found = os.get_terminal_size(self._output)
        except OSError:  # the terminal is gone
            return 80, 24
        return found.columns or 80, found.lines or 24

    def draw(self, lines: Sequence[Line]) -> None:
        """Replaces the whole picture."""
        drawn = f"{_TO_END_OF_LINE}\n".join(ansi(line, colour=self.has_colour) for line in lines)
        self._write(_HOME + drawn + _TO_END_OF_LINE + _TO_END)

    async def pressed(self) -> str:
        """Returns the next key, or RESIZED, or ENDED if the process must end."""
        while not self._pressed:
            self._news.clear()
            await self._news.wait()
        return self._pressed.popleft()

    def enter(self) -> None:
        tty.setcbreak(self._input, termios.TCSANOW)
        self._write(_ENTER)

    def leave(self) -> None:
        self._write(_LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def put(self, *names: str) -> None:
        self._pressed.extend(names)
        self._news.set()

    def read(self) -> None:
        """Reads keys; called when there is input."""
        try:
            data = os.read(self._input, 1024)
        except OSError:
            data = b""
        self.put(*(keys_of(data) if data else (ENDED,)))

    def suspend(self) -> None:
        """Restores the terminal and stops the process until SIGCONT."""
        self.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.enter()
        self.put(RESIZED)

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:
            # The window was closed, perhaps before SIGHUP arrives; the text must not be written again at
            # exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._output)
            self.put(ENDED)


@asynccontextmanager
async def terminal() -> AsyncIterator[Terminal]:
    """Takes over the terminal while this is open. Raises: ConfigError, if there is none."""
    check()
    found, loop = Terminal(), asyncio.get_running_loop()
    with _signals(found, loop):
        found.enter()
        loop.add_reader(sys.stdin.fileno(), found.read)
        try:
            yield found
        finally:
            loop.remove_reader(sys.stdin.fileno())
            found.leave()


@contextmanager
def _signals(found: Terminal, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    keys = {signal.SIGINT: QUIT, signal.SIGTERM: ENDED, signal.SIGHUP: ENDED, signal.SIGWINCH: RESIZED}
    for number, name in keys.items():
        loop.add_signal_handler(number, found.put, name)
    loop.add_signal_handler(signal.SIGTSTP, found.suspend)
    try:
        yield
    finally:
        for number in (*keys, signal.SIGTSTP):
            loop.remove_signal_handler(number)


def check() -> None:
    """Raises: ConfigError."""
    way = "--once prints one picture, -o json is for programs"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(f"needs a terminal for its input and its output; {way}", path="top")
    if os.environ.get("TERM", "dumb") == "dumb":
        raise ConfigError(f"a terminal of the kind TERM=dumb cannot be drawn on; {way}", path="top")

"""`gangsched top`: the running scheduler, live in a terminal. Called by command.cli.

As the plugin `kubectl gangsched top` too.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import sys
from urllib.parse import quote

import anyio
import msgspec

from gangsched.command.namespaces import add_list_flags, listed
from gangsched.errors import ApiError, ConfigError
from gangsched.signals import run_loop
from gangsched.web.commands.asking import Ask, add_flags, connected, decoded, server_of
from gangsched.web.pages.answers import TopPage
from gangsched.web.top import terminal as terminals
from gangsched.web.top.rates import Looks, Pace
from gangsched.web.top.screen import SORTS, View, draw, ordered, text
from gangsched.web.top.terminal import Terminal, terminal

MIN_DELAY_S, MAX_DELAY_S = 0.5, 3600.0
# Size of what --once prints without a terminal.
_COLUMNS, _LINES = 140, 60
_PAGE = 10
_ENDED = 128 + signal.SIGTERM


class Printed(msgspec.Struct, frozen=True):
    """What -o json prints."""

    page: TopPage
    pace: Pace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Shows the running scheduler as it changes: devices by state, decisions and binds a second,"
        " percentiles of what they take, and the queue with the reason of each. Keys: q quit, space pause, s"
        " sort, r reverse, up and down choose one, whose whole reason is shown."
    )
    parser.add_argument("-d", "--delay", metavar="SECONDS", default="2", help="between two looks (2)")
    add_list_flags(parser, "queue")
    parser.add_argument("--sort", choices=SORTS, default="position", help="what the queue is sorted by")
    parser.add_argument(
        "--once",
        action="store_true",
        help="two looks, the delay apart, are printed as one picture, for scripts",
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="json: a line for each look"
    )
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    delay_s = _delay(args.delay)
    args.namespace = listed(args)
    if args.output == "text" and not args.once:
        terminals.check()
    return run_loop(_run, args, delay_s)


def _delay(text_: str) -> float:
    try:
        delay_s = float(text_)
    except ValueError:
        delay_s = math.nan
    if not MIN_DELAY_S <= delay_s <= MAX_DELAY_S:
        raise ConfigError(
            f"{text_!r} is not a number of seconds from {MIN_DELAY_S:g} to {MAX_DELAY_S:g}", path="--delay"
        )
    return delay_s


async def _run(args: argparse.Namespace, delay_s: float) -> int:
    looks, view = Looks(), View(sort=args.sort, delay_s=delay_s)
    async with connected(args) as ask:
        page = await _look(args, ask)
        looks.add(page)
        if args.output == "json" or args.once:
            await _print(args, ask, looks, view)
            return 0
        async with terminal() as screen:
            return await Screen(args, ask, screen, looks, view, page).run()


async def _look(args: argparse.Namespace, ask: Ask) -> TopPage:
    """Raises: ApiError."""
    query = f"?namespace={quote(args.namespace, safe='')}" if args.namespace else ""
    body = await ask(f"/top{query}")
    if body is None:
        raise ApiError(
            f"{server_of(args)} has no such page: its scheduler is of an older version, or another's"
        )
    return decoded(args, body, TopPage)


async def _print(args: argparse.Namespace, ask: Ask, looks: Looks, view: View) -> None:
    """For scripts: prints one picture or document; without --once, a line of JSON for every look, forever."""
    while True:
        await anyio.sleep(view.delay_s)
        page = await _look(args, ask)
        looks.add(page)
        if args.output == "json":
            body = msgspec.json.encode(Printed(page, looks.pace()))
            sys.stdout.buffer.write((msgspec.json.format(body, indent=2) if args.once else body) + b"\n")
            sys.stdout.buffer.flush()
        else:
            columns, lines = shutil.get_terminal_size((_COLUMNS, _LINES))
            drawn = draw(page, looks.pace(), view, width=columns, height=max(lines, 24), keys=False)
            sys.stdout.write("".join(f"{text(line)}\n" for line in drawn))
        if args.once:
            return


class Screen:
    """The terminal's content: refreshes it periodically, and handles keys."""

    def __init__(
        self, args: argparse.Namespace, ask: Ask, on: Terminal, looks: Looks, view: View, page: TopPage
    ) -> None:
        self._args = args
        self._ask = ask
        self._terminal = on
        self._looks = looks
        self._view = view
        self._page = page
        self._code = 0

    async def run(self) -> int:
        """Runs until the user quits; returns the exit code."""
        self._draw()
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow)
            while self._do(await self._terminal.pressed()):
                self._draw()
            group.cancel_scope.cancel()
        return self._code

    async def _follow(self) -> None:
        while True:
            await anyio.sleep(self._view.delay_s)
            if self._view.is_paused:
                continue
            try:
                page = await _look(self._args, self._ask)
            except (ApiError, ConfigError) as error:
                self._view.problem = f"{error}; trying again"
            else:
                self._view.problem, self._page = "", page
                self._looks.add(page)
            self._draw()

    def _do(self, key: str) -> bool:
        """Handles a key; returns whether to go on."""
        view = self._view
        if key in (terminals.QUIT, terminals.ENDED):
            self._code = 0 if key == terminals.QUIT else _ENDED
            return False
        if key == "pause":
            view.is_paused = not view.is_paused
        elif key == "sort":
            view.sort = SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)]
        elif key == "reverse":
            view.is_reversed = not view.is_reversed
        else:
            self._choose(key)
        return True

    def _choose(self, key: str) -> None:
        names = [row.group for row in ordered(self._page.queue.rows, self._view)]
        steps = {
            "up": -1,
            "down": 1,
            "page up": -_PAGE,
            "page down": _PAGE,
            "home": -len(names),
            "end": len(names),
        }
        if not names or key not in steps:
            return
        last = len(names) - 1
        begin = names.index(self._view.chosen) if self._view.chosen in names else -1
        self._view.chosen = names[max(0, min(begin + steps[key], last))]

    def _draw(self) -> None:
        width, height = self._terminal.size()
        pace = self._looks.pace()
        self._terminal.draw(draw(self._page, pace, self._view, width=width, height=height))

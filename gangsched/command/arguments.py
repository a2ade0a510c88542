"""The command-line parser: an error in a command, flag or choice names the nearest valid one.

Used by all commands: each subparser is of this class too. Here too: flags of many commands that belong to no
other module. Called by cli.py and commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from gangsched.model.text.printable import one_line

# What a command might be called.
_ALSO = {"why": "explain", "describe": "explain", "squeue": "queue", "sshare": "queues"}


def _nearest(name: str, known: Iterable[str]) -> str:
    from gangsched.reading.strict import nearest  # only for a mistake: all of config comes with it

    return nearest(name, known)


def add_output_flag(parser: argparse.ArgumentParser, *choices: str, help_: str | None = None) -> None:
    """Adds the flag for the form of the output; the first choice is the default."""
    parser.add_argument("-o", "--output", choices=choices, default=choices[0], help=help_)


def add_log_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a command that logs."""
    parser.add_argument("--logging-format", choices=("text", "json"), default="text")
    parser.add_argument("-v", "--v", metavar="LEVEL", type=int, default=0, help="0: info, 4 and above: debug")


class Parser(argparse.ArgumentParser):
    """Exits with code 2 and one line that tells what would be right."""

    _given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Rejects unknown arguments here, where the flags of the command are known."""
        self._given = list(args or ())
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Reports an unknown flag rather than a missing argument."""
        if "arguments are required" in message:
            slips = [one for one in self._given if one.startswith("--") and not self._is_flag(one)]
            message = self._unknown(slips) if slips else message
        super().error(message)

    def _is_flag(self, text: str) -> bool:
        flag = text.partition("=")[0]
        return any(one.startswith(flag) for one in self._option_string_actions)

    def _unknown(self, unknown: Sequence[str]) -> str:
        for one in unknown:
            flag = one.partition("=")[0]
            if flag.startswith("-") and (meant := _nearest(flag, self._option_string_actions)):
                return f"there is no flag {one_line(flag)}{meant}"
        flags = [one for one in unknown if one.startswith("-")]
        if flags:
            return f"there is no flag {one_line(flags[0])}; {self.prog} --help lists them"
        return f"too many arguments: {one_line(' '.join(unknown))}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(one) for one in action.choices]
        meant = _nearest(str(value), known)
        shown = one_line(repr(value))
        if not isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(action, f"{shown} is none of {', '.join(known)}{meant}")
        if not meant and (other := _ALSO.get(str(value))) in known:
            meant = f"; did you mean {other}?"
        self.error(f"there is no command {shown}{meant or f'; {self.prog} --help lists them'}")

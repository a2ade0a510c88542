"""The frame of all commands: arguments, streams, signals, logs, and errors as exit codes.

A command is a module with its arguments and one function (command.commands). Each is imported when it runs,
so that starting a scheduler imports no bench.

A user's mistake is one line on stderr and exit code 2; a server that cannot be reached is exit code 1.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from gangsched import __version__
from gangsched.command.arguments import Parser, add_log_flags
from gangsched.command.commands import COMMANDS, SERVICES, module_of
from gangsched.command.messages import tell
from gangsched.errors import ApiError, ConfigError
from gangsched.signals import EndedBySignal, early_signals

# Errors of a disk or terminal that accepts no more of our output.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _ready_streams()
    try:
        with early_signals(reloads=arguments[:1] == ["scheduler"]):
            args = _parser(arguments).parse_args(arguments)
            from gangsched.logs import set_up_logs  # structlog is not needed for a mistake

            set_up_logs(args.logging_format, debug=args.v >= 4)
            code = int(args.run(args))
            sys.stdout.flush()  # flush here, where a closed pipe can be handled
            return code
    except ConfigError as error:
        tell(str(error))
        return 2
    except ApiError as error:
        tell(str(error))
        return 1
    except ValueError as error:
        if not str(error).startswith("OTEL_"):  # OpenTelemetry reads some of its variables on import
            raise
        tell(str(error))
        return 2
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. The rest is discarded at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        tell(f"the output cannot be written: {error.strerror}")
        return 1
    except EndedBySignal as error:
        tell(str(error))
        return 128 + error.number
    except KeyboardInterrupt:
        tell("interrupted")
        return 130


def _ready_streams() -> None:
    """Makes stdin, stdout and stderr usable, however the process was started."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: another file must not get its number and output
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - to the end
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal with few characters gets the rest as \xe9, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):
        # A key from a terminal with another encoding must cause no traceback.
        sys.stdin.reconfigure(errors="replace")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = Parser(
        prog=_program(), description="Gang scheduling with device IDs for AI and HPC jobs on Kubernetes."
    )
    parser.add_argument("--version", action="version", version=f"gangsched {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (_, help_) in COMMANDS.items():
        command = commands.add_parser(name, help=help_)
        if name in arguments[:1]:
            _fill(command, name)
    return parser


def _program() -> str:
    """Returns the command name that was typed: kubectl runs this as its plugin too."""
    return "kubectl gangsched" if Path(sys.argv[0]).name == "kubectl-gangsched" else "gangsched"


def _fill(parser: argparse.ArgumentParser, name: str) -> None:
    command = module_of(name)
    command.add_arguments(parser)
    if name in SERVICES:
        add_log_flags(parser)
    parser.set_defaults(run=command.run, logging_format="text", v=0)


if __name__ == "__main__":
    sys.exit(main())

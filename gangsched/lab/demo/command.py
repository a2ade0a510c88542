"""The command `gangsched demo`: its options, exit codes, and cleaning up.

Exit code 0: the story succeeded; 1: a step did not happen in time; 2: it cannot be played as requested; 130,
143 or 129: interrupted (after --keep's story Ctrl-C is the way to end it, and 0).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import anyio

from gangsched.errors import ConfigError
from gangsched.lab.demo.files import Written, kubeconfig_path, trace_path
from gangsched.lab.demo.performance import Options, Performance
from gangsched.lab.demo.samples import find_samples
from gangsched.lab.demo.shows.terminal import choose
from gangsched.lab.demo.story import N_GPUS, N_NODES, N_RACKS
from gangsched.logs import set_up_logs

_MAX_SPEED = 100.0
# The exit codes by which a shell reports a process that a signal ended.
_INTERRUPTED = 128
_PIPE_CLOSED = _INTERRUPTED + signal.SIGPIPE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo's options."""
    parser.description = (
        f"Starts an API server with {N_NODES} simulated nodes of {N_GPUS} GPUs in {N_RACKS} racks and the "
        "scheduler, all in this process, and plays a story of gangs on it in about a minute."
    )
    add = parser.add_argument
    add(
        "--keep", action="store_true", help="go on afterwards, and say how kubectl gets there; Ctrl-C ends it"
    )
    add("--speed", metavar="N", type=_speed, default=1.0, help="make the pauses N times shorter")
    add("--port", metavar="N", type=_port, default=0, help="of the API server (default: any free one)")
    add("--lines", action="store_true", help="a line for each change instead of the table")
    add("--open", action="store_true", help="open the dashboard in a browser")
    add("--svg", metavar="FILE", default="", help="draw a moving picture of it")
    add(
        "--trace-file",
        metavar="FILE",
        default="",
        help="add traces to this file (default: in the user's cache)",
    )
    add("--kubeconfig-out", metavar="FILE", default="", help="a new file, removed in the end")
    add("--log-file", metavar="FILE", default="", help="add the scheduler's log to this file")
    add(
        "--samples",
        metavar="FOLDER",
        default="",
        help="the jobs to submit (default: those that come with gangsched)",
    )
    add("-v", "--verbose", action="store_true", help="say more in the log")


def run(args: argparse.Namespace) -> int:
    """Plays it; returns the exit code. Raises: ConfigError."""
    samples = find_samples(args.samples)
    svg = Written(args.svg, "--svg") if args.svg else None
    try:
        traces, no_traces = trace_path(args.trace_file, os.environ)
        show, note = choose(sys.stdout, os.environ, lines=args.lines)
        if note:
            show.say(note)
        with _folder() as folder, _log(args.log_file, folder) as log:
            options = Options(
                samples=samples,
                kubeconfig=kubeconfig_path(args.kubeconfig_out, folder),
                log=Path(log.name),
                traces=traces,
                no_traces=no_traces,
                port=args.port,
                speed=args.speed,
                keep=args.keep,
                open_browser=args.open,
            )
            set_up_logs("text", debug=args.verbose, file=log)
            logging.basicConfig(stream=log, level=logging.WARNING)
            try:
                code = anyio.run(Performance(options, show, svg).run)
            except BrokenPipeError:
                # The reader has closed the pipe; the interpreter must not flush to it at its end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                code = _PIPE_CLOSED
            finally:
                options.kubeconfig.unlink(missing_ok=True)
            if code > _INTERRUPTED and traces is not None and not args.trace_file:
                traces.unlink(missing_ok=True)
            return code
    finally:
        if svg is not None:
            svg.drop()


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder of our own, removed when the demo ends."""
    try:
        made = tempfile.TemporaryDirectory(prefix="gangsched-demo-")
    except OSError as error:
        raise ConfigError(f"no temporary folder can be made: {error.strerror or error}") from None
    with made as folder:
        yield Path(folder)


@contextmanager
def _log(given: str, folder: Path) -> Iterator[TextIO]:
    path = Path(given) if given else folder / "log"
    try:
        file = path.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", source=f"--log-file {given}") from None
    with file:
        yield file


def _speed(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= _MAX_SPEED:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MAX_SPEED:.0f}")
    return value


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; it is 0 (any free one) to 65535")
    return int(text)

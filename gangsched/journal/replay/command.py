"""`gangsched replay DIR`: makes the decisions of a recorded day again and compares them. Called by
command.cli.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from gangsched.command import printing
from gangsched.config.tracing import traces_url
from gangsched.errors import ConfigError
from gangsched.journal.records import Start, State
from gangsched.journal.replay.playing import Begun, Process, Span, Tools
from gangsched.journal.replay.stepping import Steps
from gangsched.journal.replay.times import time_text, wall_s
from gangsched.journal.replay.watching import print_explanation, print_stories
from gangsched.journal.segments import Reader, Segment, segments_at
from gangsched.model.text.printable import several
from gangsched.process.flags import add_plugin_flag
from gangsched.reading.strict import nearest
from gangsched.whole_file import check_file, put_file

if TYPE_CHECKING:
    from gangsched.journal.replay.picture import Drawing
    from gangsched.journal.replay.tracing import Collector


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Makes the decisions of a journal again that `gangsched scheduler --record DIR` wrote, with the"
        " configuration in it, and compares each answer with the recorded one. Nothing is sent anywhere, but"
        " for what --trace-endpoint asks for. Exit code 1: an answer differs, so something decided that is"
        " not in the journal, or this is another version; or not all of the journal could be read."
    )
    parser.add_argument("journal", metavar="DIR", help="the directory, or one file of it")
    parser.add_argument(
        "--until",
        metavar="TIME",
        default="",
        help="stop there: 2026-05-04T02:15:00Z, 02:15 (UTC), or +1h30m from the journal's start",
    )
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="TIME",
        default="",
        help="begin with the state that was recorded last before then; forms as of --until",
    )
    parser.add_argument("--story", metavar="NAMESPACE/GANG", default="", help="print a gang's moves, too")
    parser.add_argument(
        "--explain", metavar="NAMESPACE/GANG", default="", help="print why it does not run, as of --at"
    )
    parser.add_argument("--at", metavar="TIME", default="", help="when --explain asks; forms as of --until")
    parser.add_argument(
        "--step", action="store_true", help="stop after each decision, and take commands from the terminal"
    )
    parser.add_argument(
        "--trace-endpoint",
        metavar="URL",
        default="",
        help="send the traces of all gangs to this collector (OTLP over HTTP, as Jaeger takes it), with the"
        " times of the journal",
    )
    parser.add_argument(
        "--picture", metavar="FILE.svg", default="", help="draw the day: nodes over time, and waits by size"
    )
    add_plugin_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError."""
    _check(args)
    console = printing.console(160)
    segments = segments_at(Path(args.journal))
    processes = [Begun(some) for _, some in groupby(segments, key=lambda one: one.process)]
    span = _span(args, [one for process in processes for one in process.starts])
    tools = Tools(
        console,
        _collector(args.trace_endpoint),
        _drawing(args.picture),
        Steps(console) if args.step else None,
        _full(args.story or args.explain),
    )
    code, is_lossy, asked = 0, False, _Asked(args, tools)
    for begun in processes:
        one = Process(begun, args.plugin, span, tools)
        code = max(code, one.play())
        is_lossy = is_lossy or one.is_lossy
        asked.look(one)
        if tools.steps is not None and tools.steps.has_quit:
            break
    if not code:
        asked.end()
    if tools.collector is not None:
        tools.collector.flush()
        n_traces, n_spans = tools.collector.n_traces, tools.collector.n_spans
        console.print(f"{several(n_traces, 'trace')}, {several(n_spans, 'span')}, were sent")
    if tools.drawing is not None:
        from gangsched.journal.replay.picture import picture

        put_file(args.picture, picture(tools.drawing), flag="--picture")
    if not code:
        asked.check()
    return code or int(is_lossy)


def _check(args: argparse.Namespace) -> None:
    """Raises: ConfigError."""
    if args.at and not args.explain:
        raise ConfigError("is of --explain NAMESPACE/GANG, which is missing", path="--at")
    if args.explain and not args.at:
        raise ConfigError("needs --at TIME, as of when", path="--explain")
    if args.at and args.until:
        raise ConfigError("cannot be given with --at, at which the replay ends", path="--until")


def _span(args: argparse.Namespace, starts: Sequence[tuple[Segment, Start]]) -> Span:
    """Returns the span to replay; times are relative to the whole journal. Raises: ConfigError."""
    if not starts:
        return Span(-math.inf, math.inf)
    began_s = min(one.wall_s for _, one in starts)
    ended_s = partial(_ended_s, *max(starts, key=lambda one: one[1].wall_s))
    flag, text = ("--at", args.at) if args.at else ("--until", args.until)
    from_s = wall_s(args.from_, began_s, "--from", ended_s) if args.from_ else -math.inf
    until_s = wall_s(text, began_s, flag, ended_s) if text else math.inf
    if until_s < began_s:
        raise ConfigError(f"{text} is before the journal begins, at {time_text(began_s)} UTC", path=flag)
    if until_s < from_s:
        raise ConfigError(f"{text} is before --from {args.from_}", path=flag)
    return Span(from_s, until_s)


def _ended_s(last: Segment, start: Start) -> float:
    """Returns when the last record was written, in seconds since 1970. Raises: ConfigError."""
    now_s = start.now_s
    for record in Reader(last.path):
        if not isinstance(record, State):
            now_s = max(now_s, record.now_s)
    return start.wall_s + now_s - start.now_s


def _collector(endpoint: str) -> Collector | None:
    """Raises: ConfigError (it does not take spans)."""
    if not endpoint:
        return None
    from gangsched.journal.replay.tracing import Collector

    return Collector(traces_url(endpoint, "--trace-endpoint"))


def _drawing(file: str) -> Drawing | None:
    """Raises: ConfigError (the file cannot be written)."""
    if not file:
        return None
    from gangsched.journal.replay.picture import Drawing

    check_file(file, flag="--picture")
    return Drawing()


def _full(name: str) -> str:
    """Adds the default namespace to a name; "" stays."""
    return name if "/" in name or not name else f"default/{name}"


class _Asked:
    """--story and --explain: prints what each process knew about the gang."""

    def __init__(self, args: argparse.Namespace, tools: Tools) -> None:
        self._args = args
        self._tools = tools
        self._n_reported = 0
        self._was_there = False
        self._names: set[str] = set()
        self._ended: Process | None = None
        """The last process before the requested time."""

    def look(self, one: Process) -> None:
        """Takes in a process that has been played."""
        if one.watched is None or one.replay is None:
            return
        self._was_there = self._was_there or bool(one.watched.groups)
        self._names |= {str(key) for key in one.replay.scheduler.shared.groups}
        if self._args.story:
            self._n_reported += print_stories(one.replay, one.watched, self._tools.console)
        elif one.is_over:
            self._explain(one)
        else:
            self._ended = one

    def end(self) -> None:
        """Ends the output. If no process recorded at that time, explains the last state before."""
        one = self._ended
        if self._args.explain and not self._n_reported and one is not None and one.replay is not None:
            at = time_text(one.replay.played.now_s + one.replay.ago_s)
            self._tools.console.print(f"Nothing was recorded then; as of {at} UTC, the last before:")
            self._explain(one)

    def _explain(self, one: Process) -> None:
        assert one.replay is not None
        assert one.watched is not None
        self._n_reported += print_explanation(one.replay, one.watched, self._tools.console)

    def check(self) -> None:
        """Raises: ConfigError (the gang does not exist)."""
        name = self._tools.name
        if not name or self._n_reported:
            return
        if self._was_there:
            problem = f"{name} was gone by then; --story {name} has its moves"
        else:
            problem = f"no gang and no pod named {name} is in it by then{nearest(name, self._names)}"
        raise ConfigError(problem, source=self._args.journal)

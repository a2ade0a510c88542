"""`gangsched replay DIR`: the decisions of a recorded day made again, and compared. Called by cli.py."""

from __future__ import annotations

import argparse
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from gangsched.config.tracing import traces_url
from gangsched.core.state.reporter import clean
from gangsched.errors import ConfigError
from gangsched.flags import add_plugin_flag
from gangsched.journal.recorder import versions
from gangsched.journal.records import Reconfigured, Start, Turn
from gangsched.journal.replaying import Divergence, Replay
from gangsched.journal.segments import Reader, Segment, segments_at
from gangsched.journal.stepping import Steps
from gangsched.journal.times import told, wall_s
from gangsched.journal.watching import Watched, print_explanation, print_stories

if TYPE_CHECKING:
    from gangsched.journal.picture import Drawing
    from gangsched.journal.tracing import Collector, ReplayTraces

_MAX_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Makes the decisions of a journal again that `gangsched scheduler --record DIR` wrote, with the"
        " configuration in it, and compares each answer with the recorded one. Nothing is sent anywhere. Exit"
        " code 1: an answer differs, so something decided that is not in the journal, or this is another"
        " version."
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
    if bool(args.at) != bool(args.explain):
        raise ConfigError("goes with --explain, and --explain with it", path="--at")
    if args.at and args.until:
        raise ConfigError("cannot be given with --at, at which the replay ends", path="--until")
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    segments, collector = segments_at(Path(args.journal)), _collector(args.trace_endpoint)
    drawing = _drawing(args.picture)
    code, n_known = 0, 0
    for _, of_one in groupby(segments, key=lambda one: one.process):
        one = _Process(list(of_one), args, console, collector, drawing)
        code = max(code, one.play())
        n_known += one.n_known
    if collector is not None:
        collector.flush()
        console.print(f"{collector.n_traces:,} traces, {collector.n_spans:,} spans, were sent")
    if drawing is not None:
        from gangsched.journal.picture import svg

        Path(args.picture).write_text(svg(drawing), encoding="utf-8")
    name = args.story or args.explain
    if name and not n_known and not code:
        raise ConfigError(f"no gang and no pod named {_full(name)} is in it by then", source=args.journal)
    return code


def _collector(endpoint: str) -> Collector | None:
    """Raises: ConfigError (it does not take spans)."""
    if not endpoint:
        return None
    from gangsched.journal.tracing import Collector

    return Collector(traces_url(endpoint, "--trace-endpoint"))


def _drawing(file: str) -> Drawing | None:
    """Raises: ConfigError (the file cannot be written)."""
    if not file:
        return None
    from gangsched.journal.picture import Drawing

    try:
        Path(file).touch()
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", path="--picture", source=file) from None
    return Drawing()


def _full(name: str) -> str:
    return name if "/" in name else f"default/{name}"


class _Process:
    """One process's journal, segment by segment."""

    def __init__(
        self,
        segments: list[Segment],
        args: argparse.Namespace,
        console: Console,
        collector: Collector | None,
        drawing: Drawing | None,
    ) -> None:
        self._segments = segments
        self._args = args
        self._console = console
        self._name = segments[0].process
        self._collector = collector
        self._drawing = drawing
        self._traces: ReplayTraces | None = None
        name = args.story or args.explain
        self._watched = Watched(_full(name)) if name else None
        self.n_known = 0

    def play(self) -> int:
        """Raises: ConfigError."""
        starts = [(one, start) for one in self._segments if (start := _start_of(one)) is not None]
        if not starts:
            self._say("nothing is in it")
            return 0
        args, began_s = self._args, starts[0][1].wall_s
        if args.from_:
            from_s = wall_s(args.from_, began_s, "--from")
            n_before = sum(start.wall_s <= from_s for _, start in starts)
            starts = starts[max(n_before - 1, 0) :]
        flag, text = ("--at", args.at) if args.at else ("--until", args.until)
        until_s = wall_s(text, began_s, flag) if text else float("inf")
        replay: Replay | None = None
        for number, (segment, start) in enumerate(starts):
            if number and start.wall_s > until_s:
                break
            if replay is None or replay.n_turns != start.n_before:
                if replay is not None:
                    self._gap(replay, start)
                    self._end_traces(replay)
                self._begin_traces(start)
                replay = Replay(start, plugin_files=args.plugin, listener=self._traces)
            following = starts[number + 1][1] if number + 1 < len(starts) else None
            run = _Run(
                replay, Reader(segment.path), until_s - replay.ago_s, args.step, self._watched, self._drawing
            )
            try:
                run.play(None if following is None else following.n_before, self._console)
            except Divergence as error:
                self._end_traces(replay)
                self._differs(replay, error)
                return 1
            is_cut = following is not None and replay.n_turns != following.n_before
            if following is None or is_cut or following.wall_s > until_s:
                self._same(replay, run, is_last=not is_cut)
            if run.is_over:
                break
        if replay is not None:
            self._end_traces(replay)
        if replay is not None and self._watched is not None:
            tell = print_stories if args.story else print_explanation
            self.n_known = tell(replay, self._watched, self._console)
        return 0

    def _begin_traces(self, start: Start) -> None:
        if self._collector is not None:
            from gangsched.journal.tracing import ReplayTraces

            self._traces = ReplayTraces(start, self._name, self._collector)

    def _end_traces(self, replay: Replay) -> None:
        if self._traces is not None:
            self._traces.stop(replay.played.now_s)

    # -- what is said ------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._console.print(f"[bold]{escape(self._name)}[/bold]: {escape(text)}", soft_wrap=True)

    def _gap(self, before: Replay, after: Start) -> None:
        """Between the last call that is there and the state with which it goes on."""
        from_s, to_s = before.played.now_s + before.ago_s, after.wall_s
        why = clean(after.gap) or "a segment is missing"
        self._say(
            f"{told(from_s)} to {told(to_s)} UTC, {max(to_s - from_s, 0.0):.3f} s: a gap of"
            f" {after.n_before - before.n_turns:,} calls ({why}); it goes on from the state after it"
        )

    def _same(self, replay: Replay, run: _Run, *, is_last: bool) -> None:
        played, start, torn = replay.played, replay.start, run.reader.torn
        took_s = time.perf_counter() - replay.began_s
        lasted_s = played.now_s - start.now_s
        faster = f", {lasted_s / took_s:,.0f} times as fast as it was" if lasted_s > took_s > 0 else ""
        began, ended = told(start.wall_s), told(played.now_s + replay.ago_s)
        self._say(
            f"{began} to {ended} UTC in {took_s:.1f} s{faster}: {played.n_turns:,} calls,"
            f" {played.n_events:,} events, {played.n_effects:,} effects, {played.n_bound:,} of them binds,"
            " all as recorded"
        )
        if torn:
            self._console.print(f"  It {escape(torn)}: the record before that is the last one read.")
        elif played.ended:
            self._console.print(f"  It ends there: {escape(clean(played.ended))}.")
        elif is_last and not run.is_over:
            self._console.print("  It ends there without a reason: the process was killed, or still runs.")
        for defect in replay.defects[:_MAX_SHOWN]:
            self._console.print(
                f"  A fault of this program, contained then as now: {escape(clean(defect.problem))}"
            )

    def _differs(self, replay: Replay, error: Divergence) -> None:
        self._say(f"{told(error.at_s + replay.ago_s)} UTC: not as recorded. {clean(str(error))}")
        for effect in error.effects[:_MAX_SHOWN]:
            self._console.print(f"  now: {escape(clean(repr(effect))[:400])}", soft_wrap=True)
        here = versions()
        was = replay.start.versions
        others = [name for name in was if was[name] != here.get(name)]
        changed = [f"{name} {was[name]} (here {here.get(name)})" for name in others]
        if changed:
            said = f"It was recorded by {', '.join(changed)}."
        elif replay.start.plugins:
            names = ", ".join(replay.start.plugins)
            said = f"A plugin that looks at a clock, a file or chance decides otherwise each time: {names}."
        else:
            said = "Versions are the same: this is a fault of the program; please report it."
        self._console.print(f"  {escape(clean(said))}", soft_wrap=True)


def _start_of(segment: Segment) -> Start | None:
    """The record that it begins with; None: nothing is in it. Raises: ConfigError."""
    start = next(iter(Reader(segment.path)), None)
    assert start is None or isinstance(start, Start)  # as the reader checks
    return start


class _Run:
    """One segment, played. is_over: the user has seen enough."""

    def __init__(
        self,
        replay: Replay,
        reader: Reader,
        until_s: float,
        steps: bool,
        watched: Watched | None,
        drawing: Drawing | None,
    ) -> None:
        self._replay = replay
        self.reader = reader
        self._until_s = until_s
        self._watched = watched
        self._drawing = drawing
        self._steps = steps
        self.is_over = False

    def play(self, n_turns: int | None, console: Console) -> None:
        """Until so many calls have been made, which is where the next segment begins. Raises: Divergence."""
        replay = self._replay
        steps = Steps(replay, console) if self._steps else None
        for record in self.reader:
            if isinstance(record, Turn | Reconfigured):
                if replay.n_turns == n_turns:
                    return
                if record.now_s > self._until_s:
                    replay.played.now_s = self._until_s
                    self.is_over = True
                    return
            effects = replay.play(record)
            if self._watched is not None:
                self._watched.look(replay)
            if self._drawing is not None:
                self._drawing.look(replay, effects)
            if steps is not None and isinstance(record, Turn) and not steps.took(record, effects):
                self.is_over = True
                return

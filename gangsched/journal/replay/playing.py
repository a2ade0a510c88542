"""Replays one process's journal, segment by segment, and prints results. Called by the command."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.markup import escape

from gangsched.journal.recorder import versions
from gangsched.journal.records import Reconfigured, Start, Turn
from gangsched.journal.replay.replaying import Divergence, Replay
from gangsched.journal.replay.stepping import Steps
from gangsched.journal.replay.times import time_text
from gangsched.journal.replay.watching import Watched
from gangsched.journal.segments import Reader, Segment, naming
from gangsched.journal.unreadable import REPAIR, Ended, empty_among, lost_after, starts_of
from gangsched.model.text.printable import clean, several

if TYPE_CHECKING:
    from gangsched.journal.replay.picture import Drawing
    from gangsched.journal.replay.tracing import Collector, ReplayTraces

_MAX_SHOWN = 10


class Span(NamedTuple):
    """Start and end, in seconds since 1970."""

    from_s: float
    until_s: float


class Tools(NamedTuple):
    """Receivers of a replay's reports, each for all processes. name: the requested gang's, or ""."""

    console: Console
    collector: Collector | None
    drawing: Drawing | None
    steps: Steps | None
    name: str


class Begun:
    """One process's segments, each with its first record."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        """Raises: ConfigError."""
        every = list(starts_of(segments))
        self.name = every[0][0].process
        self.starts = [(one, start) for one, start in every if start is not None]
        self.empty = empty_among(every)


class Process:
    """One process's journal, segment by segment.

    is_over: the end time is reached, or the user has quit. is_lossy: some recorded data could not be read.
    """

    def __init__(self, begun: Begun, plugin_files: Sequence[str], span: Span, tools: Tools) -> None:
        self._begun = begun
        self._plugins = plugin_files
        self._span = span
        self._tools = tools
        self._console = tools.console
        self._traces: ReplayTraces | None = None
        self.watched = Watched(tools.name) if tools.name else None
        self.replay: Replay | None = None
        self.is_over = False
        self.is_lossy = False

    def play(self) -> int:
        """Replays; returns 1 if an answer differs. Raises: ConfigError."""
        starts, until_s = self._begun.starts, self._span.until_s
        if not starts:
            self._say("nothing is in it")
        for why in self._begun.empty:
            self._lose(why)
        if not starts or starts[0][1].wall_s > until_s:
            return 0
        n_before = sum(start.wall_s <= self._span.from_s for _, start in starts)
        starts = starts[max(n_before - 1, 0) :]
        for number, (segment, start) in enumerate(starts):
            if number and start.wall_s > until_s:
                break
            replay = self._replay_at(start)
            upcoming = starts[number + 1] if number + 1 < len(starts) else None
            following = None if upcoming is None else upcoming[1]
            reader = Reader(segment.path)
            run = _Run(replay, reader, until_s - replay.ago_s, self._tools, self.watched)
            try:
                with naming(segment.path):
                    run.play(None if following is None else following.n_before)
            except Divergence as error:
                self._end_traces(replay)
                self._differs(replay, error)
                return 1
            self.is_over = run.is_over
            has_gap = following is not None and replay.n_turns != following.n_before
            if following is None or has_gap or following.wall_s > until_s:
                self._same(replay, run, is_last=not has_gap)
            if run.is_over:
                break
            self._lose(lost_after(Ended(segment, reader, replay.n_turns), upcoming))
        if self.replay is not None:
            self._end_traces(self.replay)
        return 0

    def _replay_at(self, start: Start) -> Replay:
        """Returns the replay so far, or a new one after a gap."""
        replay = self.replay
        if replay is None or replay.n_turns != start.n_before:
            if replay is not None:
                self._gap(replay, start)
                self._end_traces(replay)
            self._begin_traces(start)
            replay = Replay(start, plugin_files=self._plugins, listener=self._traces)
            self.replay = replay
        return replay

    def _begin_traces(self, start: Start) -> None:
        if self._tools.collector is not None:
            from gangsched.journal.replay.tracing import ReplayTraces

            self._traces = ReplayTraces(start, self._begun.name, self._tools.collector)

    def _end_traces(self, replay: Replay) -> None:
        if self._traces is not None:
            self._traces.stop(replay.played.now_s)

    # -- messages ----------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._console.print(f"[bold]{escape(self._begun.name)}[/bold]: {escape(text)}", soft_wrap=True)

    def _lose(self, why: str) -> None:
        """Reports recorded data that could not be read; "": nothing."""
        if why:
            self.is_lossy = True
            self._console.print(f"  Not all of it could be read: {escape(clean(why))}.", soft_wrap=True)
            self._console.print(f"  {REPAIR}", soft_wrap=True)

    def _gap(self, before: Replay, after: Start) -> None:
        """Reports a gap between the last recorded call and the next segment's state."""
        from_s, to_s = before.played.now_s + before.ago_s, after.wall_s
        why = clean(after.gap) or "recorded and not readable"
        self._say(
            f"{time_text(from_s)} to {time_text(to_s)} UTC, {max(to_s - from_s, 0.0):.3f} s: a gap of"
            f" {after.n_before - before.n_turns:,} calls ({why}); it goes on from the state after it"
        )

    def _same(self, replay: Replay, run: _Run, *, is_last: bool) -> None:
        played, start, reader = replay.played, replay.start, run.reader
        took_s = time.perf_counter() - replay.began_s
        lasted_s = played.now_s - start.now_s
        faster = f", {lasted_s / took_s:,.0f} times as fast as it was" if lasted_s > took_s > 0 else ""
        began, ended = time_text(start.wall_s), time_text(played.now_s + replay.ago_s)
        self._say(
            f"{began} to {ended} UTC in {took_s:.1f} s{faster}: {several(played.n_turns, 'call')},"
            f" {several(played.n_events, 'event')}, {several(played.n_effects, 'effect')},"
            f" {played.n_bound:,} of them binds,"
            " all as recorded"
        )
        if reader.is_cut:
            self._console.print(f"  It {escape(reader.torn)}: the record before that is the last one read.")
        elif played.ended:
            self._console.print(f"  It ends there: {escape(clean(played.ended))}.")
        elif is_last and not run.is_over and not reader.torn:
            self._console.print("  It ends there without a reason: the process was killed, or still runs.")
        for defect in replay.defects[:_MAX_SHOWN]:
            self._console.print(
                f"  A fault of this program, contained then as now: {escape(clean(defect.problem))}"
            )

    def _differs(self, replay: Replay, error: Divergence) -> None:
        self._say(f"{time_text(error.at_s + replay.ago_s)} UTC: not as recorded. {clean(str(error))}")
        for effect in error.effects[:_MAX_SHOWN]:
            self._console.print(f"  now: {escape(clean(repr(effect))[:400])}", soft_wrap=True)
        here = versions()
        was = replay.start.versions
        others = [name for name in was if was[name] != here.get(name)]
        changed = [f"{name} {was[name]} (here {here.get(name)})" for name in others]
        if changed:
            text = f"It was recorded by {', '.join(changed)}."
        elif replay.start.plugins:
            names = ", ".join(replay.start.plugins)
            text = f"A plugin that looks at a clock, a file or chance decides otherwise each time: {names}."
        else:
            text = "Versions are the same: this is a fault of the program; please report it."
        self._console.print(f"  {escape(clean(text))}", soft_wrap=True)


class _Run:
    """Plays one segment. is_over: the user has quit."""

    def __init__(
        self,
        replay: Replay,
        reader: Reader,
        until_s: float,
        tools: Tools,
        watched: Watched | None,
    ) -> None:
        self._replay = replay
        self.reader = reader
        self._until_s = until_s
        self._tools = tools
        self._watched = watched
        self.is_over = False

    def play(self, n_turns: int | None) -> None:
        """Play until `n_turns` calls have been made, where the next segment begins. Raises: Divergence."""
        replay, drawing, steps = self._replay, self._tools.drawing, self._tools.steps
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
            if drawing is not None:
                drawing.look(replay, effects)
            if steps is not None and isinstance(record, Turn) and not steps.took(replay, record, effects):
                self.is_over = True
                return

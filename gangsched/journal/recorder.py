"""Recorder: stands between the loop and the core, and records each call before it is answered.

It changes nothing that passes through it. If a call cannot be recorded, the journal has a gap: calls are only
counted until the sink requests a segment, which begins with the core's state and states why the earlier ones
are missing. Called by process.app instead of the core; without a journal there is no recorder, and the loop
calls the core itself.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec
import numpy as np

from gangsched import __version__
from gangsched.config import SchedulerConfig
from gangsched.config.effective import effective_yaml
from gangsched.core.framework.observer import PluginObserver
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.extension.loading import KnownPlugins
from gangsched.journal.counted import Counted
from gangsched.journal.records import (
    FORMAT,
    End,
    Reconfigured,
    Record,
    Start,
    State,
    Turn,
    digest,
    encoded_events,
    framed,
)
from gangsched.journal.state import BuildCore, write_state
from gangsched.model.dialects.dialect import GroupKey
from gangsched.model.effects import Effect
from gangsched.model.events import Event

# Lone surrogates and numbers beyond JSON's; no server sends them.
UNWRITABLE = (ValueError, TypeError, RecursionError, OverflowError)
_NO_EVENTS = b"[]"


class Sink(Protocol):
    """Takes a journal's records; never waits."""

    def put(self, framed: bytes) -> str:
        """Takes the next record. Returns why it was not taken; "": it was."""
        ...

    def skip(self) -> None:
        """Takes in that a record is missing."""
        ...

    def lose(self, why: str) -> None:
        """Begins a gap: the next record cannot follow the earlier ones."""
        ...

    @property
    def wants_segment(self) -> bool:
        """Whether a new segment should begin, as this one is long, or as recording can resume after a gap."""
        ...

    def begin_segment(self, number: int, write: Callable[[], list[bytes]]) -> None:
        """Begins a segment with what `write` returns now, followed by later records; if `write` raises
        NotWritable, the old segment, or the gap, continues.
        """
        ...

    @property
    def counted(self) -> Counted: ...


class Picks:
    """Records random choices since `take`: pairs of (number of options, choice)."""

    def __init__(self, pick: Callable[[int], int]) -> None:
        self.pick = pick
        self._choices: list[int] = []

    def __call__(self, n: int) -> int:
        at = self.pick(n)
        self._choices += (n, at)
        return at

    def take(self) -> tuple[int, ...]:
        taken, self._choices = self._choices, []
        return tuple(taken)


class Recorder:
    """The core, with a journal of its calls.

    ended: why recording has ended; gap: why nothing is recorded now.
    """

    _scheduler: Scheduler
    _config: SchedulerConfig
    _build: Callable[[SchedulerConfig], BuildCore]
    _leading: bool

    def __init__(self, sink: Sink, pick: Callable[[int], int], known: KnownPlugins | None = None) -> None:
        """pick: makes random choices; the core calls `picks` instead. known: the plugins it may name."""
        self._sink = sink
        self.picks = Picks(pick)
        self._known = known
        self._n_plugin_calls = 0
        self._n_turns = 0
        self._n_segments = 0
        self._writes = True
        self.ended = self.gap = ""

    def begin(
        self,
        scheduler: Scheduler,
        config: SchedulerConfig,
        build: Callable[[SchedulerConfig], BuildCore],
        *,
        leading: bool,
        from_state: bool = False,
    ) -> None:
        """Begins recording the core's calls.

        from_state: the core was called before, so it has state. build: makes a core from a configuration, an
        observer, a random choice, and a function that reports faults.
        """
        self._scheduler = scheduler
        self._config = config
        self._build = build
        self._leading = leading
        scheduler.ties.pick = self.picks
        if from_state:
            self._next_segment()
        else:
            self._n_segments = 1
            self._write(self._start())

    def _start(self, gap: str = "") -> Start:
        config, observer = self._config, self._scheduler.shared.observer
        observed: Literal["no", "yes", "calls"] = "no"
        if observer is not None:
            observed = "calls" if isinstance(observer, PluginObserver) else "yes"
        now_s, ahead_s = time.monotonic(), self._scheduler.shared.wall_ahead_s
        return Start(
            format=FORMAT,
            wall_s=time.time() if ahead_s is None else now_s + ahead_s,
            now_s=now_s,
            leading=self._leading,
            config=effective_yaml(config),
            plugins=self._sources(config),
            versions=versions(),
            n_before=self._n_turns,
            observed=observed,
            gap=gap,
        )

    def _next_segment(self) -> None:
        """Begins a segment; a copy of this process writes the current state."""
        gap, self.gap = self.gap, ""

        def write() -> list[bytes]:
            state = write_state(self._scheduler, self._build(self._config))
            return [framed(self._start(gap)), framed(State(state))]

        self._n_segments += 1
        self._writes = True
        self._sink.begin_segment(self._n_segments, write)

    @property
    def counted(self) -> Counted:
        """The sink's counts."""
        return self._sink.counted

    def end(self, why: str, now_s: float) -> None:
        """Writes the last record; the core goes on unrecorded."""
        if self._writes:
            self._write(End(now_s, why))
        self.ended, self._writes = why, False
        self._scheduler.ties.pick = self.picks.pick

    # -- the core ----------------------------------------------------------------------------------------

    def handle(self, events: Sequence[Event], now_s: float) -> list[Effect]:
        try:
            body = encoded_events(events) if self._writes else _NO_EVENTS
        except UNWRITABLE as error:
            self._fail(f"an event could not be written down: {error}")
            body = _NO_EVENTS
        self._begin()
        effects = self._scheduler.handle(events, now_s)
        self._turn("handle", now_s, effects, events=body)
        return effects

    def advance(self, now_s: float) -> list[Effect]:
        self._begin()
        effects = self._scheduler.advance(now_s)
        self._turn("advance", now_s, effects)
        return effects

    def pop(self) -> Group | None:
        """Returns the core's next group, which is recorded with the attempt that follows."""
        return self._scheduler.pop()

    def schedule(self, group: Group, now_s: float) -> list[Effect]:
        self._begin()
        effects = self._scheduler.schedule(group, now_s)
        self._turn("schedule", now_s, effects, group=group.key)
        return effects

    def next_deadline_s(self) -> float | None:
        return self._scheduler.next_deadline_s()

    def reconfigure(
        self, profiles: Mapping[str, Profile], config: SchedulerConfig, now_s: float
    ) -> tuple[list[Effect], tuple[str, ...]]:
        """Reconfigures the core and records it; `profiles` were made from `config`."""
        self._begin()
        effects, more = self._scheduler.reconfigure(profiles, config.settings, now_s)
        self._config = config
        if self._writes:
            try:
                found = digest(effects, more)
            except UNWRITABLE as error:
                self._fail(f"an effect could not be written down: {error}")
            else:
                text, sources = effective_yaml(config), self._sources(config)
                self._write(Reconfigured(now_s, found, text, sources, self._stopped()))
        self._turned()
        return effects, more

    # -- writing it down ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Notes the count of plugin calls, as the edge makes some between two turns."""
        if self._known is not None:
            self._n_plugin_calls = self._known.budget.n_calls

    def _stopped(self) -> tuple[int, ...]:
        """Returns which plugin calls of this turn were stopped, counted from 1."""
        if self._known is None:
            return ()
        before = self._n_plugin_calls
        return tuple(n - before for n in self._known.budget.stopped_since(before))

    def _sources(self, config: SchedulerConfig) -> dict[str, str]:
        """Returns the origins of out-of-tree plugins."""
        if self._known is None:
            return {}
        names = {name for one in config.profiles for listed in one.plugins.values() for name in listed}
        return {name: source for name in sorted(names) if (source := self._known.source(name))}

    def _turn(
        self,
        do: Literal["handle", "advance", "schedule"],
        now_s: float,
        effects: Sequence[Effect],
        *,
        events: bytes = _NO_EVENTS,
        group: GroupKey | None = None,
    ) -> None:
        picks = self.picks.take()
        if self._writes:
            try:
                found = digest(effects)
            except UNWRITABLE as error:
                self._fail(f"an effect could not be written down: {error}")
            else:
                self._write(Turn(do, now_s, found, msgspec.Raw(events), group, picks, self._stopped()))
        self._turned()

    def _turned(self) -> None:
        self._n_turns += 1
        if self.gap:
            self._sink.skip()
        if self._sink.wants_segment and not self.ended:
            self._next_segment()

    def _write(self, record: Record) -> None:
        try:
            body = framed(record)
        except UNWRITABLE as error:
            self._fail(f"a record could not be written down: {error}")
            return
        if why := self._sink.put(body):
            self.gap, self._writes = why, False

    def _fail(self, why: str) -> None:
        self._sink.lose(why)
        self.gap, self._writes = why, False


def versions() -> dict[str, str]:
    """Returns the versions on which the core's arithmetic and order depend."""
    return {
        "gangsched": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "msgspec": msgspec.__version__,
        "machine": platform.machine(),
    }

"""Replaying: turns a journal into calls of a new core, and compares each answer.

The core is built as in the recorded process: configuration, plugins, random choices and plugin calls stopped
for their time come from the journal. Nothing is sent anywhere. The first answer that differs from the
recorded one ends the replay: what follows would be another day. Called by the command and tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from gangsched.config import SchedulerConfig, parse_config
from gangsched.core.framework.observer import Observer
from gangsched.core.framework.profile import Profile
from gangsched.core.groups.attempts.extenders import ExtenderVerdicts
from gangsched.core.scheduler import Scheduler
from gangsched.core.turns.steps import Defect
from gangsched.errors import ConfigError, GangschedError, ParseError
from gangsched.extenders.asking import verdicts_of
from gangsched.extension.budget import TurnBudget
from gangsched.extension.loading import KnownPlugins
from gangsched.journal.records import End, Reconfigured, Record, Start, State, Turn, digest, read_events
from gangsched.journal.state import Given, read_state
from gangsched.journal.unobserved import observer_of
from gangsched.model.effects import BindPod, Effect
from gangsched.model.events import Event
from gangsched.model.text.printable import clean
from gangsched.plugins import build_profiles

AnswerT = TypeVar("AnswerT")


class Divergence(GangschedError):
    """The core's answer differs from the recorded one. effects: its answer now."""

    def __init__(self, message: str, *, at_s: float, effects: Sequence[Effect] = ()) -> None:
        self.at_s = at_s
        self.effects = tuple(effects)
        super().__init__(message)


class Played(msgspec.Struct):
    """What has been replayed so far. ended: why the journal ends, as recorded."""

    n_turns: int = 0
    n_events: int = 0
    n_effects: int = 0
    n_bound: int = 0
    now_s: float = 0.0
    ended: str = ""


class _Stopped(TurnBudget):
    """Stops the calls that were recorded as stopped, without measuring time."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.calls: frozenset[int] = frozenset()

    def arm(self) -> None:
        """Does nothing, as nothing is sampled."""

    def begin(self, calls: Iterable[int]) -> None:
        """Begins a turn in which these calls are stopped, counted from 1."""
        self.n_calls = 0
        self.calls = frozenset(calls)

    def call(
        self, plugin: str, point: str, method: Callable[..., AnswerT], *args: Any, **kwargs: Any
    ) -> AnswerT:
        if self.n_calls + 1 in self.calls:
            self.n_calls += 1
            raise self.over_budget(plugin, point)
        return super().call(plugin, point, method, *args, **kwargs)


class _Picks:
    """Repeats random choices. compares: a different question is an error; else the first option is taken."""

    def __init__(self, *, compares: bool) -> None:
        self._compares = compares
        self._left: Iterator[int] = iter(())

    def begin(self, picks: Sequence[int]) -> None:
        self._left = iter(picks)

    def __call__(self, n: int) -> int:
        recorded, at = next(self._left, 0), next(self._left, 0)
        if recorded != n or not 0 <= at < n:
            if not self._compares:
                return 0
            raise _OtherChoice(f"{n} nodes are equally good; recorded: {recorded or 'none'}")
        return at

    @property
    def is_spent(self) -> bool:
        return next(self._left, None) is None


class _OtherChoice(BaseException):
    """Not an Exception, so that code that contains the faults of one object does not catch it."""


class Listener(Protocol):
    """Observes a replay without changing it."""

    def observer(self, observed: str) -> Observer:
        """Returns the stand-in for the recorded core's observer: no, yes, or calls of plugins too."""
        ...

    def began(self, events: Sequence[Event], now_s: float) -> None:
        """A call is about to be made."""
        ...

    def ended(self, effects: Sequence[Effect]) -> None:
        """The call was answered."""
        ...


class Replay:
    """One process's journal, call by call."""

    def __init__(
        self,
        start: Start,
        *,
        plugin_files: Sequence[str] = (),
        listener: Listener | None = None,
        compares: bool = True,
    ) -> None:
        """plugin_files: out-of-tree plugins of the recorded configuration. compares: whether a differing
        answer ends it; a different order of groups always does. Raises: ConfigError.
        """
        self.start = start
        self._budget = _Stopped()
        self._compares = compares
        self._picks = _Picks(compares=compares)
        self._known = KnownPlugins(plugin_files, budget=self._budget)
        self.config = self._read(start.config, start.plugins)
        self._extenders = _extenders(self.config)
        self.defects: list[Defect] = []
        """Bugs of our own that the core has contained."""
        self._listener = listener
        observer = observer_of(start.observed) if listener is None else listener.observer(start.observed)
        self._given = Given(observer, self._picks, self.defects.append)
        self.scheduler = self.build(self._given)
        self.played = Played(now_s=start.now_s)
        self.began_s = time.perf_counter()
        self.events: Sequence[Event] = ()
        """The events of the last call."""

    def build(self, given: Given) -> Scheduler:
        """Makes a new core with the configuration in effect."""
        return Scheduler(
            self._profiles(self.config),
            self.config.settings,
            leading=self.start.leading,
            extenders=self._extenders,
            wall_ahead_s=round(self.start.wall_s - self.start.now_s, 3),
            **given._asdict(),
        )

    @property
    def n_turns(self) -> int:
        """Calls since the recorded process began, including those before this replay."""
        return self.start.n_before + self.played.n_turns

    @property
    def ago_s(self) -> float:
        """What to add to the core's clock for the time of day, in seconds since 1970."""
        return self.start.wall_s - self.start.now_s

    def play(self, record: Record) -> list[Effect]:
        """Makes one call; returns its effects. Raises: Divergence, ConfigError (an unreadable record)."""
        self.events = ()
        if isinstance(record, Turn):
            return self._turn(record)
        if isinstance(record, Reconfigured):
            return self._reconfigure(record)
        if isinstance(record, End):
            self.played.ended = record.why
            return []
        if isinstance(record, State):
            self._remember(record)
        return []  # a segment continues the previous one

    def _remember(self, state: State) -> None:
        """Restores the state at a segment's beginning, unless replaying an earlier segment led here."""
        if self.played.n_turns:
            return
        if self._listener is not None and self.start.observed == "no":
            raise ConfigError(
                "the recorded process had neither pages nor traces, so that its state does not say what they"
                " need: begin where its journal begins"
            )
        try:
            read_state(state.body, self.scheduler, self._given)
        except ParseError as error:
            raise ConfigError(f"the journal's state {clean(str(error))}") from None

    def _turn(self, turn: Turn) -> list[Effect]:
        played = self.played
        try:
            events = read_events(turn.events) if turn.do == "handle" else []
        except ParseError as error:
            raise ConfigError(f"call {played.n_turns + 1} of a journal {error}") from None
        self.events = events
        self._picks.begin(turn.picks)
        self._budget.begin(turn.stopped)
        if self._listener is not None:
            self._listener.began(events, turn.now_s)
        try:
            effects = self._call(turn, events)
        except _OtherChoice as error:
            raise Divergence(self._where(turn, str(error)), at_s=turn.now_s) from None
        if self._compares and not self._picks.is_spent:
            raise Divergence(self._where(turn, "fewer choices among equals"), at_s=turn.now_s)
        played.n_turns += 1
        played.n_events += len(events)
        if self._listener is not None:
            self._listener.ended(effects)
        self._compare(turn, effects, turn.effects)
        return effects

    def _call(self, turn: Turn, events: Sequence[Any]) -> list[Effect]:
        scheduler = self.scheduler
        if turn.do == "handle":
            effects = scheduler.handle(events, turn.now_s)
            scheduler.newly_watched()  # as the process does after every batch
            return effects
        if turn.do == "advance":
            return scheduler.advance(turn.now_s)
        group = scheduler.pop()
        if group is None or group.key != turn.group:
            now = "none" if group is None else str(group.key)
            raise Divergence(self._where(turn, f"the next group is {now}"), at_s=turn.now_s)
        return scheduler.schedule(group, turn.now_s)

    def _reconfigure(self, record: Reconfigured) -> list[Effect]:
        self.config = self._read(record.config, record.plugins)
        profiles = self._profiles(self.config)
        if self._listener is not None:
            self._listener.began((), record.now_s)
        self._budget.begin(record.stopped)
        effects, more = self.scheduler.reconfigure(profiles, self.config.settings, record.now_s)
        self.played.n_turns += 1
        if self._listener is not None:
            self._listener.ended(effects)
        self._compare(record, effects, record.effects, more)
        return effects

    def _compare(
        self, record: Turn | Reconfigured, effects: Sequence[Effect], recorded: str, more: Sequence[str] = ()
    ) -> None:
        played = self.played
        played.now_s = record.now_s
        if self._compares and digest(effects, more) != recorded:
            found = f"{len(effects)} effect(s), which are not those recorded"
            raise Divergence(self._where(record, found), at_s=record.now_s, effects=effects)
        played.n_effects += len(effects)
        played.n_bound += sum(isinstance(effect, BindPod) for effect in effects)

    def _where(self, record: Turn | Reconfigured, what: str) -> str:
        do = record.do if isinstance(record, Turn) else "reconfigure"
        about = f" of {record.group}" if isinstance(record, Turn) and record.group is not None else ""
        return f"call {self.played.n_turns + 1}, {do}{about}: {what}"

    def _read(self, text: str, plugins: dict[str, str]) -> SchedulerConfig:
        """Raises: ConfigError."""
        check_plugins(plugins, self._known)
        config = parse_config(text, source="the journal's configuration", plugins=self._known)
        self._budget.budget_s = config.settings.plugin_budget_s
        return config

    def _profiles(self, config: SchedulerConfig) -> dict[str, Profile]:
        return build_profiles(config, self._known.factories, extenders=self._extenders)


def check_plugins(plugins: Mapping[str, str], known: Collection[str]) -> None:
    """plugins: origins of the journal's plugins, by name. Raises: ConfigError (one is missing here)."""
    for name in sorted(plugins):
        if name not in known:
            raise ConfigError(
                f"the journal was recorded with the plugin {clean(name)} ({clean(plugins[name])}): give its"
                " file by --plugin, or install its package"
            )


def _extenders(config: SchedulerConfig) -> ExtenderVerdicts | None:
    """Returns the process' extenders without a connection: their answers are events."""
    return verdicts_of(config.extenders) if config.extenders else None

"""Recording: the current journal, begun at the start, or begun, bounded and ended by a reload.

Lives here: opening and closing journals. Not here: what is in them (gangsched.journal, which is loaded when
there is one). Called by command.scheduler, app.py and, through it, by reload.

| record, in the configuration | |
|---|---|
| another directory | the journal ends; one that begins with the core's state starts there |
| removed | the journal ends |
| other bounds | they apply from now on, to the same journal |
| a directory that cannot be written to | the configuration is rejected |
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import anyio.to_thread

from gangsched.config import SchedulerConfig
from gangsched.config.recording import RecordSettings
from gangsched.core.scheduler import Scheduler
from gangsched.process.loop import Decider

if TYPE_CHECKING:
    from gangsched.extension.loading import KnownPlugins
    from gangsched.journal.counted import Counted
    from gangsched.journal.recorder import Recorder, Sink
    from gangsched.journal.state import BuildCore
    from gangsched.journal.writing import DiskJournal


class Recorded(NamedTuple):
    """A core, and what it takes to make another: build, from a configuration. leading: at its beginning."""

    scheduler: Scheduler
    build: Callable[[SchedulerConfig], BuildCore]
    leading: bool
    known: KnownPlugins | None


class Recording:
    """At most one journal at a time."""

    def __init__(self, settings: RecordSettings | None = None, *, sink: Sink | None = None) -> None:
        """sink: written to instead of the directory in the settings. Raises: ConfigError."""
        self._settings = settings or RecordSettings()
        self._n_opened = 0
        self._journals: list[DiskJournal] = []
        """Journals that may still be written to."""
        self._sink = sink
        if self._sink is None and self._settings.directory:
            self._sink = self._open(self._settings, from_state=False)
        self._upcoming: DiskJournal | None = None
        self._recorder: Recorder | None = None

    @property
    def counted(self) -> Counted | None:
        """The counters of the current journal."""
        return None if self._recorder is None else self._recorder.counted

    @property
    def recorder(self) -> Recorder | None:
        """The recorder to call instead of the core."""
        return self._recorder

    def begin(self, core: Recorded, config: SchedulerConfig) -> Decider:
        """Call before the core is called for the first time; returns what to call instead of it."""
        return self._over(core, config, self._sink, from_state=False)

    def _over(
        self, core: Recorded, config: SchedulerConfig, sink: Sink | None, *, from_state: bool
    ) -> Decider:
        if sink is None:
            self._recorder = None
            return core.scheduler
        from gangsched.journal.recorder import Recorder

        self._recorder = Recorder(sink, core.scheduler.ties.pick, core.known)
        self._recorder.begin(core.scheduler, config, core.build, leading=core.leading, from_state=from_state)
        return self._recorder

    async def prepare(self, settings: RecordSettings) -> None:
        """Opens what `change` will need. Raises: ConfigError."""
        if self._upcoming is not None:  # from a reload that failed
            self._upcoming.close(0.0)
            self._upcoming = None
        if settings.directory and settings.directory != self._settings.directory:
            self._upcoming = await anyio.to_thread.run_sync(lambda: self._open(settings, from_state=True))

    def change(self, core: Recorded, config: SchedulerConfig) -> Decider:
        """Applies a configuration that is now in effect; returns what to call from now on."""
        before, self._settings = self._settings, config.record
        if before.directory == config.record.directory:
            for journal in self._journals:
                journal.change(config.record)
            return self._recorder or core.scheduler
        if self._recorder is not None:
            self._recorder.end("the configuration no longer asks for it", time.monotonic())
        for journal in self._journals:
            if journal is not self._upcoming:
                journal.close(0.0)
        upcoming, self._upcoming = self._upcoming, None
        return self._over(core, config, upcoming, from_state=True)

    def stop(self) -> None:
        """Ends the journal, as the scheduler stops."""
        if self._recorder is not None:
            self._recorder.end("the scheduler stopped", time.monotonic())

    def close(self, timeout_s: float) -> None:
        """Writes the waiting records, within that time."""
        until_s = time.monotonic() + timeout_s
        for journal in self._journals:
            journal.close(max(until_s - time.monotonic(), 0.0))

    def _open(self, settings: RecordSettings, *, from_state: bool) -> DiskJournal:
        """Raises: ConfigError."""
        from gangsched.journal.directory import process_name
        from gangsched.journal.writing import DiskJournal

        self._n_opened += 1
        opened = DiskJournal(settings, process_name(self._n_opened), from_state=from_state)
        self._journals = [one for one in self._journals if one.is_open] + [opened]
        return opened

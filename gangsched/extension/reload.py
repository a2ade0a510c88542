"""Reload: applies a new configuration to a running scheduler, or keeps the old one and logs why.

On SIGHUP, and when the file has changed (two looks, a second apart, see the same; a ConfigMap's swapped link
counts). Lives here: when to read it, which parts need a restart, the order of applying it. Not here: the
core's part (core.turns.reconfigure). Called by process.app.

| | |
|---|---|
| invalid | the old one stays; the log says where it is wrong |
| valid, unchanged | nothing |
| a plugin reads a kind that we may not list | the old one stays; the log says which |
| a directory of `record` cannot be written to | the old one stays; the log says why |
| a removed profile still has gangs binding | they are bound or unwound by it as it was, and none begins |
| valid | it is in effect from the next turn on, kinds that its plugins read are followed; /configz shows it |
| leaderElection, clientConnection, tracing, extenders, parallelism, … | at the next start; the log says so |

Flags (ports, certificates, --plugin, --leader-elect…) stay as they are; code of plugins is not reloaded.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Protocol

import anyio
import structlog
from msgspec.structs import fields, replace

from gangsched.config import SchedulerConfig, Settings
from gangsched.config.recording import RecordSettings
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.extension.source import ConfigSource
from gangsched.model.effects import Effect
from gangsched.model.text.printable import in_words
from gangsched.plugins import metrics_server_s
from gangsched.signals import take_hang_up

_log = structlog.get_logger(__name__)

LOOK_S = 1.0
_LEAVE_STEP_S = 0.05
_SAY_S = 10.0
# Other parts of the process were built from these and cannot be rebuilt while it runs.
_AT_START = ("leader_election", "client_connection", "tracing", "extenders")
_SETTINGS_AT_START = ("parallelism", "reporting_controller", "invalid_inventory", "devices", "fence")


class Host(Protocol):
    """The parts of the process that a configuration affects."""

    config: SchedulerConfig
    scheduler: Scheduler

    def build(self, config: SchedulerConfig) -> dict[str, Profile]:
        """Builds the profiles. Raises: ConfigError."""
        ...

    def reconfigure(
        self, profiles: dict[str, Profile], config: SchedulerConfig
    ) -> tuple[Sequence[Effect], Sequence[str]]:
        """Puts `config` into effect; returns effects, and the kinds to follow too."""
        ...

    def submit(self, effects: Sequence[Effect]) -> None: ...

    def wake(self) -> None:
        """Wakes the loop: there may be something to decide that no event brings."""
        ...

    def follow(self, kinds: Sequence[str]) -> None:
        """Follow these kinds too, from now on."""
        ...

    async def may_follow(self, kinds: Sequence[str]) -> None:
        """Checks that we may list these kinds. Raises: ConfigError, for one that we may not."""
        ...

    async def may_record(self, settings: RecordSettings) -> None:
        """Checks the directory of the recording. Raises: ConfigError, if it cannot be written to."""
        ...

    def ask_metrics_server(self, period_s: float) -> None:
        """Poll metrics-server this often from now on; 0: not at all."""
        ...

    def emit_all_pods(self) -> None:
        """Emit all pods again: some that were skipped belong to a profile now."""
        ...


class Reload:
    """Counters: n_taken, n_refused. `error`: the file's current mistake, "" for none."""

    def __init__(self, source: ConfigSource, host: Host) -> None:
        self._source = source
        self._host = host
        self._wanted = anyio.Event()
        self._why = ""
        self._profiles: dict[str, Profile] = {}
        """The profiles that were taken over last."""
        self.n_taken = 0
        self.n_refused = 0
        self.error = ""

    @property
    def counted(self) -> tuple[int, int, bool]:
        """n_taken, n_refused, and whether the file is right."""
        return self.n_taken, self.n_refused, not self.error

    async def run(self, *, on_signals: bool = True) -> None:
        """Runs until cancelled."""
        async with anyio.create_task_group() as group:
            if on_signals:
                group.start_soon(self._watch_signals)
            if self._source.path:
                group.start_soon(self._look)
            while True:
                await self._wanted.wait()
                self._wanted = anyio.Event()
                await self.read(self._why)

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGHUP) as signals:
            if take_hang_up():
                self._hang_up()
            async for _ in signals:
                self._hang_up()

    def _hang_up(self) -> None:
        self._why = "SIGHUP"
        self._wanted.set()

    async def _look(self) -> None:
        stamp = before = self._source.first_stamp
        while True:
            await anyio.sleep(LOOK_S)
            now = self._source.stamp()
            # The file may be gone for a moment while it is replaced, or half written, which may be valid by
            # itself.
            if now is not None and now != stamp and now == before:
                stamp = now
                self._why = "the file has changed"
                self._wanted.set()
            before = now

    async def read(self, why: str) -> None:
        """Reads, checks and takes over the configuration. Returns when no profile that it removes is in
        effect, or another configuration is to be read."""
        await self._read(why)
        await self._leave()

    async def _read(self, why: str) -> None:
        try:
            # The longest take seconds, and the loop has a lease to renew.
            extenders = self._host.config.extenders
            config = await anyio.to_thread.run_sync(lambda: self._source.read(extenders=extenders))
            config, later = at_next_start(self._host.config, config)
            if config == self._host.config:
                self.error = ""
                self._say_later(later)
                _log.info("configuration read again, nothing changes now", why=why, file=self._source.path)
                return
            profiles = self._host.build(config)
            await self._host.may_follow(self._host.scheduler.unfollowed(profiles, config.settings))
            await self._host.may_record(config.record)
        except ConfigError as error:
            self._refused(why, str(error))
            return
        except Exception as error:  # a mistake of ours in reading it must not end what runs
            self._refused(why, f"{self._source.path}: {in_words(error)}")
            return
        before, self._profiles = self._host.config, profiles
        effects, more = self._host.reconfigure(profiles, config)
        self._host.follow(more)
        self._host.submit(effects)
        self._host.wake()
        self._host.ask_metrics_server(metrics_server_s(profiles))
        if {profile.scheduler_name for profile in before.profiles}.symmetric_difference(profiles):
            self._host.emit_all_pods()
        self.n_taken += 1
        self.error = ""
        self._say_later(later)
        for note in config.notes:
            _log.info("note", note=note)
        _log.info("another configuration is in effect", why=why, profiles=sorted(profiles))

    def _refused(self, why: str, error: str) -> None:
        self.n_refused += 1
        self.error = error
        _log.error("the configuration is wrong; the old one stays in effect", why=why, err=error)

    async def _leave(self) -> None:
        """Waits until no gang of a removed profile is on its way to be bound."""
        say_at_s = time.monotonic() + _SAY_S
        # Polled, as it is seldom and short: a signal from the core would cost every group something.
        while self._host.scheduler.is_retiring and not self._wanted.is_set():
            unfinished = self._host.scheduler.unfinished(self._profiles)
            if not unfinished:
                effects, _ = self._host.reconfigure(self._profiles, self._host.config)
                self._host.submit(effects)
                self._host.wake()
                return
            if time.monotonic() >= say_at_s:
                say_at_s = time.monotonic() + _SAY_S
                names = [str(group.key) for group in unfinished[:5]]
                _log.info(
                    "gangs of a profile that is gone from the configuration are still being bound",
                    gangs=names,
                )
            await anyio.sleep(_LEAVE_STEP_S)

    def _say_later(self, later: Sequence[str]) -> None:
        if later:
            _log.warning("these take effect only at the next start", fields=", ".join(later))


def at_next_start(now: SchedulerConfig, new: SchedulerConfig) -> tuple[SchedulerConfig, list[str]]:
    """`new` as far as a running process can apply it, and the fields that need a restart."""
    kept = {name: getattr(now, name) for name in _AT_START if getattr(now, name) != getattr(new, name)}
    settings = {
        name: getattr(now.settings, name)
        for name in _SETTINGS_AT_START
        if getattr(now.settings, name) != getattr(new.settings, name)
    }
    merged = replace(new, **kept, settings=replace(new.settings, **settings))
    return merged, [_in_file(name) for name in (*kept, *settings)]


def _in_file(name: str) -> str:
    assert name in {field.name for kind in (SchedulerConfig, Settings) for field in fields(kind)}
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)

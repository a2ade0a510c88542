"""One seed: scheduler processes in virtual time on a wire in memory, through a storm and into calm.

Lives here: processes that start, are killed and start again; the phases of a run; its verdict. The processes
are gangsched.process.app's own, whole: reflectors, lanes, election, inbox and core, in the order in which the
loop runs them.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random
from typing import NamedTuple

import msgspec
import structlog.testing
from msgspec.structs import replace
from structlog.typing import EventDict

from gangsched.config import SchedulerConfig, default_config
from gangsched.errors import InvariantError
from gangsched.journal.recorder import Sink
from gangsched.kube.access.credentials import Credentials
from gangsched.kube.access.loaders import Loaded, blank
from gangsched.lab.sim.wire.cluster import Cluster
from gangsched.lab.sim.wire.judge import EventJudge, Ledger
from gangsched.lab.sim.wire.loop import START_S, VirtualLoop, virtual_time
from gangsched.lab.sim.wire.network import MemoryNetwork
from gangsched.lab.sim.wire.server import ApiServer
from gangsched.lab.sim.wire.weather import STORM, Rates, Weather, shaken
from gangsched.model.effects import Effect
from gangsched.model.events import Event
from gangsched.plugins import IN_TREE
from gangsched.process.app import SchedulerApp
from gangsched.process.garbage_collection import GarbageCollection
from gangsched.process.recording import Recording

STORM_S = 30.0
# After faults stop: a silent watch is found after 25 s, a backoff ends after 30 s, a gang runs for 12 s.
REST_S = 400.0
STEP_S = 2.0
N_GANGS = 14
MAX_STORY = 600
# Functions between a turn's events and its effects on their way: of the core, its queue and the outbox.
_IN_A_TURN = {"handle", "advance", "schedule", "hear", "_advance", "put", "_turn_ended", "_events_handled"}


class Verdict(msgspec.Struct):
    """The result of one run. `digest` covers every byte on the wire, with its time."""

    seed: int
    problems: list[str]
    story: list[str]
    digest: str
    n_requests: int
    n_processes: int
    virtual_s: float
    fates: dict[str, int]
    watch_fates: dict[str, int]
    outcomes: dict[str, int]
    n_collected: dict[str, int]
    """Garbage collections: young, full."""


class _WatchedApp(SchedulerApp):
    """The scheduler process itself; its inbox and effects are observed."""

    event_judge: EventJudge

    def _turn_ended(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        if effects and self.leadership.may_act():
            self.event_judge.sent(effects)
        return super()._turn_ended(effects)

    def _events_handled(self, events: Sequence[Event]) -> None:
        self.event_judge.received(events)
        self.scheduler.validate()
        super()._events_handled(events)


class _Process:
    """One scheduler process and its network."""

    def __init__(self, run: _Run, number: int, config: SchedulerConfig) -> None:
        self.number = number
        self.network = MemoryNetwork(run.loop, run.weather, run.server.accept, run.record)
        credentials = credentials_for(self.network, run.loop)
        recording = None if run.journal is None else Recording(sink=run.journal())
        self._n_new = 0
        self._run_of = run
        garbage = GarbageCollection(
            n_new=self._count, collect=self._collect, peak_memory=lambda: 1, freeze=lambda: None
        )
        seed = 1000 * run.seed + number
        self.app = _WatchedApp(config, credentials, seed=seed, recording=recording, garbage=garbage)
        self.event_judge = self.app.event_judge = EventJudge(run.ledger)
        self.task = run.loop.create_task(self._run())

    async def _run(self) -> int:
        return await self.app.run(on_signals=False)

    def _count(self) -> int:
        """Counts its own calls: a history must not depend on what Python has in memory."""
        self._n_new += 2_500
        return self._n_new

    def _collect(self, generation: int) -> int:
        """Collects nothing, and checks that it is not called within a turn."""
        self._n_new = 0
        is_full = generation == 2
        self._run_of.n_collected["full" if is_full else "young"] += 1
        callers = {frame.name for frame in traceback.extract_stack(limit=12)}
        if callers & _IN_A_TURN:
            self._run_of.problems.append(f"garbage is collected in a turn: {sorted(callers & _IN_A_TURN)}")
        if is_full and self.app.queue.idle_s(self._run_of.loop.time()) < 1.0:
            self._run_of.problems.append("everything is collected in a process that is not idle")
        return 0

    def die(self) -> None:
        """kill -9: its bytes arrive now or never, and it sends nothing more."""
        self.network.sever()
        self.task.cancel()

    def problems(self) -> Iterator[str]:
        """Violations that must never occur."""
        yield from self.event_judge.problems
        try:
            self.app.scheduler.validate()
        except InvariantError as error:
            yield f"core: {error}"

    def unrest(self, ledger: Ledger) -> Iterator[str]:
        """Violations of what must hold at rest."""
        yield from self.event_judge.at_rest()
        dispatcher = self.app.dispatcher
        waiting = (dispatcher.n_binds_waiting, dispatcher.n_binds_in_flight, dispatcher.n_waiting)
        if any(waiting):
            yield f"the lanes still have work: {waiting}"
        cache = self.app.scheduler.shared.cache
        cached = {uid: info.pod.metadata.resource_version for uid, info in cache.pods.items()}
        if cached != {uid: str(version) for uid, version in ledger.there.items()}:
            yield (
                f"cache-is-store: the cache has {sorted(cached.items())}, the store "
                f"{sorted(ledger.there.items())}"
            )


def credentials_for(network: MemoryNetwork, loop: VirtualLoop) -> Credentials:
    """Credentials for a server without authentication."""
    loaded = blank()
    loaded.host = "http://10.0.0.1"

    async def source() -> Loaded:
        return loaded

    return Credentials(source, loaded, clock=loop.look, network=network)


class _Slot:
    """Runs the processes of one name, one after the other."""

    def __init__(self) -> None:
        self.process: _Process | None = None


class _Run:
    def __init__(
        self,
        seed: int,
        loop: VirtualLoop,
        rates: Rates,
        n_gangs: int,
        logs: list[EventDict],
        journal: Callable[[], Sink] | None,
    ) -> None:
        self.seed = seed
        self.journal = journal
        self._logs = logs
        self.loop = loop
        self.rng = Random(f"{seed}-run")
        self.weather = Weather(Random(f"{seed}-weather"), rates)
        self.problems: list[str] = []
        self.n_collected = {"young": 0, "full": 0}
        self._story: deque[str] = deque(maxlen=MAX_STORY)
        self._digest = hashlib.sha256()
        self.server = ApiServer(loop, self.weather, seed=str(seed), note=self.note)
        self.ledger = Ledger(self.server)
        self.cluster = Cluster(self.server, seed=str(seed), n_gangs=n_gangs, over_s=STORM_S * 0.8)
        self.cluster.more_mischief += [self._kill_one, self._end_one, self._set_clock]
        leader_elect = self.rng.random() < 0.5
        config = default_config(IN_TREE, election_flags={"leader_elect": leader_elect})
        # With few connections binds wait, and some share one.
        settings = replace(config.settings, parallelism=self.rng.choice((1, 2, 4, 16)))
        self._config = replace(config, settings=settings)
        self._all: list[_Process] = []
        self._endings: list[asyncio.Task[None]] = []
        self._slots = [_Slot() for _ in range(self.rng.randint(1, 2) if leader_elect else 1)]
        for slot in self._slots:
            self._start(slot)

    # -- what is noted ---------------------------------------------------------------------------------

    def note(self, line: str) -> None:
        self._story.append(f"{self.loop.time():9.4f} {line}")

    def record(self, number: int, way: bytes, data: bytes) -> None:
        self._digest.update(b"%.6f %d %b %b" % (self.loop.time(), number, way, data))

    # -- processes -------------------------------------------------------------------------------------

    def _start(self, slot: _Slot) -> None:
        process = slot.process = _Process(self, len(self._all) + 1, self._config)
        self._all.append(process)
        self.note(f"process {process.number} starts")

    def _kill_one(self) -> None:
        slot = self.rng.choice(self._slots)
        if slot.process is not None:
            self.note(f"process {slot.process.number} is killed")
            slot.process.die()
            self._start_later(slot)

    def _end_one(self) -> None:
        """SIGTERM amid the storm, as in a rolling update; _look starts another once it has ended."""
        process = self.rng.choice(self._slots).process
        if process is not None:
            self.note(f"process {process.number} is asked to end")
            grace_s = self.rng.choice((0.0, 1.0, 10.0))
            self._endings.append(self.loop.create_task(process.app.stop(grace_s)))

    def _start_later(self, slot: _Slot) -> None:
        slot.process = None
        self.loop.call_later(self.rng.uniform(0.1, 3.0), self._start, slot)

    def _set_clock(self) -> None:
        self.loop.wall_offset_s = self.rng.choice((-3600.0, 0.0, 3600.0))

    # -- the run ---------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Plays storm, calm, a clean stop; ends with the first problem."""
        while self.loop.time() < START_S + STORM_S:
            await asyncio.sleep(STEP_S / 4)
            if self._look():
                return
        self.note("faults stop")
        self.weather.clear()
        self.cluster.stop_mischief()
        calm_s = self.loop.time()
        while unrest := list(self._unrest()):
            await asyncio.sleep(STEP_S)
            if self._look():
                return
            if self.loop.time() > calm_s + REST_S:
                self.problems += [
                    f"nothing-starves: no rest {REST_S:g} s after faults stopped: {one}" for one in unrest
                ]
                return
        await self._stop()

    def _unrest(self) -> Iterator[str]:
        if left := self.ledger.not_done():
            yield f"not run to their end: {left}"
        for slot in self._slots:
            if slot.process is None:
                yield "a scheduler is down"
            else:
                yield from slot.process.unrest(self.ledger)

    def _look(self) -> bool:
        """Whether there is a violation; restarts a process that has ended or lost its lease."""
        self.problems += self.server.problems + self.ledger.problems + self.loop.failures
        self.problems += [f"logged: {one['err']}" for one in self._logs if _is_nonsense(one.get("err", ""))]
        self._logs.clear()
        for process in self._all:
            self.problems += process.problems()
            task = process.task
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.problems.append(f"process {process.number} has died of {task.exception()!r}")
        for ending in self._endings:
            if ending.done() and ending.exception() is not None:
                self.problems.append(f"a process could not end: {ending.exception()!r}")
        for slot in self._slots:
            current = slot.process
            if current is not None and current.task.done() and not self.problems:
                self.note(f"process {current.number} has ended or lost the lease")
                self._start_later(slot)
        return bool(self.problems)

    async def _stop(self) -> None:
        """Stops the processes, as SIGTERM does: everything is answered, and nothing is left over."""
        for slot in self._slots:
            if slot.process is not None:
                await slot.process.app.stop(10.0)
                if code := await slot.process.task:
                    self.problems.append(f"exit code {code} after a clean stop")
        self._look()
        n_open = sum(process.network.n_open for process in self._all)
        if n_open:
            self.problems.append(f"{n_open} sockets are left open")
        tasks = [task for task in asyncio.all_tasks(self.loop) if task is not asyncio.current_task()]
        if tasks:
            self.problems.append(f"tasks are left: {tasks}")

    def verdict(self) -> Verdict:
        outcomes: dict[str, int] = {}
        for process in self._all:
            for name, n in process.event_judge.n_outcomes.items():
                outcomes[name] = outcomes.get(name, 0) + n
        return Verdict(
            seed=self.seed,
            problems=self.problems,
            story=list(self._story),
            digest=self._digest.hexdigest(),
            n_requests=self.server.n_requests,
            n_processes=len(self._all),
            virtual_s=self.loop.time() - START_S,
            fates=self.server.fates,
            watch_fates=self.server.watch_fates,
            outcomes=outcomes,
            n_collected=self.n_collected,
        )


def _is_nonsense(text: str) -> bool:
    """Whether a log finds fault with an answer that is neither cut nor sent twice: the server writes correct
    HTTP."""
    return "makes no sense" in text and not text.endswith(("an answer to nothing", "than one answer has"))


def run_seed(
    seed: int,
    *,
    rates: Rates = STORM,
    without: Collection[str] = (),
    n_gangs: int = N_GANGS,
    journal: Callable[[], Sink] | None = None,
) -> Verdict:
    """Play one seed; `problems` is empty if every invariant held. `without`: faults that are left out.

    journal: makes what each process records into.
    """
    thresholds = gc.get_threshold()
    weather = shaken(rates, Random(f"{seed}-rates")).without(without)
    with structlog.testing.capture_logs() as logs, virtual_time() as loop:
        run = _Run(seed, loop, weather, n_gangs, logs, journal)
        try:
            loop.run_until_complete(run.play())
        finally:
            gc.set_threshold(*thresholds)  # a process sets them for its whole life; here are many in one
        return run.verdict()


class Shrunk(NamedTuple):
    """The smallest case that still fails: this many gangs, and only these faults."""

    verdict: Verdict
    n_gangs: int
    faults: tuple[str, ...]


def shrink(failed: Verdict, *, rates: Rates = STORM) -> Shrunk:
    """Leave out one fault after the other, then gangs from the last on, as long as it still fails."""
    n_gangs = N_GANGS
    without: list[str] = []
    for name in shaken(rates, Random(f"{failed.seed}-rates")).faults:
        tried = run_seed(failed.seed, rates=rates, without=(*without, name))
        if tried.problems:
            failed = tried
            without.append(name)
    while n_gangs > 1:
        tried = run_seed(failed.seed, rates=rates, without=without, n_gangs=n_gangs - 1)
        if not tried.problems:
            break
        failed, n_gangs = tried, n_gangs - 1
    left = shaken(rates, Random(f"{failed.seed}-rates")).without(without).faults
    return Shrunk(failed, n_gangs, left)

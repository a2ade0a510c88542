"""An hour on a real kube-apiserver, recorded by two replicas and replayed equal.

Gangs come and go; replicas are killed, paused beyond their lease, told to end; their configuration changes,
that of the journal too; their disks are full for a while; proxies cut, stall and refuse what passes. Each
process' journal is played again when it has ended, and must be as recorded to its end, on both sides of each
gap. An hour: GANGSCHED_RECORD_MINUTES=60; another day: GANGSCHED_RECORD_SEED.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from gangsched.errors import ApiError
from tests.real.cluster import CORE_GROUPS, COSCHEDULING_GROUPS, DIALECTS, PODS, Cluster
from tests.real.picture import Checker
from tests.real.process import STOP_S
from tests.real.replicas import (
    PAUSE_S,
    Replayed,
    Replica,
    healed,
    replay,
    wire_faults,
)

pytestmark = pytest.mark.real

MINUTES = float(os.environ.get("GANGSCHED_RECORD_MINUTES", "0.1"))
SEED = int(os.environ.get("GANGSCHED_RECORD_SEED", "20"))
MOST_GANGS = 14
GROUPS = {"core": CORE_GROUPS, "coscheduling": COSCHEDULING_GROUPS}
_SAY_S = 60.0


class Day:
    """What happens, by a seed; `seen` counts it."""

    def __init__(self, cluster: Cluster, replicas: list[Replica], rng: Random) -> None:
        self.cluster = cluster
        self.replicas = replicas
        self.rng = rng
        self.seen: Counter[str] = Counter()
        self._gangs: dict[str, str] = {}
        self._n_gangs = 0
        self._undo: list[tuple[float, Callable[[], object]]] = []
        self._restart_s = [0.0, 0.0]
        self._checker = Checker(cluster.inventory, cluster.ours)
        self._to_come: list[Callable[[], str]] = []

    # -- churn -------------------------------------------------------------------------------------------

    def churn(self) -> None:
        rng = self.rng
        if len(self._gangs) < MOST_GANGS and rng.random() < 0.6:
            self.gang(rng.randint(1, 6), rng.choice((1, 2, 4, 8)))
        elif self._gangs and rng.random() < 0.6:
            self.gone(rng.choice(list(self._gangs)))

    def gang(self, pods: int, gpus: int) -> str:
        name, self._n_gangs = f"g{self._n_gangs}", self._n_gangs + 1
        dialect = self._gangs[name] = self.rng.choice(DIALECTS)
        self.cluster.gang(name, pods=pods, gpus=gpus, dialect=dialect)
        return name

    def gone(self, name: str) -> None:
        """Not waited for: the next thing happens meanwhile."""
        plane, dialect = self.cluster.plane, self._gangs.pop(name)
        del self.cluster.gangs[name]
        paths = [f"{PODS}/{pod['metadata']['name']}" for pod in self.cluster.members(name)]
        if dialect in GROUPS:
            paths.append(f"{GROUPS[dialect]}/{name}")
        for path in paths:
            try:
                plane.request("DELETE", path, {"gracePeriodSeconds": 0})
            except ApiError as error:
                if error.code != 404:
                    raise

    # -- what happens to replicas ------------------------------------------------------------------------

    def disturb(self) -> None:
        """Everything once, in some order, then everything again."""
        if not self._to_come:
            self._to_come = [
                *(self._killed, self._reloaded, self._cut, self._unrecorded, self._full, self._paused),
                *(self._wrong, self._cut, self._ended, self._reloaded, self._cut, self._elsewhere),
            ]
            if MINUTES > 1:
                self.rng.shuffle(self._to_come)
        self.seen[self._to_come.pop(0)()] += 1

    def _later(self, in_s: float, what: Callable[[], object]) -> None:
        self._undo.append((time.monotonic() + in_s, what))

    def _one(self) -> Replica:
        """The leader, more often than the other."""
        leaders = [one for one in self.replicas if one.leads]
        return leaders[0] if leaders and self.rng.random() < 0.7 else self.rng.choice(self.replicas)

    def _signal(self, number: int) -> str:
        one = self._one()
        if one.running is None:
            return "nobody was there"
        who = "leader" if one.leads else "follower"
        one.running.process.send_signal(number)
        if number == signal.SIGSTOP:
            process = one.running.process
            self._later(PAUSE_S, lambda: process.send_signal(signal.SIGCONT))
        return f"{signal.Signals(number).name} to the {who}"

    def _killed(self) -> str:
        return self._signal(signal.SIGKILL)

    def _paused(self) -> str:
        return self._signal(signal.SIGSTOP)

    def _ended(self) -> str:
        return self._signal(signal.SIGTERM)

    def _reloaded(self) -> str:
        self._one().write_config(self.rng, recorded="a")
        return "another configuration"

    def _elsewhere(self) -> str:
        one = self._one()
        one.write_config(self.rng, recorded=self.rng.choice("bc"))
        return "the journal is to be elsewhere"

    def _unrecorded(self) -> str:
        one = self._one()
        one.write_config(self.rng, recorded="")
        self._later(self.rng.uniform(3.0, 6.0), lambda: one.write_config(self.rng, recorded="a"))
        return "the journal is switched off and on"

    def _wrong(self) -> str:
        one = self._one()
        one.write_wrong_config()
        self._later(3.0, lambda: one.write_config(self.rng, recorded="a"))
        return "a wrong configuration"

    def _full(self) -> str:
        one = self._one()
        if not one.is_small:
            return "no disk could be made full"
        one.fill()
        self._later(self.rng.uniform(2.0, 5.0), one.make_room)
        return "a disk is full"

    def _cut(self) -> str:
        one = self._one()
        name, fault = self.rng.choice(sorted(wire_faults(self.rng).items()))
        one.door.do(fault)
        self._later(self.rng.uniform(2.0, 6.0), lambda: one.door.do(healed))
        return f"proxy: {name}"

    def tend(self) -> None:
        """What is due is done; who has ended is replaced."""
        now_s = time.monotonic()
        due = [what for at_s, what in self._undo if at_s <= now_s]
        self._undo = [one for one in self._undo if one[0] > now_s]
        for what in due:
            what()
        for number, one in enumerate(self.replicas):
            if one.scheduler is not None and one.running is None:
                one.bury()
                self._restart_s[number] = now_s + self.rng.uniform(0.5, 3.0)
            if one.scheduler is None and now_s >= self._restart_s[number]:
                one.start()
        for done in self.replays():
            assert done.code == 0, f"{done.folder}: {done.said}"

    def replays(self) -> list[Replayed]:
        """Those that are done."""
        futures = [future for one in self.replicas for future in one.replays]
        return [future.result() for future in futures if future.done()]

    def look(self) -> None:
        """What the watch has shown is checked, and forgotten."""
        picture = self.cluster.picture
        assert not picture.trouble, picture.trouble
        for sight in picture.taken():
            self._checker.see(sight)

    # -- the whole ---------------------------------------------------------------------------------------

    def play(self, lasts_s: float) -> None:
        began_s = time.monotonic()
        disturb_s, say_s = began_s + 3.0, began_s + _SAY_S
        while (now_s := time.monotonic()) < began_s + lasts_s:
            self.churn()
            self.tend()
            if now_s >= disturb_s:
                self.disturb()
                disturb_s = now_s + (self.rng.uniform(5.0, 18.0) if MINUTES > 1 else 1.2)
            if now_s >= say_s:
                say_s = now_s + _SAY_S
                self.look()
                print(f"{now_s - began_s:.0f} s: {self.told()}", flush=True)
            time.sleep(self.rng.uniform(0.1, 0.6))

    def rest(self) -> str:
        """Faults end; all gangs go, another comes and is bound; the replicas stop."""
        for one in self.replicas:
            one.door.do(healed)
            one.make_room()
        for name in list(self._gangs):
            self.gone(name)
        last = self.gang(2, 4)

        def is_bound() -> bool:
            self.tend()
            return not self._undo and self.cluster.n_bound(last) >= self.cluster.gangs[last]

        self.cluster.eventually(is_bound, f"{last} is bound", timeout_s=180.0)
        for one in self.replicas:
            if one.running is not None:
                one.running.stop(timeout_s=STOP_S)
                one.bury()
        self.look()
        return last

    def told(self) -> str:
        done = self.replays()
        calls, events, effects, binds = (sum(one.numbers[column] for one in done) for column in range(4))
        logs = self.replicas[0].seen + self.replicas[1].seen
        return (
            f"{len(done)} processes' journals replayed, {calls:,} calls, {events:,} events, {effects:,}"
            f" effects, {binds:,} binds, all as recorded; done to them: {dict(self.seen)}; they said:"
            f" {dict(logs)}"
        )


@contextmanager
def a_day(cluster: Cluster, rng: Random) -> Iterator[Day]:
    made: list[Replica] = []
    try:
        for name in ("first", "second"):
            made.append(Replica(cluster.plane, cluster.directory, name))
            made[-1].write_config(rng, recorded="a")
        yield Day(cluster, made, rng)
    finally:
        for replica in made:
            replica.close()


@pytest.mark.timeout(60 * MINUTES + 3600)
def test_a_day_with_everything_in_it_is_replayed_equal(
    cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    print(f"seed {SEED}, {MINUTES:g} minutes")
    cluster.plane.kubectl("delete", "lease", "gangsched", "-n", "gangsched-system", "--ignore-not-found")
    cluster.nodes(5, gpus=8)
    with a_day(cluster, Random(SEED)) as day:
        day.play(60.0 * MINUTES)
        last = day.rest()
        for replica in day.replicas:
            for future in replica.replays:
                future.result(3600.0)
        done = day.replays()
        print(day.told(), flush=True)
        record_property("figure", f"{MINUTES:g} minutes, seed {SEED}: {day.told()}")
        for one in done:
            assert one.code == 0, f"{one.folder}: {one.said}"
        assert sum(one.numbers[3] for one in done) > 0
        if MINUTES > 1 and any(one.is_small for one in day.replicas):
            assert any(": a gap of" in one.said for one in done), "no gap was replayed"
        assert any(f"default/{last} has been bound for" in story_of(one.folder, last) for one in done)


def story_of(folder: Path, gang: str) -> str:
    """Its moves; "" where the journal does not have it."""
    return replay(folder, "--story", gang).said

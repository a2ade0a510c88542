"""Leader election: the table as scenarios in virtual time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gangsched.config import LeaderElectionSettings
from gangsched.kube.election.lease import Done, Election, ElectionState, LeaseRecord, Step, Wait
from gangsched.kube.election.steps import Create, Get, Update

SETTINGS = LeaderElectionSettings(True, 15.0, 10.0, 2.0)


class Store:
    """The API server's one Lease: writes are compare-and-swap."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.version = 0
        self.n_conflicts = 0

    def write(self, step: Create[LeaseRecord] | Update[LeaseRecord]) -> bool:
        held = "" if isinstance(step, Create) else step.version
        if held != ("" if self.record is None else str(self.version)):
            self.n_conflicts += 1
            return False
        self.record = step.record
        self.version += 1
        return True


class Contender:
    """One process: its own clocks, and what happens to its requests."""

    def __init__(self, world: World, name: str, *, ahead_s: float, wall_s: float) -> None:
        self._world = world
        self._ahead_s = ahead_s
        self.wall_s = wall_s
        self.name = name
        self.election = Election(name, SETTINGS, rng=Random(name))
        self.wakes_s = 0.0
        self.delay_s = 0.0
        """How long each answer takes."""
        self.loses_requests = False
        self.loses_answers = False
        self.paused = False
        self._answer_at_s: float | None = None
        self._asked: Step = Get()
        self._answer: Any = None

    @property
    def now_s(self) -> float:
        """Its monotonic clock started at another time than the others'."""
        return self._world.now_s + self._ahead_s

    @property
    def holds(self) -> bool:
        return self.election.holds(self.now_s)

    def turn(self) -> None:
        """Hears an answer that is due, asks what is to be asked."""
        while True:
            if self._answer_at_s is not None:
                if self._world.now_s < self._answer_at_s:
                    self.wakes_s = self._answer_at_s
                    return
                self._answer_at_s = None
                self._hear()
            step = self.election.next(self.now_s, f"wall {self.wall_s + self._world.now_s:.3f}")
            if isinstance(step, Done):
                self.wakes_s = float("inf")
                return
            if isinstance(step, Wait):
                # Never at once: the difference of the two clocks is rounded.
                self.wakes_s = max(step.until_s - self._ahead_s, self._world.now_s + 1e-6)
                return
            self._ask(step)

    def _ask(self, step: Get | Create[LeaseRecord] | Update[LeaseRecord]) -> None:
        store = self._world.store
        self._asked, self._answer = step, None
        if not self.loses_requests:
            if isinstance(step, Get):
                self._answer = ("found", store.record, str(store.version)) if store.record else ("absent",)
            elif store.write(step):
                self._answer = ("written", str(store.version))
        if self.loses_answers:
            self._answer = None
        silence_s = SETTINGS.renew_deadline_s / 2 if self.loses_requests or self.loses_answers else 0.0
        self._answer_at_s = self._world.now_s + max(self.delay_s, silence_s, 0.001)

    def _hear(self) -> None:
        kind, *rest = self._answer or ("failed",)
        getattr(self.election, kind)(*rest, self.now_s)


class World:
    """Contenders around one store; checks at every step that at most one of them may act."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.store = Store()
        self.contenders: list[Contender] = []
        self.led: list[tuple[float, str]] = []

    def join(self, name: str, *, ahead_s: float = 0.0, wall_s: float = 0.0) -> Contender:
        contender = Contender(self, name, ahead_s=ahead_s, wall_s=wall_s)
        contender.wakes_s = self.now_s
        self.contenders.append(contender)
        return contender

    def run(self, for_s: float) -> None:
        end_s = self.now_s + for_s
        while True:
            awake = [one for one in self.contenders if not one.paused]
            first = min(awake, key=lambda one: (one.wakes_s, one.name), default=None)
            if first is None or first.wakes_s > end_s:
                break
            self.now_s = max(self.now_s, first.wakes_s)
            first.turn()
            self._check()
        self.now_s = end_s
        self._check()

    def _check(self) -> None:
        holders = [one.name for one in self.contenders if one.holds]
        assert len(holders) <= 1, f"{holders} lead at {self.now_s}"
        if holders and (not self.led or self.led[-1][1] != holders[0]):
            self.led.append((self.now_s, holders[0]))

    @property
    def record(self) -> LeaseRecord:
        assert self.store.record is not None
        return self.store.record


def leading(world: World) -> list[str]:
    return [one.name for one in world.contenders if one.holds]


# -- the table -----------------------------------------------------------------------------------------


def test_first_one_leads_and_the_second_follows() -> None:
    world = World()
    world.join("a")
    world.join("b", ahead_s=1e6)
    world.run(600.0)
    assert leading(world) == ["a"]
    assert world.record.transitions == 0
    assert world.record.duration_s == 15
    assert world.contenders[1].election.observed.holder == "a"


@pytest.mark.parametrize("seed", range(20))
def test_of_two_at_once_one_gets_a_conflict(seed: int) -> None:
    world = World()
    world.store.record = LeaseRecord("gone", 15, "t", "t", 6)
    world.store.version = 7
    for name in (f"a{seed}", f"b{seed}"):
        world.join(name).delay_s = 0.05
    world.run(40.0)
    assert len(world.led) == 1
    assert world.led[0][0] >= 15.0, "a holder that nobody knows is given its lease's time"
    assert world.record.transitions == 7


def test_after_as_many_transitions_as_a_lease_can_count_somebody_leads() -> None:
    world = World()
    world.store.record = LeaseRecord("gone", 15, "t", "t", 2**31 - 1)
    world.store.version = 7
    world.join("a")
    world.run(40.0)
    assert leading(world) == ["a"]
    assert world.record.transitions == 1


def test_crashed_leader_is_replaced_after_its_lease_and_not_before() -> None:
    world = World()
    a = world.join("a")
    world.join("b", ahead_s=-500.0)
    world.run(100.0)
    a.paused = True
    world.run(12.0)
    assert leading(world) == []
    world.run(6.0)
    assert leading(world) == ["b"]
    assert world.record.transitions == 1
    assert world.led[-1][0] <= 117.1, "it looks again when the lease runs out, not a retry period later"


def test_leader_that_was_paused_has_lost_before_anybody_tells_it() -> None:
    world = World()
    a = world.join("a")
    world.join("b")
    world.run(50.0)
    a.paused = True
    world.run(30.0)
    assert leading(world) == ["b"]
    assert not a.holds
    a.paused = False
    world.run(60.0)
    assert a.election.state is ElectionState.LOST
    assert leading(world) == ["b"]


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_wall_clocks_that_jump_an_hour_change_nothing(step_s: float) -> None:
    world = World()
    a, b = world.join("a", wall_s=1e9), world.join("b", wall_s=1e9 - 7200.0)
    world.run(50.0)
    a.wall_s += step_s
    world.run(50.0)
    b.wall_s -= step_s
    world.run(50.0)
    assert [name for _, name in world.led] == ["a"]
    a.paused = True
    world.run(20.0)
    assert leading(world) == ["b"]


def test_lost_answers_do_not_cost_the_leadership() -> None:
    world = World()
    a = world.join("a")
    world.join("b")
    world.run(20.0)
    a.loses_answers = True
    world.run(4.0)
    a.loses_answers = False
    world.run(60.0)
    assert [name for _, name in world.led] == ["a"]
    assert world.record.transitions == 0


def test_leader_without_answers_stops_before_the_next_one_starts() -> None:
    world = World()
    a = world.join("a")
    world.join("b")
    world.run(20.0)
    a.loses_requests = True
    world.run(40.0)
    assert a.election.state is ElectionState.LOST
    assert leading(world) == ["b"]


def test_leader_whose_renewals_arrive_and_are_never_answered_stops_too() -> None:
    world = World()
    a = world.join("a")
    world.join("b")
    world.run(20.0)
    a.loses_answers = True
    world.run(60.0)
    assert a.election.state is ElectionState.LOST
    assert leading(world) == ["b"]


def test_acquisition_whose_answer_was_lost_is_noticed_and_kept() -> None:
    world = World()
    a = world.join("a")
    world.run(0.0)  # it has asked, and will hear that there is no lease
    a.loses_answers = True
    world.run(4.0)
    assert a.election.state is ElectionState.FOLLOWING
    assert world.record.holder == "a"
    a.loses_answers = False
    world.run(20.0)
    assert leading(world) == ["a"]
    assert world.record.transitions == 0


def test_slow_put_counts_from_when_it_was_sent() -> None:
    world = World()
    a = world.join("a")
    world.join("b")
    world.run(21.0)
    a.delay_s = 4.0
    world.run(60.0)
    assert [name for _, name in world.led] == ["a"], "slow, and in time"
    a.delay_s = 11.0
    world.run(60.0)
    assert a.election.state is ElectionState.LOST
    assert leading(world) == ["b"]


def test_acquisition_answered_too_late_is_no_leadership() -> None:
    election = Election("a", SETTINGS, rng=Random(1))
    assert election.next(0.0, "w") == Get()
    election.absent(0.1)
    assert isinstance(election.next(0.1, "w"), Create)
    election.written("5", 10.2)
    assert not election.holds(10.2)
    assert election.next(10.2, "w") == Get()
    election.found(LeaseRecord("a", 15, "w", "w"), "5", 10.3)
    assert election.next(10.3, "w2") == Update(LeaseRecord("a", 15, "w", "w2"), "5")


def test_release_hands_over_within_a_retry_period() -> None:
    world = World()
    a = world.join("a")
    world.join("b")
    world.run(51.0)
    a.election.release()
    a.wakes_s = world.now_s
    world.run(0.01)
    assert a.election.state is ElectionState.RELEASED
    assert (world.record.holder, world.record.duration_s) == ("", 1)
    world.run(2.5)
    assert leading(world) == ["b"]
    assert world.record.transitions == 1


def test_release_after_a_lost_answer_still_releases() -> None:
    world = World()
    a = world.join("a")
    world.run(20.0)
    a.loses_answers = True
    world.run(3.0)  # one renewal has arrived and its answer has not
    a.loses_answers = False
    a.election.release()
    world.run(8.0)
    assert a.election.state is ElectionState.RELEASED
    assert world.record.holder == ""


@pytest.mark.parametrize("successor", [False, True])
def test_release_whose_answer_is_lost_is_no_loss(successor: bool) -> None:
    """Nor does who has asked for it act beside a successor (the world checks that) before it hears of it."""
    world = World()
    a = world.join("a")
    if successor:
        world.join("b")
    world.run(20.5)
    a.loses_answers = True
    a.election.release()
    a.wakes_s = world.now_s
    world.run(4.9)
    assert world.record.holder == ("b" if successor else "")
    a.loses_answers = False
    world.run(0.2)
    assert a.election.state is ElectionState.RELEASED


def test_follower_releases_nothing() -> None:
    world = World()
    world.join("a")
    b = world.join("b")
    world.run(20.0)
    b.election.release()
    b.wakes_s = world.now_s
    world.run(10.0)
    assert b.election.state is ElectionState.RELEASED
    assert leading(world) == ["a"]


def test_lease_deleted_by_hand_is_made_again_by_its_leader() -> None:
    world = World()
    world.join("a")
    world.join("b")
    world.run(20.5)
    world.store.record = None
    world.run(30.0)
    assert [name for _, name in world.led] == ["a"]


def test_lease_given_to_another_by_hand_is_lost() -> None:
    world = World()
    a = world.join("a")
    world.run(20.0)
    world.store.record = LeaseRecord("c", 15, "t", "t", 1)
    world.store.version += 1
    world.run(3.0)
    assert a.election.state is ElectionState.LOST


def test_a_longer_lease_than_ours_is_respected() -> None:
    world = World()
    world.store.record = LeaseRecord("other", 60, "t", "t", 0)
    world.store.version = 1
    world.join("a")
    world.run(59.0)
    assert leading(world) == []
    world.run(4.0)
    assert leading(world) == ["a"]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_at_most_one_leads_and_in_the_end_one_does(seed: int) -> None:
    rng = Random(seed)
    world = World()
    for i in range(3):
        world.join(f"{seed}-{i}", ahead_s=rng.uniform(-1e6, 1e6), wall_s=rng.uniform(0, 1e9))
    for n in range(60):
        one = rng.choice(world.contenders)
        one.loses_requests, one.loses_answers = rng.random() < 0.2, rng.random() < 0.2
        one.paused = rng.random() < 0.2
        one.delay_s = rng.choice([0.0, 0.1, 3.0, 12.0])
        one.wall_s += rng.choice([0.0, 3600.0, -3600.0])
        if one.election.state is ElectionState.LOST:  # exited, and started again
            world.contenders.remove(one)
            world.join(f"{seed}-again-{n}", ahead_s=rng.uniform(-1e6, 1e6))
        world.run(rng.uniform(0.0, 20.0))
    world.contenders.clear()
    last = world.join(f"{seed}-last")
    world.run(40.0)
    assert last.holds

"""Leader election on a coordination.k8s.io/v1 Lease, as in client-go's leaderelection.

Lives here: who leads, as a pure state machine (`Election`). Not here: its async driver
(kube.election.elector), and what a leader does (app). A lease is no fence: a bind sent before the lease was
lost may arrive later; its preconditions make it harmless.

| state | on | to | asks next |
|---|---|---|---|
| Following | the retry period, or the holder's time, is over | | GET |
| Following | GET: none, and no recent holder seen | | POST ours |
| Following | GET: released (no holder), or ours (an answer was lost) | | PUT ours, at once |
| Following | GET: another record than last time | | waits: the holder lives |
| Following | GET: the same record, for the holder's lease duration | | PUT ours, transitions + 1, at once |
| Following | POST or PUT answered in time | Leading | waits the retry period |
| Following | POST or PUT refused, not answered, or too late | | waits, GET |
| Leading | the retry period is over | | PUT, a new renewTime |
| Leading | PUT answered | Leading, until renewDeadline after it was *sent* | waits the retry period |
| Leading | PUT refused (409) or not answered | | GET, at once; the second time in a row it waits, GET |
| Leading | GET: ours | | PUT, at once |
| Leading | GET: none (deleted) | | POST ours, at once |
| Leading | GET: another holder's | Lost | |
| Leading | renewDeadline is over | Lost | |
| any | the scheduler's loop has not run for MAX_TURN_S (kube.election.elector) | | nothing until it runs |
| Leading | release() | Released, once answered | PUT, no holder, 1 s |
| Leading, after release() | GET: no holder or another's (an answer was lost) | Released | |
| Following | release() | Released | |

Times in the record are for people. Whether the holder lives is judged by changes of the record and by our own
clock since the last change, so wall clocks do not matter. A PUT carries the resourceVersion: of two
contenders one gets a 409. The clock includes machine suspend, where the system has such a clock.
"""

from __future__ import annotations

import math
from enum import Enum
from random import Random
from typing import NamedTuple

import msgspec

from gangsched.config import LeaderElectionSettings
from gangsched.kube.election.steps import Create, Get, Update, one_more

# client-go's JitterFactor; config bounds the retry period by it too.
JITTER = 1.2
RELEASED_DURATION_S = 1


class ElectionState(Enum):
    FOLLOWING = "following"
    LEADING = "leading"
    LOST = "lost"
    RELEASED = "released"


class LeaseRecord(msgspec.Struct, frozen=True, gc=False):
    """The spec of the Lease; `acquired` and `renewed` are wall-clock text, compared only for change."""

    holder: str = ""
    duration_s: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0


class Wait(NamedTuple):
    """Ask nothing before then."""

    until_s: float


class Done(NamedTuple):
    """Lost or released: no further requests."""


Step = Get | Create[LeaseRecord] | Update[LeaseRecord] | Wait | Done


class Election:
    """The table above. `now_s` must never go back; `wall` is text for the record."""

    def __init__(self, identity: str, settings: LeaderElectionSettings, *, rng: Random) -> None:
        self.identity = identity
        self.state = ElectionState.FOLLOWING
        self._settings = settings
        self._rng = rng
        self._observed = LeaseRecord()
        self._observed_s = -math.inf
        self._version = ""
        self._next_s = -math.inf
        self._sent: Step = Get()
        self._sent_s = 0.0
        self._due: type[Get] | type[Create[LeaseRecord]] | type[Update[LeaseRecord]] = Get
        self._renewed_s = -math.inf
        self._maybe_ours = False
        self._has_failed = False
        self._releasing = False

    @property
    def observed(self) -> LeaseRecord:
        """The lease as last read or written; before that, one without a holder."""
        return self._observed

    @property
    def deadline_s(self) -> float:
        """When leadership ends unless renewed; counted from when the last renewal was sent."""
        return self._renewed_s + self._settings.renew_deadline_s

    def holds(self, now_s: float) -> bool:
        """Whether this process may act as the leader at this moment.

        False after release(): another may lead from the moment at which that write takes effect.
        """
        return self.state is ElectionState.LEADING and not self._releasing and now_s < self.deadline_s

    def release(self) -> None:
        """Give the lease back as soon as possible; the work of the leader must have stopped already."""
        self._releasing = True
        self._next_s = -math.inf

    def next(self, now_s: float, wall: str) -> Step:
        """The next step; report the answer to Get, Create or Update to one of the four methods below."""
        self._expire(now_s)
        if self._releasing and self.state is ElectionState.FOLLOWING and not self._maybe_ours:
            self.state = ElectionState.RELEASED
        if self.state in (ElectionState.LOST, ElectionState.RELEASED):
            return Done()
        if now_s < self._next_s:
            leading = self.state is ElectionState.LEADING
            return Wait(min(self._next_s, self.deadline_s) if leading else self._next_s)
        self._sent_s = now_s
        if self._due is Get:
            self._sent = Get()
        elif self._due is Create:
            self._sent = Create(self._ours(wall))
        else:
            self._sent = Update(self._ours(wall), self._version)
        return self._sent

    # -- answers -------------------------------------------------------------------------------------

    def found(self, record: LeaseRecord, version: str, now_s: float) -> None:
        """GET: the lease as it is."""
        mine = record.holder == self.identity
        if record != self._observed:
            self._observed, self._observed_s = record, now_s
        self._version = version
        self._maybe_ours = mine
        if self.state is ElectionState.LEADING:
            if mine:
                self._at_once(Update)
            else:
                self.state = ElectionState.RELEASED if self._releasing else ElectionState.LOST
        elif mine or not record.holder or now_s >= self._valid_until_s():
            self._at_once(Update)
        else:
            self._look_later(now_s)

    def absent(self, now_s: float) -> None:
        """GET: there is no such lease."""
        self._maybe_ours = False
        # Deleting the Lease by hand does not end its holder's leadership before the holder notices.
        held = self._observed.holder not in ("", self.identity) and now_s < self._valid_until_s()
        if held:
            self._look_later(now_s)
        else:
            self._at_once(Create)

    def written(self, version: str, now_s: float) -> None:
        """POST or PUT: done."""
        assert isinstance(self._sent, Create | Update)
        self._has_failed = False
        self._observed, self._observed_s, self._version = self._sent.record, now_s, version
        if not self._sent.record.holder:
            self.state = ElectionState.RELEASED
            return
        self._maybe_ours = True
        if now_s - self._sent_s < self._settings.renew_deadline_s:
            self.state = ElectionState.LEADING
            self._due = Update
            self._next_s = -math.inf if self._releasing else self._sent_s + self._settings.retry_period_s
            self._renewed_s = self._sent_s
        else:  # other processes may have seen it expire before the answer reached us
            self._expire(now_s)
            self._at_once(Get)

    def failed(self, now_s: float) -> None:
        """Refused or not answered: the write may still have taken effect."""
        wrote = not isinstance(self._sent, Get)
        self._maybe_ours |= wrote
        again, self._has_failed = self._has_failed, True
        if wrote and self.state is ElectionState.LEADING and not again:
            self._at_once(Get)
        else:
            self._due = Get
            self._next_s = now_s + self._retry_s()

    # -- inside --------------------------------------------------------------------------------------

    def _ours(self, wall: str) -> LeaseRecord:
        seen = self._observed
        mine = seen.holder == self.identity
        transitions = seen.transitions if mine or self._due is Create else one_more(seen.transitions)
        if self._releasing:
            return LeaseRecord("", RELEASED_DURATION_S, wall, wall, transitions)
        # Whole seconds only; rounded up, so that other processes wait too long rather than too short.
        duration_s = math.ceil(self._settings.lease_duration_s)
        return LeaseRecord(self.identity, duration_s, seen.acquired if mine else wall, wall, transitions)

    def _valid_until_s(self) -> float:
        """When the holder's lease ends, by its own lease duration; by ours, if it states none."""
        duration_s = self._observed.duration_s
        return self._observed_s + (duration_s if duration_s > 0 else self._settings.lease_duration_s)

    def _look_later(self, now_s: float) -> None:
        self._due = Get
        self._next_s = min(now_s + self._retry_s(), self._valid_until_s())

    def _at_once(self, due: type[Get] | type[Create[LeaseRecord]] | type[Update[LeaseRecord]]) -> None:
        self._due = due
        self._next_s = -math.inf

    def _retry_s(self) -> float:
        return self._settings.retry_period_s * self._rng.uniform(1.0, JITTER)

    def _expire(self, now_s: float) -> None:
        if self.state is ElectionState.LEADING and now_s >= self.deadline_s:
            self.state = ElectionState.LOST

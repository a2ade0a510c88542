"""Duel: two schedulers at once over one store, each of which may believe that it leads.

The lease is modelled by its worst case: now and then the other replica is made to lead, and the first is not
notified. A replica may be paused, or die, between any two steps; its requests stay in flight and arrive at
any time. Only the fence separates them. The store is checked: no device on two live pods, every pod bound as
some replica decided, and in the end no gang half bound. Not here: checks of one scheduler alone
(lab.sim.runs.driver).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.errors import InvariantError
from gangsched.kube.election.fence import Fenced
from gangsched.kube.election.fence_list import Expected
from gangsched.lab.sim.faults.mischief import Mischief
from gangsched.lab.sim.judges.at_rest import cache_is_store, nothing_leaks
from gangsched.lab.sim.judges.gangs.half_bound import HalfBound
from gangsched.lab.sim.judges.gangs.restarts import Takeovers, marks_are_true
from gangsched.lab.sim.judges.gangs.starts import Starts
from gangsched.lab.sim.judges.places.device_holders import bound_as_sent
from gangsched.lab.sim.making import usual_config
from gangsched.lab.sim.reading.documents import ids_of
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.runs.driver import Broken, with_whole_list
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.workloads.arrivals import Workload
from gangsched.lab.sim.world.actors import Controllers, Kubelets
from gangsched.lab.sim.world.api import SimApi, encoded
from gangsched.lab.sim.world.fence import SimFence
from gangsched.lab.sim.world.hooks import as_bind
from gangsched.lab.sim.world.weather import Rates, Weather
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.resource_claims.objects import CLAIMS
from gangsched.plugins import build_profiles
from gangsched.process.leadership import foreseen

_STEP_S = 0.02
_LONGEST_PAUSE_S = 8.0
_BETWEEN_TAKEOVERS_S = (3.0, 12.0)
_TRIES_AGAIN_S = 5.0
_MAX_STORY = 400


def make_follower(settings: Settings) -> Scheduler:
    """Makes the scheduler as it is assembled with leader election: it decides only once it leads."""
    return Scheduler(build_profiles(usual_config()), settings, node_capacity=4, leading=False)


class Replica:
    """The processes under one name, one after the other."""

    def __init__(self, name: str, duel: Duel, peer: SimApi | None) -> None:
        self.name = name
        self._duel = duel
        self._rng = Random(f"{duel.seed}-{name}")
        self.api = SimApi(duel.timeline, duel.weather, self._deliver, peer)
        self.api.is_fenced = True
        self.scheduler: Scheduler
        self.received: Received
        self._starts: Starts
        self.fence: SimFence | None = None
        self.inbox: list[ev.Event] = []
        self.n_processes = 0
        self.paused_until_s = 0.0
        self.dies_after = -1
        self.next_s = 0.0
        self.deadline_s: float | None = None
        self.n_active = 0
        """The scheduler's deadline and number of active groups, as they were after the last step."""
        self._n_steps = 0
        self._is_recount_due = False
        """Whether it led at its last step and has not been recounted since."""

    def start(self) -> None:
        """Starts the first or next process, as a follower."""
        self.recount()
        self._duel.takeovers.dies(self)
        if self.fence is not None:
            self.fence.end()
            self.fence = None
        self.n_processes += 1
        self.inbox.clear()
        self.dies_after = -1
        self.paused_until_s = self.next_s = 0.0
        self.deadline_s, self.n_active = None, 0
        self.scheduler = self._duel.make(self._duel.settings)
        self.scheduler.check_marks()
        self.inbox += [ev.KindMissing(kind) for kind in self.scheduler.kinds if kind not in self.api.streams]
        self.received, self._starts = Received(), Starts()
        self.api.hang_up()
        self.api.claims.patched = lambda uid, version: None
        self.api.connect(down_s=lambda: self._rng.uniform(0.0, 1.0))

    def lead(self) -> None:
        """Gives it the lease: it takes the fence, bumps, learns what is bound by then, and then decides."""
        if self.fence is not None:
            return
        self.fence = SimFence(
            f"{self.name}-{self.n_processes}",
            self.api.fence,
            self._duel.timeline,
            self._duel.weather,
            is_on_its_way=self.scheduler.is_on_its_way,
            bump=self.api.bump,
            taken=self._catch_up,
            release=self._released,
            deposed=self.start,
            line=self._line if self._duel.foresees else tuple,
        )
        self.api.claims.patched = self.fence.fence.patched
        self.fence.begin()

    def _catch_up(self) -> None:
        """Waits, as kube.watch.catch_up does, until the watch has shown all pods that are bound now, and all
        resource claims."""
        bound = [pod for pod in self.api.pods.values() if pod.spec.node_name]
        claims = list(self.api.objects.get(CLAIMS, {}).values())
        self._look_whether_caught_up({pod.metadata.uid: pod for pod in bound}, claims, self.n_processes)

    def _look_whether_caught_up(self, bound: dict[str, Any], claims: list[Any], process: int) -> None:
        if process != self.n_processes:
            return
        there = self.api.index.uids
        shown = self.api.streams["pods"].shown
        left = {uid: pod for uid, pod in bound.items() if uid in there and not shown(pod)}
        unshown = [one for one in claims if self._is_unshown(one)]
        if left or unshown:
            self._duel.timeline.after(_STEP_S, partial(self._look_whether_caught_up, left, unshown, process))
        else:
            self._duel.takeovers.by(self)
            self._deliver(ev.LeadershipGained())

    def _is_unshown(self, claim: Any) -> bool:
        now = self.api.objects[CLAIMS].get((claim.metadata.namespace, claim.metadata.name))
        is_there = now is not None and now.metadata.uid == claim.metadata.uid
        return is_there and not self.api.streams[CLAIMS].shown(claim)

    def _deliver(self, event: ev.Event) -> None:
        self.inbox.append(event)

    def _released(self, effects: Sequence[Fenced]) -> None:
        """Sends effects that the fence has listed; a paused process sends them when it wakes up."""
        if self._duel.timeline.now_s < self.paused_until_s:
            wakes_s = self.paused_until_s + self._rng.uniform(0.0, 0.1)
            self._duel.timeline.at(wakes_s, partial(self._send, effects, self.n_processes))
        else:
            self._send(effects, self.n_processes)

    def _send(self, effects: Sequence[Fenced], process: int) -> None:
        if process == self.n_processes:
            for effect in effects:
                self.api.carry_out(effect)

    @property
    def owns(self) -> bool:
        """Whether it leads in fact."""
        record = self.api.fence.record
        return self.fence is not None and record is not None and record.holder == self.fence.fence.identity

    @property
    def is_quiet(self) -> bool:
        return self.api.is_quiet and not self.inbox and (self.fence is None or self.fence.is_quiet)

    def turn(self, now_s: float) -> None:
        """Takes a turn as process.app does: events, deadlines, a few groups."""
        if now_s < self.paused_until_s:
            return
        scheduler, process = self.scheduler, self.n_processes
        if self.inbox:
            n = with_whole_list(self._rng.randint(1, len(self.inbox)), self.inbox)
            batch, self.inbox = self.inbox[:n], self.inbox[n:]
            self.received.apply(batch)
            self._duel.note(self.name, "receives", batch)
            self.do(scheduler.handle(batch, now_s))
            self._duel.follow_more(scheduler, batch, self.inbox)
        due_s = self.deadline_s
        if process == self.n_processes and due_s is not None and due_s <= now_s:
            self.do(scheduler.advance(now_s))
        for _ in range(4):
            if process != self.n_processes or not self.n_active or self._foresees():
                break
            effects = scheduler.schedule_next(now_s)
            if effects is None:
                break
            self.do(effects)

    def _foresees(self) -> bool:
        """Whether the pods first in line are now being listed in the fence, to be placed some time later."""
        return self.fence is not None and self.fence.expect()

    def _line(self) -> Iterable[Sequence[Expected]]:
        return foreseen(self.scheduler.in_line(), self.scheduler.claims_of)

    def recount(self) -> None:
        """Recounts what the scheduler has counted, unless it has taken no step since. Raises: Broken."""
        is_due, self._is_recount_due = self._is_recount_due, False
        if is_due and self.owns:
            try:
                self.scheduler.validate()
            except InvariantError as error:
                # A lagging watch may still report the bind of a pod that has been deleted since.
                known, there = self.scheduler.shared.cache.pods, self.api.index.uids
                if not any(uid in error.message for uid in known if uid not in there):
                    self._duel.judge([error.message])

    def do(self, effects: Sequence[ef.Effect]) -> None:
        """Sends what it has decided, until it dies."""
        self._n_steps += 1
        # In a deposed replica a device may seem to belong both to it and to its successor.
        self._is_recount_due = self.owns
        if self._n_steps % self._duel.recount_every == 0:
            self.recount()
        self._duel.judge(self._starts.check(self.scheduler, effects, self.received))
        self._duel.judge(self._duel.takeovers.judge(self.scheduler, effects))
        self._duel.decided.append(effects)
        self._duel.n_steps += 1
        self.deadline_s, self.n_active = self.scheduler.next_deadline_s(), self.scheduler.n_active
        process = self.n_processes
        for effect in effects:
            if self.dies_after == 0:
                self._duel.note(self.name, "dies", ())
                self.start()
            if process != self.n_processes:
                return
            self.dies_after -= 1
            self._duel.note(self.name, "does", effect)
            bind = as_bind(effect)
            if bind is not None:
                self._duel.sent.setdefault(bind.uid, []).append(replace(bind, resource_version=""))
            else:
                self.received.note_sent(effect, None)
            if self.fence is not None and not self.fence.holds_back(effect, self._deliver):
                self.api.carry_out(effect)


class Duel:
    """Two replicas, users, kubelets, and bad weather."""

    def __init__(
        self,
        seed: int,
        workload: Workload,
        rates: Rates,
        *,
        settings: Settings | None = None,
        make: Callable[[Settings], Scheduler] = make_follower,
        foresees: bool = False,
        recount_every: int = 1,
    ) -> None:
        """`foresees`: the fence lists pods in line before they are placed, as it does live. recount_every:
        steps of a replica between recounts; each is also recounted before it dies and in the end."""
        self.seed = seed
        self.recount_every = recount_every
        self.foresees = foresees
        self.settings = settings or Settings(fence=True)
        self.make = make
        self.timeline = Timeline()
        self.weather = Weather(Random(f"{seed}-weather"), rates)
        self.sent: dict[str, list[ef.BindPod]] = {}
        self.half_bound, self.takeovers = HalfBound(), Takeovers()
        self.calm_since_s = 0.0
        self.n_takeovers = 0
        self.decided: list[Sequence[ef.Effect]] = []
        self._rng = Random(f"{seed}-duel")
        self._story: deque[tuple[float, str, str, Any]] = deque(maxlen=_MAX_STORY)
        self.n_steps = 0
        self._judged = self._owners_judged = (-1, -1)
        self._n_judged_alike = 0
        first = Replica("one", self, None)
        self.replicas = (first, Replica("two", self, first.api))
        self.api = first.api
        self.kubelets = Kubelets(self.api, self.timeline, Random(f"{seed}-kubelets"), self.weather)
        Controllers(self.api, self.timeline, Random(f"{seed}-controllers"))
        self.mischief = Mischief(
            self.api,
            self.timeline,
            self.weather,
            Random(f"{seed}-mischief"),
            first_nodes={node.metadata.name: node for node in workload.nodes},
            die_after=self.die_after,
        )
        self._prepare(workload)
        workload.begin(self.api, self.timeline)
        for replica in self.replicas:
            replica.start()
        self._lease_s = 0.0
        self._take_turns()
        self.mischief.start()

    def _prepare(self, workload: Workload) -> None:
        """Makes what a workload needs beside its nodes and pods, before anything is listed."""

    def die_after(self, n_effects: int) -> None:
        """Kills one replica after `n_effects` more effects (lab.sim.faults.mischief)."""
        self._rng.choice(self.replicas).dies_after = n_effects

    # -- leadership ------------------------------------------------------------------------------------

    def _take_turns(self) -> None:
        """Gives the lease to the other replica; the first is not notified, and may be paused meanwhile."""
        if self.calm_since_s:
            return
        old, new = self.replicas if self.n_takeovers % 2 else self.replicas[::-1]
        self.n_takeovers += 1
        if self._rng.random() < 0.5:
            old.paused_until_s = self.timeline.now_s + self._rng.uniform(0.0, _LONGEST_PAUSE_S)
        self.note(new.name, "leads", ())
        new.lead()
        self.timeline.after(self._rng.uniform(*_BETWEEN_TAKEOVERS_S), self._take_turns)

    # -- running ---------------------------------------------------------------------------------------

    def run_for(self, seconds: float) -> None:
        """Lets virtual time pass. Raises: Broken."""
        until_s = self.timeline.now_s + seconds
        while self.timeline.now_s < until_s:
            one, other = self.replicas
            soonest = min(self.timeline.next_s(), self._due_s(one), self._due_s(other), until_s)
            self.timeline.advance_to(max(soonest, self.timeline.now_s))
            for replica in self.replicas:
                replica.turn(self.timeline.now_s)
                if replica.inbox or replica.n_active:
                    replica.next_s = self.timeline.now_s + self._rng.uniform(0.0001, 0.002)
            self.judge(self.broken())

    def _due_s(self, one: Replica) -> float:
        due_s = math.inf if one.deadline_s is None else one.deadline_s
        if one.next_s < due_s and (one.inbox or one.n_active):
            due_s = one.next_s
        return max(due_s, one.paused_until_s, self.timeline.now_s + 1e-9)

    def settle(self) -> None:
        """Stops faults and lets one lead for good: then every gang is whole or holds nothing. Raises:
        Broken."""
        self.weather.clear()
        self.mischief.repair()
        self.calm_since_s = self.timeline.now_s
        for replica in self.replicas:
            replica.paused_until_s = 0.0
        leader = self.replicas[0]
        leader.start()
        for _ in range(int(self.settings.settle_s / _TRIES_AGAIN_S) + 8):
            # A takeover by the other one that was still on its way deposes it once more.
            leader.lead()
            self.run_for(_TRIES_AGAIN_S)
        for _ in range(30):
            if leader.is_quiet and not (leader.scheduler.shared.victims or self.api.anyone_leaves):
                break
            self.run_for(5.0)
        for replica in self.replicas:
            replica.recount()
        limit_s = self.settings.settle_s + self.api.eviction_grace_s + 5.0
        now_s = self.timeline.now_s
        since_s = self.calm_since_s
        self.judge(self.half_bound.too_long(leader.api, now_s, limit_s, calm_since_s=since_s))
        self.judge(cache_is_store(leader.api, leader.scheduler))
        self.judge(nothing_leaks(leader.scheduler))
        self.judge(marks_are_true(leader.scheduler))

    @property
    def history(self) -> list[bytes]:
        """Returns the effects of each replica, step by step."""
        return [encoded(effects) for effects in self.decided]

    # -- judging ---------------------------------------------------------------------------------------

    def follow_more(self, scheduler: Scheduler, batch: Sequence[ev.Event], inbox: list[ev.Event]) -> None:
        """Follows the kinds that a process asks for after a batch."""

    def broken(self) -> Iterator[str]:
        """Yields violations, and skips a state that was judged twice: what one replica has not received yet
        counts when the other one's view is judged next."""
        now = (self.api.n_changes, self.n_steps)
        self._n_judged_alike = self._n_judged_alike + 1 if now == self._judged else 0
        self._judged = now
        if self._n_judged_alike > 1:
            return
        self.takeovers.update(self.api)
        yield from self._owned_twice()
        yield from bound_as_sent(self.api, self.sent)
        for replica in self.replicas:
            if replica.scheduler.is_synced:
                self.half_bound.update(self.api, replica.received, self.timeline.now_s)
            else:
                self.half_bound.excuse(self.api)

    def _owned_twice(self) -> Iterator[str]:
        """Yields devices on two live pods. Looks again only if the pods, their device IDs, or the set of
        those that replicas have bound has changed."""
        now = (self.api.index.n_comings, len(self.sent))
        if now == self._owners_judged:
            return
        self._owners_judged = now
        owner: dict[tuple[str, str, str], str] = {}
        for pod in self.api.pods.values():
            node, uid = pod.spec.node_name, pod.metadata.uid
            if not node or uid not in self.sent or pod.is_terminal:
                continue
            for resource, some in ids_of(pod).items():
                for device_id in some:
                    other = owner.setdefault((node, resource, device_id), uid)
                    if other != uid:
                        yield f"one-holder: {device_id} is held by {other} and {uid}"

    def note(self, name: str, what: str, subject: Any) -> None:
        """Notes a step for the story of a failure."""
        self._story.append((self.timeline.now_s, name, what, subject))

    def judge(self, problems: Iterable[str]) -> None:
        """Raises: Broken, for the first of them."""
        for problem in problems:
            story = [f"{now_s:8.3f} {name} {what} {subject}" for now_s, name, what, subject in self._story]
            raise Broken(f"seed {self.seed}, {self.timeline.now_s:.3f} s: {problem}", story)

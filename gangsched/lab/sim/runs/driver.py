"""Simulation: one scheduler with one SimApi in virtual time, checked after every step.

One seed fixes everything: arrivals, faults, delays, batch sizes, the order of answers. A violated invariant
raises Broken, which carries the seed's story. The scheduler is driven as by process.app: a batch of events,
the deadlines, up to k groups, and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import GroupState
from gangsched.errors import GangschedError, InvariantError
from gangsched.kube.election.fence import Fenced
from gangsched.lab.sim.faults.mischief import Mischief
from gangsched.lab.sim.faults.misuse import Misuse
from gangsched.lab.sim.faults.sick_devices import SickDevices
from gangsched.lab.sim.faults.tampering import Tampering
from gangsched.lab.sim.judges.at_rest import (
    cache_is_store,
    decides_in_time,
    nothing_leaks,
    nothing_lost,
    nothing_starves,
    resting_groups_can_go_on,
    waits_for_user,
)
from gangsched.lab.sim.judges.gangs.half_bound import HalfBound
from gangsched.lab.sim.judges.gangs.restarts import Restarts, marks_are_true
from gangsched.lab.sim.judges.places.binds import bind_is_sound, node_is_open
from gangsched.lab.sim.judges.places.device_holders import OneOwner, bound_as_sent
from gangsched.lab.sim.judges.queueing.filling import outranking
from gangsched.lab.sim.judges.step_judges import StepJudges
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.reading.received import Received, are_alike
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.workloads.arrivals import Workload
from gangsched.lab.sim.world.actors import Controllers, Kubelets
from gangsched.lab.sim.world.api import SimApi, encoded
from gangsched.lab.sim.world.fence import SimFence
from gangsched.lab.sim.world.hooks import as_bind
from gangsched.lab.sim.world.weather import CALM, Rates, Weather
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node
from gangsched.model.resource_claims.objects import CLAIMS

# Backoff ends after at most 10 s, so a cluster without news for longer has nothing left to try.
REST_S = 13.0
_MAX_STORY = 400
_MANY_PODS = 200


class Broken(GangschedError):
    """An invariant was violated; `story` has the last steps, oldest first."""

    def __init__(self, problem: str, story: Sequence[str]) -> None:
        self.problem = problem
        self.story = tuple(story)
        super().__init__("\n  ".join([problem, *self.story[-60:]]))


class Simulation:
    """Everything one run consists of."""

    def __init__(
        self,
        seed: int,
        workload: Workload,
        *,
        rates: Rates = CALM,
        settings: Settings | None = None,
        make: Callable[[Settings], Scheduler] = make_scheduler,
        groups_per_turn: int = 4,
        recount_every: int = 1,
    ) -> None:
        """recount_every: steps of the scheduler between recounts of its counts. It is also recounted before
        it dies, and before and after it settles."""
        self.seed = seed
        self.settings = settings or Settings()
        self._make = make
        self._k = groups_per_turn
        self._recount_every = recount_every
        self._rng = Random(f"{seed}-driver")
        self.timeline = Timeline()
        self.weather = Weather(Random(f"{seed}-weather"), rates)
        self.inbox: list[ev.Event] = []
        self.api = SimApi(self.timeline, self.weather, self.deliver)
        rng = Random(f"{seed}-kubelets")
        self.kubelets = Kubelets(self.api, self.timeline, rng, self.weather)
        self._devices = self.kubelets.devices
        Controllers(self.api, self.timeline, Random(f"{seed}-controllers"))
        self.first_nodes: dict[str, Node] = {node.metadata.name: node for node in workload.nodes}
        self.sent: dict[str, list[ef.BindPod]] = {}
        self.mischief = Mischief(
            self.api,
            self.timeline,
            self.weather,
            Random(f"{seed}-mischief"),
            first_nodes=self.first_nodes,
            die_after=self.die_after,
        )
        self.tampering = Tampering(
            self.api,
            self.timeline,
            self.weather,
            Random(f"{seed}-tampering"),
            sent=self.sent,
            scheduler=lambda: self.scheduler,
        )
        self.misuse = Misuse(
            self.api, self.timeline, self.weather, Random(f"{seed}-spite"), answer=self.deliver
        )
        self.sick_devices = SickDevices(self.api, self.timeline, self.weather, Random(f"{seed}-sick-devices"))
        self._store_is_true = not rates.tampering_per_s
        self._decided: list[list[ef.Effect]] = []
        self.half_bound, self._one_owner, self._restarts = HalfBound(), OneOwner(), Restarts()
        self.watchers: list[Callable[[Simulation], Iterable[str]]] = []
        """A test's own checks after every turn."""
        self.calm_since_s = self._news_s = self._synced_s = 0.0
        self.n_crashes = 0
        self._story: list[tuple[float, str, Any]] = []
        """Each entry: when, what, and the events or the effect."""
        self._judged = self._judged_holders = (-1, -1)
        self._judged_quiet = False
        self._dies_after = -1
        self._wake_s, self._deadline_s, self._n_active = math.inf, math.inf, 0
        """The scheduler's deadline and number of active groups, as they were after the last step."""
        self._n_steps = self._n_recounted = 0
        """Steps of the scheduler, and how many there were when it was last recounted."""
        self.fence: SimFence | None = None
        self._begin(workload)

    def _begin(self, workload: Workload) -> None:
        """Creates nodes and arrivals, and starts the first process and the faults."""
        workload.begin(self.api, self.timeline)
        self.api.is_fenced = self.settings.fence
        self._start_process(down_s=lambda: 0.0)
        self.mischief.start()
        self.tampering.start()
        self.misuse.start()
        self.sick_devices.start()

    # -- running ---------------------------------------------------------------------------------------

    def run_for(self, seconds: float) -> None:
        """Lets virtual time pass."""
        timeline = self.timeline
        until_s = timeline.now_s + seconds
        while True:
            soonest_s = min(timeline.next_s(), self._wake_s, self._deadline_s)
            if soonest_s > until_s:
                break
            timeline.advance_to(max(soonest_s, timeline.now_s))
            self._turn()
        timeline.advance_to(until_s)
        if self.calm_since_s:
            self._judge(self._too_long_half_bound())

    def settle(self) -> None:
        """Stops faults, repairs the cluster, and runs until nothing changes any more. Raises: Broken."""
        self._recount()
        self.weather.clear()
        self.mischief.repair()
        self.calm_since_s = self.timeline.now_s
        self.run_for(self.settings.settle_s + 20.0)
        for _ in range(60):
            resting = self._has_rested or waits_for_user(self.scheduler)
            waits = self.scheduler.shared.victims or self.api.anyone_leaves
            if self._is_quiet and resting and not waits:
                break
            self.run_for(5.0)
        else:
            self._judge(
                [
                    f"nothing-starves: no rest {self.timeline.now_s - self.calm_since_s:.0f} s after faults"
                    " stopped"
                ]
            )
        self._recount()
        self._judge(cache_is_store(self.api, self.scheduler))
        self._judge(nothing_lost(self.api, self.scheduler))
        self._judge(nothing_leaks(self.scheduler))
        self._judge(marks_are_true(self.scheduler))
        self._judge(resting_groups_can_go_on(self.api, self.scheduler))
        self._judge(self.judges.in_the_end(self.scheduler, self.received, self.timeline.now_s))
        if not self._store_is_true:
            self._judge(self.tampering.differences())
        self._judge(self._too_long_half_bound())
        # IDs that do not fit into a label are no free room, and guarantees keep room from any group.
        if self.settings.queues is None and not self.settings.devices.in_labels:
            self._judge(outranking(self.scheduler, self.received, self.timeline.now_s))
        skipped = () if self._has_rested else (GroupState.BACKOFF,)
        starving = nothing_starves(self.scheduler, self._fresh, self.timeline.now_s, skipped)
        self._judge(starving)

    @property
    def _has_rested(self) -> bool:
        """Whether nothing has happened for longer than any backoff: there is nothing left to try."""
        return self.timeline.now_s - self._news_s > REST_S

    @property
    def _is_quiet(self) -> bool:
        if self.inbox or not self.api.is_quiet or not self.scheduler.is_synced:
            return False
        return self.fence is None or self.fence.is_quiet

    def die_after(self, n_effects: int) -> None:
        """Kills the process, as kill -9 does, after `n_effects` more effects have left it."""
        self._dies_after = n_effects

    def crash(self) -> None:
        """Ends the process, with its memory; another starts from a plain list."""
        self._recount()
        self._note("crash")
        self._restarts.died(self.scheduler, self.api)
        self.n_crashes += 1
        self._start_process(down_s=lambda: self._rng.uniform(0.0, 1.5))

    def _start_process(self, *, down_s: Callable[[], float]) -> None:
        self.inbox.clear()
        self._dies_after, self._n_active = -1, 0
        self._wake_s = self._deadline_s = math.inf
        self._synced_s = self.timeline.now_s
        self.scheduler = self._make(self.settings)
        # Kinds other than pods, nodes and groups of some dialects usually do not exist.
        self.inbox += [ev.KindMissing(kind) for kind in self.scheduler.kinds if kind not in self.api.streams]
        self.received = Received()
        self.judges = self._new_judges()
        self.api.hang_up()
        if self.settings.fence:
            self._take_fence(down_s)
        else:
            self.api.connect(down_s=down_s)

    def _new_judges(self) -> StepJudges:
        return StepJudges(self.settings, knows_ids=self._store_is_true)

    def _take_fence(self, down_s: Callable[[], float]) -> None:
        """Makes binds of an earlier process harmless, before anything is listed."""
        if self.fence is not None:
            self.fence.end()
        self.fence = SimFence(
            f"process {self.n_crashes}",
            self.api.fence,
            self.timeline,
            self.weather,
            is_on_its_way=self.scheduler.is_on_its_way,
            bump=self.api.bump,
            taken=lambda: self.api.connect(down_s=down_s),
            release=self._released,
        )
        self.api.claims.patched = self.fence.fence.patched
        self.fence.begin()

    def _released(self, effects: Sequence[Fenced]) -> None:
        for effect in effects:
            self.api.carry_out(effect)

    def _fresh(self) -> Scheduler:
        fresh = self._make(self.settings)
        now_s = self.timeline.now_s
        events: list[ev.Event] = [ev.NodeAdded(node) for node in self.api.nodes.values()]
        events += [ev.PodGroupAdded(key[0], "v", item) for key, item in self.api.groups.items()]
        events += [ev.PodAdded(pod) for pod in self.api.pods.values()]
        events += [ev.KindSynced(kind) for kind in self.scheduler.kinds]
        fresh.handle(events, now_s)
        return fresh

    def deliver(self, event: ev.Event) -> None:
        self.inbox.append(event)

    # -- one turn --------------------------------------------------------------------------------------

    def _turn(self) -> None:
        now_s, scheduler = self.timeline.now_s, self.scheduler
        self._wake_s = math.inf
        if scheduler.is_synced:
            self._synced_s = now_s
        else:
            self.half_bound.excuse(self.api)
            self._judge(decides_in_time(now_s - self._synced_s))
        if self.inbox:
            n = with_whole_list(self._rng.randint(1, len(self.inbox)), self.inbox)
            batch, self.inbox = self.inbox[:n], self.inbox[n:]
            self.received.apply(batch)
            self._news_s = now_s
            self._note("receives", batch)
            self._step(lambda: scheduler.handle(batch, now_s))
            self._follow_more(batch)
        if self._deadline_s <= now_s:
            self._step(lambda: scheduler.advance(now_s))
        if self._n_active:
            for _ in range(self._k):
                if self.scheduler is not scheduler or not self._step(lambda: scheduler.schedule_next(now_s)):
                    break
        self._check()
        if self.inbox or self._n_active:
            self._wake_s = now_s + self._rng.uniform(0.0, 0.002)

    def _follow_more(self, batch: Sequence[ev.Event]) -> None:
        """Follows the kinds that a process asks for after a batch."""

    def _check(self) -> None:
        """Checks what has changed since the last check."""
        now = (self.api.n_changes, self._n_steps)
        if now != self._judged:
            self.half_bound.update(self.api, self.received, self.timeline.now_s)
            self._restarts.update(self.api)
            if self._store_is_true:
                holders = (self.api.index.n_takings, self._n_steps)
                if holders != self._judged_holders and self._has_time_to_recount():
                    self._judge(self._one_owner.check(self.api, self.scheduler))
                    self._judged_holders = holders
                if self.api.index.changed:
                    self._judge(bound_as_sent(self.api, self.sent))
        if self.calm_since_s and self.half_bound.since_s:
            self._judge(self._too_long_half_bound())
        # Whether it is quiet can change without a step.
        if (now != self._judged or not self._judged_quiet) and self._is_quiet:
            self._judge(nothing_lost(self.api, self.scheduler))
            if self._store_is_true:
                self._judge(cache_is_store(self.api, self.scheduler))
            self._judged_quiet = True
        elif now != self._judged:
            self._judged_quiet = False
        self._judged = now
        is_idle = not self.inbox and not self._n_active
        now_s, since_s = self.timeline.now_s, self.calm_since_s
        self._judge(
            self.judges.between_turns(
                self.scheduler, self.received, now_s, calm_since_s=since_s, is_idle=is_idle
            )
        )
        for watcher in self.watchers:
            self._judge(watcher(self))

    def _step(self, call: Callable[[], list[ef.Effect] | None]) -> bool:
        """Makes one checked call of the scheduler and sends its effects; False if there was nothing to do."""
        effects = self._ask(call)
        if effects is None:
            return False
        self._n_steps += 1
        if self._n_steps % self._recount_every == 0 and self._has_time_to_recount():
            self._recount()
        deadline_s, self._n_active = self.scheduler.next_deadline_s(), self.scheduler.n_active
        self._deadline_s = math.inf if deadline_s is None else deadline_s
        self._judge(self._restarts.judge(self.scheduler, effects))
        self._judge(self.judges.check_always(self.scheduler, effects, self.received))
        if self.judges.has_more:
            self._judge(self.judges.check(self.scheduler, effects, self.received, self.timeline.now_s))
        self._decided.append(effects)
        for effect in effects:
            if self._dies_after == 0:
                self.crash()
                return True
            self._dies_after -= 1
            self._send(effect)
        return True

    def _ask(self, call: Callable[[], list[ef.Effect] | None]) -> list[ef.Effect] | None:
        """Returns what the scheduler answers; what it raises is a violation."""
        try:
            return call()
        except InvariantError as error:
            self._judge([f"core: {error}"])
        except Exception as error:
            self._judge([f"core raised {type(error).__name__}: {error}"], error)
        return None

    def _recount(self) -> None:
        """Recounts what the scheduler has counted, unless it has taken no step since."""
        if self._n_recounted != self._n_steps:
            self._n_recounted = self._n_steps
            self._ask(self.scheduler.validate)

    def _has_time_to_recount(self) -> bool:
        """Whether to recount: after every step, or every few if many pods make it slow."""
        n_pods = len(self.api.pods)
        return n_pods <= _MANY_PODS or self._n_steps % (n_pods // _MANY_PODS + 1) == 0

    def _send(self, effect: ef.Effect) -> None:
        self._news_s = self.timeline.now_s
        self._note("does", effect)
        bind = as_bind(effect)
        if bind is not None:
            bind = replace(bind, resource_version="")  # the same bind may be sent for a later version
            before = self.sent.setdefault(bind.uid, [])
            if self._store_is_true:
                is_repetition = any(are_alike(bind, other) for other in before)
                self._judge(bind_is_sound(bind, self.received, is_repetition=is_repetition))
                for judge in () if is_repetition else (node_is_open, self._devices.promised):
                    self._judge(judge(bind, self.received))
            before.append(bind)
        self.received.note_sent(effect, bind)
        if self.fence is None or not self.fence.holds_back(effect, self.deliver):
            self.api.carry_out(effect)

    def _too_long_half_bound(self) -> Iterable[str]:
        limit_s = self.settings.settle_s + self.api.longest_grace_s + 5.0  # refused evictions are repeated
        since_s = self.calm_since_s
        return self.half_bound.too_long(self.api, self.timeline.now_s, limit_s, calm_since_s=since_s)

    # -- telling ---------------------------------------------------------------------------------------

    @property
    def history(self) -> list[bytes]:
        """Returns the scheduler's effects, step by step."""
        return [encoded(effects) for effects in self._decided]

    def _note(self, what: str, subject: ev.Event | ef.Effect | Sequence[ev.Event] = ()) -> None:
        self._story.append((self.timeline.now_s, what, subject))
        if len(self._story) > 2 * _MAX_STORY:
            del self._story[:_MAX_STORY]

    def _judge(self, problems: Iterable[str], cause: Exception | None = None) -> None:
        for problem in problems:
            story = [f"{now_s:8.3f} {what} {briefly(subject)}" for now_s, what, subject in self._story]
            raise Broken(f"seed {self.seed}, {self.timeline.now_s:.3f} s: {problem}", story) from cause


def with_whole_list(n: int, inbox: Sequence[ev.Event]) -> int:
    """Returns how many events a turn takes instead of n: a list of resource claims is not cut, as live
    (kube.watch.watch_state). Its objects come in no order of versions, so that part of one does not show all
    that was written earlier."""
    while n < len(inbox) and _is_of_claims(inbox[n - 1]) and _is_of_claims(inbox[n]):
        n += 1
    return n


def _is_of_claims(event: ev.Event) -> bool:
    return isinstance(event, ev.ObjectPut | ev.ObjectGone) and event.kind == CLAIMS


def briefly(subject: Any) -> str:
    return ", ".join(map(_brief, subject)) if isinstance(subject, Sequence) else _brief(subject)


def _brief(what: ev.Event | ef.Effect) -> str:
    name = type(what).__name__
    if isinstance(what, ev.PodAdded | ev.PodUpdated | ev.PodDeleted):
        pod = what.pod
        leaving = " leaving" if pod.metadata.deletion_timestamp else ""
        state = f"{pod.spec.node_name} {pod.status.phase}{leaving}"
        return f"{name}({pod.metadata.uid} v{pod.metadata.resource_version} {state})"
    if isinstance(what, ev.PodRead):
        return f"{name}({what.uid} {what.pod.spec.node_name if what.pod else None})"
    if isinstance(what, ef.BindPod):
        return f"{name}({what.uid} {what.node} #{what.attempt})"
    if isinstance(what, ev.NodeAdded | ev.NodeUpdated | ev.NodeDeleted):
        return f"{name}({what.node.metadata.name})"
    if isinstance(what, ef.EvictPod | ef.DeletePod | ef.NominateNode):
        return f"{name}({what.uid} {what.cause_id} {getattr(what, 'node', '')})"
    if isinstance(what, ef.WritePodCondition | ef.RecordEvent):
        return f"{name}({what.name}: {what.reason} {what.message[:120]})"
    if isinstance(what, ef.RunHook):
        return f"{name}({what.ticket} {what.point} {what.plugin} {what.pod.key if what.pod else what.group})"
    if isinstance(what, ev.HookAnswered):
        return f"{name}({what.ticket} {what.code} {what.reason})"
    if isinstance(what, ef.CancelBinds):
        return f"{name}({what.cause_id})"
    if isinstance(what, ef.PatchClaim):
        return f"{name}({what.uid} v{what.resource_version} #{what.ticket} {what.patch.decode()[:240]})"
    if isinstance(what, ev.ClaimPatched | ev.ClaimRead | ev.ClaimBumped | ev.ObjectPut):
        one = what.object if isinstance(what, ev.ObjectPut) else what.claim
        meta = one.metadata if one is not None else None
        return f"{name}({meta.uid} v{meta.resource_version})" if meta is not None else f"{name}(gone)"
    uid = getattr(what, "uid", getattr(what, "kind", ""))
    return f"{name}({uid}{' ' + str(what.code) if isinstance(what, ev.BindFailed) else ''})"

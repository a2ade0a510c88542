"""Scheduler: the core's interface. handle, advance and schedule_next return effects.

Synchronous and deterministic: the same calls with the same arguments give the same effects. Called by
process.app live and by sim/ in virtual time. Behind it: membership (members of groups), group_specs (their
sizes), reconciler (their states), attempts (a turn), binder (carrying out a plan), reservations (validating
them), reporter (messages); they share one SharedState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import groupby
from operator import length_hint
from typing import Any

from gangsched.config import Settings
from gangsched.core.binding.admission_conflicts import AdmissionConflicts
from gangsched.core.binding.binder import Binder
from gangsched.core.device_audit.claimed_devices import ClaimedDevices
from gangsched.core.device_audit.device_health import DeviceHealth
from gangsched.core.device_audit.drift import DriftAudit
from gangsched.core.framework.observer import ObservedProfile, Observer
from gangsched.core.framework.plan import first_of
from gangsched.core.framework.profile import Profile
from gangsched.core.groups.attempts.attempts import Attempts
from gangsched.core.groups.attempts.extenders import Extenders, ExtenderVerdicts
from gangsched.core.groups.attempts.permits import Permits
from gangsched.core.groups.attempts.reservations import Reservations
from gangsched.core.groups.group_spec import GroupSpecs
from gangsched.core.groups.members.membership import Membership
from gangsched.core.groups.owners import Owners
from gangsched.core.groups.reconciler import Reconciler
from gangsched.core.groups.walltime_evictions import WalltimeEvictions
from gangsched.core.resource_claims.book import KINDS as CLAIM_KINDS
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.turns import turn
from gangsched.core.turns.containment import Containment
from gangsched.core.turns.dirty import Watch
from gangsched.core.turns.event_handlers import Answers, ClusterObjects
from gangsched.core.turns.invariants import Recount
from gangsched.core.turns.overdue import DEADLINES, Deadline, Overdue
from gangsched.core.turns.reconfigure import reconfigure, unfinished, watched
from gangsched.core.turns.steps import Defect, PlainSteps, Steps, Take, name_of
from gangsched.core.turns.turn import PHASES, Phase
from gangsched.core.types.group import ASSUMED, UNASKED, Group, GroupState, MemberState
from gangsched.core.units import Ties
from gangsched.errors import InvariantError
from gangsched.model import events as ev
from gangsched.model.effects import Effect
from gangsched.model.objects import Pod
from gangsched.model.pod_group import OBJECT_KINDS
from gangsched.model.resource_claims.objects import CLAIMS, TAINT_RULES, ResourceClaim

# The kinds that are always watched; PodGroup kinds may be missing.
KINDS = ("pods", "nodes", *OBJECT_KINDS)
_LEADERSHIP = "leadership"


class Scheduler:
    """One scheduler's whole state: takes events, returns effects."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        settings: Settings,
        *,
        node_capacity: int = 64,
        leading: bool = True,
        observer: Observer | None = None,
        pick: Callable[[int], int] = first_of,
        extenders: ExtenderVerdicts | None = None,
        guard: Callable[[Defect], None] | None = None,
        wall_ahead_s: float | None = None,
    ) -> None:
        """With `leading` False it follows everything and decides nothing until LeadershipGained.

        pick: given n equally good nodes for a lone pod, returns the index of one, if the settings say at
        random; a seeded generator's `randrange` uses them evenly, as kube-scheduler does. extenders: the
        profiles' plugin for extenders, if any. guard: called with exceptions that an object triggered in our
        own code, which then affect only that object (core.turns.containment); without it they are raised.
        wall_ahead_s: Unix time minus the clock of `now_s`, for times shown to people and ages of pods found
        running; None: unknown.
        """
        if observer is not None:
            profiles = {name: ObservedProfile(profile, observer) for name, profile in profiles.items()}
        self.shared = SharedState(
            profiles, settings, node_capacity=node_capacity, observer=observer, wall_ahead_s=wall_ahead_s
        )
        self._recount = Recount(self.shared)
        self.reporter = Reporter(self.shared)
        self.owners = Owners(self.shared, self.reporter)
        self.group_specs = GroupSpecs(self.shared, self.reporter, self.owners)
        self.audit = DriftAudit(self.shared, self.reporter)
        self.binder = Binder(self.shared, self.reporter, AdmissionConflicts(self.shared))
        self.permits = Permits(self.shared)
        self.ties = Ties(self.shared, pick)
        self.attempts = Attempts(
            self.shared, self.reporter, self.binder, self.permits, self.owners, self.ties
        )
        self.health = DeviceHealth(self.shared, self.reporter, self.binder, self.attempts.commits)
        self.claimed_devices = ClaimedDevices(self.shared, self.reporter)
        self.membership = Membership(
            self.shared,
            self.reporter,
            self.group_specs,
            self.owners,
            self.audit,
            self.health,
            self.claimed_devices,
        )
        self.walltime_evictions = WalltimeEvictions(self.shared, self.reporter, self.binder, self.attempts)
        self.reservations = Reservations(self.shared, self.attempts, self.binder)
        self.reconciler = Reconciler(
            self.shared, self.reporter, self.owners, self.binder, self.attempts, self.membership.leaving
        )
        self.watches = watched(profiles.values(), settings)
        self.kinds = (*KINDS, *self.watches)
        """Kinds that must have been fully listed, or be missing, before the first decision."""
        self._extenders = (
            None
            if extenders is None
            else Extenders(extenders, self.shared, self.reporter, self.attempts.commits)
        )
        self._unlisted = {*self.kinds} if leading else {*self.kinds, _LEADERSHIP}
        self._steps: Steps = PlainSteps(self.shared) if guard is None else Containment(self, guard)
        self._phases = turn.bound(self)
        self._overdue = Overdue(self, self._steps, self._extenders)
        self._objects = ClusterObjects(self)
        self._answers = Answers(self, self.permits)
        self._on_run: dict[type, Callable[[Iterator[Any]], None]] = {
            ev.PodAdded: self.membership.put_pods,
            ev.PodUpdated: self.membership.put_pods,
            ev.BindSucceeded: self.binder.succeeded,
        }
        """Handlers of frequent kinds, applied in runs: all events of a kind until another kind comes."""
        self._on_event = self._handlers()

    def _handlers(self) -> dict[type, Callable[[Any], None]]:
        """Handlers of all other kinds, one event at a time."""
        handlers: dict[type, Callable[[Any], None]] = {
            **self._objects.handlers,
            **self._answers.handlers,
            ev.PodDeleted: self.membership.remove_pod,
            ev.RefusalsRead: self.reconciler.refusals_read,
            ev.KindSynced: lambda e: self._kind_read(e.kind, is_served=True),
            ev.KindMissing: self._kind_missing,
            ev.LeadershipGained: lambda e: self._synced(_LEADERSHIP),
            ev.QueueUsageRead: self._recall_queues,
            ev.StartsEstimated: self.attempts.forecasts.take_estimates,
        }
        if self._extenders is not None:
            handlers[ev.ExtendersAnswered] = self._extenders.answered
        return handlers

    @property
    def unlisted(self) -> Set[str]:
        """What must be listed, or gained, before the first or the next decision."""
        return self._unlisted

    @property
    def is_synced(self) -> bool:
        """Whether all existing objects have been received once, so that decisions can be made."""
        return not self._unlisted

    def handle(self, events: Sequence[ev.Event], now_s: float) -> list[Effect]:
        """Applies events, in order. now_s: a monotonic clock, in seconds, never going back."""
        self._steps.begin(now_s)
        for kind, run in groupby(self.attempts.searches.note_news(events), type):
            take_all = self._on_run.get(kind) or partial(_one_by_one, self._on_event[kind])
            self.apply(take_all, run)
        return self._end_turn()

    def apply(self, take: Take, run: Iterable[ev.Event]) -> None:
        """Passes events of one kind to `take`; if one fails, core.turns.steps decides about the rest."""
        events = list(run)
        left = iter(events)
        self.shared.n_inputs += 1
        is_whole = False
        while not is_whole:
            try:
                take(left)
                is_whole = True
            except Exception as error:
                is_whole = not self._steps.events_failed(take, events, length_hint(left), error)
        self._steps.applied(events)

    def for_group(self, group: Group, do: Callable[[Group], Any]) -> None:
        """Runs a step for one group, unless it must wait; reports it to core.turns.steps if it raises."""
        if self._steps.may_step(group):
            try:
                do(group)
            except Exception as error:
                self._steps.group_failed(group, name_of(do), error)

    def _recall_queues(self, event: ev.QueueUsageRead) -> None:
        """Restores what queues have held lately, as saved by an earlier process."""
        view, now_s = self.shared.queue_view, self.shared.now_s
        if view is not None and view.queues is not None:
            began_s = now_s if view.began_s is None else view.began_s
            view.queues.restore(event.decayed, event.age_s, now_s, began_s=began_s)

    def reconfigure(
        self, profiles: Mapping[str, Profile], settings: Settings, now_s: float
    ) -> tuple[list[Effect], tuple[str, ...]]:
        """Applies new profiles and settings; returns effects and the additional kinds to watch.

        No decisions are made until these kinds are listed. If `is_retiring` afterwards, call it again with
        the same arguments once no group is `unfinished`.
        """
        self.shared.set_time(now_s)
        observer = self.shared.observer
        if observer is not None:
            profiles = {name: ObservedProfile(profile, observer) for name, profile in profiles.items()}
        are_inferred = self.shared.settings.infer_gangs
        reconfigure(self, profiles, settings)
        self.group_specs.classes_changed()
        if self.shared.settings.infer_gangs != are_inferred:
            self.membership.regroup(list(self.shared.groups.values()))
        more = self.unfollowed(profiles, settings)
        self.watches = (*self.watches, *more)
        self.kinds = (*KINDS, *self.watches)
        self._unlisted |= {*more}
        return self._end_turn(), more

    def unfollowed(self, profiles: Mapping[str, Profile], settings: Settings) -> tuple[str, ...]:
        """Kinds that these profiles' plugins and these settings read and that are not watched yet."""
        return tuple(kind for kind in watched(profiles.values(), settings) if kind not in self.watches)

    def newly_watched(self) -> tuple[str, ...]:
        """Kinds to watch from now on: a namespace infers gangs from them, a PodGroup names a priority class,
        a pod requests what no node offers, or devices are allocated by claims. Each is returned once.

        Only pods that such an object may concern wait until it is listed; everything waits for all claims
        and devices, as at start.
        """
        claims = self._kinds_of_claims()
        asked_for = (
            self.owners.asked_for,
            self.group_specs.asked_for,
            self.shared.cache.objects.asked_for,
            claims,
        )
        if not any(asked_for):
            return ()
        asked = dict.fromkeys(kind for kinds in asked_for for kind in kinds)
        more = tuple(kind for kind in asked if kind not in self.watches)
        self._unlisted.update(kind for kind in more if kind in claims)
        for kinds in asked_for:
            kinds.clear()
        self.watches = (*self.watches, *more)
        self.kinds = (*KINDS, *self.watches)
        return more

    def _kinds_of_claims(self) -> dict[str, None]:
        """Returns the kinds of Dynamic Resource Allocation as soon as there is any use for them."""
        if CLAIMS in self.watches or not self.shared.cache.claims.is_in_use:
            return {}
        profiles = self.shared.profiles.values()
        return dict.fromkeys(CLAIM_KINDS) if any(one.allocates_claims for one in profiles) else {}

    @property
    def is_retiring(self) -> bool:
        """Whether a profile removed from the configuration is still in effect."""
        return bool(self.shared.retiring)

    def unfinished(self, names: Iterable[str]) -> list[Group]:
        """Groups of profiles other than these that cannot be dropped yet."""
        return unfinished(self.shared, frozenset(names))

    def advance(self, now_s: float) -> list[Effect]:
        """Applies the deadlines that have passed."""
        self._steps.begin(now_s)
        if not self.is_synced:
            return []
        self._overdue.apply()
        return self._end_turn()

    def in_line(self) -> Iterator[Group]:
        """The groups that `pop` is expected to return next, in order; they stay in line.

        Read it at once: later calls may change the line.
        """
        return self.shared.queue.in_line() if self.is_synced else iter(())

    def claims_of(self, pod: Pod) -> Iterable[ResourceClaim]:
        """Returns the pod's resource claims, those that are known."""
        return self.shared.cache.claims.claims_of(pod).values()

    def pop(self) -> Group | None:
        """Takes the group whose turn it is out of the line; None if no group can be tried now."""
        return self.shared.queue.pop_active() if self.is_synced else None

    def schedule(self, group: Group, now_s: float) -> list[Effect]:
        """Makes one attempt to place a popped group."""
        self._steps.begin(now_s)
        self.for_group(group, self._attempt)
        return self._end_turn()

    def _attempt(self, group: Group) -> None:
        if group.is_complete and (group.n_pending or group.state is GroupState.WAITING):
            self._try(group)
        else:
            self.shared.queue.park(group, Cause.INCOMPLETE)
            self.shared.mark_group(group)

    def _try(self, group: Group) -> None:
        """Tries the group now, or lets it wait for its extenders, whose answer puts it back in line."""
        if self._extenders is None:
            self.attempts.run(group)
        elif not self._extenders.must_wait(group):
            self.attempts.run(group)
            self._extenders.forget(group)

    def schedule_next(self, now_s: float) -> list[Effect] | None:
        """Calls pop and schedule; None if no group can be tried now."""
        group = self.pop()
        return None if group is None else self.schedule(group, now_s)

    def is_on_its_way(self, uid: str) -> bool:
        """Whether a sent effect that binds the pod, or prepares to, is not settled, or a claim is in hand."""
        record = self.shared.claim_uses.records.get(uid)
        if record is not None:
            return record.is_in_hand
        info = self.shared.cache.pods.get(uid)
        return info is not None and info.state is ASSUMED and info.bind is not UNASKED

    @property
    def n_active(self) -> int:
        """Groups waiting for their turn."""
        return 0 if self._unlisted else self.shared.queue.n_active

    def next_deadline_s(self) -> float | None:
        """When advance has something to do next."""
        return self._overdue.next_s() if self.is_synced else None

    def statistics(self) -> dict[str, Any]:
        """Counts for metrics, tables and tests."""
        states = dict.fromkeys((state.value for state in GroupState), 0)
        members = dict.fromkeys((state.value for state in MemberState), 0)
        n_partial = 0
        for group in self.shared.groups.values():
            states[group.state.value] += 1
            n_partial += group.is_half_bound and group.state is not GroupState.BINDING
            for state, n in group.counts.items():
                members[state.value] += n
        return {
            "nodes": self.shared.cache.nodes.n_live,
            "pods": len(self.shared.cache.pods),
            "groups": states,
            "members": members,
            "partial_gangs": n_partial,
            "reservations": members[MemberState.ASSUMED.value],
            "device_drift": self.audit.statistics(),
            **self.shared.counters,
        }

    def check_marks(
        self, phases: Iterable[Phase] = PHASES, deadlines: Iterable[Deadline] = DEADLINES
    ) -> None:
        """Checks from now on that each phase and deadline marks only what it declares; never live.

        Later calls raise: InvariantError (one has marked more, or something is left at the end of a turn).
        """
        watch = Watch(self.shared)
        self._phases = turn.bound_and_checked(self, watch, phases)
        self._overdue.watch(watch, deadlines)

    def validate(self) -> None:
        """Checks the core's invariants by recounting. Raises: InvariantError."""
        broken = self._recount.find_broken()
        if broken:
            raise InvariantError(broken[0], story=broken[1:])

    # -- events ----------------------------------------------------------------------------------------

    def _kind_missing(self, event: ev.KindMissing) -> None:
        why = "has failed for long" if event.is_unread else "is not allowed" * event.is_forbidden
        if not why and event.kind != TAINT_RULES:  # these are newer than claims
            why = "is not possible: the API server does not serve them in v1"
        self._kind_read(event.kind, is_served=None if event.is_unread else False, why_not=why)

    def _kind_read(self, kind: str, *, is_served: bool | None, why_not: str = "") -> None:
        """A kind was listed or is missing. is_served: None if unknown; its gangs then wait for objects."""
        self.shared.cache.claims.note_read(kind, why_not)
        self._synced(kind)
        if is_served is not None:
            self.membership.regroup(self.owners.served(kind, is_served))

    def _synced(self, kind: str) -> None:
        if kind in self._unlisted:
            self._unlisted.discard(kind)
            if not self._unlisted:
                self.shared.decides = True
                self.audit.compare_all()
                for group in self.shared.groups.values():
                    self.reconciler.found(group)
                    self.shared.mark_group(group)

    # -- the end of a turn -----------------------------------------------------------------------------

    def _end_turn(self) -> list[Effect]:
        """Runs the phases (core.turns.turn), those of groups until no group is marked; returns the
        effects.
        """
        shared, steps = self.shared, self._steps
        if self.is_synced:
            first, of_groups, last = self._phases
            steps.every(first)
            while shared.marked_groups:
                marked, shared.marked_groups = shared.marked_groups, {}
                for do, only_if in of_groups:
                    if only_if is None or only_if(self):
                        for group in marked.values():
                            self.for_group(group, do)
            steps.every(last)
        else:
            self._follow()
        steps.end()
        return shared.take_effects()

    def _follow(self) -> None:
        """Drops groups without members; those with members are all marked before the first decision."""
        shared = self.shared
        marked, shared.marked_groups = shared.marked_groups, {}
        for group in (one for one in marked.values() if not one.members):
            self.for_group(group, self.reconciler.reconcile)
        turn.drop_marks(shared)


def _one_by_one(take: Callable[[Any], None], run: Iterator[Any]) -> None:
    for event in run:
        take(event)

"""MakingRoom: preemption for a unit that does not fit: PostFilter, and the wait for its victims.

Called by core.groups.attempts.attempts, in the unit's turn. Not here: the search for victims
(core.preemption), their eviction and the reservation of their room (core.kept.nominations).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.domains.topology import requires_domain
from gangsched.core.framework.eviction_rule import EvictionRule
from gangsched.core.framework.interface import Code, DryRun, PostFilterResult, Status
from gangsched.core.framework.plan import FitError, Plan
from gangsched.core.framework.profile import Demand
from gangsched.core.groups.attempts.commits import Commits
from gangsched.core.groups.attempts.failed_searches import FailedSearches, later
from gangsched.core.groups.attempts.placer import Placer
from gangsched.core.kept.kept import Kept
from gangsched.core.kept.nominations import Nominations, would_take
from gangsched.core.preemption.by_domain import run_post_filter_by_domain
from gangsched.core.preemption.victims import is_leaving, priority_of
from gangsched.core.state.state import SharedState
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.group import Group, GroupState, MemberState, PodInfo, Preemption
from gangsched.core.types.placement import Nominated, Placement
from gangsched.core.types.victim_words import LOWER, PAST_WALLTIME
from gangsched.core.units import Units
from gangsched.core.why import Why, beyond, together
from gangsched.core.why.evictions import RoomLost
from gangsched.core.why.released import PreemptedBy


class MakingRoom:
    """Makes room by preemption, or keeps waiting for it."""

    def __init__(
        self,
        shared: SharedState,
        nominations: Nominations,
        kept: Kept,
        units: Units,
        searches: FailedSearches,
        placer: Placer,
        commits: Commits,
    ) -> None:
        self._shared = shared
        self._nominations = nominations
        self._kept = kept
        self._units = units
        self._searches = searches
        self._placer = placer
        self._commits = commits
        self._rounds = nominations.rounds

    def below_limits(self, unit: list[Group], refused: Status) -> Status | None:
        """Preempts for a unit that Admit keeps out because of what others hold. None: it waits for its
        victims; else Admit's answer now. Raises: PluginError."""
        if any(group.n_assumed for group in unit):
            return refused
        victims, admission = self._shared.victims, self._units.admission
        if waited := self._nominations.lift(unit):
            # What has been evicted for others first is theirs, also in `lacks` below.
            own = [info for uid, info in waited.waits_for.items() if victims[uid][0] is waited]
            if own and admission.ask(unit, own).is_success and self.keep_waiting(unit, waited, None) is None:
                return None
            return refused  # its place is taken; it searches again in its next turn
        if not admission.may_preempt(unit, refused):
            return refused

        def lacks(gone: Collection[PodInfo]) -> Why:
            answer = admission.ask(unit, [info for info in gone if info.uid not in victims])
            return "" if answer.is_success else answer.why

        error = FitError(unit[0], refused.why, ((refused.plugin, None),))
        answer = self.make(unit, error, lacks=lacks)
        if answer is None:
            return None
        if isinstance(answer, FitError):
            why = refused.why if self._shared.settings.allow_eviction else answer.why
            return Status.refused(answer.code, why, plugin=refused.plugin)
        return admission.ask(unit)

    def make(
        self, unit: list[Group], error: FitError, *, lacks: Callable[[Collection[PodInfo]], Why] | None = None
    ) -> Plan | FitError | None:
        """Runs PostFilter. None: the unit waits for its victims; a Plan: taking reservations was enough.

        lacks: why the unit is kept out whatever room it has, if these pods are gone.
        """
        shared = self._shared
        profile = shared.profile_of(unit[0])
        allowed = shared.settings.allow_eviction or shared.settings.tells_victims
        if error.code is Code.UNRESOLVABLE or not allowed:
            return error
        overrun = self._kept.past_walltime(unit) if lacks is None else None
        if overrun is not None:
            shared.count("overrun_victims", len(overrun.victims))
            self._nominations.promise(unit, overrun, error, whose=PAST_WALLTIME)
            return None
        if not profile.post_filters:
            return error
        if self._kept.starts_soon(unit):
            return error
        if pause := self._rounds.pause(unit[0]):
            return _with(error, pause, Code.UNSCHEDULABLE)
        demands = self._units.demands(unit)
        rule = self._rule(unit, demands, shared.queue_view)
        yielding = self._yielding(_rank(unit, rule))
        trial = Trial(shared.cache.view)
        for info in (info for group in yielding for info in group.members.values()):
            trial.lift(info.uid)
        spared = self._rounds.spared(unit[0])
        dry_run = self._dry_run(demands, rule, lacks, spared)
        key = self._searches.key_of(demands) if lacks is None and not yielding and not spared else None
        answer: PostFilterResult | Status | None = None
        if key is not None:
            answer = self._searches.known(key, dry_run)
        if answer is None:
            if not self._searches.may_search(demands):
                return later(error)
            answer = self._search(demands, trial, error, dry_run, spared)
            if isinstance(answer, Status) and spared:
                if pause := self._rounds.pause(unit[0], remade=True):
                    answer = Status.refused(Code.UNSCHEDULABLE, pause)
                else:
                    dry_run = self._dry_run(demands, rule, lacks)
                    answer = self._search(demands, trial, error, dry_run)
            if isinstance(answer, Status):
                self._searches.failed(key, demands, dry_run, answer)
        if isinstance(answer, Status):
            return _with(error, answer.why, answer.code)
        if not shared.settings.allow_eviction and any(
            info.state is MemberState.BOUND for info in answer.victims
        ):
            whose = LOWER if rule is None else rule.whose
            return _with(error, would_take(answer, shared.cache.view, whose), Code.UNSCHEDULABLE)
        kind = "gang" if unit[0].is_gang else "pod"
        why = PreemptedBy(kind, str(unit[0].key))
        wanted = {(p.row, i) for p in answer.plan.placements for i in _device_ids(p)}
        for group in yielding:
            if group.preemption is not None and not wanted.isdisjoint(self._claimed(group)):
                self._commits.give_back(group, why)
        for held in [info.group for info in answer.victims if info.state is MemberState.ASSUMED]:
            if held is not None and held.state is GroupState.WAITING:
                self._commits.give_back(held, why)
        if not any(info.state is MemberState.BOUND for info in answer.victims):
            return self._placer.place(unit, self._kept)
        self._nominations.promise(unit, answer, error, rule)
        return None

    def _search(
        self,
        demands: Sequence[Demand],
        trial: Trial,
        error: FitError,
        dry_run: DryRun,
        spared: Collection[str] = (),
    ) -> PostFilterResult | Status:
        self._shared.count("preemption_attempts")
        profile = self._shared.profile_of(demands[0].group)  # that of a demand is not observed
        if requires_domain(demands):
            dry_run_of = partial(self._dry_run, rule=dry_run.rule, lacks=dry_run.lacks, spared=spared)
            return run_post_filter_by_domain(profile, demands, trial, error, dry_run_of)
        return profile.run_post_filter(demands, trial, error, dry_run)

    def is_outdated(self, waited: Preemption) -> bool:
        """Whether the rule no longer allows victims that are not terminating yet: say, an eviction was
        refused, and meanwhile their queue holds less. Raises: PluginError."""
        left = [info for info in waited.waits_for.values() if not is_leaving(info)]
        if not left or waited.is_overrun or not (demands := self._units.demands(list(waited.unit))):
            return False
        priority = min(group.priority for group in waited.unit)
        rule = self._rule(list(waited.unit), demands, self._view_before(waited))
        if rule is None:  # the new configuration has none; the old rule may have allowed any priority
            return waited.whose != LOWER and any(priority_of(info) >= priority for info in left)
        return not all(rule.may_take(info, is_lower=priority_of(info) < priority) for info in left) or bool(
            rule.refuses(left)
        )

    def _view_before(self, waited: Preemption) -> QueueView | None:
        """The queue view without what is promised to the unit."""
        view = self._shared.queue_view
        if view is None:
            return None
        others = {uid for uid, by in self._shared.victims.items() if any(one is not waited for one in by)}
        return view.without(waited.unit, others)

    def _rule(
        self, unit: Sequence[Group], demands: Sequence[Demand], view: QueueView | None
    ) -> EvictionRule | None:
        """Raises: PluginError."""
        profile = self._shared.profile_of(unit[0])
        if view is None or not profile.admit_plugins:
            return None
        return profile.eviction_rule(unit, [i for one in demands for i in one.members[: one.n_needed]], view)

    def _dry_run(
        self,
        demands: Sequence[Demand],
        rule: EvictionRule | None,
        lacks: Callable[[Collection[PodInfo]], Why] | None,
        spared: Collection[str] = (),
    ) -> DryRun:
        shared = self._shared
        priority = min(demand.group.priority for demand in demands)
        nominated = self._nominated(demands)
        # Hundreds of cycles: none of them may cost as much as one that decides.
        return DryRun(
            lambda made: self._placer.cycle(demands, made, nominated, 0),
            lambda made, budget: self._placer.cycle(demands, made, nominated, budget),
            shared.siblings,
            shared.lowest_priority(),
            nominated=[one for one in nominated if one.priority >= priority],
            n_looks=shared.settings.search_victims,
            search_budget=shared.settings.search_placements,
            spared={**shared.stuck, **dict.fromkeys(spared)} if spared else shared.stuck,
            going={uid: found[0].waits_for[uid] for uid, found in shared.victims.items()},
            rule=rule,
            lacks=lacks,
        )

    def _yielding(self, priority: int) -> list[Group]:
        """Groups of lower priority that wait for victims; their reservations yield to this priority."""
        waiting = {id(p): p for found in self._shared.victims.values() for p in found}
        return [g for p in waiting.values() for g in p.unit if max(g.priority, p.keeps_at) < priority]

    def _claimed(self, group: Group) -> set[tuple[int, str]]:
        claims = self._shared.cache.ledger.claims
        return {(row, one) for uid in group.members for row, _, ids in claims(uid) for one in ids}

    def keep_waiting(
        self, unit: list[Group], waited: Preemption, error: FitError | None
    ) -> Plan | FitError | None:
        """Reconsiders a waiting unit, which does not fit now (error; None: a limit keeps it out): it keeps
        waiting as long as it will fit once its victims are gone, for those that are needed. Otherwise makes
        room again, from what is there. A Plan: they are gone, and it fits beside the nominations to which it
        yields."""
        demands = self._units.demands(unit)
        going = {uid: info for uid, info in waited.waits_for.items() if is_leaving(info)}
        if 0 < len(going) < len(waited.waits_for):
            answer = self._without(demands, going.values())
            if isinstance(answer, Plan):
                self._nominations.spare(waited, going)
                self._nominations.renew(waited, answer.placements)
                return None
        trial = Trial(self._shared.cache.view)
        trial.release_claims()
        trial.remove(*waited.waits_for.values())
        answer = self._placer.cycle(demands, trial, self._nominated(demands))
        if isinstance(answer, FitError):
            there = self._where_promised(unit, waited, trial)
            if there is not None and not waited.waits_for:
                if trial.claimed is self._shared.cache.claims.cluster:
                    return there
                # Devices of pods that are gone are not free before their claims are given back.
                now = self._where_promised(unit, waited, Trial(self._shared.cache.view))
                if now is not None:
                    return now
            answer = there or answer
        if isinstance(answer, FitError):
            return answer if error is None else self._make_again(unit, answer, error)
        self._nominations.renew(waited, answer.placements)
        return None

    def _without(self, demands: Sequence[Demand], infos: Iterable[PodInfo]) -> Plan | FitError:
        trial = Trial(self._shared.cache.view)
        trial.remove(*infos)
        return self._placer.cycle(demands, trial, self._nominated(demands))

    def _nominated(self, demands: Sequence[Demand]) -> list[Nominated]:
        """All room that is kept from the unit, also what is not free yet."""
        return self._kept.kept_from([demand.group for demand in demands]).room

    def _make_again(self, unit: list[Group], lost: FitError, error: FitError) -> Plan | FitError | None:
        """Makes room once more for a unit whose room is gone; its victims that have not gone are spared,
        unless they are chosen again."""
        self._shared.count("preemption_rooms_lost")
        if (waited := unit[0].preemption) is not None and waited.taken_by:
            self._rounds.lost_to_others(unit[0], waited.taken_by)
        for group in unit:
            self._nominations.drop(group)
        answer = self.make(unit, error)
        if isinstance(answer, FitError):
            more = beyond(error.why, answer.why)
            if more is None:
                more = (answer.why,)
            return replace(answer, why=together(RoomLost(lost.why), *more))
        return answer

    def _where_promised(self, unit: list[Group], waited: Preemption, trial: Trial) -> Plan | None:
        """Places the unit on the nodes where room was made for it, ahead of later nominations there."""
        nominated = self._kept.kept_from(unit).room
        ahead = self._nominations.ahead_of(waited, nominated)
        if len(ahead) == len(nominated):
            return None
        within: BoolArray = np.zeros(trial.n_rows, dtype=np.bool_)
        within[[row for name in sorted(waited.nodes) if (row := trial.row_of(name)) is not None]] = True
        answer = self._placer.trial(unit, trial, ahead, within=within)
        return None if isinstance(answer, FitError) else answer


def _with(error: FitError, more: Why, code: Code) -> FitError:
    """Adds why no room can be made for the unit either."""
    return replace(error, why=together(error.why, more) if more else error.why, code=code)


def _rank(unit: Sequence[Group], rule: EvictionRule | None) -> int:
    """The unit's priority among the reservations of units that wait for victims."""
    priority = min(group.priority for group in unit)
    return priority if rule is None or rule.keeps_at is None else max(priority, rule.keeps_at)


def _device_ids(placement: Placement) -> list[str]:
    return [one for sets in placement.allocation.values() for ids in sets.values() for one in ids]

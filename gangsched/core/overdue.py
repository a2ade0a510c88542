"""Overdue: acts on deadlines that have passed, of pods, of groups and of the scheduler's parts.

Each deadline is kept by the class that set it, all in one heap (core.state.timers). Called by core.scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gangsched.core.groups.extenders import Extenders
from gangsched.core.parts import SchedulerParts
from gangsched.core.state.state import PRE_ENQUEUE, READ_GONE
from gangsched.core.steps import Steps, name_of
from gangsched.core.types.group import NEVER_S, Group, GroupState


class Overdue:
    """Acts on passed deadlines, and knows when the next one is."""

    def __init__(self, scheduler: SchedulerParts, steps: Steps, extenders: Extenders | None) -> None:
        self._scheduler = scheduler
        self._shared = scheduler.shared
        self._steps = steps
        self._extenders = extenders

    def apply(self, now_s: float) -> None:
        """Handles deadlines of pods first, then of half-bound groups, other groups, and parts."""
        shared, scheduler, steps = self._shared, self._scheduler, self._steps
        for _, uid, attempt in shared.retries.take(now_s):
            if attempt == PRE_ENQUEUE:
                self._for_pod(uid, scheduler.membership.ask_pre_enqueue)
            elif attempt == READ_GONE:
                self._for_pod(uid, scheduler.binder.read_gone)
            else:
                self._for_pod(uid, partial(scheduler.binder.send_again, attempt=attempt))
        for key in shared.settle_by_s.due(now_s):
            group = shared.groups.get(key)
            if group is None:
                shared.settle_by_s.drop(key)
            else:
                scheduler.for_group(group, self._settle)
        due: list[Group] = []
        steps.by_deadline(lambda: due.extend(shared.queue.due(now_s)))
        for group in due:
            scheduler.for_group(group, self._expired)
        for do in (
            scheduler.attempts.claiming.advance,
            scheduler.membership.foreign_nominations.advance,
            scheduler.audit.advance,
            scheduler.health.advance,
            scheduler.reconciler.refusals.advance,
            scheduler.reconciler.losses.advance,
            scheduler.binder.pre_bind.expire,
            scheduler.binder.staggered.expire,
        ):
            steps.by_deadline(do)
        over: list[Group] = []
        steps.by_deadline(lambda: over.extend(scheduler.walltime_evictions.due()))
        for group in over:
            scheduler.for_group(group, scheduler.walltime_evictions.act)

    def next_s(self) -> float | None:
        """The next deadline; None if there is none."""
        steps = self._steps
        left_over_s = min(steps.look_again_s, self._scheduler.membership.pre_enqueue.asks_again_s())
        soonest = max(min(self._shared.timers.next_s(), left_over_s), steps.not_before_s)
        return None if soonest == NEVER_S else soonest

    def _for_pod(self, uid: str, do: Callable[[str], Any]) -> None:
        try:
            do(uid)
        except Exception as error:
            self._steps.pod_failed(uid, name_of(do), error)

    def _settle(self, group: Group) -> None:
        """Ends a half-bound group's wait for the rest of its members."""
        shared, scheduler = self._shared, self._scheduler
        if not group.is_half_bound:
            shared.settle_by_s.drop(group.key)
        elif not group.n_assumed:
            if group.preemption is not None and shared.settings.allow_eviction:
                scheduler.attempts.give_back(
                    group, "the victims for its remaining members did not go in time"
                )
            scheduler.binder.outcome.unwind(group)
        elif scheduler.binder.pre_bind.stop(
            group, "the rest of the gang was not prepared in time"
        ) or scheduler.binder.staggered.stop(group, "the rest of the gang was not sent in time"):
            pass  # reconsidered before this turn ends, and then handled by its policy
        else:
            # Wait for the answers to binds in flight.
            shared.settle_by_s.set(group.key, shared.now_s + 1.0)

    def _expired(self, group: Group) -> None:
        if group.deadline_s != NEVER_S:
            return  # it was handled together with an earlier group, and has a new deadline
        if group.state is GroupState.ASKING and self._extenders is not None:
            self._extenders.late(group)
        else:
            self._scheduler.reconciler.expired(group)

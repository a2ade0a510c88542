"""Overdue: what is done at deadlines that have passed, as a declared list.

All deadlines are in one heap (core.state.timers), by kind; each kind is in one row. Not here: the work at
each (the rooms), and the phases that follow in the same turn (core.turns.turn). Called by core.scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from gangsched.core.groups.attempts.extenders import Extenders
from gangsched.core.state.state import PRE_ENQUEUE, READ_GONE
from gangsched.core.state.timers import DeadlineKind
from gangsched.core.turns import dirty
from gangsched.core.turns.dirty import Mark, Watch
from gangsched.core.turns.parts import SchedulerParts
from gangsched.core.turns.steps import Steps, name_of
from gangsched.core.types.group import NEVER_S, Group, GroupState

_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS = (
    *(Mark.GROUPS, Mark.CHANGES, Mark.LINE, Mark.DEADLINES, Mark.EFFECTS),
)


class Deadline(NamedTuple):
    """Work that is due at a time. kinds: its deadlines (core.state.timers). do: finds the work, for one group
    where there are `groups`, which are due."""

    name: str
    kinds: tuple[DeadlineKind, ...]
    when: str
    does: str
    marks: tuple[Mark, ...]
    do: Callable[[Overdue], Callable[..., Any]]
    groups: Callable[[Overdue], Iterable[Group]] | None = None


class Overdue:
    """Acts on passed deadlines, and knows when the next one is."""

    def __init__(self, scheduler: SchedulerParts, steps: Steps, extenders: Extenders | None) -> None:
        self.parts = scheduler
        self._shared = scheduler.shared
        self._steps = steps
        self._extenders = extenders
        self._deadlines = DEADLINES

    def watch(self, watch: Watch, deadlines: Iterable[Deadline]) -> None:
        """Checks from now on that what is due marks only what it declares."""
        self._deadlines = tuple(_watched(one, watch) for one in deadlines)

    def apply(self) -> None:
        """Does what is due at the turn's time, in the order of the list."""
        for one in self._deadlines:
            if one.groups is None:
                self._steps.by_deadline(one.do(self))
            else:
                due: list[Group] = []
                self._steps.by_deadline(partial(_collect, due, one.groups, self))
                do = one.do(self)
                for group in due:
                    self.parts.for_group(group, do)

    def next_s(self) -> float | None:
        """The next deadline; None if there is none."""
        steps = self._steps
        left_over_s = min(steps.more_at_s, self.parts.membership.pre_enqueue.asks_again_s())
        soonest = max(min(self._shared.timers.next_s(), left_over_s), steps.not_before_s)
        return None if soonest == NEVER_S else soonest

    def retry(self) -> None:
        """Handles the pods that are due; one that fails costs itself alone."""
        shared, parts = self._shared, self.parts
        for _, uid, attempt in shared.retries.take(shared.now_s):
            if attempt == PRE_ENQUEUE:
                self._for_pod(uid, parts.membership.ask_pre_enqueue)
            elif attempt == READ_GONE:
                self._for_pod(uid, parts.binder.read_gone)
            else:
                self._for_pod(uid, partial(parts.binder.send_again, attempt=attempt))

    def _for_pod(self, uid: str, do: Callable[[str], Any]) -> None:
        try:
            do(uid)
        except Exception as error:
            self._steps.pod_failed(uid, name_of(do), error)

    def half_bound(self) -> Iterable[Group]:
        """The groups whose time to become whole is over."""
        shared = self._shared
        for key in shared.settle_by_s.due(shared.now_s):
            if (group := shared.groups.get(key)) is not None:
                yield group
            else:
                shared.settle_by_s.drop(key)

    def settle(self, group: Group) -> None:
        """Ends a half-bound group's wait for the rest of its members."""
        shared, parts = self._shared, self.parts
        if not group.is_half_bound:
            shared.settle_by_s.drop(group.key)
        elif not group.n_assumed:
            if group.preemption is not None and shared.settings.allow_eviction:
                why = "the victims for its remaining members did not go in time"
                parts.attempts.commits.give_back(group, why)
            parts.binder.outcome.unwind(group)
        elif parts.binder.pre_bind.stop(
            group, "the rest of the gang was not prepared in time"
        ) or parts.binder.staggered.stop(group, "the rest of the gang was not sent in time"):
            pass  # reconsidered before this turn ends, and then handled by its policy
        else:
            # Wait for the answers to binds in flight.
            shared.settle_by_s.set(group.key, shared.now_s + 1.0)

    def timed_out(self) -> Iterable[Group]:
        """The groups whose present state has lasted as long as it may."""
        return self._shared.queue.due(self._shared.now_s)

    def move_on(self, group: Group) -> None:
        """Ends the group's present state."""
        if group.deadline_s != NEVER_S:
            return  # it was handled together with an earlier group, and has a new deadline
        if group.state is GroupState.ASKING and self._extenders is not None:
            self._extenders.expire(group)
        else:
            self.parts.reconciler.expired(group)


DEADLINES: tuple[Deadline, ...] = (
    Deadline(
        "pods",
        (DeadlineKind.RETRY,),
        "a pause after a failed try is over; a pod's PreEnqueue is to be asked again",
        "sends the bind again, asks the plugin, or reads a pod that the server has reported gone",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.retry,
    ),
    Deadline(
        "resource claims",
        (DeadlineKind.RESOURCE_CLAIM,),
        "a pause after a failed write of a resource claim is over",
        "sends what the claim needs next",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.parts.binder.claims.advance,
    ),
    Deadline(
        "left claims",
        (DeadlineKind.LEFT_CLAIM,),
        "a resource claim has been allocated for `settleSeconds` and no pod of its has started; or for 5 s"
        " after its last pod, a victim, has gone",
        "gives it back, unless a pod of its is about to start, or runs",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.parts.binder.claims.sweep,
    ),
    Deadline(
        "binding conditions",
        (DeadlineKind.BINDING_CONDITION,),
        "a device's binding conditions have not come true in ten minutes",
        "gives its gang's claims back",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.parts.binder.claims.give_up_waiting,
    ),
    Deadline(
        "claimed devices",
        (DeadlineKind.UNPREPARED, DeadlineKind.HELD_DEVICES),
        "a bound pod's devices should be prepared by now; a pod was deleted by force 30 s ago",
        "tells of the pod that they are not; frees its devices",
        (_CHANGES, _DEADLINES, _EFFECTS),
        lambda on: on.parts.claimed_devices.advance,
    ),
    Deadline(
        "half bound",
        (DeadlineKind.HALF_BOUND,),
        "a gang bound in part is not whole after `settleSeconds`",
        "unwinds it, or waits a second more for answers to its binds",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.settle,
        lambda on: on.half_bound(),
    ),
    Deadline(
        "states",
        (DeadlineKind.STATE,),
        "a backoff is over, an unschedulable group is flushed, an incomplete one reported; a wait in Permit,"
        " for victims or for extenders is over; an eviction is repeated",
        "moves the group on",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.move_on,
        lambda on: on.timed_out(),
    ),
    Deadline(
        "claims",
        (DeadlineKind.CLAIM,),
        "a claim is due, or was not checked for a while",
        "has its group tried again",
        (_LINE, _DEADLINES),
        lambda on: on.parts.attempts.kept.advance,
    ),
    Deadline(
        "foreign nominations",
        (DeadlineKind.FOREIGN_NOMINATION,),
        "another scheduler has nominated a node for its pod long ago",
        "keeps the room no longer",
        (_CHANGES, _DEADLINES),
        lambda on: on.parts.membership.foreign_nominations.advance,
    ),
    Deadline(
        "holes",
        (DeadlineKind.HOLE,),
        "a gang has lost a member `successorTimeoutSeconds` ago, and no other has been placed",
        "keeps the member's place no longer",
        (_CHANGES, _DEADLINES),
        lambda on: on.parts.shared.end_holes,
    ),
    Deadline(
        "device repairs",
        (DeadlineKind.ANNOTATION, DeadlineKind.UNUSABLE_DEVICES, DeadlineKind.ENDED_POD),
        "a pod's annotation is not what kubelet gave it, or its devices are of no use to it",
        "corrects the annotation, or evicts the pod",
        (_DEADLINES, _EFFECTS),
        lambda on: on.parts.audit.advance,
    ),
    Deadline(
        "failed devices",
        (DeadlineKind.FAILED_DEVICES,),
        "the grace period of a failed device is over",
        "evicts the pod or its gang, as configured",
        (_CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.parts.health.advance,
    ),
    Deadline(
        "refusals",
        (DeadlineKind.REFUSALS,),
        "a gang has gathered twice as long as when it was last asked about",
        "asks why its controller creates no more pods",
        (_DEADLINES, _EFFECTS),
        lambda on: on.parts.reconciler.refusals.advance,
    ),
    Deadline(
        "lost members",
        (DeadlineKind.LOST_MEMBERS,),
        "a gang that lost members has not recovered in its time",
        "evicts the rest, or sees whether it could move",
        (_CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.parts.reconciler.losses.advance,
    ),
    Deadline(
        "prepared units",
        (DeadlineKind.PREPARED_UNIT,),
        "kubelet has not admitted, in `settleSeconds`, the pods that a prepared unit waits for",
        "gives the unit up",
        (_GROUPS, _CHANGES, _EFFECTS),
        lambda on: on.parts.binder.pre_bind.expire,
    ),
    Deadline(
        "held members",
        (DeadlineKind.HELD_MEMBERS,),
        "kubelet has not admitted, in half of that, the members before them",
        "gives them up",
        (_GROUPS, _EFFECTS),
        lambda on: on.parts.binder.staggered.expire,
    ),
    Deadline(
        "walltimes",
        (DeadlineKind.WALLTIME,),
        "half a minute ago a group's walltime was over, with `onOverrun: evict`",
        "evicts the group",
        (_CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.parts.walltime_evictions.act,
        lambda on: on.parts.walltime_evictions.due(),
    ),
)
"""In the order in which what is due is done: pods, groups bound in part, other groups, the rest."""


def _collect(due: list[Group], groups: Callable[[Overdue], Iterable[Group]], overdue: Overdue) -> None:
    due.extend(groups(overdue))


def _watched(one: Deadline, watch: Watch) -> Deadline:
    return one._replace(do=lambda on: watch.over(one.name, one.marks, one.do(on)))


def drawn() -> str:
    """Draws the list, for docs/architecture.md."""
    lines = ["| deadline | when it is due | does | may mark |", "|---|---|---|---|"]
    lines += [
        f"| {one.name} | {one.when} | {one.does} | {dirty.marks_text(one.marks)} |" for one in DEADLINES
    ]
    return "\n".join(lines)

"""Turn: what the end of every turn does, as a declared list of phases, run until nothing is dirty.

Lives here: the phases in their order, what each reads and may mark (core.dirty), and the loop over them. Not
here: their work (the rooms), what deadlines do (core.overdue), what happens to an object that a phase fails
on (core.containment). Called by core.scheduler after events, deadlines or an attempt.

    FIRST        once, before the groups: what may change them, or mark them
    OF_GROUPS    each phase for every marked group, one phase after the other; again while a group is marked
    LAST         once: what follows for the groups that wait

A phase marks only what a later one takes, or the next round of groups, or somebody after the turn: so nothing
is dirty at its end, and no phase is run twice for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from gangsched.core import dirty
from gangsched.core.dirty import Mark, Watch
from gangsched.core.parts import SchedulerParts
from gangsched.core.state.state import SharedState
from gangsched.core.steps import Steps
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.model.effects import Effect

# Limit on device clashes and on bad node reports that a follower keeps, to report once it leads.
_MAX_PROBLEMS = 1000
_GROUPS, _RESERVATIONS, _CHANGES, _PROBLEMS = Mark.GROUPS, Mark.RESERVATIONS, Mark.CHANGES, Mark.PROBLEMS
_LINE, _DEADLINES, _EFFECTS = Mark.LINE, Mark.DEADLINES, Mark.EFFECTS


class Phase(NamedTuple):
    """One pass. do: finds its work, for a group where it is one of groups. clears: what it takes, all of it;
    only_if: asked before each round of groups."""

    name: str
    does: str
    reads: str
    marks: tuple[Mark, ...]
    do: Callable[[SchedulerParts], Callable[..., Any]]
    clears: Mark | None = None
    only_if: Callable[[SchedulerParts], bool] | None = None


def _tell_apart(shared: SharedState) -> None:
    shared.cache.settle(shared.now_s)


def _tell_borrowed(shared: SharedState) -> None:
    if shared.queue_book is not None and shared.queue_book.has_borrowed():
        shared.changes.append(ClusterChange(Change.BORROWED))


FIRST: tuple[Phase, ...] = (
    Phase(
        "late moves",
        "puts each into the group that it names now, once its bind has an answer",
        "pods edited while their bind was on its way",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.membership.late_moves.regroup,
    ),
    Phase(
        "PreEnqueue",
        "asks plugins again whether they let these pods into the queue",
        "pods that a change may have cured, or that plugins at the edge are to be asked about",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.membership.pre_enqueue.ask_again,
    ),
    Phase(
        "device reports",
        "compares what kubelet gave out with what was planned",
        "nodes whose report has changed",
        (_RESERVATIONS, _CHANGES, _PROBLEMS, _DEADLINES, _EFFECTS),
        lambda on: on.audit.compare_changed,
    ),
    Phase(
        "failed devices",
        "finds running pods whose devices have failed, or are well again",
        "nodes whose device list has changed",
        (_DEADLINES, _EFFECTS),
        lambda on: on.health.check_pods,
    ),
    Phase(
        "reservations",
        "takes back what was reserved",
        "groups with a reservation that does not hold",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.reservations.give_back_broken,
        clears=_RESERVATIONS,
    ),
    Phase(
        "prepared units",
        "sends their binds, or gives them up",
        "units with all PreBind answers that wait until kubelet cannot mix up their pods with others",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.binder.pre_bind.give_turns,
    ),
    Phase(
        "held members",
        "sends their binds, or gives them up",
        "members that wait until kubelet cannot mix them up with others",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.binder.staggered.give_turns,
    ),
    Phase(
        "labels",
        "tells pods apart that were alike",
        "waiting pods with a label that a selector has begun to look at",
        (_CHANGES,),
        lambda on: partial(_tell_apart, on.shared),
    ),
)
OF_GROUPS: tuple[Phase, ...] = (
    Phase(
        "numbers",
        "works out what the group asks for; before any state, so that sets are computed once",
        "its object, and what its members say",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.group_specs.resolve,
    ),
    Phase(
        "state",
        "moves the group to the state that its members imply",
        "its members, numbers and binds",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.reconciler.reconcile,
    ),
    Phase(
        "walltime",
        "sets when it is evicted for running past its walltime; with `onOverrun: evict`",
        "the ends of its pods",
        (_DEADLINES,),
        lambda on: on.walltime_evictions.set_deadline,
        only_if=lambda on: on.shared.settings.ends_overrun,
    ),
    Phase(
        "device policy",
        "reads again what is to be done about its failed devices, if there are any",
        "its object",
        (_DEADLINES,),
        lambda on: on.health.read_policies,
        only_if=lambda on: bool(on.health.failing),
    ),
)
LAST: tuple[Phase, ...] = (
    Phase(
        "walltimes",
        "sets anew when each running group is evicted",
        "a new configuration",
        (_DEADLINES,),
        lambda on: on.walltime_evictions.follow_settings,
    ),
    Phase(
        "claims",
        "drops those whose groups have changed, and has those checked whose nodes have",
        "claims, the nodes that have changed",
        (_CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.attempts.claiming.maintain,
    ),
    Phase(
        "limits",
        "announces what is no longer kept for groups that a limit keeps out",
        "groups that a limit keeps out, claims",
        (_CHANGES,),
        lambda on: on.attempts.limits.announce,
    ),
    Phase(
        "borrowing",
        "announces it: pods of the queue may be victims now",
        "queues that have come to exceed their guarantee",
        (_CHANGES,),
        lambda on: partial(_tell_borrowed, on.shared),
    ),
    Phase(
        "wake",
        "puts the groups in line that these may cure",
        "all changes of the turn",
        (_LINE, _DEADLINES, _EFFECTS),
        lambda on: on.shared.flush_changes,
        clears=_CHANGES,
    ),
    Phase(
        "problems",
        "tells of them, once each",
        "what is wrong in the reports of nodes and devices",
        (_EFFECTS,),
        lambda on: on.reporter.tell_of_nodes,
        clears=_PROBLEMS,
    ),
)
PHASES = (*FIRST, *OF_GROUPS, *LAST)
"""All of them, in their order."""


class Turn:
    """Ends a turn: runs the phases, and returns its effects."""

    def __init__(self, scheduler: SchedulerParts, steps: Steps) -> None:
        self._scheduler = scheduler
        self._shared = scheduler.shared
        self._steps = steps
        self._first = _works(FIRST, scheduler)
        self._of_groups = OF_GROUPS
        self._last = _works(LAST, scheduler)

    def watch(self, watch: Watch, phases: Iterable[Phase]) -> None:
        """Checks from now on that each phase marks only what it declares, and that nothing is left."""
        watched = {one.name: _watched(one, watch) for one in phases}
        self._first = _works([watched[one.name] for one in FIRST], self._scheduler)
        self._of_groups = tuple(watched[one.name] for one in OF_GROUPS)
        last = _works([watched[one.name] for one in LAST], self._scheduler)
        self._last = (*last, watch.all_taken)

    def end(self, *, decides: bool) -> list[Effect]:
        """decides: False until all existing objects have been received and this process leads."""
        shared = self._shared
        if decides:
            self._settle()
        else:
            self._follow()
        self._steps.end()
        effects, shared.effects = shared.effects, []
        return effects

    def _settle(self) -> None:
        shared, scheduler = self._shared, self._scheduler
        self._steps.every(self._first)
        while shared.touched:
            touched, shared.touched = shared.touched, {}
            for phase in self._of_groups:
                if phase.only_if is None or phase.only_if(scheduler):
                    do = phase.do(scheduler)
                    for group in touched.values():
                        scheduler.for_group(group, do)
        self._steps.every(self._last)

    def _follow(self) -> None:
        """Drops what a follower does not need: nothing waits for a change yet, and it gets them for weeks.

        Groups with members are all marked before the first decision.
        """
        shared, scheduler = self._shared, self._scheduler
        touched, shared.touched = shared.touched, {}
        for group in (one for one in touched.values() if not one.members):
            scheduler.for_group(group, scheduler.reconciler.reconcile)
        shared.changes.clear()
        shared.cache.index.changes.clear()
        shared.cache.index.selected.unpaced()
        del shared.cache.clashes[:-_MAX_PROBLEMS]
        del shared.cache.bad_reports[:-_MAX_PROBLEMS]


def _works(phases: Iterable[Phase], scheduler: SchedulerParts) -> tuple[Callable[[], Any], ...]:
    return tuple(one.do(scheduler) for one in phases)


def _watched(phase: Phase, watch: Watch) -> Phase:
    def do(scheduler: SchedulerParts) -> Callable[..., None]:
        return watch.over(phase.name, phase.marks, phase.do(scheduler), clears=phase.clears)

    return phase._replace(do=do)


def drawn() -> str:
    """Draws the phases, for docs/architecture.md."""
    lines = ["| | phase | reads | does | may mark |", "|---|---|---|---|---|"]
    stages = (("once", FIRST), ("each marked group, while there is one", OF_GROUPS), ("once", LAST))
    for how, phases in stages:
        for at, one in enumerate(phases):
            marks = dirty.told(one.marks)
            lines.append(f"| {'' if at else how} | {one.name} | {one.reads} | {one.does} | {marks} |")
    return "\n".join(lines)

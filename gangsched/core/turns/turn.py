"""Turn: what the end of every turn does, as a declared list of phases, run until nothing is dirty.

Lives here: the phases in their order, and what each reads and may mark (core.turns.dirty). Not here: the loop
over them (core.scheduler, after events, deadlines or an attempt), their work (the rooms), what deadlines do
(core.turns.overdue), what happens to an object that a phase fails on (core.turns.containment).

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

from gangsched.core.state.state import SharedState
from gangsched.core.turns import dirty
from gangsched.core.turns.dirty import Mark, Watch
from gangsched.core.turns.parts import SchedulerParts
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import Group

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
        lambda on: on.membership.move_late,
    ),
    Phase(
        "PreEnqueue",
        "asks plugins again whether they let these pods into the queue",
        "pods that a change or a resource claim may have cured, or that plugins are to be asked about",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.membership.ask_pre_enqueue_again,
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
        "nodes whose device list has changed, or whose kubelet says something new of a pod's devices",
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
        (_GROUPS, _CHANGES, _DEADLINES, _EFFECTS),
        lambda on: on.binder.pre_bind.give_turns,
    ),
    Phase(
        "held members",
        "sends their binds, or gives them up",
        "members that wait until kubelet cannot mix them up with others",
        (_GROUPS, _DEADLINES, _EFFECTS),
        lambda on: on.binder.staggered.give_turns,
    ),
    Phase(
        "labels",
        "tells pods apart that were alike",
        "waiting pods with a label that a selector has begun to look at",
        (),
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
        "claims of members",
        "ends the uses of claims by members whose reservations have ended, or whose binds have landed",
        "its members' states",
        (_GROUPS, _CHANGES, _LINE, _DEADLINES, _EFFECTS),
        lambda on: on.binder.claims.follow,
        only_if=lambda on: bool(
            on.shared.claim_uses.records or on.shared.claim_uses.left_s or on.shared.cache.claims.groups
        ),
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
        "sets again when each running group is evicted",
        "a new configuration",
        (_DEADLINES,),
        lambda on: on.walltime_evictions.follow_settings,
    ),
    Phase(
        "claims",
        "drops those whose groups have changed, and has those checked whose nodes have",
        "claims, the nodes that have changed",
        (_CHANGES, _DEADLINES, _EFFECTS),
        lambda on: on.attempts.kept.claiming.maintain,
    ),
    Phase(
        "limits",
        "announces what is no longer kept for groups that a limit keeps out",
        "groups that a limit keeps out, claims",
        (_CHANGES,),
        lambda on: on.attempts.kept.limits.announce,
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


class Bound(NamedTuple):
    """The work of one scheduler's phases. of_groups: with what is asked before each round of groups."""

    first: tuple[Callable[[], Any], ...]
    of_groups: tuple[tuple[Callable[[Group], Any], Callable[[SchedulerParts], bool] | None], ...]
    last: tuple[Callable[[], Any], ...]


def bound(scheduler: SchedulerParts) -> Bound:
    """Returns the phases as the scheduler runs them."""
    return Bound(_works(FIRST, scheduler), _of_groups(OF_GROUPS, scheduler), _works(LAST, scheduler))


def bound_and_checked(scheduler: SchedulerParts, watch: Watch, phases: Iterable[Phase]) -> Bound:
    """Likewise; each of them is checked to mark only what it declares, and nothing to be left at the end.

    phases: all of them, perhaps with other marks.
    """
    by_name = {one.name: _watched(one, watch) for one in phases}
    first, of_groups, last = ([by_name[one.name] for one in some] for some in (FIRST, OF_GROUPS, LAST))
    last_works = (*_works(last, scheduler), watch.all_taken)
    return Bound(_works(first, scheduler), _of_groups(of_groups, scheduler), last_works)


def _works(phases: Iterable[Phase], scheduler: SchedulerParts) -> tuple[Callable[[], Any], ...]:
    return tuple(one.do(scheduler) for one in phases)


def _of_groups(
    phases: Iterable[Phase], scheduler: SchedulerParts
) -> tuple[tuple[Callable[[Group], Any], Callable[[SchedulerParts], bool] | None], ...]:
    return tuple((one.do(scheduler), one.only_if) for one in phases)


def _watched(phase: Phase, watch: Watch) -> Phase:
    def do(scheduler: SchedulerParts) -> Callable[..., None]:
        return watch.over(phase.name, phase.marks, phase.do(scheduler), clears=phase.clears)

    return phase._replace(do=do)


def drop_marks(shared: SharedState) -> None:
    """Drops what a follower marks: nothing waits for a change yet, and it gets changes for weeks."""
    cache = shared.cache
    shared.changes.clear()
    cache.index.changes.clear()
    cache.index.selected.unpaced()
    del cache.clashes[:-_MAX_PROBLEMS]
    del cache.claims.clashes[:-_MAX_PROBLEMS]
    del cache.bad_reports[:-_MAX_PROBLEMS]


def drawn() -> str:
    """Draws the phases, for docs/architecture.md."""
    lines = ["| | phase | reads | does | may mark |", "|---|---|---|---|---|"]
    stages = (("once", FIRST), ("each marked group, while there is one", OF_GROUPS), ("once", LAST))
    for how, phases in stages:
        for at, one in enumerate(phases):
            marks = dirty.marks_text(one.marks)
            lines.append(f"| {'' if at else how} | {one.name} | {one.reads} | {one.does} | {marks} |")
    return "\n".join(lines)

"""Why a group that waits for room does not fit now, and which nodes come closest.

Asks what decides (core.groups.attempts.placer) once more, without trying further orders; writes nothing.
Called by core.explaining.explain.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
import numpy as np

from gangsched.config.queueing import QueueingSettings
from gangsched.core.cycle.near_names import near_names
from gangsched.core.cycle.shortage import Lack, lack_sentences, lacks, n_too_many
from gangsched.core.explaining.cures import cures, refused, why_refused
from gangsched.core.explaining.owed import Owed
from gangsched.core.explaining.queues import at_limit, names_wrong_queue
from gangsched.core.explaining.resource_claims import claim_sentences, claims_refused
from gangsched.core.explaining.sets import kept_out_by_set, not_ready
from gangsched.core.framework.plan import FitError, Plan, Shortage
from gangsched.core.kept.claim_reports import latest_end
from gangsched.core.queueing.expected_ends import ExpectedEnds
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import NEVER_S, Group, GroupState, MemberState
from gangsched.core.why import together
from gangsched.model.resources import amount_text
from gangsched.model.text.printable import clean, marked, several

MAX_NEAR = 5
_MAX_NAMED = 3
_MAX_REASONS = 12
_DAY_S = 86_400
FITS = "It would fit as things are now"
_HAS_ROOM = "There is room for it now"
_FILL = (
    "State a walltime (the annotation gangsched.io/walltime) if it ends before that start: then it may run"
    " there until then.",
)
_TRIABLE = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF, GroupState.UNSCHEDULABLE)


class Reason(msgspec.Struct, frozen=True):
    """A plugin's reason, and how many nodes it excludes."""

    plugin: str
    reason: str
    nodes: int


class NearMiss(msgspec.Struct, frozen=True, rename="camel"):
    """A node that would suit the member except for one resource; `held_by`: "group (amount, state)"."""

    node: str
    resource: str
    asked: str
    free: str
    held_by: tuple[str, ...]


class Found(msgspec.Struct):
    """The parts of the explanation for one group state."""

    answer: str
    cures: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    near: tuple[NearMiss, ...] = ()
    then: str = ""
    """What happens without intervention, and when."""
    owed: Owed | None = None
    waits_for_ends: bool = False
    """Whether it may start when pods that run now have ended."""
    waits_for_turn: bool = False
    """Whether it would fit, and waits for its turn alone."""
    pauses: bool = False
    """Whether there is room for it and its set, and it pauses after a failed attempt."""


def placeable(scheduler: Scheduler, group: Group, now_s: float, ago_s: float | None) -> Found:
    """What keeps it from being placed. ago_s: added to the core's clock, gives Unix time; None: unknown.

    Raises: PluginError.
    """
    begin = ""
    if group.is_half_bound:
        begin = f"{group.n_bound} of {group.start_count} members run; the rest is placed first in line. "
    if group.state is GroupState.ASKING:
        return Found(
            f"{begin}Extenders were asked about its nodes {now_s - group.since_s:.1f} s ago.",
            ("See whether the extenders answer: the scheduler's log names those that do not.",),
            then=f"They have to answer{_in(group.deadline_s, now_s)}; then it backs off and is tried again.",
        )
    attempts = scheduler.attempts
    if own := attempts.kept.describe_own(group) or attempts.forecasts.describe(group):
        begin += f"{own}{_in_its_way(scheduler, group)} "
    again = _again(group, now_s)
    kept_out = (
        kept_out_by_set(scheduler, group)
        or _retired(scheduler, group)
        or names_wrong_queue(scheduler, group)
        or at_limit(scheduler, group)
    )
    if kept_out is not None:
        is_limited = kept_out == at_limit(scheduler, group)
        return Found(f"{begin}{kept_out[0]}", (kept_out[1],), then=again, waits_for_ends=is_limited)
    missing = not_ready(scheduler, group)
    begin += f"{missing[0]} " if missing is not None else ""
    first = (missing[1],) if missing is not None else ()
    answer = _tried(scheduler, group)
    if isinstance(answer, str):
        return Found(f"{begin}{answer}", first, then=again)
    if isinstance(answer, Plan):
        return _fits(group, begin, again, first)
    short = answer.shortage
    if short is None:
        todo = refused(answer, scheduler.shared.cache.view)
        why = " ".join((why_refused(answer), *map(str, claims_refused(scheduler, answer))))
        return Found(begin + why, (*first, *todo), then=again)
    found = lacks(short)
    waiting = [one for one in scheduler.shared.queue.waiting if one is not group]
    sentences = lack_sentences(short, group, waiting, lambda other: _name_until(other, now_s, ago_s))
    claims = [*claim_sentences(scheduler, short)]
    kept = [*attempts.kept.describe([group], short)]
    holes = [*_holes(scheduler, group, now_s)]
    walltimes = scheduler.shared.walltimes or Walltimes(QueueingSettings())
    ends = ExpectedEnds().sentences(short, walltimes, None, partial(latest_end, scheduler.shared))
    todo = cures(short, group, waiting, found, claims)
    return Found(
        begin + str(together(_headline(short, group, found), *claims, *sentences, *kept, *holes, *ends)),
        (
            *first,
            *_FILL[: len(kept)],
            *cures(short, group, waiting, found, claims),
            *_stays(scheduler, group),
        ),
        _reasons(short),
        tuple(_near(scheduler, short, found)),
        then=again,
        waits_for_ends=bool(found) and not n_too_many(short),
    )


def _retired(scheduler: Scheduler, group: Group) -> tuple[str, str] | None:
    """(the explanation, the cure); None if its profile, and those of its set, start gangs."""
    unit = [group, *scheduler.shared.start_together.starting_with(group)]
    if not (why := str(scheduler.attempts.admission.retired(unit))):
        return None
    return (
        f"{why[0].upper()}{why[1:]}: it only completes gangs that are bound in part.",
        "Give the pods another schedulerName, or put the profile back into the configuration.",
    )


def _in_its_way(scheduler: Scheduler, group: Group) -> str:
    """Describes the nodes of its claim, and the pods that must end there first."""
    claims = scheduler.shared.claims
    claim = claims.claim(group) if claims is not None else None
    if claim is None:
        return ""
    nodes = ", ".join(claim.nodes[:_MAX_NAMED]) + (", …" if len(claim.nodes) > _MAX_NAMED else "")
    pods = scheduler.shared.cache.pods
    there = [one for one in claim.blockers if (info := pods.get(one.uid)) is not None and info.row >= 0]
    last = sorted(there, key=lambda one: -one.end_s)
    names = marked("pod", [one.name for one in last])
    end = "ends" if len(last) == 1 else "end"
    first = f"; first {several(len(last), 'pod')} there {end}: {names}" if last else ""
    return f" That is on {nodes}{first}."


def _stays(scheduler: Scheduler, group: Group) -> Iterator[str]:
    """Without evictions, the running members of a partly bound gang are not taken back."""
    if group.is_half_bound and not scheduler.shared.settings.allow_eviction:
        yield (
            "Its running pods are not evicted, since allowEviction is false: delete them if the rest is not"
            " worth waiting for."
        )


def _again(group: Group, now_s: float) -> str:
    """When it is retried without intervention."""
    if group.state is GroupState.BACKOFF:
        listens = bool(group.moves) and group.moves[-1][1] is Cause.CURED_EARLY
        before = ", or as soon as free room adds up for it" if listens else ""
        return f"It is tried again{_in(group.deadline_s, now_s)}{before} (failure {group.failure})."
    if group.state is GroupState.UNSCHEDULABLE:
        return f"It is tried again when something changes that may help, or{_in(group.deadline_s, now_s)}."
    return "It is tried when its turn comes."


def _fits(group: Group, begin: str, again: str, missing: tuple[str, ...]) -> Found:
    """The answer when there is room: it waits for another reason. missing: the cure, if groups of its set
    are not all there."""
    if missing:
        return Found(f"{begin}{_HAS_ROOM}.", missing, then=again)
    last = f" The last attempt said: {group.message.rstrip('.')}." if group.message else ""
    if group.state is GroupState.ACTIVE:
        return Found(f"{begin}{FITS}; it waits for its turn.{last}", then=again, waits_for_turn=not begin)
    todo = ("Fix what the last attempt failed on: nothing else is in its way now.",) if last else ()
    begin += f"{_HAS_ROOM}; it pauses after a failed attempt."
    return Found(begin + last, todo, then=again, pauses=True)


def _tried(scheduler: Scheduler, group: Group) -> Plan | FitError | str:
    """Tries to place it now, with the groups that start with it; text: why it could not be tried. Raises:
    PluginError."""
    shared = scheduler.shared
    if not group.n_pending:
        return "No member is pending."
    others = shared.start_together.starting_with(group)
    unit = [group, *(one for one in others if one.state in _TRIABLE)]
    attempts = scheduler.attempts
    nominated = [one for one in attempts.kept.kept_from(unit).room if one.info.group not in unit]
    return attempts.placer.preview(unit, nominated)


def _holes(scheduler: Scheduler, group: Group, now_s: float) -> Iterator[str]:
    """Says how many places are kept for members that other gangs have lost."""
    kept = scheduler.shared.holes.kept_from(group)
    if kept:
        places = f"{several(len(kept), 'place')} {'is' if len(kept) == 1 else 'are'}"
        n_s = max(until_s - now_s for _, until_s in kept)
        yield f"{places} kept for a member that a running gang has lost, for {n_s:.0f} s more at most."


def _headline(short: Shortage, group: Group, found: Sequence[Lack]) -> str:
    """How many members fit, and what the first one that does not fit lacks."""
    name = short.member.pod.metadata.name
    fit = f"{several(short.n_wanted, 'member')} {'fits' if short.n_wanted == 1 else 'fit'}"
    begin = f"{short.n_fit} of {fit}. Member {name}" if group.is_gang else f"Pod {name}"
    if not short.trial.n_nodes:
        return f"{begin} has no place: the cluster has no node."
    if not found:
        why = "" if any(near_names(short)) else _counted(short)  # a wrong name comes first
        n_nodes = short.trial.n_nodes
        none = "cannot use the only node" if n_nodes == 1 else f"suits none of {several(n_nodes, 'node')}"
        return f"{short.about_domains}{begin} {none}{why}."
    lack = found[0]
    most = _most_free(short, lack, np.flatnonzero(short.suits), 1)[0]
    free = max(int(lack.free[most]), 0)
    after = "after its other members are placed, " if short.own else ""
    return (
        f"{short.about_domains}{begin} needs {amount_text(lack.resource, lack.amount)} {lack.resource} on one"
        f" node; {after}the suitable node with most left has {amount_text(lack.resource, free)} free"
        f" ({short.trial.name(most)})."
    )


def _counted(short: Shortage) -> str:
    """Lists the reasons that exclude the most nodes."""
    parts = [f"{one.nodes} {one.reason}" for one in _reasons(short)[:_MAX_NAMED]]
    return f": {', '.join(parts)}" if parts else ""


def _reasons(short: Shortage) -> tuple[Reason, ...]:
    counted: Counter[tuple[str, str]] = Counter()
    for plugin, reason, rows in short.found:
        counted[plugin, str(reason)] += int(rows.sum())
    most = counted.most_common(_MAX_REASONS)
    return tuple(Reason(clean(plugin), clean(reason), n) for (plugin, reason), n in most)


def _near(scheduler: Scheduler, short: Shortage, found: Sequence[Lack]) -> Iterator[NearMiss]:
    """The nodes with most of the scarce resource free, and what holds the rest."""
    if not found:
        return
    lack = found[0]
    base = short.trial.base()
    for row in _most_free(short, lack, np.flatnonzero(lack.rows), MAX_NEAR):
        held: Counter[tuple[str, bool, str]] = Counter()
        for info in base.pods_on(row):
            amount = info.template.requests.get(lack.resource, 0)
            if amount:
                of = str(info.group.key) if info.group is not None else info.pod.key
                is_gang = info.group is not None and info.group.is_gang
                held[of, is_gang, "reserved" if info.state is MemberState.ASSUMED else "bound"] += amount
        own = short.own.count((row, short.template))
        holders = [
            f"{marked('gang' if is_gang else 'pod', [of])} ({amount_text(lack.resource, n)} {how})"
            for (of, is_gang, how), n in held.most_common(_MAX_NAMED)
        ]
        holders += [f"{own} of its own other members"] * bool(own)
        holders += [f"{len(held) - _MAX_NAMED} more"] * (len(held) > _MAX_NAMED)
        yield NearMiss(
            clean(short.trial.name(row)),
            clean(lack.resource),
            amount_text(lack.resource, lack.amount),
            amount_text(lack.resource, max(int(lack.free[row]), 0)),
            tuple(holders),
        )


def _most_free(short: Shortage, lack: Lack, rows: IntArray, n: int) -> list[int]:
    """The n of these rows with most of the scarce resource free. Ties: node name, as the order of the rows
    depends on which nodes there were before, and differs from one replica to the next."""
    free = lack.free[rows]
    if len(rows) > n:
        least = np.partition(free, -n)[-n]
        rows, free = rows[free >= least], free[free >= least]
    named_rows = zip((-free).tolist(), map(short.trial.name, rows.tolist()), rows.tolist(), strict=True)
    return [row for _, _, row in heapq.nsmallest(n, named_rows)]


def _name_until(group: Group, now_s: float, ago_s: float | None) -> str:
    """The group, and until when it keeps its reservation, if that is known and within a day.

    Victims may state a grace period of any number of years.
    """
    at_s = group.preemption.deadline_s if group.preemption is not None else group.deadline_s
    name = marked("gang" if group.is_gang else "pod", [str(group.key)])
    if ago_s is None or at_s >= now_s + _DAY_S:
        return name
    return f"{name} until {time_of(at_s + ago_s)}"


def time_of(unix_s: float) -> str:
    """The time of day, to the second: reservations last minutes."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%H:%M:%S} UTC"


def _in(deadline_s: float, now_s: float) -> str:
    return " when its turn comes" if deadline_s == NEVER_S else f" in {max(deadline_s - now_s, 0):.0f} s"

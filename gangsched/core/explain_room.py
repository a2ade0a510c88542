"""Why a group that waits for room does not fit, as things are now, and which nodes come near.

For it the cycle is run once more on a Trial, without searching further orders; nothing is written. Called by
core.explain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np

from gangsched.config.queueing import QueueingSettings
from gangsched.core.cycle.cycle import run_cycle
from gangsched.core.cycle.roles import needed_first
from gangsched.core.cycle.shortage import Lack, amount_text, lacks, n_when_empty, told_of
from gangsched.core.framework.plan import FitError, Plan, Shortage
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Demand
from gangsched.core.queueing.expected_ends import told_ends
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.reporter import clean
from gangsched.core.types.group import NEVER_S, Group, GroupState, MemberState

MAX_NEAR = 5
_MAX_NAMED = 3
_MAX_REASONS = 12
_TRIABLE = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF, GroupState.UNSCHEDULABLE)


class Reason(msgspec.Struct, frozen=True):
    """A plugin's reason, and how many nodes it excludes."""

    plugin: str
    reason: str
    nodes: int


class NearMiss(msgspec.Struct, frozen=True, rename="camel"):
    """A node that suits the member but for one resource; `held_by`: "group (amount, state)"."""

    node: str
    resource: str
    asked: str
    free: str
    held_by: tuple[str, ...]


class Found(msgspec.Struct):
    """The parts of the answer for one state."""

    answer: str
    cures: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    near: tuple[NearMiss, ...] = ()


def placeable(scheduler: Scheduler, group: Group, now_s: float, ago_s: float | None) -> Found:
    """What keeps it from being placed. ago_s: what makes seconds of the core's clock a time of day."""
    begin = ""
    if group.is_half_bound:
        begin = f"{group.n_bound} of {group.start_count} members run; the rest is placed first in line. "
    if group.state is GroupState.ASKING:
        return Found(
            f"{begin}Extenders are asked about its nodes since {now_s - group.since_s:.1f} s.",
            (f"They have to answer{_in(group.deadline_s, now_s)}; then it backs off and is tried again.",),
        )
    answer = _tried(scheduler, group)
    again = ""
    if group.state is GroupState.BACKOFF:
        again = f"It is tried again{_in(group.deadline_s, now_s)} (failure {group.failure})."
    elif group.state is GroupState.UNSCHEDULABLE:
        again = f"It is tried again when something changes that may help, or{_in(group.deadline_s, now_s)}."
    if isinstance(answer, str):
        return Found(f"{begin}{answer}", tuple(filter(None, [again])))
    if isinstance(answer, Plan):
        why = f" The last attempt said: {group.message}" if group.message else ""
        return Found(
            f"{begin}It would fit as things are now; it waits for its turn.{why}",
            tuple(filter(None, [again])),
        )
    short = answer.shortage
    if short is None:
        return Found(begin + answer.message, tuple(filter(None, [again])))
    found = lacks(short)
    waiting = [one for one in scheduler.shared.queue.waiting if one is not group]
    sentences = told_of(short, group, waiting, lambda other: _name_until(other, ago_s))
    ends = told_ends(short, scheduler.shared.walltimes or Walltimes(QueueingSettings()))
    return Found(
        begin + " ".join((_headline(short, group, found), *sentences, *ends)),
        tuple(filter(None, [*_cures(short, found), again])),
        _reasons(short),
        tuple(_near(scheduler, short, found)),
    )


def _tried(scheduler: Scheduler, group: Group) -> Plan | FitError | str:
    """The result of placing it now, with the groups that start with it; text: why it failed."""
    shared = scheduler.shared
    if not group.n_pending:
        return "No member is pending."
    try:
        unit = [group]
        if not group.satisfied and not group.recovering:
            unit += [
                one
                for _, one in sorted(shared.siblings(group).items())
                if one.state in _TRIABLE and one.is_complete and not one.satisfied
            ]
        demands = []
        for one in unit:
            members, roles = one.in_state(MemberState.PENDING), one.short_roles()
            if members:
                ordered = needed_first(members, roles) if roles else members
                n_needed = min(one.n_needed, len(members))
                profile, weight = shared.profile_of(one).quiet, shared.packing_weight(one)
                demands.append(Demand(one, profile, ordered, n_needed, roles=roles, packing_weight=weight))
        return run_cycle(
            demands,
            shared.cache.view,
            topology_key=shared.settings.topology_key,
            nominated=[
                one for one in scheduler.attempts.claiming.nominated(unit) if one.info.group not in unit
            ],
        )
    except PluginError as error:
        return f"{error}."


def _headline(short: Shortage, group: Group, found: Sequence[Lack]) -> str:
    """How many members fit, and what the first that does not lacks."""
    name = short.member.pod.metadata.name
    begin = (
        f"{short.n_fit} of {short.n_wanted} members fit. Member {name}" if group.is_gang else f"Pod {name}"
    )
    if not found:
        told = _reasons(short)
        return (
            f"{begin} suits no node: {told[0].reason} ({told[0].nodes})."
            if told
            else f"{begin} suits no node."
        )
    lack = found[0]
    most = int(np.where(short.suits, lack.free, -1).argmax())
    free = max(int(lack.free[most]), 0)
    return (
        f"{begin} needs {amount_text(lack.resource, lack.amount)} {lack.resource} on one node; most free"
        f" on any that suits it is {amount_text(lack.resource, free)} ({short.trial.name(most)})."
    )


def _cures(short: Shortage, found: Sequence[Lack]) -> Iterator[str]:
    if found and short.is_alike:
        asked = ", ".join(f"{amount_text(one.resource, one.amount)} {one.resource}" for one in found)
        n_missing = short.n_wanted - short.n_fit
        yield (
            f"Room for {n_missing} more of its members, each with {asked} on one node: end what runs there,"
            f" add {n_missing} such node{'s' * (n_missing > 1)} at most, or ask for less."
        )
        if n_when_empty(short) < short.n_wanted:
            yield "Waiting does not help: with nothing else running it would not fit either."
    elif not found:
        yield "Compare what the pods ask of nodes (nodeSelector, affinity, tolerations) with what nodes have."


def _reasons(short: Shortage) -> tuple[Reason, ...]:
    counted: Counter[tuple[str, str]] = Counter()
    for plugin, reason, rows in short.found:
        counted[plugin, reason] += int(rows.sum())
    most = counted.most_common(_MAX_REASONS)
    return tuple(Reason(clean(plugin), clean(reason), n) for (plugin, reason), n in most)


def _near(scheduler: Scheduler, short: Shortage, found: Sequence[Lack]) -> Iterator[NearMiss]:
    """The nodes with the most of what is short, and what holds the rest."""
    if not found:
        return
    lack = found[0]
    base = short.trial.base()
    rows = np.flatnonzero(lack.rows)
    order = rows[np.argsort(-lack.free[rows], kind="stable")][:MAX_NEAR]
    for row in order.tolist():
        held: Counter[tuple[str, str]] = Counter()
        for info in base.pods_on(row):
            amount = info.template.requests.get(lack.resource, 0)
            if amount:
                of = str(info.group.key) if info.group is not None else info.pod.key
                held[of, "reserved" if info.state is MemberState.ASSUMED else "bound"] += amount
        own = sum(n for at, t, n in short.trial.placed if at == row and t is short.template)
        told = [
            f"{clean(of)} ({amount_text(lack.resource, n)} {how})"
            for (of, how), n in held.most_common(_MAX_NAMED)
        ]
        told += [f"{own} of its own other members"] * bool(own)
        told += [f"{len(held) - _MAX_NAMED} more"] * (len(held) > _MAX_NAMED)
        yield NearMiss(
            clean(short.trial.name(row)),
            clean(lack.resource),
            amount_text(lack.resource, lack.amount),
            amount_text(lack.resource, max(int(lack.free[row]), 0)),
            tuple(told),
        )


def _name_until(group: Group, ago_s: float | None) -> str:
    """The group, and until when it keeps what it has reserved, where that is known."""
    at_s = group.preemption.deadline_s if group.preemption is not None else group.deadline_s
    return str(group.key) + (
        f" until {time_of(at_s + ago_s)}" if ago_s is not None and at_s < NEVER_S else ""
    )


def time_of(unix_s: float) -> str:
    """The time of day, to the second: reservations last minutes."""
    return f"{datetime.fromtimestamp(unix_s, UTC):%H:%M:%S} UTC"


def _in(deadline_s: float, now_s: float) -> str:
    return " in its turn" if deadline_s == NEVER_S else f" in {max(deadline_s - now_s, 0):.0f} s"

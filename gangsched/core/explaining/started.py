"""What becomes of a group that has started: how it ended, what it lacks, when it is due to end.

Called by core.explaining.explain.
"""

from __future__ import annotations

from functools import partial

from gangsched.core.explaining.owed import owed
from gangsched.core.explaining.room import Found
from gangsched.core.kept.claim_reports import latest_end
from gangsched.core.preemption.victims import is_leaving
from gangsched.core.queueing.expected_ends import end_text
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.ended import end_of, ended_text
from gangsched.core.types.group import Group, MemberState
from gangsched.core.types.lost_members import lacks
from gangsched.model.text.printable import marked, several


def started(scheduler: Scheduler, group: Group, now_s: float) -> Found:
    """What a group that has started lacks, or how it ended."""
    found = _started(scheduler, group)
    found.then = found.then or asked_again(scheduler, group, now_s)
    return found


def _started(scheduler: Scheduler, group: Group) -> Found:
    if group.is_half_bound:
        owing, never = owed(scheduler, group)
        return Found(
            f"{group.n_bound} of {group.start_count} members run, and no other exists to complete it.",
            (never or owing.cure,),
            owed=owing,
        )
    if end_of(group):
        return ended(group)
    lacking = lacks(group)
    if lacking:
        return _short(scheduler, group, lacking)
    apart_told = scheduler.owners.starts_apart(group)
    also = f" {apart_told}." if apart_told else ""
    over = ended_text(group)
    return Found(
        f"It has started: {group.n_bound} of {group.start_count} members are bound{over and f'; {over}'}."
        f"{_ends(scheduler, group)}{also}"
    )


def ended(group: Group) -> Found:
    """How all of its members have ended, and where a failure says why."""
    n = max(len(group.members), group.start_count)
    of = f" of {several(n, 'member')}"
    answer = f"It has ended: {ended_text(group, of)}."
    if not group.counts[MemberState.FAILED]:
        return Found(answer)
    pod = next(iter(group.in_state(MemberState.FAILED))).pod
    why = f" ({pod.status.reason})" if pod.status.reason else ""
    where = f"kubectl -n {group.key.namespace}"
    return Found(
        answer,
        (
            f"See why pod {pod.metadata.name} failed{why}: {where} describe pod {pod.metadata.name}, and"
            f" {where} logs {pod.metadata.name} --all-containers.",
        ),
    )


def _short(scheduler: Scheduler, group: Group, lacking: str) -> Found:
    within_s = scheduler.shared.settings.recover_within_s
    then = f"the rest is evicted {within_s:g} s after the first loss" if within_s else "the rest runs on"
    return Found(
        f"It has started, and has lost members since: {lacking}.{_ends(scheduler, group)}",
        ("Let its controller make the missing members again; each is bound as soon as it has room.",),
        then=f"Until then {then} (recoverWithinSeconds).",
    )


def asked_again(scheduler: Scheduler, group: Group, now_s: float) -> str:
    """How often evictions of its pods were asked for without effect, and when that is repeated."""
    evictions = scheduler.shared.evictions
    staying = [info for info in group.in_state(MemberState.BOUND) if evictions.is_asked(info.uid)]
    staying = [info for info in staying if not is_leaving(info)]
    if not staying:
        return ""
    n, again_s = max(map(evictions.n_asked, staying)), evictions.again_s(staying, now_s, 0.0)
    pods = "its pod" if group.n_bound == 1 else several(len(staying), "pod")
    return (
        f"The eviction of {pods} was asked for {several(n, 'time')}, and is again in {again_s - now_s:.0f} s,"
        " or as soon as the pod or a disruption budget of its namespace changes."
    )


def _ends(scheduler: Scheduler, group: Group) -> str:
    """When it is due to end, if known, and which claims wait for that."""
    walltimes, claims = scheduler.shared.walltimes, scheduler.shared.claims
    latest = partial(latest_end, scheduler.shared)
    end = end_text(group, walltimes, latest) if walltimes is not None else ""
    then = " It is evicted soon after that." if end and scheduler.walltime_evictions.ends(group) else ""
    uids = {info.uid for info in group.in_state(MemberState.BOUND)}
    waiting = [
        str(claim.unit[0].key)
        for claim in (claims.all if claims is not None else ())
        if any(one.uid in uids for one in claim.blockers)
    ]
    names = marked("gang", waiting)
    rests = f" Room is kept where it runs, and {names} {'starts' if len(waiting) == 1 else 'start'} after it."
    return (f" It ends {end}.{then}" if end else "") + (rests if waiting else "")

"""Explanation: why a group does not run now, and what would cure it, as a value for people and programs.

A pure function of the scheduler's present state, computed on demand: for a group that waits for room it runs
the cycle once more on a Trial, without trying further orders. Nothing is written and no counter moves. Lists
are bounded. Text from users and servers is made safe to print; the reader must escape markup. Call it between
two turns, from the loop that drives the scheduler. Called by gangsched.web.pages.explanations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import msgspec
from msgspec.structs import replace

from gangsched.config.queueing import QueueingSettings
from gangsched.core.cycle.ranks import walk, widest_step
from gangsched.core.explaining.claim_waits import claims_written, not_prepared, without_claims
from gangsched.core.explaining.failed_devices import with_devices
from gangsched.core.explaining.owed import NO_MORE, Owed, owed
from gangsched.core.explaining.reports import lacks_object, view_group
from gangsched.core.explaining.room import Found, NearMiss, Reason, placeable
from gangsched.core.explaining.sets import apart
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.kept.claim_reports import latest_end
from gangsched.core.preemption.victims import is_leaving
from gangsched.core.queueing.expected_ends import end_text
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.ended import End, end_of, ended_text
from gangsched.core.types.group import NEVER_S, NO_ROW, BindState, Group, GroupState, MemberState
from gangsched.core.types.lost_members import lacks, time_to_recover
from gangsched.core.types.states import NOT_QUEUED
from gangsched.core.why import named, parts_of
from gangsched.core.why.evictions import WaitsForClaims
from gangsched.core.why.incomplete import Short
from gangsched.core.why.not_tried import PerhapsMisspelt
from gangsched.model.pod_group import IF_NOT_RECOVERED_KEY, MOVE, RECOVER_WITHIN_KEY
from gangsched.model.text.printable import clean as in_full
from gangsched.model.text.printable import clean_for, marked, sentence, several
from gangsched.model.text.server_refusals import says_quota_is_exceeded
from gangsched.reading.strict import nearest

_MAX_NAMED = 3
_CORRECT_ONE = "Correct what the answer names, in the pods or in the group's object."
_CORRECT_ALL = (
    "Let all members say the same, in the pods or in the group's object; if these are two gangs, give one of"
    " them another name."
)
_MAX_LOOKED_AT = 20_000


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """One group's explanation. answer: the shortest true answer; cures: what a person can do; then: what
    happens without intervention; told: the message of its condition.

    position: its place in the queue of n_waiting, 0 for a group that has started. Seconds are relative to
    now: state_s and waited_s ago, next_s ahead; None: not, or never. needed: None if unknown. bound counts
    those that have succeeded since; owed: what makes its missing members; end: how all of it ended;
    waits_for_ends: whether it may start when pods that run now have ended. ranks: how near each other its
    ranks are, "" if one node has them all.
    """

    group: str
    uid: str
    scheduler: str
    state: str
    answer: str
    cures: tuple[str, ...]
    told: str
    position: int
    n_waiting: int
    state_s: float
    waited_s: float | None
    next_s: float | None
    priority: int
    needed: int | None
    existing: int
    gated: int
    reserved: int
    bound: int
    attempts: int
    failures: int
    rejected_by: tuple[str, ...]
    reasons: tuple[Reason, ...] = ()
    near: tuple[NearMiss, ...] = ()
    then: str = ""
    owed: Owed | None = None
    succeeded: int = 0
    failed: int = 0
    end: End = ""
    waits_for_ends: bool = False
    ranks: str = ""


def finding(scheduler: Scheduler, group: Group, now_s: float, ago_s: float | None = None) -> Found:
    """Finds why the group does not run now. ago_s: as in explain."""
    try:
        return _found(scheduler, group, now_s, ago_s)
    except PluginError as error:
        return Found(f"{error}.")


def explain(
    scheduler: Scheduler,
    group: Group,
    now_s: float,
    *,
    ago_s: float | None = None,
    to_tenant: bool = False,
    found: Found | None = None,
) -> Explanation:
    """Explains why the group does not run now.

    ago_s: added to the core's clock, gives Unix time; None: times of day are left out. to_tenant: for a
    reader who may read the group's namespace alone: other namespaces' objects are counted, not named.
    found: what keeps it from running, if that is known already.
    """
    clean: Callable[[str], str] = partial(clean_for, group.key.namespace) if to_tenant else in_full
    found = found or finding(scheduler, group, now_s, ago_s)
    position, n_waiting = _position(scheduler, group)
    view = view_group(group)
    return Explanation(
        group=view.name,
        uid=clean(view.key.uid),
        scheduler=view.scheduler_name,
        state=view.state.value,
        answer=clean(found.answer),
        cures=tuple(clean(cure) for cure in (*found.cures, *without_effect(scheduler, group))),
        told=clean(str(group.problem) or group.message),
        position=position,
        n_waiting=n_waiting,
        state_s=round(now_s - view.since_s, 3),
        waited_s=round(now_s - view.complete_since_s, 3) if view.complete_since_s is not None else None,
        next_s=round(view.deadline_s - now_s, 3) if view.deadline_s is not None else None,
        priority=view.priority,
        needed=view.n_needed if view.is_counted and scheduler.is_synced else None,
        existing=view.n_existing,
        gated=view.n_gated,
        reserved=view.n_reserved,
        bound=view.n_bound,
        attempts=view.attempts,
        failures=view.failures,
        rejected_by=tuple(plugin for plugin in view.rejected_by if plugin),
        reasons=found.reasons,
        near=tuple(replace(one, held_by=tuple(map(clean, one.held_by))) for one in found.near),
        then=clean(found.then),
        owed=found.owed,
        succeeded=group.counts[MemberState.DONE],
        failed=group.counts[MemberState.FAILED],
        end=end_of(group),
        waits_for_ends=found.waits_for_ends,
        ranks=clean(_ranks(scheduler, group)),
    )


def without_effect(scheduler: Scheduler, group: Group) -> Iterator[str]:
    """Cures for what its users wrote that is ignored or unreadable, but does not keep it from starting."""
    walltimes = scheduler.shared.walltimes or Walltimes(QueueingSettings())
    for problem in walltimes.walltime(group).problems[:1]:
        yield f"Correct its walltime, which counts as not stated: {problem}."
    for about, what in scheduler.group_specs.ignored_of(group):
        if not (isinstance(group.problem, PerhapsMisspelt) and group.problem.ignored == what):
            yield f"Correct what is ignored: {about}: {what}{'' if what.endswith('?') else '.'}"


def _position(scheduler: Scheduler, group: Group) -> tuple[int, int]:
    """(its place by QueueSort from 1, the number of waiting groups); place 0 if it has started."""
    shared = scheduler.shared
    waiting = [one for one in shared.groups.values() if one.state not in NOT_QUEUED]
    if group.state in NOT_QUEUED:
        return 0, len(waiting)
    mine = (not group.is_completing, shared.sort_key(group)[0], group.key)
    before = sum((not one.is_completing, shared.sort_key(one)[0], one.key) < mine for one in waiting)
    return before + 1, len(waiting)


def _found(scheduler: Scheduler, group: Group, now_s: float, ago_s: float | None) -> Found:
    match group.state:
        case _ if not scheduler.is_synced:
            return Found(
                "This scheduler decides nothing about it: it does not lead, or has not read the whole cluster"
                " yet."
            )
        case _ if group.problem:
            return Found(
                f"It cannot be scheduled as it is written: {sentence(str(group.problem))}",
                (_CORRECT_ONE if len(group.stated) <= 1 else _CORRECT_ALL,),
            )
        case GroupState.GATED:
            return _gated(scheduler, group, now_s)
        case GroupState.GATHERING:
            return _gathering(scheduler, group)
        case GroupState.WAITING:
            return _waiting(scheduler, group, now_s)
        case GroupState.BINDING:
            return _binding(scheduler, group, now_s)
        case GroupState.UNWINDING:
            n = group.n_holding
            text = f"It is being taken back: {several(n, 'pod')} of it still to go. {group.message}"
            return Found(text.strip(), then=_asked_again(scheduler, group, now_s))
        case GroupState.BOUND | GroupState.DELETED:
            found = _started(scheduler, group, now_s)
            found.then = found.then or _asked_again(scheduler, group, now_s)
            return with_devices(scheduler, group, found, now_s)
    return placeable(scheduler, group, now_s, ago_s)


# -- not all there -------------------------------------------------------------------------------------


def _gated(scheduler: Scheduler, group: Group, now_s: float) -> Found:
    gates: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for info in group.in_state(MemberState.GATED):
        named_gates = [gate.name for gate in info.pod.spec.scheduling_gates or ()]
        gates.update(named_gates)
        if not named_gates:
            asked[info.reported or "a PreEnqueue plugin"] += 1
    n = group.counts[MemberState.GATED]
    if not gates and (found := without_claims(scheduler, group, now_s)) is not None:
        return found
    if gates:
        one = next(iter(gates))
        wait = "waits" if n == 1 else "wait"
        return Found(
            f"{several(n, 'pod')} of it {wait} for scheduling gates: {named(gates)}.",
            (
                f"Find out why the gate {one} is still in spec.schedulingGates; whoever set it removes it"
                + " (Kueue: kubectl describe workloads)" * ("kueue" in one)
                + ".",
            ),
        )
    return Found(
        f"PreEnqueue keeps {several(n, 'pod')} of it out of the queue: {named(asked)}.",
        ("Fix what its message names; the plugin lets them in when that changes.",),
    )


def _gathering(scheduler: Scheduler, group: Group) -> Found:
    if lacks_object(group):
        return Found(
            f"Its pods name the PodGroup {group.key.name}, and no such object exists in"
            f" {group.key.namespace}.",
            (f"Create it, or correct the name that the pods give{_near_groups(scheduler, group)}.",),
        )
    if group.definition is None:
        waits_for = scheduler.owners.why_missing(group) or "the object that says so"
        return Found(
            f"How many members it needs is not known: it waits for {waits_for}.",
            ("See whether that exists, and whether the scheduler may list it.",),
        )
    if roles := group.missing_roles():
        roles_text = ", ".join(f"{n} of {least} of role {role}" for role, n, least in roles[:_MAX_NAMED])
        return Found(f"Members are missing: {roles_text} exist.", (owed(scheduler, group)[0].cure,))
    if group.n_existing < group.min_count:
        gated = group.counts[MemberState.GATED]
        also = f"; {gated} more wait for gates" if gated else ""
        n_missing = group.min_count - group.n_existing
        are = "is" if n_missing == 1 else "are"
        answer = f"{group.n_existing} of {group.min_count} members exist, {n_missing} {are} missing{also}."
        if end_of(group):
            found = _ended(group)
            answer = f"{found.answer} It waits for others in their place: {answer}"
            return Found(answer, found.cures)
        refused = scheduler.reconciler.refusals.sentence(group)
        answer += f" {refused}." if refused else ""
        owing, never = owed(scheduler, group)
        if never:
            return Found(f"{answer} {NO_MORE}", (never, *[_refused(refused)] * bool(refused)))
        return Found(answer, (_refused(refused) if refused else owing.cure,), owed=owing)
    if not group.n_pending:
        return Found(f"No member is pending: {group.n_bound} run or have ended.")
    return Found("Its members exist, and its turn comes next.")


def _refused(message: str) -> str:
    """What to do about pods that the API server refused."""
    again = "the controller tries again by itself"
    if says_quota_is_exceeded(message):
        return f"Raise the ResourceQuota that is named, end what uses it, or ask for less; {again}."
    return f"Fix what the refusal names; {again}."


def _near_groups(scheduler: Scheduler, group: Group) -> str:
    own = group.key.namespace
    names = (
        g.key.name
        for g in scheduler.shared.groups.values()
        if g.definition is not None and g.key.namespace == own
    )
    return nearest(group.key.name, islice(names, _MAX_LOOKED_AT)).rstrip("?")


# -- it has room, or part of it ------------------------------------------------------------------------


def _waiting(scheduler: Scheduler, group: Group, now_s: float) -> Found:
    preemption = group.preemption
    left = next((one for one in parts_of(group.why) if isinstance(one, WaitsForClaims)), None)
    if preemption is not None and left is not None:
        names = marked("resource claim", left.claims)
        return Found(
            f"Room is reserved for it, and it waits for {several(len(left.claims), 'resource claim')} of pods"
            f" that are gone to be given back: {names}.",
            ("See whether kube-controller-manager runs: its resourceclaim controller gives them back.",),
            then=f"It waits{_until(preemption.deadline_s, now_s)}; then it looks for other victims.",
        )
    if preemption is not None:
        victims = [info.pod.key for info in preemption.waits_for.values()]
        names = marked("pod", victims)
        staying = (uid for uid, info in preemption.waits_for.items() if not is_leaving(info))
        refused = sum(1 for uid in staying if preemption.refused.get(uid))
        also = f"; the API server refuses {refused} of the evictions (a disruption budget may)" * bool(
            refused
        )
        return Found(
            f"Room is reserved for it, and it waits for {several(len(victims), 'pod')} to go: {names}{also}.",
            _slow_victims(len(victims) == 1, refused),
            then=f"It waits{_until(preemption.deadline_s, now_s)}; then it looks for other victims, or gives"
            " everything back. It starts before that if room for it comes elsewhere, and makes room anew if"
            " what is reserved is lost.",
        )
    waits_for = scheduler.permits.waits_for(group)
    whys = "; ".join(f"{reason or 'no reason given'} ({name})" for name, reason in waits_for.items())
    whys = whys or "its set is incomplete"
    owing, never = owed(scheduler, group) if group.n_existing < group.start_count else (None, "")
    todo = [never or owing.cure] if owing is not None else []
    todo += apart(scheduler, group)
    if set(waits_for) - {"GangScheduling"}:
        todo.append(f"A plugin other than GangScheduling can be overruled: {_overruled(group)}.")
    nodes = sorted({info.node_name for info in group.in_state(MemberState.ASSUMED)})
    where = nodes[0] if len(nodes) == 1 else several(len(nodes), "node")
    return Found(
        f"Room for {several(group.n_assumed, 'pod')} of it is reserved on {where}, and Permit waits: {whys}.",
        tuple(todo),
        then=f"It waits{_until(group.deadline_s, now_s)}, then gives back what it holds and is tried again.",
        owed=owing,
    )


def _overruled(group: Group) -> str:
    return f"kubectl create --raw … /permit/{group.key}/allow"


def _slow_victims(is_one: bool, refused: int) -> tuple[str, ...]:
    if refused:
        return ("See what the disruption budgets allow: kubectl get poddisruptionbudgets -A.",)
    return (
        f"See why {'it takes' if is_one else 'they take'} long: a pod has its terminationGracePeriodSeconds,"
        " and finalizers keep it.",
    )


def _binding(scheduler: Scheduler, group: Group, now_s: float) -> Found:
    if not group.n_bound and (found := claims_written(scheduler, group, now_s)) is not None:
        return found
    binds = Counter(info.bind for info in group.in_state(MemberState.ASSUMED))
    parts = [
        f"{binds[state]} {text}"
        for state, text in (
            (BindState.PREPARING, "wait for PreBind"),
            (BindState.HELD, "are held until kubelet cannot confuse them with another pod"),
            (BindState.NONE, "are about to be sent"),
            (BindState.SENT, "are sent"),
            (BindState.READING, "had no clear answer and are read back"),
            (BindState.BUMPING, "are given up and must no longer take effect"),
        )
        if binds[state]
    ]
    unclear = next((i.unclear_answer for i in group.in_state(MemberState.ASSUMED) if i.unclear_answer), "")
    return Found(
        f"It is being bound: {group.n_bound} of {group.start_count} are bound; of the others,"
        f" {', '.join(parts)}." + (f" The last unclear answer: {unclear}." if unclear else ""),
        ("See whether the API server answers: kubectl get --raw /readyz.",),
        then="What it holds stays until the API server itself gives a clear answer.",
    )


def _until(deadline_s: float, now_s: float) -> str:
    return "" if deadline_s == NEVER_S else f" for up to {max(deadline_s - now_s, 0):.0f} s"


# -- it has started ------------------------------------------------------------------------------------


def _started(scheduler: Scheduler, group: Group, now_s: float) -> Found:
    """What a group that has started lacks, when it is due to end, or how it ended."""
    if group.is_half_bound:
        owing, never = owed(scheduler, group)
        return Found(
            f"{group.n_bound} of {group.start_count} members run, and no other exists to complete it.",
            (never or owing.cure,),
            owed=owing,
        )
    if end_of(group):
        return _ended(group)
    lacking = lacks(group)
    if lacking:
        return _short(scheduler, group, lacking, now_s)
    if (idle := not_prepared(group, now_s)) is not None:
        return idle
    apart_told = scheduler.owners.starts_apart(group)
    also = f" {apart_told}." if apart_told else ""
    over = ended_text(group)
    return Found(
        f"It has started: {group.n_bound} of {group.start_count} members are bound{over and f'; {over}'}."
        f"{_ends(scheduler, group)}{also}"
    )


def _ended(group: Group) -> Found:
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


def _short(scheduler: Scheduler, group: Group, lacking: Short, now_s: float) -> Found:
    within_s, action = time_to_recover(group, scheduler.shared.settings)
    then = f"the rest is evicted {within_s:g} s after the first loss" if within_s else "the rest runs on"
    if within_s and action == MOVE:
        then += ", once all of it would start again at once"
    definition = group.definition
    is_own = definition is not None and (definition.recover_within_s or definition.if_not_recovered)
    source = f"{RECOVER_WITHIN_KEY}, {IF_NOT_RECOVERED_KEY}" if is_own else "recoverWithinSeconds"
    stays = scheduler.reconciler.losses.cannot_move.get(group.key)
    return Found(
        f"It has started, and has lost members since: {lacking}.{_holes(scheduler, group, now_s)}"
        f"{_ends(scheduler, group)}" + (f" {str(stays)[:1].upper()}{str(stays)[1:]}." if stays else ""),
        ("Let its controller make the missing members again; each is bound as soon as it has room.",),
        then=f"Until then {then} ({source}).",
    )


def _holes(scheduler: Scheduler, group: Group, now_s: float) -> str:
    """Says which places are kept for the members to come."""
    kept = [*scheduler.shared.holes.kept_for(group)]
    named = [
        f" The place of {one.info.pod.metadata.name} on node {one.node_name} is kept for its successor for"
        f" {until_s - now_s:.0f} s more."
        for one, until_s in kept[:_MAX_NAMED]
    ]
    return "".join(named) + (f" {len(kept) - _MAX_NAMED} more are." if len(kept) > _MAX_NAMED else "")


def _asked_again(scheduler: Scheduler, group: Group, now_s: float) -> str:
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


def _ranks(scheduler: Scheduler, group: Group) -> str:
    """How near each other its ranks are."""
    shared = scheduler.shared
    members = [*group.in_state(MemberState.ASSUMED), *group.in_state(MemberState.BOUND)]
    members = [info for info in members if info.rank >= 0 and info.row != NO_ROW]
    asked = group, members, shared.cache.view, shared.settings.topology_key
    widest = widest_step(*asked)
    if widest is None:
        return ""
    way, (step, one, other) = walk(*asked), widest
    least = "the least possible" if way.total == way.least else f"{way.least} at least"
    return (
        f"The distances from rank to rank add up to {way.total}, {least} for these places; the widest step,"
        f" {step}, is from rank {one.rank} on {one.node_name} to rank {other.rank} on {other.node_name}."
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

"""Overrun: which groups a claim may evict: those past their stated walltime (`onOverrun: yield` or `evict`).

A group is evicted no earlier than half a minute after its stated end, and only if that lets the claim's gang
start, at once or when pods already being deleted are gone. Of several choices the one that spares most groups
is taken. A gang is evicted as a whole, unless some of its pods began later, are not past their end, and
suffice without the rest. Not here: the eviction (core.kept.nominations), claims (core.kept.claiming).
Called by core.kept.kept and core.kept.claiming.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.framework.plan import FitError, Plan, PostFilterResult
from gangsched.core.framework.profile import Demand
from gangsched.core.preemption.victims import is_leaving, spare_of, stays_whole
from gangsched.core.queueing.claims import Claims
from gangsched.core.state.state import SharedState
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import BOUND, Group, PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.model.pod_group import GroupKey

# A job that obeys its limit takes a moment to end.
SPARED_S = 30.0
# A claim waits at most this long for pods being deleted, if others may be evicted. Kubernetes' default grace
# period is half of it.
_SHORTLY_S = 60.0
# Each costs a cycle.
_MAX_LOOKS = 32
# With more groups than this, those on the nodes where the unit would go are tried first.
_FEW = 16

_Over = dict[GroupKey, list[PodInfo]]


class Places(Protocol):
    """What places a unit on a copy of the cluster, beside `nominated`; core.groups.attempts.placer has the
    one implementation."""

    def trial(
        self,
        unit: list[Group],
        view: ClusterView,
        nominated: Sequence[Nominated],
        *,
        within: BoolArray | None = None,
    ) -> Plan | FitError:
        """Returns where all of it fits, on these nodes (bool[n_rows]) alone, or why it does not."""
        ...

    def cycle(
        self,
        demands: Sequence[Demand],
        view: ClusterView,
        nominated: Sequence[Nominated],
        search_budget: int | None = None,
    ) -> Plan | FitError:
        """Returns where all that is asked fits, or why it does not."""
        ...


def past_walltime(
    shared: SharedState,
    unit: Sequence[Group],
    demands: Sequence[Demand],
    nominated: Sequence[Nominated],
    placer: Places,
) -> PostFilterResult | None:
    """The pods to evict so that the unit, which has a claim, can start; None: no choice would help.
    nominated: what is kept from it."""
    claims = shared.claims
    claim = claims.unit_claim(unit) if claims is not None else None
    if claim is None or not shared.settings.evicts_for_claims:
        return None
    gone = _over(shared, claim)
    if not gone:
        return None
    leaving = _leaving(shared, claim)

    def tried(gone: _Over) -> Plan | FitError:
        trial = Trial(shared.cache.view)
        trial.remove(*_all(gone, leaving))
        return placer.cycle(demands, trial, nominated, 0)

    if leaving and isinstance(tried({}), Plan):
        return None
    plan = tried(gone)
    if not isinstance(plan, Plan):
        return None
    gone, plan = _needed(gone, plan, tried)
    used = {placement.row for placement in plan.placements}
    return PostFilterResult(plan, tuple(_all(gone, [info for info in leaving if info.row in used])))


def _needed(gone: _Over, plan: Plan, tried: Callable[[_Over], Plan | FitError]) -> tuple[_Over, Plan]:
    """As few groups as suffice: tries to spare halves together, so that many groups need few looks."""
    used = {placement.row for placement in plan.placements}
    near = {key: infos for key, infos in gone.items() if any(info.row in used for info in infos)}
    if len(gone) > _FEW and 0 < len(near) < len(gone) and isinstance(answer := tried(near), Plan):
        gone, plan = near, answer
    todo = [list(gone)]
    n_looks = 0
    while todo and n_looks < _MAX_LOOKS:
        some = todo.pop()
        fewer = {key: infos for key, infos in gone.items() if key not in some}
        if fewer:
            n_looks += 1
            if isinstance(answer := tried(fewer), Plan):
                gone, plan = fewer, answer
                continue
        if len(some) > 1:
            half = len(some) // 2
            todo += [some[half:], some[:half]]  # those overdue for less time are spared first
    return gone, plan


def fix_ends(shared: SharedState, claims: Claims) -> None:
    """Fixes the ends now stated for promised starts: longer ones stated later do not count. Fixes none if no
    pod may be evicted for a claim."""
    if (ends := shared.ends) is not None:
        promises = claims.all if shared.settings.evicts_for_claims else ()
        ends.fix_ends({one.uid: one.end_s for claim in promises for one in claim.blockers if one.is_known})


def may_be_evicted_for(shared: SharedState, claim: StartClaim) -> bool:
    """Whether pods in the claim's way are past their walltime and will be evicted if they do not end."""
    now_s = shared.now_s
    is_on = shared.settings.evicts_for_claims and now_s >= claim.start_s
    return is_on and any(one.is_known and one.end_s <= now_s for one in claim.blockers)


def _over(shared: SharedState, claim: StartClaim) -> _Over:
    """Overdue groups on the claim's nodes, of no higher priority; the longest overdue last."""
    assert shared.ends is not None
    found: dict[GroupKey, tuple[float, Group]] = {}
    for name in claim.nodes:
        for info in shared.cache.by_node.get(name, {}).values():
            group = info.group
            if group is None or group.priority > claim.priority or info.state is not BOUND:
                continue
            if is_leaving(info) or info.uid in shared.stuck:
                continue
            if (over_s := _over_s(shared, info)) < math.inf:
                found[group.key] = over_s, group
    in_order = sorted(found.items(), key=lambda one: (-one[1][0], one[0]))
    return {key: _of_group(shared, group) for key, (_, group) in in_order}


def _over_s(shared: SharedState, info: PodInfo) -> float:
    """When the pod was stated to end, if it may be evicted since; else inf."""
    assert shared.ends is not None
    over_s = shared.ends.end(info, shared.now_s, shared.wall_ahead_s).over_s
    return over_s if shared.now_s >= over_s + SPARED_S else math.inf


def _of_group(shared: SharedState, group: Group) -> list[PodInfo]:
    """The group's overdue pods, if it can do without them; else all its bound pods."""
    bound = group.in_state(BOUND)
    staying = [info for info in bound if not is_leaving(info)]
    over = [info for info in staying if _over_s(shared, info) < math.inf]
    n_going = len({info.uid for info in over} | {info.uid for info in staying if info.uid in shared.victims})
    return over if not stays_whole(group) or n_going <= spare_of(group, bound) else bound


def _leaving(shared: SharedState, claim: StartClaim) -> list[PodInfo]:
    """Pods that will leave the claim's nodes shortly, whatever else is evicted."""
    assert shared.ends is not None
    found: list[PodInfo] = []
    for name in claim.nodes:
        for info in shared.cache.by_node.get(name, {}).values():
            if is_leaving(info) and info.uid not in shared.stuck:
                end = shared.ends.end(info, shared.now_s, shared.wall_ahead_s)
                if not end.is_over and end.at_s <= shared.now_s + _SHORTLY_S:
                    found.append(info)
    return found


def _all(gone: _Over, leaving: Sequence[PodInfo]) -> list[PodInfo]:
    infos = (*(info for infos in gone.values() for info in infos), *leaving)
    return list({info.uid: info for info in infos}.values())

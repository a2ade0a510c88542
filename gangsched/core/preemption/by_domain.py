"""By domain: makes room for a unit that must be in one rack (zone, block), in the cheapest of some domains.

PostFilter plugins are asked about the unit narrowed to one domain after another, and the cheapest answer is
taken. Domains come in the order of an estimate: what their nodes would have to give up for one member, by
room alone (core.preemption.node_costs). Called by core.groups.attempts.making_room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter

import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.cycle import reserve_nominated
from gangsched.core.cycle.domains.domains import MAX_DOMAINS
from gangsched.core.cycle.domains.topology import narrowed_to_each
from gangsched.core.framework.interface import Code, DryRun, PostFilterResult, Status
from gangsched.core.framework.plan import FitError
from gangsched.core.framework.profile import Demand, Profile
from gangsched.core.preemption.node_costs import NodeCosts, OnNodes, rank
from gangsched.core.preemption.victims import Victims
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.templates.pod_template import PodTemplate

# Limits on domains searched for victims: each search asks about arrays over all nodes. The searches share the
# budget of looks, and each has at least _MIN_LOOKS. If no domain can be freed, no pod is evicted.
_MOST, _LEAST = 16, 4
_NODES_IN_ALL = 16_384
_MIN_LOOKS = 1000
# Once one can be freed, the number searched is limited by kinds of members in all, as each search asks about
# each.
_KINDS_IN_ALL = 512
# Kinds by which domains are estimated: those with the most members.
_MAX_KINDS = 16

_Kinds = Mapping[int, tuple[NodeCosts, IntArray]]
"""By template serial: what nodes give up for one member, and how many each takes now."""


def run_post_filter_by_domain(
    profile: Profile,
    demands: Sequence[Demand],
    trial: Trial,
    error: FitError,
    dry_run_of: Callable[[Sequence[Demand]], DryRun],
) -> PostFilterResult | Status:
    """Does as Profile.run_post_filter. dry_run_of: the DryRun for the narrowed unit."""
    dry_run = dry_run_of(demands)
    units = _cheapest(demands, trial, dry_run)
    best: PostFilterResult | None = None
    refused: Status | None = None
    n_compared = max(_KINDS_IN_ALL // sum(len(demand.by_template()) for demand in demands), _LEAST)
    for at, unit in enumerate(units):
        if best is not None and at >= n_compared:
            break
        own = dry_run_of(unit)
        own.n_looks = max(dry_run.n_looks // len(units), min(_MIN_LOOKS, dry_run.n_looks))
        answer = profile.run_post_filter(unit, trial, error, own)
        if isinstance(answer, Status):
            if refused is None or answer.code is Code.PENDING:
                refused = answer
        elif best is None or answer.cost < best.cost:
            best = answer
    return best or refused or profile.run_post_filter(demands, trial, error, dry_run)


def _cheapest(demands: Sequence[Demand], trial: Trial, dry_run: DryRun) -> list[list[Demand]]:
    """Narrows the unit to some domains, each time to one where it may fit once all possible victims are
    gone."""
    priority = min(demand.group.priority for demand in demands)
    if not dry_run.may_find(priority):
        return []
    rows = np.flatnonzero(trial.live).tolist()
    victims = Victims(
        trial,
        rows,
        priority=priority,
        siblings=dry_run.siblings,
        spared=dry_run.spared,
        going=dry_run.going,
        rule=dry_run.rule,
    )
    everybody = victims.closure({info.uid: info for info in victims.all()})
    now, emptied = trial.fork(), trial.fork()
    emptied.remove(*everybody.values())
    reserve_nominated(now, dry_run.nominated)
    reserve_nominated(emptied, dry_run.nominated)
    units = narrowed_to_each(demands, emptied, now, MAX_DOMAINS)
    if not victims.on_row or len(units) < 2:
        return units
    on_nodes = OnNodes(victims.on_row, (), victims.last)
    kinds = {
        template.serial: (rank(now, template, on_nodes), _room(demand, template, now))
        for demand, template in _most_members(demands)
    }
    units.sort(key=lambda unit: _estimate(unit, kinds))  # ties: the most room first
    return units[: min(max(_NODES_IN_ALL // trial.n_rows, _LEAST), _MOST)]


def _most_members(demands: Sequence[Demand]) -> list[tuple[Demand, PodTemplate]]:
    """Returns the kinds by which domains are estimated."""
    found = [
        (len(members), demand, template)
        for demand in demands
        for template, members in demand.by_template().values()
    ]
    return [(demand, template) for _, demand, template in nlargest(_MAX_KINDS, found, key=itemgetter(0))]


def _room(demand: Demand, template: PodTemplate, trial: Trial) -> IntArray:
    state, _ = demand.pre_filter(template, trial)
    return demand.profile.filtering.static_capacity(state, template, trial)


def _estimate(unit: Sequence[Demand], kinds: _Kinds) -> tuple[float, float, float]:
    """Estimates the unit's cost in its domain, by these kinds: (pods that go last, highest priority, sum of
    what is given up)."""
    taken = list(_given_up(unit, kinds))
    n_last, highest = sum(cost[0] * n for cost, n in taken), max((cost[2] for cost, _ in taken), default=0.0)
    return n_last, highest, sum(cost[3] * n for cost, n in taken)


def _given_up(unit: Sequence[Demand], kinds: _Kinds) -> Iterator[tuple[tuple[float, ...], int]]:
    """Yields what nodes give up for one member, the cheapest first, and for how many members."""
    for demand in unit:
        for template, members in demand.by_template().values():
            if template.serial not in kinds:
                continue
            costs, room = kinds[template.serial]
            within = np.ones(len(room), dtype=np.bool_) if demand.within is None else demand.within
            missing = min(len(members), demand.n_needed)
            missing -= int(np.minimum(room[within], missing).sum())
            for at in np.flatnonzero(within[costs.rows]).tolist():
                n = min(missing, int(costs.room[at]))
                if n <= 0:
                    break
                yield costs.keys[at], n
                missing -= n

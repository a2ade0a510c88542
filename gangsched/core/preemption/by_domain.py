"""By domain: room for a unit that has to be in one rack (zone, block) is made in one, the cheapest of some.

PostFilter plugins are asked about the unit narrowed to one domain after the other, those first where most
members have room already, and the answer that costs least is taken. Called by core.groups.attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.topology import narrowed_to_each
from gangsched.core.framework.interface import Code, DryRun, PostFilterResult, Status
from gangsched.core.framework.plan import FitError
from gangsched.core.framework.profile import Demand, Profile
from gangsched.core.preemption.victims import Victims

# Domains whose pods are searched for victims; they share the budget of looks, of which each has at least so
# many. Where none of them can be freed nobody is taken, and the others are not looked at.
_MAX_DOMAINS = 16
_MIN_LOOKS = 1000


def run_post_filter_by_domain(
    profile: Profile,
    demands: Sequence[Demand],
    trial: Trial,
    error: FitError,
    dry_run_of: Callable[[Sequence[Demand]], DryRun],
) -> PostFilterResult | Status:
    """As Profile.run_post_filter. dry_run_of: what may be tried for the unit as it is narrowed."""
    dry_run = dry_run_of(demands)
    units = narrowed_to_each(demands, _emptied(demands, trial, dry_run), trial, _MAX_DOMAINS)
    best: PostFilterResult | None = None
    refused: Status | None = None
    for unit in units:
        own = dry_run_of(unit)
        own.n_looks = max(dry_run.n_looks // len(units), min(_MIN_LOOKS, dry_run.n_looks))
        answer = profile.run_post_filter(unit, trial, error, own)
        if isinstance(answer, Status):
            if refused is None or answer.code is Code.PENDING:
                refused = answer
        elif best is None or answer.cost < best.cost:
            best = answer
    return best or refused or profile.run_post_filter(demands, trial, error, dry_run)


def _emptied(demands: Sequence[Demand], trial: Trial, dry_run: DryRun) -> Trial:
    """The cluster without all who may go."""
    priority = min(demand.group.priority for demand in demands)
    made = trial.fork()
    if dry_run.lowest_priority < priority:
        rows = np.flatnonzero(trial.live).tolist()
        victims = Victims(trial, rows, priority=priority, siblings=dry_run.siblings, spared=dry_run.spared)
        made.remove(*victims.close({info.uid: info for info in victims.everybody()}).values())
    for nominated in dry_run.nominated:
        row = trial.row_of(nominated.node_name)
        if row is not None:
            made.place(row, nominated.template)
    return made

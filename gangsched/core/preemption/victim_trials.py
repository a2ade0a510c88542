"""VictimTrials: Trials with some pods removed, their capacity, and the cost of queries.

A search for victims runs many thousand queries, so each is charged to its budget, in looks: one look is the
capacity of one node for a pod. There is no clock here: the same input ends at the same place. Nominated pods'
reservations are respected here; for a whole unit core.cycle.cycle does that. Called by
core.preemption.search and core.preemption.by_node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.cycle import reserve_nominated
from gangsched.core.cycle.placing import pre_filtered
from gangsched.core.cycle.shared_room import takes_at_most
from gangsched.core.cycle.unit_limits import weight_of
from gangsched.core.framework.interface import CycleState, DryRun
from gangsched.core.framework.plan import FitError, Plan, SearchOutcome
from gangsched.core.framework.profile import Demand
from gangsched.core.preemption.costs import Chosen
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why

# Measured costs of queries, in looks. One look pays for this many nodes in arrays, or this many pods removed
# from a Trial; then a cycle; then a search for a placing order, which looks at all nodes before it tries
# placements.
_NODES_A_LOOK = 200
_PODS_A_LOOK = 8
_LOOKS_A_CYCLE = 10
_NODES_A_SEARCH = 2
_LOOKS_A_PLACEMENT = 5
# Each cycle asks plugins about every kind of member, which is expensive where all members differ. The set
# that suffices is found whatever that costs; smaller and cheaper ones are tried until plugins have been asked
# about as many kinds as a search has looks. A cycle, with its search for an order, asks about each kind this
# often. A call counts once more for each _NODES_AN_ASK nodes.
_ASKS_A_CYCLE = 6
_NODES_AN_ASK = 2000
# All searches for a placing order after the first share as much budget as the first has, in equal parts, so
# that an order that was found is found again when the victims are gone.
_SHARE = 4


class VictimTrials:
    """Queries about one unit on one Trial. n_left: looks left; gave_up: a search for a placing order ended
    before all were tried."""

    def __init__(self, unit: Sequence[Demand], trial: Trial, dry_run: DryRun) -> None:
        self.trial = trial
        self._unit = unit
        self.room = trial.fork()
        reserve_nominated(self.room, dry_run.nominated)
        self.gave_up = False
        self._dry_run = dry_run
        self.n_left = self._asks_left = dry_run.n_looks
        n_kinds = sum(len(demand.by_template()) for demand in unit)
        weight = weight_of([demand.members for demand in unit])
        self._n_asks = n_kinds * weight * (1 + trial.n_rows // _NODES_AN_ASK)
        self._looks_for_all = weight * (1 + trial.n_rows // _NODES_A_LOOK)
        self._looks_a_cycle = weight * (_LOOKS_A_CYCLE + trial.n_rows // _NODES_A_LOOK)
        self._looks_a_placement = weight * _LOOKS_A_PLACEMENT
        self._placements_left = 0
        self._is_searching = False
        self._answers: dict[frozenset[str], Plan | FitError] = {}

    @property
    def is_spent(self) -> bool:
        """Whether the budget of looks is used up."""
        return self.n_left <= 0

    @property
    def may_refine(self) -> bool:
        """Whether further sets, smaller or cheaper ones, may be tried."""
        return not self.is_spent and self._asks_left > 0

    def without(self, chosen: Chosen, trial: Trial | None = None) -> Trial:
        """Returns a fork without these pods: of `trial`, else of the cluster less nominated pods' room."""
        made = (trial or self.room).fork()
        made.remove(*chosen.values())
        self.n_left -= len(chosen) // _PODS_A_LOOK
        return made

    # -- whole units -------------------------------------------------------------------------------------

    def place(self, chosen: Chosen) -> Plan | FitError:
        """Runs the unit's cycle without these pods."""
        key = frozenset(chosen)
        known = self._answers.get(key)
        if known is not None:
            return known
        if lacks := self.lacks(chosen):
            self._answers[key] = error = FitError(self._unit[0].group, lacks, ())
            return error
        self.n_left -= self._looks_a_cycle
        self._asks_left -= _ASKS_A_CYCLE * self._n_asks
        if self._is_searching:
            budget = min(self._dry_run.search_budget // _SHARE, self._placements_left, self.n_left)
            answer = self._search(chosen, budget)
            self._placements_left -= answer.n_tried
        else:
            answer = self._dry_run.place(self.without(chosen, self.trial))
        self._answers[key] = answer
        return answer

    def lacks(self, chosen: Chosen) -> Why:
        """Why the unit is kept out whatever room it has without these pods; "" if it is not."""
        if self._dry_run.lacks is None:
            return ""
        self.n_left -= 1 + len(chosen) // _PODS_A_LOOK
        return self._dry_run.lacks(chosen.values())

    def search(self, chosen: Chosen) -> Plan | FitError:
        """Does as place, and on failure tries other placing orders; from here on `place` tries those too, as
        far as the budget goes."""
        answer = self.place(chosen)
        self._is_searching = True
        self._placements_left = self._dry_run.search_budget
        if isinstance(answer, FitError) and not self.lacks(chosen):
            answer = self._search(chosen, self._dry_run.search_budget)
            self._answers[frozenset(chosen)] = answer
        return answer

    def _search(self, chosen: Chosen, budget: int) -> Plan | FitError:
        """Runs the unit's cycle, and further orders if those of the cycle fail."""
        trial = self.without(chosen, self.trial)
        if budget <= 0:
            answer = self._dry_run.place(trial)
            self.gave_up |= isinstance(answer, FitError) and self._dry_run.search_budget > 0
            return answer
        answer = self._dry_run.search(trial, budget)
        if isinstance(answer, FitError) or answer.n_tried:
            self.n_left -= trial.n_rows // _NODES_A_SEARCH + answer.n_tried * self._looks_a_placement
        if isinstance(answer, FitError) and answer.search is SearchOutcome.GAVE_UP:
            self.gave_up = True
        return answer

    def fits(self, chosen: Chosen) -> bool:
        """Whether the whole unit fits without these pods."""
        if frozenset(chosen) not in self._answers and self._is_too_little(chosen):
            return False
        return isinstance(self.place(chosen), Plan)

    def _is_too_little(self, chosen: Chosen) -> bool:
        """Whether members of several kinds have too little room together, in any order of placing."""
        several = [demand for demand in self._unit if len(demand.by_template()) > 1]
        if not several:
            return False
        self.n_left -= self._looks_for_all
        self._asks_left -= self._n_asks
        trial = self.without(chosen)
        for demand in several:
            templates = [template for template, _ in demand.by_template().values()]
            states, at_fault, _ = pre_filtered(demand, templates, trial)
            if at_fault is None and takes_at_most(demand, states, trial) < demand.n_needed:
                return True
        return False

    # -- nodes -------------------------------------------------------------------------------------------

    def state(self, demand: Demand, template: PodTemplate, trial: Trial) -> CycleState | None:
        """Returns the state after PreFilter; None if it rejects the pod."""
        state, status = demand.pre_filter(template, trial)
        return state if status.is_success else None

    def capacity(self, demand: Demand, template: PodTemplate, trial: Trial) -> IntArray:
        """int64[n_rows]: how many pods of the template each node takes."""
        self.n_left -= self._looks_for_all
        state = self.state(demand, template, trial)
        if state is None:
            return np.zeros(trial.n_rows, dtype=np.int64)
        return demand.profile.capacity(state, template, trial)

    def capacity_on(self, demand: Demand, template: PodTemplate, trial: Trial, row: int) -> int:
        """As capacity, for a node whose fixed properties admit the template."""
        state = self.state(demand, template, trial)
        if state is None:
            return 0
        if demand.profile.filtering.is_local(state):
            self.n_left -= 1
            return demand.profile.filtering.capacity_on(state, template, trial, row)
        self.n_left -= self._looks_for_all
        return int(demand.profile.capacity(state, template, trial)[row])

    def is_local(self, demand: Demand, template: PodTemplate) -> bool:
        """Whether removing a pod changes Filters' answers for its own node alone."""
        state = self.state(demand, template, self.room)
        return state is not None and demand.profile.filtering.is_local(state)

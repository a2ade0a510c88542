"""DefaultPreemption: a unit that fits nowhere takes the room of pods of lower priority (PostFilter).

The search is core.preemption.search's, what becomes of its answer core.groups.nomination's. Here are the
rules of who may preempt at all, and how disruption budgets are read. Source: kube-scheduler
`plugins/defaultpreemption/default_preemption.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.framework.interface import DryRun, PostFilterResult, Status
from gangsched.core.framework.plan import FitError
from gangsched.core.framework.profile import Demand
from gangsched.core.preemption.search import PreemptionSearch
from gangsched.core.preemption.victims import Budget
from gangsched.core.types.group import PodInfo
from gangsched.model.selectors import selector_of

BUDGETS = "poddisruptionbudgets.policy"


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """DefaultPreemptionArgs: of the nodes where taking pods away helps, how many are weighed up.

    All nodes are ranked by what room alone would cost there; the larger of the two numbers of them are
    weighed with all that Filters say, the cheapest first. kube-scheduler begins with any node.
    """

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def __post_init__(self) -> None:
        percentage, absolute = self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute
        if not 0 <= percentage <= 100:
            raise ValueError(f"minCandidateNodesPercentage: {percentage} is not within 0 to 100")
        if absolute < 0:
            raise ValueError(f"minCandidateNodesAbsolute: {absolute} is below 0")
        if percentage == absolute == 0:
            raise ValueError(
                "minCandidateNodesPercentage: cannot be 0 at the same time as minCandidateNodesAbsolute"
            )

    def n_candidates(self, n_nodes: int) -> int:
        """How many of so many nodes are weighed."""
        n = max(n_nodes * self.min_candidate_nodes_percentage // 100, self.min_candidate_nodes_absolute)
        return min(n, n_nodes)


class DefaultPreemption:
    """PostFilter by eviction."""

    name = "DefaultPreemption"
    watches = (BUDGETS,)

    def __init__(self, args: Args | None = None) -> None:
        self._args = args or Args()

    def post_filter(
        self, unit: Sequence[Demand], trial: Trial, error: FitError, dry_run: DryRun
    ) -> PostFilterResult | Status:
        for demand in unit:
            definition = demand.group.definition
            never = any(info.pod.spec.preemption_policy == "Never" for info in demand.members)
            if never or (definition is not None and not definition.preempts):
                return Status.unschedulable("preemption: not eligible due to preemptionPolicy=Never.")
        if dry_run.lowest_priority >= min(demand.group.priority for demand in unit):
            return Status.unschedulable("")  # nobody to take, and so nothing to say beside the reason itself
        search = PreemptionSearch(
            unit,
            trial,
            dry_run,
            budgets_of=lambda infos: _budgets(trial, infos),
            n_candidates=self._args.n_candidates,
        )
        answer = search.run()
        if isinstance(answer, Status):
            return Status(answer.code, f"preemption: {answer.reason}", answer.plugin)
        return answer


def _budgets(view: ClusterView, infos: Iterable[PodInfo]) -> list[Budget]:
    """What may still be disrupted of these pods. A pod that its budget has been told of counts no more.

    Other than kube-scheduler, an empty selector means every pod of the namespace here, as it does to the API
    server when it is asked for an eviction.
    """
    by_namespace: dict[str, list[PodInfo]] = {}
    if view.objects(BUDGETS):
        for info in infos:
            by_namespace.setdefault(info.pod.metadata.namespace, []).append(info)
    budgets = []
    for namespace, there in by_namespace.items():
        for item in view.objects_in(BUDGETS, namespace).values():
            selector = selector_of(item.spec.selector)
            told = item.status.disrupted_pods or {}
            if selector is not None:
                uids = [
                    info.uid
                    for info in there
                    if info.pod.metadata.name not in told and selector.matches(info.pod.metadata.labels or {})
                ]
                if uids:
                    budgets.append(Budget(item.status.disruptions_allowed, frozenset(uids)))
    return budgets

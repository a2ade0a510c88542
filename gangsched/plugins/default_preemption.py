"""DefaultPreemption: a unit that fits nowhere preempts pods of lower priority (PostFilter).

The search is in core.preemption.search, the use of its result in core.kept.nominations. This file decides
which units may preempt at all, and reads disruption budgets. Source: kube-scheduler
`plugins/defaultpreemption/default_preemption.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from gangsched.core.cache.trial import Trial
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.framework.interface import DryRun, PostFilterResult, Status
from gangsched.core.framework.plan import FitError
from gangsched.core.framework.profile import Demand
from gangsched.core.preemption.costs import DisruptionBudget
from gangsched.core.preemption.search import PreemptionSearch
from gangsched.core.preemption.victims import is_leaving, may_preempt
from gangsched.core.types.group import PodInfo
from gangsched.model.selectors import EVERYTHING, selector_of, size_of
from gangsched.model.workloads import PodDisruptionBudget

BUDGETS = "poddisruptionbudgets.policy"
MAX_SELECTOR = 100
"""Labels, requirements and values of a budget's selector; people write a handful."""
MAX_COMPARED = 2_000_000
"""Labels of pods and of groups of alike pods that the budgets of one namespace look at in one search."""


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """DefaultPreemptionArgs: how many of the nodes where eviction helps are evaluated.

    All nodes are ranked by the victims needed for resources alone; the cheapest ones, as many as the larger
    of the two limits, are evaluated with all Filters. kube-scheduler starts at a random node instead.
    """

    min_candidate_nodes_percentage: Annotated[
        int,
        Meta(description="How many percent of the nodes are weighed as places to make room."),
    ] = 10
    min_candidate_nodes_absolute: Annotated[
        int,
        Meta(description="The same as a number; the larger of the two counts."),
    ] = 100

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
        """Number of nodes, out of `n_nodes`, to evaluate."""
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
            if not may_preempt(demand.group, demand.members):
                return Status.unschedulable("preemption: not eligible due to preemptionPolicy=Never.")
        if not dry_run.may_find(min(demand.group.priority for demand in unit)):
            return Status.unschedulable("")  # no victims, so nothing to add to the reason itself
        search = PreemptionSearch(
            unit,
            trial,
            dry_run,
            budgets_of=lambda infos: _budgets(trial, infos, dry_run.going),
            n_candidates=self._args.n_candidates,
        )
        answer = search.run()
        if isinstance(answer, Status):
            return Status(answer.code, f"preemption: {answer.reason}", answer.plugin)
        return answer


def _budgets(
    view: ObjectQueries, infos: Iterable[PodInfo], going: Mapping[str, PodInfo]
) -> list[DisruptionBudget]:
    """Returns the budgets' remaining disruptions. A pod already recorded in its budget is not counted again;
    a pod evicted but not yet recorded uses one up.

    Unlike in kube-scheduler, an empty selector matches every pod of the namespace, as it does in the API
    server's eviction. A selector that is too long counts as an empty one, and a namespace with too many
    budgets as one that allows no disruption: their authors may ask both for their own pods in few words.
    """
    by_namespace: dict[str, dict[str, PodInfo]] = {}
    if view.objects(BUDGETS):
        for info in (*infos, *going.values()):
            by_namespace.setdefault(info.pod.metadata.namespace, {})[info.uid] = info
    budgets = []
    for namespace, there in by_namespace.items():
        budgets += _budgets_of(view.objects_in(BUDGETS, namespace), there, going)
    return budgets


def _budgets_of(
    items: Mapping[str, PodDisruptionBudget], there: Mapping[str, PodInfo], going: Mapping[str, PodInfo]
) -> list[DisruptionBudget]:
    """The budgets of one namespace about these pods of it."""
    budgets: list[DisruptionBudget] = []
    alike: dict[tuple[str, ...], list[list[PodInfo]]] = {}
    n_left = MAX_COMPARED
    for _, item in sorted(items.items(), key=_by_name):
        if item.spec.selector is None:
            continue
        is_long = size_of(item.spec.selector) > MAX_SELECTOR
        selector = EVERYTHING if is_long else selector_of(item.spec.selector) or EVERYTHING
        disrupted = item.status.disrupted_pods or {}
        if selector.keys not in alike:
            alike[selector.keys] = _alike(there.values(), selector.keys)
            n_left -= len(there) * (1 + len(selector.keys))
        uids = [
            info.uid
            for some in alike[selector.keys]
            if selector.matches(some[0].pod.metadata.labels or {})
            for info in some
            if info.pod.metadata.name not in disrupted
        ]
        n_left -= len(alike[selector.keys]) * (1 + len(selector.keys)) + len(uids)
        if n_left < 0:
            return [DisruptionBudget(0, frozenset(there).difference(going))]
        evicted = [uid for uid in uids if uid in going and not is_leaving(there[uid])]
        if len(evicted) < len(uids):
            left = item.status.disruptions_allowed - len(evicted)
            budgets.append(DisruptionBudget(left, frozenset(uids).difference(going)))
    return budgets


def _by_name(one: tuple[str, object]) -> str:
    return one[0]


def _alike(infos: Iterable[PodInfo], keys: Sequence[str]) -> list[list[PodInfo]]:
    """Groups the pods by their values of these labels: many budgets look at few labels."""
    found: dict[tuple[str | None, ...], list[PodInfo]] = {}
    for info in infos:
        labels = info.pod.metadata.labels or {}
        found.setdefault(tuple(labels.get(key) for key in keys), []).append(info)
    return list(found.values())

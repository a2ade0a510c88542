"""One scheduling cycle: the members of one group, or of groups that start together, placed all or nothing.

Works on a Trial and returns a Plan or a FitError; core.groups.attempts.attempts uses either. Members of one
template are one problem (core.cycle.placing). When several templates or groups compete for nodes, or when
pods must be near each other or apart, the placing order matters. A few orders that usually work are tried
first; then core.cycle.orders.order_search tries others, until one works, none is left, or its budget is used
up; the FitError tells which. A gang is packed; a lone pod goes to the node with the highest score, and among
equal ones to the one that `pick` selects: a seeded function can be passed in to use equal nodes evenly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec
import numpy as np
from msgspec.structs import replace

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.cycle.claim_allocation import allocate_claims, failed_selector
from gangsched.core.cycle.device_allocation import n_sets, settle
from gangsched.core.cycle.domains.domains import topology_of
from gangsched.core.cycle.domains.topology import place_in_domains
from gangsched.core.cycle.orders.order_search import proves_hopeless, search_orders
from gangsched.core.cycle.orders.orders import kinds_of, orders_of_groups, orders_of_kinds
from gangsched.core.cycle.placing import Placing, pre_filtered
from gangsched.core.cycle.ranks import lay_along
from gangsched.core.cycle.roles import n_of_role_fit
from gangsched.core.cycle.shared_room import TemplateMembers, n_at_most, takes_at_most
from gangsched.core.cycle.unit_limits import over_unit_limit, weight_of
from gangsched.core.framework.interface import Code, CycleState, Status
from gangsched.core.framework.plan import (
    FitError,
    Plan,
    SearchOutcome,
    Shortage,
    by_template,
    of_member,
)
from gangsched.core.framework.profile import CLAIMS, Demand
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.needed import split, templates_of
from gangsched.core.types.placement import Nominated, Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import OfGang, Why, together
from gangsched.core.why.nodes import DeviceSetsGivenUp, Excluded, FewFit, NodesExcluded, Searched, SearchEnd
from gangsched.core.why.not_tried import ClusterTooSmall, DevicesOff
from gangsched.model.devices.constraints import CONSTRAINTS_KEY
from gangsched.model.devices.required_ids import REQUIRE_IDS_KEY

GANG = "GangScheduling"


class _Shortage(msgspec.Struct, gc=False):
    """Why a group did not fit. refused: PreFilter's "no", if that was the cause."""

    demand: Demand
    template: PodTemplate
    state: CycleState
    n_placed: int
    n_wanted: int
    trial: Trial
    states: dict[int, CycleState]
    refused: Status
    unplaced: PodInfo
    placed: Sequence[Placement]
    """The group's members that were placed before."""


_Batch = tuple[PodTemplate, list[PodInfo]]


def run_cycle(
    demands: Sequence[Demand],
    view: ClusterView,
    *,
    topology_key: str,
    nominated: Sequence[Nominated] = (),
    search_budget: int = 0,
) -> Plan | FitError:
    """Places all demands on one Trial (a copy of `view` if that is a Trial), or none.

    nominated: pods with room reserved on a node that hold nothing yet; those of equal or higher priority take
    their room first (kube-scheduler does the same in RunFilterPluginsWithNominatedPods). search_budget:
    placements that core.cycle.orders.order_search may try beyond one per member, fewer if a member asks much
    of other pods and nodes; 0: no search. The reported reason
    is that of the first order. Groups that require a rack or another topology domain go to one
    (core.cycle.domains.topology).
    """
    if too_much := over_unit_limit([demand.members for demand in demands]):
        return FitError(demands[0].group, too_much, ((GANG, None),))
    if not any(topology_of(demand) for demand in demands):
        answer = _run(demands, view, topology_key, nominated, search_budget)
    else:
        answer = place_in_domains(
            demands,
            _start(demands, view, nominated),
            lambda narrowed, budget: _run(narrowed, view, topology_key, nominated, budget),
            search_budget,
        )
    for demand in demands if view.claims.selectors.failing else ():
        for template, members in demand.by_template().values():
            if template.claims and (why := failed_selector(demand, template, view)):
                failed = of_member(members[0], why)
                return FitError(demand.group, failed, ((CLAIMS, template),), Code.UNRESOLVABLE)
    if isinstance(answer, Plan):
        lay_along(demands, answer, view, topology_key)
        if view.claims.uses or view.claims.classes:
            answer.claiming = [one for one in answer.placements if one.info.template.claims]
        if answer.claiming:
            found = allocate_claims(view, answer.claiming)
            if isinstance(found, str):
                return FitError(demands[0].group, found, ((CLAIMS, None),))
            answer.claims = found
    return answer


def _run(
    demands: Sequence[Demand],
    view: ClusterView,
    topology_key: str,
    nominated: Sequence[Nominated],
    search_budget: int,
) -> Plan | FitError:
    """Does run_cycle's work, once each group is narrowed to its nodes."""
    refused: FitError | _Shortage | None = None
    given_up: dict[tuple[int, str], None] = {}
    failing: set[tuple[int, ...]] = set()
    n_proved: int | None = None
    # A lone pod may get another of equally good nodes each time, so the same first steps may end differently.
    repeats = len(demands) > 1 and all(one.group.is_gang or len(one.members) > 1 for one in demands)
    kinds = kinds_of(demands) if repeats else {}
    for order in orders_of_groups(demands):
        beginning = tuple(kinds[id(one)] for one in order) if repeats else ()
        if failing and any(beginning[:n] in failing for n in range(1, len(order) + 1)):
            continue
        trial = _start(demands, view, nominated)
        trial.given_up = given_up
        answer, n_placed = _place_all(order, trial, topology_key)
        if isinstance(answer, Plan):
            return answer
        if refused is None:
            refused = answer
            if search_budget:
                weight = weight_of([demand.members for demand in demands])
                search_budget = max(search_budget // weight, 1)
            if repeats and search_budget and isinstance(answer, _Shortage):
                trial = _start(demands, view, nominated)
                n_proved = proves_hopeless(demands, trial, topology_key, search_budget)
                if n_proved is not None:
                    break
        if repeats:
            failing.add(beginning[: n_placed + 1])
    if refused is None:
        return Plan([])
    if isinstance(refused, FitError):
        return refused
    error = _explain(demands, refused)
    if n_proved is not None:
        error.search, error.n_tried, given_up = SearchOutcome.PROVED, n_proved, {}
    elif search_budget and _order_matters(demands, refused):
        trial = _start(demands, view, nominated)
        found, n_tried = search_orders(demands, trial, topology_key, search_budget)
        if isinstance(found, Plan):
            found.n_tried = n_tried
            return found
        error.search, error.n_tried, given_up = found, n_tried, trial.given_up
    if error.search is not SearchOutcome.GAVE_UP and _gave_up(
        demands, partial(_start, demands, view, nominated), given_up
    ):
        error.search = SearchOutcome.GAVE_UP
        names = sorted({view.name(row) for row, _ in given_up})
        error.why = together(error.why, DeviceSetsGivenUp(tuple(names)))
    elif error.search is not SearchOutcome.NONE:
        error.why = together(error.why, Searched(_ENDS[error.search]))
    return error


_ENDS = {SearchOutcome.PROVED: SearchEnd.PROVED, SearchOutcome.GAVE_UP: SearchEnd.GAVE_UP}


def _gave_up(
    demands: Sequence[Demand], start: Callable[[], Trial], given_up: dict[tuple[int, str], None]
) -> bool:
    """Whether a search for device sets ended at its budget: in this cycle (`given_up`), or in an earlier
    cycle that cached a node's count. start: begins a Trial."""
    trial: Trial | None = None
    for demand in demands:
        for template in templates_of(demand.members).values():
            if not template.constraints:
                continue
            if trial is None:
                trial = start()
                trial.given_up = given_up
            state, _ = demand.pre_filter(template, trial)
            feasible = demand.profile.filtering.feasible(state, template, trial)
            if state.subset is not None:
                feasible = feasible & state.subset
            for row in np.flatnonzero(feasible).tolist():
                for resource in template.constraints:
                    n_sets(trial, row, template, resource)
    return bool(given_up)


def _order_matters(demands: Sequence[Demand], shortage: _Shortage) -> bool:
    """False for one template whose Filters do not see pods: its count is exact, so no other order can
    help."""
    if len(demands) > 1 or len(shortage.states) > 1:
        return True
    return len(shortage.demand.members) > 1 and shortage.demand.profile.filtering.sees_pods(shortage.state)


def _start(demands: Sequence[Demand], view: ClusterView, nominated: Sequence[Nominated]) -> Trial:
    trial = view.fork() if isinstance(view, Trial) else Trial(view)
    if nominated and demands:
        priority = min(demand.group.priority for demand in demands)
        reserve_nominated(trial, [one for one in nominated if one.priority >= priority])
    return trial


def reserve_nominated(trial: Trial, nominated: Iterable[Nominated]) -> None:
    """Gives nominated pods their room first. Where it is not free yet, the free amounts fall below 0."""
    for pod in nominated:
        row = trial.row_of(pod.node_name)
        if row is not None:
            trial.expect(row, pod.keeps or pod.template)
            if pod.ids:
                trial.keep_back(row, pod.ids)


def _place_all(
    demands: Sequence[Demand], trial: Trial, topology_key: str
) -> tuple[Plan | FitError | _Shortage, int]:
    """Returns the answer, and the number of groups placed before it was found."""
    plan = Plan([])
    for n_placed, demand in enumerate(demands):
        placed = _place_group(demand, trial, topology_key)
        if not isinstance(placed, Placing):
            return placed, n_placed
        trial = placed.trial
        plan.placements += placed.placements
        plan.states |= {(demand.group.key, serial): state for serial, state in placed.states.items()}
    if trial.repacked:
        settle(trial, plan.placements)
    return plan, len(demands)


def _needs_names(group: Group, template: PodTemplate) -> str:
    """Returns the annotation that makes the pod need devices by name; "" if there is none."""
    if template.constraints:
        return CONSTRAINTS_KEY
    if template.required_ids or (group.definition is not None and group.definition.required_ids):
        return REQUIRE_IDS_KEY if template.asks_for_devices else ""
    return ""


def _place_group(demand: Demand, trial: Trial, topology_key: str) -> Placing | FitError | _Shortage:
    batches = demand.by_template()
    for template, members in batches.values():
        refused = demand.profile.refuses(template)
        if refused:
            return FitError(demand.group, of_member(members[0], refused), ((GANG, None),))
        if not demand.profile.names_devices and (key := _needs_names(demand.group, template)):
            return FitError(demand.group, of_member(members[0], DevicesOff(key)), ((GANG, None),))
    if too_small := _cluster_too_small(demand.group, trial):
        return FitError(demand.group, too_small, (("", None),))
    states, at_fault, status = pre_filtered(demand, [template for template, _ in batches.values()], trial)
    if at_fault is not None:
        why = of_member(batches[at_fault.serial][1][0], status.why)
        return FitError(demand.group, why, ((status.plugin, at_fault),), status.code)
    order, extra = list(batches.values()), list[_Batch]()
    if demand.roles:
        needed, rest = split(demand.members, demand.roles)
        order = list(by_template(needed).values())
        extra = list(by_template(rest).values()) if rest else []
    if len(order) == 1 and not extra:  # what this places on the Trial stays placed, or the whole attempt ends
        return _place_batches(order, Placing(demand, trial, states, topology_key))
    order.sort(key=lambda batch: _slack(demand, states[batch[0].serial], batch, trial))
    outcome: Placing | _Shortage
    for i, attempt in enumerate(orders_of_kinds(order)):
        placing = Placing(demand, trial.fork(), states, topology_key)
        outcome = _place_batches([*attempt, *extra], placing, n_whole=len(order) if demand.roles else 0)
        if isinstance(outcome, Placing):
            break
        if not i and takes_at_most(demand, states, trial) < demand.n_needed:
            break
    return outcome


def _cluster_too_small(group: Group, view: RoomQueries) -> Why:
    """Returns a sentence about minResources that all nodes together lack, in use or not; "" if none.

    A controller may include room for members that come later or never, so it is not a sum to wait for.
    """
    if group.definition is None or not group.definition.min_resources:
        return ""
    for name, wanted in group.definition.min_resources.items():
        there = int(view.allocatable(view.table.column(name)).sum()) if name in view.table else 0
        if there < wanted:
            return ClusterTooSmall(str(group.key), name, wanted, there)
    return ""


def _slack(demand: Demand, state: CycleState, batch: _Batch, view: ClusterView) -> int:
    """Spare room for a template; the template with the least is placed first."""
    template, members = batch
    capacity = demand.profile.capacity(state, template, view)
    return int(np.minimum(capacity, len(members)).sum()) - len(members)


def _place_batches(batches: Sequence[_Batch], placing: Placing, *, n_whole: int = 0) -> Placing | _Shortage:
    """n_whole: how many of the first batches must be placed whole."""
    demand = placing.demand
    n_left = len(demand.members)
    shortage: _Shortage | None = None
    for i, (template, members) in enumerate(batches):
        n_placed = placing.place_batch(template, members)
        if n_placed == len(members):
            continue
        n_left -= len(members) - n_placed
        if shortage is None:
            shortage = _Shortage(
                demand,
                template,
                placing.states[template.serial],
                n_placed,
                len(members),
                placing.trial,
                placing.states,
                placing.refused,
                members[n_placed],
                placing.placements,
            )
        if n_left < demand.n_needed or i < n_whole:
            return shortage
    return placing


def _explain(demands: Sequence[Demand], shortage: _Shortage) -> FitError:
    """Counts the whole gang's members, then nodes as kube-scheduler does."""
    demand, template, view = shortage.demand, shortage.template, shortage.trial
    profile, group = demand.profile, demand.group
    by: dict[Why, Excluded] = {}
    plugins: list[str] = []
    found = profile.reasons(shortage.state, template, view)
    for plugin, reason, rows in found:
        before = by.get(reason, Excluded(0, plugin, reason))
        by[reason] = replace(before, n=before.n + int(np.count_nonzero(rows)))
        if plugin not in plugins:
            plugins.append(plugin)
    if not shortage.refused.is_success:
        found, no = [], shortage.refused
        by, plugins = {no.why: Excluded(view.n_nodes, no.plugin, no.why)}, [no.plugin]
    ordered = sorted(by.values(), key=lambda one: (-one.n, str(one.why)))
    why: Why = NodesExcluded(view.n_nodes, tuple(ordered))
    fit, wanted, held = 0, 1, group.n_bound + group.n_assumed
    if group.is_gang:
        wanted = demand.n_needed + held
        fit, role = held + _n_fit(shortage), ""
        least = demand.roles.get(shortage.unplaced.role, 0)
        n_of_role = sum(one.info.role == shortage.unplaced.role for one in shortage.placed) if least else 0
        if n_of_role < least:
            fit, wanted = n_of_role_fit(demand, shortage.unplaced.role, n_of_role)
            held = fit - n_of_role
            role = shortage.unplaced.role
        member = shortage.unplaced.pod.metadata.name
        why = OfGang(str(group.key), FewFit(role, fit, wanted, member, why))
    rejected: list[tuple[str, PodTemplate | None]] = [(plugin, template) for plugin in plugins]
    rejected += _kept_in_place(demands, shortage, plugins)
    suits = profile.filtering.feasible(shortage.state, template, view)
    if shortage.state.subset is not None:
        suits = suits & shortage.state.subset
    own = [(one.row, one.info.template) for one in shortage.placed]
    is_alike = len(shortage.states) == 1
    minds = profile.filtering.sees_pods(shortage.state) or bool(template.host_ports)
    short = Shortage(shortage.unplaced, template, view, own, fit, wanted, found, suits, is_alike, minds, held)
    # Without a named plugin, any change may help.
    return FitError(group, why, tuple(dict.fromkeys(rejected)) or (("", None),), shortage=short)


def _kept_in_place(
    demands: Sequence[Demand], shortage: _Shortage, plugins: Sequence[str]
) -> Iterator[tuple[str, PodTemplate]]:
    """Yields (plugin, template) for what may keep other templates of the group or its siblings in place.

    A change that helps only one of those (a node too small for the short template, a removed taint) may let
    it move away and make room for the template that was short. plugins: those that rejected that template.
    """
    for demand in demands:
        own = demand is shortage.demand
        # In another domain, or by another profile, the same template may be kept in place by something else.
        alike = demand.within is shortage.demand.within and demand.profile is shortage.demand.profile
        named_already = shortage.template if alike else None
        templates = [one for one in templates_of(demand.members).values() if one is not named_already]
        states = shortage.states if own else pre_filtered(demand, templates, shortage.trial)[0]
        for template in templates:
            named = dict.fromkeys(plugins)
            if template.serial in states:
                found = demand.profile.reasons(states[template.serial], template, shortage.trial)
                named |= dict.fromkeys(plugin for plugin, _, _ in found)
            yield from ((plugin, template) for plugin in named)


def _n_fit(shortage: _Shortage) -> int:
    """Counts the members placed, plus those of other templates, perhaps not tried yet, that have room."""
    demand, placed = shortage.demand, Counter(one.info.template.serial for one in shortage.placed)
    others = []
    for template, members in demand.by_template().values():
        n = len(members) - placed[template.serial]
        if n and template is not shortage.template:
            state = shortage.states[template.serial]
            room = np.minimum(demand.profile.capacity(state, template, shortage.trial, looks=False), n)
            others.append(TemplateMembers(template, n, state, room))
    n_others = n_at_most(demand.profile.filtering, others, shortage.trial)
    return min(placed.total() + n_others, demand.n_needed - 1)

"""Topology: places a unit with a group that requires, or prefers, to be in one rack (zone, block).

A group goes to one domain whole, so the cycle runs with its nodes narrowed to one domain, then to the next,
the best first (core.cycle.domains.domains says which those are). If groups that start together ask for it,
each gets its own domain, and choices are tried together. Called by core.cycle.cycle, which runs one choice.

This is part of the cycle, not a plugin. A Filter judges nodes for one template; here a domain is chosen for a
whole group, and within it every other rule must hold: devices, affinity, victims, what its siblings take.
Source of the requirement: KEP-5732 (kube-scheduler 1.37, `plugins/topologyaware`), which knows one label and
no preferred ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from gangsched.core.cache.trial import Trial
from gangsched.core.cycle.domains.domains import MAX_DOMAINS, Area, Domains, topology_of
from gangsched.core.cycle.orders.order_search import most_looks
from gangsched.core.cycle.orders.orders import in_turns, n_orders_of_kinds
from gangsched.core.framework.plan import FitError, Plan, SearchOutcome
from gangsched.core.framework.profile import Demand
from gangsched.core.why import together
from gangsched.core.why.nodes import Searched, SearchEnd

# Whole cycles in one attempt: choices with enough room, where members' rules about each other may still fail.
# A single group's domains are all among them.
MAX_TRIES = 2 * MAX_DOMAINS
# Limit on calls of plugins in all tries of an attempt, and again in all searches for other orders: each call
# takes a quarter of a millisecond, and a scheduler that is busy for seconds may lose its lease. At least two
# tries and two searches are made.
_MAX_ASKS = 4096
_FEW = 64

Run = Callable[[Sequence[Demand], int], Plan | FitError]
"""Runs the cycle with every group narrowed; the number limits the placements that its order search tries."""

_Tried = list[tuple[Sequence[Area], FitError]]


def place_in_domains(
    demands: Sequence[Demand], trial: Trial, run: Run, search_budget: int
) -> Plan | FitError:
    """Places all demands, each one that asks for it within a domain, or tells why no choice of domains works.

    trial: the cluster with promised room taken; not changed. search_budget: as in core.cycle.cycle, for all
    choices together.
    """
    if any(_is_refused(demand) for demand in demands):
        return run(demands, 0)
    choices = [Domains(demand, demands, trial) for demand in demands]
    for choice in choices:
        if choice.refusal is not None:
            return choice.refusal
    n_asks = _n_asks(demands, choices)
    n_tries = min(max(_MAX_ASKS // n_asks, 2), MAX_TRIES)
    tried: _Tried = []
    is_cut_short = False
    for areas in _together([choice.areas(n_tries // 2) for choice in choices]):
        if len(tried) >= n_tries:
            is_cut_short = True
            break
        answer = run(_narrowed(demands, areas), 0)
        if isinstance(answer, Plan):
            return answer
        if tried:
            answer.shortage = None  # the first one is reported; a trial holds copies of what it changed
        tried.append((areas, answer))
    whole = [(areas, error) for areas, error in tried if all(area.is_whole for area in areas)]
    if search_budget and whole:
        n_members = sum(len(demand.members) for demand in demands)
        share = max(search_budget // len(whole), 1)
        n_searched = max(_MAX_ASKS // (most_looks(n_members, share) + n_asks), 2)
        chosen = list(range(len(whole)))
        if n_searched < len(whole):
            is_cut_short = True
            chosen = in_turns(chosen, n_searched, demands[0].group.attempts)
        for at in chosen:
            areas, _ = whole[at]
            answer = run(_narrowed(demands, areas), share)
            if isinstance(answer, Plan):
                return answer
            whole[at] = areas, answer
    return _explained(choices, whole, run, is_cut_short or any(choice.n_left_out for choice in choices))


def requires_domain(demands: Sequence[Demand]) -> bool:
    """Whether some group has to be in one domain."""
    return any(level.required for demand in demands for level in topology_of(demand))


def narrowed_to_each(demands: Sequence[Demand], room: Trial, now: Trial, n: int) -> list[list[Demand]]:
    """Returns the unit narrowed to a choice of domains, for up to n choices where all may fit in `room`;
    those where most members have room in `now` come first."""
    choices = [Domains(demand, demands, room, now) for demand in demands]
    if any(choice.refusal is not None for choice in choices):
        return []
    found = []
    for areas in _together([(a for a in choice.areas() if a.is_whole) for choice in choices]):
        found.append(_narrowed(demands, areas))
        if len(found) >= n:
            break
    return found


def _is_refused(demand: Demand) -> bool:
    """Whether the cycle refuses the group wherever it goes."""
    return any(
        demand.profile.refuses(template) or (template.constraints and not demand.profile.names_devices)
        for template, _ in demand.by_template().values()
    )


def _narrowed(demands: Sequence[Demand], areas: Sequence[Area]) -> list[Demand]:
    return [
        demand if area.mask is None else replace(demand, within=area.mask, within_name=area.name)
        for demand, area in zip(demands, areas, strict=True)
    ]


def _together(choices: Sequence[Iterator[Area]]) -> Iterator[Sequence[Area]]:
    """Yields every choice of an area for each group, the best for all first. A lone group's areas are
    computed on demand."""
    if len(choices) == 1:
        yield from ((area,) for area in choices[0])
        return
    lists = [list(choice) for choice in choices]
    if all(lists):
        for rank in range(sum(len(areas) - 1 for areas in lists) + 1):
            yield from _of_rank(lists, rank)


def _of_rank(lists: Sequence[Sequence[Area]], rank: int) -> Iterator[tuple[Area, ...]]:
    first, rest = lists[0], lists[1:]
    if not rest:
        if rank < len(first):
            yield (first[rank],)
        return
    for i in range(min(rank, len(first) - 1) + 1):
        yield from ((first[i], *others) for others in _of_rank(rest, rank - i))


def _n_asks(demands: Sequence[Demand], choices: Sequence[Domains]) -> int:
    """How often plugins may be asked in one try, in all its usual orders; a call costs more the more kinds
    there are."""
    n_kinds = [len(demand.by_template()) for demand in demands]
    n_asks = sum(choice.n_asks * n_orders_of_kinds(n) for choice, n in zip(choices, n_kinds, strict=True))
    return n_asks * (1 + sum(n_kinds) // _FEW)


def _explained(choices: Sequence[Domains], tried: _Tried, run: Run, is_cut_short: bool) -> FitError:
    """Explains why no choice works: for the first group without an area, else by the first choice tried."""
    constrained = [i for i, choice in enumerate(choices) if choice.is_constrained]
    short = [i for i in constrained if not choices[i].n_answered]
    if short or not tried:
        return choices[(short or constrained)[0]].nowhere(run)
    at = constrained[0]
    found = choices[at].unfit([each[at].name for each, _ in tried], tried[0][1])
    outcomes = {each.search for _, each in tried}
    if is_cut_short or SearchOutcome.GAVE_UP in outcomes:
        if found.search is not SearchOutcome.GAVE_UP:
            end = SearchEnd.IN_TURNS if is_cut_short else SearchEnd.GAVE_UP
            found.why = together(found.why, Searched(end))
        found.search = SearchOutcome.GAVE_UP
    found.n_tried = sum(each.n_tried for _, each in tried)
    return found

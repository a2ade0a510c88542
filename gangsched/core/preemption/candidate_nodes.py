"""Candidate nodes: where a search for a gang's victims begins, and how it widens.

A large cluster is not searched as a whole: first the nodes whose room is cheapest to free, then those of one
domain (for example a rack), as members may have to be near each other or apart, then ever more. Called by
core.preemption.search; core.preemption.node_costs ranks the nodes by cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gangsched.core.framework.profile import Demand
from gangsched.core.preemption.victim_trials import VictimTrials
from gangsched.core.types.arrays import IntArray

# The growth factor of the number of nodes.
_WIDER = 8
# Domains tried one by one, the cheapest first, before more nodes are.
_MAX_DOMAINS = 16


def ever_more(rows: list[int], n: int, domains: Iterable[IntArray]) -> Iterator[list[int]]:
    """Yields parts of `rows` (cheapest first): n rows, those of one domain, then ever more; all at the
    end."""
    if n < len(rows):
        yield rows[:n]
        yield from _in_one_domain(rows, domains)
        n *= _WIDER
    while n < len(rows):
        yield rows[:n]
        n *= _WIDER
    yield rows


def _in_one_domain(rows: list[int], domains: Iterable[IntArray]) -> Iterator[list[int]]:
    n_yielded = 0
    for codes in domains:
        by_domain: dict[int, list[int]] = {}
        for row in rows:
            by_domain.setdefault(int(codes[row]), []).append(row)
        by_domain.pop(-1, None)
        for some in by_domain.values():
            if len(some) > 1 and n_yielded < _MAX_DOMAINS:
                n_yielded += 1
                yield some


def domains(unit: Sequence[Demand], trials: VictimTrials) -> Iterator[IntArray]:
    """int64[n_rows] for each label that constraints use: the node's domain, -1: none."""
    keys: dict[str, None] = {}
    room = trials.room
    for demand in unit:
        for template, _ in demand.by_template().values():
            state = trials.state(demand, template, room)
            if state is not None:
                found = demand.profile.filtering.topology_keys(state, template, room)
                keys |= dict.fromkeys(found or ())
    for key in keys:
        yield room.label(key)[0].astype(np.int64)

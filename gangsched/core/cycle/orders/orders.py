"""Orders: the usual orders in which groups, and kinds of members within a group, are placed; which groups are
interchangeable in them; and which of too many racks are tried.

These are few of the possible orders; core.cycle.orders.order_search looks for others. Called by
core.cycle.cycle, which tries one after another, and by core.cycle.domains.topology and
core.cycle.domains.domains.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import permutations
from math import factorial
from typing import TypeVar

from gangsched.core.framework.profile import Demand

T = TypeVar("T")

# Members with different templates compete; when the tightest-first order fails, others are tried.
_MAX_ORDERS = 6
# For groups that start together: a set of 64 that does not fit must not cost 64 times as much.
_MAX_ROTATIONS = 12
# Up to this many groups or kinds, all orders are tried; of kinds at most _MAX_ORDERS.
_FEW = 4


def orders_of_groups(groups: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yields the given order first; some groups fit together only if the nodes are filled in another order.

    Yields all orders of up to four groups; of more, orders that start with each group, forwards and
    backwards.
    """
    if len(groups) <= _FEW:
        yield from permutations(groups)
        return
    for ring in (groups, groups[::-1]):
        for i in range(min(len(ring), _MAX_ROTATIONS)):
            yield [*ring[i:], *ring[:i]]


def kinds_of(demands: Sequence[Demand]) -> dict[int, int]:
    """Numbers demands by id(); those that are placed alike wherever they come in an order share a number."""
    numbers: dict[Hashable, int] = {}
    return {id(one): numbers.setdefault(_kind_of(one), len(numbers)) for one in demands}


def _kind_of(demand: Demand) -> Hashable:
    definition = demand.group.definition
    return (
        id(demand.profile),
        id(demand.within),
        demand.n_needed,
        demand.packing_weight,
        tuple(demand.roles.items()),
        () if definition is None else definition.required_ids,
        tuple(info.template.serial for info in demand.members),
    )


def orders_of_kinds(kinds: Sequence[T]) -> Sequence[Sequence[T]]:
    """Returns orders, the given one first; of more than four kinds only it and its reverse."""
    if len(kinds) > _FEW:
        return [kinds, kinds[::-1]]
    return list(permutations(kinds))[:_MAX_ORDERS]


def n_orders_of_kinds(n: int) -> int:
    """Number of orders tried of n kinds."""
    return min(factorial(n), _MAX_ORDERS) if n <= _FEW else 2


def in_turns(ordered: Sequence[T], n: int, n_before: int) -> list[T]:
    """Picks n of them, the best first: half are the best ones, the rest take turns. n_before: how often this
    was asked before."""
    best, others = list(ordered[: n // 2]), list(ordered[n // 2 :])
    n -= len(best)
    start = n_before * n % len(others)
    return best + (others[start:] + others[:start])[:n]

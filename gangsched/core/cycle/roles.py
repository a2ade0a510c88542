"""Roles: kinds of members within a gang, each with a minimum that must be placed together.

A gang with roles is placed in two steps: first the minimum of each role, all of which must be placed, and
then as many other members as fit. It does not matter which members of a role start. Called by
core.cycle.cycle and core.cycle.orders.order_search; not called if there are no roles. Not here: which members
the roles' minimums take (core.types.needed).
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.framework.profile import Demand


def n_of_role_fit(demand: Demand, role: str, n_placed: int) -> tuple[int, int]:
    """(how many of the role run, are reserved or were placed now; its minimum)."""
    definition = demand.group.definition
    wanted = definition.roles[role] if definition is not None else demand.roles[role]
    return wanted - demand.roles[role] + n_placed, wanted


def requirements(demands: Sequence[Demand]) -> tuple[list[int], dict[tuple[int, str], int]]:
    """Returns the minimums that a placement must reach: of each demand, then of each role of each demand; and
    the index in that list by (demand, role).
    """
    needed = [demand.n_needed for demand in demands]
    place: dict[tuple[int, str], int] = {}
    for which, demand in enumerate(demands):
        for role, n in demand.roles.items():
            place[which, role] = len(needed)
            needed.append(n)
    return needed, place

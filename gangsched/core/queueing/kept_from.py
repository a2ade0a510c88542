"""KeptFrom: what a unit may not use on nodes if it runs from one time to another, and who keeps it.

    reserved    by units that wait until their victims have gone, for other schedulers' pods that nominate a
                node, and for members that other running gangs have lost (core.state.holes): all of it, at any
                time; the cycle ignores what is of lower priority than the unit
    claimed     by groups at their bound: all that they need, from their start on; and of what is free now,
                what they need beyond what pods leave there by then (core.queueing.claims)

A unit that ends before a claim starts may use all of its room until then. Whoever wants to know asks here:
attempts, preemption and explanations through core.kept.kept, which knows the rules of queues too; plans of
claims, estimates, what wakes groups (core.state.line.waking), and what is kept within limits
(core.kept.limits).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from gangsched.core.cache.cache import Cache
from gangsched.core.queueing.claims import Claims
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group
from gangsched.core.types.placement import Nominated
from gangsched.model.pod_group import GroupKey


class _Holes(Protocol):
    """What is read of core.state.holes.Holes."""

    kept: dict[str, GroupKey]

    def reserved(self, unit: Sequence[Group]) -> Collection[Nominated]: ...


class _Shared(Protocol):
    """What is read of core.state.state.SharedState."""

    cache: Cache
    claims: Claims | None
    walltimes: Walltimes | None

    @property
    def holes(self) -> _Holes: ...


class KeptFrom(NamedTuple):
    """What is kept from one unit, at this moment. claims: in order of precedence; standing: all of them;
    None: none are made."""

    reserved: Collection[Nominated]
    claims: Sequence[StartClaim]
    standing: Claims | None

    @property
    def room(self) -> list[Nominated]:
        """All of it, also what is not free yet."""
        return [*self.reserved, *(one for claim in self.claims for one in claim.held)]

    @property
    def room_now(self) -> list[Nominated]:
        """What must stay free now."""
        if not self.claims or self.standing is None:
            return list(self.reserved)
        return [*self.reserved, *self.standing.kept_now(self.claims)]


def kept_from(
    shared: _Shared,
    unit: Sequence[Group],
    from_s: float,
    *,
    among: Sequence[StartClaim] | None = None,
    to_all: bool = False,
) -> KeptFrom:
    """What is kept from the unit if it runs from then until its walltime is over.

    among: by these claims only; None: by all. to_all: also by claims that yield to its own, as of their first
    promised starts.
    """
    standing, claims = shared.claims, list[StartClaim]()
    if standing is not None and standing.by_key:
        until_s = from_s + walltime_s(shared, unit)
        claims = standing.holding_up(unit, from_s, until_s, among, to_all)
    nominated = shared.cache.nominated.values()
    return KeptFrom(shared.holes.reserved(unit) if shared.holes.kept else nominated, claims, standing)


def kept_until(shared: _Shared, now_s: float) -> list[tuple[float, Nominated]]:
    """All room that is kept from anyone, and until when; inf: it is not known."""
    standing, found = shared.claims, list[tuple[float, Nominated]]()
    for claim in standing.all if standing is not None else ():
        assert standing is not None
        found += [(standing.end_s(claim, now_s), one) for one in claim.held]
    return [*found, *((math.inf, one) for one in shared.cache.nominated.values())]


def walltime_s(shared: _Shared, unit: Sequence[Group]) -> float:
    """The longest walltime of the unit's groups."""
    walltimes = shared.walltimes
    return math.inf if walltimes is None else max(walltimes.walltime(group).seconds for group in unit)

"""Why a group fits in no domain, as a FitError: its sentence, and the plugins whose changes could cure it.

Called by core.cycle.domains.domains, which finds how near each domain comes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from gangsched.core.cycle.shared_room import TemplateMembers
from gangsched.core.framework.plan import TOPOLOGY, FitError
from gangsched.core.framework.profile import Demand
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import OfGang, Why, without_gang
from gangsched.core.why.nodes import NearestDomain, proved_there
from gangsched.model.text.printable import sentence, several

MAX_NAMED = 3
"""Domains named in a reason."""


def refusal(
    demand: Demand, kinds: Sequence[TemplateMembers], reason: str, inner: FitError | None, where: str
) -> FitError:
    """Returns the error with this sentence; with an inner error, also what the domain `where` lacks."""
    group = demand.group
    gang = str(group.key) if group.is_gang else ""
    if inner is None:
        text: Why = sentence(reason)
        return FitError(group, OfGang(gang, text) if gang else text, _rejected_by(demand, kinds))
    # What is proved is proved of that domain alone.
    there = proved_there(without_gang(gang, inner.why) if gang else inner.why)
    why: Why = NearestDomain(reason, where, there)
    rejected = tuple(dict.fromkeys((*_rejected_by(demand, kinds), *inner.rejected_by)))
    short = inner.shortage
    if short is not None:
        short = replace(short, about_domains=f"{reason}. In {where}: ")
    why = OfGang(gang, why) if gang else why
    return replace(inner, group=group, why=why, rejected_by=rejected, shortage=short)


def _rejected_by(
    demand: Demand, kinds: Sequence[TemplateMembers]
) -> tuple[tuple[str, PodTemplate | None], ...]:
    """All plugins that may refuse a node: in each domain a different one may be the cause."""
    found: list[tuple[str, PodTemplate | None]] = [(TOPOLOGY, None)]
    for kind in kinds:
        if kind.state is not None:
            names = demand.profile.filtering.refusing_plugins(kind.state)
            found += [(name, kind.template) for name in names]
    return tuple(found)


def first_rows(codes: IntArray, n_domains: int) -> IntArray:
    """int64[n_domains]: a node of each domain, -1 where it has none."""
    found: IntArray = np.full(n_domains, -1, dtype=np.int64)
    rows = np.flatnonzero(codes >= 0)[::-1]
    found[codes[rows]] = rows
    return found


def members_text(n: int) -> str:
    return several(n, "member") if n > 1 else "one member"

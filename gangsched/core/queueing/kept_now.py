"""KeptNow: how much of a node's free room must stay free now, so that claims can start there on time.

A claim starts when pods on its nodes have ended, and then uses the room that they leave. Only what it needs
beyond that must be free already. The rest of a node's free room may be used by any unit, however long it
runs. When such a pod ends early, the room that it leaves is kept from then on. A pod that states no end
counts as staying: a guess of its end must not give room away. Called by core.queueing.claims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gangsched.core.cache.cache import Cache
from gangsched.core.queueing.ends import End
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.core.types.pod_template import PodTemplate

# Ends are looked up again after this: a pod may state a new walltime.
_AGAIN_S = 30.0
# Limit on reduced templates; beyond it all are forgotten.
_MAX_REDUCED = 4096


class _Ending(NamedTuple):
    """A pod that states its end, and how much of each column it holds."""

    end_s: float
    holds: Mapping[int, int]


class _Node(NamedTuple):
    """A node's pods that state an end, the soonest first. until_s: when they are looked up again."""

    endings: list[_Ending]
    until_s: float


class KeptNow:
    """Remembers for each node when its pods end."""

    def __init__(self, cache: Cache, end_of: Callable[[PodInfo], End]) -> None:
        self._cache = cache
        self._end_of = end_of
        self._mark = -1
        self._nodes: dict[str, _Node] = {}
        self._n_reduced = 0
        self._reduced: dict[tuple[tuple[int, tuple[str, int]], ...], PodTemplate] = {}

    def kept(self, claims: Sequence[StartClaim], now_s: float) -> list[Nominated]:
        """What must stay free for these claims now."""
        self._follow()
        there: dict[str, list[tuple[float, Nominated]]] = {}
        for claim in claims:
            for one in claim.held:
                there.setdefault(one.node_name, []).append((claim.start_s, one))
        return [one for name, held in there.items() for one in self._on(name, held, now_s)]

    def _follow(self) -> None:
        view = self._cache.view
        changed = view.rows_since(self._mark) if self._mark >= 0 else None
        self._mark = view.journal_end
        if changed is None:
            self._nodes.clear()
            return
        for row in changed:
            if row < view.n_rows:
                self._nodes.pop(view.name(row), None)

    def _on(self, name: str, held: list[tuple[float, Nominated]], now_s: float) -> list[Nominated]:
        all_of_it = [one for _, one in held]
        # Constraints depend on which devices are free, not how many; ends of host ports are not tracked.
        if any(one.template.constraints or one.template.host_ports for one in all_of_it):
            return all_of_it
        endings = self._endings(name, now_s)
        if not endings:
            return all_of_it
        held.sort(key=lambda one: one[0])
        if endings[0].end_s > held[-1][0]:
            return all_of_it
        ids: dict[str, tuple[str, ...]] = {}
        for one in all_of_it:
            for resource, some in one.ids.items():
                ids[resource] = (*ids.get(resource, ()), *some)
        keeps = self._template(all_of_it[0].template, _most_at_once(held, endings))
        return [replace(max(all_of_it, key=lambda one: one.priority), ids=ids, keeps=keeps)]

    def _template(self, like: PodTemplate, amounts: Mapping[int, tuple[str, int]]) -> PodTemplate:
        key = tuple(amounts.items())
        found = self._reduced.get(key)
        if found is None:
            if len(self._reduced) >= _MAX_REDUCED:
                self._reduced.clear()
            self._n_reduced += 1  # the serials of pods' templates are above 0
            found = self._reduced[key] = like.reduced(amounts, -self._n_reduced)
        return found

    def _endings(self, name: str, now_s: float) -> list[_Ending]:
        known = self._nodes.get(name)
        if known is None or known.until_s <= now_s:
            endings = []
            for info in self._cache.by_node.get(name, {}).values():
                end = self._end_of(info)
                if info.row >= 0 and (end.is_stated or end.is_over):
                    holds = dict(zip(info.template.columns, info.template.amounts, strict=True))
                    endings.append(_Ending(end.at_s, holds))
            endings.sort(key=lambda one: one.end_s)
            until_s = min(endings[0].end_s if endings else math.inf, now_s + _AGAIN_S)
            known = self._nodes[name] = _Node(endings, until_s)
        return known.endings


def _most_at_once(
    held: Sequence[tuple[float, Nominated]], endings: Sequence[_Ending]
) -> dict[int, tuple[str, int]]:
    """column -> (resource name, how much must be free now so that enough is free at each start).

    held: sorted by start; endings: sorted by end.
    """
    names: dict[int, str] = {}
    needs: dict[int, int] = {}
    most: dict[int, int] = {}
    n_ended = 0
    for at, (start_s, one) in enumerate(held):
        template = one.template
        for name, column, amount in zip(template.names, template.columns, template.amounts, strict=True):
            names[column] = name
            needs[column] = needs.get(column, 0) + amount
        if at + 1 < len(held) and held[at + 1][0] == start_s:
            continue
        while n_ended < len(endings) and endings[n_ended].end_s <= start_s:
            for column, amount in endings[n_ended].holds.items():
                needs[column] = needs.get(column, 0) - amount
            n_ended += 1
        for column, amount in needs.items():
            most[column] = max(most.get(column, 0), amount)
    return {column: (name, most[column]) for column, name in names.items() if most[column] > 0}

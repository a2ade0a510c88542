"""ClaimedRoom: what claims hold, as arrays. Called by core.groups.plan_rooms, for a plan's first guesses, and
by core.queueing.idle_of_queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_
from typing import NamedTuple

import numpy as np

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.queueing.planning import Amounts
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.core.types.pod_template import PodTemplate

_template_of = attrgetter("template")
# Limit on remembered claims, and on templates; beyond it all are forgotten.
_MAX_KNOWN = 1024


class _Known(NamedTuple):
    """What one claim holds; `templates` are its members' at the time of reading."""

    held: tuple[Nominated, ...]
    infos: tuple[PodInfo, ...]
    templates: tuple[PodTemplate, ...]
    rows: IntArray
    kinds: IntArray

    def is_still_so(self) -> bool:
        """Whether all members still have these templates; an edit changes a member's."""
        return all(map(is_, map(_template_of, self.infos), self.templates))


class Held(NamedTuple):
    """For each member of some claims: its row, the index of its claim, and the index of its template."""

    rows: IntArray
    claims: IntArray
    kinds: IntArray
    templates: Sequence[PodTemplate]

    def amounts(self, columns: Sequence[int]) -> Amounts:
        """How much each member holds of some resources."""
        of_kind = np.zeros((len(columns), max(len(self.templates), 1)), dtype=np.int64)
        for kind, template in enumerate(self.templates):
            own = dict(zip(template.columns, template.amounts, strict=True))
            of_kind[:, kind] = [own.get(column, 0) for column in columns]
        return Amounts(of_kind, self.kinds)


class ClaimedRoom:
    """Reads a claim's members again when they, or the rows of nodes, change."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._revision: tuple[int, int] = (-1, -1)
        self._known: dict[int, _Known] = {}
        """By claim serial."""
        self._kind_of: dict[int, int] = {}
        self._templates: list[PodTemplate] = []

    def held(self, claims: Sequence[StartClaim]) -> Held:
        """What the claims hold on nodes that exist."""
        revision = (self._view.static_revision, self._view.n_rows)
        if revision != self._revision or max(len(self._known), len(self._templates)) > _MAX_KNOWN:
            self._revision = revision
            self._known.clear()
            self._kind_of.clear()
            self._templates = []
        found = [self._of(claim) for claim in claims]
        none: IntArray = np.zeros(0, dtype=np.int64)
        return Held(
            np.concatenate([one.rows for one in found]) if found else none,
            np.repeat(np.arange(len(found)), [len(one.rows) for one in found]),
            np.concatenate([one.kinds for one in found]) if found else none,
            self._templates,
        )

    def _of(self, claim: StartClaim) -> _Known:
        known = self._known.get(claim.serial)
        if known is not None and known.held is claim.held and known.is_still_so():
            return known
        there = [
            (row, self._kind(one.template))
            for one in claim.held
            if (row := self._view.row_of(one.node_name)) is not None
        ]
        pairs: IntArray = np.array(there, dtype=np.int64).reshape(len(there), 2)
        infos = tuple(one.info for one in claim.held)
        templates = tuple(map(_template_of, infos))
        known = self._known[claim.serial] = _Known(claim.held, infos, templates, pairs[:, 0], pairs[:, 1])
        return known

    def _kind(self, template: PodTemplate) -> int:
        kind = self._kind_of.setdefault(template.serial, len(self._templates))
        if kind == len(self._templates):
            self._templates.append(template)
        return kind

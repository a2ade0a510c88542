"""Room for the members of one template: when there is enough, where, how much of it is free now, and what
claims hold of it.

Counts resources only, and each template by itself, so these are first guesses: the cycle that places the gang
decides. Called by core.kept.claim_plans; ClaimedRoom by core.queueing.idle too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from operator import attrgetter, is_
from typing import NamedTuple

import msgspec
import numpy as np

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.cache.view.devices import DeviceQueries
from gangsched.core.queueing.planning import Amounts, Ending, FloatArray, Wanted, copies, earliest, in_domains
from gangsched.core.queueing.running_pods import RunningPods
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.core.types.templates.pod_template import PodTemplate


class Room(msgspec.Struct):
    """Room for one template, by resources. member: one of its members; need: how many are needed; n: how many
    are wanted. free int64[k, n_rows]: now, without claims; None: not computed. amounts: of the running pods.
    domains int64[n_rows]: the members must be on nodes of one domain; None: anywhere."""

    template: PodTemplate
    member: PodInfo
    need: int
    n: int
    ok: BoolArray
    running: RunningPods
    free: IntArray | None = None
    amounts: Amounts | None = None
    domains: IntArray | None = None

    @property
    def is_known(self) -> bool:
        """Whether resources alone determine where there is room."""
        return self.free is not None and not self.template.needs and not self.template.constraints

    def earliest_s(self, claimed: Held, ends_s: FloatArray, from_s: float) -> float:
        """When enough members fit beside these claims. ends_s: when each claim's member ends; -inf: at
        from_s."""
        if self.free is None or self.amounts is None:
            return -math.inf
        free, request, running = self.free, self.template.amount_array[:, 0], self.running
        ending = Ending(running.rows, running.ends_s, self.amounts)
        if len(claimed.rows):
            theirs = claimed.amounts(self.template.columns)
            free = free - theirs.by_row(free.shape[1], claimed.rows)
            ending = Ending(
                np.concatenate((claimed.rows, ending.rows)),
                np.concatenate((ends_s, ending.ends_s)),
                theirs.joined(ending.amounts),
            )
        return earliest(free, Wanted(request, self.need, self.ok, self.domains), ending, from_s)

    def n_at(self, at_s: float, claimed: Held) -> int:
        """How many members fit beside these claims, once the pods that end by then have."""
        return int(self._copies_then(at_s, claimed).sum())

    def rows_at(self, at_s: float, claimed: Held) -> BoolArray:
        """bool[n_rows]: where at least one fits beside these claims, once the pods that end by then have."""
        found: BoolArray = self._copies_then(at_s, claimed) > 0
        return found

    def gaining_rows(self, at_s: float, claimed: Held, besides: BoolArray) -> BoolArray:
        """bool[n_rows]: rows, other than `besides`, that gain most room by then; enough for twice as many as
        are wanted."""
        then = self._copies_then(at_s, claimed)
        gained = np.where(besides, 0, np.maximum(then - self._copies_at(-np.inf, claimed), 0))
        order = np.argsort(-gained, kind="stable")
        before = np.cumsum(gained[order]) - gained[order]
        found: BoolArray = np.zeros(len(gained), dtype=np.bool_)
        found[order[before < 2 * self.n]] = True
        found &= gained > 0
        return found

    def surplus_now(self, at_s: float, claimed: Held) -> IntArray:
        """int64[n_rows]: how many of the copies that fit now need not be kept, so that as many as are wanted
        fit beside these claims once the pods that end by then have.

        Room that becomes free later is kept first, as no pod can use it before. Of the room that is free now,
        nodes with little room are kept first.
        """
        then, now = self._copies_then(at_s, claimed), self._copies_at(-np.inf, claimed)
        later = np.maximum(then - now, 0)
        short = min(self.n, int(then.sum())) - int(later.sum())
        useful = np.where(then > 0, now, 0)
        order = np.argsort(useful, kind="stable")
        before = np.cumsum(useful[order]) - useful[order]
        spared: IntArray = now.copy()
        spared[order] -= np.clip(short - before, 0, useful[order])
        return spared

    def n_beyond(self, at_s: float, claimed: Held, rows: IntArray) -> int:
        """How many of the members on these rows needlessly keep room that is free now."""
        then, now = self._copies_then(at_s, claimed), self._copies_at(-np.inf, claimed)
        later = np.maximum(then - now, 0)
        n_kept = int(np.maximum(np.bincount(rows, minlength=len(now)) - later, 0).sum())
        return n_kept - max(len(rows) - int(later.sum()), 0)

    def _copies_then(self, at_s: float, claimed: Held) -> IntArray:
        """As `_copies_at`, but only in domains where as many fit as are needed."""
        found = self._copies_at(at_s, claimed)
        if (domains := self.domains) is None:
            return found
        n_domains = int(domains.max(initial=0)) + 1
        has_enough = in_domains(found, self.need, domains, n_domains) >= self.need
        return np.where((domains >= 0) & has_enough[domains], found, 0)

    def _copies_at(self, at_s: float, claimed: Held) -> IntArray:
        """int64[n_rows]: how many fit beside these claims, once the pods that end by then have."""
        assert self.free is not None
        assert self.amounts is not None
        n_rows = self.free.shape[1]
        gone = np.flatnonzero(self.running.ends_s <= at_s)
        more = self.amounts.subset(gone).by_row(n_rows, self.running.rows[gone])
        theirs = claimed.amounts(self.template.columns).by_row(n_rows, claimed.rows)
        found: IntArray = np.where(
            self.ok, copies(self.free + more - theirs, self.template.amount_array[:, 0]), 0
        )
        return found


def free_ids(
    view: DeviceQueries, row: int, template: PodTemplate, taken: Collection[str]
) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Resource with an inventory -> (how many devices a member requests, which are free and not taken)."""
    found = {}
    for resource, amount in template.requests.items():
        if resource in view.listed and (inventory := view.inventory(row, resource)) is not None:
            free = inventory.ids_of(view.device_mask(row, resource))
            found[resource] = amount, tuple(one for one in free if one not in taken)
    return found


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

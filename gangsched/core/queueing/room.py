"""Room for the members of one template: when there is enough, where, and how much of it is free now.

Counts resources only, and each template by itself, so these are first guesses: the cycle that places the gang
decides. Called by core.groups.claim_plans and core.groups.plan_rooms.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec
import numpy as np

from gangsched.core.cache.view.devices import DeviceQueries
from gangsched.core.queueing.claimed_room import Held
from gangsched.core.queueing.planning import Amounts, FloatArray, copies, earliest, in_domains
from gangsched.core.queueing.running_pods import RunningPods
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.group import PodInfo
from gangsched.core.types.pod_template import PodTemplate


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
        rows, all_end_s, amounts = running.rows, running.ends_s, self.amounts
        if len(claimed.rows):
            theirs = claimed.amounts(self.template.columns)
            free = free - theirs.by_row(free.shape[1], claimed.rows)
            rows, all_end_s = np.concatenate((claimed.rows, rows)), np.concatenate((ends_s, all_end_s))
            amounts = theirs.joined(amounts)
        return earliest(free, request, self.ok, self.need, rows, all_end_s, amounts, self.domains, from_s)

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

    def to_spare(self, at_s: float, claimed: Held) -> IntArray:
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

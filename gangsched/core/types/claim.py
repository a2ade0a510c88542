"""A claim: room kept for a unit that was passed as often as it may be, from when it will be free."""

from __future__ import annotations

import math

import msgspec

from gangsched.core.types.group import Group
from gangsched.core.types.placement import Nominated


class Blocker(msgspec.Struct, frozen=True):
    """A pod on a claimed node that ends before the claim starts. is_stated: it says itself when it ends, or
    kubelet ends it; what is only thought promises nothing. is_over: it said so, and runs on."""

    name: str
    end_s: float
    is_stated: bool
    is_over: bool = False
    uid: str = ""

    @property
    def is_said(self) -> bool:
        """Whether it says itself when it ends, over or not."""
        return self.is_stated or self.is_over


class StartClaim(msgspec.Struct, eq=False):
    """One unit's. serial: claims of one priority yield to those made before. priority: of the least important
    group. start_s, end_s: on the core's clock. held: where each member goes, with its devices. blockers: who
    has to end first, also of those who have filled in since. beside: UIDs of other schedulers' and of more
    important pods that were on its nodes when it was planned, and stay. promised_s: the first start that was
    promised, None: none yet. planned_s: when that was worked out last. look_s: when it is looked at next.
    n_slips: how often it has come later; slipped_s, because: when and why, the last time. told_s,
    told_promise: as it was told last. is_outranked: since it was planned, a queue has taken room of it that
    is guaranteed to that queue. is_anew: since then, who has to end first says another end. eased_at: where
    the node table's journal ended when it was last looked at for free room that it need not keep."""

    unit: tuple[Group, ...]
    serial: int
    priority: int
    start_s: float
    end_s: float
    held: tuple[Nominated, ...]
    blockers: tuple[Blocker, ...]
    beside: frozenset[str]
    planned_s: float
    look_s: float
    looked_s: float
    promised_s: float | None = None
    n_slips: int = 0
    slipped_s: float = -math.inf
    because: str = ""
    told_s: float = -math.inf
    told_promise: bool = False
    is_outranked: bool = False
    is_anew: bool = False
    eased_at: int = -1

    @property
    def is_promise(self) -> bool:
        """Whether it rests on nothing but what is stated."""
        return all(one.is_stated for one in self.blockers)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Each once, in the order of the members."""
        return tuple(dict.fromkeys(one.node_name for one in self.held))

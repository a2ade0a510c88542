"""A claim: room, from when it will be free, kept for a unit that was bypassed as often as allowed."""

from __future__ import annotations

import math

import msgspec

from gangsched.core.types.group import Group
from gangsched.core.types.placement import Nominated


class Blocker(msgspec.Struct, frozen=True):
    """A pod on a claimed node that ends before the claim starts. is_stated: its end is stated or enforced by
    kubelet; a predicted end promises nothing. is_over: its stated end has passed, and it still runs."""

    name: str
    end_s: float
    is_stated: bool
    is_over: bool = False
    uid: str = ""

    @property
    def is_known(self) -> bool:
        """Whether its end is stated or enforced, passed or not."""
        return self.is_stated or self.is_over


class StartClaim(msgspec.Struct, eq=False):
    """One unit's claim. serial: of claims with one priority, later ones yield. priority: the lowest of its
    groups. start_s, end_s: on the core's clock. held: where each member goes, with its devices. blockers: the
    pods that must end first, including ones that came to the nodes later. beside: UIDs of other schedulers'
    and higher-priority pods that were on its nodes when it was planned, and stay. promised_s: the first start
    that was promised; None: none yet. planned_s: when it was last planned. look_s, looked_s: the next and the
    last check. n_slips: how often its start was put off; slipped_s, because: when and why, the last time.
    reported_s, reported_promise: as last reported. lost_to_guarantee: a queue has since taken room from it
    under its guarantee. has_new_end: a blocker has since stated a new end. eased_at: the end of the node
    table's journal when the claim was last checked for free room that it need not keep."""

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
    reported_s: float = -math.inf
    reported_promise: bool = False
    lost_to_guarantee: bool = False
    has_new_end: bool = False
    eased_at: int = -1

    @property
    def is_promise(self) -> bool:
        """Whether it rests only on stated ends."""
        return all(one.is_stated for one in self.blockers)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The claimed nodes, each once, in the order of the members."""
        return tuple(dict.fromkeys(one.node_name for one in self.held))

"""What a running scheduler answers to a command, as data: /queue, /queues, /top and /reservations.

Both ends read it: the server that makes these pages (queue, web.pages.queues, top.page, reservations), and
the commands that ask for them (web.commands.asking). So a command that only asks imports nothing of the core.
Text of users and servers has been made safe to print; a reader must escape markup.
"""

from __future__ import annotations

import msgspec

Amounts = dict[str, int]
"""By resource."""
RESERVATIONS_PATH = "/reservations"


class QueueRow(msgspec.Struct, frozen=True, rename="camel"):
    """A group that has not fully started, or that runs in part.

    position: its place by QueueSort, among all waiting groups. age_s: since all of its members existed (for a
    group found at start-up, since the last one was created; for a running group, since its first waiting
    member was created); None while it gathers. next_s: when its state ends by itself, as a backoff does.
    needed: None while unknown. `why`: the message on its pods. If the configuration has `queueing`:
    walltime_s, None if it never ends, with its source and the field that states it; passes: how many groups
    have started ahead of it since it was first refused, and how many may; claimed_s: for how long it has had,
    or would have had, a claim. With a claim: starts_in_s, below 0 while what holds its room is late;
    is_promised (else it is an estimate); and the number of nodes. Without one, if starts were requested:
    estimate_in_s, by core.estimates, None if there is no estimate; and the range in which four in five start,
    from the latest starts if there are enough (core.groups.attempts.forecasts).
    """

    position: int
    group: str
    is_gang: bool
    scheduler: str
    priority: int
    state: str
    state_s: float
    age_s: float | None
    next_s: float | None
    needed: int | None
    existing: int
    gated: int
    reserved: int
    bound: int
    attempts: int
    why: str
    walltime_s: float | None = None
    walltime_source: str = ""
    walltime_field: str = ""
    passes: int | None = None
    passes_bound: int | None = None
    claimed_s: float | None = None
    starts_in_s: float | None = None
    is_promised: bool = False
    claimed_nodes: int = 0
    estimate_in_s: float | None = None
    estimate_from_s: float | None = None
    estimate_to_s: float | None = None


class QueuePage(msgspec.Struct, frozen=True, rename="camel"):
    """rows: the first MAX_ROWS of `n_waiting`. by_state: how many groups are in each state. leads: whether
    this replica decides anything; leader: the one that does instead, "" while unknown.
    """

    n_waiting: int
    by_state: dict[str, int]
    rows: tuple[QueueRow, ...]
    leads: bool = True
    leader: str = ""


class QueueShare(msgspec.Struct, frozen=True, rename="camel"):
    """One queue with all below it; amounts by resource, cpu in thousandths.

    depth: 0 at the top. guaranteed: limited to what the cluster has. borrowed: usage beyond the guarantee, of
    resources that have one. share_used: the largest fraction of the cluster that it uses now of any compared
    resource; share_decayed: the same over recent time; score: both relative to its share, the smallest goes
    first. waiting: groups that have not started.
    """

    queue: str
    depth: int
    share: float
    used: Amounts
    guaranteed: Amounts
    limit: Amounts
    borrowed: Amounts
    pods: int
    share_used: float
    share_decayed: float
    score: float
    waiting: int


class QueuesPage(msgspec.Struct, frozen=True, rename="camel"):
    """The queues, each before its children; none if the configuration has none. leads, leader: as in
    QueuePage.
    """

    queues: tuple[QueueShare, ...]
    leads: bool = True
    leader: str = ""


class Reservation(msgspec.Struct, frozen=True, rename="camel"):
    """A group's extended resource on one node. ids: the devices, if they are listed. is_taken: False while
    victims still run there. left_s: seconds until it is released; None: no deadline.
    """

    group: str
    node: str
    resource: str
    amount: int
    ids: tuple[str, ...] = ()
    is_taken: bool = True
    left_s: float | None = None


class ReservationsPage(msgspec.Struct, frozen=True, rename="camel"):
    """leads: whether this replica decides anything; rows: at most MAX_ROWS; is_cut if there are more."""

    leads: bool
    rows: tuple[Reservation, ...]
    is_cut: bool = False


class DeviceCounts(msgspec.Struct, rename="camel"):
    """One resource over all nodes; the four parts add up to total. bound: by pods of any scheduler;
    unhealthy: whether held or not."""

    total: int = 0
    free: int = 0
    reserved: int = 0
    bound: int = 0
    unhealthy: int = 0


class Times(msgspec.Struct, frozen=True, rename="camel"):
    """A histogram since the start: upper bounds in seconds, and counts by bucket, the last above all."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


class TopPage(msgspec.Struct, frozen=True, rename="camel"):
    """at: seconds since 1970. clock_s: the scheduler's clock, for rates. attempts: decisions, of gangs and of
    lone pods; binds: pods whose bind was answered; both since the start. decision: a gang's attempt; start:
    of a pod, from when its gang was complete to its bind; bind: of a pod, from the begin of the attempt to
    its bind; lag: how late the loop was for a timer.
    """

    at: float
    clock_s: float
    version: str
    leads: bool
    nodes: int
    nodes_open: int
    pods: int
    devices: dict[str, DeviceCounts]
    attempts: int
    binds: int
    decision: Times
    start: Times
    bind: Times
    lag: Times
    queue: QueuePage

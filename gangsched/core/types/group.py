"""Group and its members: a gang's present state, with counts; this module exports the states as well.

A lone pod is a group of one and takes the same path. Possible next states: core.state.tables.groups;
its place in line is core.state.line.queue's. Each change of a member's state goes through Group.move, so that
counts are right for a group of 100,000 at the price of one addition.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gangsched.core.types.states import (
    ASSUMED,
    BOUND,
    COMPLETING,
    DONE,
    GATHERING,
    LEAVING,
    NOT_STARTED,
    ON_ITS_WAY,
    PENDING,
    STARTED,
    UNASKED,
    BindState,
    GroupState,
    MemberState,
)
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.types.victim_words import LOWER, PAST_WALLTIME
from gangsched.core.why import Why, words
from gangsched.core.why.incomplete import MembersLost
from gangsched.model.objects import Condition, Pod
from gangsched.model.pod_group import POD, GroupKey, PodGroup
from gangsched.model.stated.index import Index

NO_ROW = -1
NOTHING: Mapping[str, Any] = MappingProxyType({})
NEVER_S = math.inf
# Later than any Unix time, so that ages of pods found at start-up sort before this process's clock.
LONG_AGO_S = 1e12

_NOBODY = dict.fromkeys(MemberState, 0)
_UNMARKED: tuple[str, Mapping[str, Condition | None]] = "", {}
_EXISTING = frozenset((PENDING, ASSUMED, BOUND, DONE))
_PLACED = frozenset((ASSUMED, BOUND, DONE))
_STARTED = frozenset((BOUND, DONE))


class PodInfo(msgspec.Struct, eq=False):
    """A pod as the cache holds it: ours (with a group) or another scheduler's (without).

    row: the node row it is counted on, NO_ROW if none; node_name: its node according to the API or our
    reservation; allocation: container -> resource -> IDs; ids: resource -> IDs, as counted in the ledger;
    allocated: the annotation with them, as sent or seen. identity: what put it into its group, to notice
    edits; stated: its statement of the group's numbers; role: its role in the group, if stated; pod_class:
    its class (core.cache.pods.index). nominated: the nominatedNodeName that we wrote last, None: none so far.
    unclear_answer: the last unclear answer to its bind; n_refused: how often that was a refusal which named
    no pod. sent_version: the pod's version in the last bind sent; sent_queue: the queue that it names.
    bind_may_land: a bind was sent that may or may not land. reported_gone: a consistent read, or a bump, has
    not found it; the watch lags and may still show it bound until it shows the deletion. raised: what
    PreEnqueue adds to its priority in the queue. began_s: when it was reserved, or found to have begun
    (core.queueing.ends). index: its number among its siblings when it joined its group; None, too, for a
    lone pod.
    """

    pod: Pod
    template: PodTemplate
    uid: str
    group: Group | None = None
    identity: tuple[object, ...] = ()
    stated: tuple[object, ...] = ()
    role: str = ""
    state: MemberState = MemberState.PENDING
    bind: BindState = BindState.NONE
    bind_tries: int = 0
    node_name: str = ""
    row: int = NO_ROW
    pod_class: Any = None
    allocation: Mapping[str, Mapping[str, tuple[str, ...]]] = NOTHING
    allocated: str | None = None
    ids: Mapping[str, tuple[str, ...]] = NOTHING
    rank: int = -1
    attempt: int = 0
    reported: str = ""
    nominated: str | None = None
    unclear_answer: str = ""
    n_refused: int = 0
    sent_version: str = ""
    sent_queue: str = ""
    bind_may_land: bool = False
    reported_gone: bool = False
    raised: int = 0
    began_s: float | None = None
    index: Index | None = None

    def __repr__(self) -> str:
        return f"<{self.pod.key} {self.state.value} on {self.node_name or '-'}>"


class Group:
    """The members of one group, counted by state, and the group's own state.

    first_complete_s: when min_count members first existed, kept through failed attempts (QueueSort reads it).
    start: how far its start has come (core.state.tables.starts). since_s: when the present state began;
    deadline_s: its end. preemption: in state Waiting, victims that must go first, and what is reserved for
    it. moves: (when, cause) of each change since state `moved_from` (core.state.tables.groups). n_of_role:
    how many existing members state each role. n_changes: how often members came, went, changed or began to
    leave; n_changes_tried: by its last attempt. warned: ignored statements that were reported.
    reported_conditions: conditions last written to its
    object beside its state. why: the reason that was reported last; "": there is none. raised: the most that
    PreEnqueue adds to a member's priority. wished_priority: its object's. tried_s: when its last attempt was;
    n_early: how many in a row were early (core.state.line.early_turns). start_record, marked and doubts: of
    core.binding.start_records; lost: what it lacks, as last reported (core.groups.lost_members).
    rank_distance: the sum of distances from rank to rank, and the least possible, of the members that were
    reserved together last (core.cycle.ranks).
    states_walltime: whether a member has ever had a key of walltimes; has_conditions: whether one has ever
    had conditions.
    """

    __slots__ = (
        "__weakref__",
        "active_token",
        "attempts",
        "backoff_until_s",
        "cause_id",
        "counts",
        "deadline_s",
        "definition",
        "doubts",
        "failed_binds",
        "failure",
        "first_complete_s",
        "has_conditions",
        "key",
        "lost",
        "marked",
        "members",
        "moved_from",
        "moves",
        "n_changes",
        "n_changes_tried",
        "n_early",
        "n_of_role",
        "own_problem",
        "preemption",
        "priority",
        "problem",
        "raised",
        "rank_distance",
        "read_from",
        "rejected_by",
        "reported",
        "reported_conditions",
        "scheduler_name",
        "since_s",
        "start",
        "start_record",
        "state",
        "stated",
        "states_walltime",
        "status_written",
        "tried_s",
        "warned",
        "why",
        "wished_priority",
    )

    def __init__(self, key: GroupKey, scheduler_name: str, *, now_s: float = 0.0) -> None:
        self.key = key
        self.scheduler_name = scheduler_name
        self.members: dict[str, PodInfo] = {}
        self.counts = _NOBODY.copy()
        self.n_of_role: dict[str, int] = {}
        self.definition: PodGroup | None = None
        self.stated: dict[tuple[object, ...], int] = {}
        self.read_from: tuple[object, ...] = ()
        self.problem: Why = ""
        self.own_problem = ""
        self.why: Why = ""
        self.lost: MembersLost | None = None
        self.rank_distance: tuple[int, int] | None = None
        self.priority = self.wished_priority = self.raised = self.n_changes = self.n_changes_tried = 0
        self.state = self.moved_from = GATHERING
        self.moves: list[tuple[float, Any]] = []
        self.since_s = now_s
        self.first_complete_s = NEVER_S
        self.attempts = self.failure = self.active_token = self.n_early = 0
        self.failed_binds: dict[str, Why] = {}
        self.cause_id = self.reported = self.warned = self.start_record = ""
        self.marked: tuple[str, Mapping[str, Condition | None]] = _UNMARKED
        self.doubts: tuple[str, ...] = ()
        self.backoff_until_s = self.tried_s = -NEVER_S
        self.deadline_s = NEVER_S
        self.rejected_by: tuple[tuple[str, PodTemplate | None], ...] = ()
        self.start = NOT_STARTED
        self.states_walltime = self.has_conditions = False
        self.preemption: Preemption | None = None
        self.reported_conditions: dict[str, Mapping[str, object]] = {}
        self.status_written: tuple[str, Mapping[str, Any]] | None = None

    def __repr__(self) -> str:
        return f"<{self.key} {self.state.value} {dict(self.counts)}>"

    @property
    def message(self) -> str:
        """Why it does not run, in words, with the names in it marked."""
        return words(self.why)

    @property
    def is_gang(self) -> bool:
        """Whether it is a named group, which messages call a gang; a lone pod is called a pod."""
        return self.key.dialect != POD

    @property
    def min_count(self) -> int:
        return self.definition.min_count if self.definition else 1

    @property
    def start_count(self) -> int:
        """How many must be bound for the gang to be whole."""
        return max(self.definition.min_count, self.definition.total_count) if self.definition else 1

    @property
    def start_together(self) -> tuple[str, ...]:
        return self.definition.start_together if self.definition else ()

    @property
    def has_started(self) -> bool:
        """Whether the gang was bound whole; members that come or go later are independent."""
        return self.start is STARTED

    @property
    def is_completing(self) -> bool:
        """Whether it is bound in part and to be completed first."""
        return self.start is COMPLETING

    @property
    def starts_alone(self) -> bool:
        """Whether it no longer waits for the groups of start_together: it has started; some may be gone."""
        return self.start is not NOT_STARTED or self.counts[DONE] > 0

    @property
    def n_pending(self) -> int:
        return self.counts[PENDING]

    @property
    def n_assumed(self) -> int:
        return self.counts[ASSUMED]

    @property
    def n_bound(self) -> int:
        """Members that have started: bound, or bound and ended well since."""
        return self.counts[BOUND] + self.counts[DONE]

    @property
    def n_holding(self) -> int:
        """Members that hold a node: bound and not ended."""
        return self.counts[BOUND]

    @property
    def n_existing(self) -> int:
        """Members that count towards min_count: not gated, failed or leaving."""
        counts = self.counts
        return counts[PENDING] + counts[ASSUMED] + counts[BOUND] + counts[DONE]

    @property
    def is_complete(self) -> bool:
        """Whether it may be tried: its numbers are known and enough members exist."""
        if self.definition is None or self.problem:
            return False
        if self.start is STARTED:
            return True
        return self.n_existing >= self.definition.min_count and not self.missing_roles()

    def missing_roles(self) -> list[tuple[str, int, int]]:
        """(role, how many exist, its minimum) of each role with too few members."""
        if self.definition is None or not self.definition.roles:
            return []
        counted = ((role, self.n_of_role.get(role, 0), n) for role, n in self.definition.roles.items())
        return [one for one in counted if one[1] < one[2]]

    def short_roles(self) -> dict[str, int]:
        """How many more members of each role must be placed, if any; reservations count as placed."""
        if self.start is STARTED or self.definition is None or not self.definition.roles:
            return {}
        short = dict(self.definition.roles)
        for info in self.members.values():
            if info.role in short and info.state in _PLACED:
                short[info.role] -= 1
        return {role: n for role, n in short.items() if n > 0}

    @property
    def n_needed(self) -> int:
        """How many more members must be placed in one attempt; at least 1. If Permit waits for more, every
        existing one up to total_count: the gang must not hold resources while it waits for resources."""
        return max(1, self.n_short)

    @property
    def n_short(self) -> int:
        """How many more members the gang needs to start; 0 or less when it has enough."""
        if self.start is STARTED or self.definition is None:
            return 0
        short = self.min_count - self.n_bound - self.n_assumed
        if self.definition.total_count:
            short = max(short, min(self.n_pending, self.start_count - self.n_bound - self.n_assumed))
        if self.definition.roles:
            short = max(short, sum(self.short_roles().values()))
        return short

    @property
    def is_half_bound(self) -> bool:
        """Whether some members hold nodes but the gang is not whole; ended members hold nothing."""
        return self.start is not STARTED and self.n_holding > 0 and not self.is_whole

    @property
    def is_whole(self) -> bool:
        """Whether enough members run, of each role too."""
        return self.is_whole_with(())

    def is_whole_with(self, others: Collection[PodInfo]) -> bool:
        """As is_whole, with these members counted as running."""
        if self.n_bound + len(others) < self.start_count:
            return False
        if self.definition is None or not self.definition.roles:
            return True
        started = Counter(info.role for info in self.members.values() if info.state in _STARTED)
        started.update(info.role for info in others)
        return all(started[role] >= n for role, n in self.definition.roles.items())

    def add(self, info: PodInfo) -> None:
        info.group = self
        self.members[info.uid] = info
        self.n_changes += 1
        self.counts[info.state] += 1
        if info.role and info.state in _EXISTING:
            self._count_role(info.role, 1)
        self.stated[info.stated] = self.stated.get(info.stated, 0) + 1
        if info.pod.status.conditions:
            self.has_conditions = True
        if info.raised or self.raised:
            self.raised = info.raised if len(self.members) == 1 else max(self.raised, info.raised)

    def raise_member(self, info: PodInfo, raised: int) -> None:
        """Sets what PreEnqueue adds to the member's priority in the queue."""
        was_highest, info.raised = info.raised == self.raised, raised
        self.raised = max(self.raised, raised)
        if was_highest:
            self._lower()

    def _lower(self) -> None:
        """Updates `raised` when a member no longer has the highest raise."""
        if not any(one.raised == self.raised for one in self.members.values()):
            self.raised = max((one.raised for one in self.members.values()), default=0)

    def remove(self, info: PodInfo) -> None:
        if self.members.pop(info.uid, None) is not None:
            self.n_changes += 1
            self.counts[info.state] -= 1
            if info.role and info.state in _EXISTING:
                self._count_role(info.role, -1)
            self.stated[info.stated] -= 1
            if not self.stated[info.stated]:
                del self.stated[info.stated]
            if self.raised:
                self._lower()
        info.group = None

    def move(self, info: PodInfo, state: MemberState) -> None:
        """Changes a member's state and the counts."""
        self.counts[info.state] -= 1
        if info.role and (info.state in _EXISTING) != (state in _EXISTING):
            self._count_role(info.role, 1 if state in _EXISTING else -1)
        self.n_changes += LEAVING in (info.state, state)
        info.state = state
        self.counts[state] += 1

    def _count_role(self, role: str, more: int) -> None:
        self.n_of_role[role] = self.n_of_role.get(role, 0) + more
        if not self.n_of_role[role]:
            del self.n_of_role[role]

    def move_all(self, infos: Collection[PodInfo], old: MemberState, new: MemberState) -> None:
        """As move, for members all in one state; both states must count towards min_count."""
        for info in infos:
            info.state = new
        self.counts[old] -= len(infos)
        self.counts[new] += len(infos)

    def in_state(self, state: MemberState) -> list[PodInfo]:
        """Members in one state, in the order they were seen."""
        n = self.counts[state]
        if n == len(self.members):
            return list(self.members.values())
        return [info for info in self.members.values() if info.state is state] if n else []

    def first(self) -> PodInfo | None:
        """The first member, which represents the gang if it has no object; None if it has no members."""
        return next(iter(self.members.values()), None)


class Preemption(msgspec.Struct, eq=False, gc=True):
    """One unit's reservation by preemption. waits_for: victims by UID that are not gone yet; violating: those
    a budget protects; refused: how often each eviction was refused; asked: UIDs of those to be evicted.
    keeps_at: its room is kept from units up to this priority, if above its own; whose: the victims, in words;
    number: higher for later ones; node_names: member's UID -> node, if it has room; looks_at_s: when it has a
    turn anyway; seen_at: the journal's end when nodes were chosen; taken_by: a scheduler that took one."""

    unit: tuple[Group, ...]
    waits_for: dict[str, PodInfo]
    violating: frozenset[str]
    deadline_s: float
    nodes: frozenset[str] = frozenset()
    node_names: dict[str, str] = {}
    refused: dict[str, int] = {}
    keeps_at: int = -(2**31)
    whose: str = LOWER
    number: int = 0
    looks_at_s: float = NEVER_S
    seen_at: int = -1
    taken_by: str = ""
    asked: tuple[str, ...] = ()

    @property
    def is_overrun(self) -> bool:
        """Whether its victims ran past their walltime: those need not be of lower priority."""
        return self.whose == PAST_WALLTIME


__all__ = [
    "ASSUMED",
    "BOUND",
    "DONE",
    "LEAVING",
    "NEVER_S",
    "NOTHING",
    "NO_ROW",
    "ON_ITS_WAY",
    "PENDING",
    "UNASKED",
    "BindState",
    "Group",
    "GroupState",
    "MemberState",
    "PodInfo",
    "Preemption",
]

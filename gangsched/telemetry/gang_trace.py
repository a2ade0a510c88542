"""GangTrace: one gang's open spans, and how its next state changes them.

The tree is drawn in gangsched.telemetry. A gang's states follow each other without gaps, so at any moment one
phase is open, and from the first cycle on an attempt around it. telemetry.tracer calls it with each event and
its time; it passes ended spans to `out`.

    state                            phase         an attempt that is open
    ───────────────────────────────  ────────────  ─────────────────────────────────────────────────────────
    GATED, GATHERING                 Gathering     ends
    ACTIVE, BACKOFF, UNSCHEDULABLE   Queue wait    ends
    WAITING                          Permit wait   goes on
    BINDING                          Bind          goes on
    UNWINDING                        Unwind        ends
    BOUND, DELETED                   none          ends, and so does the trace

A gang that waits in Permit is tried again whenever a member or a sibling arrives. The core counts each try as
an attempt; here they are events of one Permit wait, until one of them ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import IdGenerator

from gangsched.core.framework.interface import Code
from gangsched.core.types.group import Group, GroupState, MemberState, PodInfo
from gangsched.core.types.states import ENDED
from gangsched.model.resource_claims.objects import ResourceClaim
from gangsched.telemetry import names
from gangsched.telemetry.attributes import of_claim, of_gang, of_member, of_reservation
from gangsched.telemetry.spans import Attributes, OpenSpan, SpanMaker
from gangsched.telemetry.traceparent import written

PHASES: Mapping[GroupState, str] = {
    GroupState.GATED: names.GATHERING,
    GroupState.GATHERING: names.GATHERING,
    GroupState.ACTIVE: names.QUEUE_WAIT,
    GroupState.ASKING: names.QUEUE_WAIT,
    GroupState.BACKOFF: names.QUEUE_WAIT,
    GroupState.UNSCHEDULABLE: names.QUEUE_WAIT,
    GroupState.WAITING: names.PERMIT_WAIT,
    GroupState.BINDING: names.BIND,
    GroupState.UNWINDING: names.UNWIND,
}
_CYCLE_VERDICTS = {GroupState.WAITING: names.WAIT, GroupState.BINDING: names.SCHEDULED}
_GOOD = (names.SCHEDULED, names.ALLOWED)


class Point:
    """An extension point during one attempt: its first call, and the total duration of all calls (ns)."""

    __slots__ = ("began_ns", "code", "n_calls", "since_ns", "took_ns")

    def __init__(self, now_ns: int) -> None:
        self.began_ns = self.since_ns = now_ns
        self.took_ns = 0
        self.n_calls = 0
        self.code = Code.SUCCESS


class GangTrace:
    """All open spans of one gang."""

    __slots__ = (
        "_attempt",
        "_buffer",
        "_cycle_ns",
        "_ids",
        "_key",
        "_message",
        "_n_bound",
        "_n_failed_attempts",
        "_n_failed_binds",
        "_n_unwritten",
        "_number",
        "_previous_id",
        "_unreasoned",
        "group",
        "maker",
        "out",
        "phase",
        "root",
        "seen_links",
        "traceparent",
        "unanswered",
    )

    def __init__(
        self,
        group: Group,
        maker: SpanMaker,
        ids: IdGenerator,
        out: Callable[[list[ReadableSpan]], None],
        began_ns: int,
        *,
        sampled: bool = True,
    ) -> None:
        """`out` takes ended spans; `sampled`: the sampled flag of our traceparent."""
        self.group = group
        self.maker = maker
        self.out = out
        self.root = OpenSpan(names.GANG if group.is_gang else names.POD, maker.root_id, began_ns)
        self.traceparent = written(maker.trace_id, maker.root_id, sampled=sampled)
        self.seen_links: set[str] = set()
        self.phase: OpenSpan | None = None
        self.unanswered: dict[str, PodInfo] = {}
        """Members whose Binding was sent, by UID, until it is answered."""
        self._ids = ids
        self._key = str(group.key)
        self._attempt: OpenSpan | None = None
        self._buffer: list[ReadableSpan] = []
        self._cycle_ns: int | None = None
        self._previous_id = 0
        self._n_bound = 0
        self._n_failed_binds = 0
        self._n_failed_attempts = 0
        self._n_unwritten = 0
        self._number = 0
        self._message = ""
        self._unreasoned: list[Attributes] = []

    # -- events ----------------------------------------------------------------------------------------

    def attempt_began(self, now_ns: int, tried_with: Iterable[GangTrace]) -> None:
        """The gang's turn has come, alone or with other gangs."""
        self._cycle_ns = now_ns
        self._number = self.group.attempts
        phase = self.phase
        if self._attempt is None:
            queued = phase is not None and phase.name == names.QUEUE_WAIT
            began_ns = phase.began_ns if phase is not None and queued else now_ns
            self._attempt = OpenSpan(names.ATTEMPT, self._ids.generate_span_id(), began_ns)
            if self._previous_id:
                self._attempt.links.append(self.maker.link(self._previous_id, {names.LINK: "earlier"}))
            if queued:
                self._end_phase(now_ns, verdict="")
        for other in tried_with:
            if other is not self and len(self._attempt.links) < names.MAX_LINKS:
                link = other.maker.link(other.maker.root_id, {names.LINK: "starts together"})
                self._attempt.links.append(link)

    def enter(self, state: GroupState, now_ns: int, points: Mapping[str, Point]) -> bool:
        """The group has entered this state; returns False when that ended its trace."""
        verdict = "" if self._cycle_ns is None else self._end_cycle(state, now_ns, points)
        name = PHASES.get(state)
        if self.phase is not None and self.phase.name == name:
            if name == names.QUEUE_WAIT:
                self.phase.event(state.value, now_ns, {}, limit=names.MAX_QUEUE_EVENTS)
            return True
        verdict = verdict or self._verdict_of_phase(state)
        if self.phase is not None:
            self._end_phase(now_ns, verdict)
        if self._attempt is not None and name not in (names.PERMIT_WAIT, names.BIND):
            self._end_attempt(now_ns, verdict or names.UNSCHEDULABLE)
        if name is None:
            self._end_root(now_ns, names.SCHEDULED if state is GroupState.BOUND else names.GONE)
            return False
        if name != names.BIND:
            self._flush()
        self.phase = OpenSpan(name, self._ids.generate_span_id(), now_ns)
        # Finds the gang's spans while their root has not ended.
        self.phase.attributes[names.GROUP] = self._key
        if name == names.QUEUE_WAIT:
            self.phase.event(state.value, now_ns, {}, limit=names.MAX_QUEUE_EVENTS)
        elif name == names.BIND:
            self._n_bound = self._n_failed_binds = 0
            self.unanswered = {info.uid: info for info in self.group.in_state(MemberState.ASSUMED)}
            self.phase.attributes[names.MEMBERS] = len(self.unanswered)
        elif name == names.UNWIND:
            self.phase.attributes[names.MEMBERS] = self.group.counts[MemberState.BOUND]
        return True

    def gave_back(self, n_members: int, why: str, now_ns: int) -> None:
        span = OpenSpan(names.UNRESERVE, self._ids.generate_span_id(), now_ns)
        span.attributes[names.MEMBERS] = n_members
        if why:
            span.attributes[names.REASON] = why[: names.MAX_TEXT]
        else:
            self._unreasoned.append(span.attributes)
        self._emit(span, now_ns)

    def preempted(self, victims: Iterable[PodInfo], now_ns: int) -> None:
        """The wait that has begun is for these victims: adds one event each."""
        if self.phase is not None:
            for info in victims:
                self.phase.event(names.PREEMPTS, now_ns, of_member(info, ""))

    def add_message(self, message: str) -> None:
        """Adds a message for people as the reason of spans that ended in this turn and of open spans."""
        self._message = message = message[: names.MAX_TEXT]
        for attributes in self._unreasoned:
            attributes.setdefault(names.REASON, message)
        phase = self.phase
        if phase is not None and phase.name == names.PERMIT_WAIT:
            phase.attributes[names.WAITS_FOR] = message
        elif phase is not None and phase.name in (names.QUEUE_WAIT, names.GATHERING):
            phase.attributes[names.REASON] = message

    def answered(self, uid: str, outcome: str, message: str, now_ns: int) -> None:
        """Adds a bind's outcome: bound, failed, cancelled; after an unknown one, another follows."""
        info = self.unanswered.get(uid)
        if info is None or self.phase is None:
            return
        if outcome != "unknown":
            del self.unanswered[uid]
        self._n_bound += outcome == "bound"
        self._n_failed_binds += outcome in ("failed", "cancelled")
        self.phase.event(outcome, now_ns, of_member(info, message), trouble=outcome != "bound")

    def claimed(self, claim: ResourceClaim, now_ns: int) -> None:
        """Adds that a resource claim is allocated, and reserved for members."""
        if self.phase is not None and claim.status.allocation is not None:
            self.phase.event(names.RESERVED_CLAIM, now_ns, of_claim(claim))

    def turn_ended(self) -> None:
        """Ends the turn: its ended spans get no further messages."""
        self._message = ""
        self._unreasoned = []

    def stop(self, now_ns: int) -> None:
        """Ends open spans as the process ends. The root of a half-bound gang is left to the next process."""
        binding = self.phase is not None and self.phase.name == names.BIND
        if binding and self._n_bound and not self.unanswered and not self._n_failed_binds:
            self.enter(GroupState.BOUND, now_ns, {})
            return
        if self.phase is not None:
            self._end_phase(now_ns, names.STOPPED)
        if self._attempt is not None:
            self._end_attempt(now_ns, names.STOPPED)
        n_bound = self.group.n_holding or (self._n_bound if binding else 0)
        if self.group.has_started or not n_bound:
            self._end_root(now_ns, names.STOPPED)

    # -- ends ------------------------------------------------------------------------------------------

    def _verdict_of_phase(self, state: GroupState) -> str:
        """Returns the open phase's verdict when the group enters `state`; "" if there is none."""
        if state is GroupState.DELETED:
            return names.GONE
        name = self.phase.name if self.phase is not None else ""
        if name == names.PERMIT_WAIT:
            return names.ALLOWED if state is GroupState.BINDING else names.GIVEN_BACK
        if name == names.BIND:
            if state is GroupState.BOUND:
                return names.SCHEDULED
            return names.BOUND_IN_PART if self.group.n_holding else names.BIND_FAILED
        if name == names.QUEUE_WAIT and self._attempt is None:
            return names.NOT_TRIED
        return ""

    def _end_cycle(self, state: GroupState, now_ns: int, points: Mapping[str, Point]) -> str:
        """Returns the verdict of a Permit wait that this cycle has ended, "" if none."""
        began_ns, self._cycle_ns = self._cycle_ns, None
        assert began_ns is not None
        verdict = ""
        if self.phase is not None and self.phase.name == names.PERMIT_WAIT:
            if state is GroupState.WAITING:
                look: Attributes = {names.ATTEMPT_NUMBER: self._number}
                self.phase.event("looked at again", began_ns, look, limit=names.MAX_QUEUE_EVENTS)
                return ""
            verdict = self._verdict_of_phase(state)
            self._end_phase(began_ns, verdict)
        cycle = OpenSpan(names.CYCLE, self._ids.generate_span_id(), began_ns)
        cycle.attributes[names.ATTEMPT_NUMBER] = self._number
        self._give_verdict(cycle, _CYCLE_VERDICTS.get(state, names.UNSCHEDULABLE))
        for name, point in points.items():
            span = OpenSpan(name, self._ids.generate_span_id(), point.began_ns)
            if point.n_calls > 1:
                span.attributes[names.CALLS] = point.n_calls
            if point.code is not Code.SUCCESS:
                span.attributes[names.VERDICT] = point.code.value
            if name == names.RESERVE:
                span.attributes.update(of_reservation(self.group))
            ended_ns = point.began_ns + point.took_ns
            self._buffer.append(self.maker.end(span, ended_ns, parent_id=cycle.span_id))
        self._emit(cycle, now_ns)
        return verdict

    def _end_phase(self, now_ns: int, verdict: str) -> None:
        phase, self.phase = self.phase, None
        assert phase is not None
        if verdict:
            self._give_verdict(phase, verdict)
        if phase.name == names.GATHERING:
            phase.attributes[names.MEMBERS] = self.group.n_existing
        elif phase.name == names.BIND:
            self._end_binds(phase, now_ns, verdict)
        root = phase.name in (names.GATHERING, names.UNWIND) or self._attempt is None
        self._emit(phase, now_ns, parent_id=self.maker.root_id if root else None)
        if phase.name == names.BIND and verdict in names.TROUBLE:
            n_given_back = int(phase.attributes[names.MEMBERS]) - self._n_bound  # type: ignore[arg-type]
            self.gave_back(n_given_back, self._message, now_ns)

    def _end_binds(self, phase: OpenSpan, now_ns: int, verdict: str) -> None:
        # The watch may show a bind before its answer arrives, or instead of it.
        for info in self.unanswered.values():
            if info.state is MemberState.BOUND or info.state in ENDED:
                self._n_bound += 1
                phase.event("bound", now_ns, of_member(info, "seen in the watch"))
        self.unanswered = {}
        phase.attributes[names.N_BOUND] = self._n_bound
        if verdict != names.SCHEDULED:
            phase.attributes[names.N_FAILED] = self._n_failed_binds

    def _end_attempt(self, now_ns: int, verdict: str) -> None:
        attempt, self._attempt = self._attempt, None
        assert attempt is not None
        attempt.attributes |= {
            names.GROUP: self._key,
            names.ATTEMPT_NUMBER: self._number,
        }
        self._give_verdict(attempt, verdict)
        if verdict == names.UNSCHEDULABLE:
            self._n_failed_attempts += 1
            if self._n_failed_attempts > names.MAX_FAILED_TOLD:
                self._n_unwritten += 1
                self._buffer.clear()
                return
        self._previous_id = attempt.span_id
        self._buffer.append(self.maker.end(attempt, now_ns, parent_id=self.maker.root_id))
        self._flush()

    def _end_root(self, now_ns: int, verdict: str) -> None:
        self._flush()
        group, root = self.group, self.root
        root.attributes |= of_gang(group)
        self._give_verdict(root, verdict)
        if self._n_unwritten:
            root.attributes[names.ATTEMPTS_UNTOLD] = self._n_unwritten
        self.out([self.maker.end(root, now_ns, parent_id=None)])

    def _give_verdict(self, span: OpenSpan, verdict: str) -> None:
        span.attributes[names.VERDICT] = verdict
        if verdict in _GOOD:
            return
        if self._message:
            span.attributes.setdefault(names.REASON, self._message)
        else:
            self._unreasoned.append(span.attributes)

    def _emit(self, span: OpenSpan, now_ns: int, *, parent_id: int | None = None) -> None:
        if parent_id is None:
            parent_id = self._attempt.span_id if self._attempt is not None else self.maker.root_id
        self._buffer.append(self.maker.end(span, now_ns, parent_id=parent_id))
        if self._attempt is None:
            self._flush()

    def _flush(self) -> None:
        """Export an attempt's spans together, when it ends or begins to wait in Permit.

        So a process that dies while binding leaves no spans without their parent.
        """
        if self._buffer:
            self.out(self._buffer)
            self._buffer = []

"""GangTracer: makes traces from the core's events, effects and Observer calls.

Lives here: which group has which trace, the clock, the submitters' links, the traceparent that goes into
every Binding. Not here: the content of a span (telemetry.gang_trace), where spans go
(telemetry.sending.export). Called by process.app from the one loop: `note_events` before the core handles a
batch of events, `turn_ended` with the effects of every turn; and by the core, as its Observer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link

from gangsched import __version__
from gangsched.config.tracing import KeepTraces
from gangsched.core.framework.interface import Code
from gangsched.core.types.group import Group, GroupState, MemberState, PodInfo
from gangsched.core.types.states import NOT_QUEUED
from gangsched.model.effects import BindPod, Effect
from gangsched.model.events import (
    BindCancelled,
    BindFailed,
    BindSucceeded,
    BindUnknown,
    ClaimPatched,
    Event,
    PodGroupAdded,
    PodGroupDeleted,
    PodGroupUpdated,
)
from gangsched.model.pod_group import GroupKey
from gangsched.telemetry import names
from gangsched.telemetry.gang_trace import GangTrace, Point
from gangsched.telemetry.spans import SpanMaker
from gangsched.telemetry.tail import TailSampling
from gangsched.telemetry.traceparent import of_bound_members, parse, written

_log = structlog.get_logger(__name__)

_RESTING = (GroupState.GATHERING, GroupState.GATED)


class GangTracer:
    """One scheduler's traces. `emit` gets each ended span and must not block."""

    def __init__(
        self,
        emit: Callable[[ReadableSpan], None],
        *,
        resource: Resource,
        ratio: float = 1.0,
        keep: KeepTraces | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
        ids: IdGenerator | None = None,
        logs: bool = True,
    ) -> None:
        """Traces the `ratio` of gangs, chosen by trace id, and those that match `keep`; clock_ns never goes
        back. logs: whether failed attempts are logged with their trace's ids.
        """
        self._emit = emit
        self._resource = resource
        self._sampler = TraceIdRatioBased(ratio)
        self._clock = clock_ns
        self._wall = wall_ns
        self._ids = ids or RandomIdGenerator()
        self._logs = logs
        self._scope = InstrumentationScope(names.SCOPE, __version__)
        self._traces: dict[GroupKey, GangTrace] = {}
        self._unsampled: dict[GroupKey, str] = {}
        """The traceparent of each untraced group, so that readers do not begin a trace either."""
        self._over: set[GroupKey] = set()
        """Groups that exist and have had a trace end in this process: what they do next is in another."""
        self._objects: dict[GroupKey, str] = {}
        """The submitters' traces named in PodGroup objects."""
        self._of_member: dict[str, tuple[GangTrace | None, str]] = {}
        """Trace and traceparent of each member of a binding group, by UID."""
        self._binding: dict[GroupKey, list[str]] = {}
        self._to_gather: dict[GroupKey, tuple[Group, int]] = {}
        self._touched: dict[GroupKey, GangTrace] = {}
        self._points: dict[str, Point] = {}
        self._ended: list[ReadableSpan] = []
        self.tail = None if keep is None or not keep.is_on else TailSampling(keep, self._ended.extend)
        self._takers: dict[type, Callable[..., None]] = {
            BindSucceeded: lambda e: self._answered(e, "bound", ""),
            BindFailed: lambda e: self._answered(e, "failed", f"{e.code} {e.message}"),
            BindUnknown: lambda e: self._answered(e, "unknown", e.message),
            BindCancelled: lambda e: self._answered(e, "cancelled", ""),
            ClaimPatched: self._claimed,
            PodGroupAdded: self._put_object,
            PodGroupUpdated: self._put_object,
            PodGroupDeleted: self._remove_object,
        }

    # -- from the loop ---------------------------------------------------------------------------------

    def note_events(self, events: Sequence[Event]) -> None:
        """Takes in events before the core does: answers to binds, and objects that name a trace."""
        for event in events:
            take = self._takers.get(type(event))
            if take is not None:
                take(event)

    def turn_ended(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        """Returns the turn's effects, with our traceparent in every Binding; sends ended spans."""
        for group, since_ns in list(self._to_gather.values()):
            if group.state in _RESTING:
                self._enter(group, since_ns)
        self._to_gather.clear()
        for trace in self._touched.values():
            trace.turn_ended()
        self._touched.clear()
        for span in self._ended:
            if self._logs:
                _say(span)
            self._emit(span)
        self._ended.clear()
        if any(isinstance(effect, BindPod) for effect in effects):
            return [self._stamped(effect) if isinstance(effect, BindPod) else effect for effect in effects]
        return effects

    def trace_id_of(self, key: GroupKey) -> str:
        """Returns the group's current trace as 32 hexadecimal digits; "" if it is not traced, or not yet
        known to be.
        """
        trace = self._traces.get(key)
        if trace is None or (self.tail is not None and self.tail.holds(trace)):
            return ""
        return _ids_of(trace.maker)[0]

    def stop(self) -> None:
        """Ends open spans, before the exporters are closed."""
        now_ns = self._clock()
        for trace in list(self._traces.values()):
            trace.stop(now_ns)
        self._traces.clear()
        self.turn_ended(())
        if self.tail is not None:
            self.tail.clear()

    # -- from the core ---------------------------------------------------------------------------------

    def moved(self, group: Group, before: GroupState) -> None:
        now_ns = self._clock()
        if group.state in _RESTING:
            # The core passes through gathering on the way to other states; only the state at the end of a
            # turn counts.
            self._to_gather.setdefault(group.key, (group, now_ns))
        else:
            self._to_gather.pop(group.key, None)
            self._enter(group, now_ns)

    def attempt_began(self, unit: Sequence[Group]) -> None:
        now_ns = self._clock()
        self._points = {}
        traces = [trace for group in unit if (trace := self._trace_of(group, now_ns)) is not None]
        for trace in traces:
            self._look_for_submitters(trace)
            trace.attempt_began(now_ns, traces)

    def point_began(self, point: str) -> None:
        now_ns = self._clock()
        known = self._points.get(point)
        if known is None:
            self._points[point] = Point(now_ns)
        else:
            known.since_ns = now_ns

    def point_ended(self, point: str, code: Code) -> None:
        known = self._points[point]
        known.took_ns += self._clock() - known.since_ns
        known.n_calls += 1
        known.code = code

    def gave_back(self, group: Group, n_members: int, why: str) -> None:
        trace = self._traces.get(group.key)
        if trace is not None:
            self._touched[group.key] = trace
            trace.gave_back(n_members, why, self._clock())

    def preempted(self, unit: Sequence[Group], victims: Sequence[PodInfo]) -> None:
        for group in unit:
            trace = self._traces.get(group.key)
            if trace is not None:
                trace.preempted(victims, self._clock())

    def reported(self, group: Group, message: str) -> None:
        trace = self._traces.get(group.key)
        if trace is not None:
            self._touched[group.key] = trace
            trace.add_message(message)

    # -- traces ----------------------------------------------------------------------------------------

    def _enter(self, group: Group, now_ns: int) -> None:
        trace = self._trace_of(group, now_ns)
        for uid in self._binding.pop(group.key, ()):
            self._of_member.pop(uid, None)
        if trace is not None:
            self._touched[group.key] = trace
            if not trace.enter(group.state, now_ns, self._points):
                del self._traces[group.key]
                self._over.add(group.key)
        if group.state is GroupState.DELETED:
            self._over.discard(group.key)
        if group.state in NOT_QUEUED:
            self._unsampled.pop(group.key, None)
        elif group.state is GroupState.BINDING:
            traceparent = self._unsampled[group.key] if trace is None else trace.traceparent
            uids = [info.uid for info in group.in_state(MemberState.ASSUMED)]
            self._binding[group.key] = uids
            self._of_member.update(dict.fromkeys(uids, (trace, traceparent)))

    def _trace_of(self, group: Group, now_ns: int) -> GangTrace | None:
        """Returns the group's trace, starting one if needed; None if untraced, or if its trace has ended."""
        trace = self._traces.get(group.key)
        if trace is not None or group.key in self._unsampled or group.state in NOT_QUEUED:
            return trace
        before = of_bound_members(group)
        goes_on = before is not None and not group.has_started and group.key not in self._over
        if before is not None and goes_on:
            trace_id, root_id = before.trace_id, before.span_id
            sampled = before.trace_flags.sampled
        else:
            trace_id, root_id = self._ids.generate_trace_id(), self._ids.generate_span_id()
            decision = self._sampler.should_sample(None, trace_id, names.GANG).decision
            sampled = decision is Decision.RECORD_AND_SAMPLE
        if not sampled and self.tail is None:
            self._unsampled[group.key] = written(trace_id, root_id, sampled=False)
            return None
        maker = SpanMaker(trace_id, root_id, self._wall() - now_ns, self._resource, self._scope)
        trace = GangTrace(group, maker, self._ids, self._ended.extend, now_ns, sampled=sampled)
        if not sampled and self.tail is not None:
            self.tail.begin(trace)
        self._traces[group.key] = trace
        if before is not None and goes_on:
            trace.root.attributes[names.CONTINUED] = True
            trace.root.began_ns = min(now_ns, _created_ns(group, now_ns, maker))
        elif before is not None:
            trace.root.links.append(Link(before, {names.LINK: "earlier"}))
        self._look_for_submitters(trace)
        return trace

    def _look_for_submitters(self, trace: GangTrace) -> None:
        """Links the traces that the gang's submitters name; reports an invalid one once."""
        group = trace.group
        texts = [self._objects.get(group.key)]
        for i, info in enumerate(group.members.values()):
            if i >= names.MAX_LOOKED_AT:
                break
            annotations = info.pod.metadata.annotations
            if annotations is not None:
                texts.append(annotations.get(names.SUBMITTERS_KEY))
        for text in texts:
            if text is None or text in trace.seen_links or len(trace.seen_links) >= names.MAX_LINKS:
                continue
            trace.seen_links.add(text)
            context = parse(text)
            if context is not None:
                trace.root.links.append(Link(context, {names.LINK: "submitter"}))
            elif self._logs:
                trace_id, span_id = _ids_of(trace.maker)
                _log.warning(
                    f"annotation {names.SUBMITTERS_KEY} is not a W3C traceparent, ignored",
                    gang=str(group.key),
                    value=text[:80],
                    trace_id=trace_id,
                    span_id=span_id,
                )

    # -- events and effects ----------------------------------------------------------------------------

    def _answered(
        self, event: BindSucceeded | BindFailed | BindUnknown | BindCancelled, outcome: str, message: str
    ) -> None:
        trace, _ = self._of_member.get(event.uid, (None, ""))
        if trace is not None:
            trace.answered(event.uid, outcome, message, self._clock())

    def _claimed(self, event: ClaimPatched) -> None:
        """A resource claim was written: tells the gangs for whose members it is reserved now."""
        users = (self._of_member.get(one.uid) for one in event.claim.status.reserved_for or ())
        traces = {id(trace): trace for trace, _ in filter(None, users) if trace is not None}
        for trace in traces.values():
            trace.claimed(event.claim, self._clock())

    def _put_object(self, event: PodGroupAdded | PodGroupUpdated) -> None:
        meta = event.item.metadata
        key = GroupKey(event.dialect, meta.namespace, meta.name)
        text = (meta.annotations or {}).get(names.SUBMITTERS_KEY)
        if text is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = text

    def _remove_object(self, event: PodGroupDeleted) -> None:
        meta = event.item.metadata
        self._objects.pop(GroupKey(event.dialect, meta.namespace, meta.name), None)

    def _stamped(self, effect: BindPod) -> BindPod:
        _, traceparent = self._of_member.get(effect.uid, (None, ""))
        if not traceparent:
            return effect
        annotations = {**effect.annotations, names.TRACEPARENT_KEY: traceparent}
        return msgspec.structs.replace(effect, annotations=annotations)


def _say(span: ReadableSpan) -> None:
    """Logs the trace's ids for rare events; for all events only with -v=4."""
    attributes = span.attributes or {}
    verdict = attributes.get(names.VERDICT)
    if span.name != names.ATTEMPT or verdict not in names.TOLD_IN_LOG:
        return
    say = _log.info if verdict in names.TROUBLE else _log.debug
    assert span.context is not None
    say(
        "attempt ended",
        gang=attributes[names.GROUP],
        attempt=attributes[names.ATTEMPT_NUMBER],
        verdict=verdict,
        reason=attributes.get(names.REASON, ""),
        trace_id=f"{span.context.trace_id:032x}",
        span_id=f"{span.context.span_id:016x}",
    )


def _ids_of(maker: SpanMaker) -> tuple[str, str]:
    return f"{maker.trace_id:032x}", f"{maker.root_id:016x}"


def _created_ns(group: Group, now_ns: int, maker: SpanMaker) -> int:
    """Returns when the gang's first member was created, on our clock: about when a first process saw it."""
    created = [
        t.timestamp() for info in group.members.values() if (t := info.pod.metadata.creation_timestamp)
    ]
    return int(min(created) * 1e9) - maker.offset_ns if created else now_ns

"""Measures: counts and times taken while the scheduler works, as cheaply as possible.

Lives here: plain numbers, by the labels they will have. Not here: their names and formats (page.py), and
values that can be read on demand (queue lengths, cache sizes). Updated by the core as its Observer and by the
app; exists only if a port is configured. No Prometheus here: a client library's histogram takes a lock and a
walk over the buckets for each pod. Here it is a bisection and an addition, once for n equal values.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, repeat
from operator import mul
from typing import TypeVar

from gangsched.core.framework.interface import Code
from gangsched.core.types.group import Group, GroupState, MemberState, PodInfo
from gangsched.model.events import BindFailed, BindSucceeded, Event, PodRead
from gangsched.model.pod_group import GroupKey

KeyT = TypeVar("KeyT")

SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
# An attempt's result, by the state that its group enters; an attempt that waits in Permit is not over.
_VERDICTS = {
    GroupState.BINDING: SCHEDULED,
    GroupState.UNSCHEDULABLE: UNSCHEDULABLE,
    GroupState.BACKOFF: UNSCHEDULABLE,
    GroupState.WAITING: "",
}
# kube-scheduler's names of its queues; "incomplete" since 1.37.
_QUEUES = {
    GroupState.ACTIVE: "active",
    GroupState.BACKOFF: "backoff",
    GroupState.UNSCHEDULABLE: "unschedulable",
    GroupState.GATED: "gated",
    GroupState.GATHERING: "incomplete",
}
_TRIED = (GroupState.ACTIVE, GroupState.WAITING, GroupState.BINDING, GroupState.UNWINDING)
_TIMEOUTS = {GroupState.BACKOFF: "BackoffComplete", GroupState.UNSCHEDULABLE: "UnschedulableTimeout"}
_ANSWERS = (BindSucceeded, BindFailed, PodRead)
# The values of framework.Code.
_PERMITTED, _NOT_PERMITTED = "Success", "Unschedulable"
# kube-scheduler's getAttemptsLabel: more than this is one label value.
MAX_ATTEMPTS = 15
# kube-scheduler times the plugins of one pod in ten (pluginMetricsSamplePercent).
_SAMPLED_ATTEMPTS = 10
# Limit on fully bound groups whose last answers may still come.
MAX_DONE = 2048


def exponential(start: float, factor: float, n: int) -> tuple[float, ...]:
    """Upper bounds of n buckets, as client_golang's ExponentialBuckets, to the last bit."""
    return tuple(accumulate(repeat(factor, n - 1), mul, initial=start))


# Source: kubernetes `pkg/scheduler/metrics/metrics.go`, InitMetrics.
ATTEMPT_S = exponential(0.001, 2, 15)
SLI_S = exponential(0.01, 2, 20)
POINT_S = exponential(0.0001, 2, 12)
PLUGIN_S = exponential(0.00001, 1.5, 20)
ATTEMPTS = exponential(1, 2, 5)
VICTIMS = exponential(1, 2, 7)
LAG_S = exponential(0.001, 2, 14)


class Distribution:
    """A histogram. `counts` are by bucket, not cumulative; the last one is above all bounds.

    exemplars: by bucket, the last value with a trace, and that trace's ID.
    """

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.exemplars: dict[int, tuple[str, float]] = {}

    @property
    def n(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def observe(self, value: float, n: int = 1, *, trace_id: str = "") -> None:
        """Record the same value `n` times."""
        bucket = bisect_left(self.bounds, value)
        self.counts[bucket] += n
        self.total += value * n
        if trace_id:
            self.exemplars[bucket] = trace_id, value


class _Tries:
    """Start of a group's first attempt and of its current one. Monotonic seconds."""

    __slots__ = ("attempt_s", "first_s", "held_s", "is_open", "is_over", "n_held", "n_tries", "trace_id")

    def __init__(self, first_s: float) -> None:
        self.first_s = first_s
        self.attempt_s = first_s
        self.n_tries = 1
        self.is_open = False
        self.is_over = False
        self.held_s = 0.0
        self.n_held = 0
        self.trace_id = ""


class Measures:
    """The core's Observer that counts.

    Label values are profiles, points and results: bounded by the code and the configuration, never by user
    input.
    """

    def __init__(
        self,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        trace_id_of: Callable[[GroupKey], str] | None = None,
    ) -> None:
        """`trace_id_of`: returns a group's current trace, "" if none; it becomes the exemplar."""
        self._clock_s = clock_s
        self._trace_id_of = trace_id_of
        self._plugin_failed = False
        self._tries: dict[GroupKey, _Tries] = {}
        self._done: deque[GroupKey] = deque()
        self._timed: dict[GroupKey, str] = {}
        self._n_pods = 1
        self._profile = ""
        self._point_s = 0.0
        self.attempts: dict[tuple[str, str], Distribution] = {}
        """(result, profile): one value a pod, from the start of the attempt to its end or its bind."""
        self.group_attempts: dict[tuple[str, str], Distribution] = {}
        self.algorithm = Distribution(ATTEMPT_S)
        self.group_algorithm = Distribution(ATTEMPT_S)
        self.pod_attempts = Distribution(ATTEMPTS)
        self.sli: dict[str, Distribution] = {}
        self.permit_wait: dict[str, Distribution] = {}
        self.points: dict[tuple[str, str, str], Distribution] = {}
        self.plugins: dict[tuple[str, str, str], Distribution] = {}
        """(plugin, point, status), for one attempt in _SAMPLED_ATTEMPTS: one value a call; a plugin called
        per node gets one value for roughly all its nodes.
        """
        self.evaluations: dict[tuple[str, str, str], int] = {}
        """(plugin, point, profile)."""
        self._n_attempts = 0
        self._samples = False
        self._plugin_s = 0.0
        self.incoming: dict[tuple[str, str], int] = {}
        """(queue, event): pods."""
        self.n_preemption_attempts = 0
        self.victims = Distribution(VICTIMS)
        """One value for each unit that waits for victims."""
        self.lag = Distribution(LAG_S)

    @property
    def n_attempts(self) -> int:
        """Attempts begun, of gangs and of lone pods."""
        return self._n_attempts

    # -- the core's turns ------------------------------------------------------------------------------

    def attempt_began(self, unit: Sequence[Group]) -> None:
        now_s = self._clock_s()
        self._plugin_failed = False
        self._samples = self._n_attempts % _SAMPLED_ATTEMPTS == 0
        self._n_attempts += 1
        self._profile = unit[0].scheduler_name
        self._n_pods = sum(group.n_pending + group.n_assumed for group in unit)
        for group in unit:
            tries = self._tries.get(group.key)
            if tries is None or tries.is_over:
                first_s = group.first_complete_s
                # Groups found at the start are older than this clock; a late member of a running gang does
                # not share the gang's age.
                known = 0.0 < first_s <= now_s and not group.has_started
                tries = self._tries[group.key] = _Tries(first_s if known else now_s)
            tries.attempt_s = now_s
            tries.n_tries = group.failure + 1
            tries.is_open = True

    def moved(self, group: Group, before: GroupState) -> None:
        state = group.state
        if state is GroupState.DELETED:
            self._tries.pop(group.key, None)
            self._timed.pop(group.key, None)
            return
        tries = self._tries.get(group.key)
        if tries is not None:
            if tries.is_open and state in _VERDICTS:
                self._decided(group, tries, _VERDICTS[state])
            if before is GroupState.WAITING or state is GroupState.WAITING:
                self._waited(group, tries, before)
            if state is GroupState.BOUND and not tries.is_over:
                self._over(group.key, tries)
        queue = _QUEUES.get(state)
        if queue is not None and state is not before and before is not GroupState.ASKING:
            self._came_in(group, queue, before)

    def _decided(self, group: Group, tries: _Tries, result: str) -> None:
        tries.is_open = False
        if self._trace_id_of is not None:
            tries.trace_id = self._trace_id_of(group.key)
        lasted_s = self._clock_s() - tries.attempt_s
        n = group.n_pending + group.n_assumed
        if result == UNSCHEDULABLE and self._plugin_failed:
            result = ERROR
        # Groups that start together are one decision, whose time is divided among the pods.
        self.algorithm.observe(lasted_s / max(self._n_pods, 1), n)
        if group.is_gang:
            self.group_algorithm.observe(lasted_s)
            if result:
                of_result = _of(self.group_attempts, (result, group.scheduler_name), ATTEMPT_S)
                of_result.observe(lasted_s, trace_id=tries.trace_id)
        if result in (UNSCHEDULABLE, ERROR):
            _of(self.attempts, (result, group.scheduler_name), ATTEMPT_S).observe(lasted_s, n)

    def _waited(self, group: Group, tries: _Tries, before: GroupState) -> None:
        if before is not GroupState.WAITING:
            tries.held_s = self._clock_s()
        if group.state is GroupState.WAITING:
            tries.n_held = group.n_assumed
        else:
            result = _PERMITTED if group.state is GroupState.BINDING else _NOT_PERMITTED
            _of(self.permit_wait, result, ATTEMPT_S).observe(self._clock_s() - tries.held_s, tries.n_held)

    def _over(self, key: GroupKey, tries: _Tries) -> None:
        """The group is fully bound; answers to its binds may come later, if the watch was faster."""
        tries.is_over = True
        self._done.append(key)
        if len(self._done) > MAX_DONE:
            oldest = self._tries.get(key := self._done.popleft())
            if oldest is not None and oldest.is_over:
                del self._tries[key]

    def _came_in(self, group: Group, queue: str, before: GroupState) -> None:
        """Counts a group's pods into a queue, with kube-scheduler's event names."""
        if group.state is GroupState.GATHERING and before in _TIMEOUTS:
            self._timed[group.key] = _TIMEOUTS[before]  # passing through a queue only
            return
        event = self._timed.pop(group.key, "")
        if not event:
            if before in _TRIED:
                event = "ScheduleAttemptFailure"
            elif before in _TIMEOUTS:
                event = "ForceActivate" if before is GroupState.BACKOFF else "ClusterEvent"
            else:
                event = "UnscheduledPodAdd"
        n = group.counts[MemberState.GATED] if group.state is GroupState.GATED else group.n_pending
        self.incoming[queue, event] = self.incoming.get((queue, event), 0) + n

    def point_began(self, point: str) -> None:
        self._point_s = self._clock_s()

    def point_ended(self, point: str, code: Code) -> None:
        _of(self.points, (point, code.value, self._profile), POINT_S).observe(self._clock_s() - self._point_s)
        if code is Code.ERROR:
            self._plugin_failed = True
        if point == "PostFilter":
            self.n_preemption_attempts += 1

    def plugin_began(self) -> None:
        if self._samples:
            self._plugin_s = self._clock_s()

    def plugin_ended(self, plugin: str, point: str, code: Code) -> None:
        key = (plugin, point, self._profile)
        self.evaluations[key] = self.evaluations.get(key, 0) + 1
        if self._samples:
            lasted_s = self._clock_s() - self._plugin_s
            _of(self.plugins, (plugin, point, code.value), PLUGIN_S).observe(lasted_s)

    def gave_back(self, group: Group, n_members: int, why: str) -> None:
        """The group's next move reports it too."""

    def preempted(self, unit: Sequence[Group], victims: Sequence[PodInfo]) -> None:
        self.victims.observe(len(victims))

    def reported(self, group: Group, message: str) -> None:
        """Messages are not counted."""

    # -- answers to binds ------------------------------------------------------------------------------

    def count_answers(self, events: Sequence[Event], pods: Mapping[str, PodInfo]) -> None:
        """Called after the core has handled them. A pod is scheduled when its bind is answered."""
        now_s = self._clock_s()
        group: Group | None = None
        tries: _Tries | None = None
        for event in events:
            if not isinstance(event, _ANSWERS):
                continue
            info = pods.get(event.uid)
            if info is None or info.group is None:
                continue
            if info.group is not group:  # a gang's answers come together
                group = info.group
                tries = self._tries.get(group.key)
            if tries is None:
                continue
            if isinstance(event, BindFailed):
                key = (ERROR, group.scheduler_name)
                _of(self.attempts, key, ATTEMPT_S).observe(now_s - tries.attempt_s)
            elif isinstance(event, BindSucceeded) or _is_bound(event):
                self._bound(group, tries, now_s)

    def _bound(self, group: Group, tries: _Tries, now_s: float) -> None:
        _of(self.attempts, (SCHEDULED, group.scheduler_name), ATTEMPT_S).observe(now_s - tries.attempt_s)
        self.pod_attempts.observe(tries.n_tries)
        label = str(tries.n_tries) if tries.n_tries < MAX_ATTEMPTS else f"{MAX_ATTEMPTS}+"
        _of(self.sli, label, SLI_S).observe(now_s - tries.first_s, trace_id=tries.trace_id)


def _is_bound(event: PodRead) -> bool:
    return event.pod is not None and bool(event.pod.spec.node_name)


def _of(kept: dict[KeyT, Distribution], key: KeyT, bounds: tuple[float, ...]) -> Distribution:
    found = kept.get(key)
    if found is None:
        found = kept[key] = Distribution(bounds)
    return found

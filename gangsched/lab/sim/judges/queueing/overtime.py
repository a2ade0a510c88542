"""Overtime: checks that evictions for the walltime are due and whole, and come in time (`onOverrun: evict`).

Made by lab.sim.judges.step_judges for one process. Walltimes are read from the pods given to it
(lab.sim.workloads.walltimes); starts from the binds that it sent, else from what kubelet and the server
wrote. From the scheduler come only the ends that claims rest on: those cannot be put off. Called by
lab.sim.judges.step_judges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import OURS, at
from gangsched.lab.sim.reading.documents import Gang, gang_of, least, stated_s
from gangsched.lab.sim.reading.received import Received, are_alike
from gangsched.model import effects as ef
from gangsched.model.objects import Pod

_SPARED_S = 30.0
# To start a turn, and to receive the deletion.
_SLACK_S = 15.0
# An eviction that was refused in bad weather is retried by then.
_AGAIN_S = 60.0


class Overtime:
    """walltime-evictions: a gang evicted for its walltime was past it, and goes whole. walltime-in-time: in
    calm weather it goes in time."""

    def __init__(self) -> None:
        self._bound_s: dict[str, float] = {}
        self._last: dict[str, ef.BindPod] = {}
        self._seen_s: dict[str, float] = {}
        """By UID: when this process first received it as bound."""
        self._rests_s: dict[str, float] = {}
        """By UID: the end that a claim has rested on since it was made."""
        self._asked: set[str] = set()
        """UIDs of pods whose eviction this process has asked for."""
        self._causes: set[str] = set()
        """Cause IDs of evictions that were reported as being for the walltime."""

    def check(
        self, scheduler: Scheduler, effects: Iterable[ef.Effect], received: Received, now_s: float
    ) -> Iterator[str]:
        """After every step."""
        effects = [*effects]
        for uid, pod in received.pods.items():
            if pod.spec.node_name:
                self._seen_s.setdefault(uid, now_s)
        new = {cause_id for one in effects if (cause_id := _cause_of_overrun(one))} - self._causes
        self._causes |= new
        by_cause: dict[str, list[str]] = {}
        """UIDs by new cause ID: an end that is put off while members already go comes too late."""
        for one in effects:
            if isinstance(one, ef.BindPod):
                before, self._last[one.uid] = self._last.get(one.uid), one
                if before is None or not are_alike(before, one):
                    self._bound_s[one.uid] = now_s
            elif isinstance(one, ef.EvictPod):
                self._asked.add(one.uid)
                if one.cause_id in new:
                    by_cause.setdefault(one.cause_id, []).append(one.uid)
        for cause_id, uids in by_cause.items():
            yield from self._was_over(cause_id, uids, received, now_s)
        self._rest(scheduler)

    def _was_over(
        self, cause_id: str, uids: Sequence[str], received: Received, now_s: float
    ) -> Iterator[str]:
        for uid in uids:
            pod = received.pods.get(uid)
            if pod is None:
                continue
            mates = _running(pod, received)
            end_s = max((self._end_s(one, stated_s(one)) for one in mates), default=-math.inf)
            if now_s < end_s:
                yield (
                    f"walltime-evictions: {pod.key} is evicted for its walltime at {now_s:g}, "
                    f"which is over at {end_s:g}"
                )
            if left := [one.key for one in mates if one.metadata.uid not in uids]:
                yield (
                    f"walltime-evictions: {pod.key} is evicted for its walltime ({cause_id}), "
                    f"and of its gang {left} stay"
                )

    def not_gone(self, received: Received, now_s: float, calm_since_s: float) -> Iterator[str]:
        """walltime-in-time: in calm weather, between turns; only for the profile that is never removed."""
        seen: set[Gang] = set()
        for pod in received.pods.values():
            gang = gang_of(pod)
            is_ours = pod.spec.scheduler_name == OURS
            if gang is None or gang in seen or not pod.spec.node_name or not is_ours:
                continue
            seen.add(gang)
            mates = _running(pod, received)
            if not mates or not _is_whole(gang, pod, mates, received):
                continue
            longest_s = max(map(stated_s, mates))
            due_s = max(self._end_s(one, longest_s) for one in mates) + _SPARED_S
            is_asked = any(one.metadata.uid in self._asked for one in mates)
            again_s = _AGAIN_S if is_asked and due_s < calm_since_s else 0.0
            if now_s > max(due_s, calm_since_s) + again_s + _SLACK_S:
                yield (
                    f"walltime-in-time: {gang} was due to be evicted at {due_s:g}, and "
                    f"{mates[0].key} runs at {now_s:g}"
                )

    def _end_s(self, pod: Pod, walltime_s: float) -> float:
        return min(self._began_s(pod) + walltime_s, self._rests_s.get(pod.metadata.uid, math.inf))

    def _began_s(self, pod: Pod) -> float:
        bound_s = self._bound_s.get(pod.metadata.uid)
        if bound_s is not None:
            return bound_s
        times = [pod.status.start_time] + [
            one.last_transition_time for one in pod.status.conditions or () if one.type == "PodScheduled"
        ]
        began = next((one for one in times if one is not None), None)
        if began is None:
            return math.inf
        # The server's clock may be ahead of ours, and no pod is seen before it has begun.
        return min((began - at(0.0)).total_seconds(), self._seen_s.get(pod.metadata.uid, math.inf))

    def _rest(self, scheduler: Scheduler) -> None:
        claims, before, self._rests_s = scheduler.shared.claims, self._rests_s, {}
        for claim in claims.all if claims is not None else ():
            for one in claim.blockers:
                if one.is_known:
                    self._rests_s[one.uid] = min(before.get(one.uid, math.inf), one.end_s)


def _cause_of_overrun(effect: ef.Effect) -> str:
    if isinstance(effect, ef.RecordEvent) and effect.reason == "OverrunEviction":
        return effect.cause_id
    return ""


def _running(pod: Pod, received: Received) -> list[Pod]:
    """Bound members of its gang that have not ended and are not being deleted."""
    gang = gang_of(pod)
    return [
        other
        for other in received.pods.values()
        if other.spec.node_name
        and not other.is_terminal
        and other.metadata.deletion_timestamp is None
        and gang_of(other) == gang
    ]


def _is_whole(gang: Gang, pod: Pod, mates: Sequence[Pod], received: Received) -> bool:
    """Whether all of its members are bound, and enough of them run."""
    n = least(gang, pod, received.groups.get(gang))
    others = [one for one in received.pods.values() if gang_of(one) == gang and not one.spec.node_name]
    return n is not None and len(mates) >= n and not others

"""Limits: whether queues with limits keep to them, and no group is passed at a limit without end.

lab.sim.workloads.queues.limited defines the queues. Called by lab.sim.judges.step_judges.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import OURS, at
from gangsched.lab.sim.reading.documents import TOTAL_KEY, gang_of, least
from gangsched.lab.sim.reading.received import STARTED_IN_KEY, Received, are_alike
from gangsched.lab.sim.workloads.queues.guaranteed import gpus_of, queue_of
from gangsched.lab.sim.workloads.queues.limited import LIMITS, PATHS
from gangsched.model import effects as ef
from gangsched.model.objects import Pod


class Limits:
    """limits-kept: no queue takes more than its limit, and no group is passed at a limit without end.

    Counts the events given to the process and the binds that it sent. Pods that complete a gang that runs in
    part may exceed the limit. A group that its limit has no room for is passed when a later group of the same
    queue starts. For want of nodes it may have been passed as often as its bound before, so only more than
    twice the bound is a violation.
    """

    def __init__(self) -> None:
        self._sent: dict[str, ef.BindPod] = {}
        self._first_s: dict[str, float] = {}
        """By group: when all the pods that it needs first existed."""
        self._waits_s: dict[str, float] = {}
        """By group that has waited without a break: since when."""
        self._passes = Counter[str]()
        self._most: float = math.inf

    def begin(self, bound: int | None) -> None:
        """Judges by this bound from now on, forgetting earlier passes. None: the bound is unknown, no pass is
        judged."""
        self._passes.clear()
        self._most = math.inf if bound is None else 2 * max(bound, 2)

    def check(
        self, effects: Iterable[ef.Effect], received: Received, now_s: float, reserved: Collection[str] = ()
    ) -> Iterator[str]:
        """Checks a step, before its binds are counted as sent.

        reserved: UIDs of pods that were placed before it. While they waited for a plugin or a volume, foreign
        pods or a reload may have filled their queue; they keep what they have.
        """
        starting = [
            received.pods[one.uid]
            for one in effects
            if isinstance(one, ef.BindPod) and self._is_another(one) and one.uid in received.pods
        ]
        waiting = _waiting(received)
        self._waits_s = {name: self._waits_s.get(name, now_s) for name in waiting}
        for name, pods in waiting.items():
            self._first_s.setdefault(name, min(now_s, _made_by_s(pods)))
        used = _used(received, self._sent)
        # A group that fits its limits lacks nodes: meanwhile other groups may use the limit.
        self._passes = Counter(
            {name: n for name, n in self._passes.items() if _is_over(waiting.get(name, ()), used)}
        )
        if not starting or any(_completes(pod, starting, received, self._sent) for pod in starting):
            return
        yield from self._passed(starting, waiting, used)
        starting = [pod for pod in starting if gpus_of(pod) and pod.metadata.uid not in reserved]
        for pod in starting:
            for name in PATHS[queue_of(pod)]:
                used[name] += gpus_of(pod)
        for name in sorted({name for pod in starting for name in PATHS[queue_of(pod)]}):
            if used[name] > LIMITS[name]:
                names = " and ".join(pod.metadata.name for pod in starting)
                yield f"limits-kept: with {names} queue {name} holds {used[name]} of {LIMITS[name]}"

    def keeps_out(self, needed: Sequence[Pod], scheduler: Scheduler, received: Received) -> bool:
        """Whether these pods may have to wait for a limit, beside what is used and what is kept for other
        groups."""
        used, own = _used(received, self._sent), {pod.metadata.uid for pod in needed}
        for info in scheduler.shared.cache.pods.values():
            if received.is_held_unshown(info):
                _count(used, info.pod, _sent_in(self._sent.get(info.uid)))
        claims = scheduler.shared.claims
        kept = {uid: one.info.pod for uid, one in scheduler.shared.cache.nominated.items()}
        for claim in claims.all if claims else ():
            kept |= {one.info.uid: one.info.pod for one in claim.held}
        for group in scheduler.shared.groups.values():
            known = scheduler.attempts.kept.limits.kept_out(group)
            if known is not None and known.is_at_bound:
                kept |= {info.uid: info.pod for info in group.members.values() if not info.node_name}
        for pod in [*needed, *(pod for uid, pod in kept.items() if uid not in own)]:
            _count(used, pod)
        return any(used[name] > LIMITS[name] for pod in needed for name in PATHS[queue_of(pod)])

    def _is_another(self, bind: ef.BindPod) -> bool:
        """Whether the bind gives the pod another place: a bind that is sent again is no start."""
        before, self._sent[bind.uid] = self._sent.get(bind.uid), bind
        return before is None or not are_alike(before, bind)

    def _passed(
        self, starting: Sequence[Pod], waiting: Mapping[str, Sequence[Pod]], used: Mapping[str, int]
    ) -> Iterator[str]:
        asks = {name: (queue_of(pods[0]), sum(map(gpus_of, pods))) for name, pods in waiting.items()}
        begin = dict.fromkeys(_name(pod) for pod in starting)
        for name, (queue, n) in asks.items():
            limits = [one for one in PATHS[queue] if used[one] + n > LIMITS[one] >= n]
            if name in begin or not limits or any(n > LIMITS[one] for one in PATHS[queue]):
                continue
            for other in begin:
                if other in asks and asks[other][0] == queue and self._first_s[other] > self._waits_s[name]:
                    self._passes[name] += 1
            if self._passes[name] > self._most:
                yield (
                    f"limits-kept: {self._passes[name]} have passed {name} at the limit of queue {limits[0]}"
                )


def _waiting(received: Received) -> dict[str, list[Pod]]:
    """By group: the pods that must start together, if they exist, agree on their number, and none of the
    group has started."""
    found: dict[str, list[Pod]] = {}
    started: set[str] = set()
    for uid, pod in received.pods.items():
        if pod.spec.scheduler_name != OURS:
            continue
        if uid in received.promised.by_uid or pod.spec.node_name:
            started.add(_name(pod))
        elif pod.metadata.deletion_timestamp is None:
            found.setdefault(_name(pod), []).append(pod)
    return {
        name: pods[:n]
        for name, pods in found.items()
        if name not in started
        and len(pods) >= (n := _least(pods[0], received))
        and all(_least(pod, received) == n for pod in pods)
    }


def _made_by_s(pods: Sequence[Pod]) -> float:
    """Returns when all of them existed at the latest, by API time: a new process receives them in any
    order."""
    start = at(0)
    made_s = [((pod.metadata.creation_timestamp or start) - start).total_seconds() for pod in pods]
    return max(made_s) + 1.0


def _is_over(pods: Sequence[Pod], used: Mapping[str, int]) -> bool:
    """Whether a limit has no room for these, beside what is used."""
    n = sum(map(gpus_of, pods))
    return any(used[name] + n > LIMITS[name] for pod in pods[:1] for name in PATHS[queue_of(pod)])


def _least(pod: Pod, received: Received) -> int:
    gang = gang_of(pod)
    return 1 if gang is None else least(gang, pod, received.groups.get(gang)) or 1


def _name(pod: Pod) -> str:
    gang = gang_of(pod)
    return pod.metadata.name if gang is None else gang.name


def _used(received: Received, sent: Mapping[str, ef.BindPod]) -> Counter[str]:
    """By limited queue: devices that its pods hold on existing nodes, or will hold once bound there."""
    used = Counter[str]()
    for uid, pod in received.pods.items():
        promised = received.promised.by_uid.get(uid)
        node = promised.node if promised is not None else pod.spec.node_name
        if node in received.nodes and not pod.is_terminal:
            bind = sent.get(uid) if promised is not None else None
            _count(used, pod, _sent_in(bind))
    return used


def _sent_in(bind: ef.BindPod | None) -> str:
    """Returns the queue that a bind writes: that of the whole gang, even if a member names another."""
    return "" if bind is None else bind.annotations.get(STARTED_IN_KEY, "")


def _count(used: Counter[str], pod: Pod, sent: str = "") -> None:
    for name in PATHS[queue_of(pod, sent)]:
        used[name] += gpus_of(pod)


def _completes(pod: Pod, starting: Sequence[Pod], received: Received, sent: Mapping[str, ef.BindPod]) -> bool:
    """Whether some of its gang have started, but too few for it to be whole.

    Also if some started in an earlier process: then the pod may replace a member that the gang has lost.
    """
    gang, own = gang_of(pod), {one.metadata.uid for one in starting}
    if gang is None:
        return False
    others = [one for uid, one in received.pods.items() if uid not in own and gang_of(one) == gang]
    there = [one for one in others if one.metadata.uid in received.promised.by_uid or one.spec.node_name]
    n_least = least(gang, pod, received.groups.get(gang))
    if n_least is None or any(one.metadata.uid not in sent for one in there):
        return bool(there)
    total = (pod.metadata.annotations or {}).get(TOTAL_KEY, "")
    n_whole = max(n_least, int(total) if total.isdecimal() else 0)
    return 0 < len(there) < n_whole

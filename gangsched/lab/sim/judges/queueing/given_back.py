"""GivenBack: whether a queue gets back in time what is guaranteed to it and borrowed by other queues.

lab.sim.workloads.queues.guaranteed defines the queues. What a node has free is recounted from events; nothing
is read from the scheduler. The checker knows no claims: it is for storms without them. Called by
lab.sim.judges.step_judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations

import msgspec

from gangsched.lab.sim.judges.queueing.filling import evicted_in_vain, is_plain
from gangsched.lab.sim.judges.queueing.guarantees import gpus_there
from gangsched.lab.sim.objects import GPU, OURS
from gangsched.lab.sim.reading.documents import allocatable, gang_of, healthy_ids, least
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.workloads.queues.guaranteed import GUARANTEED, LENDING_GRACES_S, gpus_of, queue_of
from gangsched.model import effects as ef
from gangsched.model.objects import Pod

# The longest grace of a pod that goes, the longest backoff of a group that failed just before, and some for
# requests and watches.
_LIMIT_S = max(LENDING_GRACES_S) + 10.0 + 5.0
# Two rounds of evictions that were in vain, say as nodes failed in the storm, are followed by a pause.
_PAUSE_S = 60.0
_MOST_GOING = 3


class _Waiting(msgspec.Struct, frozen=True):
    """Pods of one group that have to start together; they ask for the same number of devices."""

    name: str
    queue: str
    pods: Sequence[Pod]
    evicted_in_vain: bool

    @property
    def each(self) -> int:
        return gpus_of(self.pods[0])


class GivenBack:
    """guarantees-given-back: no group within its queue's guarantee waits for long if it fits once some
    borrowers are gone.

    At most for backoff, grace and a few seconds, in calm weather. The time restarts whenever a pod of its
    queue starts: that may have had the guarantee first.
    """

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        """By group that could have its room: since when."""
        self._paused: set[str] = set()
        """Those of them for which pods were evicted in vain."""
        self._started: set[str] = set()
        """Queues with pods bound since the last look."""
        self._seen = -1

    def note(self, effects: Iterable[ef.Effect], received: Received) -> None:
        """Notes which queues a step binds pods of."""
        for one in effects:
            if isinstance(one, ef.BindPod) and one.uid in received.pods:
                self._started.add(queue_of(received.pods[one.uid]))

    def too_late(self, received: Received, now_s: float) -> Iterator[str]:
        """Called between two turns of calm weather, and at rest."""
        for name, since_s in self._since_s.items():
            if now_s - since_s > _LIMIT_S + (_PAUSE_S if name in self._paused else 0.0):
                yield (
                    f"guarantees-given-back: {name} waits for what is guaranteed to its queue, "
                    f"since {since_s:.3f}"
                )
        if self._started or self._seen != received.n_inputs:
            waiting = [*_owed(received)]
            owed = {one.name: one.queue for one in waiting}
            self._paused = {one.name for one in waiting if one.evicted_in_vain}
            self._since_s = {
                name: now_s if queue in self._started else self._since_s.get(name, now_s)
                for name, queue in owed.items()
            }
            self._seen = received.n_inputs
            self._started.clear()


def _owed(received: Received) -> Iterator[_Waiting]:
    """Yields the groups that could have their room if borrowers gave it back."""
    if gpus_there(received) < sum(GUARANTEED.values()):
        return
    held = Counter[str]()
    for pod in received.pods.values():
        if _is_placed(pod, received):
            held[queue_of(pod)] += gpus_of(pod)
    for one in _waiting(received):
        n_more = one.each * len(one.pods)
        if n_more and held[one.queue] + n_more <= GUARANTEED[one.queue] and _could_have(one, received):
            yield one


def _stated(pod: Pod) -> frozenset[tuple[str, str]]:
    """Returns what the pod states of itself and its group: a group whose members disagree does not start."""
    own = pod.metadata.annotations or {}
    return frozenset((key, text) for key, text in own.items() if not key.startswith("sim/"))


def _is_placed(pod: Pod, received: Received) -> bool:
    on_its_way = pod.metadata.uid in received.promised.by_uid
    return (bool(pod.spec.node_name) or on_its_way) and not pod.is_terminal


def _waiting(received: Received) -> Iterator[_Waiting]:
    """Yields complete groups, with no pod started, being deleted or ended, that ask for resources only.

    Only groups of the profile that is never removed.
    """
    for name, pods in _groups(received).items():
        if any(pod.spec.scheduler_name != OURS or not is_plain(pod, None) for pod in pods):
            continue
        if any(pod.is_terminal or _is_going(pod) or _is_placed(pod, received) for pod in pods):
            continue
        gang = gang_of(pods[0])
        n = least(gang, pods[0], None) if gang is not None else None
        if n is None or n > len(pods) or len({(gpus_of(pod), _stated(pod)) for pod in pods}) > 1:
            continue
        yield _Waiting(name, queue_of(pods[0]), pods[:n], any(map(evicted_in_vain, pods)))


def _groups(received: Received) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in received.pods.values():
        if (gang := gang_of(pod)) is not None:
            found.setdefault(f"{gang.namespace}/{gang.name}", []).append(pod)
    return found


def _is_going(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _could_have(one: _Waiting, received: Received) -> bool:
    """Whether it fits once at most _MOST_GOING whole groups that exceed their queues' guarantees have
    gone."""
    stays = Counter[str]()
    going = set[str]()
    borrowers: list[list[Pod]] = []
    for pods in _groups(received).values():
        there = [pod for pod in pods if _is_placed(pod, received)]
        going.update(pod.metadata.uid for pod in there if _is_going(pod))
        staying = [pod for pod in there if not _is_going(pod)]
        for pod in staying:
            stays[queue_of(pod)] += gpus_of(pod)
        is_bound = all(pod.spec.node_name for pod in there)
        if staying and is_bound and queue_of(staying[0]) != one.queue:
            borrowers.append(staying)
    for n in range(_MOST_GOING + 1):
        for some in combinations(borrowers, n):
            lost = Counter[str]()
            for pod in (pod for pods in some for pod in pods):
                lost[queue_of(pod)] += gpus_of(pod)
            if any(stays[q] - n_lost < min(stays[q], GUARANTEED[q]) for q, n_lost in lost.items()):
                continue
            gone = going | {pod.metadata.uid for pods in some for pod in pods}
            if _n_that_fit(one.each, received, gone) >= len(one.pods):
                return True
    return False


def _n_that_fit(each: int, received: Received, gone: Collection[str]) -> int:
    return sum(max(_free(name, received, gone), 0) // each for name in received.nodes)


def _free(name: str, received: Received, gone: Collection[str]) -> int:
    """Returns the free devices of a node; 0 if it is closed or cannot be read."""
    node = received.nodes[name]
    room, healthy = allocatable(node), healthy_ids(node)
    if room is None or healthy is None or node.spec.unschedulable or node.spec.taints:
        return 0
    there = [claim for claim in received.claims_on(name) if claim.uid not in gone]
    n_left = room.get(GPU, 0) - sum(claim.requests.get(GPU, 0) for claim in there)
    if GPU not in healthy:
        return n_left
    taken = frozenset[str]().union(*(claim.ids.get(GPU, frozenset()) for claim in there))
    unknown = sum(max(one.requests.get(GPU, 0) - len(one.ids.get(GPU, ())), 0) for one in there)
    return min(n_left, len(healthy[GPU] - taken) - unknown)

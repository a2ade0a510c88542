"""Guarantees: whether a queue loses to another what is guaranteed to it.

lab.sim.workloads.queues.guaranteed defines the queues. Called by lab.sim.judges.step_judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import ASSUMED
from gangsched.lab.sim.objects import GPU
from gangsched.lab.sim.reading.documents import allocatable, gang_of, least
from gangsched.lab.sim.reading.received import STARTED_IN_KEY, Received
from gangsched.lab.sim.workloads.queues.guaranteed import GUARANTEED, gpus_of, queue_of
from gangsched.model import effects as ef
from gangsched.model.objects import Pod


class Guarantees:
    """guarantees-kept: no queue at or below its guarantee loses a pod to another, and none above falls below.

    Counts the events given to the process and the binds that it sent. A pod whose eviction was refused may
    stay or go. One that waits in Permit, whose bind was read as not done, or whose bump is not answered may
    still be bound. So only what is a violation either way counts. While the cluster is smaller than all
    guarantees together, nothing is checked. A pod counts for the queue in which it started, whatever it names
    later.
    """

    def __init__(self) -> None:
        self._asked: set[str] = set()
        self._unsure: dict[str, int] = {}
        """By UID of a pod whose bind or bump was sent: how often its binds had been settled by then."""
        self._reserved: dict[str, tuple[str, str]] = {}
        """By UID of a pod that is reserved, whose bind may wait for plugins: its node, and the queue that it
        named when it was reserved there, in which it starts."""
        self._sent: dict[str, str] = {}
        """By UID: the queue that its last bind writes."""

    def check(self, scheduler: Scheduler, effects: Iterable[ef.Effect], received: Received) -> Iterator[str]:
        """After every step."""
        cache = scheduler.shared.cache
        before, self._reserved = self._reserved, {}
        for uid, info in cache.pods.items():
            if info.state is ASSUMED:
                known = before.get(uid, ("", ""))
                is_same = known[0] == info.node_name
                self._reserved[uid] = known if is_same else (info.node_name, queue_of(info.pod))
        by_cause: dict[str, list[Pod]] = {}
        for one in effects:
            if isinstance(one, ef.BindPod | ef.BumpPod):
                self._unsure[one.uid] = received.n_settled[one.uid]
            if isinstance(one, ef.BindPod):
                self._sent[one.uid] = one.annotations.get(STARTED_IN_KEY, "")
            if isinstance(one, ef.EvictPod | ef.DeletePod) and one.uid in received.pods:
                cause = one.cause_id.rpartition("#")[0]
                if cause:  # else it is evicted for no group: its own devices have failed, for example
                    by_cause.setdefault(cause, []).append(received.pods[one.uid])
        if not by_cause or gpus_there(received) < sum(GUARANTEED.values()):
            return
        for cause, lost in by_cause.items():
            own = _queue_of_group(cause, received)
            gone = Counter[str]()
            for pod in lost:
                if _is_of(pod, cause) or pod.metadata.deletion_timestamp is not None:
                    continue
                if (queue := self._queue_of(pod, received)) != own:
                    gone[queue] += gpus_of(pod)
            for queue, n in gone.items():
                least, most = self._held(queue, received)
                guaranteed = GUARANTEED[queue]
                if all(held - n < min(held, guaranteed) for held in (least, most)):
                    yield (
                        f"guarantees-kept: queue {queue} holds {most} of {guaranteed} and "
                        f"loses {n} to {cause}"
                    )
            self._asked.update(pod.metadata.uid for pod in lost)

    def takes_kept_room(
        self, starting: Sequence[Pod], claim: StartClaim, received: Received, promised: Sequence[Pod]
    ) -> bool:
        """Whether these stay within their queue's guarantee, and the claim's pods would borrow.

        promised: pods for which victims are to go; they count as if they were there. Of the pods that start,
        only as many as their gang needs count: further pods of a gang that has started wait for no claim.
        """
        if gpus_there(received) < sum(GUARANTEED.values()):
            return True
        asked, kept = Counter[str](), Counter[str]()
        for pod in starting[: _least(starting, received)]:
            asked[queue_of(pod)] += gpus_of(pod)
        comes = Counter[str]()
        for pod in promised:
            comes[queue_of(pod)] += gpus_of(pod)
        for one in claim.held:
            kept[queue_of(one.info.pod)] += gpus_of(one.info.pod)
        return (
            asked.keys().isdisjoint(kept)
            and all(self._there(queue, received) + n <= GUARANTEED[queue] for queue, n in asked.items())
            and all(
                sum(map(gpus_of, self._pods_of(q, received))) + self._may_come(q, received) + comes[q] + n
                > GUARANTEED[q]
                for q, n in kept.items()
            )
        )

    def _there(self, queue: str, received: Received) -> int:
        """Counts devices of pods that are not being deleted, on nodes that exist or on the way there: what a
        lost node took with it is due again."""
        return sum(
            gpus_of(pod)
            for pod in self._pods_of(queue, received)
            if pod.metadata.deletion_timestamp is None and _node_of(pod, received) in received.nodes
        )

    def _held(self, queue: str, received: Received) -> tuple[int, int]:
        """Counts devices of pods that are not being deleted: without those whose eviction was requested
        before, and with them and those that may still be bound."""
        there = [pod for pod in self._pods_of(queue, received) if pod.metadata.deletion_timestamp is None]
        stay = (pod for pod in there if pod.metadata.uid not in self._asked)
        return sum(map(gpus_of, stay)), sum(map(gpus_of, there)) + self._may_come(queue, received)

    def _may_come(self, queue: str, received: Received) -> int:
        unsure = {uid: None for uid, n in self._unsure.items() if received.n_settled[uid] == n}
        unsure |= dict.fromkeys(self._reserved)
        pods = (
            received.pods[uid]
            for uid in unsure
            if uid in received.pods and uid not in received.promised.by_uid
        )
        return sum(
            gpus_of(pod) for pod in pods if not pod.spec.node_name and self._queue_of(pod, received) == queue
        )

    def _pods_of(self, queue: str, received: Received) -> Iterator[Pod]:
        """The queue's pods that are placed, also on a node that is gone."""
        for uid, pod in received.pods.items():
            is_placed = bool(pod.spec.node_name) or uid in received.promised.by_uid
            if is_placed and not pod.is_terminal and self._queue_of(pod, received) == queue:
                yield pod

    def _queue_of(self, pod: Pod, received: Received) -> str:
        """Returns its queue; while it is reserved or its bind may be in flight, the one that the bind
        writes."""
        uid = pod.metadata.uid
        if pod.spec.node_name:
            return queue_of(pod)
        if self._unsure.get(uid) == received.n_settled[uid]:
            return queue_of(pod, self._sent.get(uid, ""))
        return queue_of(pod, self._reserved.get(uid, ("", ""))[1])


def _node_of(pod: Pod, received: Received) -> str:
    """Returns the node of a placed pod, or the one that its bind in flight names."""
    return pod.spec.node_name or received.promised.by_uid[pod.metadata.uid].node


def _is_of(pod: Pod, cause: str) -> bool:
    """Whether the pod goes because its own gang is given up."""
    gang = gang_of(pod)
    return gang is not None and f"{gang.namespace}/{gang.name}" == cause


def _queue_of_group(cause: str, received: Received) -> str:
    """Returns a group's queue: that of the first of its pods that are left."""
    pods = (one for one in received.pods.values() if _is_of(one, cause) or one.key == cause)
    return next((queue_of(pod) for pod in pods), "")


def _least(pods: Sequence[Pod], received: Received) -> int:
    """Returns how many of a gang must start together, beside those that run or have succeeded; pods by which
    it grows start alone."""
    gang, starting = gang_of(pods[0]), {pod.metadata.uid for pod in pods}
    if gang is None:
        return len(pods)
    others = [pod for uid, pod in received.pods.items() if uid not in starting and gang_of(pod) == gang]
    n_there = sum(bool(pod.spec.node_name) and pod.status.phase != "Failed" for pod in others)
    return max((least(gang, pods[0], received.groups.get(gang)) or len(pods)) - n_there, 1)


def gpus_there(received: Received) -> int:
    """The devices of all nodes."""
    return sum((allocatable(node) or {}).get(GPU, 0) for node in received.nodes.values())

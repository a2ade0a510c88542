"""Filling: whether a pod waits for room that no claim keeps from it, or that it could fill before one starts.

I5, for lone pods: what each node has free is recounted from what was told (sim.told), what claims keep is
read from the scheduler. All that a claim holds counts as kept, though some of it need not be free yet: what
fits beside that fits in any case. Called by sim.driver between two turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import ASSUMED, Group, GroupState
from gangsched.model.objects import Node, Pod
from gangsched.sim.limits import stated_s
from gangsched.sim.reading import allocatable, healthy_ids, pod_asks
from gangsched.sim.told import Claim, Told


def unfilled(scheduler: Scheduler, told: Told, now_s: float) -> Iterator[str]:
    """I5: at rest no lone pod that waits for room fits beside the claims that keep room from it.

    For storms in which a pod asks for resources and nothing else, and queues have no limits. Not for a pod
    with a claim of its own.
    """
    claims = scheduler.shared.queue.claims
    standing = claims.all if claims is not None else []
    for group in scheduler.shared.groups.values():
        if group.state is not GroupState.UNSCHEDULABLE or group.is_gang or group.recovering:
            continue
        if any(group in claim.unit for claim in standing):
            continue
        for uid in group.members:
            pod = told.pods.get(uid)
            if pod is None or pod.spec.node_name or pod.is_terminal or pod.metadata.deletion_timestamp:
                continue
            until_s = now_s + stated_s(pod)
            holding = [c for c in standing if c.priority >= group.priority and c.start_s < until_s]
            for name, node in told.nodes.items():
                if _fits(scheduler, pod, group, node, told, holding):
                    yield f"I5: {group.key} waits, and fits on {name}: {group.message}"


def _fits(
    scheduler: Scheduler, pod: Pod, group: Group, node: Node, told: Told, holding: list[StartClaim]
) -> bool:
    room, name = allocatable(node), node.metadata.name
    if room is None or node.spec.unschedulable or node.spec.taints:
        return False
    used: Counter[str] = Counter(pod_asks(pod.spec))
    taken: dict[str, set[str]] = {}
    there = list(told.claims_on(name))
    for info in scheduler.shared.cache.by_node.get(name, {}).values():
        # Read as not bound, and about to be sent again: it keeps its place.
        if info.state is ASSUMED and info.uid in told.pods and all(one.uid != info.uid for one in there):
            there.append(_claim(info.pod, name, info.ids))
    kept = [one for claim in holding for one in claim.held]
    kept += scheduler.shared.cache.nominated.values()
    healthy = healthy_ids(node)
    if healthy is None:
        return False
    for place in kept:
        if place.node_name == name:  # in the place of a device that has failed it will have another
            left = {r: tuple(i for i in own if i in healthy.get(r, ())) for r, own in place.ids.items()}
            there.append(_claim(place.info.pod, name, left))
    for one in there:
        used.update(one.requests)
        for resource, ids in one.ids.items():
            taken.setdefault(resource, set()).update(ids)
    if any(amount > room.get(resource, 0) for resource, amount in used.items()):
        return False
    asked = pod_asks(pod.spec)
    for resource, ids in healthy.items():
        # Some pods do not say which devices they hold: any could be theirs.
        unknown = sum(max(one.requests.get(resource, 0) - len(one.ids.get(resource, ())), 0) for one in there)
        if len(ids - taken.get(resource, set())) - unknown < asked.get(resource, 0):
            return False
    return True


def _claim(pod: Pod, node: str, ids: Mapping[str, tuple[str, ...]]) -> Claim:
    held = {resource: frozenset(some) for resource, some in ids.items()}
    return Claim(pod.metadata.uid, node, pod_asks(pod.spec), held)

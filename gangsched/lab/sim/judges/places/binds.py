"""What must hold for a bind when it is decided: room, an open node, one domain, the right devices.

Each function yields violations, in words. They read the events given to the process
(lab.sim.reading.received) and parse annotations and quantities by lab.sim.reading.documents. Called by
lab.sim.runs.driver for every bind that is sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.lab.sim.judges.places.asked_devices import KEYS, devices_as_asked
from gangsched.lab.sim.judges.places.device_holders import hides_ids
from gangsched.lab.sim.reading.documents import (
    Ids,
    allocatable,
    container_asks,
    gang_of,
    given,
    healthy_ids,
    is_vast,
    required_labels,
    says_devices,
)
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.world.physical_devices import ids_in_order
from gangsched.model import effects as ef
from gangsched.model.objects import Pod

_CLOSES = ("NoSchedule", "NoExecute")


def bind_is_sound(bind: ef.BindPod, received: Received, *, is_repetition: bool = False) -> Iterator[str]:
    """room, one-holder, known-devices, devices-as-bound, topology: a bind fits what was known when it was
    decided. Its device IDs are free, healthy and match the pod, and its node is in the domain of its gang.

    A repeated bind must be the same again, so it may lack the IDs of an inventory that came in between.
    """
    pod, node = received.pods.get(bind.uid), received.nodes.get(bind.node)
    if pod is None or node is None:
        yield f"room: {bind.name} is bound to {bind.node}, and the scheduler has not received both"
        return
    if not is_repetition:  # by then a node that was gone, with members on it, may have come back
        yield from _in_one_domain(bind, pod, received)
    mine = received.claim_of_bind(bind)
    others = [claim for claim in received.claims_on(bind.node) if claim.uid != bind.uid]
    room = allocatable(node)
    if room is None:
        yield f"room: {bind.name} goes to {bind.node}, whose room cannot be read"
        return
    stated = pod.status.extended_resource_claim_status
    # By a claim, of which lab.sim.judges.places.resource_claims judges the devices.
    served = {one.resource_name for one in stated.request_mappings} if stated is not None else set()
    for resource, amount in mine.requests.items():
        if resource in served and not room.get(resource, 0):
            continue
        used = amount + sum(claim.requests.get(resource, 0) for claim in others)
        if used > room.get(resource, 0) and not is_vast(room.get(resource, 0)):
            yield (
                f"room: {bind.name} makes {used} {resource} on {bind.node}, which has {room.get(resource, 0)}"
            )
    for resource, ids in mine.ids.items():
        for claim in others:
            if both := ids & claim.ids.get(resource, frozenset()):
                yield f"one-holder: {bind.name} is given {sorted(both)} on {bind.node}, held by {claim.uid}"
    if is_repetition and not says_devices(bind.annotations, bind.labels):
        return
    healthy = healthy_ids(node)
    if healthy is None:
        if any(resource.count("/") for resource in mine.requests):
            yield f"devices-as-bound: {bind.name} goes to {bind.node}, whose inventory does not parse"
        return
    listed = ids_in_order(node)
    hidden = {one for one in healthy if not is_repetition and hides_ids(one, node, listed, others, received)}
    for resource in sorted(hidden & mine.ids.keys()):
        yield (
            f"known-devices: {bind.name} is given IDs of {resource} on {bind.node}, where not "
            "all holders are known"
        )
    # One whose bind is about to be sent again, as it was, or may still land: where it has no IDs, or IDs of a
    # node that is gone, this one may have none either.
    unshown = [
        claim for claim in received.unshown.by_node.get(bind.node, {}).values() if claim.uid != bind.uid
    ]
    for one in healthy.keys() - mine.ids.keys() - hidden if unshown and not is_repetition else ():
        if hides_ids(one, node, listed, unshown, received):
            hidden.add(one)
    yield from _ids_match(bind, pod, {one: ids for one, ids in healthy.items() if one not in hidden})
    if not is_repetition and not KEYS.isdisjoint(pod.metadata.annotations or ()):
        gang = gang_of(pod)
        yield from devices_as_asked(bind, pod, node, received.groups.get(gang) if gang is not None else None)


def node_is_open(bind: ef.BindPod, received: Received) -> Iterator[str]:
    """room: no bind is decided for a node closed to the pod, if the plugins for that are on. Pods with
    tolerations are not judged, as they may go there."""
    pod, node = received.pods.get(bind.uid), received.nodes.get(bind.node)
    if pod is None or node is None or pod.spec.tolerations:
        return
    if node.spec.unschedulable:
        yield f"room: {bind.name} goes to {bind.node}, which is cordoned"
    if keys := [taint.key for taint in node.spec.taints or () if taint.effect in _CLOSES]:
        yield f"room: {bind.name} goes to {bind.node}, which has the taints {keys}"


def _in_one_domain(bind: ef.BindPod, pod: Pod, received: Received) -> Iterator[str]:
    """topology: a gang that requires one rack, or one value of another node label, is on nodes with the same
    value."""
    gang = gang_of(pod)
    keys = required_labels(pod, received.groups.get(gang) if gang is not None else None)
    for key in keys:
        value = (received.nodes[bind.node].metadata.labels or {}).get(key)
        if value is None:
            yield f"topology: {bind.name} requires {key} and goes to {bind.node}, which has none"
        for other, name in received.mates_of(pod) if value is not None else ():
            node = received.nodes.get(name)
            theirs = value if node is None else (node.metadata.labels or {}).get(key)
            if theirs != value:
                yield f"topology: {bind.name} goes to {key} {value}, {other.metadata.name} is in {theirs}"


def _ids_match(bind: ef.BindPod, pod: Pod, healthy: Ids) -> Iterator[str]:
    allocation = given(bind.annotations, bind.labels)
    if allocation is None:
        yield f"devices-as-bound: what {bind.name} is given cannot be read"
        return
    for container in (*(pod.spec.init_containers or ()), *pod.spec.containers):
        asked = container_asks(container)
        if asked is None:
            yield f"devices-as-bound: {bind.name} is bound, and what {container.name} asks for cannot be read"
            return
        for resource in {*asked, *allocation.get(container.name, {})}:
            ids = allocation.get(container.name, {}).get(resource, ())
            wanted = asked.get(resource, 0) if resource in healthy else 0
            if len(ids) != wanted or len(set(ids)) != wanted:
                yield (
                    f"devices-as-bound: {bind.name}/{container.name} asks for {wanted} "
                    f"{resource} and is given {ids}"
                )
            if bad := set(ids) - healthy.get(resource, frozenset()):
                yield (
                    f"devices-as-bound: {bind.name} is given {sorted(bad)} of {bind.node}, not healthy there"
                )
    names = {c.name for c in (*(pod.spec.init_containers or ()), *pod.spec.containers)}
    if strange := set(allocation) - names:
        yield f"devices-as-bound: {bind.name} has no container {sorted(strange)}"

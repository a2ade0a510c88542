"""Which pod holds which device: no ID is held twice, and pods carry what was sent.

Read from the store and the scheduler's own tables. Called by lab.sim.runs.driver after every turn, and by
lab.sim.judges.places.binds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import ASSUMED
from gangsched.lab.sim.reading.documents import allocatable
from gangsched.lab.sim.reading.received import Claim, Received
from gangsched.lab.sim.reading.texts import json_of
from gangsched.lab.sim.world.api import SimApi
from gangsched.model import effects as ef
from gangsched.model.objects import Node


class OneOwner:
    """one-holder: no device ID is on two live pods, bound in the store or promised by the scheduler."""

    def __init__(self) -> None:
        self._sound: tuple[object, ...] = ()
        """The store's owners and the promises that were checked last and found sound."""

    def check(self, api: SimApi, scheduler: Scheduler) -> Iterator[str]:
        """Looks again once either has changed."""
        # Mappings of IDs are replaced, never changed.
        promised = [
            (info.uid, info.node_name, info.ids)
            for info in scheduler.shared.cache.pods.values()
            if info.state is ASSUMED
        ]
        now = (api.index, api.index.n_takings, promised)
        if now != self._sound:
            yield from _owned_twice(api, promised)
            self._sound = now


def _owned_twice(
    api: SimApi, promises: Iterable[tuple[str, str, Mapping[str, Iterable[str]]]]
) -> Iterator[str]:
    for node, resource, device_id in api.index.doubled:
        owners = " and ".join(api.index.owners[node, resource, device_id])
        yield f"one-holder: {device_id} of {resource} on {node} is held by {owners}"
    promised: dict[tuple[str, str, str], str] = {}
    for uid, node, held in promises:
        for resource, ids in held.items():
            for device_id in ids:
                place = (node, resource, device_id)
                for other in (*api.index.owners.get(place, ()), promised.setdefault(place, uid)):
                    if other != uid:
                        yield f"one-holder: {device_id} on {node} is held by {other} and {uid}"


def bound_as_sent(api: SimApi, sent: dict[str, list[ef.BindPod]]) -> Iterator[str]:
    """devices-as-bound: a pod that carries our mark is on the node, with the IDs, of a bind that was sent for
    its UID."""
    for pod in api.index.changed.values():
        own, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
        binds = sent.get(pod.metadata.uid, [])
        if not any(
            bind.node == pod.spec.node_name
            and all(own.get(k) == v for k, v in bind.annotations.items())
            and all(labels.get(k) == v for k, v in bind.labels.items())
            for bind in binds
        ):
            yield (
                f"whole-in-time, devices-as-bound: {pod.key} ({pod.metadata.uid}) on "
                f"{pod.spec.node_name} was bound for another pod"
            )
    api.index.changed.clear()


def hides_ids(
    resource: str,
    node: Node,
    listed: Mapping[str, Collection[str]],
    others: Collection[Claim],
    received: Received,
) -> bool:
    """Whether it is not known which devices of the resource the node's other pods have, so that no IDs may be
    given: one has fewer IDs than it asks for, or one that the node does not list under this resource, or asks
    for a resource of the same domain that the node lists and offers no longer."""
    ids, reported = listed.get(resource, ()), _reported(node)
    domain, room = resource.partition("/")[0], allocatable(node) or {}
    if any(one in other for name, other in listed.items() if name != resource for one in ids):
        return True
    for claim in others:
        own = claim.ids.get(resource) or reported.get(claim.uid, {}).get(resource, frozenset())
        if not own and (sent := received.sent.get(claim.uid)) is not None:
            own = sent.ids.get(resource, frozenset())
        if len(own) < claim.requests.get(resource, 0) or not own <= {*ids}:
            return True
        for name in {*claim.requests, *claim.ids} - {resource}:
            if not claim.ids.get(name, frozenset()).isdisjoint(ids):
                return True
            if name.startswith(f"{domain}/") and name not in listed and not room.get(name):
                return True
    return False


def _reported(node: Node) -> dict[str, dict[str, frozenset[str]]]:
    """UID -> resource -> what kubelet gave, as the node's agent reports it."""
    report = json_of((node.metadata.annotations or {}).get("gangsched.io/device-report", "{}"))
    found: dict[str, dict[str, frozenset[str]]] = {}
    known = report if isinstance(report, dict) else {}
    for one in (*known.get("pods", ()), *known.get("others", ())):
        for sets in one["containers"].values():
            for resource, ids in sets.items():
                own = found.setdefault(one["uid"], {})
                own[resource] = own.get(resource, frozenset()) | {*ids}
    return found

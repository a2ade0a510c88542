"""What is planned for this node's pods and what kubelet has granted them, in one form for both. No I/O.

Not here: kubelet's own messages (`messages`), conclusions from the two (`hand_off`, `agent.plugins.granted`),
the requests (`kubelet`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from gangsched.errors import ParseError
from gangsched.model.devices.annotations import parse_allocation
from gangsched.model.devices.labels import allocation_text
from gangsched.model.events import Event, KindSynced, PodAdded, PodDeleted, PodUpdated
from gangsched.model.objects import Pod

Sets = Mapping[str, Mapping[str, frozenset[str]]]
"""container -> resource -> device IDs; containers in the pod's order, by name if read from labels."""

Given = Mapping[tuple[str, str], Sets]
"""(namespace, name) -> what kubelet has granted; includes containers without devices, excludes plain init
containers.
"""

NOTHING: Sets = {}
# Ended pods stay until their annotation has been corrected; this bounds their number.
_MAX_ENDED = 256
_MAX_LAST = 1024


class PlannedPod(msgspec.Struct, frozen=True, gc=False):
    """A live pod of this node.

    planned: from its annotation or labels, empty if unreadable. has_started: kubelet has admitted it and
    reported that to the API server. is_going: it is being deleted.
    """

    uid: str
    namespace: str
    name: str
    planned: Sets
    has_started: bool = False
    is_going: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class NodePods:
    """The node's live pods, from the API server's watch. is_known: all of them have been listed.

    ended: pods that were live earlier, until they are deleted; only the most recent ones.
    """

    def __init__(self) -> None:
        self.is_known = False
        self._pods: dict[str, PlannedPod] = {}
        self._ended: dict[str, PlannedPod] = {}

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, PodAdded | PodUpdated):
                pod = event.pod
                if pod.is_terminal:
                    self._end(pod)
                else:
                    self._pods[pod.metadata.uid] = planned_pod(pod)
            elif isinstance(event, PodDeleted):
                self._pods.pop(event.pod.metadata.uid, None)
                self._ended.pop(event.pod.metadata.uid, None)
            elif isinstance(event, KindSynced):
                self.is_known = True

    def _end(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if self._pods.pop(uid, None) is not None or uid in self._ended:
            self._ended[uid] = planned_pod(pod)
            while len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def ended(self) -> tuple[PlannedPod, ...]:
        return tuple(self._ended.values())

    def all(self) -> tuple[PlannedPod, ...]:
        return tuple(self._pods.values())

    def in_order(self, pods: Iterable[PlannedPod]) -> tuple[PlannedPod, ...]:
        """Sorts pods by arrival on the node, mostly the order of kubelet's admissions."""
        order = {uid: i for i, uid in enumerate(self._pods)}
        return tuple(sorted(pods, key=lambda pod: order.get(pod.uid, len(order))))


def planned_pod(pod: Pod) -> PlannedPod:
    """Converts a pod from the API server."""
    meta = pod.metadata
    return PlannedPod(
        meta.uid,
        meta.namespace,
        meta.name,
        planned_sets(meta.annotations, meta.labels),
        pod.status.start_time is not None,
        meta.deletion_timestamp is not None,
    )


def is_served(pod: PlannedPod, given: Given) -> bool:
    """Whether each container that needs devices has them, as far as kubelet lists it."""
    listed = given.get(pod.key)
    return listed is not None and all(
        listed[container].get(resource)
        for container, sets in pod.planned.items()
        if container in listed
        for resource in sets
    )


class Memory:
    """Remembers the devices that pods were last known to have.

    A starting kubelet lists no pod before admitting it, and no longer lists a pod whose containers have
    ended, even if the API server does not know yet. Entries are by UID: a pod recreated under the same name
    has nothing. kubelet lists only names and may still list the former pod, so devices that the former pod
    had do not count for the new one until it has started or the list changes.
    """

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], tuple[str, Sets]] = {}
        self._has: dict[str, Sets] = {}
        self._last: dict[str, Sets] = {}

    def completed(self, given: Given, pods: Iterable[PlannedPod]) -> Given:
        """Returns `given`, plus last known devices of live `pods` missing in it, unless another pod has them,
        and without devices of a former pod of the same name.
        """
        has: dict[str, Sets] = {}
        whole = dict(given)
        taken = frozenset().union(*map(_devices, given.values()))
        for pod in pods:
            found = given.get(pod.key)
            if found is not None and self._is_formers(pod, found):
                del whole[pod.key]
                continue
            if found is None and pod.uid in self._has and not taken & _devices(self._has[pod.uid]):
                found = whole[pod.key] = self._has[pod.uid]
            if found is not None:
                has[pod.uid] = found
                if is_served(pod, whole):
                    self._last.pop(pod.uid, None)
                    self._last[pod.uid] = found
        self._has = has
        self._owners = {key: owner for key, owner in self._owners.items() if key in given}
        while len(self._last) > _MAX_LAST:
            del self._last[next(iter(self._last))]
        return whole

    def _is_formers(self, pod: PlannedPod, found: Sets) -> bool:
        uid, had = self._owners.get(pod.key, (pod.uid, found))
        if uid != pod.uid and had == found and not pod.has_started:
            return True
        self._owners[pod.key] = (pod.uid, found)
        return False

    def had(self, ended: Iterable[PlannedPod]) -> list[tuple[PlannedPod, Sets]]:
        """Returns what these pods had, for those seen with all their devices."""
        return [(pod, self._last[pod.uid]) for pod in ended if pod.uid in self._last]


def _devices(sets: Sets) -> frozenset[tuple[str, str]]:
    return frozenset(
        (resource, device) for held in sets.values() for resource, ids in held.items() for device in ids
    )


def planned_sets(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> Sets:
    """Reads what is planned for a pod; nothing, if it cannot be read."""
    return _sets(allocation_text(annotations, labels) or "")


@lru_cache(maxsize=4096)
def _sets(text: str) -> Sets:
    if not text:
        return NOTHING
    try:
        allocation = parse_allocation(text)
    except ParseError:  # `holders` reports it
        return NOTHING
    return {
        container: {resource: frozenset(ids) for resource, ids in sets.items()}
        for container, sets in allocation.items()
    }

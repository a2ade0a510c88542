"""Tracks which of this node's devices live pods hold, by their annotation or labels from the bind. Pure.

Fed with the events of the node's own pods (kube.watch.reflector); queried by `reporter`. An unreadable pod,
or one with an unreadable binding, keeps what it was last known to hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangsched.errors import ParseError
from gangsched.model.devices.annotations import parse_allocation
from gangsched.model.devices.labels import allocation_text
from gangsched.model.events import Event, KindSynced, ObjectRefused, PodAdded, PodDeleted, PodUpdated
from gangsched.model.objects import Pod

Held = frozenset[tuple[str, str]]


class Holders:
    """is_known: all pods of the node have been listed. changed: since this was last set to False."""

    def __init__(self) -> None:
        self.is_known = False
        self.changed = False
        self._held: dict[str, Held] = {}
        self._unreadable: dict[str, str] = {}

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, PodAdded | PodUpdated):
                self._there(event.pod)
            elif isinstance(event, PodDeleted):
                self._set(event.pod.metadata.uid, frozenset())
                self._unreadable.pop(event.pod.metadata.uid, None)
            elif isinstance(event, ObjectRefused):
                problem = f"pod {event.namespace}/{event.name} cannot be read: {event.message}"
                self._unreadable[event.uid] = problem
                self.changed = True
            elif isinstance(event, KindSynced):
                self.is_known = self.changed = True

    def holds(self, resource: str, device_id: str) -> bool:
        """Whether a live pod holds this device."""
        return any((resource, device_id) in held for held in self._held.values())

    def problems(self) -> tuple[str, ...]:
        """Pods that cannot be read, or whose devices cannot be read."""
        return tuple(self._unreadable.values())

    def _there(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._unreadable.pop(uid, None)
        text = allocation_text(pod.metadata.annotations, pod.metadata.labels)
        if pod.is_terminal or text is None:
            self._set(uid, frozenset())
            return
        try:
            allocation = parse_allocation(text)
        except ParseError as error:
            self._unreadable[uid] = f"pod {pod.key}: {error}"
            return
        self._set(
            uid,
            frozenset(
                (resource, device_id)
                for sets in allocation.values()
                for resource, ids in sets.items()
                for device_id in ids
            ),
        )

    def _set(self, uid: str, held: Held) -> None:
        if self._held.get(uid, frozenset()) == held:
            return
        self.changed = True
        if held:
            self._held[uid] = held
        else:
            del self._held[uid]

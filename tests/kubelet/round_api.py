"""The API server of a round: the node's pods, and what kubelet and the agent have not heard yet of them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from gangsched.model.devices.annotations import ALLOCATED_KEY
from gangsched.model.devices.labels import allocation_labels
from gangsched.model.events import Event, PodAdded, PodUpdated
from gangsched.model.objects import ObjectMeta, Pod, PodStatus
from tests.kubelet.shapes import Allocation

WHEN = datetime(2026, 1, 2, tzinfo=UTC)


class RoundApi:
    """in_labels: pods carry their device IDs as labels."""

    def __init__(self, *, in_labels: bool) -> None:
        self._in_labels = in_labels
        self.pods: dict[str, Pod] = {}
        self.to_kubelet: deque[tuple[str, Pod]] = deque()
        self.to_agent: deque[Event] = deque()

    def put(self, pod: Pod) -> None:
        is_new = pod.metadata.uid not in self.pods
        self.pods[pod.metadata.uid] = pod
        self.to_agent.append(PodAdded(pod) if is_new else PodUpdated(pod))
        self.to_kubelet.append(("ADD" if is_new else "UPDATE", pod))

    def annotate(self, uid: str, allocation: Allocation) -> None:
        pod = self.pods[uid]
        meta = self.carrying(pod.metadata, allocation)
        self.put(msgspec.structs.replace(pod, metadata=meta))

    def carrying(self, meta: ObjectMeta, allocation: Allocation) -> ObjectMeta:
        if self._in_labels:
            return msgspec.structs.replace(meta, labels=allocation_labels(_frozen(allocation)))
        notes = {**(meta.annotations or {}), ALLOCATED_KEY: json.dumps(allocation)}
        return msgspec.structs.replace(meta, annotations=notes)

    def set_phase(self, uid: str, phase: str) -> None:
        pod = self.pods[uid]
        self.put(msgspec.structs.replace(pod, status=PodStatus(phase=phase, start_time=WHEN)))

    def live(self) -> Iterator[tuple[str, Pod]]:
        for uid, pod in self.pods.items():
            if not pod.is_terminal:
                yield uid, pod


def _frozen(allocation: Allocation) -> dict[str, dict[str, tuple[str, ...]]]:
    return {c: {r: tuple(ids) for r, ids in sets.items()} for c, sets in allocation.items()}

"""A reporter in virtual time, with a Node that answers as a kube-apiserver does: 404, 409 and 422 included.

What happens is told by methods; `run(seconds)` does what the reporter asks for and moves the clock to its own
deadlines, never further than asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from gangsched.agent.node import MAX_ANNOTATION_BYTES, SeenNode, annotation_bytes
from gangsched.agent.report.notices import Notice
from gangsched.agent.report.reports import Place, Report, Silence
from gangsched.agent.reporter import InventoryReporter, ReadNode, WriteNode
from gangsched.errors import ApiError
from gangsched.model.devices.annotations import ALLOCATED_KEY, INVENTORY_KEY, Device, inventory_annotation
from gangsched.model.devices.labels import inventory_text
from gangsched.model.events import Event, KindSynced, PodAdded, PodDeleted, PodUpdated
from gangsched.model.objects import ObjectMeta, Pod, PodStatus

GPU = "nvidia.com/gpu"
FILE = "/devices"
HEARTBEAT_S = 60.0
_MAX_TURNS = 10_000


def devices(*ids: str, sick: tuple[str, ...] = ()) -> tuple[Device, ...]:
    return tuple(Device(id=one, health="Unhealthy" if one in sick else "Healthy") for one in ids)


def report(*found: Device, source: str = FILE, **more: Any) -> Report:
    """One place of GPUs."""
    places = (Place(source, {GPU: tuple(found)}),) if found else ()
    return Report(source, places, **more)


class Node:
    """value: of the annotation. down: nobody answers. lands: writes take effect though nobody answers.

    is_contested: somebody else writes it each time between our reading and our writing.
    """

    def __init__(self) -> None:
        self.exists = True
        self.down = False
        self.lands = False
        self.is_contested = False
        self.uid = "uid-1"
        self.revision = 1
        self.annotations: dict[str, str] = {"other": "x" * 95}
        self.labels: dict[str, str] = {"kubernetes.io/hostname": "n1"}
        self.writer = ""
        self.n_reads = 0
        self.n_writes = 0
        self.n_tried = 0

    def seen(self) -> SeenNode:
        own, labels = dict(self.annotations), dict(self.labels)
        return SeenNode(self.uid, str(self.revision), self.value, self.writer, own, labels)

    @property
    def value(self) -> str | None:
        return inventory_text(self.annotations, self.labels)

    def others_take(self, n_bytes: int) -> None:
        self.annotations["other"] = "x" * (n_bytes - len("other"))

    def changed_by(self, writer: str, value: str | None) -> None:
        self.revision += 1
        self.annotations.pop(INVENTORY_KEY, None)
        if value is not None:
            self.annotations[INVENTORY_KEY] = value
        self.writer = writer

    def made_again(self, uid: str) -> None:
        self.uid = uid
        self.changed_by("", None)

    def read(self) -> SeenNode:
        self.n_reads += 1
        if self.down:
            raise ApiError("connection refused")
        if not self.exists:
            raise ApiError("not found", code=404, reason="NotFound")
        return self.seen()

    def write(self, effect: WriteNode) -> SeenNode:
        if self.down and not self.lands:
            raise ApiError("connection refused")
        if not self.exists:
            raise ApiError("not found", code=404, reason="NotFound")
        self.n_tried += 1
        if self.is_contested:
            self.revision += 1
        if effect.resource_version != str(self.revision):
            raise ApiError("the object has been modified", code=409, reason="Conflict")
        if effect.uid != self.uid:
            raise ApiError("metadata.uid: field is immutable", code=422, reason="Invalid")
        if annotation_bytes({**self.annotations, **effect.annotations}) > MAX_ANNOTATION_BYTES:
            raise ApiError("metadata.annotations: Too long", code=422, reason="Invalid")
        self.n_writes += 1
        self.revision += 1
        self.writer = "us"
        self.annotations = _merged(self.annotations, effect.annotations)
        self.labels = _merged(self.labels, effect.labels)
        if self.down:
            raise ApiError("connection lost")
        return self.seen()


def _merged(own: dict[str, str], patch: Mapping[str, str | None]) -> dict[str, str]:
    return {key: text for key, text in {**own, **patch}.items() if text is not None}


class Virtual:
    def __init__(
        self,
        node: Node | None = None,
        *,
        silences: dict[str, Silence] | None = None,
        seed: int = 1,
        in_labels: bool = False,
    ) -> None:
        self.node = node or Node()
        self.now_s = 1000.0
        self.notices: list[Notice] = []
        self.reporter = InventoryReporter(
            "n1",
            silences or {FILE: Silence.NOTHING},
            heartbeat_s=HEARTBEAT_S,
            rng=Random(seed),
            in_labels=in_labels,
        )

    # -- what happens ------------------------------------------------------------------------------------

    def found(self, *found: Device, source: str = FILE, **more: Any) -> None:
        self.reporter.source_reported(report(*found, source=source, **more), self.now_s)

    def pods(self, *events: Event) -> None:
        self.reporter.pods_changed(events)

    def all_pods_known(self) -> None:
        self.pods(KindSynced("pods"))

    def run(
        self, seconds: float = 0.0, *, every_s: float = 1.0, again: tuple[Device, ...] | None = None
    ) -> None:
        """Lets time pass; `again`: the file is read each `every_s`, as a living source does."""
        end_s = self.now_s + seconds
        read_s = self.now_s
        for _ in range(_MAX_TURNS):
            if again is not None and self.now_s >= read_s:
                self.found(*again)
                read_s = self.now_s + every_s
            effect = self.reporter.decide(self.now_s)
            self.notices += self.reporter.take_notices()
            if effect is not None:
                self._do(effect)
                continue
            deadline_s = self.reporter.next_deadline_s()
            if again is not None:
                deadline_s = min(deadline_s, read_s)
            assert deadline_s > self.now_s, "a deadline that has passed would be asked about for ever"
            if deadline_s > end_s:
                self.now_s = end_s
                return
            self.now_s = deadline_s
        raise AssertionError("the reporter does not come to rest")

    def _do(self, effect: ReadNode | WriteNode) -> None:
        try:
            if isinstance(effect, ReadNode):
                self.reporter.node_read(self.node.read(), self.now_s)
            else:
                self.reporter.written(self.node.write(effect), self.now_s)
        except ApiError as error:
            self.reporter.failed("read" if isinstance(effect, ReadNode) else "write", error, self.now_s)
        self.notices += self.reporter.take_notices()

    # -- what came of it ---------------------------------------------------------------------------------

    @property
    def written(self) -> dict[str, str]:
        """GPU -> health, as the Node says."""
        try:
            listed = json.loads(self.node.value or "{}").get(GPU, [])
        except ValueError:  # a stranger's
            return {}
        return {device["id"]: device["health"] for device in listed}

    @property
    def said(self) -> str:
        return "\n".join(notice.message for notice in self.notices)


def pod(name: str, *ids: str, phase: str = "Running", text: str | None = None) -> Pod:
    """Holds these GPUs; `text` in the annotation's place."""
    value = json.dumps({"main": {GPU: list(ids)}}) if text is None else text
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", annotations={ALLOCATED_KEY: value})
    return Pod(metadata=meta, status=PodStatus(phase=phase))


def there(name: str, *ids: str, **more: Any) -> PodAdded:
    return PodAdded(pod(name, *ids, **more))


def now(name: str, *ids: str, **more: Any) -> PodUpdated:
    return PodUpdated(pod(name, *ids, **more))


def gone(name: str) -> PodDeleted:
    return PodDeleted(pod(name))


def settled(*ids: str, node: Node | None = None) -> Virtual:
    """An agent that has written these devices, and knows that no pod holds any."""
    agent = Virtual(node)
    agent.all_pods_known()
    agent.found(*devices(*ids))
    agent.run()
    assert list(agent.written) == list(ids)
    return agent


def on_node(*ids: str) -> Node:
    """A Node on which a predecessor has listed these."""
    node = Node()
    node.annotations[INVENTORY_KEY] = inventory_annotation({GPU: devices(*ids)})
    return node

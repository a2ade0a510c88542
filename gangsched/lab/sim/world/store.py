"""SimStore: objects with UIDs and versions, and the direct writes of all actors but the scheduler.

Users, kubelets, controllers and other schedulers call the plain methods; the scheduler's requests come
through lab.sim.world.api. lab.sim.world.streams has the watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from gangsched.lab.sim.objects import Key, at
from gangsched.lab.sim.reading.store_index import StoreIndex
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.streams import Stream
from gangsched.lab.sim.world.weather import Weather
from gangsched.model import events as ev
from gangsched.model.objects import Condition, CustomObject, Node, Pod

KINDS = ("nodes", "podgroups.core", "podgroups.coscheduling", "pods")
_NO_LABELS: Mapping[str, str] = {}


class SimStore:
    """The cluster's objects, and their watches."""

    def __init__(
        self,
        timeline: Timeline,
        weather: Weather,
        answer: Callable[[ev.Event], None],
        peer: SimStore | None = None,
    ) -> None:
        """`peer`: the store as another process sees it: the same objects, other watches."""
        self._timeline = timeline
        self._weather = weather
        self._answer = answer
        self._version = 100
        self.wall_offset_s = 0.0
        """The offset of the server's clock; no duration may depend on it."""
        self.pods: dict[Key, Pod] = {} if peer is None else peer.pods
        self.nodes: dict[str, Node] = {} if peer is None else peer.nodes
        self.groups: dict[Key, CustomObject] = {} if peer is None else peer.groups
        self.objects: dict[str, dict[Key, Any]] = {} if peer is None else peer.objects
        """Objects of other kinds, by kind as plugins name it, namespace and name."""
        self.index: StoreIndex = StoreIndex() if peer is None else peer.index
        self.n_changes = 0
        """A change counter of pods, nodes and groups: readers skip unchanged ones."""
        self.on_bound: list[Callable[[Pod], None]] = [] if peer is None else peer.on_bound
        self.on_gone: list[Callable[[Pod], None]] = [] if peer is None else peer.on_gone
        self.on_node: list[Callable[[Node], None]] = [] if peer is None else peer.on_node
        self._all: list[SimStore] = [] if peer is None else peer._all
        self._all.append(self)
        self.streams = {kind: self._stream(kind) for kind in KINDS}

    def _stream(self, kind: str) -> Stream:
        return Stream(
            kind,
            self._timeline,
            delay_s=self._weather.watch_delay_s,
            sink=self._answer,
            store=lambda: self._listed(kind),
        )

    def _listed(self, kind: str) -> Iterable[tuple[Key, Any]]:
        if kind in self.objects:
            return list(self.objects[kind].items())
        if kind == "pods":
            return list(self.pods.items())
        if kind == "nodes":
            return [((name,), node) for name, node in self.nodes.items()]
        return [(key, item) for key, item in self.groups.items() if kind == f"podgroups.{key[0]}"]

    def refuse(self, refused: ev.ObjectRefused) -> None:
        """Lets the watch show an object that cannot be read."""
        self._timeline.after(self._weather.watch_delay_s(), lambda: self._answer(refused))

    def create_pod(self, pod: Pod) -> Pod | None:
        """Creates a pod; None if its name is taken."""
        key = (pod.metadata.namespace, pod.metadata.name)
        return None if key in self.pods else self._put_pod(key, pod)

    def update_pod(self, pod: Pod, **changes: Any) -> Pod | None:
        """Replaces metadata, spec or status of the pod as it is now; None if it is gone."""
        key = (pod.metadata.namespace, pod.metadata.name)
        now = self.pods.get(key)
        if now is None or now.metadata.uid != pod.metadata.uid:
            return None
        return self._put_pod(key, replace(now, **changes))

    def set_condition(self, pod: Pod, kind: str, status: str, reason: str = "", message: str = "") -> None:
        conditions = [c for c in pod.status.conditions or () if c.type != kind]
        conditions.append(Condition(kind, status, reason, message, self.wall_time()))
        self.update_pod(pod, status=replace(pod.status, conditions=conditions))

    def bind_as_stranger(self, pod: Pod, node: str, annotations: dict[str, str] | None = None) -> None:
        """Binds a pod as another scheduler does."""
        key = (pod.metadata.namespace, pod.metadata.name)
        now = self.pods.get(key)
        if now is not None and not now.spec.node_name and now.metadata.deletion_timestamp is None:
            self._bind(key, now, node, annotations or {})

    def _bind(
        self,
        key: Key,
        pod: Pod,
        node: str,
        annotations: Mapping[str, str],
        labels: Mapping[str, str] = _NO_LABELS,
    ) -> None:
        conditions = [c for c in pod.status.conditions or () if c.type != "PodScheduled"]
        conditions.append(Condition("PodScheduled", "True", last_transition_time=self.wall_time()))
        merged = {**(pod.metadata.annotations or {}), **annotations}
        both = {**(pod.metadata.labels or {}), **labels}
        bound = self._put_pod(
            key,
            replace(
                pod,
                metadata=replace(pod.metadata, annotations=merged, labels=both),
                spec=replace(pod.spec, node_name=node),
                status=replace(pod.status, conditions=conditions, nominated_node_name=""),
            ),
        )
        for hook in self.on_bound:
            hook(bound)

    @property
    def anyone_leaves(self) -> bool:
        """Whether some pod is still terminating."""
        return any(pod.metadata.deletion_timestamp is not None for pod in self.pods.values())

    def delete_pod(self, pod: Pod, *, grace_s: float = 0.0) -> None:
        """Sets deletionTimestamp, and removes the pod when the grace is over; without grace at once."""
        key = (pod.metadata.namespace, pod.metadata.name)
        now = self.pods.get(key)
        if now is None or now.metadata.uid != pod.metadata.uid:
            return
        if now.metadata.deletion_timestamp is None and grace_s > 0:
            leaving = replace(now.metadata, deletion_timestamp=self.wall_time(grace_s))
            self._put_pod(key, replace(now, metadata=leaving))
        if grace_s > 0:
            self._timeline.after(grace_s, lambda: self.delete_pod(pod))
            return
        del self.pods[key]
        self.index.pod_changed(now, None)
        gone = replace(now, metadata=replace(now.metadata, resource_version=self._next_version()))
        self._send_change("pods", key, gone, deleted=True)
        for hook in self.on_gone:
            hook(gone)

    def put_node(self, node: Node) -> None:
        node = replace(node, metadata=replace(node.metadata, resource_version=self._next_version()))
        self.nodes[node.metadata.name] = node
        for hook in self.on_node:
            hook(node)
        self._send_change("nodes", (node.metadata.name,), node)

    def delete_node(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self.n_changes += 1
            self._send_change("nodes", (name,), node, deleted=True)

    def put_group(self, dialect: str, item: CustomObject) -> None:
        item = replace(item, metadata=replace(item.metadata, resource_version=self._next_version()))
        key = (dialect, item.metadata.namespace, item.metadata.name)
        self.groups[key] = item
        self.index.group_changed(key, item)
        self._send_change(f"podgroups.{dialect}", key, item)

    def delete_group(self, dialect: str, namespace: str, name: str) -> None:
        item = self.groups.pop((dialect, namespace, name), None)
        if item is not None:
            self.n_changes += 1
            self.index.group_changed((dialect, namespace, name), None)
            self._send_change(f"podgroups.{dialect}", (dialect, namespace, name), item, deleted=True)

    def serve(self, kinds: Iterable[str]) -> None:
        """Serves other kinds too; to be called before anything is listed."""
        kinds = tuple(kinds)
        self.objects |= {kind: {} for kind in kinds}
        self.serve_groups(kinds)

    def serve_groups(self, kinds: Iterable[str]) -> None:
        """As `serve`, for PodGroups of other dialects."""
        for kind in kinds:
            for one in self._all:
                one.streams[kind] = one._stream(kind)

    def put_object(self, kind: str, item: Any) -> None:
        """Creates or changes an object of such a kind."""
        item = replace(item, metadata=replace(item.metadata, resource_version=self._next_version()))
        key = (item.metadata.namespace, item.metadata.name)
        self.objects[kind][key] = item
        self._send_change(kind, key, item)

    def remove_object(self, kind: str, key: Key) -> None:
        item = self.objects[kind].pop(key, None)
        if item is not None:
            self._next_version()
            self._send_change(kind, key, item, deleted=True)

    @property
    def wall_s(self) -> float:
        """The time on the server's clock."""
        return self._timeline.now_s + self.wall_offset_s

    def wall_time(self, in_s: float = 0.0) -> datetime:
        """The same in the API's format, `in_s` seconds from now."""
        return at(self.wall_s + in_s)

    def _put_pod(self, key: Key, pod: Pod) -> Pod:
        pod = replace(pod, metadata=replace(pod.metadata, resource_version=self._next_version()))
        self.index.pod_changed(self.pods.get(key), pod)
        self.pods[key] = pod
        self._send_change("pods", key, pod)
        return pod

    def _send_change(self, kind: str, key: Key, item: Any, *, deleted: bool = False) -> None:
        for one in self._all:
            one.streams[kind].send(key, item, deleted=deleted)

    def _next_version(self) -> str:
        first = self._all[0]
        first._version += 1
        first.n_changes += 1
        return str(first._version)

"""Mischief: what users, machines, other schedulers and our own process do to a cluster, drawn from a seed.

Each deed is one function on the API server's store. `repair` removes whatever would keep a gang from ever
fitting again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from gangsched.lab.sim.objects import GPU, MACHINE_KEY, STRANGER, inventory, make_node, make_pod
from gangsched.lab.sim.reading.documents import allocatable, pod_asks
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.actors import reborn
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.at_random import AtRandom
from gangsched.lab.sim.world.weather import Weather
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import Node, Pod, Taint

T = TypeVar("T")
DEEDS = {
    "delete_pod": 2,
    "recreate_pod": 2,
    "relabel_pod": 1,
    "fail_pod": 1,
    "stranger_comes": 3,
    "stranger_goes": 2,
    "nominate_stranger": 1,
    "delete_node": 1,
    "recreate_node": 1,
    "cordon_node": 1,
    "taint_node": 1,
    "break_device": 2,
    "spoil_inventory": 1,
    "rename_devices": 1,
    "shrink_node": 1,
    "cut_watch": 2,
    "crash": 2,
}
"""The deeds of Mischief, and how often it does each."""
_TAINT = Taint("sim/broken", "", "NoSchedule")


class Mischief(AtRandom):
    """Does the deeds; `die_after(n)` kills the scheduler after n more effects."""

    def __init__(
        self,
        api: SimApi,
        timeline: Timeline,
        weather: Weather,
        rng: Random,
        *,
        first_nodes: Mapping[str, Node],
        die_after: Callable[[int], None],
    ) -> None:
        super().__init__(
            api, timeline, weather, rng, per_s=lambda rates: rates.mischief_per_s, deeds=tuple(DEEDS)
        )
        self._first_nodes = first_nodes
        self._die_after = die_after

    def _draw(self) -> str:
        return self._rng.choices(self._deeds, list(DEEDS.values()))[0]

    def _some(self, items: list[T]) -> T | None:
        return self._rng.choice(items) if items else None

    def _pods(self, *, ours: bool) -> list[Pod]:
        return [p for p in self._api.pods.values() if (p.spec.scheduler_name != STRANGER) == ours]

    def _node(self) -> Node | None:
        return self._some(list(self._api.nodes.values()))

    # -- pods ------------------------------------------------------------------------------------------

    def delete_pod(self) -> None:
        if pod := self._some(self._pods(ours=True)):
            self._api.delete_pod(pod, grace_s=self._rng.choice((0.0, 0.0, 1.0, 3.0)))

    def recreate_pod(self) -> None:
        """Deletes a pod and recreates it under its name at once."""
        if pod := self._some(self._pods(ours=True)):
            self._n += 1
            self._api.delete_pod(pod)
            self._api.create_pod(reborn(pod, f"m{self._n}", self._api.wall_s))

    def relabel_pod(self) -> None:
        """Changes a label that has no effect."""
        if pod := self._some(self._pods(ours=True)):
            self._n += 1
            labels = {**(pod.metadata.labels or {}), "sim/touched": str(self._n)}
            self._api.update_pod(pod, metadata=replace(pod.metadata, labels=labels))

    def fail_pod(self) -> None:
        bound = [pod for pod in self._pods(ours=True) if pod.spec.node_name and not pod.is_terminal]
        if pod := self._some(bound):
            self._api.update_pod(pod, status=replace(pod.status, phase="Failed"))

    # -- another scheduler -----------------------------------------------------------------------------

    def stranger_comes(self) -> None:
        """Binds a pod of another scheduler, which sees the store and none of our reservations, without
        IDs."""
        node = self._node()
        if node is None:
            return
        self._n += 1
        pod = make_pod(f"stranger-{self._n}", gpus=self._rng.choice((0, 1, 2, 4)), scheduler=STRANGER)
        room = dict(allocatable(node) or {})
        for other in self._api.pods.values():
            if other.spec.node_name == node.metadata.name and not other.is_terminal:
                for name, amount in pod_asks(other.spec).items():
                    room[name] = room.get(name, 0) - amount
        if all(room.get(name, 0) >= amount for name, amount in pod_asks(pod.spec).items()):
            self._api.create_pod(pod)
            self._api.bind_as_stranger(pod, node.metadata.name)

    def nominate_stranger(self) -> None:
        node = self._node()
        if node is not None:
            self._n += 1
            pod = make_pod(f"stranger-{self._n}", gpus=4, scheduler=STRANGER, priority=100)
            nominated = replace(pod.status, nominated_node_name=node.metadata.name)
            self._api.create_pod(replace(pod, status=nominated))

    def stranger_goes(self) -> None:
        if pod := self._some(self._pods(ours=False)):
            self._api.delete_pod(pod)

    # -- nodes -----------------------------------------------------------------------------------------

    def delete_node(self) -> None:
        node = self._node()
        if node is not None and len(self._api.nodes) > 1:
            self._api.delete_node(node.metadata.name)
            self._orphan(node.metadata.name)

    def _orphan(self, name: str) -> None:
        """Deletes the pods of a node that is gone, as the pod garbage collector does."""

        def collect() -> None:
            if name not in self._api.nodes:
                for pod in list(self._api.pods.values()):
                    if pod.spec.node_name == name:
                        self._api.delete_pod(pod)

        self._timeline.after(self._rng.uniform(0.5, 5.0), collect)

    def recreate_node(self) -> None:
        """Puts another machine under the same name, with devices of its own."""
        node = self._node()
        if node is None:
            return
        self._n += 1
        name = node.metadata.name
        self._api.delete_node(name)
        for pod in list(self._api.pods.values()):
            if pod.spec.node_name == name:
                self._api.delete_pod(pod)
        fresh = make_node(
            name,
            uid=f"{node.metadata.uid}+{self._n}",
            annotations={
                INVENTORY_KEY: inventory(name, 8, mark=f"+{self._n}", machine=_machine(node)),
            },
        )
        labels = replace(fresh.metadata, labels=node.metadata.labels)
        self._api.put_node(replace(fresh, metadata=labels))

    def cordon_node(self) -> None:
        if node := self._node():
            spec = replace(node.spec, unschedulable=not node.spec.unschedulable)
            self._api.put_node(replace(node, spec=spec))

    def taint_node(self) -> None:
        if node := self._node():
            taints = [] if node.spec.taints else [_TAINT]
            self._api.put_node(replace(node, spec=replace(node.spec, taints=taints)))

    def shrink_node(self) -> None:
        if node := self._node():
            status = replace(
                node.status,
                allocatable={**(node.status.allocatable or {}), GPU: self._rng.randrange(9)},
            )
            self._api.put_node(replace(node, status=status))

    def break_device(self) -> None:
        if node := self._node():
            bad = self._rng.sample(range(8), self._rng.randrange(4))
            self._annotate(node, _listed(node, unhealthy=bad))

    def spoil_inventory(self) -> None:
        """Removes an inventory, or replaces it by an unreadable one."""
        if node := self._node():
            self._annotate(node, self._rng.choice((None, "{", '{"nvidia.com/gpu":[{"id":"a"},{"id":"a"}]}')))

    def rename_devices(self) -> None:
        """Lists the same devices under other names, as after a change of the device plugin's strategy."""
        if node := self._node():
            self._n += 1
            again = inventory(f"{node.metadata.name}-named-{self._n}", 8, machine=_machine(node))
            self._annotate(node, again)

    def _annotate(self, node: Node, text: str | None) -> None:
        own = {k: v for k, v in (node.metadata.annotations or {}).items() if k != INVENTORY_KEY}
        if text is not None:
            own[INVENTORY_KEY] = text
        self._api.put_node(replace(node, metadata=replace(node.metadata, annotations=own)))

    # -- the watch, and ourselves ----------------------------------------------------------------------

    def cut_watch(self) -> None:
        kind = self._rng.choice(("pods", "pods", "nodes", "podgroups.core"))
        self._api.streams[kind].cut(self._rng.uniform(0.0, 2.0))

    def crash(self) -> None:
        """Kills the scheduler between any two of its next effects."""
        if self._weather.rates.crashes:
            self._die_after(self._rng.randrange(12))

    def repair(self) -> None:
        """Makes every node exist, open, whole and listed; removes pods of other schedulers."""
        for pod in self._pods(ours=False):
            self._api.delete_pod(pod)
        for name, node in sorted(self._first_nodes.items()):
            now = self._api.nodes.get(name, node)
            spec = replace(now.spec, taints=None, unschedulable=False)
            whole = replace(now, spec=spec, status=node.status)
            self._api.put_node(whole)
            self._annotate(whole, _listed(whole))


def _listed(node: Node, *, unhealthy: Collection[int] = ()) -> str:
    """The inventory of the node as it is now."""
    name, mark = node.metadata.name, _mark(node)
    return inventory(name, 8, unhealthy=unhealthy, mark=mark, machine=_machine(node))


def _machine(node: Node) -> str:
    return (node.metadata.labels or {}).get(MACHINE_KEY, "")


def _mark(node: Node) -> str:
    return node.metadata.uid.partition("+")[1] + node.metadata.uid.partition("+")[2]

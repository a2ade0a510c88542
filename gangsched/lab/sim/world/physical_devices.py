"""Physical devices: which device of its node each live pod really has, and the judge of that.

A machine's devices are numbered places. A name stands for the place at which it was first listed; after a
renaming there are other names for the same places. Kubelet gives a pod with IDs in its annotations those, and
every other pod any that are free by its own records; it refuses a pod that it cannot serve. Called by
lab.sim.world.actors, lab.sim.runs.driver and lab.sim.judges.places.device_holders; shares no code with what
it judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gangsched.lab.sim.objects import GPU
from gangsched.lab.sim.reading.documents import allocatable, healthy_ids, ids_in, ids_of, pod_asks
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.reading.texts import json_of
from gangsched.lab.sim.world.store import SimStore
from gangsched.model import effects as ef
from gangsched.model.objects import Node, Pod

_MAX_PLACES = 64


class _Machine:
    """One node object's devices. places: name -> place; held: UID -> the places that kubelet gave it."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.held: dict[str, frozenset[int]] = {}
        self.n = 0

    def see(self, node: Node) -> None:
        names = ids_in_order(node).get(GPU, ())
        for at, name in enumerate(names):
            self.places.setdefault(name, at)
        self.n = min(max(self.n, len(names), (allocatable(node) or {}).get(GPU, 0)), _MAX_PLACES)


class PhysicalDevices:
    """The machines' devices, and what each live pod has of them."""

    def __init__(self, api: SimStore, rng: Random) -> None:
        self._api = api
        self._rng = rng
        self._machines: dict[str, _Machine] = {}
        """By UID of the node."""
        api.on_node.append(self._see)

    def _see(self, node: Node) -> None:
        self._machines.setdefault(node.metadata.uid, _Machine()).see(node)

    def admits(self, pod: Pod) -> bool:
        """Gives a pod that has been bound its devices; False if kubelet has to refuse it."""
        amount, machine = pod_asks(pod.spec).get(GPU, 0), self._machine(pod.spec.node_name)
        if not amount or machine is None:
            return True
        self._release(machine, pod.spec.node_name)
        taken = {place for places in machine.held.values() for place in places}
        named = ids_of(pod).get(GPU, frozenset())
        if named:
            given = frozenset(machine.places[name] for name in named if name in machine.places)
            fits = len(given) == len(named) and given.isdisjoint(taken)
        else:
            free = [place for place in range(machine.n) if place not in taken]
            given = frozenset(self._rng.sample(free, min(amount, len(free))))
            fits = len(given) == amount
        if fits:
            machine.held[pod.metadata.uid] = given
        return fits

    def promised(self, bind: ef.BindPod, received: Received) -> Iterator[str]:
        """known-devices: no bind promises an ID whose device a live pod has, if the process has received that
        pod."""
        machine, node = self._machine(bind.node), received.nodes.get(bind.node)
        known = self._api.nodes.get(bind.node)
        if machine is None or known is None or node is None or node.metadata.uid != known.metadata.uid:
            return
        self._release(machine, bind.node)
        for name in sorted(ids_in(bind.annotations, bind.labels).get(GPU, ())):
            for uid, places in machine.held.items():
                is_known = (pod := received.pods.get(uid)) is not None and pod.spec.node_name == bind.node
                if is_known and uid != bind.uid and machine.places.get(name) in places:
                    yield f"known-devices: {bind.name} is promised {name} of {bind.node}, which {uid} has"

    def _machine(self, name: str) -> _Machine | None:
        node = self._api.nodes.get(name)
        return None if node is None else self._machines.get(node.metadata.uid)

    def _release(self, machine: _Machine, name: str) -> None:
        live = {
            pod.metadata.uid
            for pod in self._api.pods.values()
            if pod.spec.node_name == name and not pod.is_terminal
        }
        machine.held = {uid: places for uid, places in machine.held.items() if uid in live}


_LIST, _LABELS = "gangsched.io/devices", ".devices.gangsched.io/"


def ids_in_order(node: Node) -> dict[str, list[str]]:
    """Resource -> all IDs that the node lists, in its order; {} where it lists none, or unreadably."""
    own, labels, infix = node.metadata.annotations or {}, node.metadata.labels or {}, _LABELS
    if healthy_ids(node) and _LIST in own:
        return {name: [one["id"] for one in some] for name, some in json_of(own[_LIST]).items()}
    return {key.replace(infix, "/"): v.split(".") for key, v in labels.items() if infix in key and v}

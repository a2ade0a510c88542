"""Tampering: kubelets that give other devices than planned, people who edit annotations, devices that flap.

Like lab.sim.faults.mischief, but for the three sources of core.device_audit.drift: our records, annotations,
and kubelet's report. `truth` has the devices that kubelet gave, by UID, once reported; other pods have the
planned ones. `differences` lists where the three disagree, which must be empty at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from msgspec.structs import replace

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import MemberState
from gangsched.lab.sim.objects import GPU, inventory
from gangsched.lab.sim.reading.documents import ids_of
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.at_random import AtRandom
from gangsched.lab.sim.world.weather import Weather
from gangsched.model.devices.annotations import ALLOCATED_KEY, INVENTORY_KEY, VISIBLE_KEY
from gangsched.model.devices.report import DEVICE_REPORT_KEY, PodDevices, report_annotation
from gangsched.model.effects import BindPod
from gangsched.model.objects import Node, Pod

Ids = frozenset[str]
_DEEDS = ("edit", "edit", "swap", "swap", "flap")


class Tampering(AtRandom):
    """Does the deeds.

    sent: the binds that have left the scheduler, by UID. scheduler: the running one; a crash brings another.
    """

    def __init__(
        self,
        api: SimApi,
        timeline: Timeline,
        weather: Weather,
        rng: Random,
        *,
        sent: Mapping[str, Sequence[BindPod]],
        scheduler: Callable[[], Scheduler],
    ) -> None:
        super().__init__(api, timeline, weather, rng, per_s=lambda rates: rates.tampering_per_s, deeds=_DEEDS)
        self._sent = sent
        self._scheduler = scheduler
        self.truth: dict[str, Ids] = {}
        self.n_edits = 0
        self.n_swaps = 0

    def edit(self) -> None:
        """Edits a bound pod's annotations, past every policy."""
        pods = list(self._holding())
        if not pods:
            return
        pod = self._rng.choice(pods)
        own = dict(pod.metadata.annotations or {})
        key = self._rng.choice((ALLOCATED_KEY, VISIBLE_KEY))
        text = self._rng.choice((None, "{", "GPU-forged", own.get(key, "") + " "))
        own.pop(key, None)
        if text is not None:
            own[key] = text
        self.n_edits += 1
        self._api.update_pod(pod, metadata=replace(pod.metadata, annotations=own))

    def swap(self) -> None:
        """Lets kubelet give two pods each other's devices; the agent reports both, or one first."""
        by_place: dict[tuple[str, int], list[Pod]] = {}
        for pod in self._holding():
            held = self._has(pod)
            if held:
                by_place.setdefault((pod.spec.node_name, len(held)), []).append(pod)
        alike = [pods for _, pods in sorted(by_place.items()) if len(pods) > 1]
        if not alike:
            return
        one, other = self._rng.sample(self._rng.choice(alike), 2)
        if {one.metadata.uid, other.metadata.uid} & set(self.truth):
            return  # an admitted pod keeps what kubelet has reported
        self.n_swaps += 1
        first, second = self._has(one), self._has(other)
        self.truth[one.metadata.uid] = second
        name = one.spec.node_name
        if self._rng.random() < 0.5:
            self._report(name)
        self.truth[other.metadata.uid] = first
        self._timeline.after(self._rng.uniform(0.0, 0.5), lambda: self._report(name))

    def flap(self) -> None:
        """Makes two devices of a node unhealthy for a moment."""
        node = self._rng.choice(list(self._api.nodes.values()))
        name = node.metadata.name
        self._annotate(node, INVENTORY_KEY, inventory(name, 8, unhealthy=self._rng.sample(range(8), 2)))
        self._timeline.after(self._rng.uniform(0.2, 6.0), lambda: self._heal(name))

    def differences(self) -> Iterator[str]:
        """one-holder, devices-as-bound: at rest annotations, our records and kubelet's report agree."""
        pods = self._scheduler().shared.cache.pods
        owner: dict[tuple[str, str], str] = {}
        for pod in self._holding():
            info = pods.get(pod.metadata.uid)
            if info is None or info.state is not MemberState.BOUND:
                continue
            booked = frozenset(i for ids in info.ids.values() for i in ids)
            written = _ids(pod)
            if written != booked:
                yield (
                    f"devices-as-bound: {pod.key} has {sorted(booked)} by the books and "
                    f"{sorted(written)} in writing"
                )
            if booked != self.truth.get(pod.metadata.uid, booked):
                yield (
                    f"devices-as-bound: {pod.key} has {sorted(booked)} by the books, kubelet gave another set"
                )
            visible = (pod.metadata.annotations or {}).get(VISIBLE_KEY, "")
            if frozenset(visible.split(",")) != written:
                yield f"devices-as-bound: {pod.key} sees {visible} and has {sorted(written)}"
            for device_id in booked:
                if owner.setdefault((pod.spec.node_name, device_id), pod.key) != pod.key:
                    yield (
                        f"one-holder: {device_id} is with {pod.key} and "
                        f"{owner[pod.spec.node_name, device_id]}"
                    )
        audit = self._scheduler().audit
        if drifts := {*audit.drifts, *audit.unusable}:
            yield f"devices-as-bound: drift is left of {sorted(drifts)}"

    # -- what there is ---------------------------------------------------------------------------------

    def _holding(self) -> Iterator[Pod]:
        """Live pods of ours that were bound with devices."""
        for pod in self._api.pods.values():
            sent = self._sent.get(pod.metadata.uid)
            if sent and pod.spec.node_name and not pod.is_terminal and ALLOCATED_KEY in sent[-1].annotations:
                yield pod

    def _has(self, pod: Pod) -> Ids:
        """The pod's actual devices; if kubelet has not reported them, those that the scheduler believes."""
        info = self._scheduler().shared.cache.pods.get(pod.metadata.uid)
        if info is None or info.state is not MemberState.BOUND or not info.ids:
            return frozenset()
        return self.truth.get(pod.metadata.uid, frozenset(info.ids.get(GPU, ())))

    def _report(self, name: str) -> None:
        node = self._api.nodes.get(name)
        if node is None:
            return
        held = []
        for pod in self._api.pods.values():
            ids = self.truth.get(pod.metadata.uid)
            if ids is not None and pod.spec.node_name == name and not pod.is_terminal:
                meta = pod.metadata
                sets = {"main": {GPU: tuple(sorted(ids))}}
                held.append(PodDevices(meta.uid, meta.namespace, meta.name, sets))
        self._annotate(node, DEVICE_REPORT_KEY, report_annotation([GPU], held))

    def _heal(self, name: str) -> None:
        node = self._api.nodes.get(name)
        if node is not None:
            self._annotate(node, INVENTORY_KEY, inventory(name, 8))

    def _annotate(self, node: Node, key: str, text: str) -> None:
        own = {**(node.metadata.annotations or {}), key: text}
        self._api.put_node(replace(node, metadata=replace(node.metadata, annotations=own)))


def _ids(pod: Pod) -> Ids:
    return frozenset(i for ids in ids_of(pod).values() for i in ids)

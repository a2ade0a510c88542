"""Misuse: acts of malicious or careless people: hostile edits, thieves, clocks, CRDs.

Like lab.sim.faults.mischief, but for input from outside. Anything that would keep a gang from ever starting
is undone after a while.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from gangsched.lab.sim.objects import GPU, STRANGER, make_pod
from gangsched.lab.sim.reading.documents import allocatable, given, ids_in, pod_asks
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.workloads.hostile import MEMBER_KEYS, NODE_KEYS, hostile_spec, hostile_text
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.at_random import AtRandom
from gangsched.lab.sim.world.weather import Weather
from gangsched.model import events as ev
from gangsched.model.objects import CustomObject, Pod

DEEDS = (
    "scribble_on_pod",
    "scribble_on_node",
    "scribble_on_group",
    "steal_room",
    "steal_devices",
    "withdraw_kind",
    "step_clock",
    "answer_unasked",
)
"""The deeds of Misuse, each as frequent as the others."""
_DIALECTS = ("core", "coscheduling")


class Misuse(AtRandom):
    """Does the deeds; `answer` passes an event to the scheduler."""

    def __init__(
        self,
        api: SimApi,
        timeline: Timeline,
        weather: Weather,
        rng: Random,
        *,
        answer: Callable[[ev.Event], None],
    ) -> None:
        super().__init__(api, timeline, weather, rng, per_s=lambda rates: rates.misuse_per_s, deeds=DEEDS)
        self._answer = answer

    # -- edits -----------------------------------------------------------------------------------------

    def scribble_on_pod(self) -> None:
        """Gives an unbound pod other annotations, or unreadable ones, for a while."""
        pods = [p for p in self._api.pods.values() if not p.spec.node_name and not p.is_terminal]
        if not pods:
            return
        pod = self._rng.choice(pods)
        own = pod.metadata.annotations or {}
        edited = {**own, self._rng.choice(MEMBER_KEYS): hostile_text(self._rng)}
        self._api.update_pod(pod, metadata=replace(pod.metadata, annotations=edited))
        self._timeline.after(self._rng.uniform(0.5, 8.0), lambda: self._take_back(pod, own))

    def _take_back(self, pod: Pod, own: dict[str, str]) -> None:
        now = self._api.pods.get((pod.metadata.namespace, pod.metadata.name))
        if now is not None:
            written = (now.metadata.annotations or {}).items()
            edited = {key: value for key, value in written if key not in MEMBER_KEYS}
            edited |= {key: value for key, value in own.items() if key in MEMBER_KEYS}
            self._api.update_pod(pod, metadata=replace(now.metadata, annotations=edited))

    def scribble_on_node(self) -> None:
        nodes = list(self._api.nodes.values())
        if not nodes:
            return
        node = self._rng.choice(nodes)
        edited = {**(node.metadata.annotations or {}), self._rng.choice(NODE_KEYS): hostile_text(self._rng)}
        self._api.put_node(replace(node, metadata=replace(node.metadata, annotations=edited)))

    def scribble_on_group(self) -> None:
        """Makes a PodGroup's spec invalid for a while."""
        if not self._api.groups:
            return
        key, item = self._rng.choice(list(self._api.groups.items()))
        self._api.put_group(key[0], replace(item, spec=hostile_spec(self._rng, item.spec or {})))

        def mend() -> None:
            now = self._api.groups.get(key)
            if now is not None:
                self._api.put_group(key[0], replace(now, spec=item.spec))

        self._timeline.after(self._rng.uniform(0.5, 8.0), mend)

    # -- thieves ---------------------------------------------------------------------------------------

    def steal_room(self) -> None:
        """Lets another scheduler take, between our decision and its bind, all GPUs that the store shows
        free."""
        self._steal(ids=False)

    def steal_devices(self) -> None:
        """The same, with pods that name the very devices of our bind."""
        self._steal(ids=True)

    def _steal(self, *, ids: bool) -> None:
        binds = self._api.binds_under_way()
        node = self._api.nodes.get(binds[0].node) if binds else None
        if node is None:
            return
        bind = binds[0]
        used = sum(
            pod_asks(pod.spec).get(GPU, 0)
            for pod in self._api.pods.values()
            if pod.spec.node_name == bind.node and not pod.is_terminal
        )
        n = (allocatable(node) or {}).get(GPU, 0) - used
        if n <= 0:
            return
        self._n += 1
        taken: dict[str, str] = {}
        if ids and given(bind.annotations):
            taken = {key: v for key, v in bind.annotations.items() if "devices" in key}
            n = sum(map(len, ids_in(taken).values()))
        thief = make_pod(f"thief-{self._n}", gpus=n, scheduler=STRANGER)
        self._api.create_pod(thief)
        self._api.bind_as_stranger(thief, bind.node, taken)
        self._timeline.after(self._rng.uniform(1.0, 10.0), lambda: self._api.delete_pod(thief))

    # -- the server ------------------------------------------------------------------------------------

    def withdraw_kind(self) -> None:
        """Removes a CRD, and its objects with it; brings both back after a while."""
        dialect = self._rng.choice(_DIALECTS)
        stream = self._api.streams[f"podgroups.{dialect}"]
        if not stream.is_offered:
            return
        items = [item for key, item in self._api.groups.items() if key[0] == dialect]
        for item in items:
            self._api.delete_group(dialect, item.metadata.namespace, item.metadata.name)
        stream.withdraw()
        self._timeline.after(self._rng.uniform(1.0, 10.0), lambda: self._bring_back(dialect, items))

    def _bring_back(self, dialect: str, items: list[CustomObject]) -> None:
        for item in items:
            self._n += 1
            uid = f"{item.metadata.uid.partition('+')[0]}+s{self._n}"
            again = replace(item, metadata=replace(item.metadata, uid=uid), status=None)
            self._api.put_group(dialect, again)
        self._api.streams[f"podgroups.{dialect}"].offer(self._rng.uniform(0.0, 1.0))

    def step_clock(self) -> None:
        """Sets the API server's clock an hour off, or right again."""
        self._api.wall_offset_s = self._rng.choice((-3600.0, 0.0, 3600.0))

    def answer_unasked(self) -> None:
        """Sends an unrequested but true answer to a GET."""
        pods = list(self._api.pods.values())
        if pods:
            pod = self._rng.choice(pods)
            self._answer(ev.PodRead(pod.metadata.uid, pod))

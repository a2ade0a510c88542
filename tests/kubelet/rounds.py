"""One round: gangs land on one node in any order, and whatever can happen on a node happens between.

Lives here: a scheduler's part as far as it matters here (plan, spacing, repair), the API server's and its
watchers' (who hears what when), the dice. Not here: kubelet (`kubelet`), what is checked (`test_rounds`). One
seed fixes a round; the plugin is the real one, its messages go through their bytes, and only the sockets are
missing.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from random import Random

import msgspec
from grpclib.exceptions import GRPCError

from gangsched.agent.device_plugin import Mismatch, Plugin
from gangsched.agent.hand_off import Known
from gangsched.agent.kubelet_api import deviceplugin_pb2 as pb
from gangsched.agent.plan import Memory, NodePods, given_by_kubelet, planned_pod, pods_of_kubelet
from gangsched.agent.plugin_settings import HandOff, PluginDocument
from gangsched.agent.reporting import is_whole, report
from gangsched.core.binding.admission_conflicts import are_interchangeable
from gangsched.core.types.pod_template import PodTemplate
from gangsched.model.device_constraints import CONSTRAINTS_KEY
from gangsched.model.device_labels import allocation_labels, allocation_text
from gangsched.model.device_report import DeviceReport, parse_report
from gangsched.model.devices import ALLOCATED_KEY, Device, parse_allocation
from gangsched.model.events import Event, KindSynced, PodAdded, PodUpdated
from gangsched.model.objects import Container, ObjectMeta, Pod, PodSpec, PodStatus, ResourceRequirements
from gangsched.model.resources import ResourceTable
from tests.kubelet.kubelet import Crash, Refused, TestKubelet

GPU, NIC = "example.com/gpu", "example.com/nic"
WHEN = datetime(2026, 1, 2, tzinfo=UTC)

Shape = tuple[tuple[str, str, int, bool], ...]
"""container, resource, count, runs."""

NEAR = json.dumps({GPU: {"sameNUMA": True}})
"""What some of a gang's members ask of their devices, as a whole."""


class Wire:
    """The plugin as kubelet calls it: through the messages' bytes, an error as one."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    @property
    def prefers(self) -> bool:
        return self._plugin.options.get_preferred_allocation_available

    async def preferred(self, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse:
        asked = pb.PreferredAllocationRequest.FromString(request.SerializeToString())
        answer = await self._plugin.preferred(asked)
        return pb.PreferredAllocationResponse.FromString(answer.SerializeToString())

    async def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        try:
            answer = await self._plugin.allocate(pb.AllocateRequest.FromString(request.SerializeToString()))
        except GRPCError as error:
            raise Refused(error.message) from None
        return pb.AllocateResponse.FromString(answer.SerializeToString())


class Round:
    """shows_pods: kubelet has the Pods API. lists_ahead: it lists pods before it admits them, so that its
    list does not tell which it is admitting. aligns: it has a TopologyManager; tell_numa: which is told.

    in_labels: pods carry their IDs as labels. trouble: kubelet and agent restart, kubelet dies after an
    Allocate. Everything of it from `seed`.
    """

    def __init__(
        self,
        seed: int,
        *,
        hand_off: HandOff = "device-plugin",
        shows_pods: bool = False,
        lists_ahead: bool = False,
        aligns: bool = False,
        tell_numa: bool = False,
        trouble: bool = True,
        by_gang: bool = False,
        in_labels: bool = False,
    ) -> None:
        self.rng = Random(seed)
        self.in_labels = in_labels
        self.shows_pods = shows_pods
        self.lists_ahead = lists_ahead
        self.by_gang = by_gang
        self.trouble = trouble
        self.kubelet = TestKubelet(self.rng, aligns=aligns)
        self.tell_numa = tell_numa
        n = self.rng.choice((4, 8, 8, 16))
        self.inventory = {
            GPU: {f"gpu-{i}": i * 2 // n for i in range(n)},
            NIC: {f"nic-{i}": i * 2 // 4 for i in range(4)},
        }
        self.pods: dict[str, Pod] = {}
        self.plans: dict[str, set[frozenset[str]]] = {}
        self.gang_of: dict[str, str] = {}
        self.wholes: set[frozenset[str]] = set()
        self.waiting: list[tuple[str, Shape, bool]] = []
        self.to_kubelet: deque[tuple[str, Pod]] = deque()
        self.to_agent: deque[Event] = deque()
        self.finished: list[str] = []
        self.had: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
        """By UID of pods that have ended: container -> resource -> what it had."""
        self.unknown: set[str] = set()
        """Ended pods that said something else when the agent was started anew: it does not know of them."""
        self.now_s = 0.0
        self.n_swaps = self.n_replaced = self.n_bound = self.n_gangs = self.n_near = 0
        self.n_late = self.n_cut = 0
        """Pods in the middle of whose admission kubelet died: who goes on then, it does not say."""
        self.refusals: list[Mismatch] = []
        self._report = DeviceReport()
        """What the Node says: the agent's last report."""
        self._hand_off: HandOff = hand_off
        self._table = ResourceTable()
        self._templates: dict[int, tuple[Pod, PodTemplate]] = {}
        self._start_agent()
        self._register()

    # -- the node's agent ------------------------------------------------------------------------------------

    def _start_agent(self) -> None:
        self.agent_pods = NodePods()
        self.agent_pods.hear([*(PodAdded(pod) for pod in self.pods.values()), KindSynced("pods")])
        self.memory = Memory()
        self.to_agent.clear()
        self._known: Known | None = None
        self.plugins = {
            resource: Plugin(
                PluginDocument(resource=resource, hand_off=self._hand_off, tell_numa=self.tell_numa),
                self,
                clock=lambda: self.now_s,
            )
            for resource in self.inventory
        }
        for resource, plugin in self.plugins.items():
            plugin.show(Device(name, numa=numa) for name, numa in self.inventory[resource].items())

    def _register(self) -> None:
        """Register and ListAndWatch, as far as kubelet's accounting sees of them."""
        for resource, plugin in self.plugins.items():
            self.kubelet.plugins[resource] = Wire(plugin)
            shown, _ = plugin.listed()
            self.kubelet.listed(
                resource,
                {
                    one.ID: one.topology.nodes[0].ID if one.topology.nodes else -1
                    for one in shown.devices
                    if one.health == "Healthy"
                },
            )

    async def look(self, *, again: bool) -> Known:
        if again or self._known is None:
            given = dict(given_by_kubelet(self.kubelet.pod_resources()))
            for _, pod in self.to_kubelet if self.lists_ahead else ():
                key = (pod.metadata.namespace, pod.metadata.name)
                given.setdefault(key, {one.name: {} for one in pod.spec.containers})
            if self.shows_pods and self.kubelet.is_ready:
                pods = pods_of_kubelet(self.kubelet.list_pods())
                self._known = Known(pods, given, by_kubelet=True)
            else:
                live = [pod for pod in self.pods.values() if not pod.is_terminal]
                listed = tuple(planned_pod(pod) for pod in live)
                self._known = Known(listed, self.memory.completed(given, listed))
        return self._known

    async def news(self, timeout_s: float) -> None:
        """While kubelet waits for us, the API server's word arrives, and the scheduler goes on."""
        self.now_s += timeout_s
        self._known = None
        if self.to_agent:
            self._agent_hears()
        else:
            self._repair()

    def granted(self) -> None:
        self._known = None

    def refused(self, mismatch: Mismatch) -> None:
        self.refusals.append(mismatch)

    def _agent_hears(self) -> None:
        if self.to_agent:
            self.agent_pods.hear([self.to_agent.popleft()])
            self._known = None

    # -- the API server --------------------------------------------------------------------------------------

    def _put(self, pod: Pod) -> None:
        is_new = pod.metadata.uid not in self.pods
        self.pods[pod.metadata.uid] = pod
        self.to_agent.append(PodAdded(pod) if is_new else PodUpdated(pod))
        self.to_kubelet.append(("ADD" if is_new else "UPDATE", pod))

    def _annotate(self, uid: str, allocation: dict[str, dict[str, list[str]]]) -> None:
        pod = self.pods[uid]
        meta = self._carrying(pod.metadata, allocation)
        self._put(msgspec.structs.replace(pod, metadata=meta))

    def _carrying(self, meta: ObjectMeta, allocation: dict[str, dict[str, list[str]]]) -> ObjectMeta:
        if self.in_labels:
            return msgspec.structs.replace(meta, labels=allocation_labels(_frozen(allocation)))
        notes = {**(meta.annotations or {}), ALLOCATED_KEY: json.dumps(allocation)}
        return msgspec.structs.replace(meta, annotations=notes)

    def _status(self, uid: str, phase: str) -> None:
        pod = self.pods[uid]
        self._put(msgspec.structs.replace(pod, status=PodStatus(phase=phase, start_time=WHEN)))

    # -- the scheduler ---------------------------------------------------------------------------------------

    def submit(self) -> None:
        """A gang's members that land here: their shape, and as many of them as there may be."""
        self.n_gangs += 1
        n = self.rng.choice((1, 1, 2, 2, 4 if len(self.inventory[GPU]) > 4 else 3))
        kind = self.rng.random()
        if kind < 0.6:
            shape: Shape = (("main", GPU, n, True),)
        elif kind < 0.75:
            shape = (("main", GPU, n, True), ("main", NIC, 1, True))
        elif kind < 0.9:
            shape = (("one", GPU, 1, True), ("two", GPU, n, True))
        else:
            shape = (("setup", GPU, self.rng.randint(1, n), False), ("main", GPU, n, True))
        n_running = sum(count for _, resource, count, runs in shape if runs and resource == GPU)
        n_per_node = sum(not where for where in self.inventory[GPU].values())
        is_mixed = 1 < n_running <= n_per_node and self.rng.random() < 0.5
        for _ in range(self.rng.randint(1, 4)):
            near = is_mixed and self.rng.random() < 0.5
            self.waiting.append((f"gang-{self.n_gangs}", shape, near))

    def bind(self) -> bool:
        """Binds the first of those that wait, if devices are free and nobody like it is due."""
        if not self.waiting:
            return False
        gang, shape, near = self.waiting[0]
        like = _member(shape, near)
        if not self._is_spaced(gang, shape, like):
            return False
        allocation = self._planned(shape, near=near)
        if allocation is None:
            return False
        self.waiting.pop(0)
        self.n_bound += 1
        self.n_near += near
        uid = f"u-{self.n_bound}"
        meta = ObjectMeta(
            name=f"{gang}-{self.n_bound}",
            namespace="default",
            uid=uid,
            annotations=like.metadata.annotations,
        )
        meta = self._carrying(meta, allocation)
        self.gang_of[uid] = gang
        self.plans[uid] = set()
        self._put(Pod(meta, like.spec, PodStatus(phase="Pending")))
        self._remember_plan(uid)
        self.wholes.add(whole_of(allocation))
        return True

    def _remember_plan(self, uid: str) -> None:
        self.plans[uid] |= {ids for _, _, ids in _sets(self.pods[uid])}

    def _is_spaced(self, gang: str, shape: Shape, like: Pod) -> bool:
        """As core.binding.admission_conflicts has it; `by_gang`: as if all members of a gang were
        interchangeable."""
        if self.shows_pods:
            return True
        counts = {(resource, n) for _, resource, n, _ in shape}
        reported = {one.uid for one in self._report.pods}
        for uid, pod in self.pods.items():
            if pod.is_terminal or pod.status.start_time is not None or uid in reported:
                continue
            for resource, _ in counts & {(resource, len(ids)) for _, resource, ids in _sets(pod)}:
                if self.gang_of[uid] != gang or not (self.by_gang or self._are_alike(like, pod, resource)):
                    return False
        return True

    def _are_alike(self, one: Pod, other: Pod, resource: str) -> bool:
        return are_interchangeable(self._template(one), self._template(other), resource)

    def _template(self, pod: Pod) -> PodTemplate:
        known = self._templates.get(id(pod))
        if known is None or known[0] is not pod:
            known = self._templates[id(pod)] = pod, PodTemplate(pod, self._table, len(self._templates))
        return known[1]

    def _planned(self, shape: Shape, *, near: bool) -> dict[str, dict[str, list[str]]] | None:
        free = {resource: set(devices) for resource, devices in self.inventory.items()}
        for pod in self.pods.values():
            if not pod.is_terminal:
                for _, resource, ids in _sets(pod):
                    free[resource] -= ids
        for one in self._report.pods:  # what is held in truth, whatever an annotation still says
            for sets in one.containers.values():
                for resource, held in sets.items():
                    free[resource] -= set(held)
        if near:
            n_running = sum(count for _, resource, count, runs in shape if runs and resource == GPU)
            homes = [home for where in (0, 1) if len(home := self._of_numa(free[GPU], where)) >= n_running]
            if not homes:
                return None
            free[GPU] = self.rng.choice(homes)
        allocation: dict[str, dict[str, list[str]]] = {}
        for name, resource, n, runs in sorted(shape, key=lambda one: not one[3]):
            if runs:
                if len(free[resource]) < n:
                    return None
                numa = self.inventory[resource]
                pool = sorted(free[resource])
                self.rng.shuffle(pool)
                if self.rng.random() < 0.5:
                    pool.sort(key=lambda one: numa[one])
                chosen = pool[:n]
                free[resource] -= set(chosen)
            else:  # an init container's are its pod's
                whole = [one for sets in allocation.values() for one in sets.get(resource, ())]
                chosen = self.rng.sample(sorted(whole), n)
            allocation.setdefault(name, {})[resource] = chosen
        order = list(dict.fromkeys(name for name, *_ in shape))
        return {name: allocation[name] for name in order}

    def _of_numa(self, devices: set[str], where: int) -> set[str]:
        return {device for device in devices if self.inventory[GPU][device] == where}

    def read_and_report(self) -> None:
        """The agent reads PodResources and says on the Node what it saw."""
        given = given_by_kubelet(self.kubelet.pod_resources())
        if is_whole(given, self.agent_pods.all()):
            self.memory.completed(given, self.agent_pods.all())
            ended = self.memory.had(self.agent_pods.ended())
            text = report(tuple(self.inventory), given, self.agent_pods.all(), ended)
            self._report = parse_report(text)

    def _repair(self) -> None:
        """The scheduler makes the annotations true, by exchange among the pods of the node."""
        self.read_and_report()
        for one in self._report.pods:
            pod = self.pods.get(one.uid)
            if pod is None or pod.is_terminal:
                continue
            for container, sets in one.containers.items():
                for resource, held in sets.items():
                    self._make_true(one.uid, container, resource, frozenset(held))
        for one in self._report.ended:
            if one.uid in self.had:
                self.n_late += 1
                mine = allocation_of(self.pods[one.uid])
                for container, sets in one.containers.items():
                    mine[container] |= {resource: list(held) for resource, held in sets.items()}
                self._annotate(one.uid, self._with_inits(one.uid, mine))

    def says_what_it_had(self, uid: str) -> bool:
        said = allocation_of(self.pods[uid])
        inits = {one.name for one in self.pods[uid].spec.init_containers or ()}
        return all(
            frozenset(said.get(container, {}).get(resource, ())) == ids
            for container, sets in self.had[uid].items()
            if container not in inits
            for resource, ids in sets.items()
        )

    def _make_true(self, uid: str, container: str, resource: str, held: frozenset[str]) -> None:
        mine = allocation_of(self.pods[uid])
        planned = frozenset(mine.get(container, {}).get(resource, ()))
        if planned == held:
            return
        others = [
            (other, name)
            for other, pod in self.pods.items()
            if not pod.is_terminal
            for name, of, ids in _sets(pod)
            if of == resource and ids == held and (other, name) != (uid, container)
        ]
        mine[container][resource] = sorted(held)
        self._annotate(uid, self._with_inits(uid, mine))
        for other, name in others:
            theirs = allocation_of(self.pods[other])
            theirs[name][resource] = sorted(planned)
            self._annotate(other, self._with_inits(other, theirs))
            self._remember_plan(other)
            self.n_swaps += 1

    def _with_inits(
        self, uid: str, allocation: dict[str, dict[str, list[str]]]
    ) -> dict[str, dict[str, list[str]]]:
        """Plain init containers have what is their pod's."""
        inits = {one.name for one in self.pods[uid].spec.init_containers or ()}
        for name in inits:
            for resource, ids in allocation.get(name, {}).items():
                rest = [sets.get(resource, []) for other, sets in allocation.items() if other not in inits]
                whole = sorted({one for part in rest for one in part})
                if not set(ids) <= set(whole):
                    allocation[name][resource] = whole[: len(ids)]
        return allocation

    # -- turns -----------------------------------------------------------------------------------------------

    async def kubelet_hears(self) -> bool:
        """kubelet takes the next word of its watch; a pod may overtake another one."""
        if not self.to_kubelet:
            return False
        kind, pod = self.to_kubelet.popleft()
        if kind == "ADD" and self.to_kubelet and self.rng.random() < 0.5:
            later = [i for i, (other, _) in enumerate(self.to_kubelet) if other == "ADD"]
            if later:
                i = self.rng.choice(later)
                self.to_kubelet[i], (kind, pod) = (kind, pod), self.to_kubelet[i]
        uid = pod.metadata.uid
        if kind == "GONE":
            self.kubelet.remove(uid)
        elif kind == "ADD" and uid not in self.kubelet.pods:
            await self._admit(self.pods.get(uid, pod))
        elif uid in self.kubelet.pods:
            self.kubelet.pods[uid] = pod
        return True

    async def _admit(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        try:
            await self.kubelet.add(pod)
        except Crash:
            self.n_cut += bool(self.kubelet.devices.held.get(uid))
            await self.restart_kubelet()
            return
        if uid in self.kubelet.failed and not self.pods[uid].is_terminal:
            # Its gang's controller makes another one.
            self._status(uid, "Failed")
            self.n_replaced += 1
            self.waiting.append((self.gang_of[uid], _shape(pod), is_near(pod)))

    def kubelet_says(self) -> None:
        """One of the pods that it has admitted gets its startTime."""
        quiet = [uid for uid in self.kubelet.admitted if uid not in self.kubelet.started]
        if quiet:
            uid = self.rng.choice(sorted(quiet))
            self.kubelet.started.add(uid)
            self._status(uid, "Running")

    def finish(self) -> None:
        """A pod that the agent has reported of, or has read of and not said: it reads at once, and containers
        take longer than that to start and end. The latter where nobody else is to be reported as exchanged:
        the scheduler here exchanges whole sets, and plans with what its books say is free."""
        reported = {one.uid for one in self._report.pods}
        running = sorted(
            uid
            for uid in self.kubelet.started & self.kubelet.admitted
            if uid not in self.kubelet.ended
            and (uid in reported or (self._was_read(uid) and not self._is_exchanged_beside(uid)))
        )
        if running:
            uid = self.rng.choice(running)
            self.had[uid] = {
                container: {resource: frozenset(ids) for resource, ids in sets.items()}
                for container, sets in self.kubelet.devices.held[uid].items()
            }
            self.kubelet.end(uid)
            self._status(uid, "Succeeded")
            self.finished.append(uid)

    def _was_read(self, uid: str) -> bool:
        return bool(self.memory.had([planned_pod(self.pods[uid])]))

    def _is_exchanged_beside(self, uid: str) -> bool:
        for other, pod in self.live():
            inits = {one.name for one in pod.spec.init_containers or ()}
            held = self.kubelet.devices.held.get(other, {})
            for container, resource, ids in _sets(pod):
                has = held.get(container, {}).get(resource, ids)
                if other != uid and container not in inits and has != ids:
                    return True
        return False

    async def restart_kubelet(self) -> None:
        """All pods come anew; its sources are ready, and the Pods API answers, when they have."""
        self.kubelet.restart()
        self._known = None
        self._register()
        self.to_kubelet = deque(one for one in self.to_kubelet if one[0] != "ADD")
        for pod in list(self.pods.values()):
            if not pod.is_terminal:
                await self._admit(pod)
        self.kubelet.is_ready = True

    def restart_agent(self) -> None:
        self.unknown |= {uid for uid in self.had if not self.says_what_it_had(uid)}
        self._start_agent()
        self._register()

    async def run(self, turns: int) -> None:
        """Until every gang has landed and everything has been heard; refused ones may go on for ever."""
        for _ in range(self.rng.randint(2, 5)):
            self.submit()
        for _ in range(turns):
            if await self._turn():
                return
        assert self.tell_numa, f"not done after {turns} turns: {self.waiting}"
        self.waiting.clear()
        while not await self._settled():
            self.waiting.clear()
            await self.kubelet_hears()

    async def _turn(self) -> bool:
        dice = self.rng.random()
        if self.trouble and dice < 0.01:
            await self.restart_kubelet()
        elif self.trouble and dice < 0.02:
            self.restart_agent()
        elif self.trouble and dice < 0.03:
            self.kubelet.crashes = 0.2 if self.kubelet.crashes == 0 else 0.0
        elif dice < 0.35:
            self.bind()
        elif dice < 0.55:
            await self.kubelet_hears()
        elif dice < 0.7:
            self._agent_hears()
        elif dice < 0.8:
            self.kubelet_says()
        elif dice < 0.85:
            self._repair()
        elif dice < 0.9 and self.waiting:
            self.finish()
        else:
            return await self._settled()
        return False

    async def _settled(self) -> bool:
        if self.waiting or self.to_kubelet:
            return False
        while self.to_agent:
            self._agent_hears()
        for uid in sorted(self.kubelet.admitted - self.kubelet.started):
            self.kubelet.started.add(uid)
            self._status(uid, "Running")
        while self.to_agent:
            self._agent_hears()
        self._repair()
        while self.to_kubelet:
            await self.kubelet_hears()
        return not self.waiting

    def live(self) -> Iterator[tuple[str, Pod]]:
        for uid, pod in self.pods.items():
            if not pod.is_terminal:
                yield uid, pod


@cache
def _member(shape: Shape, near: bool) -> Pod:
    """What all members of a shape have in common."""
    spec = PodSpec(
        node_name="n1",
        containers=[_container(name, shape) for name in _names(shape, True)],
        init_containers=[_container(name, shape) for name in _names(shape, False)],
    )
    return Pod(ObjectMeta(annotations={CONSTRAINTS_KEY: NEAR} if near else {}), spec)


def _container(name: str, shape: Shape) -> Container:
    limits: dict[str, str | int | float] = {of: str(n) for one, of, n, _ in shape if one == name}
    return Container(name=name, image="busybox", resources=ResourceRequirements(limits=limits))


def _names(shape: Shape, runs: bool) -> list[str]:
    return list(dict.fromkeys(name for name, _, _, does in shape if does is runs))


def _shape(pod: Pod) -> Shape:
    return tuple(
        (container.name, resource, int(n), runs)
        for containers, runs in ((pod.spec.init_containers or [], False), (pod.spec.containers, True))
        for container in containers
        for resource, n in ((container.resources and container.resources.limits) or {}).items()
    )


def is_near(pod: Pod) -> bool:
    return CONSTRAINTS_KEY in (pod.metadata.annotations or {})


def whole_of(allocation: Mapping[str, Mapping[str, Iterable[str]]]) -> frozenset[str]:
    """All devices of a pod, by names that are one node's alone."""
    return frozenset(one for sets in allocation.values() for ids in sets.values() for one in ids)


def _frozen(allocation: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, tuple[str, ...]]]:
    return {c: {r: tuple(ids) for r, ids in sets.items()} for c, sets in allocation.items()}


def allocation_of(pod: Pod) -> dict[str, dict[str, list[str]]]:
    text = allocation_text(pod.metadata.annotations, pod.metadata.labels) or ""
    return {
        container: {resource: list(ids) for resource, ids in sets.items()}
        for container, sets in parse_allocation(text).items()
    }


def _sets(pod: Pod) -> tuple[tuple[str, str, frozenset[str]], ...]:
    return _sets_in(allocation_text(pod.metadata.annotations, pod.metadata.labels) or "")


@lru_cache(maxsize=4096)
def _sets_in(text: str) -> tuple[tuple[str, str, frozenset[str]], ...]:
    return tuple(
        (container, resource, frozenset(ids))
        for container, sets in parse_allocation(text).items()
        for resource, ids in sets.items()
    )

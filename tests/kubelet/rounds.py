"""One round: gangs land on one node in any order, and whatever can happen on a node happens between.

Lives here: the node's agent with its plugins, kubelet's turns, the dice. Not here: kubelet (kubelet.py), the
scheduler's part (scheduling.py), the API server's (round_api.py), what is checked (test_rounds.py). One seed
fixes a round; the plugin is the real one, its messages go through their bytes, and only the sockets are
missing.
"""

from __future__ import annotations

from collections import deque
from random import Random

from grpclib.exceptions import GRPCError

from gangsched.agent.kubelet_api import deviceplugin_pb2 as pb
from gangsched.agent.plugins.device_plugin import Mismatch, Plugin
from gangsched.agent.plugins.granted import is_whole, report
from gangsched.agent.plugins.hand_off import Known
from gangsched.agent.plugins.messages import given_by_kubelet, pods_of_kubelet
from gangsched.agent.plugins.plan import Memory, NodePods, planned_pod
from gangsched.agent.plugins.settings import HandOff, PluginDocument
from gangsched.model.devices.annotations import Device
from gangsched.model.devices.report import parse_report
from gangsched.model.events import KindSynced, PodAdded
from gangsched.model.objects import Pod
from tests.kubelet.kubelet import Crash, Refused, TestKubelet
from tests.kubelet.round_api import RoundApi
from tests.kubelet.scheduling import RoundScheduler
from tests.kubelet.shapes import GPU, NIC, allocation_of, sets_of


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
        self.api = RoundApi(in_labels=in_labels)
        self.shows_pods = shows_pods
        self.lists_ahead = lists_ahead
        self.trouble = trouble
        self.kubelet = TestKubelet(self.rng, aligns=aligns)
        self.tell_numa = tell_numa
        n = self.rng.choice((4, 8, 8, 16))
        self.inventory = {
            GPU: {f"gpu-{i}": i * 2 // n for i in range(n)},
            NIC: {f"nic-{i}": i * 2 // 4 for i in range(4)},
        }
        self.scheduler = RoundScheduler(
            self.rng, self.api, self.inventory, shows_pods=shows_pods, by_gang=by_gang
        )
        self.had: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
        """By UID of pods that have ended: container -> resource -> what it had."""
        self.unknown: set[str] = set()
        """Ended pods that said something else when the agent was restarted: it does not know of them."""
        self.now_s = 0.0
        self.n_replaced = 0
        self.n_cut = 0
        """Pods in the middle of whose admission kubelet died: with which it goes on then, it does not say."""
        self.refusals: list[Mismatch] = []
        self._hand_off: HandOff = hand_off
        self._start_agent()
        self._register()

    # -- the node's agent ------------------------------------------------------------------------------------

    def _start_agent(self) -> None:
        self.agent_pods = NodePods()
        self.agent_pods.apply([*(PodAdded(pod) for pod in self.api.pods.values()), KindSynced("pods")])
        self.memory = Memory()
        self.api.to_agent.clear()
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
            for _, pod in self.api.to_kubelet if self.lists_ahead else ():
                key = (pod.metadata.namespace, pod.metadata.name)
                given.setdefault(key, {one.name: {} for one in pod.spec.containers})
            if self.shows_pods and self.kubelet.is_ready:
                pods = pods_of_kubelet(self.kubelet.list_pods())
                self._known = Known(pods, given, by_kubelet=True)
            else:
                listed = tuple(planned_pod(pod) for _, pod in self.api.live())
                self._known = Known(listed, self.memory.completed(given, listed))
        return self._known

    async def news(self, timeout_s: float) -> None:
        """While kubelet waits for us, the API server's word arrives, and the scheduler goes on."""
        self.now_s += timeout_s
        self._known = None
        if self.api.to_agent:
            self._agent_hears()
        else:
            self._repair()

    def granted(self) -> None:
        self._known = None

    def refused(self, mismatch: Mismatch) -> None:
        self.refusals.append(mismatch)

    def _agent_hears(self) -> None:
        if self.api.to_agent:
            self.agent_pods.apply([self.api.to_agent.popleft()])
            self._known = None

    def read_and_report(self) -> None:
        """The agent reads PodResources and says on the Node what it saw."""
        given = given_by_kubelet(self.kubelet.pod_resources())
        if is_whole(given, self.agent_pods.all()):
            self.memory.completed(given, self.agent_pods.all())
            ended = self.memory.had(self.agent_pods.ended())
            text = report(tuple(self.inventory), given, self.agent_pods.all(), ended)
            self.scheduler.report = parse_report(text)

    def _repair(self) -> None:
        self.read_and_report()
        self.scheduler.repair(self.had)

    def says_what_it_had(self, uid: str) -> bool:
        said = allocation_of(self.api.pods[uid])
        inits = {one.name for one in self.api.pods[uid].spec.init_containers or ()}
        return all(
            frozenset(said.get(container, {}).get(resource, ())) == ids
            for container, sets in self.had[uid].items()
            if container not in inits
            for resource, ids in sets.items()
        )

    # -- turns -----------------------------------------------------------------------------------------------

    async def kubelet_hears(self) -> bool:
        """kubelet takes the next word of its watch; a pod may overtake another one."""
        if not self.api.to_kubelet:
            return False
        kind, pod = self.api.to_kubelet.popleft()
        if kind == "ADD" and self.api.to_kubelet and self.rng.random() < 0.5:
            later = [i for i, (other, _) in enumerate(self.api.to_kubelet) if other == "ADD"]
            if later:
                i = self.rng.choice(later)
                self.api.to_kubelet[i], (kind, pod) = (kind, pod), self.api.to_kubelet[i]
        uid = pod.metadata.uid
        if kind == "GONE":
            self.kubelet.remove(uid)
        elif kind == "ADD" and uid not in self.kubelet.pods:
            await self._admit(self.api.pods.get(uid, pod))
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
        if uid in self.kubelet.failed and not self.api.pods[uid].is_terminal:
            self.api.set_phase(uid, "Failed")
            self.n_replaced += 1
            self.scheduler.make_again(pod)

    def kubelet_says(self) -> None:
        """One of the pods that it has admitted gets its startTime."""
        quiet = [uid for uid in self.kubelet.admitted if uid not in self.kubelet.started]
        if quiet:
            uid = self.rng.choice(sorted(quiet))
            self.kubelet.started.add(uid)
            self.api.set_phase(uid, "Running")

    def finish(self) -> None:
        """A pod that the agent has reported of, or has read of and not said: it reads at once, and containers
        take longer than that to start and end. The latter where nobody else is to be reported as exchanged:
        the scheduler here exchanges whole sets, and plans with what its books say is free."""
        reported = {one.uid for one in self.scheduler.report.pods}
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
            self.api.set_phase(uid, "Succeeded")

    def _was_read(self, uid: str) -> bool:
        return bool(self.memory.had([planned_pod(self.api.pods[uid])]))

    def _is_exchanged_beside(self, uid: str) -> bool:
        for other, pod in self.api.live():
            inits = {one.name for one in pod.spec.init_containers or ()}
            held = self.kubelet.devices.held.get(other, {})
            for container, resource, ids in sets_of(pod):
                has = held.get(container, {}).get(resource, ids)
                if other != uid and container not in inits and has != ids:
                    return True
        return False

    async def restart_kubelet(self) -> None:
        """All pods come again; its sources are ready, and the Pods API answers, when they have."""
        self.kubelet.restart()
        self._known = None
        self._register()
        self.api.to_kubelet = deque(one for one in self.api.to_kubelet if one[0] != "ADD")
        for _, pod in list(self.api.live()):
            await self._admit(pod)
        self.kubelet.is_ready = True

    def restart_agent(self) -> None:
        self.unknown |= {uid for uid in self.had if not self.says_what_it_had(uid)}
        self._start_agent()
        self._register()

    async def run(self, turns: int) -> None:
        """Until every gang has landed and everything has been heard; refused ones may go on for ever."""
        for _ in range(self.rng.randint(2, 5)):
            self.scheduler.submit()
        for _ in range(turns):
            if await self._turn():
                return
        assert self.tell_numa, f"not done after {turns} turns: {self.scheduler.waiting}"
        self.scheduler.waiting.clear()
        while not await self._settled():
            self.scheduler.waiting.clear()
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
            self.scheduler.bind()
        elif dice < 0.55:
            await self.kubelet_hears()
        elif dice < 0.7:
            self._agent_hears()
        elif dice < 0.8:
            self.kubelet_says()
        elif dice < 0.85:
            self._repair()
        elif dice < 0.9 and self.scheduler.waiting:
            self.finish()
        else:
            return await self._settled()
        return False

    async def _settled(self) -> bool:
        if self.scheduler.waiting or self.api.to_kubelet:
            return False
        while self.api.to_agent:
            self._agent_hears()
        for uid in sorted(self.kubelet.admitted - self.kubelet.started):
            self.kubelet.started.add(uid)
            self.api.set_phase(uid, "Running")
        while self.api.to_agent:
            self._agent_hears()
        self._repair()
        while self.api.to_kubelet:
            await self.kubelet_hears()
        return not self.scheduler.waiting

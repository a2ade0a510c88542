"""A kubelet of the tests without sockets: its pods, admission one at a time, what its APIs show.

Written from kubelet's HandlePodAdditions, its device manager and its PodResources and Pods servers (v1.37.1).
Not here: gRPC (`sockets`), who sends it pods (`rounds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Protocol

from gangsched.agent.kubelet_api import deviceplugin_pb2 as plugin_pb2
from gangsched.agent.kubelet_api import pod_pb2
from gangsched.agent.kubelet_api import podresources_pb2 as resources_pb2
from gangsched.model.devices.annotations import device_demand
from gangsched.model.objects import Pod
from tests.kubelet.device_manager import DeviceManager, NoDevices


class Refused(Exception):
    """The plugin answered with an error."""


class PluginOfKubelet(Protocol):
    """A device plugin as kubelet calls it. Raises from both: Refused."""

    @property
    def prefers(self) -> bool: ...

    async def preferred(
        self, request: plugin_pb2.PreferredAllocationRequest
    ) -> plugin_pb2.PreferredAllocationResponse: ...

    async def allocate(self, request: plugin_pb2.AllocateRequest) -> plugin_pb2.AllocateResponse: ...


class Crash(Exception):
    """kubelet dies in the middle of an admission."""


class TestKubelet:
    """pods: kubelet's pod manager, by UID in the order of their coming.

    admitted, started: UIDs; started is what it has said to the API server. failed: UID -> why, final.
    """

    __test__ = False

    def __init__(self, rng: Random, *, aligns: bool = False) -> None:
        self.rng = rng
        self.devices = DeviceManager(rng, aligns=aligns)
        self.plugins: dict[str, PluginOfKubelet] = {}
        self.pods: dict[str, Pod] = {}
        self.admitted: set[str] = set()
        self.started: set[str] = set()
        self.failed: dict[str, str] = {}
        self.ended: set[str] = set()
        self.outfits: dict[tuple[str, str, str], plugin_pb2.ContainerAllocateResponse] = {}
        self.n_preferred = self.n_allocated = 0
        self.is_ready = True
        self.crashes = 0.0
        """How likely it dies after an Allocate that it has not yet written down."""

    # -- what happens to it ----------------------------------------------------------------------------------

    async def add(self, pod: Pod) -> None:
        """A pod from the API server; it is in the list before it is admitted. Raises: Crash."""
        uid = pod.metadata.uid
        self.pods[uid] = pod
        if uid in self.ended or uid in self.failed:
            return
        try:
            await self._admit(pod)
        except (NoDevices, Refused) as error:
            self.failed[uid] = f"UnexpectedAdmissionError: {error}"
            self.devices.forget(uid)
        else:
            self.admitted.add(uid)

    def end(self, uid: str) -> None:
        """Its containers have stopped for good."""
        self.ended.add(uid)
        self.devices.forget(uid)

    def remove(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.devices.forget(uid)
        self.admitted.discard(uid)

    def restart(self) -> None:
        """Pods and plugins are unknown until they are told again."""
        self.pods.clear()
        self.admitted.clear()
        self.plugins.clear()
        self.devices.restart()
        self.is_ready = False

    def listed(self, resource: str, devices: Mapping[str, int]) -> None:
        """ListAndWatch: the healthy devices and their NUMA nodes."""
        self.devices.healthy[resource] = dict(devices)

    # -- what it shows ---------------------------------------------------------------------------------------

    def pod_resources(self) -> resources_pb2.ListPodResourcesResponse:
        """PodResources List: active pods, plain init containers left out."""
        answer = resources_pb2.ListPodResourcesResponse()
        for uid, pod in list(self.pods.items()):
            if uid in self.failed or uid in self.ended:
                continue
            shown = answer.pod_resources.add(name=pod.metadata.name, namespace=pod.metadata.namespace)
            inits = [one for one in pod.spec.init_containers or () if one.restart_policy == "Always"]
            for container in (*inits, *pod.spec.containers):
                part = shown.containers.add(name=container.name)
                for resource, ids in self.devices.held.get(uid, {}).get(container.name, {}).items():
                    part.devices.add(resource_name=resource, device_ids=sorted(ids))
        return answer

    def list_pods(self) -> list[bytes]:
        """ListPods of the Pods API."""
        return [self._shown(uid, pod).SerializeToString() for uid, pod in sorted(self.pods.items())]

    def _shown(self, uid: str, pod: Pod) -> pod_pb2.Pod:
        meta = pod.metadata
        shown = pod_pb2.Pod()
        shown.metadata.name, shown.metadata.namespace, shown.metadata.uid = meta.name, meta.namespace, uid
        for key, value in (meta.annotations or {}).items():
            shown.metadata.annotations[key] = value
        for key, value in (meta.labels or {}).items():
            shown.metadata.labels[key] = value
        shown.status.phase = (
            "Failed" if uid in self.failed else "Succeeded" if uid in self.ended else "Pending"
        )
        if uid in self.started:
            shown.status.startTime.seconds = 1
        return shown

    # -- admission -------------------------------------------------------------------------------------------

    async def _admit(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        resources = sorted({name for c in _containers(pod) for name in (_limits(c))})
        demands = {resource: device_demand(pod.spec, resource) for resource in resources}
        reusable: dict[str, set[str]] = {resource: set() for resource in resources}
        for container in _containers(pod):
            wanted = list(_limits(container).items())
            self.rng.shuffle(wanted)  # a Go map
            for resource, n in wanted:
                await self._give(uid, container.name, resource, n, reusable[resource])
                runs = next(one[2] for one in demands[resource] if one[0] == container.name)
                has = set(self.devices.held[uid][container.name][resource])
                reusable[resource] = reusable[resource] - has if runs else reusable[resource] | has
            self.devices.write_checkpoint()

    async def _give(self, uid: str, container: str, resource: str, n: int, reusable: set[str]) -> None:
        plugin = self.plugins.get(resource)

        async def preferred(available: set[str], must: set[str], size: int) -> set[str]:
            if plugin is None or not plugin.prefers:
                return set()
            self.n_preferred += 1
            asked = plugin_pb2.ContainerPreferredAllocationRequest(
                available_deviceIDs=self.devices._any_order(available),
                must_include_deviceIDs=self.devices._any_order(must),
                allocation_size=size,
            )
            answer = await plugin.preferred(plugin_pb2.PreferredAllocationRequest(container_requests=[asked]))
            return set(answer.container_responses[0].deviceIDs)

        chosen = await self.devices.choose(uid, container, resource, n, reusable, preferred)
        if chosen is None:
            return
        if plugin is None:
            raise NoDevices(f"unknown Device Plugin {resource}")
        self.n_allocated += 1
        asked = plugin_pb2.ContainerAllocateRequest(devices_ids=self.devices._any_order(chosen))
        answer = await plugin.allocate(plugin_pb2.AllocateRequest(container_requests=[asked]))
        if self.rng.random() < self.crashes:
            raise Crash
        self.devices.record(uid, container, resource, chosen)
        self.outfits[uid, container, resource] = answer.container_responses[0]


def _containers(pod: Pod) -> list:  # type: ignore[type-arg]
    return [*(pod.spec.init_containers or ()), *pod.spec.containers]


def _limits(container: object) -> dict[str, int]:
    resources = container.resources  # type: ignore[attr-defined]
    limits = resources.limits if resources is not None else None
    return {name: int(amount) for name, amount in (limits or {}).items() if "/" in name}

"""Devices of other plugins, as kubelet reports them: PodResources GetAllocatableResources.

It lists the healthy ones with their NUMA nodes but no models or links. One that turns unhealthy is no longer
listed; while a pod holds it the Node lists it as unhealthy (`inventory`).
"""

from __future__ import annotations

import asyncio

from gangsched.agent.kubelet_api import podresources_pb2
from gangsched.agent.plugins.kubelet import Kubelet, KubeletError
from gangsched.agent.plugins.settings import KubeletDocument
from gangsched.agent.report.reports import Place, Report, Silence
from gangsched.agent.sources.device_file import check_id
from gangsched.model.devices.annotations import Device


class PodResourcesSource:
    """Keeps kubelet's last report while kubelet is away: its restart makes no device unhealthy."""

    period_s = 2.0
    silence = Silence.NOTHING

    def __init__(self, settings: KubeletDocument) -> None:
        self.name = f"kubelet's PodResources ({settings.pod_resources})"
        self._settings = settings
        self._places: tuple[Place, ...] = ()
        self._was_read = False

    def read(self) -> Report:
        """Raises: nothing."""
        try:
            answer = asyncio.run(self._asked())
        except KubeletError as error:
            problem = f"{error}; what it last listed stays"
            return Report(self.name, self._places, (problem,), problem, whole=self._was_read)
        self._was_read = True
        listed: dict[str, dict[str, Device]] = {name: {} for name in self._settings.resources}
        # kubelet does not check what plugins list, and one bad entry would make the Node's whole list
        # unreadable.
        bad: dict[str, str] = {}
        for part in answer.devices:
            there = listed.get(part.resource_name)
            if there is None:
                continue
            numa = part.topology.nodes[0].ID if len(part.topology.nodes) == 1 else -1
            for one in part.device_ids:
                if problem := check_id(one):
                    bad.setdefault(part.resource_name, problem)
                else:
                    there[one] = Device(one, numa=max(numa, -1))
        problems = tuple(f"{self.name}: of {name} not all are listed: {why}" for name, why in bad.items())
        named = [name for name, there in listed.items() if there]
        self._places = (Place(self.name, {name: _in_order(listed[name]) for name in named}),)
        missing = [name for name in listed if name not in named]
        looked = f"{self.name}: no plugin has listed {', '.join(missing)}" if missing else ""
        return Report(self.name, self._places, problems, looked)

    async def _asked(self) -> podresources_pb2.AllocatableResourcesResponse:
        kubelet = Kubelet(self._settings)
        try:
            return await kubelet.allocatable()
        finally:
            kubelet.close()


def _in_order(there: dict[str, Device]) -> tuple[Device, ...]:
    # kubelet's order differs each time.
    return tuple(there[name] for name in sorted(there))

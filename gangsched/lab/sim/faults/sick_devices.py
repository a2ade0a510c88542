"""SickDevices: kubelets that find devices under running pods sick, find them well, or no longer know.

What they write into the pods' status (KEP-4680), as lab.sim.faults.mischief makes nodes list devices as
unhealthy. Of some devices that the pod does not have, too: kubelet may count by IDs of its own.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from gangsched.lab.sim.objects import GPU
from gangsched.lab.sim.reading.documents import ids_of
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.at_random import AtRandom
from gangsched.lab.sim.world.weather import Weather
from gangsched.model.objects import (
    ContainerRun,
    ContainerState,
    ContainerStatus,
    Pod,
    ResourceHealth,
    ResourceStatus,
)

DEEDS = ("find_sick_device",)
_HEALTH = ("Unhealthy", "Unhealthy", "Unknown", "Healthy")
_LATER = ("Healthy", "Healthy", "Unknown", None)
_NOT_ITS_OWN = 0.1


class SickDevices(AtRandom):
    """Does the deeds."""

    def __init__(self, api: SimApi, timeline: Timeline, weather: Weather, rng: Random) -> None:
        super().__init__(api, timeline, weather, rng, per_s=lambda rates: rates.sick_per_s, deeds=DEEDS)

    def find_sick_device(self) -> None:
        """A kubelet finds out about a device of one of its pods, and mostly something else a moment later."""
        running = [pod for pod in self._api.pods.values() if pod.status.phase == "Running" and _ids(pod)]
        if not running:
            return
        pod, health = self._rng.choice(running), self._rng.choice(_HEALTH)
        device_id = "GPU-0" if self._rng.random() < _NOT_ITS_OWN else self._rng.choice(_ids(pod))
        self._tell(pod, device_id, health)
        if (later := self._rng.choice(_LATER)) is not None:
            key, uid = (pod.metadata.namespace, pod.metadata.name), pod.metadata.uid
            wait_s = self._rng.uniform(0.2, 6.0)
            self._timeline.after(wait_s, lambda: self._tell_again(key, uid, device_id, later))

    def _tell_again(self, key: tuple[str, str], uid: str, device_id: str, health: str) -> None:
        now = self._api.pods.get(key)
        if now is not None and now.metadata.uid == uid and now.status.phase == "Running":
            self._tell(now, device_id, health)

    def _tell(self, pod: Pod, device_id: str, health: str) -> None:
        """Others of its devices are well."""
        by_id = {**dict.fromkeys(_ids(pod), "Healthy"), device_id: health}
        devices = [ResourceHealth(one, each) for one, each in by_id.items()]
        running = ContainerState(running=ContainerRun())
        said = [ContainerStatus(running, allocated_resources_status=[ResourceStatus(GPU, devices)])]
        self._api.update_pod(pod, status=replace(pod.status, container_statuses=said))


def _ids(pod: Pod) -> list[str]:
    return sorted(ids_of(pod).get(GPU, ()))

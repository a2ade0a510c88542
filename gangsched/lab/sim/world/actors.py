"""Kubelets and controllers: start bound pods, end them, and replace lost gang members.

Plain and prompt: hostile behaviour is in lab.sim.faults.mischief. Called through SimApi's hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from gangsched.lab.sim.objects import at
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.physical_devices import PhysicalDevices
from gangsched.lab.sim.world.weather import Weather
from gangsched.model.devices.annotations import ALLOCATED_KEY, VISIBLE_KEY
from gangsched.model.devices.labels import allocated_labels
from gangsched.model.objects import ObjectMeta, Pod, PodSpec, PodStatus
from gangsched.model.pod_group import BIND_KEYS

RUN_KEY = "sim/run-s"
"""How long a pod runs before it succeeds; without it, for ever."""
CONTROLLED_KEY = "sim/controlled"
"""A member with this annotation is recreated when it is gone or has failed."""
_PREPARES_AGAIN_S = 0.5
_WRITTEN = (ALLOCATED_KEY, VISIBLE_KEY, *BIND_KEYS)


class Kubelets:
    """Start bound pods, or refuse them, and end them when their time is over. devices: the machines' own."""

    def __init__(self, api: SimApi, timeline: Timeline, rng: Random, weather: Weather) -> None:
        self._api = api
        self._timeline = timeline
        self._weather = weather
        self._rng = rng
        self.devices = PhysicalDevices(api, Random("devices"))
        self.is_prepared: Callable[[Pod], bool] = lambda pod: True
        """Whether the pod's resource claims are ready for it; until then it does not run."""
        api.on_bound.append(self._start)

    def _start(self, pod: Pod) -> None:
        is_refused = (rate := self._weather.rates.refused) and self._rng.random() < rate
        if is_refused or not self.devices.admits(pod):
            self._timeline.after(self._rng.uniform(0.02, 0.5), lambda: self._refuse(pod))
            return
        self._timeline.after(self._rng.uniform(0.1, 0.5), lambda: self._run(pod))
        run_s = (pod.metadata.annotations or {}).get(RUN_KEY)
        if run_s is not None:
            self._timeline.after(1.0 + float(run_s), lambda: self._phase(pod, "Succeeded"))

    def _run(self, pod: Pod) -> None:
        now = self._api.pods.get((pod.metadata.namespace, pod.metadata.name))
        if now is not None and now.metadata.uid == pod.metadata.uid and not self.is_prepared(now):
            self._timeline.after(_PREPARES_AGAIN_S, lambda: self._run(pod))
        else:
            self._phase(pod, "Running")

    def _refuse(self, pod: Pod) -> None:
        """Does not admit the pod; most controllers delete it then, to make another."""
        reason = self._rng.choice(("UnexpectedAdmissionError", "OutOfcpu", "TopologyAffinityError"))
        self._phase(pod, "Failed", reason)
        if self._rng.random() < 0.7:
            self._timeline.after(self._rng.uniform(0.1, 3.0), lambda: self._api.delete_pod(pod))

    def _phase(self, pod: Pod, phase: str, reason: str = "") -> None:
        now = self._api.pods.get((pod.metadata.namespace, pod.metadata.name))
        if now is not None and now.metadata.uid == pod.metadata.uid and not now.is_terminal:
            started = now.status.start_time or self._api.wall_time()
            self._api.update_pod(
                now, status=replace(now.status, phase=phase, reason=reason, start_time=started)
            )


class Controllers:
    """Recreate a lost member under its name, as a StatefulSet or an indexed Job does."""

    def __init__(self, api: SimApi, timeline: Timeline, rng: Random) -> None:
        self._api = api
        self._timeline = timeline
        self._rng = rng
        self._n_made = 0
        api.on_gone.append(self._replace)

    def _replace(self, gone: Pod) -> None:
        if CONTROLLED_KEY in (gone.metadata.annotations or {}):
            self._timeline.after(self._rng.uniform(0.05, 2.0), lambda: self._create(gone))

    def _create(self, gone: Pod) -> None:
        self._n_made += 1
        self._api.create_pod(reborn(gone, f"r{self._n_made}", self._api.wall_s))


def reborn(pod: Pod, mark: str, now_s: float) -> Pod:
    """Returns a pod of the same name and spec with a new UID, without what was written at its bind."""
    meta = pod.metadata
    own = {k: v for k, v in (meta.annotations or {}).items() if k not in _WRITTEN}
    fresh = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=f"{meta.uid.partition('+')[0]}+{mark}",
        labels={k: v for k, v in (meta.labels or {}).items() if k not in allocated_labels(meta.labels)},
        annotations=own,
        creation_timestamp=at(now_s),
    )
    spec: PodSpec = replace(pod.spec, node_name="", scheduling_gates=None)
    return Pod(metadata=fresh, spec=spec, status=PodStatus())

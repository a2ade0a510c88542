"""Properties over seeds: no two pods are due on a node that kubelet's device plugin API could mix up.

Gangs whose members ask for the same number under other constraints, in a storm of faults. GANGSCHED_SEEDS
says how many seeds (default 60, a third of them here).
"""

from __future__ import annotations

import os
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.core.binding.admission_conflicts import AdmissionConflicts
from gangsched.lab.sim.objects import GPU
from gangsched.lab.sim.reading.documents import ids_in
from gangsched.lab.sim.runs.driver import Broken, Simulation
from gangsched.lab.sim.workloads.arrivals import Workload, random_workload
from gangsched.lab.sim.world.weather import STORM
from gangsched.model.devices.annotations import ALLOCATED_KEY
from gangsched.model.devices.constraints import CONSTRAINTS_KEY
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GANG_KEY

N_SEEDS = int(os.environ.get("GANGSCHED_SEEDS", "60"))
SETTINGS = Settings(devices=DeviceSettings(hand_off={GPU: "device-plugin"}), fence=True)
_NEAR = msgspec.json.encode({GPU: {"sameNUMA": True}}).decode()


class Watched:
    """One seed's run; `mixed`: pairs that were due together and must not have been."""

    def __init__(self, seed: int) -> None:
        self.sim = Simulation(seed, _with_constraints(seed), rates=STORM, settings=SETTINGS)
        self.sim.api.on_bound.append(self._bound)
        self.mixed: list[str] = []
        self.n_together = 0

    def run(self) -> Watched:
        self.sim.run_for(40.0)
        self.sim.settle()
        return self

    def _bound(self, pod: Pod) -> None:
        for other in self.sim.api.pods.values():
            is_due = other.spec.node_name == pod.spec.node_name and other.status.start_time is None
            if not is_due or other.is_terminal or other.metadata.uid == pod.metadata.uid:
                continue
            if not _counts(pod) & _counts(other):
                continue
            if _recorded(pod) == _recorded(other):
                self.n_together += 1
            else:
                self.mixed.append(f"{pod.key} was bound while {other.key} was due there")


def _with_constraints(seed: int) -> Workload:
    rng = Random(f"{seed}-constraints")
    workload = random_workload(seed, n_arrivals=9)
    arrivals = tuple(
        replace(arrival, pods=tuple(_near(pod) if rng.random() < 0.4 else pod for pod in arrival.pods))
        for arrival in workload.arrivals
    )
    return replace(workload, arrivals=arrivals)


def _near(pod: Pod) -> Pod:
    asked = pod.spec.containers[0].resources
    if asked is None or (asked.requests or {}).get(GPU) not in (1, 2, 4):
        return pod
    own = {**(pod.metadata.annotations or {}), CONSTRAINTS_KEY: _NEAR}
    return replace(pod, metadata=replace(pod.metadata, annotations=own))


def _counts(pod: Pod) -> set[int]:
    own = pod.metadata.annotations or {}
    return {len(ids) for ids in ids_in(own).values()} if ALLOCATED_KEY in own else set()


def _recorded(pod: Pod) -> tuple[str | None, str | None]:
    own = pod.metadata.annotations or {}
    return own.get(GANG_KEY), own.get(CONSTRAINTS_KEY)


@pytest.mark.parametrize("seed", range(N_SEEDS // 3))
def test_pods_that_kubelet_could_mix_up_are_not_due_together(seed: int) -> None:
    try:
        found = Watched(seed).run()
    except Broken as broken:
        pytest.fail(f"seed {seed}: {broken}", pytrace=False)
    assert not found.mixed, f"seed {seed}: {found.mixed}"


def test_there_is_enough_to_find(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that may be exchanged are due together; without the spacing others would be, too."""
    assert sum(Watched(seed).run().n_together for seed in range(4)) > 10
    monkeypatch.setattr(AdmissionConflicts, "holds", lambda self, info: "")
    assert any(Watched(seed).run().mixed for seed in range(6))

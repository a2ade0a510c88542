"""Persistent volumes in storms: they are given, made and lost under gangs, and all comes to rest."""

from __future__ import annotations

import pytest

from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import STORMS, case
from gangsched.lab.sim.runs.volume_run import VolumeSimulation
from gangsched.lab.sim.workloads.volumes import volumes_workload
from gangsched.lab.sim.world.volumes import DISK, LOCAL, claims_of
from gangsched.lab.sim.world.weather import CALM
from gangsched.model.storage import CLAIMS
from gangsched.plugins.volumes.volume_matching import Choice, Given

VOLUMES = STORMS["volumes"]


def test_gangs_get_their_volumes_and_all_comes_to_rest() -> None:
    n_failed = n_astray = n_local = 0
    for seed in (*range(54_009, 54_013), 54_033):
        sim = case(VOLUMES, seed).run()
        assert isinstance(sim, VolumeSimulation)
        history = b"".join(sim.history)
        assert b"PreBind" in history
        assert b"BindPod" in history
        n_failed += history.count(b"provisioning failed")
        n_astray += history.count(b" does not reach pvc-")
        bound = [one for one in sim.api.objects[CLAIMS].values() if one.spec.volume_name]
        n_local += sum(one.spec.storage_class_name == LOCAL for one in bound)
    assert n_failed, "no driver failed"
    assert n_astray, "no driver made a volume elsewhere"
    assert n_local, "no local volume was given"


def test_the_same_seed_decides_the_same() -> None:
    first, again = case(VOLUMES, 54_010).run(), case(VOLUMES, 54_010).run()
    assert first.history == again.history


def test_in_good_weather_everybody_starts() -> None:
    for seed in range(54_020, 54_023):
        sim = VolumeSimulation(seed, volumes_workload(seed), rates=CALM)
        sim.run_for(60.0)
        sim.settle()
        assert {pod.metadata.name for pod in sim.api.pods.values() if not pod.spec.node_name} <= waiting(sim)


def test_a_gang_whose_shared_volume_is_not_seen_by_its_second_pod_is_found_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The volume that one pod gets was taken for the other's too, and not found again by it."""

    def given_to_another(given: Given, choice: Choice) -> None:
        for claim, volume in choice.volumes:
            given.by_claim[f"another's {claim.metadata.uid}"] = volume
            given.names.add(volume.metadata.name)

    monkeypatch.setattr(Given, "give", given_to_another)
    found = case(VOLUMES, 11).failure()
    assert found is not None
    assert "volumes-found: d/g8 waits, and fits on n1, n1 with its volumes" in str(found)


def waiting(sim: Simulation) -> set[str]:
    """Pods whose local volumes others have kept."""
    pods = sim.api.pods.values()
    return {pod.metadata.name for pod in pods if any(LOCAL in one or DISK in one for one in claims_of(pod))}

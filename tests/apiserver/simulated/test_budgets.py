"""A budget's status, by which evictions are allowed."""

from __future__ import annotations

from typing import Any

from gangsched.lab.apiserver.strategy import Object
from tests.apiserver.simulated.scenario import World, pod

PDB = "poddisruptionbudgets.policy"


def guarded(n_pods: int, **spec: Any) -> World:
    world = World(1)
    world.create(
        PDB, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec}}
    )
    for i in range(n_pods):
        each = pod(f"p{i}")
        each["metadata"]["labels"] = {"app": "x"}
        world.submit(each, on="node-0")
    return world.submit(pod("other"), on="node-0").run(0.5)


def status(world: World) -> dict[str, int]:
    found = world.get(PDB, "b")["status"]
    return {
        key: found[key] for key in ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
    }


def counts(healthy: int, desired: int, expected: int, allowed: int) -> dict[str, int]:
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
    }


def test_a_budget_counts_the_pods_that_are_ready() -> None:
    world = guarded(3, minAvailable=2)
    assert status(world) == counts(0, 2, 3, 0)
    assert world.condition(PDB, "b", "DisruptionAllowed")["reason"] == "InsufficientPods"
    assert status(world.run(2)) == counts(3, 2, 3, 1)
    assert world.condition(PDB, "b", "DisruptionAllowed")["status"] == "True"
    assert status(world.delete("pods", "p0").run(0.2)) == counts(2, 2, 3, 0)
    assert status(world.run(2)) == counts(2, 2, 2, 0)


def test_an_eviction_that_was_allowed_counts_until_it_is_seen_or_two_minutes_are_over() -> None:
    def allow(obj: Object) -> None:
        obj["status"]["disruptedPods"] = {"p0": "2026-01-01T00:00:02Z"}

    world = guarded(3, minAvailable=2).run(2).change(PDB, "b", allow).run(1)
    assert status(world) == counts(2, 2, 3, 0)
    world.run(120).delete("pods", "other").run(1)
    assert status(world) == counts(3, 2, 3, 1)


def test_a_share_of_a_job_cannot_be_counted_and_that_is_reported() -> None:
    world = World(1)
    selector = {"matchLabels": {"app": "x"}}
    world.create(PDB, {"metadata": {"name": "b"}, "spec": {"selector": selector, "maxUnavailable": 1}})
    template: Object = {"metadata": {"labels": {"app": "x"}}, "spec": pod("")["spec"]}
    world.create("jobs.batch", {"metadata": {"name": "j"}, "spec": {"template": template}})
    condition = world.run(1).condition(PDB, "b", "DisruptionAllowed")
    assert condition["reason"] == "SyncFailed"
    assert condition["message"] == "jobs.batch does not implement the scale subresource"

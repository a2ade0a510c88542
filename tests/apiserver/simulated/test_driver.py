"""The simulated cluster in real time, and what an error in one place does to the rest."""

from __future__ import annotations

import asyncio

import pytest

from gangsched.lab.apiserver.registry import Registry, utc_now
from gangsched.lab.apiserver.simulated import SimulatedCluster, run
from gangsched.lab.apiserver.strategy import Object
from tests.apiserver.simulated.scenario import World, pod
from tests.support.tasks import until

LIMIT_S = 20.0


async def until_phase(world: World, name: str, phase: str) -> None:
    await until(lambda: world.phase(name) == phase, f"{name} is {phase}", timeout_s=LIMIT_S)


def in_real_time(world: World, speed: float) -> asyncio.Task[None]:
    """The world's registry with another cluster, which time drives."""
    world.cluster.stop()
    world.registry.now = utc_now
    return asyncio.create_task(run(SimulatedCluster(world.registry, speed=speed, seed=1)))


async def test_time_passes_at_the_speed_asked_for() -> None:
    world = World(1).submit(pod("a", run_s=3600), on="node-0")
    running = in_real_time(world, speed=20_000)
    await until_phase(world, "a", "Running")
    await until_phase(world, "a", "Succeeded")  # in 0.2 s
    running.cancel()


async def test_a_write_wakes_it() -> None:
    world = World(1)
    running = in_real_time(world, speed=100)
    await asyncio.sleep(0.05)
    world.submit(pod("a"), on="node-0")
    await until_phase(world, "a", "Running")
    world.delete("pods", "a")
    await until_phase(world, "a", "gone")
    running.cancel()


async def test_once_cancelled_it_hears_nothing_more() -> None:
    world = World(1)
    running = in_real_time(world, speed=100)
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    world.submit(pod("a"), on="node-0")
    await asyncio.sleep(0.1)
    assert world.phase("a") == "Pending"
    assert "hostIP" not in world.get("pods", "a")["status"]


def test_one_object_that_cannot_be_dealt_with_does_not_stop_the_others() -> None:
    world = World(1)
    modify = Registry.modify

    class Broken(Registry):
        """Whatever is done to the pod `bad` is a bug."""

    def failing(self: Registry, resource: object, namespace: str, name: str, change: object) -> object:
        if name == "bad":
            raise RuntimeError("a bug")
        return modify(self, resource, namespace, name, change)  # type: ignore[arg-type]

    Broken.modify = failing  # type: ignore[assignment,method-assign]
    world.submit(pod("bad"), on="node-0").submit(pod("good", run_s=5), on="node-0")
    world.registry.__class__ = Broken
    assert world.run(10).phase("good") == "Succeeded"
    assert world.phase("bad") == "Pending"


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> list[tuple[str, Object]]:
        world = World(3)
        for i in range(12):
            each = pod(f"p{i}", run_s=4)
            each["metadata"]["annotations"].pop("simulated.gangsched.io/start-seconds")
            world.submit(each, on=f"node-{i % 3}")
        seen: list[tuple[str, Object]] = []
        world.registry.store.subscribe(lambda change: seen.append((change.type, change.item.decode())))
        world.run(30)
        return seen

    assert history() == history()

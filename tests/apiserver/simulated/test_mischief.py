"""Everything at once, in a random order: no device is ever held twice, and nothing is lost on the way."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from gangsched.model.devices.annotations import ALLOCATED_KEY
from tests.apiserver.simulated.scenario import GPU, World, gpu, pod

N_NODES, N_GPUS = 4, 4


def one_thing(world: World, rng: Random, number: int) -> None:
    """What users, schedulers and fate do to a cluster."""
    node = f"node-{rng.randrange(N_NODES)}"
    pods = [each["metadata"]["name"] for each in world.all("pods")]
    name = rng.choice(pods) if pods else ""
    match rng.randrange(9):
        case 0 | 1 | 2 | 3:
            ids = gpu(node, *rng.sample(range(N_GPUS), rng.choice((1, 2))))
            named = {"main": ids} if rng.random() < 0.8 else None
            run_s = rng.choice((1, 20, None))
            restart = rng.choice(("Never", "OnFailure", "Always"))
            spec = pod(
                f"p{number}", run_s=run_s, gpus=len(ids), restart=restart, exit_code=rng.choice((0, 1))
            )
            world.submit(spec, on=node, devices=named)
        case 4 if name:
            world.delete("pods", name)
        case 5 if name:
            world.delete("pods", name, grace_s=0)
        case 6:
            world.annotate(node, killed=rng.choice(("true", None)))
        case 7:
            world.annotate(node, unhealthy_devices=rng.choice((f"GPU-{node}-0", None)))
        case 8:
            world.annotate(node, vanished_devices=rng.choice((f"GPU-{node}-3", None)))


def running_holders(world: World) -> Counter[str]:
    """How many running pods name each device."""
    found: Counter[str] = Counter()
    for each in world.all("pods"):
        text = each["metadata"]["annotations"].get(ALLOCATED_KEY)
        if each["status"]["phase"] == "Running" and text:
            found.update(msgspec.json.decode(text)["main"][GPU])
    return found


@pytest.mark.parametrize("seed", range(6))
def test_no_device_is_held_twice_and_everything_comes_back(seed: int) -> None:
    rng = Random(seed)
    world = World(N_NODES, gpus=N_GPUS, cpu=64)
    for number in range(150):
        one_thing(world, rng, number)
        world.run(rng.choice((0, 0.3, 3, 30)))
        twice = {device: n for device, n in running_holders(world).items() if n > 1}
        assert not twice

    # The faults end, everything is deleted: what is left is a cluster as good as new.
    for i in range(N_NODES):
        world.annotate(f"node-{i}", killed=None, unhealthy_devices=None, vanished_devices=None)
    for each in world.all("pods"):
        world.delete("pods", each["metadata"]["name"])
    world.run(120)
    assert world.all("pods") == []
    for i in range(N_NODES):
        node = f"node-{i}"
        assert world.taints(node) == set()
        assert world.condition("nodes", node, "Ready")["status"] == "True"
        assert world.condition("nodes", node, "DeviceAllocationConflict").get("status", "False") == "False"
        whole = pod(f"whole-{i}", gpus=N_GPUS, cpu="64")
        world.submit(whole, on=node, devices={"main": gpu(node, *range(N_GPUS))})
    world.run(2)
    assert {each["status"]["phase"] for each in world.all("pods")} == {"Running"}
